//! The core of every pattern: the last run of a reader, and the step that led there.
//!
//! ```text
//!     first         first + step      first + 2 step
//!     ├─length─┤    ├─length─┤        ├─length─┤         step = length: forwards; step = − length: backwards
//!     ╰──────── step ─────╯
//! ```

use std::ops::Range;

/// Runs of one reader at equal steps. Positions are bytes or pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Where the last run begins.
    pub first: u64,
    /// The length of a run.
    pub length: u64,
    /// From the beginning of one run to that of the next; 0: unknown.
    pub step: i64,
    /// Number of consecutive repetitions of this step.
    pub repeated: u32,
}

impl Steps {
    /// A first run, without a step.
    pub fn begin(first: u64, length: u64) -> Steps {
        Steps { first, length, ..Steps::default() }
    }

    /// The same reader's next run.
    pub fn next_run(&self, first: u64, length: u64) -> Steps {
        let step = self.step_to(first);
        let repeated = if step == self.step { self.repeated.saturating_add(1) } else { 1 };
        Steps { first, length, step, repeated }
    }

    /// The step from the last run to one that begins there.
    pub fn step_to(&self, first: u64) -> i64 {
        first.wrapping_sub(self.first) as i64
    }

    /// The end of the last run.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.length)
    }

    /// The last run ends there, or farther up.
    pub fn extend(&mut self, end: u64) {
        self.length = self.length.max(end.saturating_sub(self.first));
    }

    /// The last run.
    pub fn run(&self) -> Range<u64> {
        self.first..self.end()
    }

    /// Whether each run begins at the end of the one before.
    pub fn is_forwards(&self) -> bool {
        self.step == self.length as i64
    }

    /// Whether each run ends at the beginning of the one before.
    pub fn is_backwards(&self) -> bool {
        self.step == -(self.length as i64)
    }

    /// Where the run this number of steps after the last one begins. `None`: below 0, or beyond all numbers.
    pub fn nth(&self, steps: u64) -> Option<u64> {
        self.first.checked_add_signed(self.step.checked_mul(i64::try_from(steps).ok()?)?)
    }

    /// The number of steps to the run, or the gap after it, that has this position, and its distance from the beginning of the run.
    /// `None`: no step leads there.
    pub fn locate(&self, position: u64) -> Option<(u64, u64)> {
        let size = self.step.unsigned_abs();
        if self.step < 0 && position < self.first {
            let distance = self.first - position;
            let steps = distance.div_ceil(size);
            return Some((steps, steps.saturating_mul(size) - distance));
        }
        let distance = position.checked_sub(self.first)?;
        match self.step {
            0 => None,
            ..0 => Some((0, distance)),
            _ => Some((distance / size, distance % size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Each position of a run is found again, in both directions, and no input panics.
        #[test]
        fn positions_of_runs_are_found(steps in any::<[u64; 2]>(), step: i64, count in 0..1000u64, offset: u64) {
            let steps = Steps { step, ..Steps::begin(steps[0], steps[1]) };
            let _ = (steps.locate(offset), steps.end(), steps.is_backwards(), steps.next_run(offset, 1));
            let (first, offset) = (steps.nth(count), offset % step.unsigned_abs().max(1));
            if let Some(position) = first.and_then(|first| first.checked_add(offset)).filter(|_| step != 0) {
                prop_assert_eq!(steps.locate(position), Some((count, offset)));
            }
        }
    }
}
