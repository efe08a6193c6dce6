//! What to prefetch and in which order: pure, without system calls and clock.
//!
//! ```text
//!     Profile ──pieces──▶ disjoint used ranges ──budget──▶ windows by first use ──per window──▶ steps
//!
//!     a rotating disk          all metadata ▸ all lookups ▸ data of window 1 ▸ data of window 2 …   each ascending
//!     anything else            M ▸ M ▸ D ▸ M ▸ D ▸ D …                by first use, metadata and lookups some steps early
//! ```
//!
//! Ranges that fewer than half of the recorded runs used come last, in the same order, and the start of the program does not
//! wait for them. Exception: such a range lies in a small gap between two ranges that one request reads.
//!
//! A window (the term is Opdenacker's) is a part of the recording in which the planner may reorder freely: ranges that are used
//! within it and lie close together are joined. On a rotating disk each window is a separate sweep. So there is one window, or
//! several if the recording is long or the program computes for long (`pace`). On other disks, windows separate what is used in
//! the first second from what is used in the last.
//!
//! For a machine with little memory, the order is that of first use on every disk, windows are small, and gaps are not read
//! ([`plan_for_low_memory`]).
//!
//! The plan does not know which pages are resident: a query needs an open file, and opening files on a cold disk costs seeks. So
//! a step has the used ranges. Just before the step is executed, [`crate::cut`] selects the absent ones.
//!
//! [`relocation`] plans the other way round: where the recorded blocks should lie, so that one sweep reads them.
//!
//! A profile and the descriptions of its devices come in, a plan goes out. This crate must never query the machine: both the
//! prefetch on a real kernel and the simulator execute the same plan.

pub mod blocks;
mod bridging;
pub mod current_devices;
pub mod cut;
pub mod from_recording;
pub mod inodes;
mod orders;
mod pace;
pub mod pacing;
pub mod relocation;
mod samples;
mod spans;
#[cfg(test)]
mod tests;
pub mod window;
pub mod worth;

use ahead_model::DeviceDescription;
use ahead_profile::{Extent, Profile};
use bridging::Bridging;
use orders::{Sorted, WINDOW_US, by_first_use, by_position, equal_borders};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Where bytes come from, as an index into the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `profile.metadata[index]`: a block device.
    Metadata(usize),
    /// `profile.files[index]`.
    File(usize),
}

impl Source {
    /// Whether it is a block device.
    pub fn is_metadata(self) -> bool {
        matches!(self, Source::Metadata(_))
    }
}

/// A used range, disjoint from every other range of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub source: Source,
    /// Its bytes: starts at a page, ends at a page or at the file's end.
    pub range: Range<u64>,
    /// Fewer than half of the recorded runs used it, or it was used after the program was ready: it is fetched last.
    pub late: bool,
    /// When it was first used, microseconds since exec.
    pub first_use_us: u64,
    /// Where it lies on the disk, if that is known.
    pub physical_bytes: Option<u64>,
}

impl Piece {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// Used ranges of one source that are prefetched together, including the small gaps between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub source: Source,
    /// The used ranges: ascending, disjoint, not empty.
    pub used: Vec<Range<u64>>,
    /// When the first of them was first used, microseconds since exec.
    pub first_use_us: u64,
    /// Where the first of them lies on the disk, if that is known.
    pub physical_bytes: Option<u64>,
}

impl Span {
    /// From the first used byte to the last.
    pub fn whole(&self) -> Range<u64> {
        self.used[0].start..self.used[self.used.len() - 1].end
    }

    /// The sort key for the order on the disk: spans at unknown places come last, file by file.
    fn place(&self) -> (u64, Source, u64) {
        (self.physical_bytes.unwrap_or(u64::MAX), self.source, self.used[0].start)
    }

    pub fn used_bytes(&self) -> u64 {
        self.used.iter().map(|range| range.end - range.start).sum()
    }
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read these ranges ahead.
    Fetch(Span),
    /// Look up `profile.lookups[index]`.
    LookUp(usize),
    /// Open `profile.files[index]`, which has no recorded lookup.
    Open(usize),
    /// Read the range of inodes with this index.
    ReadInodes(usize),
}

/// A path to look up, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    pub path: Path,
    /// Inode number when recorded: on most file systems inodes lie on the disk in order of their numbers.
    pub inode: u64,
    /// When it was first looked up, microseconds since exec.
    pub first_use_us: u64,
}

/// Where the path is in the profile, or which range of inodes stands for several paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// A range of inodes ([`inodes::InodeRange`]).
    Inodes(usize),
    /// `profile.lookups[index]`.
    Lookup(usize),
    /// `profile.files[index]`.
    File(usize),
}

impl From<&LookUp> for Step {
    fn from(lookup: &LookUp) -> Step {
        match lookup.path {
            Path::Lookup(index) => Step::LookUp(index),
            Path::File(index) => Step::Open(index),
            Path::Inodes(index) => Step::ReadInodes(index),
        }
    }
}

impl Step {
    /// The span that it reads ahead; `None`: it is a lookup.
    pub fn span(&self) -> Option<&Span> {
        match self {
            Step::Fetch(span) => Some(span),
            Step::LookUp(_) | Step::Open(_) | Step::ReadInodes(_) => None,
        }
    }

    fn brings_data(&self) -> bool {
        matches!(self, Step::Fetch(span) if !span.source.is_metadata())
    }

    /// A sort key that makes the order independent of the order of the input.
    fn place(&self) -> (usize, Option<(Source, u64)>) {
        match self {
            Step::Fetch(span) => (0, Some((span.source, span.used[0].start))),
            Step::LookUp(index) | Step::Open(index) | Step::ReadInodes(index) => (*index, None),
        }
    }
}

/// The steps in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Number of leading steps that read only metadata. They must end before the others begin.
    pub metadata_steps: usize,
    /// On a rotating disk: number of leading steps up to the end of the first window.
    pub first_window_steps: usize,
    /// Number of leading steps with ranges that at least half of the runs used.
    pub usual_steps: usize,
    /// Number of steps after which the program should start.
    pub head_start_steps: usize,
    /// Used bytes in the steps.
    pub planned_bytes: u64,
    /// Used bytes left out because of the budget.
    pub over_budget_bytes: u64,
}

/// The largest file offset of the kernel (`loff_t`). Ranges beyond it in a profile cannot exist.
const MAX_OFFSET_BYTES: u64 = i64::MAX as u64;

/// The used ranges of a profile: cut to the file's recorded size, aligned to pages, overlaps counted once. Deleted files
/// have none. `page_bytes` is a power of two.
pub fn pieces(profile: &Profile, page_bytes: u64) -> Vec<Piece> {
    let mut found = Vec::new();
    let (runs, ready_us) = (profile.recording.runs, profile.ready_us().unwrap_or(u64::MAX));
    let is_late = |extent: &Extent| extent.is_seldom(runs) || extent.first_use_us > ready_us;
    for (index, metadata) in profile.metadata.iter().enumerate() {
        disjoint(Source::Metadata(index), &metadata.extents, &is_late, MAX_OFFSET_BYTES, page_bytes, &mut found);
    }
    for (index, file) in profile.files.iter().enumerate().filter(|(_, file)| !file.deleted) {
        let size_bytes = file.size_bytes.min(MAX_OFFSET_BYTES);
        disjoint(Source::File(index), &file.extents, &is_late, size_bytes, page_bytes, &mut found);
    }
    found
}

/// Bytes of ranges beyond the recorded ends of their files. They are in no piece.
pub fn bytes_beyond_ends(profile: &Profile) -> u64 {
    let files = profile.files.iter().filter(|file| !file.deleted);
    let beyond =
        |size_bytes: u64, extent: &Extent| extent.end_bytes().saturating_sub(size_bytes.max(extent.offset_bytes));
    files
        .flat_map(|file| file.extents.iter().map(|extent| beyond(file.size_bytes, extent)))
        .fold(0u64, u64::saturating_add)
}

fn disjoint(
    source: Source,
    extents: &[Extent],
    is_late: &dyn Fn(&Extent) -> bool,
    size_bytes: u64,
    page_bytes: u64,
    found: &mut Vec<Piece>,
) {
    let mut sorted: Vec<&Extent> = extents.iter().filter(|extent| extent.length_bytes > 0).collect();
    sorted.sort_by_key(|extent| (extent.offset_bytes, extent.first_use_us));
    let mut end_so_far = 0;
    for extent in sorted {
        let aligned = extent.offset_bytes & !(page_bytes - 1);
        let start = aligned.max(end_so_far);
        let end = extent.end_bytes().min(MAX_OFFSET_BYTES).next_multiple_of(page_bytes).min(size_bytes);
        if start >= end {
            continue;
        }
        let physical_bytes = extent.physical_bytes.map(|at| at.saturating_add(start - aligned));
        let late = is_late(extent);
        found.push(Piece { source, range: start..end, late, first_use_us: extent.first_use_us, physical_bytes });
        // The file may end within a page. No other piece follows on that page.
        end_so_far = end.next_multiple_of(page_bytes);
    }
}

/// Orders the pieces and lookups of one device.
///
/// `budget_bytes` limits the used bytes: pieces that most runs used are kept first, and among these the ones that were used
/// first. `compute_us`: the program's processor time, if known, which can overlap with reading.
pub fn plan(
    mut pieces: Vec<Piece>,
    lookups: Vec<LookUp>,
    device: &DeviceDescription,
    compute_us: Option<f64>,
    budget_bytes: u64,
) -> Plan {
    pieces.sort_by_key(importance);
    let over_budget_bytes = keep_within(&mut pieces, budget_bytes);
    let planned_bytes = total_bytes(&pieces);
    let plan = by_rule(&Sorted::new(pieces), lookups, device, compute_us);
    Plan { planned_bytes, over_budget_bytes, ..plan }
}

/// The plan of the rule for the device.
fn by_rule(pieces: &Sorted, mut lookups: Vec<LookUp>, device: &DeviceDescription, compute_us: Option<f64>) -> Plan {
    if device.seeks() {
        lookups.sort_by_key(|lookup| (lookup.inode, lookup.path));
        let upwards = pace::goes_upwards(&pieces.pieces);
        let windows = |windows| by_position(pieces, &lookups, device, &equal_borders(windows));
        return pace::choose(compute_us, upwards, device, windows);
    }
    lookups.sort_by_key(|lookup| (lookup.first_use_us, lookup.path));
    let cost_us = bridging::cost_us(device, &pieces.pieces);
    by_first_use(pieces, &lookups, device, &Bridging::of, WINDOW_US, cost_us)
}

/// Length of a window for a machine with little memory, bytes: the 1 MB of Opdenacker's figure 2 (2007). Pages of one window are in memory
/// before their first use for about the time that the program takes for a window.
pub const LOW_MEMORY_WINDOW_BYTES: u64 = 1 << 20;

/// As [`plan`], for a machine on which prefetched pages may be evicted before they are used: by first use, also on a disk that
/// seeks, in windows of [`LOW_MEMORY_WINDOW_BYTES`], and without the gaps between used ranges.
pub fn plan_for_low_memory(
    mut pieces: Vec<Piece>,
    mut lookups: Vec<LookUp>,
    device: &DeviceDescription,
    budget_bytes: u64,
) -> Plan {
    pieces.sort_by_key(importance);
    let over_budget_bytes = keep_within(&mut pieces, budget_bytes);
    let planned_bytes = total_bytes(&pieces);
    lookups.sort_by_key(|lookup| (lookup.first_use_us, lookup.path));
    let (pieces, bytes) = (Sorted::new(pieces), |piece: &Piece| piece.bytes() as f64);
    let window_bytes = LOW_MEMORY_WINDOW_BYTES as f64;
    let plan = by_first_use(&pieces, &lookups, device, &|_, _| Bridging::NONE, window_bytes, bytes);
    Plan { planned_bytes, over_budget_bytes, ..plan }
}

/// The number of bytes that [`plan`] would plan within a budget.
pub fn planned_bytes(pieces: &[Piece], budget_bytes: u64) -> u64 {
    let all_bytes = total_bytes(pieces);
    if all_bytes <= budget_bytes {
        return all_bytes;
    }
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(importance);
    keep_within(&mut pieces, budget_bytes);
    total_bytes(&pieces)
}

/// The sort key: pieces that most runs used come first, and among these the ones that were used first.
fn importance(piece: &Piece) -> (bool, u64, Source, u64) {
    (piece.late, piece.first_use_us, piece.source, piece.range.start)
}

/// Keeps the leading whole pieces that fit, and returns the bytes of the others.
fn keep_within(pieces: &mut Vec<Piece>, budget_bytes: u64) -> u64 {
    let mut total = 0u64;
    let kept = pieces.iter().take_while(|piece| {
        total = total.saturating_add(piece.bytes());
        total <= budget_bytes
    });
    let kept = kept.count();
    let over = total_bytes(&pieces[kept..]);
    pieces.truncate(kept);
    over
}

/// Saturates: the ranges of a hostile profile may sum up to more than 2^64 bytes.
fn total_bytes<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> u64 {
    pieces.into_iter().fold(0, |total, piece| total.saturating_add(piece.bytes()))
}
