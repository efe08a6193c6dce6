//! Measures a disk without moving parts, or a volume on a network: a latency, simultaneous requests, and perhaps limits.
//!
//! No single experiment separates these from outside, but several together do. The models of such disks calculate the answers that they
//! would have given ([`crate::probe::twin`]), and the nearest model is the twin.
//!
//! ```text
//!     one at a time, by length      latency, and what a byte costs after it (nothing, below a burst)
//!     many at once after a pause    who is served at once, and at which pace the others follow
//!     many at once for long         requests per second, by depth
//!     a long sequential read        bandwidth
//! ```

use super::reads::{LONGEST, Reads};
use super::{Found, Limits, Single, access_time};
use crate::probe::Run;
use crate::probe::answer::Answer;
use crate::probe::error::Result;
use crate::probe::statistics::{median, quantile};
use crate::probe::subject::PAGE_BYTES;
use crate::probe::twin::{self, Observed, Twin};
use std::time::Duration;

/// Lengths of single reads, bytes: up to the largest that most disks take in one request.
const LENGTHS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10];
/// The last of these lengths.
const LONGEST_SINGLE: u64 = LENGTHS[LENGTHS.len() - 1];
/// Number of reads of each length.
const READS: u32 = 24;
/// Queue depths, up to that of common drives (NVMe: 1024 and fewer).
const DEPTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// Time limit for each depth.
const RATE_TIME: Duration = Duration::from_millis(400);
/// Simultaneous reads after a pause: the queue depth of SATA drives. With more reads the block layer's queue may be full (`nr_requests`,
/// 64 and more). Then the reading program waits there and cannot see completions.
const BATCH: usize = 32;
/// Number of such batches.
const BATCHES: usize = 5;
/// Queue depth of a sequential read: 16 MiB, more than latency times bandwidth of any such disk except a very distant volume.
const SEQUENTIAL_DEPTH: usize = 16;
/// Time limit of that read.
const SEQUENTIAL_TIME: Duration = Duration::from_millis(1500);
/// Maximum pause between two experiments, in which a limit forgets earlier reads.
const FORGET: Duration = Duration::from_millis(300);

pub fn find(run: &Run, reads: &mut Reads, single: &Single) -> Result<Found> {
    let (observed, rates) = observe(run, reads, single)?;
    let access = access_time(single, false, reads.is_whole);
    let twin = twin::fit(&observed);
    Ok(Found {
        access_time: access,
        bandwidth: bandwidth(&rates, reads.is_whole),
        parallelism: parallelism(&observed, &twin),
        limits: Some(limits(&observed, &twin)),
        twin: Some(twin),
        ..Found::unknown("")
    })
}

/// The observations that a twin has to reproduce, and the rates of three sequential reads, bytes per second.
fn observe(run: &Run, reads: &mut Reads, single: &Single) -> Result<(Observed, Vec<f64>)> {
    let step = |what: &str| {
        std::thread::sleep(FORGET);
        run.watcher.go_on(what)
    };
    step("the disk's latency")?;
    let by_length = LENGTHS.iter().map(|length| Ok((*length, paced(run, reads, *length)?))).collect::<Result<_>>()?;
    step("the disk's latency")?;
    let sequential_page_ns = median(&single.forwards);
    step("requests at once")?;
    let batch = batch(run, reads)?;
    step("the disk's bandwidth")?;
    let third = (reads.capacity_bytes / 3) & !(LONGEST - 1);
    let rates: Vec<f64> = (0..3)
        .map(|count| reads.sequential(count * third, third, SEQUENTIAL_DEPTH, SEQUENTIAL_TIME / 3))
        .collect::<Result<_>>()?;
    let mut by_depth = Vec::new();
    for depth in DEPTHS {
        step("requests at once")?;
        by_depth.push((depth, reads.rate(depth, RATE_TIME)?));
    }
    let bytes_per_s = median(&rates);
    let capacity_bytes = reads.capacity_bytes;
    Ok((Observed { capacity_bytes, by_length, sequential_page_ns, batch, bytes_per_s, by_depth }, rates))
}

/// Median of single reads at random places; the pause after each read is twice its time.
fn paced(run: &Run, reads: &mut Reads, length: u64) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..READS {
        run.watcher.go_on("the disk's latency")?;
        let place = reads.anywhere(length);
        let took = reads.one(place, length)?;
        std::thread::sleep(Duration::from_nanos(2 * took as u64));
        times.push(took);
    }
    Ok(median(&times))
}

/// Completion times of the reads of a batch, nanoseconds after its beginning: the medians of several batches, each after a pause.
fn batch(run: &Run, reads: &mut Reads) -> Result<Vec<f64>> {
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        run.watcher.go_on("requests at once")?;
        std::thread::sleep(FORGET);
        let places: Vec<u64> = (0..BATCH).map(|_| reads.anywhere(PAGE_BYTES)).collect();
        batches.push(reads.many(&places, PAGE_BYTES, BATCH, FORGET * 10)?);
    }
    let at = |index: usize| -> Vec<f64> { batches.iter().filter_map(|done| done.get(index).copied()).collect() };
    Ok((0..BATCH).map(|index| quantile(&at(index), 0.5)).collect())
}

fn bandwidth(rates: &[f64], is_whole: bool) -> Answer {
    if rates.iter().any(|rate| *rate <= 0.0) {
        return Answer::none("bytes_per_s", "timing: too few reads ended for a rate");
    }
    let place = if is_whole { "at three places of the disk" } else { "of the test file" };
    let method = format!("timing: direct reads of {} MiB in a row, {SEQUENTIAL_DEPTH} at once, {place}", LONGEST >> 20);
    Answer::middle_of(rates, "bytes_per_s", method)
}

fn parallelism(observed: &Observed, twin: &Twin) -> Answer {
    let most = observed.by_depth.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    match twin {
        Twin::Flash(flash) if most * PAGE_BYTES as f64 > 0.9 * flash.bytes_per_s => Answer::none(
            "requests",
            format!("requests of a page fill the bandwidth: at least {}", (most * flash.read_ns / 1e9).floor() as u64),
        ),
        Twin::Flash(flash) if flash.channels as usize * 2 > DEPTHS[DEPTHS.len() - 1] => {
            Answer::none("requests", format!("no end up to {} at once", DEPTHS[DEPTHS.len() - 1]))
        }
        Twin::Flash(flash) => {
            let near = observed.by_depth.iter().filter(|(_, rate)| *rate > 0.9 * most).count() as u64;
            let method = format!("timing: requests per second by depth, and {BATCH} at once after a pause");
            Answer::counted(flash.channels.into(), "requests", (near, near), method)
        }
        Twin::Volume(volume) => Answer::none(
            "requests",
            format!("a limit of {:.0} requests/s holds before it shows", volume.requests_per_s),
        ),
        Twin::Rotating(_) => Answer::none("requests", "it rotates"),
    }
}

fn limits(observed: &Observed, twin: &Twin) -> Limits {
    let none = |unit| Answer::none(unit, "no limit shows but those of latency, requests at once and bandwidth");
    match twin {
        Twin::Volume(volume) => Limits {
            requests: Answer::middle_of(
                &observed.deepest_rates(),
                "requests_per_s",
                format!("timing: the pace of many reads at once, for {} ms at each depth", RATE_TIME.as_millis()),
            ),
            burst_requests: match volume.burst_requests as usize {
                BATCH.. => Answer::none("requests", format!("timing: all of {BATCH} reads at once are served")),
                requests => {
                    let method = "timing: requests of a batch that are served at once";
                    Answer::counted(requests as u64, "requests", (1, 1), method)
                }
            },
            burst_bytes: match volume.burst_bytes {
                LONGEST_SINGLE.. => Answer::none(
                    "bytes",
                    format!("timing: reads of up to {} KiB take no longer than a page's", LONGEST_SINGLE >> 10),
                ),
                bytes => Answer::counted(
                    bytes,
                    "bytes",
                    (1, 1),
                    "timing: reads up to this length take no longer than a page's",
                ),
            },
        },
        _ => Limits { requests: none("requests_per_s"), burst_requests: none("requests"), burst_bytes: none("bytes") },
    }
}
