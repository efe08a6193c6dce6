//! Measures the floor: the cost of a read through block layer, loop device, FUSE and daemon without a model. A disk that is faster cannot be
//! emulated; for every other disk the floor is subtracted from the time of the model.
//!
//! ```text
//!     program ──request──▶ daemon: arrival ─────── time of the model ───────▶ ──answer──▶ program
//!                                                    └── lead ──┘
//!                                      the answer is sent earlier by the lead
//! ```
//!
//! The lead is the minimum of this cost (the fastest of fifty), so that almost no read is answered before the time of the model. A longer
//! cost, mostly the wake-up of an idle processor, increases the time of the read, as after the interrupt of a real disk.

use crate::{Error, Result};
use ahead_device::{Model, Op, Request, time_for};
use ahead_disk::{Client, Floor, Lead};
use ahead_sys::block;
use ahead_sys::daemon::{Awake, set_nice};
use ahead_sys::direct::{AlignedBuffer, DirectReads};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// The smallest read of a file system: a page. Bytes.
const SMALL_BYTES: u64 = 4096;
/// Small reads whose quantiles count: enough for stable values, 10 ms in all.
const SMALL_READS: u64 = 300;
/// The quantile that counts as the minimum: the fastest read may be an outlier.
const LEAST: f64 = 0.02;
/// As [`SMALL_READS`], for large reads.
const LARGE_READS: u64 = 60;
/// Time of the measurement of a rate: short, but thousands of requests.
const RATE_TIME: Duration = Duration::from_millis(40);
/// The best of this many rounds counts: another program can only reduce a rate.
const RATE_ROUNDS: usize = 3;
/// Queue depth of small reads: the maximum of SATA.
const SMALL_DEPTH: usize = 32;
/// Queue depth of large reads: a few reads saturate the copying.
const LARGE_DEPTH: usize = 4;
/// Accepted difference between the time of a read and the model, nanoseconds.
const TOLERANCE_NS: u64 = 60_000;

/// Measures a disk whose model is not active yet. `large_bytes` is the longest read.
pub(crate) fn measure(device: &Path, client: &Client, capacity_bytes: u64, large_bytes: u64) -> Result<Floor> {
    // A separate thread, because the higher priority must not apply to other threads: other programs must not disturb the times.
    let measure = || {
        // The daemon does the same while it serves reads.
        let _awake = Awake::keep().inspect_err(|e| tracing::debug!("{e}"));
        if let Err(error) = set_nice() {
            tracing::info!("the floor may be measured too high: {error}");
        }
        measure_in_thread(device, client, capacity_bytes, large_bytes)
    };
    std::thread::scope(|scope| scope.spawn(measure).join()).expect("measuring does not panic")
}

fn measure_in_thread(device: &Path, client: &Client, capacity_bytes: u64, large_bytes: u64) -> Result<Floor> {
    let failed = |e: std::io::Error| Error::io(format!("measure {}", device.display()), e);
    let file = File::options().read(true).custom_flags(block::O_DIRECT).open(device).map_err(failed)?;
    let large_bytes = large_bytes.min(capacity_bytes / 2).max(SMALL_BYTES) & !(SMALL_BYTES - 1);
    let small = times_ns(&file, capacity_bytes, SMALL_BYTES, SMALL_READS).map_err(failed)?;
    client.reset()?;
    let large = times_ns(&file, capacity_bytes, large_bytes, LARGE_READS).map_err(failed)?;
    let stat = client.reset()?;
    // The daemon reads the image during the time of the model: this cost does not add to that time.
    let image_ns = stat.image_us * 1000 / stat.requests.max(1);
    Ok(Floor {
        latency_ns: quantile(&small, 0.25),
        requests_per_s: rate(device, capacity_bytes, SMALL_BYTES, SMALL_DEPTH)?,
        bytes_per_s: rate(device, capacity_bytes, large_bytes, LARGE_DEPTH)? * large_bytes as f64,
        lead: lead(quantile(&small, LEAST), quantile(&large, LEAST).saturating_sub(image_ns), large_bytes),
    })
}

/// Why this machine cannot emulate a disk of this model. `None`: the machine can.
pub fn shortfall(floor: &Floor, model: &Model) -> Option<String> {
    let fastest_ns = model.fastest_ns(SMALL_BYTES);
    if floor.latency_ns > fastest_ns + TOLERANCE_NS {
        let (model_us, rig_us) = (fastest_ns / 1000, floor.latency_ns / 1000);
        return Some(format!(
            "the model reads 4 KiB in {model_us} µs, the emulation on this machine needs {rig_us} µs"
        ));
    }
    let model_rate = random_requests_per_s(model);
    if model_rate > floor.requests_per_s {
        let rig_rate = floor.requests_per_s;
        return Some(format!(
            "the model serves {model_rate:.0} requests/s, the emulation on this machine {rig_rate:.0}"
        ));
    }
    let (model_rate, rig_rate) = (model.bandwidth_bytes_per_s() / 1e6, floor.bytes_per_s / 1e6);
    (model_rate > rig_rate)
        .then(|| format!("the model reads {model_rate:.0} MB/s, the emulation on this machine {rig_rate:.0} MB/s"))
}

fn lead(small_ns: u64, large_ns: u64, large_bytes: u64) -> Lead {
    let more_kib = (large_bytes.saturating_sub(SMALL_BYTES) >> 10).max(1);
    Lead { base_ns: small_ns, per_kib_ns: large_ns.saturating_sub(small_ns) / more_kib, ..Lead::default() }
}

/// The rate of small scattered reads that a disk of this model serves at full queue depth. The rate in ascending order may be higher, but
/// the block layer merges such reads.
pub(crate) fn random_requests_per_s(model: &Model) -> f64 {
    const READS: u64 = 1000;
    const CAPACITY_BYTES: u64 = 4 << 30;
    let request = |step| Request {
        op: Op::Read,
        offset_bytes: scattered_offset(step, CAPACITY_BYTES, SMALL_BYTES),
        length_bytes: SMALL_BYTES,
    };
    let takes_ns = time_for(model, CAPACITY_BYTES, (0..READS).map(request));
    READS as f64 * 1e9 / takes_ns.max(1) as f64
}

/// Scattered offsets without random numbers: steps by the golden ratio of the blocks. Every block occurs once before any block occurs
/// again.
pub(crate) fn scattered_offset(step: u64, capacity_bytes: u64, length_bytes: u64) -> u64 {
    let blocks = (capacity_bytes / length_bytes).max(1);
    let mut stride = ((blocks as f64 * 0.618) as u64).max(1);
    // With a common divisor some blocks would repeat, and others never occur.
    while greatest_common_divisor(stride, blocks) > 1 {
        stride += 1;
    }
    (step.wrapping_mul(stride) % blocks) * length_bytes
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The times of reads at queue depth 1, in ascending order.
fn times_ns(file: &File, capacity_bytes: u64, length_bytes: u64, reads: u64) -> std::io::Result<Vec<u64>> {
    let mut buffer = AlignedBuffer::new(length_bytes as usize);
    let mut times = Vec::with_capacity(reads as usize);
    for step in 0..reads {
        let start = Instant::now();
        file.read_exact_at(buffer.bytes(), scattered_offset(step, capacity_bytes, length_bytes))?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    Ok(times)
}

/// The quantile of values in ascending order; 0 without values.
pub(crate) fn quantile<T: Copy + Default>(sorted: &[T], share: f64) -> T {
    sorted
        .get(((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// Reads per second at queue depth `depth`; the best of some rounds.
fn rate(device: &Path, capacity_bytes: u64, length_bytes: u64, depth: usize) -> Result<f64> {
    let mut reads = DirectReads::open(device, length_bytes as usize, depth)?;
    let (mut best, mut step) = (0.0, 0);
    for _ in 0..RATE_ROUNDS {
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < RATE_TIME {
            while reads.has_room() {
                reads.start(scattered_offset(step, capacity_bytes, length_bytes))?;
                step += 1;
            }
            done += reads.wait()?.len();
        }
        best = f64::max(best, done as f64 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floor() -> Floor {
        let lead = Lead { base_ns: 10_000, per_kib_ns: 150, ..Lead::default() };
        Floor { latency_ns: 30_000, requests_per_s: 140_000.0, bytes_per_s: 5e9, lead }
    }

    #[test]
    fn only_a_disk_faster_than_the_floor_has_a_shortfall() {
        for name in ["hdd", "ssd", "emmc", "cloud"] {
            assert_eq!(shortfall(&floor(), &Model::builtin(name).unwrap()), None, "{name}");
        }
        let slow_rig = Floor { latency_ns: 1_000_000, ..floor() };
        assert!(shortfall(&slow_rig, &Model::builtin("nvme").unwrap()).unwrap().contains("needs 1000 µs"));
        let narrow_rig = Floor { requests_per_s: 50_000.0, ..floor() };
        assert!(shortfall(&narrow_rig, &Model::builtin("ssd").unwrap()).unwrap().contains("requests/s"));
        let thin_rig = Floor { bytes_per_s: 1e6, ..floor() };
        assert!(shortfall(&thin_rig, &Model::builtin("hdd").unwrap()).unwrap().contains("MB/s"));
    }

    #[test]
    fn lead_grows_with_the_length_of_a_read() {
        let lead = lead(10_000, 164_000, 1 << 20);
        assert_eq!(lead.ns(0, 0), 10_000);
        assert!((160_000..=164_000).contains(&lead.ns(1 << 20, 0)), "{lead:?}");
        assert_eq!(super::lead(10_000, 5_000, SMALL_BYTES), Lead { base_ns: 10_000, ..Lead::default() });
    }

    #[test]
    fn scattered_offsets_lie_on_the_disk() {
        for step in 0..1000 {
            let at = scattered_offset(step, 10 << 20, 1 << 20);
            assert!(at + (1 << 20) <= 10 << 20 && at.is_multiple_of(1 << 20));
        }
        // Regression: with 500,000 blocks a stride of 309,000 gave 500 different offsets.
        let all: std::collections::HashSet<u64> =
            (0..5000).map(|step| scattered_offset(step, 500_000 * 4096, 4096)).collect();
        assert_eq!(all.len(), 5000);
    }

    #[test]
    fn quantile_of_few_values_and_of_none() {
        assert_eq!((quantile::<u64>(&[], 0.5), quantile(&[7], 0.9), quantile(&[1, 2, 3, 4], 0.5)), (0, 7, 3));
    }
}
