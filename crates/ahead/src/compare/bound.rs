//! The lower bound of a cold start on an emulated disk: no schedule of the disk and of the program's threads can be faster.
//!
//! ```text
//!     for each use:   least device time for all that precedes it  ──▶ use ──▶ what its thread still has to compute
//!                     └─ uses of the same thread, of those that started it and woke it ─┘
//!     the bound:      the largest of these sums, of the device time for everything, and of the fastest warm run
//! ```
//!
//! A profile with a timeline, the model of the disk and the fastest warm run come in. Files on other disks and extents whose place is unknown
//! are left out, and where the order of two uses is unknown neither precedes the other: that makes the bound lower, never higher.
//!
//! On btrfs it is an estimate: btrfs maps its own addresses to the disk in chunks, and compressed data is longer in the file than on the disk.

use crate::Result;
use ahead_device::{LeastSet, LeastTimes, Model};
use ahead_disk::DiskInfo;
use ahead_model::{PAGE_BYTES, RangeSet, sorting};
use ahead_plan::causality::{self, Visitor};
use ahead_profile::{Extent, Profile, Timeline, WarmUse};
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
    /// What it takes into account.
    pub kind: BoundKind,
    /// What sets it.
    pub by: BoundBy,
}

/// What a bound takes into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundKind {
    /// What has to precede each use, and what its thread computes after it.
    Causal,
    /// The order of the uses is unknown: only the device time for everything, and the warm time.
    Maximum,
}

/// What sets a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundBy {
    /// The device time for everything.
    Disk,
    /// The warm time.
    Program,
    /// A use that the disk delivers late, and what is computed after it.
    Order,
}

/// A use that joins several touches is that of the first; the others are within this processor time. Microseconds
/// (docs/reference/profile.md, "Timeline").
const ONE_USE_US: u64 = 1000;

/// The bound of a program that ended by itself. `used`: what it used; `warm_s`: its fastest warm run, seconds.
///
/// # Errors
/// The disk's model cannot be read.
pub fn bound(used: &Profile, disk: &DiskInfo, warm_s: f64) -> Result<Bound> {
    let model: Model = disk.model()?;
    let parts = parts(used, disk);
    let all: RangeSet = parts.iter().flat_map(|part| part.places.iter().cloned()).collect();
    let places: Vec<Range<u64>> = all.iter().cloned().collect();
    let least = LeastTimes::new(&model, disk.capacity_bytes, &places);
    let mut bytes = Bytes { places: &places, set: least.empty_set() };
    parts.iter().for_each(|part| bytes.add(part));
    let device_s = bytes.least_s();
    let (s, by) = if device_s > warm_s { (device_s, BoundBy::Disk) } else { (warm_s, BoundBy::Program) };
    let maximum = Bound { s, by, kind: BoundKind::Maximum };
    Ok(match ordered_s(used, &parts, &least, &places, warm_s) {
        None => maximum,
        Some(ordered_s) if ordered_s > s => Bound { s: ordered_s, by: BoundBy::Order, kind: BoundKind::Causal },
        Some(_) => Bound { kind: BoundKind::Causal, ..maximum },
    })
}

/// Processor time of reading one page by a separate fault or read call, which the clocks of a recording without read-ahead include and a run with
/// a prefetch does not have: the least and the most that it can have been, nanoseconds. Each is used where it makes the bound lower.
#[derive(Clone, Copy)]
struct ReadTimes {
    least_ns: u64,
    most_ns: u64,
}

impl ReadTimes {
    /// Of six programs (as `READ_CPU_US` of the prefetch; 17 to 47 us), the most on a machine that is a quarter slower.
    const UNKNOWN: ReadTimes = ReadTimes { least_ns: 17_000, most_ns: 60_000 };

    /// Half and twice what the recording has measured: it was 0.8 to 1.5 times that (`Timeline::reading_ns`).
    fn of(timeline: &Timeline) -> ReadTimes {
        match timeline.reading_ns {
            0 => ReadTimes::UNKNOWN,
            measured_ns => ReadTimes { least_ns: measured_ns / 2, most_ns: measured_ns.saturating_mul(2) },
        }
    }
}

/// What one use reads from the disk: the bytes that no earlier use reads.
struct Part {
    places: Vec<Range<u64>>,
    warm_use: Option<WarmUse>,
}

/// The uses of files and metadata on the disk, each byte once.
fn parts(used: &Profile, disk: &DiskInfo) -> Vec<Part> {
    let mount = disk.mount.as_deref();
    let is_here = |path: &[u8]| mount.is_some_and(|mount| Path::new(OsStr::from_bytes(path)).starts_with(mount));
    let files = used.files.iter().filter(|file| !file.deleted && is_here(&file.path));
    let devices = used.metadata.iter().filter(|device| is_here(&device.mount_point));
    let mut extents: Vec<&Extent> =
        files.flat_map(|file| &file.extents).chain(devices.flat_map(|device| &device.extents)).collect();
    // Those without a place on the timeline first: bytes that they share precede nothing.
    sorting::sort_by_key(&mut extents, |extent| (extent.warm_use.is_some(), extent.first_use_us));
    let mut known = RangeSet::new();
    let part = |extent: &Extent| {
        let place = place_of(extent, disk.capacity_bytes)?;
        let places = known.insert_new(place);
        (!places.is_empty()).then_some(Part { places, warm_use: extent.warm_use })
    };
    extents.into_iter().filter_map(part).collect()
}

/// Its bytes on the disk. The last page of a file is read whole, also beyond the file's end; a hostile profile may claim more than the disk has.
fn place_of(extent: &Extent, capacity_bytes: u64) -> Option<Range<u64>> {
    let start = extent.physical_bytes?;
    let end = start.checked_add(extent.length_bytes.checked_next_multiple_of(PAGE_BYTES)?)?;
    (start < capacity_bytes).then(|| start..end.min(capacity_bytes))
}

/// A growing set of bytes.
struct Bytes<'a> {
    /// All extents on the disk, ascending.
    places: &'a [Range<u64>],
    set: LeastSet<'a>,
}

impl Bytes<'_> {
    fn add(&mut self, part: &Part) {
        for place in &part.places {
            let index = self.places.partition_point(|extent| extent.end <= place.start);
            self.set.add(index, place.end - place.start);
        }
    }

    fn least_s(&self) -> f64 {
        self.set.least_ns() as f64 / 1e9
    }
}

/// The largest sum of the device time for what precedes a use and of the processor time after it; `None`: the order is unknown.
fn ordered_s(used: &Profile, parts: &[Part], least: &LeastTimes, places: &[Range<u64>], warm_s: f64) -> Option<f64> {
    // Which thread makes the program ready is unknown.
    let timeline = used.timeline.as_deref().filter(|_| used.ready_us().is_none())?;
    let known: Vec<&Part> = parts.iter().filter(|part| part.warm_use.is_some()).collect();
    let uses: Vec<WarmUse> = known.iter().filter_map(|part| part.warm_use).collect();
    let reads =
        Reads::new(&known, timeline.threads.len(), used.recording.is_without_read_ahead(), ReadTimes::of(timeline));
    // The recorded run may have computed for longer than the fastest one: it also submitted reads, and was observed.
    let computed_us = timeline.warm_us.saturating_sub(reads.least_us(timeline));
    let share = (warm_s * 1e6 / computed_us.max(1) as f64).min(1.0);
    let bytes = Bytes { places, set: least.empty_set() };
    let mut largest = Largest { parts: &known, reads, least, bytes, share, s: 0.0 };
    causality::visit(timeline, &uses, &mut largest).inspect_err(|why| tracing::info!("order of uses: {why:?}")).ok()?;
    Some(largest.s)
}

/// The pages that each thread read one by one in the recording.
struct Reads {
    /// For each thread: its processor time at each use, ascending, and the pages of all its uses from there on.
    later: Vec<Vec<(u64, u64)>>,
    times: ReadTimes,
}

impl Reads {
    /// `one_by_one`: the recording was made without read-ahead. Otherwise the time of reading is not known and counts as none.
    fn new(parts: &[&Part], threads: usize, one_by_one: bool, times: ReadTimes) -> Reads {
        let mut later: Vec<Vec<(u64, u64)>> = vec![Vec::new(); threads];
        for part in parts.iter().filter(|_| one_by_one) {
            let pages = part.places.iter().map(|place| (place.end - place.start).div_ceil(PAGE_BYTES)).sum();
            if let Some(at) = part.warm_use {
                later[at.thread as usize].push((at.cpu_us, pages));
            }
        }
        for of in &mut later {
            of.sort_unstable();
            let mut sum = 0;
            of.iter_mut().rev().for_each(|(_, pages)| {
                sum += *pages;
                *pages = sum;
            });
        }
        Reads { later, times }
    }

    /// The time that reading took on the timeline of the program, at least: that of a thread that computed for at least half of it.
    fn least_us(&self, timeline: &Timeline) -> u64 {
        let long = timeline.threads.iter().zip(&self.later).filter(|(thread, _)| thread.cpu_us >= timeline.warm_us / 2);
        let pages = long.filter_map(|(_, later)| later.first()).map(|(_, pages)| *pages);
        pages.min().unwrap_or(0).saturating_mul(self.times.least_ns) / 1000
    }

    /// The time that the thread needed for reading from this use on, at most.
    fn most_us_from(&self, at: WarmUse) -> u64 {
        let later = &self.later[at.thread as usize];
        let index = later.partition_point(|(cpu_us, _)| *cpu_us < at.cpu_us);
        later.get(index).map_or(0, |(_, pages)| pages.saturating_mul(self.times.most_ns) / 1000)
    }
}

struct Largest<'a> {
    parts: &'a [&'a Part],
    reads: Reads,
    least: &'a LeastTimes,
    bytes: Bytes<'a>,
    share: f64,
    s: f64,
}

impl Visitor for Largest<'_> {
    fn begin_thread(&mut self) {
        self.bytes.set = self.least.empty_set();
    }

    fn add(&mut self, index: usize) {
        self.bytes.add(self.parts[index]);
    }

    fn at_use(&mut self, index: usize, remaining_us: Option<u64>) {
        if let (Some(remaining_us), Some(at)) = (remaining_us, self.parts[index].warm_use) {
            let without_us = ONE_USE_US.saturating_add(self.reads.most_us_from(at));
            let after_s = remaining_us.saturating_sub(without_us) as f64 / 1e6 * self.share;
            self.s = self.s.max(self.bytes.least_s() + after_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::Thread;

    /// Regression: the time of reading page by page counted as computing, so that the bound of a program that reads first and computes afterwards
    /// was too low, and that of one that computes first too high.
    #[test]
    fn reading_page_by_page_is_not_computing() {
        let part = |cpu_us: u64, pages: u64| Part {
            places: vec![cpu_us * PAGE_BYTES..(cpu_us + pages) * PAGE_BYTES],
            warm_use: Some(WarmUse { time_us: cpu_us, thread: 0, cpu_us }),
        };
        let (first, second) = (part(10, 2), part(30, 1));
        let parts = [&second, &first];
        let at = |cpu_us| WarmUse { time_us: cpu_us, thread: 0, cpu_us };
        let reads = Reads::new(&parts, 1, true, ReadTimes::UNKNOWN);
        assert_eq!([10, 20, 30, 31].map(|cpu_us| reads.most_us_from(at(cpu_us))), [180, 60, 60, 0]);
        let timeline = |cpu_us| Timeline {
            warm_us: 100,
            threads: vec![Thread { cpu_us, ..Thread::default() }],
            ..Timeline::default()
        };
        assert_eq!((reads.least_us(&timeline(90)), reads.least_us(&timeline(40))), (51, 0));
        assert_eq!(Reads::new(&parts, 1, false, ReadTimes::UNKNOWN).most_us_from(at(0)), 0);
    }
}
