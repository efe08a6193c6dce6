//! How much an observation may keep in memory.
//!
//! A program may look up millions of paths, or start processes until it is stopped; the recorder runs as root and must not be
//! what the machine runs out of memory by. What finds no room is counted, and the profile says that it is not complete.

use ahead_sys::machine;

/// The share of the machine's memory, as one part of so many; what is made of it at the end takes about twice as much again.
const SHARE: u64 = 16;
/// At least, bytes: a desktop's login fits.
const LEAST_BYTES: u64 = 64 << 20;
/// At most, bytes: some five million lookups, and more than a profile may hold.
const MOST_BYTES: u64 = 512 << 20;

/// What a collection takes for an element beside its content: the allocation's head and the spare room of tables.
const OVERHEAD_BYTES: usize = 32;

/// Room that is given away piece by piece.
#[derive(Debug)]
pub(crate) struct Room {
    left_bytes: usize,
    /// What did not fit, in elements.
    refused: u64,
}

impl Room {
    /// By the machine's memory.
    pub(crate) fn new() -> Room {
        let memory = machine::meminfo_bytes("MemTotal").unwrap_or(0);
        Room::of((memory / SHARE).clamp(LEAST_BYTES, MOST_BYTES) as usize)
    }

    pub(crate) fn of(bytes: usize) -> Room {
        Room { left_bytes: bytes, refused: 0 }
    }

    /// Takes room for so many elements of a type, with so many bytes elsewhere; `false`, and counted: there is none.
    pub(crate) fn take<T>(&mut self, elements: usize, elsewhere_bytes: usize) -> bool {
        let bytes = elements.saturating_mul(size_of::<T>() + OVERHEAD_BYTES).saturating_add(elsewhere_bytes);
        let left = self.left_bytes.checked_sub(bytes);
        match left {
            Some(left) => self.left_bytes = left,
            None => self.refused += elements as u64,
        }
        left.is_some()
    }

    /// How many elements found none.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted_and_what_fits_later_is_taken() {
        let mut room = Room::of(200);
        assert!(room.take::<u64>(1, 100));
        assert!(!room.take::<u64>(3, 0));
        assert!(room.take::<u64>(1, 0));
        assert_eq!(room.refused(), 3);
    }
}
