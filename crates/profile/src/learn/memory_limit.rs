//! The memory limit of an observation.
//!
//! A program may look up millions of paths, or start processes until it is stopped. The recorder runs as root and must not
//! exhaust the memory of the machine. Elements beyond the limit are counted, and the profile reports that it is incomplete.

/// The limit is the machine's memory divided by this. Evaluating the observation takes about twice as much in addition.
const SHARE: u64 = 16;
/// Minimum, bytes: enough for a desktop login.
const LEAST_BYTES: u64 = 64 << 20;
/// Maximum, bytes: some five million lookups, more than a profile may contain.
const MOST_BYTES: u64 = 512 << 20;

/// Overhead of an element in a collection: the allocation's header and the spare capacity of tables.
const OVERHEAD_BYTES: usize = 32;

/// A budget of memory for elements.
#[derive(Debug)]
pub struct MemoryLimit {
    left_bytes: usize,
    /// Number of elements that exceeded the limit.
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

    /// Takes memory for `elements` of a type that own further `elsewhere_bytes`. `false`: the limit is reached, and the
    /// elements are counted.
    pub fn take<T>(&mut self, elements: usize, elsewhere_bytes: usize) -> bool {
        let bytes = elements.saturating_mul(size_of::<T>() + OVERHEAD_BYTES).saturating_add(elsewhere_bytes);
        let left = self.left_bytes.checked_sub(bytes);
        match left {
            Some(left) => self.left_bytes = left,
            None => self.refused += elements as u64,
        }
        left.is_some()
    }

    /// The number of refused elements.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_elements_are_counted_and_smaller_ones_still_fit() {
        let mut limit = MemoryLimit::of(200);
        assert!(limit.take::<u64>(1, 100));
        assert!(!limit.take::<u64>(3, 0));
        assert!(limit.take::<u64>(1, 0));
        assert_eq!(limit.refused(), 3);
    }
}
