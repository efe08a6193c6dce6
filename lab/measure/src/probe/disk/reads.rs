//! Timed reads past the page cache.

use crate::probe::Run;
use crate::probe::error::{Error, Result};
use crate::probe::statistics::Chance;
use crate::probe::subject::PAGE_BYTES;
use ahead_sys::block;
use ahead_sys::direct::{AlignedBuffer, DirectReads};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest single read, bytes.
pub const LONGEST: u64 = 1 << 20;

/// Smallest disk whose rates can be measured, bytes: a few of the longest reads.
const LEAST_CAPACITY: u64 = 8 << 20;

/// Reads of a disk, or of the part of a disk that holds the test file.
#[derive(Debug)]
pub struct Reads {
    path: PathBuf,
    file: File,
    buffer: AlignedBuffer,
    /// Bytes of the readable range.
    pub capacity_bytes: u64,
    /// Whether the readable range is the whole disk, not a file on it.
    pub is_whole: bool,
    chance: Chance,
    /// All ranges that [`Reads::apart`] returned begin at or after this offset, bytes.
    before: u64,
}

impl Reads {
    /// Opens the block device if this process may read the device, otherwise the file. `Err` as text: neither supports direct reads.
    ///
    /// Errors: direct reads are supported, and a read failed.
    pub fn open(run: &Run) -> Result<std::result::Result<Reads, String>> {
        let subject = run.subject;
        let file_bytes = subject.pages() * PAGE_BYTES;
        let mut too_small = None;
        let places = [(subject.block_device(), true), (Some(subject.path()), false)];
        for (path, is_whole) in places.into_iter().filter_map(|(path, is_whole)| Some((path?, is_whole))) {
            let Ok(file) = File::options().read(true).custom_flags(block::O_DIRECT).open(path) else { continue };
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).unwrap_or(file_bytes);
            let capacity_bytes = if is_whole { end } else { file_bytes } & !(LONGEST - 1);
            let buffer = AlignedBuffer::new(LONGEST as usize);
            let (chance, before) = (Chance::new(0x2545_f491_4f6c_dd1d), (capacity_bytes / 4 * 3) & !(LONGEST - 1));
            let mut reads = Reads { path: path.to_owned(), file, buffer, capacity_bytes, is_whole, chance, before };
            if capacity_bytes < LEAST_CAPACITY {
                too_small = Some(end);
                continue;
            }
            match (reads.one(0, PAGE_BYTES), subject.missing().filter(|_| !is_whole)) {
                (Ok(_), Some(why)) => return Ok(Err(why.to_owned())),
                (Ok(_), None) => return Ok(Ok(reads)),
                (Err(error), _) if is_refusal(&error) => {}
                (Err(error), _) => return Err(error),
            }
        }
        if let Some(bytes) = too_small {
            return Ok(Err(format!("only {bytes} bytes can be read: times and rates want {LEAST_CAPACITY} at least")));
        }
        Ok(Err("the file system does not read past the page cache (O_DIRECT)".to_owned()))
    }

    /// Makes one read. Returns nanoseconds.
    pub fn one(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<f64> {
        let buffer = &mut self.buffer.bytes()[..length_bytes as usize];
        let began = Instant::now();
        self.file.read_exact_at(buffer, offset_bytes).map_err(|e| Error::io("read the disk", e))?;
        Ok(began.elapsed().as_nanos() as f64)
    }

    /// A random place, a multiple of the length.
    pub fn anywhere(&mut self, length_bytes: u64) -> u64 {
        self.within(0, self.capacity_bytes, length_bytes)
    }

    /// A random place in a part of the disk, a multiple of the length.
    pub fn within(&mut self, from: u64, to: u64, length_bytes: u64) -> u64 {
        from + self.chance.below(((to - from) / length_bytes).max(1)) * length_bytes
    }

    /// A range of this length, at most half of the disk, that no caller has requested before. The range is right before the last one. So
    /// a read does not reach the data that a drive has read ahead after the last range. On a small disk the ranges begin again at the
    /// end, when a buffer has held other data for long.
    pub fn apart(&mut self, length_bytes: u64) -> u64 {
        let length_bytes = length_bytes.next_multiple_of(PAGE_BYTES);
        if self.before < length_bytes {
            self.before = self.capacity_bytes;
        }
        self.before -= length_bytes;
        self.before
    }

    /// Reads at these offsets at queue depth `depth`, for `limit` at most. Returns the completion time of each read in order of
    /// completion, nanoseconds from the beginning.
    pub fn many(&self, offsets: &[u64], length_bytes: u64, depth: usize, limit: Duration) -> Result<Vec<f64>> {
        let mut reads = DirectReads::open(&self.path, length_bytes as usize, depth)?;
        let (mut done, mut under_way) = (Vec::with_capacity(offsets.len()), 0);
        let mut next = offsets.iter();
        let began = Instant::now();
        loop {
            while reads.has_room() && began.elapsed() < limit {
                let Some(offset) = next.next() else { break };
                reads.start(*offset)?;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(done);
            }
            let ended = reads.wait()?.len();
            let now_ns = began.elapsed().as_nanos() as f64;
            done.extend(std::iter::repeat_n(now_ns, ended));
            under_way -= ended;
        }
    }

    /// Throughput of a sequential read from `from` on, bytes per second; the read ends after `most_bytes` or `limit`. The first fifth of
    /// the time does not count, because a disk's burst must not count.
    pub fn sequential(&self, from: u64, most_bytes: u64, depth: usize, limit: Duration) -> Result<f64> {
        let offsets: Vec<u64> = (from..from + most_bytes.max(4 * LONGEST)).step_by(LONGEST as usize).collect();
        let offsets: Vec<u64> = offsets.into_iter().filter(|at| at + LONGEST <= self.capacity_bytes).collect();
        Ok(steady_rate(&self.many(&offsets, LONGEST, depth, limit)?) * LONGEST as f64)
    }

    /// Reads of random pages per second at queue depth `depth`.
    pub fn rate(&mut self, depth: usize, limit: Duration) -> Result<f64> {
        /// More reads than any disk serves in that time.
        const MOST: usize = 200_000;
        let most = (MOST as f64 * limit.as_secs_f64()) as usize;
        let offsets: Vec<u64> = (0..most.max(4 * depth)).map(|_| self.anywhere(PAGE_BYTES)).collect();
        let done = self.many(&offsets, PAGE_BYTES, depth, limit)?;
        let skipped = (done.len() / 5).max(depth.min(done.len() / 2));
        let (Some(first), Some(last)) = (done.get(skipped), done.last()) else { return Ok(0.0) };
        // The last reads do not count: fewer than `depth` are in flight.
        let end = done.len() - depth.min(done.len() / 4);
        let last = done.get(end.saturating_sub(1)).unwrap_or(last);
        Ok(if last > first { (end - skipped - 1) as f64 * 1e9 / (last - first) } else { 0.0 })
    }
}

/// Whether this error means that the file system does not support direct reads: a failing disk gives other errors.
fn is_refusal(error: &Error) -> bool {
    let Error::Io { source, .. } = error else { return false };
    let number = source.raw_os_error().map(Errno::from_raw_os_error);
    matches!(number, Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Reads per second, from completion times, nanoseconds. Where a queue is longer than the disk's, the kernel cuts simultaneous reads into
/// requests that the disk serves in turn. So these reads end together. The rate counts from one such end to another.
fn steady_rate(done: &[f64]) -> f64 {
    /// Reads ended together if the distance of their ends is below this part of the mean distance.
    const TOGETHER: f64 = 0.1;
    let (Some(begin), Some(end)) = (done.first(), done.last()) else { return 0.0 };
    let together = (end - begin) / done.len() as f64 * TOGETHER;
    let is_end = |at: &usize| done.get(at + 1).is_none_or(|next| next - done[*at] > together);
    let mut ends = (0..done.len()).filter(is_end).skip_while(|at| at + 1 < done.len() / 5);
    let (Some(first), Some(last)) = (ends.next(), ends.last()) else { return 0.0 };
    (last - first) as f64 * 1e9 / (done[last] - done[first])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a volume of 40 MB/s, whose reads of 1 MiB ended eight at a time, had 43.8.
    #[test]
    fn reads_that_end_together_do_not_change_the_rate() {
        let by_eight = (1..=4).flat_map(|group| [f64::from(group) * 8e6; 8]);
        let then_one_by_one = (33..=40).map(|count| f64::from(count) * 1e6);
        let done: Vec<f64> = by_eight.chain(then_one_by_one).collect();
        assert_eq!(steady_rate(&done), 1000.0);
        assert_eq!(steady_rate(&done[..35]), 1000.0);
        assert_eq!((steady_rate(&[]), steady_rate(&[5.0]), steady_rate(&[5.0; 9])), (0.0, 0.0, 0.0));
    }

    /// Regression: a disk on which all reads failed was reported as a file system without direct reads.
    #[test]
    fn failing_disk_is_not_one_without_direct_reads() {
        for (errno, refuses) in [(Errno::INVAL, true), (Errno::OPNOTSUPP, true), (Errno::IO, false)] {
            assert_eq!(is_refusal(&Error::io("read the disk", errno)), refuses);
        }
    }
}
