//! Where the last read through an open file may have ended.
//!
//! A read stores where it ended (`ra->prev_pos`) before it is told that it has ended, so that of reads that overlapped either may
//! have stored last. Of reads one after the other it is the last.

use rustc_hash::FxHashMap;

/// A read that has ended, and may be the last that stored its end.
#[derive(Clone, Copy, Debug)]
struct Ended {
    /// The record that told of its end.
    told: u64,
    position: i64,
}

#[derive(Debug, Default)]
struct OfFile {
    ended: Vec<Ended>,
    /// When the latest of all reads that have ended began: whatever was told to have ended before stored before it.
    latest_begun: u64,
}

/// The ends of reads, by open file.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    files: FxHashMap<u32, OfFile>,
}

impl Positions {
    /// The open file is opened: nothing was read through it.
    pub(crate) fn open(&mut self, open: u32) {
        self.files.remove(&open);
    }

    /// A read ended at this position; it began with one record and ended with another.
    pub(crate) fn end(&mut self, open: u32, begun: u64, told: u64, position: i64) {
        let file = self.files.entry(open).or_default();
        file.latest_begun = file.latest_begun.max(begun);
        file.ended.push(Ended { told, position });
        file.ended.retain(|ended| ended.told > file.latest_begun);
    }

    /// Whether a read that has ended may have stored this position last.
    pub(crate) fn may_be(&self, open: u32, position: i64) -> bool {
        self.files.get(&open).is_some_and(|file| file.ended.iter().any(|ended| ended.position == position))
    }
}

#[cfg(test)]
mod tests {
    use super::Positions;

    #[test]
    fn of_reads_one_after_the_other_the_last_counts() {
        let mut positions = Positions::default();
        positions.end(1, 0, 1, 4096);
        positions.end(1, 2, 3, 8192);
        assert!(!positions.may_be(1, 4096));
        assert!(positions.may_be(1, 8192));
        assert!(!positions.may_be(2, 8192), "another open file");
        positions.open(1);
        assert!(!positions.may_be(1, 8192));
    }

    /// Two reads that overlapped: the one that was told first may have stored last. What was over before either began may not.
    #[test]
    fn of_reads_at_the_same_time_either_counts() {
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
