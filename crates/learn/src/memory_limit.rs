//! How much an observation may keep in memory.
//!
//! A program may look up millions of paths, or start processes until it is stopped; the recorder runs as root and must not be
//! what the machine runs out of memory by. What exceeds the limit is counted, and the profile says that it is not complete.

/// The share of the machine's memory, as one part of so many; what is made of it at the end takes about twice as much again.
const SHARE: u64 = 16;
/// At least, bytes: a desktop's login fits.
const LEAST_BYTES: u64 = 64 << 20;
/// At most, bytes: some five million lookups, and more than a profile may hold.
const MOST_BYTES: u64 = 512 << 20;

/// What a collection takes for an element beside its content: the allocation's head and the spare limit of tables.
const OVERHEAD_BYTES: usize = 32;

/// Memory that is handed out element by element.
#[derive(Debug)]
pub struct MemoryLimit {
    left_bytes: usize,
    /// What did not fit, in elements.
    refused: u64,
}

/// The limit of one observation on a machine with this much memory, bytes.
pub fn memory_limit_bytes(memory_bytes: u64) -> usize {
    (memory_bytes / SHARE).clamp(LEAST_BYTES, MOST_BYTES) as usize
}

impl MemoryLimit {
    /// A limit of this many bytes.
    pub fn of(bytes: usize) -> MemoryLimit {
        MemoryLimit { left_bytes: bytes, refused: 0 }
    }

    /// Takes memory for `elements` of a type that own `elsewhere_bytes` besides. `false`: the limit is reached, and the elements are counted.
    pub fn take<T>(&mut self, elements: usize, elsewhere_bytes: usize) -> bool {
        let bytes = elements.saturating_mul(size_of::<T>() + OVERHEAD_BYTES).saturating_add(elsewhere_bytes);
        let left = self.left_bytes.checked_sub(bytes);
        match left {
            Some(left) => self.left_bytes = left,
            None => self.refused += elements as u64,
        }
        left.is_some()
    }

    /// How many elements were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_what_fits_later_is_taken() {
        let mut limit = MemoryLimit::of(200);
        assert!(limit.take::<u64>(1, 100));
        assert!(!limit.take::<u64>(3, 0));
        assert!(limit.take::<u64>(1, 0));
        assert_eq!(limit.refused(), 3);
    }
}
