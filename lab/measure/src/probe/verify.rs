//! `ahead probe --verify`: compares answers with settings of the system. Only this file reads settings.

use crate::probe::{Answer, Answers, Error, PAGE_BYTES, Result, Subject, Value};
use ahead_device::{Device, Model, Op, Request};
use ahead_model::DeviceNumber;
use ahead_model::random::SplitMix64;
use ahead_sys::{bdi, block, fiemap, mounts};
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Accepted relative difference of measured values.
const TOLERANCE: f64 = 0.05;

/// An answer compared with a setting.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Name of the answer.
    pub what: &'static str,
    /// The value that was found; none: not determined.
    pub found: Option<f64>,
    /// The value of the system.
    pub said: f64,
    /// The source of this value.
    pub by: String,
    /// Whether they are equal, or close enough for a measured value; none: not determined.
    pub agrees: Option<bool>,
}

impl Check {
    /// `None`: the system has no value, or the answer was not asked for.
    fn new(what: &'static str, answer: &Answer, said: Option<f64>, by: impl Into<String>) -> Option<Check> {
        let said = said.filter(|_| answer.is_asked())?;
        let found = answer.value.map(Value::number);
        let agrees = found.map(|found| match answer.whole() {
            Some(_) => found == said,
            None => (found / said - 1.0).abs() <= TOLERANCE,
        });
        Some(Check { what, found, said, by: by.into(), agrees })
    }
}

/// Compares all answers for which the system has a value.
///
/// Errors: a query about the probed file failed.
pub fn check(subject: &Subject, answers: &Answers) -> Result<Vec<Check>> {
    let number = subject.device_number()?;
    let space = rustix::fs::fstatvfs(subject.held()).map_err(|e| Error::io("statfs", e))?;
    let windows = &answers.windows;
    // The kernel counts whole pages.
    let window_kb = bdi::read_ahead_kb(number).ok().or_else(|| window_by_mount(subject));
    let window = window_kb.map(|kb| (kb * 1024 / PAGE_BYTES * PAGE_BYTES) as f64);
    let request =
        block::disk_setting(number, "max_sectors_kb").and_then(|kb| kb.parse::<f64>().ok()).map(|kb| kb * 1024.0);
    let by_bdi = "sysfs: read_ahead_kb";
    let mut checks = vec![
        Check::new("window", &windows.window, window, by_bdi),
        Check::new("read_around", &answers.read_around, window.map(|bytes| bytes.max(PAGE_BYTES as f64)), by_bdi),
        Check::new("max_request", &windows.max_request, request, "sysfs: max_sectors_kb"),
        Check::new(
            "willneed_cap",
            &windows.willneed_cap,
            window.zip(request).map(|(window, request)| window.max(request)),
            "sysfs: the larger of read_ahead_kb and max_sectors_kb",
        ),
    ];
    if !subject.is_device() {
        let by_superblock = subject.block_device().and_then(block_size).map(|bytes| (bytes, "superblock"));
        let (bytes, by) = by_superblock.unwrap_or((space.f_bsize, "statfs"));
        checks.push(Check::new("block_size", &answers.block_size, Some(bytes as f64), by));
        let magic =
            rustix::fs::fstatfs(subject.held()).map_err(|e| Error::io("statfs", e))?.f_type as u64 & 0xffff_ffff;
        checks.push(Check::new(
            "direct_blocks",
            &answers.direct_blocks,
            direct_blocks(subject, magic)?,
            "FIEMAP: no extents",
        ));
    }
    checks.extend(of_model(number, answers));
    Ok(checks.into_iter().flatten().collect())
}

/// The window of a file system whose device number is not in sysfs (btrfs), KiB.
fn window_by_mount(subject: &Subject) -> Option<u64> {
    let mount = mounts::of_open(subject.held()).ok()??;
    let (_, setting) = bdi::governing_mount(Path::new("/sys"), &mount)?;
    bdi::read_kb(setting).ok()
}

/// The block size in the superblock, bytes: ext2 to ext4 (`s_log_block_size` in fs/ext4/ext4.h), XFS (`sb_blocksize` in
/// fs/xfs/libxfs/xfs_format.h). `None`: another file system, or no permission to read the device.
fn block_size(device: &Path) -> Option<u64> {
    let device = File::open(device).ok()?;
    let word = |offset: u64| {
        let mut bytes = [0; 4];
        device.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
    };
    /// Offsets of the superblock of ext, of its magic number (the low half), and of the block size, a power of two times 1024.
    const EXT: (u64, u64, u16, u64) = (1024, 56, 0xef53, 24);
    let (at, magic_at, magic, log_at) = EXT;
    if word(at + magic_at)?[..2] == magic.to_le_bytes() {
        return 1024_u64.checked_shl(u32::from_le_bytes(word(at + log_at)?));
    }
    (&word(0)? == b"XFSB").then_some(u64::from(u32::from_be_bytes(word(4)?)))
}

/// The direct blocks of an inode of ext2, ext3 or ext4 without extents (`EXT4_NDIR_BLOCKS` in fs/ext4/ext4.h): FIEMAP reports that its pieces
/// are merged from blocks. `None`: the inode has extents, or another file system.
fn direct_blocks(subject: &Subject, magic: u64) -> Result<Option<f64>> {
    /// `EXT4_SUPER_MAGIC`, also of ext2 and ext3.
    const EXT: u64 = 0xef53;
    if magic != EXT {
        return Ok(None);
    }
    let file = File::open(subject.path()).map_err(|e| Error::io("open the test file again", e))?;
    let pieces = fiemap::extents(&file, 0, PAGE_BYTES)?;
    Ok(pieces.iter().any(|piece| piece.merged).then_some(12.0))
}

/// The mean time of random reads of a page on a disk of this model, at queue depth 1, microseconds.
fn mean_access_us(model: &Model, capacity_bytes: u64) -> Option<f64> {
    /// Enough for a mean within half a percent.
    const READS: u64 = 10_000;
    /// Pause after each read, so that no rate limit applies. None for a rotating disk, which would fill its buffer.
    const PAUSE_NS: u64 = 1_000_000_000;
    let pause_ns = if model.rotational() { 0 } else { PAUSE_NS };
    let pages = capacity_bytes / PAGE_BYTES;
    let (mut device, mut chance) = (Device::new(model, capacity_bytes), SplitMix64::new(1));
    let (mut now_ns, mut sum_ns) = (0, 0);
    for _ in 0..READS {
        let place = chance.below(pages.max(1));
        let request = Request { op: Op::Read, offset_bytes: place * PAGE_BYTES, length_bytes: PAGE_BYTES };
        let end_ns = device.submit(&request, now_ns).end_ns;
        sum_ns += end_ns - now_ns;
        now_ns = end_ns + pause_ns;
    }
    (pages > 0).then(|| sum_ns as f64 / READS as f64 / 1e3)
}

/// Compares with the model of an emulated disk.
fn of_model(number: DeviceNumber, answers: &Answers) -> Vec<Option<Check>> {
    let Some(disk) = ahead_disk::find_by_device(number) else { return Vec::new() };
    let Ok(model) = disk.model() else { return Vec::new() };
    let (found, by) = (&answers.disk, format!("model {}", disk.model.name));
    let at_once = (!model.rotational()).then_some(f64::from(model.channels())).or(Some(1.0));
    let access_us = mean_access_us(&model, disk.capacity_bytes);
    vec![
        Check::new("bandwidth", &found.bandwidth, Some(model.bandwidth_bytes_per_s()), by.clone()),
        Check::new("parallelism", &found.parallelism, at_once, by.clone()),
        Check::new("access_time", &found.access_time, access_us.filter(|_| found.whole_disk), by),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an answer that was not determined was left out although the system has a value.
    #[test]
    fn answer_not_determined_is_listed_with_the_value_of_the_system() {
        let check = |answer: Answer| Check::new("direct_blocks", &answer, Some(12.0), "FIEMAP");
        let none = check(Answer::none("blocks", "extents")).unwrap();
        assert_eq!((none.found, none.said, none.agrees), (None, 12.0, None));
        assert_eq!(check(Answer::counted(12, "blocks", (2, 2), "")).unwrap().agrees, Some(true));
        assert_eq!(check(Answer::counted(5, "blocks", (2, 2), "")).unwrap().agrees, Some(false));
        assert!(check(Answer::none("blocks", "not asked for")).is_none());
    }
}
