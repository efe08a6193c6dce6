//! A disk without moving parts, or a volume on a network: a latency, some requests at once, and perhaps limits.
//!
//! What cannot be told apart from outside by one experiment is told by several together: the models of such disks are asked what
//! they would have answered ([`crate::twin`]), and the one that comes nearest is the twin.
//!
//! ```text
//!     one at a time, by length      latency, and what a byte costs after it (nothing, below a burst)
//!     many at once after a pause    who is served at once, and at which pace the others follow
//!     many at once for long         requests per second, by depth
//!     a long sequential read        bandwidth
//! ```

use super::reads::{LONGEST, Reads};
use super::{Found, Limits, Single, access_time};
use crate::Run;
use crate::answer::Answer;
use crate::error::Result;
use crate::statistics::{median, quantile};
use crate::subject::PAGE_BYTES;
use crate::twin::{self, Observed, Twin};
use std::time::Duration;

/// Lengths of single reads, bytes: up to the largest that most disks take in one request.
const LENGTHS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10];
/// Reads of each length.
const READS: u32 = 24;
/// Reads at once, at most; as deep as drives' queues that are common (NVMe: 1024 and fewer).
const DEPTHS: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// For each depth.
const RATE_TIME: Duration = Duration::from_millis(400);
/// Reads at once after a pause.
const BATCH: usize = 256;
/// Such batches.
const BATCHES: usize = 5;
/// A sequential read has so many requests outstanding: 16 MiB, more than latency times bandwidth of any such disk but the farthest.
const SEQUENTIAL_DEPTH: usize = 16;
/// How long it takes, at most.
const SEQUENTIAL_TIME: Duration = Duration::from_millis(1500);
/// Between two experiments a limit forgets what was read, at most so long.
const FORGET: Duration = Duration::from_millis(300);

pub fn find(run: &Run, reads: &mut Reads, single: &Single) -> Result<Found> {
    let observed = observe(run, reads, single)?;
    let access = access_time(single, false, reads.is_whole);
    let twin = twin::fit(&observed);
    let is_volume = matches!(twin, Twin::Volume(_));
    Ok(Found {
        access_time: access,
        bandwidth: bandwidth(&observed, reads.is_whole),
        parallelism: parallelism(&observed, &twin),
        limits: Some(limits(&twin, is_volume)),
        twin: Some(twin),
        ..Found::unknown("")
    })
}

fn observe(run: &Run, reads: &mut Reads, single: &Single) -> Result<Observed> {
    let step = |what: &str| {
        std::thread::sleep(FORGET);
        run.watcher.go_on(what)
    };
    step("the disk's latency")?;
    let by_length = LENGTHS.iter().map(|length| Ok((*length, paced(reads, *length, READS)?))).collect::<Result<_>>()?;
    step("the disk's latency")?;
    let sequential_page_ns = median(&single.forwards);
    step("requests at once")?;
    let batch = batch(run, reads)?;
    step("the disk's bandwidth")?;
    let stretch = reads.capacity_bytes;
    let bytes_per_s = reads.sequential(0, stretch, SEQUENTIAL_DEPTH, SEQUENTIAL_TIME)?;
    let mut by_depth = Vec::new();
    for depth in DEPTHS {
        step("requests at once")?;
        by_depth.push((depth, reads.rate(depth, RATE_TIME)?));
    }
    Ok(Observed { capacity_bytes: reads.capacity_bytes, by_length, sequential_page_ns, batch, bytes_per_s, by_depth })
}

/// Median of single reads anywhere, each after a pause as long as it took twice.
fn paced(reads: &mut Reads, length: u64, count: u32) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..count {
        let place = reads.anywhere(length);
        let took = reads.one(place, length)?;
        std::thread::sleep(Duration::from_nanos(2 * took as u64));
        times.push(took);
    }
    Ok(median(&times))
}

/// When the reads of a batch were done, nanoseconds after it began: the medians of several, each after a pause.
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

fn bandwidth(observed: &Observed, is_whole: bool) -> Answer {
    let place = if is_whole { "from the disk's beginning" } else { "of the test file" };
    let method = format!("timing: direct reads of {} MiB in a row, {SEQUENTIAL_DEPTH} at once, {place}", LONGEST >> 20);
    let rate = observed.bytes_per_s;
    Answer::measured(rate, "bytes_per_s", [rate * 0.97, rate * 1.03], method)
}

fn parallelism(observed: &Observed, twin: &Twin) -> Answer {
    let most = observed.by_depth.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    match twin {
        Twin::Flash(flash) if most * PAGE_BYTES as f64 > 0.9 * flash.bytes_per_s => Answer::none(
            "requests",
            format!("requests of a page fill the bandwidth: at least {}", (most * flash.read_ns / 1e9).floor() as u64),
        ),
        Twin::Flash(flash) if flash.channels as usize * 2 > BATCH => {
            Answer::none("requests", format!("no end up to {BATCH} at once"))
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

fn limits(twin: &Twin, is_volume: bool) -> Limits {
    let none = |unit| Answer::none(unit, "no limit shows but those of latency, requests at once and bandwidth");
    match twin {
        Twin::Volume(volume) if is_volume => Limits {
            requests: Answer::measured(
                volume.requests_per_s,
                "requests_per_s",
                [volume.requests_per_s * 0.97, volume.requests_per_s * 1.03],
                format!("timing: the pace of {BATCH} reads at once, and of many for {} ms", RATE_TIME.as_millis()),
            ),
            burst_requests: Answer::counted(volume.burst_requests.into(), "requests", (1, 1), "timing: so many of a batch are served at once"),
            burst_bytes: match volume.burst_bytes {
                0 => none("bytes"),
                bytes => Answer::counted(bytes, "bytes", (1, 1), "timing: reads up to this length take no longer than a page's"),
            },
        },
        _ => Limits { requests: none("requests_per_s"), burst_requests: none("requests"), burst_bytes: none("bytes") },
    }
}
