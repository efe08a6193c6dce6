//! The lower bound of a cold start on an emulated disk: the larger of the fastest warm run, and of the least time in which the disk's model
//! delivers all used bytes in any order. No prefetcher that reads only used pages can be faster.
//!
//! A profile, the model of the disk and the fastest warm run come in. Files on other disks and extents whose place is unknown are left out: that
//! makes the bound lower, never higher.
//!
//! On btrfs it is an estimate: btrfs maps its own addresses to the disk in chunks, and compressed data is longer in the file than on the disk.

use crate::Result;
use ahead_device::least_ns;
use ahead_disk::DiskInfo;
use ahead_model::{PAGE_BYTES, RangeSet};
use ahead_profile::{Extent, Profile};
use serde::Serialize;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A lower bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Seconds.
    pub s: f64,
    /// What sets it.
    pub by: BoundBy,
}

/// What sets a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundBy {
    /// The device time for everything.
    Disk,
    /// The warm time.
    Program,
}

/// The bound of a program that ended by itself. `used`: what it used; `warm_s`: its fastest warm run, seconds.
///
/// # Errors
/// The disk's model cannot be read.
pub fn bound(used: &Profile, disk: &DiskInfo, warm_s: f64) -> Result<Bound> {
    let places: Vec<Range<u64>> = places(used, disk).iter().cloned().collect();
    let device_s = least_ns(&disk.model()?, disk.capacity_bytes, &places) as f64 / 1e9;
    let by_disk = Bound { s: device_s, by: BoundBy::Disk };
    Ok(if device_s > warm_s { by_disk } else { Bound { s: warm_s, by: BoundBy::Program } })
}

/// The bytes of the disk that files and metadata use.
fn places(used: &Profile, disk: &DiskInfo) -> RangeSet {
    let mount = disk.mount.as_deref();
    let is_here = |path: &[u8]| mount.is_some_and(|mount| Path::new(OsStr::from_bytes(path)).starts_with(mount));
    let files = used.files.iter().filter(|file| !file.deleted && is_here(&file.path));
    let devices = used.metadata.iter().filter(|device| is_here(&device.mount_point));
    let extents = files.flat_map(|file| &file.extents).chain(devices.flat_map(|device| &device.extents));
    extents.filter_map(|extent| place_of(extent, disk.capacity_bytes)).collect()
}

/// Its bytes on the disk. The last page of a file is read whole, also beyond the file's end; a hostile profile may claim more than the disk has.
fn place_of(extent: &Extent, capacity_bytes: u64) -> Option<Range<u64>> {
    let start = extent.physical_bytes?;
    let end = start.checked_add(extent.length_bytes.checked_next_multiple_of(PAGE_BYTES)?)?;
    (start < capacity_bytes).then(|| start..end.min(capacity_bytes))
}
