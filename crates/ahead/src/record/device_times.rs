//! Measures the access times and rates of the devices that a program has read.
//!
//! ```text
//!     used extents by position    ──x────x──────x─────────x──▶      a read beside some of them, from both ends to the middle
//!     timed reads                    1           2                   far: after a read far away     near: 16 KiB after that one
//!     requests per second            ↑↑     ↑↑        ↑↑             32 small reads at a time, if the device does not seek
//!     bandwidth                        ├────────────┤                a sequential read; 4 at a time, if it does not seek
//! ```
//!
//! A recording with read-ahead does not show them: a use may find its page in the cache. No recording shows what limits a network volume,
//! requests or bytes. The reads bypass the page cache, and lie a little after the used extents: the program's own blocks may still be in the
//! buffer of the drive, and blocks far from all files may not exist (thin volumes). Where the used extents lie in few places, other places of
//! the device are timed, too, and the slower kind counts.

use crate::cold;
use crate::record::OsFileSystem;
use ahead_learn::FileSystem;
use ahead_model::{DeviceNumber, sorting};
use ahead_plan::from_recording;
use ahead_profile::{DeviceTimes, Profile};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of far and of near reads: half a second on a rotating disk.
const READS: usize = 16;

/// With fewer far reads, nothing is derived.
const LEAST_READS: usize = 7;

/// Size of a timed read, and alignment of its buffer: the largest block size of common disks. Bytes.
const READ_BYTES: u64 = 4096;

/// Distance of a read from a used extent: beyond the window of read-ahead. Bytes.
const BESIDE_BYTES: u64 = 1 << 20;

/// Distance of a far read from the one before: two tracks of a large disk, so that the arm has moved. Bytes.
const FAR_BYTES: u64 = 8 << 20;

/// Distance of a near read: on one track of any disk. Bytes.
const NEAR_BYTES: u64 = 16 << 10;

/// Reads of one device may take this time altogether; a broken disk takes longer.
const LIMIT: Duration = Duration::from_secs(2);

/// Small reads in flight: enough for a volume that delays each for 1 ms and serves 30,000 per second.
const IN_FLIGHT: usize = 32;

/// Sequential reads in flight.
const SEQUENTIAL_IN_FLIGHT: usize = 4;

/// Size of a sequential read, bytes: what network volumes count as one request.
const SEQUENTIAL_BYTES: u64 = 256 << 10;

/// Time for each rate: 300 reads of a volume with 3000 requests per second, 12 MB at 125 MB/s.
const RATE_TIME: Duration = Duration::from_millis(100);

/// With fewer reads, no rate is derived.
const LEAST_OF_A_RATE: usize = 8;

/// The times of each device that has a node and enough used extents far from each other. Needs root.
pub fn measure(profile: &Profile) -> Vec<DeviceTimes> {
    let mut positions: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let data = profile.files.iter().map(|file| (file.device, &file.extents));
    for (device, extents) in data.chain(profile.metadata.iter().map(|metadata| (metadata.device, &metadata.extents))) {
        positions.entry(device).or_default().extend(extents.iter().filter_map(|extent| extent.physical_bytes));
    }
    let nodes = cold::nodes_of(profile);
    let times = |(device, positions)| {
        let number = DeviceNumber::from_key(device);
        let node = nodes.get(&number).cloned().or_else(|| OsFileSystem.block_device_node(number))?;
        let measured = times_of(&node, positions);
        let times = measured.inspect_err(|error| tracing::debug!("{}: {error}", node.display())).ok()??;
        Some(DeviceTimes { device, ..times })
    };
    positions.into_iter().filter_map(times).collect()
}

/// The times and rates of a device; `None`: too few extents are far apart.
fn times_of(node: &Path, mut positions: Vec<u64>) -> std::io::Result<Option<DeviceTimes>> {
    sorting::sort(&mut positions);
    let mut file = File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(node)?;
    let size_bytes = file.seek(SeekFrom::End(0))?;
    let device = Device { file, size_bytes };
    let Some((far_ns, near_ns)) = device.access_times(&positions)? else { return Ok(None) };
    let seeks = from_recording::seeks(far_ns, near_ns, None);
    let request_ns = if seeks { 0 } else { device.request_ns(&positions)? };
    let bandwidth_bytes_per_s = device.bandwidth(&positions, if seeks { 1 } else { SEQUENTIAL_IN_FLIGHT })?;
    Ok(Some(DeviceTimes { device: 0, far_ns, near_ns, request_ns, bandwidth_bytes_per_s }))
}

/// An open device.
struct Device {
    file: File,
    size_bytes: u64,
}

impl Device {
    /// Medians of far and near reads, nanoseconds; `None`: too few. Each far read is far from all earlier ones: a drive keeps what it has read
    /// ahead at several places, so that a place nearby would be served from its buffer.
    fn access_times(&self, positions: &[u64]) -> std::io::Result<Option<(u64, u64)>> {
        let beside = |position| self.beside(position, NEAR_BYTES + READ_BYTES);
        let apart = far_apart(positions, &[]);
        let used: Vec<u64> = spread(&apart).map(beside).collect();
        let evenly: Vec<u64> =
            (0..READS as u64).map(|number| beside(self.size_bytes / READS as u64 * number)).collect();
        let others = if used.len() < LEAST_READS { far_apart(&evenly, &used) } else { Vec::new() };
        let Some(middle) = positions.get(positions.len() / 2) else { return Ok(None) };
        if used.len() + others.len() < LEAST_READS {
            return Ok(None);
        }
        let mut buffer = Buffer::new(READ_BYTES);
        let mut timed = |position: u64| {
            let began = Instant::now();
            self.read(&mut buffer, position).map(|_| began.elapsed())
        };
        let (mut far, mut near, began) = ([Vec::new(), Vec::new()], Vec::new(), Instant::now());
        // Where the arm is before the first read is not known.
        timed(beside(middle.saturating_add(FAR_BYTES)))?;
        for (kind, places) in [used, others].into_iter().enumerate() {
            for position in places {
                if began.elapsed() > LIMIT {
                    break;
                }
                far[kind].push(timed(position)?);
                near.push(timed(position + NEAR_BYTES)?);
            }
        }
        if far.iter().map(Vec::len).sum::<usize>() < LEAST_READS {
            return Ok(None);
        }
        let ns = |times: Vec<Duration>| if times.is_empty() { 0 } else { median(times).as_nanos() as u64 };
        // Blocks without files may not exist on a thin volume, and are fast.
        let far_ns = far.map(ns).into_iter().max().unwrap_or(0);
        Ok(Some((far_ns, ns(near))))
    }

    /// A place a little after a used extent, with room for this many bytes. Addresses of btrfs may lie beyond the end of the device.
    fn beside(&self, position: u64, room_bytes: u64) -> u64 {
        let room_bytes = self.size_bytes.saturating_sub(room_bytes).max(1);
        position.saturating_add(BESIDE_BYTES) % room_bytes / READ_BYTES * READ_BYTES
    }

    /// Returns the number of bytes that were read: fewer at the end of the device.
    fn read(&self, buffer: &mut Buffer, position: u64) -> std::io::Result<usize> {
        self.file.read_at(buffer.aligned(), position)
    }

    /// Time that each small read adds while many are in flight, nanoseconds; 0: too few reads were served.
    fn request_ns(&self, positions: &[u64]) -> std::io::Result<u64> {
        let place = |number: usize| {
            // Each round of the extents reads a little farther on, so that no block is read twice.
            let (round, number) = (number / positions.len(), number % positions.len());
            self.beside(positions[number] + round as u64 * 4 * NEAR_BYTES, READ_BYTES)
        };
        let (count, took) = self.read_in_parallel(IN_FLIGHT, READ_BYTES, place)?;
        Ok(if count < LEAST_OF_A_RATE { 0 } else { (took.as_nanos() / count as u128) as u64 })
    }

    /// Rate of a sequential read, bytes per second; 0: too few reads were served.
    fn bandwidth(&self, positions: &[u64], in_flight: usize) -> std::io::Result<u64> {
        let start = self.beside(positions[positions.len() / 2], 0);
        // The arm moves there before the reads are timed.
        self.read(&mut Buffer::new(SEQUENTIAL_BYTES), start)?;
        let place = |number: usize| start + (number as u64 + 1) * SEQUENTIAL_BYTES;
        let (count, took) = self.read_in_parallel(in_flight, SEQUENTIAL_BYTES, place)?;
        let rate = (count as u64 * SEQUENTIAL_BYTES) as f64 / took.as_secs_f64().max(f64::MIN_POSITIVE);
        Ok(if count < LEAST_OF_A_RATE { 0 } else { rate as u64 })
    }

    /// Reads with this many threads for [`RATE_TIME`], or to the end of the device. Returns the number of complete reads after the first of
    /// each thread, and their time: a volume may serve the first ones in a burst.
    fn read_in_parallel(
        &self,
        threads: usize,
        bytes: u64,
        place: impl Fn(usize) -> u64 + Sync,
    ) -> std::io::Result<(usize, Duration)> {
        let (next, done, began) = (AtomicUsize::new(0), AtomicUsize::new(0), Instant::now());
        let burst_over = OnceLock::new();
        let read = || {
            let mut buffer = Buffer::new(bytes);
            while began.elapsed() < RATE_TIME {
                let read_bytes = self.read(&mut buffer, place(next.fetch_add(1, Ordering::Relaxed)))?;
                if read_bytes as u64 != bytes {
                    break;
                }
                if done.fetch_add(1, Ordering::Relaxed) + 1 == threads {
                    burst_over.get_or_init(|| began.elapsed());
                }
            }
            std::io::Result::Ok(())
        };
        std::thread::scope(|scope| {
            // Where a thread cannot be started, fewer reads are in flight.
            let started = (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, read).ok());
            let started: Vec<_> = started.collect();
            let own = read();
            let joined = started.into_iter().map(|thread| thread.join().unwrap_or(Ok(())));
            std::iter::once(own).chain(joined).collect::<std::io::Result<()>>()
        })?;
        let count = done.into_inner().saturating_sub(threads);
        Ok((count, began.elapsed().saturating_sub(burst_over.into_inner().unwrap_or_default())))
    }
}

/// Memory that is aligned for reads past the page cache.
struct Buffer {
    space: Vec<u8>,
    length: usize,
}

impl Buffer {
    fn new(length_bytes: u64) -> Buffer {
        let length = length_bytes as usize;
        Buffer { space: vec![0; length + READ_BYTES as usize], length }
    }

    fn aligned(&mut self) -> &mut [u8] {
        let start = self.space.as_ptr().align_offset(READ_BYTES as usize);
        &mut self.space[start..start + self.length]
    }
}

/// Positions, each at least [`FAR_BYTES`] from the others and from those that are taken. Keeps the order.
fn far_apart(positions: &[u64], taken: &[u64]) -> Vec<u64> {
    let mut chosen: Vec<u64> = Vec::new();
    for position in positions {
        let is_far = |other: &u64| other.abs_diff(*position) >= FAR_BYTES;
        // Sorted ones are compared with the last chosen one only.
        if chosen.last().is_none_or(is_far) && taken.iter().all(is_far) {
            chosen.push(*position);
        }
    }
    chosen
}

/// Positions for reads: evenly from the sorted ones, alternately from the first half and from the second.
fn spread(positions: &[u64]) -> impl Iterator<Item = u64> {
    let chosen = move |number: usize| {
        let turn = number / 2 + if number.is_multiple_of(2) { 0 } else { READS / 2 };
        positions.get(turn * positions.len() / READS).copied()
    };
    (0..READS).filter_map(chosen)
}

fn median(mut times: Vec<Duration>) -> Duration {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_reads_are_far_apart() {
        let positions: Vec<u64> = (0..100).map(|number| number << 20).collect();
        let chosen: Vec<u64> = spread(&positions).collect();
        assert_eq!(chosen.len(), READS);
        assert!(chosen.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 40 << 20), "{chosen:?}");
        assert_eq!(spread(&[]).count(), 0);
        assert!(spread(&[5]).all(|position| position == 5));
    }

    /// Regression: the files of `git show` lie in few places. A rotating disk served most reads from its buffer and was taken for flash, and the
    /// program was slower with the prefetch.
    #[test]
    fn places_of_far_reads_are_far_from_all_earlier_ones() {
        let clustered: Vec<u64> = (0..100).map(|number| (number % 2) * (1 << 30) + number * 4096).collect();
        let mut sorted = clustered.clone();
        sorted.sort_unstable();
        assert_eq!(far_apart(&sorted, &[]), [0, (1 << 30) + 4096]);
        let evenly: Vec<u64> = (0..16).map(|number| number << 28).collect();
        let others = far_apart(&evenly, &[0, 1 << 30]);
        assert_eq!((others.len(), others.contains(&(1 << 30))), (14, false));
    }

    /// Regression: a device of which no extent has a known place ended the recorder.
    #[test]
    fn device_without_known_places_has_no_times() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 30).unwrap();
        let device = Device { file, size_bytes: 1 << 30 };
        assert_eq!(device.access_times(&[]).unwrap(), None);
        assert!(device.access_times(&[0, u64::MAX]).unwrap().is_some());
    }

    /// A file of a file system without its own blocks is as fast as memory, and ends.
    #[test]
    fn rates_of_a_small_file_are_known_or_zero() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * SEQUENTIAL_BYTES).unwrap();
        let device = Device { file, size_bytes: 3 * SEQUENTIAL_BYTES };
        assert_eq!(device.bandwidth(&[0], 4).unwrap(), 0);
        let (count, took) = device.read_in_parallel(2, READ_BYTES, |_| 0).unwrap();
        assert!(count > 0 && took <= RATE_TIME * 100, "{count} {took:?}");
        assert_eq!(device.read_in_parallel(2, READ_BYTES, |_| u64::MAX / 4).unwrap().0, 0);
        assert!(device.beside(u64::MAX, 0) <= device.size_bytes);
        assert_eq!(Buffer::new(READ_BYTES).aligned().len(), READ_BYTES as usize);
    }

    #[test]
    fn device_that_cannot_be_opened_has_no_times() {
        assert!(times_of(Path::new("/no/such/node"), vec![0]).is_err());
    }
}
