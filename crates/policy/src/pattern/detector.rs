//! The pattern of one reader, from all of its reads.
//!
//! A read that begins where the file begins is sequential at once, as in the kernel. Elsewhere two reads that fit, and for a stride three,
//! make a pattern: PostgreSQL measured that reading ahead for the first rows of short scans costs four times what it gains (pgsql-hackers,
//! December 2025).

use super::Steps;
use std::ops::Range;

/// A read that begins this far beyond the end of the last one is still sequential, bytes. mountpoint-s3 (pull request 795) measured that readers of
/// formats with small holes lose three quarters of their speed if each hole is a new start; below this the hole is cheaper to read than to skip
/// on disks that seek.
const TOLERATED_GAP_BYTES: u64 = 1 << 20;

/// Equal distances that make a stride.
const EQUAL_DISTANCES: u32 = 2;

/// Strides below this are read with their gaps, bytes: four pages cost a disk little more than one, and one request takes the place of many.
const LEAST_STRIDE_BYTES: u64 = 16 << 10;

/// How a reader moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pattern {
    /// No order is known.
    #[default]
    Random,
    /// Each read begins at or soon after the end of the one before.
    Sequential,
    /// Each read ends where the one before began.
    Backward,
    /// Reads begin at equal distances, bytes; negative: downwards. The distance is larger than a read.
    Stride(i64),
}

/// The pattern of one reader.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    pattern: Pattern,
    /// The last read, and the step that led there; `None`: there was none.
    last: Option<Steps>,
    /// The pattern was set by the program and stays.
    is_given: bool,
}

impl Detector {
    /// A pattern that the program has announced, and that no read changes.
    pub fn given(pattern: Pattern) -> Detector {
        Detector { pattern, is_given: true, ..Detector::default() }
    }

    /// The pattern of the reads so far.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Notes a read. Returns whether it continues the pattern: the prediction stays valid.
    #[inline]
    pub fn read(&mut self, range: Range<u64>) -> bool {
        // The usual case, which may cost no more than a few comparisons.
        if self.pattern == Pattern::Sequential && self.last.is_some_and(|last| last.end() == range.start) {
            self.last = Some(Steps::begin(range.start, range.end - range.start));
            return true;
        }
        self.read_elsewhere(range)
    }

    #[inline(never)]
    fn read_elsewhere(&mut self, range: Range<u64>) -> bool {
        let length = range.end - range.start;
        let Some(last) = self.last.replace(Steps::begin(range.start, length)) else {
            if !self.is_given && range.start == 0 {
                self.pattern = Pattern::Sequential;
            }
            return true;
        };
        let now = last.next_run(range.start, length);
        self.last = Some(now);
        let continues = continues(self.pattern, &last.run(), &range);
        if !self.is_given && !continues {
            self.pattern = found(&last.run(), &range, &now);
        }
        continues
    }
}

fn found(last: &Range<u64>, range: &Range<u64>, now: &Steps) -> Pattern {
    if range.start == last.end {
        Pattern::Sequential
    } else if range.end == last.start {
        Pattern::Backward
    } else if now.repeated < EQUAL_DISTANCES || now.step.unsigned_abs() <= now.length {
        Pattern::Random
    } else if now.step.unsigned_abs() >= LEAST_STRIDE_BYTES {
        Pattern::Stride(now.step)
    } else if now.step > 0 {
        Pattern::Sequential
    } else {
        Pattern::Backward
    }
}

fn continues(pattern: Pattern, last: &Range<u64>, range: &Range<u64>) -> bool {
    match pattern {
        Pattern::Random => false,
        Pattern::Sequential => range.start >= last.start && range.start <= last.end.saturating_add(TOLERATED_GAP_BYTES),
        Pattern::Backward => range.end <= last.end && range.end >= last.start.saturating_sub(TOLERATED_GAP_BYTES),
        Pattern::Stride(distance) => last.start.checked_add_signed(distance) == Some(range.start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn after(reads: &[Range<u64>]) -> Pattern {
        let mut detector = Detector::default();
        for read in reads {
            detector.read(read.clone());
        }
        detector.pattern()
    }

    #[test]
    fn a_read_at_the_beginning_is_sequential_and_elsewhere_two_are() {
        assert_eq!(after(&[0..4096]), Pattern::Sequential);
        assert_eq!(after(&[8192..12_288]), Pattern::Random);
        assert_eq!(after(&[8192..12_288, 12_288..16_384]), Pattern::Sequential);
    }

    #[test]
    fn small_gaps_stay_sequential_and_large_ones_do_not() {
        assert_eq!(after(&[0..4096, 4096..8192, 100_000..104_096]), Pattern::Sequential);
        assert_eq!(after(&[0..4096, 4096..8192, 100 << 20..101 << 20]), Pattern::Random);
    }

    #[test]
    fn backward_and_strides_in_both_directions_are_found() {
        assert_eq!(after(&[8192..12_288, 4096..8192, 0..4096]), Pattern::Backward);
        let strided = |from: u64, distance: i64| -> Vec<Range<u64>> {
            (0..4).map(|n| from.checked_add_signed(n * distance).unwrap()).map(|at| at..at + 4096).collect()
        };
        assert_eq!(after(&strided(1 << 30, 65_536)), Pattern::Stride(65_536));
        assert_eq!(after(&strided(1 << 30, -65_536)), Pattern::Stride(-65_536));
        assert_eq!(after(&strided(1 << 30, 8192)), Pattern::Sequential);
        assert_eq!(after(&strided(1 << 30, -8192)), Pattern::Backward);
        assert_eq!(after(&[10 << 20..11 << 20, 90 << 20..91 << 20, 40 << 20..41 << 20]), Pattern::Random);
    }

    #[test]
    fn a_given_pattern_stays() {
        let mut detector = Detector::given(Pattern::Backward);
        assert!(detector.read(0..4096));
        assert!(!detector.read(1 << 30..1 << 31));
        assert_eq!(detector.pattern(), Pattern::Backward);
    }

    proptest! {
        /// No sequence of reads panics, and whatever continues a pattern leaves it unchanged.
        #[test]
        fn any_reads_have_a_pattern(reads in prop::collection::vec((0..u64::MAX / 4, 0..1u64 << 40), 1..50)) {
            let mut detector = Detector::default();
            for (index, (start, length)) in reads.into_iter().enumerate() {
                let before = detector.pattern();
                if detector.read(start..start + length) && index > 0 {
                    prop_assert_eq!(detector.pattern(), before);
                }
            }
        }
    }
}
