//! Checks a device's description by timing the first reads.
//!
//! ```text
//!     plan as described ──▶ the first reads, far apart, one at a time (or as many as it serves at once) ──▶ median of measured / expected
//!                                                                                             │ within 3 times: go on
//!                                                                                             ╰ beyond: the rest is planned again without it
//! ```
//!
//! A description is wrong if, for example, the disk was replaced, the image moved to another machine, or the volume's limits changed.

use crate::prefetch::sources::Readable;
use ahead_model::DeviceDescription;
use ahead_plan::pacing::TIMED_READS;
use ahead_sys::cache;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The description is discarded if the median time is this many times shorter or longer than expected. One disk differs from itself by less: a far access takes 2.5
/// times as long as a hop, a busy volume twice as long as an idle one. Kinds of devices differ by more: flash, volume and rotating disk
/// take 0.1, 1 and 8 ms.
const CONTRADICTION: f64 = 3.0;

/// An issued read that is timed.
#[derive(Debug)]
pub struct TimedRead {
    readable: Arc<Readable>,
    range: Range<u64>,
    issued: Instant,
}

impl TimedRead {
    /// Starts the timer of a range.
    pub fn new(readable: &Arc<Readable>, range: Range<u64>, issued: Instant) -> TimedRead {
        TimedRead { readable: readable.clone(), range, issued }
    }

    /// Waits for the arrival, and returns measured time / expected time. `before`: reads issued at the same time before this one.
    pub fn ratio(&self, description: &DeviceDescription, before: usize) -> f64 {
        drop(cache::exact_reads(&*self.readable));
        drop(cache::wait_for(&*self.readable, self.range.end - 1));
        let measured_ns = self.issued.elapsed().as_nanos() as f64;
        let access_ns = description.hop_ns.unwrap_or(description.access_ns) + before as u64 * description.request_ns;
        let expected_ns = access_ns as f64 + description.transfer_us(self.range.end - self.range.start) * 1e3;
        measured_ns / expected_ns
    }
}

/// How the times contradict the description, as text; `None`: they do not, or there are fewer than [`TIMED_READS`].
pub fn contradiction(ratios: &mut [f64]) -> Option<String> {
    if ratios.len() < TIMED_READS {
        return None;
    }
    let middle = ratios.len() / 2;
    let median = *ratios.select_nth_unstable_by(middle, f64::total_cmp).1;
    let contradicts = !(1.0 / CONTRADICTION..=CONTRADICTION).contains(&median);
    let how = match median < 1.0 {
        true => format!("were {} times as fast", tenths(1.0 / median)),
        false => format!("took {} times as long", tenths(median)),
    };
    contradicts.then(|| format!("the first {} reads {how} as it says (median)", ratios.len()))
}

/// With one decimal. The formatting of floating-point numbers would take 20 KB of the program for small machines.
fn tenths(ratio: f64) -> String {
    let tenths = (ratio * 10.0).round() as u64;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_beyond_three_times_contradicts_and_single_slow_reads_do_not() {
        assert_eq!(contradiction(&mut [1.0, 0.9, 40.0, 1.2, 50.0, 60.0, 1.1]), None);
        assert!(contradiction(&mut [3.5; 7]).unwrap().contains("first 7 reads took 3.5 times as long as it says"));
        assert!(
            contradiction(&mut [0.2, 0.3, 0.1, 0.2, 0.2, 2.0, 3.0])
                .unwrap()
                .contains("were 5.0 times as fast as it says")
        );
        assert_eq!(contradiction(&mut [9.0; 6]), None);
    }
}
