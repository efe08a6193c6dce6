//! `ahead probe --verify`: what was found beside what the system says of itself. The only place that reads settings.

use ahead_kernel::bdi::{self, DeviceNumber};
use ahead_kernel::{block, openat};
use ahead_probe::{Answer, Answers, PAGE_BYTES, Subject};
use ahead_report::table::{Kind, Table};
use anyhow::Context;
use serde::Serialize;
use std::fs::File;
use std::path::Path;

/// Measured values may be off by this part.
const TOLERANCE: f64 = 0.05;

/// An answer beside what the system says.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Which answer.
    pub what: &'static str,
    /// What was found.
    pub found: f64,
    /// What the system says.
    pub said: f64,
    /// Who says so.
    pub by: String,
    /// They are the same, or close enough for what is measured.
    pub agrees: bool,
}

impl Check {
    /// `None`: one of the two is not known.
    fn new(what: &'static str, answer: &Answer, said: Option<f64>, by: impl Into<String>) -> Option<Check> {
        let (found, said) = (answer.value?.number(), said?);
        let agrees = match answer.whole() {
            Some(_) => found == said,
            None => (found / said - 1.0).abs() <= TOLERANCE,
        };
        Some(Check { what, found, said, by: by.into(), agrees })
    }
}

/// Compares what can be.
pub fn check(path: &Path, subject: &Subject, answers: &Answers) -> anyhow::Result<Vec<Check>> {
    let number = subject.device_number()?;
    let space = rustix::fs::statvfs(path).with_context(|| format!("look at {}", path.display()))?;
    let windows = &answers.windows;
    // The kernel counts whole pages.
    let window = bdi::read_ahead_kb(number).ok().map(|kb| (kb * 1024 / PAGE_BYTES * PAGE_BYTES) as f64);
    let request = block::disk_setting(number, "max_sectors_kb").and_then(|kb| kb.parse::<f64>().ok()).map(|kb| kb * 1024.0);
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
        checks.push(Check::new("block_size", &answers.block_size, Some(space.f_bsize as f64), "statfs"));
        let magic = openat::handle(path)?.file_system_magic()?;
        checks.push(Check::new("direct_blocks", &answers.direct_blocks, direct_blocks(subject, magic)?, "inode flags"));
    }
    checks.extend(of_model(number, answers));
    Ok(checks.into_iter().flatten().collect())
}

/// The direct blocks of an inode of ext2, ext3 or ext4 that is not mapped by extents (`EXT4_NDIR_BLOCKS` in fs/ext4/ext4.h);
/// `None`: it is mapped by extents, or of another file system.
fn direct_blocks(subject: &Subject, magic: u64) -> anyhow::Result<Option<f64>> {
    /// `EXT4_EXTENTS_FL` in fs/ext4/ext4.h.
    const EXTENTS: u32 = 0x0008_0000;
    /// `EXT4_SUPER_MAGIC`, that of ext2 and ext3, too.
    const EXT: u64 = 0xef53;
    if magic != EXT {
        return Ok(None);
    }
    let file = File::open(subject.path()).context("open the test file again")?;
    let flags = rustix::fs::ioctl_getflags(&file).map_err(std::io::Error::from).context("ask for an inode's flags")?;
    Ok((flags.bits() as u32 & EXTENTS == 0).then_some(12.0))
}

/// What the model of an emulated disk says.
fn of_model(number: DeviceNumber, answers: &Answers) -> Vec<Option<Check>> {
    let Some(disk) = ahead_disk::find_by_device(number) else { return Vec::new() };
    let Ok(model) = disk.model() else { return Vec::new() };
    let (found, by) = (&answers.disk, format!("model {}", disk.model.name));
    let at_once = (!model.rotational()).then_some(f64::from(model.channels())).or(Some(1.0));
    vec![
        Check::new("bandwidth", &found.bandwidth, Some(model.bandwidth_bytes_per_s()), by.clone()),
        Check::new("parallelism", &found.parallelism, at_once, by),
    ]
}

/// For people.
pub fn table(checks: &[Check]) -> Table {
    let mut table = Table::new([
        ("what", Kind::Text),
        ("found", Kind::Number),
        ("said", Kind::Number),
        ("", Kind::Text),
        ("by", Kind::Text),
    ]);
    for check in checks {
        let verdict = if check.agrees { "agrees" } else { "differs" };
        let numbers = [check.found, check.said].map(|number| format!("{number:.0}"));
        let [found, said] = numbers;
        table.row([check.what.to_owned(), found, said, verdict.to_owned(), check.by.clone()]);
    }
    table
}
