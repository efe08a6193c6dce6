//! Measures a disk with platters and an arm.
//!
//! ```text
//!     turn      the page before the last one is one turn away, but for the two pages
//!     seek      to a place at a distance: seek + 0 to 1 turns, evenly; the quick ones tell the seek
//!     buffer    the same page again; the page so far behind the last one after a pause
//! ```

use super::reads::{LONGEST, Reads};
use super::{Found, Rotation, Single, access_time};
use crate::probe::Run;
use crate::probe::answer::Answer;
use crate::probe::error::Result;
use crate::probe::statistics::{Chance, line, mean, median, median_range, quantile};
use crate::probe::subject::PAGE_BYTES;
use crate::probe::twin::{Rotating, Twin};
use std::time::Duration;

/// Queue depth of a sequential read: the drive always has the next read.
const DEPTH: usize = 4;
/// A range of this part of the disk has one rate.
const STRETCH: u64 = 20;
/// Time limit for a measurement of a rate.
const RATE_TIME: Duration = Duration::from_millis(700);
/// Reads for each distance.
const SEEKS: usize = 72;
/// Distances, as shares of the stroke; the last is nearly the full stroke.
const SHARES: [f64; 6] = [0.01, 0.05, 0.12, 0.22, 0.33, 0.97];
/// From this share on the arm coasts: the seek time grows with distance, not with its root. The usual choice in models, as the mean
/// distance of two places is a third of the stroke (Ruemmler and Wilkes, 1994).
const KNEE: f64 = 1.0 / 3.0;
/// Range of places around the two ends of a seek, bytes: several tracks, so that every angle occurs.
const AROUND: u64 = 8 << 20;
/// Limit of the drive's read-ahead, and of a segment of its buffer, bytes.
const MOST_READ_ON: u64 = 32 << 20;
/// Precision of these results, bytes.
const GRAIN: u64 = 64 << 10;

pub fn find(run: &Run, reads: &mut Reads, single: &Single) -> Result<Found> {
    let (outer_rates, inner_rates) = rates(run, reads)?;
    let (outer, inner) = (median(&outer_rates), median(&inner_rates));
    let page_ns = PAGE_BYTES as f64 * 1e9 / outer;
    let turn_ns = median(&single.backwards) + page_ns;
    let overhead_ns = overhead(reads)?;
    let read_on = read_on(run, reads, inner, overhead_ns)?;
    let drive_cache = drive_cache(run, reads, overhead_ns)?;
    let access_ns = mean(&single.undisturbed()).0;
    let seeks = match reads.is_whole {
        true => {
            let seeks = RotatingMeasured::measure(run, reads, (outer, inner), turn_ns, overhead_ns)?;
            seeks.believed(access_ns, turn_ns / 2.0 + overhead_ns)
        }
        false => Err("only the test file may be read: seeks are short".to_owned()),
    };
    let access = access_time(single, true, reads.is_whole);
    let twin = Twin::Rotating(Rotating {
        turn_ns,
        outer,
        inner,
        seeks: seeks.as_ref().ok().map(|measured| measured.seeks.0),
        access_ns,
        overhead_ns,
        read_on_bytes: read_on.unwrap_or(0),
        segment_bytes: drive_cache.unwrap_or(0) + read_on.unwrap_or(0),
    });
    let (bandwidth, parallelism) = (bandwidth_answer(&outer_rates, reads.is_whole), one_at_a_time(reads, turn_ns)?);
    let rotation = Rotation {
        turn: turn_answer(single, page_ns),
        seek_track: seek_answer(&seeks, TRACK),
        seek_average: seek_answer(&seeks, AVERAGE),
        seek_full: seek_answer(&seeks, FULL),
        inner_bandwidth: match reads.is_whole {
            true => bandwidth_answer(&inner_rates, true),
            false => Answer::none("bytes_per_s", "only the test file may be read"),
        },
        read_on: buffer_answer(read_on, most_read_on(reads), "so far behind a read the drive has read on by itself"),
        drive_cache: buffer_answer(
            drive_cache,
            most_read_on(reads),
            "most bytes after which the first page is still in the drive's buffer",
        ),
    };
    Ok(Found {
        access_time: access,
        bandwidth,
        parallelism,
        rotation: Some(rotation),
        twin: Some(twin),
        ..Found::unknown("")
    })
}

fn turn_answer(single: &Single, page_ns: f64) -> Answer {
    let range = median_range(&single.backwards).map(|ns| (ns + page_ns) / 1e3);
    let method = format!("timing: median of {} reads of the page before the last one", single.backwards.len());
    Answer::measured((median(&single.backwards) + page_ns) / 1e3, "us", range, method)
}

fn bandwidth_answer(rates: &[f64], is_whole: bool) -> Answer {
    let place = if is_whole { "at that end of the disk" } else { "of the test file" };
    let method = format!("timing: median of three sequential direct reads {place}");
    Answer::middle_of(rates, "bytes_per_s", method)
}

fn seek_answer(seeks: &std::result::Result<RotatingMeasured, String>, which: usize) -> Answer {
    let measured = match seeks {
        Ok(measured) => measured,
        Err(why) => return Answer::none("us", why),
    };
    let method = format!("timing: {SEEKS} reads at each of {} distances, without the turn", SHARES.len());
    let range = measured.ranges[which].map(|ns| ns / 1e3);
    Answer::measured(measured.seeks.0[which] / 1e3, "us", range, method)
}

fn buffer_answer(bytes: Option<u64>, most: u64, what: &str) -> Answer {
    match bytes {
        Some(bytes) => Answer {
            range: Some([bytes.saturating_sub(GRAIN) as f64, (bytes + GRAIN) as f64]),
            ..Answer::counted(bytes, "bytes", (1, 1), format!("timing: {what}, to {} KiB", GRAIN >> 10))
        },
        None => Answer::none("bytes", format!("timing: no end up to {} MiB", most >> 20)),
    }
}

/// Bytes per second at the two ends of the disk.
fn rates(run: &Run, reads: &Reads) -> Result<(Vec<f64>, Vec<f64>)> {
    // Three parts of the range, the farthest first: the drive's buffer holds the data that was read before, and the data after it.
    let part = (reads.capacity_bytes / STRETCH / 3).max(8 * LONGEST).min(reads.capacity_bytes / 3) & !(LONGEST - 1);
    let at = |from: u64| -> Result<Vec<f64>> {
        let one = |count: u64| {
            run.watcher.go_on("a rotating disk's rates")?;
            reads.sequential(from + count * part, part, DEPTH, RATE_TIME)
        };
        (0..3).rev().map(one).collect()
    };
    Ok((at(0)?, at(reads.capacity_bytes.saturating_sub(3 * part) & !(LONGEST - 1))?))
}

/// Time of a request that the buffer serves, nanoseconds.
fn overhead(reads: &mut Reads) -> Result<f64> {
    let place = reads.anywhere(PAGE_BYTES);
    reads.one(place, PAGE_BYTES)?;
    let times: Result<Vec<f64>> = (0..50).map(|_| reads.one(place, PAGE_BYTES)).collect();
    Ok(median(&times?))
}

/// Whether the buffer served a read with this time.
fn is_buffered(time_ns: f64, overhead_ns: f64) -> bool {
    /// A read that takes longer has waited for the platter, nanoseconds: waking a program may take a part of this time.
    const PLATTER_NS: f64 = 150_000.0;
    time_ns < 2.0 * overhead_ns + PLATTER_NS
}

/// Limit of the search for the drive's read-ahead and buffers on this disk, bytes.
fn most_read_on(reads: &Reads) -> u64 {
    MOST_READ_ON.min(reads.capacity_bytes / 4)
}

/// The largest multiple of the grain for which `holds_now` is true, up to `most`; `None`: no end was found. Other programs can make
/// `holds_now` false, and a platter at the right angle can make it true: the majority of the tries decides.
fn last_that(most: u64, mut holds_now: impl FnMut(u64) -> Result<bool>) -> Result<Option<u64>> {
    /// Majority of five tries.
    const MOST_TRIES: u32 = 3;
    let mut holds = |bytes: u64| -> Result<bool> {
        let mut tries = [0, 0];
        while tries.iter().all(|count| *count < MOST_TRIES) {
            tries[usize::from(holds_now(bytes)?)] += 1;
        }
        Ok(tries[1] == MOST_TRIES)
    };
    let (mut low, mut high) = (0, GRAIN);
    while holds(high)? {
        (low, high) = (high, 2 * high);
        if high > most {
            return Ok(None);
        }
    }
    while high - low > GRAIN {
        let middle = (low + high) / 2 / GRAIN * GRAIN;
        if holds(middle)? { low = middle } else { high = middle }
    }
    Ok(Some(low))
}

/// The drive's read-ahead: the last page in the buffer after a pause that is long enough to read much further.
fn read_on(run: &Run, reads: &mut Reads, rate: f64, overhead_ns: f64) -> Result<Option<u64>> {
    last_that(most_read_on(reads), |distance| {
        run.watcher.go_on("how far a rotating disk reads on")?;
        let place = reads.apart(distance + PAGE_BYTES);
        reads.one(place, PAGE_BYTES)?;
        std::thread::sleep(Duration::from_secs_f64(2.0 * distance as f64 / rate + 0.05));
        Ok(is_buffered(reads.one(place + distance, PAGE_BYTES)?, overhead_ns))
    })
}

/// Number of bytes, read from the first page on, after which the first page is no longer buffered.
fn drive_cache(run: &Run, reads: &mut Reads, overhead_ns: f64) -> Result<Option<u64>> {
    last_that(most_read_on(reads), |distance| {
        let place = reads.apart(distance);
        for at in (place..place + distance).step_by(GRAIN as usize) {
            run.watcher.go_on("a rotating disk's buffer")?;
            reads.one(at, GRAIN)?;
        }
        Ok(is_buffered(reads.one(place, PAGE_BYTES)?, overhead_ns))
    })
}

/// Whether several simultaneous requests take as long as in sequence: a disk does not serve two requests in one turn.
fn one_at_a_time(reads: &mut Reads, turn_ns: f64) -> Result<Answer> {
    const AT_ONCE: usize = 16;
    let places: Vec<u64> = (0..AT_ONCE).map(|_| reads.anywhere(PAGE_BYTES)).collect();
    let done = reads.many(&places, PAGE_BYTES, AT_ONCE, RATE_TIME)?;
    let method = format!("timing: {AT_ONCE} reads at once end one after the other");
    let apart = done.windows(2).filter(|pair| pair[1] - pair[0] > turn_ns / 50.0).count() as u64;
    Ok(match apart * 4 >= 3 * (done.len() as u64 - 1) {
        true => Answer::counted(1, "requests", (apart, done.len() as u64 - 1), method),
        false => Answer::none("requests", format!("timing: of {AT_ONCE} reads at once several end together")),
    })
}

/// Seek times, nanoseconds: [`TRACK`], [`AVERAGE`], [`FULL`].
#[derive(Clone, Copy, Debug)]
struct Seeks([f64; 3]);

/// Index of the seek to the next track.
const TRACK: usize = 0;
/// Index of the mean over all pairs of places.
const AVERAGE: usize = 1;
/// Index of the full stroke.
const FULL: usize = 2;

/// The measured seeks.
#[derive(Clone, Debug)]
struct RotatingMeasured {
    seeks: Seeks,
    /// The 95 % interval of each seek.
    ranges: [[f64; 2]; 3],
}

impl RotatingMeasured {
    fn measure(
        run: &Run,
        reads: &mut Reads,
        rates: (f64, f64),
        turn_ns: f64,
        overhead_ns: f64,
    ) -> Result<RotatingMeasured> {
        let mut times = Vec::new();
        for share in SHARES {
            times.push(seek(run, reads, rates, share, overhead_ns)?);
        }
        Ok(RotatingMeasured::of(&times, turn_ns, overhead_ns))
    }

    /// Computes the seeks from the times at each distance.
    fn of(times: &[Vec<f64>], turn_ns: f64, overhead_ns: f64) -> RotatingMeasured {
        /// Number of experiments that the bootstrap draws.
        const RESAMPLES: usize = 200;
        let through = |times: &[Vec<f64>]| {
            let points =
                SHARES.iter().zip(times).map(|(share, times)| (*share, without_turn(times, turn_ns) - overhead_ns));
            Seeks::through(&points.collect::<Vec<_>>())
        };
        let mut chance = Chance::new(1);
        let mut resample = || through(&times.iter().map(|times| chance.resample(times)).collect::<Vec<_>>());
        let others: Vec<Seeks> = (0..RESAMPLES).map(|_| resample()).collect();
        let range = |which: usize| {
            let values: Vec<f64> = others.iter().map(|seeks| seeks.0[which]).collect();
            [quantile(&values, 0.025), quantile(&values, 0.975)]
        };
        RotatingMeasured { seeks: through(times), ranges: [range(TRACK), range(AVERAGE), range(FULL)] }
    }

    /// Accepts the seeks only if they explain the time of a random read: the average seek and the other waits (half a turn, the
    /// overhead). `Err` as text: the reason.
    fn believed(self, access_ns: f64, else_ns: f64) -> std::result::Result<RotatingMeasured, String> {
        /// Permitted deviation as a part of that time, besides the uncertainty of the average.
        const OFF: f64 = 0.1;
        let [low, high] = self.ranges[AVERAGE];
        let explained_ns = self.seeks.0[AVERAGE] + else_ns;
        if (explained_ns - access_ns).abs() <= OFF * access_ns + (high - low) / 2.0 {
            return Ok(self);
        }
        let [explained, access] = [explained_ns, access_ns].map(|ns| ns / 1e6);
        Err(format!(
            "timing: with the seeks that were seen a read anywhere would take {explained:.1} ms, and it takes {access:.1} ms: \
             something else disturbs the times"
        ))
    }
}

impl Seeks {
    /// The curve through some shares of the stroke and their times: `track + b √share` up to the knee, straight beyond.
    fn through(points: &[(f64, f64)]) -> Seeks {
        let near: Vec<(f64, f64)> =
            points.iter().filter(|(share, _)| *share <= KNEE).map(|(share, ns)| (share.sqrt(), *ns)).collect();
        let (root, track) = line(&near).unwrap_or((0.0, near[0].1));
        let (root_ns, track_ns) = (root.max(0.0), track.max(1e4));
        let knee_ns = track_ns + root_ns * KNEE.sqrt();
        let (far, far_ns) = points[points.len() - 1];
        let full_ns = (knee_ns + (far_ns - knee_ns) * (1.0 - KNEE) / (far - KNEE)).max(knee_ns);
        let time_ns = |share: f64| match share <= KNEE {
            true => track_ns + root_ns * share.sqrt(),
            false => knee_ns + (full_ns - knee_ns) * (share - KNEE) / (1.0 - KNEE),
        };
        // The distance between two random places has the density 2 (1 - share).
        const STEPS: u32 = 10_000;
        let average_ns = (0..STEPS)
            .map(|step| (f64::from(step) + 0.5) / f64::from(STEPS))
            .map(|share| time_ns(share) * 2.0 * (1.0 - share) / f64::from(STEPS))
            .sum();
        Seeks([track_ns, average_ns, full_ns])
    }
}

/// The byte at a share of the tracks: tracks become shorter inwards, linearly from one rate to the other.
fn byte_at(share: f64, (outer, inner): (f64, f64), capacity_bytes: u64) -> u64 {
    let before = outer * share + (inner - outer) * share * share / 2.0;
    (before / ((outer + inner) / 2.0) * capacity_bytes as f64) as u64
}

/// Times of reads that alternate between two places at a share of the tracks.
fn seek(run: &Run, reads: &mut Reads, rates: (f64, f64), share: f64, overhead_ns: f64) -> Result<Vec<f64>> {
    let capacity = reads.capacity_bytes;
    let around = AROUND.min(capacity / 100);
    let first = (1.0 - share) / 2.0;
    let ends = [first, first + share].map(|share| byte_at(share, rates, capacity).clamp(around, capacity - around));
    let mut times = Vec::new();
    for count in 0..SEEKS {
        run.watcher.go_on("a rotating disk's seeks")?;
        let middle = ends[count % 2];
        let place = reads.within((middle - around / 2) & !(PAGE_BYTES - 1), middle + around / 2, PAGE_BYTES);
        times.push(reads.one(place, PAGE_BYTES)?);
    }
    // The first read comes from a random place; the drive has read some places ahead.
    Ok(times[1..].iter().copied().filter(|ns| !is_buffered(*ns, overhead_ns)).collect())
}

/// Overhead and seek, without the turn: times that are spread evenly over a turn have their quantiles at known places.
fn without_turn(times: &[f64], turn_ns: f64) -> f64 {
    // Other programs only delay reads: the fast ones are reliable.
    const QUICK: [f64; 6] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
    let seeks = QUICK.map(|share| quantile(times, share) - share * turn_ns);
    seeks.iter().sum::<f64>() / QUICK.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curve_of_a_data_sheet_is_reproduced() {
        let (track, root, full) = (0.8e6, 12e6, 14.7e6);
        let knee = track + root * KNEE.sqrt();
        let time = |share: f64| match share <= KNEE {
            true => track + root * share.sqrt(),
            false => knee + (full - knee) * (share - KNEE) / (1.0 - KNEE),
        };
        let points: Vec<(f64, f64)> = SHARES.iter().map(|share| (*share, time(*share))).collect();
        let seeks = Seeks::through(&points);
        assert!((seeks.0[TRACK] - track).abs() < 1e3 && (seeks.0[FULL] - full).abs() < 1e3, "{seeks:?}");
    }

    #[test]
    fn last_that_finds_the_end_of_the_range() {
        assert_eq!(last_that(MOST_READ_ON, |bytes| Ok(bytes <= 2_000_000)).unwrap(), Some(2_000_000 / GRAIN * GRAIN));
        assert_eq!(last_that(MOST_READ_ON, |_| Ok(true)).unwrap(), None);
        assert_eq!(last_that(MOST_READ_ON, |_| Ok(false)).unwrap(), Some(0));
    }

    #[test]
    fn outer_tracks_hold_more_of_the_disk() {
        assert_eq!(byte_at(1.0, (175.0, 83.0), 1000), 1000);
        assert!(byte_at(0.5, (175.0, 83.0), 1000) > 560);
    }

    /// Regression: one fast read of four was enough, and the result was up to four times the 2 MiB that a drive reads ahead.
    #[test]
    fn one_fast_read_of_four_does_not_count() {
        let mut count = 0;
        let mut one_of_four = |bytes| {
            count += 1;
            Ok(bytes <= 2_000_000 || count % 4 == 0)
        };
        assert_eq!(last_that(MOST_READ_ON, &mut one_of_four).unwrap(), Some(2_000_000 / GRAIN * GRAIN));
    }

    /// Times of a disk with a rotation of 8 ms at each distance. Seeks with this average, as in a data sheet, each with a random
    /// rotation.
    fn measured(spread: f64) -> RotatingMeasured {
        let mut chance = Chance::new(7);
        let mut at = |share: f64| -> Vec<f64> {
            let seek_ns = 0.8e6 + 12e6 * share.min(KNEE).sqrt() + 10e6 * (share - KNEE).max(0.0);
            (0..SEEKS).map(|_| seek_ns + 8e6 * spread * chance.below(1000) as f64 / 1e3 + 1e5).collect()
        };
        RotatingMeasured::of(&SHARES.map(&mut at), 8e6 * spread, 1e5)
    }

    /// Regression: the interval was the same for each disk.
    #[test]
    fn intervals_of_seeks_grow_with_the_spread_of_times() {
        let [narrow, wide] = [0.2, 1.0].map(|spread| measured(spread).ranges[AVERAGE]);
        assert!(narrow[1] - narrow[0] < (wide[1] - wide[0]) / 2.0, "{narrow:?} {wide:?}");
    }

    /// Regression: the reported seeks contradicted the access time.
    #[test]
    fn seeks_explain_the_access_time() {
        let average = measured(1.0).seeks.0[AVERAGE];
        assert!(measured(1.0).believed(average + 4.1e6, 4.1e6).is_ok());
        assert!(measured(1.0).believed(2.0 * average + 4.1e6, 4.1e6).unwrap_err().contains("something else"));
    }
}
