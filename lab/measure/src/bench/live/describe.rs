//! Measures the description of a disk by direct reads of a file on it, which bypass the page cache, within some seconds.
//!
//! ```text
//!     4 KiB at random places, one at a time  →  access time (median)
//!     the same, two and then many at a time  →  parallelism
//!     every second page, ascending           →  cost of a request
//!     1 MiB one after the other              →  bandwidth
//! ```
//!
//! `ahead probe` finds more parameters and takes longer. A policy needs only these.

use crate::bench::live::Result;
use ahead_model::random::SplitMix64;
use ahead_model::{DeviceDescription, PAGE_BYTES};
use ahead_sys::block::O_DIRECT;
use ahead_sys::direct::DirectReads;
use ahead_sys::directory::HeldFile;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

/// Time limit for reads of one kind, except the first two.
const LONGEST: Duration = Duration::from_millis(700);
/// Single accesses: enough for a median.
const ACCESSES: u64 = 31;
/// Outstanding reads in the test of parallelism: the length of SATA's queue (NCQ).
const DEEP: usize = 32;
/// Reads at that depth.
const DEEP_READS: u64 = 512;
/// The device serves two requests at the same time if two outstanding reads increase the throughput by this factor. A scheduler alone
/// has a smaller effect.
const PARALLEL_GAIN: f64 = 1.5;
/// Number of ascending pages with a gap of one page.
const NEAR_READS: u64 = 512;
/// Sequential reads, length in bytes and number: together longer than a drive's buffer.
const LONG_BYTES: u64 = 1 << 20;
const LONG_READS: u64 = 64;

/// The times of reads.
struct Took {
    count: u64,
    elapsed: Duration,
    /// Median of single reads.
    median: Duration,
}

impl Took {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Makes `count` reads at places from `place`, with `depth` reads outstanding.
fn take(file: &HeldFile, length: u64, depth: usize, count: u64, place: impl Fn(u64) -> u64) -> Result<Took> {
    let failed = |e| ahead_sys::Error::io(format!("open {}", file.path().display()), e);
    let direct = file.open_again(File::options().read(true).custom_flags(O_DIRECT)).map_err(failed)?;
    let mut reads = DirectReads::of(direct.into(), length as usize, depth)?;
    let (began, mut started, mut done, mut alone) = (Instant::now(), 0, 0, Vec::new());
    while done < count && (done < 2 || began.elapsed() < LONGEST) {
        let before = Instant::now();
        while reads.has_room() && started < count {
            reads.start(place(started) * length)?;
            started += 1;
        }
        done += reads.wait()?.len() as u64;
        alone.push(before.elapsed());
    }
    alone.sort();
    Ok(Took { count: done, elapsed: began.elapsed(), median: alone[alone.len() / 2] })
}

/// Pseudo-random places, the same each time: the number at this index of one sequence of SplitMix64. Steps of one length would not
/// do: the platter turns by the same angle after each step, and so the rotational latency, half of an access, would be arbitrary.
fn scattered(index: u64, places: u64) -> u64 {
    SplitMix64::after(index).below(places)
}

/// A hop as a share of an access on a disk with an arm: the seek is shorter, the rotational latency is not.
const HOP: f64 = 0.5;

/// Measures the disk under a file of at least some MiB that has all its blocks.
///
/// Errors: no direct I/O there; a read that failed; a file that is too short.
pub fn measure(file: &HeldFile) -> Result<DeviceDescription> {
    let bytes = file.length_bytes()?;
    let (pages, long) = (bytes / PAGE_BYTES, bytes / LONG_BYTES);
    if long == 0 {
        return Err(std::io::Error::other(format!("a file of {bytes} bytes is too short for it")).into());
    }
    let single = take(file, PAGE_BYTES, 1, ACCESSES, |index| scattered(index, pages))?;
    // Each kind begins at another place: blocks in the drive's buffer would be answered at once.
    let two = take(file, PAGE_BYTES, 2, ACCESSES, |index| scattered(index + 1000, pages))?;
    let single_per_second = 1.0 / single.median.as_secs_f64().max(1e-9);
    let parallelism = if two.per_second() < PARALLEL_GAIN * single.per_second() {
        1
    } else {
        let deep = take(file, PAGE_BYTES, DEEP, DEEP_READS, |index| scattered(index + 2000, pages))?;
        (deep.per_second() / single_per_second).round().clamp(2.0, DEEP as f64) as u32
    };
    let near = take(file, PAGE_BYTES, 4, NEAR_READS.min(pages / 2), |index| index * 2)?;
    let sequential = take(file, LONG_BYTES, 4, LONG_READS.min(long), |index| long - LONG_READS.min(long) + index)?;
    let measured = DeviceDescription {
        access_ns: single.median.as_nanos() as u64,
        hop_ns: None,
        bandwidth_bytes_per_s: sequential.per_second() * LONG_BYTES as f64,
        parallelism,
        request_ns: (1e9 / near.per_second()) as u64,
        burst: None,
    };
    let hop_ns = measured.has_arm().then_some((measured.access_ns as f64 * HOP) as u64);
    Ok(DeviceDescription { hop_ns, ..measured })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(file: &tempfile::NamedTempFile) -> HeldFile {
        HeldFile::open(file.path()).unwrap()
    }

    #[test]
    fn places_are_within_the_file_and_all_over_it() {
        let places: Vec<u64> = (0..100).map(|index| scattered(index, 1000)).collect();
        assert!(places.iter().all(|place| *place < 1000));
        let in_tenth = |tenth| places.iter().filter(|place| **place / 100 == tenth).count();
        assert!((0..10).all(|tenth| (3..20).contains(&in_tenth(tenth))), "{places:?}");
        assert_eq!(scattered(7, 0), 0);
    }

    /// Regression: multiples of the golden ratio are steps of three lengths, after which a platter has always turned by nearly the
    /// same angles: one disk had 2.8 ms or 11 ms, by the length of the file.
    #[test]
    fn steps_have_all_lengths() {
        let places: Vec<u64> = (0..ACCESSES).map(|index| scattered(index, 1 << 40)).collect();
        let mut steps: Vec<u64> = places.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        steps.sort();
        steps.dedup();
        assert_eq!(steps.len() as u64, ACCESSES - 1);
    }

    #[test]
    fn a_disk_has_some_speed() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::write(file.path(), vec![1; 8 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let Ok(traits) = measure(&held(&file)) else { return eprintln!("skipped: no direct I/O on this file system") };
        assert!(traits.access_ns > 0 && traits.bandwidth_bytes_per_s > 1e5 && traits.parallelism >= 1, "{traits:?}");
    }

    #[test]
    fn a_file_without_pages_is_an_error() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(measure(&held(&file)).is_err());
        // Regression: without a long read in it there was a panic.
        std::fs::write(file.path(), vec![1; 256 << 10]).unwrap();
        assert!(measure(&held(&file)).is_err_and(|error| error.to_string().contains("too short")));
    }
}
