//! Measures the access times of the devices that a program has read.
//!
//! ```text
//!     used extents by position    ──x────x──────x─────────x──▶      a read beside every second one, from both ends to the middle
//!     timed reads                    1           2                   far: after a read far away     near: 16 KiB after that one
//! ```
//!
//! A recording with read-ahead does not show them: a use may find its page in the cache. The reads bypass the page cache, and lie a
//! little after the used extents: the program's own blocks may still be in the buffer of the drive, and blocks far from all files may
//! not exist (thin volumes).

use crate::record::OsFileSystem;
use ahead_learn::FileSystem;
use ahead_model::{DeviceNumber, sorting};
use ahead_profile::{DeviceTimes, Profile};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
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

/// The times of each device that has a node and enough used extents far from each other. Needs root.
pub fn measure(profile: &Profile) -> Vec<DeviceTimes> {
    let mut positions: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let data = profile.files.iter().map(|file| (file.device, &file.extents));
    for (device, extents) in data.chain(profile.metadata.iter().map(|metadata| (metadata.device, &metadata.extents))) {
        positions.entry(device).or_default().extend(extents.iter().filter_map(|extent| extent.physical_bytes));
    }
    let times = |(device, positions)| {
        let node = OsFileSystem.block_device_node(DeviceNumber::from_key(device))?;
        let measured = times_of(&node, positions);
        let (far, near) = measured.inspect_err(|error| tracing::debug!("{}: {error}", node.display())).ok()??;
        Some(DeviceTimes { device, far_ns: far.as_nanos() as u64, near_ns: near.as_nanos() as u64 })
    };
    positions.into_iter().filter_map(times).collect()
}

/// Medians of far and near reads; `None`: too few.
fn times_of(node: &Path, mut positions: Vec<u64>) -> std::io::Result<Option<(Duration, Duration)>> {
    sorting::sort(&mut positions);
    let mut device = File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(node)?;
    let last = device.seek(SeekFrom::End(0))?.saturating_sub(NEAR_BYTES + READ_BYTES);
    let mut space = vec![0; 2 * READ_BYTES as usize];
    let start = space.as_ptr().align_offset(READ_BYTES as usize);
    let buffer = &mut space[start..start + READ_BYTES as usize];
    let mut timed = |position: u64| {
        let began = Instant::now();
        device.read_exact_at(buffer, position).map(|()| began.elapsed())
    };
    let (mut far, mut near, mut before, began) = (Vec::new(), Vec::new(), None, Instant::now());
    for position in spread(&positions) {
        let position = (position + BESIDE_BYTES).min(last) / READ_BYTES * READ_BYTES;
        let far_ns = timed(position)?;
        if before.is_some_and(|before| position.abs_diff(before) >= FAR_BYTES) {
            far.push(far_ns);
        }
        near.push(timed(position + NEAR_BYTES)?);
        before = Some(position);
        if began.elapsed() > LIMIT {
            break;
        }
    }
    Ok((far.len() >= LEAST_READS).then(|| (median(far), median(near))))
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

    #[test]
    fn device_that_cannot_be_opened_has_no_times() {
        assert!(times_of(Path::new("/no/such/node"), vec![0]).is_err());
    }
}
