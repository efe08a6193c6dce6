//! The lower bound of a cold start on an emulated disk: no program that reads the same bytes can be faster. On btrfs it is an estimate.

use crate::Result;
use ahead_device::{Model, Op, Request, time_for};
use ahead_disk::DiskInfo;
use ahead_model::RangeSet;
use ahead_profile::Profile;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Seconds that the disk's model needs for the used extents, data and metadata, in ascending order: adjacent extents are read as one, with
/// the largest requests that the disk takes. Files on other disks, and extents whose physical address is unknown, are left out: that makes the
/// bound lower, never higher.
///
/// Only on btrfs the addresses can make it too high: btrfs maps its own addresses to the disk in chunks (so the seeks between them may be
/// shorter), and compressed data is longer in the file than on the disk.
///
/// # Errors
/// The disk's model cannot be read.
pub fn device_seconds(profile: &Profile, disk: &DiskInfo) -> Result<f64> {
    let model: Model = disk.model()?;
    let mount = disk.mount.as_deref();
    let is_here = |path: &[u8]| mount.is_some_and(|mount| Path::new(OsStr::from_bytes(path)).starts_with(mount));
    let requests = ascending(profile, is_here, disk.capacity_bytes, model.max_request_bytes().max(4096));
    Ok(time_for(&model, disk.capacity_bytes, requests.into_iter()) as f64 / 1e9)
}

fn ascending(
    profile: &Profile,
    is_here: impl Fn(&[u8]) -> bool,
    capacity_bytes: u64,
    largest_bytes: u64,
) -> Vec<Request> {
    let files = profile.files.iter().filter(|file| !file.deleted && is_here(&file.path));
    let data = files.flat_map(|file| &file.extents);
    let devices = profile.metadata.iter().filter(|device| is_here(&device.mount_point));
    let metadata = devices.flat_map(|device| &device.extents);
    let places = data.chain(metadata).filter_map(|extent| {
        let start = extent.physical_bytes?;
        // The last page of a file is read whole, also beyond the file's end.
        let end = start.checked_add(extent.length_bytes.checked_next_multiple_of(4096)?)?;
        // A hostile profile may claim more than the disk has.
        (start < capacity_bytes).then(|| start..end.min(capacity_bytes))
    });
    let merged: RangeSet = places.collect();
    let cut = |range: &std::ops::Range<u64>| {
        let range = range.clone();
        (range.start..range.end).step_by(largest_bytes as usize).map(move |offset_bytes| Request {
            op: Op::Read,
            offset_bytes,
            length_bytes: largest_bytes.min(range.end - offset_bytes),
        })
    };
    merged.iter().flat_map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File};

    #[test]
    fn adjacent_extents_become_one_request_and_large_ones_are_cut() {
        let extent =
            |physical: u64, length_bytes| Extent { physical_bytes: Some(physical), length_bytes, ..Extent::default() };
        let file =
            File { extents: vec![extent(8192, 4096), extent(4096, 4096), extent(1 << 20, 300_000)], ..File::default() };
        let profile = Profile { files: vec![file], ..Profile::default() };
        let requests: Vec<_> =
            ascending(&profile, |_| true, 1 << 30, 131_072).iter().map(|r| (r.offset_bytes, r.length_bytes)).collect();
        assert_eq!(requests[0], (4096, 8192));
        assert_eq!(requests.len(), 1 + 3);
        assert_eq!(requests[1], (1 << 20, 131_072));
    }

    #[test]
    fn extents_beyond_the_disk_are_cut() {
        let extent =
            |physical: u64, length_bytes| Extent { physical_bytes: Some(physical), length_bytes, ..Extent::default() };
        let hostile = vec![extent(1 << 20, 1 << 62), extent(1 << 62, 4096), extent(4096, u64::MAX), extent(0, 4096)];
        let profile = Profile { files: vec![File { extents: hostile, ..File::default() }], ..Profile::default() };
        let requests = ascending(&profile, |_| true, 2 << 20, 1 << 20);
        let read: Vec<_> = requests.iter().map(|r| (r.offset_bytes, r.length_bytes)).collect();
        assert_eq!(read, [(0, 4096), (1 << 20, 1 << 20)]);
    }
}
