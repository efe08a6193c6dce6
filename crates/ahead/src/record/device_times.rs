//! Measures the access times and rates of the devices that a program has read.
//!
//! ```text
//!     used extents by position    ──x────x──────x─────────x──▶      a read beside some of them, from both ends to the middle
//!     timed reads                    1           2                   far: after a read far away     near: 16 KiB after that one
//!     whole device                o────o────o────o────o────o─▶      the same at other places
//!     requests per second            ↑↑     ↑↑        ↑↑             32 small reads at a time, if the device does not seek
//!     bandwidth                        ├────────────┤                a sequential read; 4 at a time, if it does not seek
//! ```
//!
//! A recording with read-ahead does not show them: a use may find its page in the cache. No recording shows what limits a network volume,
//! requests or bytes. The reads bypass the page cache, and lie a little after the used extents: the program's own blocks may still be in the
//! buffer of the drive, and blocks far from all files may not exist (thin volumes). The program may have brought the blocks beside close extents
//! into that buffer, too: so other places of the device are timed as well, and the slower kind decides whether the device seeks.
//!
//! A saved description of the device comes before these times, and the kernel's word on rotation with them, when a run plans.

use crate::cold;
use crate::record::OsFileSystem;
use ahead_model::{DeviceNumber, sorting};
use ahead_plan::from_recording;
use ahead_profile::learn::FileSystem;
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

/// Number of far and of near reads beside used extents: half a second on a rotating disk with those elsewhere.
const READS: usize = 16;

/// Number of the same reads elsewhere. Enough of them remain where some places are near used ones.
const READS_ELSEWHERE: usize = 9;

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
    let device = TimedDevice { file, size_bytes };
    let Some((far_ns, near_ns)) = device.access_times(&positions)? else { return Ok(None) };
    let seeks = from_recording::seeks(far_ns, near_ns, None);
    let request_ns = if seeks { 0 } else { device.request_ns(&positions)? };
    let bandwidth_bytes_per_s = device.bandwidth(&positions, if seeks { 1 } else { SEQUENTIAL_IN_FLIGHT })?;
    Ok(Some(DeviceTimes { device: 0, far_ns, near_ns, request_ns, bandwidth_bytes_per_s }))
}

/// An open device.
struct TimedDevice {
    file: File,
    size_bytes: u64,
}

impl TimedDevice {
    /// As [`access_times`], by reads of this device.
    fn access_times(&self, positions: &[u64]) -> std::io::Result<Option<(u64, u64)>> {
        let mut buffer = Buffer::new(READ_BYTES);
        access_times(self.size_bytes, positions, &mut |position| {
            let began = Instant::now();
            self.read(&mut buffer, position).map(|_| began.elapsed())
        })
    }

    fn beside(&self, position: u64, room_bytes: u64) -> u64 {
        beside(self.size_bytes, position, room_bytes)
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

/// Times of far and near reads of a device of this size, nanoseconds; `None`: too few. `positions`: of used extents, sorted. `timed`: reads
/// a block. Each far read is far from all earlier ones: a drive keeps what it has read ahead at several places, so that a place nearby would
/// be served from its buffer.
fn access_times<E>(
    size_bytes: u64,
    positions: &[u64],
    timed: &mut dyn FnMut(u64) -> Result<Duration, E>,
) -> Result<Option<(u64, u64)>, E> {
    let beside = |position| beside(size_bytes, position, NEAR_BYTES + READ_BYTES);
    let Some(middle) = positions.get(positions.len() / 2) else { return Ok(None) };
    let used: Vec<u64> = spread(&far_apart(positions, &[]), READS).map(beside).collect();
    let step_bytes = size_bytes / READS_ELSEWHERE as u64;
    let evenly: Vec<u64> = (0..READS_ELSEWHERE as u64).map(|number| beside(step_bytes * number)).collect();
    let elsewhere = spread(&far_apart(&evenly, &used), READS_ELSEWHERE).collect();
    let (mut far, mut near, mut spent) = ([Vec::new(), Vec::new()], Vec::new(), Duration::ZERO);
    // Where the arm is before the first read is not known.
    timed(beside(middle.saturating_add(FAR_BYTES)))?;
    for (times, places) in far.iter_mut().zip([used, elsewhere]) {
        for position in places {
            if spent > LIMIT {
                break;
            }
            let (of_far, of_near) = (timed(position)?, timed(position + NEAR_BYTES)?);
            spent += of_far + of_near;
            times.push(of_far);
            near.push(of_near);
        }
    }
    Ok(far_and_near(far, near))
}

/// The time of far reads that counts, and that of near ones, nanoseconds; `None`: too few reads. `far`: beside used extents, and elsewhere.
fn far_and_near([used, elsewhere]: [Vec<Duration>; 2], near: Vec<Duration>) -> Option<(u64, u64)> {
    if used.len() + elsewhere.len() < LEAST_READS {
        return None;
    }
    let near_ns = nth(near, 2);
    let is_enough = used.len() >= LEAST_READS;
    let (used_ns, elsewhere_ns) = (far_ns(used, near_ns), far_ns(elsewhere, near_ns));
    // Between used extents the arm moves less than over the whole device. Where they do not show that it moves, the slower kind counts:
    // they may have been in the drive's buffer, and blocks elsewhere may not exist on a thin volume, and are fast.
    let is_shown = is_enough && from_recording::seeks(used_ns, near_ns, None);
    Some((if is_shown { used_ns } else { used_ns.max(elsewhere_ns) }, near_ns))
}

/// The median of far reads, nanoseconds; 0 without any. An arm delays each of them, and a busy machine some: where the fastest quarter shows no
/// seek, the quartile counts.
fn far_ns(times: Vec<Duration>, near_ns: u64) -> u64 {
    let (quartile_ns, median_ns) = (nth(times.clone(), 4), nth(times, 2));
    let is_seek = |far_ns| from_recording::seeks(far_ns, near_ns, None);
    if is_seek(median_ns) && !is_seek(quartile_ns) { quartile_ns } else { median_ns }
}

/// A place a little after a used extent, with room for this many bytes. Addresses of btrfs may lie beyond the end of the device.
fn beside(size_bytes: u64, position: u64, room_bytes: u64) -> u64 {
    let room_bytes = size_bytes.saturating_sub(room_bytes).max(1);
    position.saturating_add(BESIDE_BYTES) % room_bytes / READ_BYTES * READ_BYTES
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

/// At most this many of the positions: evenly from the sorted ones, alternately from the first half and from the second. Each once.
fn spread(positions: &[u64], most: usize) -> impl Iterator<Item = u64> {
    let count = most.min(positions.len());
    let chosen = move |number: usize| {
        let turn = if number.is_multiple_of(2) { number / 2 } else { count.div_ceil(2) + number / 2 };
        positions[turn * positions.len() / count]
    };
    (0..count).map(chosen)
}

/// The shortest time that this part of the times (2: half) does not exceed, nanoseconds; 0 without any.
fn nth(mut times: Vec<Duration>, part: usize) -> u64 {
    let index = times.len() / part;
    if times.is_empty() { 0 } else { times.select_nth_unstable(index).1.as_nanos() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_device::{Model, Op, Request};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    #[test]
    fn consecutive_reads_are_far_apart() {
        let positions: Vec<u64> = (0..100).map(|number| number << 20).collect();
        let chosen: Vec<u64> = spread(&positions, READS).collect();
        assert_eq!(chosen.len(), READS);
        assert!(chosen.windows(2).all(|pair| pair[0].abs_diff(pair[1]) >= 40 << 20), "{chosen:?}");
        assert_eq!(spread(&[], READS).count(), 0);
    }

    proptest! {
        /// Regression: a few places were read several times each, out of the drive's buffer.
        #[test]
        fn each_place_is_read_once(places in prop::collection::btree_set(0_u64..1000, 0..60), most in 1_usize..40) {
            let places: Vec<u64> = places.into_iter().collect();
            let chosen: BTreeSet<u64> = spread(&places, most).collect();
            prop_assert_eq!(chosen.len(), most.min(places.len()));
            prop_assert_eq!(spread(&places, most).count(), chosen.len());
        }
    }

    const MIB: u64 = 1 << 20;

    /// Positions of 16 KiB each, from a place on, at this distance.
    fn files(from: u64, count: u64, distance: u64) -> Vec<u64> {
        (0..count).map(|number| from + number * distance).collect()
    }

    /// Whether a simulated device counts as one that seeks, after a program has read 16 KiB at each of these positions.
    fn seeks(model: &str, size_bytes: u64, positions: &[u64]) -> Option<bool> {
        let mut device = ahead_device::Device::new(&Model::builtin(model).unwrap(), size_bytes);
        let mut now_ns = 0;
        let mut read = |offset_bytes, length_bytes| {
            let served = device.submit(&Request { op: Op::Read, offset_bytes, length_bytes }, now_ns);
            let took = Duration::from_nanos(served.end_ns - now_ns);
            now_ns = served.end_ns + 20_000;
            took
        };
        for position in positions {
            read(*position, 16 << 10);
        }
        let timed = &mut |position| Ok::<_, Infallible>(read(position, READ_BYTES));
        let Ok(times) = access_times(size_bytes, positions, timed);
        times.map(|(far_ns, near_ns)| from_recording::seeks(far_ns, near_ns, None))
    }

    /// Regression: 500 files of 16 KiB behind 400 MB, with their directory and inodes, made a rotating disk one of 47 us, which was read in
    /// order of first use with 16 requests in flight.
    #[test]
    fn rotating_disk_is_known_by_files_close_together() {
        let close = [files(8 * MIB, 8, 4096), files(130 * MIB, 20, 4096), files(420 * MIB, 500, 16 << 10)].concat();
        assert_eq!(seeks("hdd", 1 << 30, &close), Some(true));
    }

    proptest! {
        /// Wherever the used extents lie, close together or far apart, few or many.
        #[test]
        fn only_a_rotating_disk_seeks_with_any_layout(
            model in prop::sample::select(vec!["hdd", "cloud", "ssd", "emmc"]),
            gib in 1_u64..200,
            groups in prop::collection::vec((0_u64..1000, 1_u64..100, 1_u64..3000), 1..6),
        ) {
            let size_bytes = gib << 30;
            let group = |(share, count, pages): (u64, u64, u64)| files(size_bytes / 1100 * share, count, pages * 4096);
            let mut positions: Vec<u64> = groups.into_iter().flat_map(group).collect();
            positions.sort_unstable();
            prop_assert_eq!(seeks(model, size_bytes, &positions), Some(model == "hdd"));
        }
    }

    #[test]
    fn slower_places_count_unless_the_used_ones_show_seeks() {
        let ms = |count, ms| vec![Duration::from_millis(ms); count];
        let far_ms = |used, elsewhere| far_and_near([used, elsewhere], ms(20, 1)).map(|(far_ns, _)| far_ns / 1_000_000);
        assert_eq!(far_ms(ms(16, 6), ms(9, 12)), Some(6));
        assert_eq!(far_ms(ms(16, 0), ms(9, 12)), Some(12));
        assert_eq!(far_ms(ms(3, 8), ms(9, 0)), Some(8));
        assert_eq!(far_ms(ms(3, 8), ms(3, 8)), None);
    }

    /// Regression: on a busy machine a fast disk was taken for one that seeks.
    #[test]
    fn reads_that_some_other_load_delays_are_no_seeks() {
        let some = |fast: usize, slow: usize| -> Vec<Duration> {
            [vec![Duration::from_micros(90); fast], vec![Duration::from_millis(6); slow]].concat()
        };
        let (far_ns, near_ns) = far_and_near([some(5, 11), some(3, 6)], some(18, 7)).unwrap();
        assert!(!from_recording::seeks(far_ns, near_ns, None), "{far_ns} {near_ns}");
        let (far_ns, near_ns) = far_and_near([some(2, 14), some(1, 8)], some(18, 7)).unwrap();
        assert!(from_recording::seeks(far_ns, near_ns, None), "{far_ns} {near_ns}");
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
        let device = TimedDevice { file, size_bytes: 1 << 30 };
        assert_eq!(device.access_times(&[]).unwrap(), None);
        assert!(device.access_times(&[0, u64::MAX]).unwrap().is_some());
    }

    /// A file of a file system without its own blocks is as fast as memory, and ends.
    #[test]
    fn rates_of_a_small_file_are_known_or_zero() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * SEQUENTIAL_BYTES).unwrap();
        let device = TimedDevice { file, size_bytes: 3 * SEQUENTIAL_BYTES };
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
