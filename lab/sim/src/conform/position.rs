//! The positions at which the last read through an open file may have ended.
//!
//! A read stores its end position (`ra->prev_pos`) before the trace records its end. So each of two overlapping reads may have stored
//! last. Of sequential reads, the last one stored last.

use rustc_hash::FxHashMap;

/// An ended read that may have been the last to store its position.
#[derive(Clone, Copy, Debug)]
struct Ended {
    /// The record of its end.
    recorded: u64,
    position: i64,
}

#[derive(Debug, Default)]
struct OfFile {
    ended: Vec<Ended>,
    /// The latest start of all ended reads: a read whose end was recorded before this start stored earlier.
    latest_begun: u64,
}

/// The end positions of reads, by open file.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    files: FxHashMap<u32, OfFile>,
}

impl Positions {
    /// Resets a new open file.
    pub(crate) fn open(&mut self, open: u32) {
        self.files.remove(&open);
    }

    /// Adds the end position of a read, with the records of its start and its end.
    pub(crate) fn end(&mut self, open: u32, begun: u64, recorded: u64, position: i64) {
        let file = self.files.entry(open).or_default();
        file.latest_begun = file.latest_begun.max(begun);
        file.ended.push(Ended { recorded, position });
        file.ended.retain(|ended| ended.recorded > file.latest_begun);
    }

    /// Whether an ended read may have stored this position last.
    pub(crate) fn may_be(&self, open: u32, position: i64) -> bool {
        self.files.get(&open).is_some_and(|file| file.ended.iter().any(|ended| ended.position == position))
    }
}

#[cfg(test)]
mod tests {
    use super::Positions;

    #[test]
    fn last_of_sequential_reads_stored_last() {
        let mut positions = Positions::default();
        positions.end(1, 0, 1, 4096);
        positions.end(1, 2, 3, 8192);
        assert!(!positions.may_be(1, 4096));
        assert!(positions.may_be(1, 8192));
        assert!(!positions.may_be(2, 8192), "another open file");
        positions.open(1);
        assert!(!positions.may_be(1, 8192));
    }

    /// Of two overlapping reads, the read whose end was recorded first may have stored last. A read that ended before both cannot.
    #[test]
    fn each_of_two_overlapping_reads_may_have_stored_last() {
        let mut positions = Positions::default();
        positions.end(1, 0, 1, 512);
        positions.end(1, 2, 4, 4096);
        positions.end(1, 3, 5, 8192);
        assert!(!positions.may_be(1, 512));
        assert!(positions.may_be(1, 4096));
        assert!(positions.may_be(1, 8192));
        positions.end(1, 6, 7, 9999);
        assert!(!positions.may_be(1, 4096));
    }
}
