//! Measures the disk: access time, bandwidth and parallelism; for a rotating disk also rotation, seeks and buffer, for any other disk its
//! limits.
//!
//! A disk rotates on three conditions. Descending reads all take the same time (a turn of the platter). Random reads take different
//! times. Ascending reads take almost no time.

mod reads;
mod rotating;
mod solid;

use crate::probe::Run;
use crate::probe::answer::Answer;
use crate::probe::error::Result;
use crate::probe::statistics::{mean, median, median_range, quantile};
use crate::probe::subject::PAGE_BYTES;
use crate::probe::twin::Twin;
pub(crate) use reads::Reads;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Number of random reads that find the kind of the disk, each with a pause after it.
const READS: usize = 100;
/// Time limit of these reads.
const READS_TIME: Duration = Duration::from_secs(3);
/// Number of random reads of a rotating disk. The spread of seek and rotation is a third of the mean, so the mean is known to 1.2 %
/// (one standard error).
const TURNING_READS: usize = 900;
/// Time limit of these reads.
const TURNING_TIME: Duration = Duration::from_secs(15);
/// Number of descending and of ascending reads.
const NEIGHBOURS: u64 = 24;
/// Range of a turn of the platter, nanoseconds: 30,000 to 1,000 per minute.
const TURNS_NS: std::ops::Range<f64> = 1.9e6..61e6;
/// Times count as equal if their quartiles differ by at most this share of the median. So a few disturbed reads do not matter, nor the
/// short times after a disturbed read, during which the platter has turned.
const SAME: f64 = 0.03;

/// Factor between the times of both kinds of disk from which the kind is certain.
const CLEAR: f64 = 2.0;

/// Additional parameters of a rotating disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rotation {
    /// Time of a turn of the platter, microseconds.
    pub turn: Answer,
    /// Seek to the next track, microseconds.
    pub seek_track: Answer,
    /// Mean seek over all pairs of places, microseconds.
    pub seek_average: Answer,
    /// Seek over the full stroke, microseconds.
    pub seek_full: Answer,
    /// Bandwidth at the end of the disk, bytes per second.
    pub inner_bandwidth: Answer,
    /// Bytes that the drive reads ahead after a read.
    pub read_on: Answer,
    /// Maximum number of bytes that can be read after a page while the page is still in the drive's buffer.
    pub drive_cache: Answer,
}

/// The limits of a disk that does not rotate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Requests per second at any queue depth.
    pub requests: Answer,
    /// Requests that are served before that limit applies.
    pub burst_requests: Answer,
    /// Bytes that are served before the bandwidth limit applies.
    pub burst_bytes: Answer,
}

/// The results for the disk.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Time of a random read of a page with no other read in flight, microseconds.
    pub access_time: Answer,
    /// Bandwidth of a long sequential read, at the beginning of the disk if that may be read, bytes per second.
    pub bandwidth: Answer,
    /// Requests that the disk serves at the same time.
    pub parallelism: Answer,
    /// Parameters of a rotating disk.
    pub rotation: Option<Rotation>,
    /// Limits of a disk that does not rotate.
    pub limits: Option<Limits>,
    /// Whether the whole disk was read, not only a file on it.
    pub whole_disk: bool,
    /// The disk's model, if enough is known.
    #[serde(skip)]
    pub twin: Option<Twin>,
}

impl Found {
    pub(crate) fn unknown(why: &str) -> Found {
        Found {
            access_time: Answer::none("us", why),
            bandwidth: Answer::none("bytes_per_s", why),
            parallelism: Answer::none("requests", why),
            rotation: None,
            limits: None,
            whole_disk: false,
            twin: None,
        }
    }
}

/// Times of single reads, nanoseconds.
struct Single {
    /// Random reads, one after the other.
    anywhere: Vec<f64>,
    /// Descending reads of adjacent pages.
    backwards: Vec<f64>,
    /// Ascending reads of adjacent pages.
    forwards: Vec<f64>,
    /// Number of tries that found this kind, and number of all tries.
    votes: (usize, usize),
}

/// Times of reads of neighbouring pages.
struct Neighbours {
    backwards: Vec<f64>,
    forwards: Vec<f64>,
}

impl Neighbours {
    fn measure(run: &Run, reads: &mut Reads) -> Result<Neighbours> {
        let middle = (reads.capacity_bytes / 2) & !(PAGE_BYTES - 1);
        let mut towards = |step: i64| -> Result<Vec<f64>> {
            let first = reads.within(middle / 2, middle, PAGE_BYTES) as i64;
            reads.one(first as u64, PAGE_BYTES)?;
            let mut times = Vec::new();
            for count in 1..=NEIGHBOURS as i64 {
                run.watcher.go_on("the disk's access time")?;
                times.push(reads.one((first + step * count) as u64, PAGE_BYTES)?);
            }
            Ok(times)
        };
        Ok(Neighbours { backwards: towards(-(PAGE_BYTES as i64))?, forwards: towards(PAGE_BYTES as i64)? })
    }

    /// Whether these are times of a rotating disk, compared with `anywhere`, the times of random reads. A factor above 1 requires a
    /// larger difference than necessary, a factor below 1 a smaller one.
    fn turn(&self, anywhere: &[f64], factor: f64) -> bool {
        let spread = |times: &[f64]| (quantile(times, 0.75) - quantile(times, 0.25)) / median(times).max(1.0);
        let turn_ns = median(&self.backwards);
        TURNS_NS.contains(&turn_ns)
            && spread(&self.backwards) * factor < SAME
            && spread(anywhere) > 2.0 * SAME * factor
            && median(&self.forwards) * factor < turn_ns / 4.0
    }
}

impl Single {
    /// Returns the times, and whether the disk rotates.
    fn measure(run: &Run, reads: &mut Reads) -> Result<(Single, bool)> {
        let began = Instant::now();
        // After each read, a pause of the same length, so that no limit on requests applies.
        let mut anywhere = Vec::new();
        while anywhere.len() < READS && began.elapsed() < READS_TIME {
            run.watcher.go_on("the disk's access time")?;
            let place = reads.anywhere(PAGE_BYTES);
            let took = reads.one(place, PAGE_BYTES)?;
            std::thread::sleep(Duration::from_nanos(took as u64));
            anywhere.push(took);
        }
        let mut tries = vec![Neighbours::measure(run, reads)?];
        // Near the boundary, a single try may be wrong.
        if tries[0].turn(&anywhere, 1.0 / CLEAR) && !tries[0].turn(&anywhere, CLEAR) {
            tries.extend([Neighbours::measure(run, reads)?, Neighbours::measure(run, reads)?]);
        }
        let all = tries.len();
        let turning = tries.iter().filter(|neighbours| neighbours.turn(&anywhere, 1.0)).count();
        let rotates = 2 * turning > all;
        let agreeing = tries.into_iter().rfind(|neighbours| neighbours.turn(&anywhere, 1.0) == rotates);
        let Neighbours { backwards, forwards } = agreeing.expect("most of them agree");
        let votes = (if rotates { turning } else { all - turning }, all);
        Ok((Single { anywhere, backwards, forwards, votes }, rotates))
    }

    /// Random reads until the mean is known, without pauses: a disk with an arm has no limit on requests.
    fn more(&mut self, run: &Run, reads: &mut Reads) -> Result<()> {
        let began = Instant::now();
        while self.anywhere.len() < TURNING_READS && began.elapsed() < TURNING_TIME {
            run.watcher.go_on("the disk's access time")?;
            let place = reads.anywhere(PAGE_BYTES);
            self.anywhere.push(reads.one(place, PAGE_BYTES)?);
        }
        Ok(())
    }

    /// Times without reads that another process delayed for longer than any seek and rotation, a tenth of a second and more. A few such
    /// reads would change the mean.
    fn undisturbed(&self) -> Vec<f64> {
        let most_ns = 2.0 * quantile(&self.anywhere, 0.95);
        self.anywhere.iter().copied().filter(|ns| *ns <= most_ns).collect()
    }
}

/// Measures the disk.
pub fn find(run: &Run) -> Result<Found> {
    run.watcher.go_on("the disk")?;
    let mut reads = match Reads::open(run)? {
        Ok(reads) => reads,
        Err(why) => return Ok(Found::unknown(&why)),
    };
    let (mut single, rotates) = Single::measure(run, &mut reads)?;
    let found = if rotates {
        single.more(run, &mut reads)?;
        rotating::find(run, &mut reads, &single)?
    } else {
        solid::find(run, &mut reads, &single)?
    };
    Ok(Found { whole_disk: reads.is_whole, ..found })
}

/// The mean access time if rotation and seeks make times differ, otherwise the median: other programs cause the times far above the
/// median.
fn access_time(single: &Single, rotates: bool, is_whole: bool) -> Answer {
    let place = if is_whole { "all over the disk" } else { "in the test file alone" };
    let (times, which) = if rotates { (single.undisturbed(), "mean") } else { (single.anywhere.clone(), "median") };
    let (ns, range) = if rotates { mean(&times) } else { (median(&times), median_range(&times)) };
    let count = times.len();
    let mut method = format!("timing: {which} of {count} direct reads of a page, {place}");
    if single.votes.0 < single.votes.1 {
        let kind = if rotates { "rotates" } else { "does not rotate" };
        method += &format!("; only {} of {} tries say that it {kind}", single.votes.0, single.votes.1);
    }
    Answer::measured(ns / 1e3, "us", range.map(|ns| ns / 1e3), method)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a few reads of 224 ms among reads of 13 ms increased the result to 14.3 ms.
    #[test]
    fn delayed_reads_are_not_in_the_mean() {
        let mut anywhere: Vec<f64> = (0..100).map(|index| 8e6 + 1e5 * f64::from(index)).collect();
        let single = |anywhere| Single { anywhere, backwards: Vec::new(), forwards: Vec::new(), votes: (1, 1) };
        let (alone, _) = mean(&single(anywhere.clone()).undisturbed());
        anywhere.extend([224e6, 90e6]);
        assert_eq!(mean(&single(anywhere).undisturbed()).0, alone);
    }

    /// Regression: a single try decided, even with times near the boundary.
    #[test]
    fn rotation_near_the_boundary_depends_on_the_factor() {
        let spread =
            |middle: f64, part: f64| (-12..=12).map(|at| middle * (1.0 + part * f64::from(at) / 12.0)).collect();
        let anywhere: Vec<f64> = spread(12e6, 0.5);
        let turning = |part| Neighbours { backwards: spread(8.3e6, part), forwards: spread(0.1e6, 0.1) };
        let kinds = |neighbours: Neighbours| [CLEAR, 1.0, 1.0 / CLEAR].map(|factor| neighbours.turn(&anywhere, factor));
        assert_eq!(kinds(turning(0.005)), [true, true, true]);
        assert_eq!(kinds(turning(0.025)), [false, true, true]);
        assert_eq!(kinds(turning(0.04)), [false, false, true]);
        assert_eq!(kinds(turning(0.4)), [false, false, false]);
    }
}
