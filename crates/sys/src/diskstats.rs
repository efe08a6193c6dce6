//! Reads of block devices, as counted by the kernel.
use crate::{Error, Result};
use ahead_model::DeviceNumber;
use std::fs;
use std::ops::Sub;
use std::path::PathBuf;

/// Sectors in `/sys/…/stat` are always 512 bytes (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;

/// Completed reads of a block device since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Requests, after merging.
    pub requests: u64,
    pub bytes: u64,
}

impl Sub for Reads {
    type Output = Reads;

    /// The reads between two samples.
    fn sub(self, earlier: Reads) -> Reads {
        Reads { requests: self.requests.wrapping_sub(earlier.requests), bytes: self.bytes.wrapping_sub(earlier.bytes) }
    }
}

/// Reads `/sys/dev/block/MAJOR:MINOR/stat`.
pub fn reads(device: DeviceNumber) -> Result<Reads> {
    read(device, "stat", parse)
}

/// Reads of a block device that are requested and have not ended: the first number in `/sys/dev/block/MAJOR:MINOR/inflight`.
pub fn reads_in_flight(device: DeviceNumber) -> Result<u64> {
    read(device, "inflight", |text| text.split_ascii_whitespace().next()?.parse().ok())
}

fn read<T>(device: DeviceNumber, file: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
    let path = PathBuf::from(format!("/sys/dev/block/{device}/{file}"));
    let text = fs::read_to_string(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
    parse(&text).ok_or(Error::Parse { path, text })
}

/// The disk of a block device, and the device's start offset on it in bytes. For a whole disk: itself and 0.
pub fn place_on_disk(device: DeviceNumber) -> Result<(DeviceNumber, u64)> {
    let own = PathBuf::from(format!("/sys/dev/block/{device}"));
    let Ok(start) = fs::read_to_string(own.join("start")) else { return Ok((device, 0)) };
    let parse = |path: PathBuf, text: String| Error::Parse { path, text };
    let sectors: u64 = start.trim().parse().map_err(|_| parse(own.join("start"), start.clone()))?;
    // In sysfs the directory of a partition lies in the directory of its disk.
    let disk = fs::canonicalize(&own)
        .and_then(|partition| fs::read_to_string(partition.join("../dev")))
        .map_err(|e| Error::io(format!("read the disk of {}", own.display()), e))?;
    let number = disk.parse().map_err(|_| parse(own, disk))?;
    Ok((number, sectors * SECTOR_BYTES))
}

/// Fields: read I/Os, read merges, read sectors, …
fn parse(text: &str) -> Option<Reads> {
    let mut fields = text.split_ascii_whitespace();
    let requests = fields.next()?.parse().ok()?;
    let sectors: u64 = fields.nth(1)?.parse().ok()?;
    Some(Reads { requests, bytes: sectors * SECTOR_BYTES })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_third_field_are_parsed() {
        let earlier = parse("   10  3  80 0 0 0 0 0 0 0 0").unwrap();
        let later = parse("12 3 96 0").unwrap();
        assert_eq!(later - earlier, Reads { requests: 2, bytes: 8192 });
        assert_eq!(parse("nothing"), None);
    }
}
