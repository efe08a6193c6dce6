//! `ahead probe --verify`: what was found beside what the system says of itself. The only place that reads settings.

use ahead_kernel::bdi::{self, DeviceNumber};
use ahead_kernel::{block, fiemap};
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
        checks.push(Check::new("direct_blocks", &answers.direct_blocks, direct_blocks(subject, space.f_bsize)?, "FIEMAP"));
    }
    checks.extend(of_model(number, answers));
    Ok(checks.into_iter().flatten().collect())
}

/// How many blocks lie in a row before the first indirect block takes a place among them; `None`: nothing lies there.
fn direct_blocks(subject: &Subject, block_bytes: u64) -> anyhow::Result<Option<f64>> {
    let file = File::open(subject.path()).context("open the test file again")?;
    let Ok(extents) = fiemap::extents(&file, 0, 64 * block_bytes) else { return Ok(None) };
    let first = extents.first();
    Ok(first.filter(|first| first.length_bytes < 64 * block_bytes).map(|first| (first.length_bytes / block_bytes) as f64))
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
