//! A profile as tables and as a page. Terminal and HTML use the same rows.

mod json;
mod timeline;

use crate::html::Page;
use crate::number::{self, size, time};
use crate::svg::{self, Dot, Event, FileMap, Row, Timeline};
use crate::table::{Kind, Table};
use crate::text::{command_line, printable};
use ahead_model::sorting;
use ahead_profile::{Extent, File, Milestone, MilestoneKind, Position, Precision, Profile};
use std::path::Path;

/// Whether a recorded file is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Same size and modification time.
    Current,
    /// Other size, modification time or kind: stale.
    Changed,
    /// Missing: stale.
    Missing,
    /// Not readable, so unknown.
    Unknown,
    /// Unlinked before the recording ended. Never prefetched, so never stale.
    Deleted,
}

impl FileState {
    /// Whether a run skips the file because it has changed.
    pub fn is_stale(self) -> bool {
        matches!(self, FileState::Changed | FileState::Missing)
    }

    /// The name for people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            FileState::Current => "current",
            FileState::Changed => "changed",
            FileState::Missing => "missing",
            FileState::Unknown => "unknown",
            FileState::Deleted => "deleted",
        }
    }
}

/// A profile and the states of its files.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    pub profile: &'a Profile,
    /// One state for each of its files.
    pub states: &'a [FileState],
}

/// Maximum number of strips in the page map.
const MAPPED_FILES: usize = 16;
/// Maximum number of rows in the file table of a page.
const PAGE_ROWS: usize = 500;
/// Maximum number of milestones in a table.
const MILESTONE_ROWS: usize = 100;

/// Time of the first use of a file. `None`: no part of it was used.
pub fn first_use_us(file: &File) -> Option<u64> {
    file.extents.iter().map(|extent| extent.first_use_us).min()
}

fn most_runs(file: &File) -> u32 {
    file.extents.iter().map(|extent| extent.runs).max().unwrap_or(0)
}

/// The last component of a path, printable.
fn file_name(path: &[u8]) -> String {
    printable(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default())
}

/// The name for people and for JSON.
pub fn milestone_name(kind: MilestoneKind) -> &'static str {
    match kind {
        MilestoneKind::Exec => "exec",
        MilestoneKind::FirstOpen => "first_open",
        MilestoneKind::Ready => "ready",
    }
}

impl Shown<'_> {
    pub fn stale_files(&self) -> usize {
        self.states.iter().filter(|state| state.is_stale()).count()
    }

    /// Warnings about the quality of the profile, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let recording = &self.profile.recording;
        let mut warnings = Vec::new();
        if recording.lost_events > 0 {
            let lost = number::count(recording.lost_events, "event was", "events were");
            warnings.push(format!("{lost} lost while recording: this profile is incomplete. Record again."));
        }
        let stale = self.stale_files();
        if stale > 0 {
            let missing = self.states.iter().filter(|state| **state == FileState::Missing).count();
            let of = number::count(self.profile.files.len() as u64, "file", "files");
            let verb = if stale == 1 { "is" } else { "are" };
            warnings.push(format!(
                "{stale} of {of} {verb} stale ({missing} missing, {} changed); a run skips them.",
                stale - missing
            ));
        }
        warnings
    }

    /// How the profile was recorded.
    pub fn facts(&self) -> Vec<(String, String)> {
        let recording = &self.profile.recording;
        let extents = match recording.precision {
            Precision::Precise => "precise: exactly the pages that were used",
            Precision::UpperBound => "upper bound: the pages that were used, and some others",
        };
        let cold = match (recording.cold, recording.metadata_seen) {
            (true, true) => "cold, with metadata",
            (true, false) => "cold, but metadata was not recorded",
            (false, true) => "warm, but metadata was recorded",
            (false, false) => "warm: data and metadata that were in memory are missing in the profile",
        };
        let facts = [
            ("command", command_line(&recording.command)),
            ("directory", printable(&recording.directory)),
            ("root", printable(&recording.root)),
            ("recorded", number::date(recording.created_unix_s)),
            ("runs", format!("{}, the last took {}", recording.runs, time(recording.duration_us))),
            ("extents", extents.to_owned()),
            ("cache", cold.to_owned()),
            ("read-ahead", format!("{} KiB while recording", recording.read_ahead_kb)),
            ("lost events", number::grouped(recording.lost_events)),
            ("kernel", printable(recording.kernel.as_bytes())),
            ("machine", printable(recording.machine.as_bytes())),
            ("source", printable(recording.source.as_bytes())),
        ];
        let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
        known.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The total figures.
    pub fn figures(&self) -> Vec<(String, String)> {
        let profile = self.profile;
        let extents: usize = profile.files.iter().map(|file| file.extents.len()).sum();
        let figures = [
            ("files", number::grouped(profile.files.len() as u64)),
            ("extents", number::grouped(extents as u64)),
            ("data used", size(profile.data_bytes())),
            ("metadata used", size(profile.metadata_bytes())),
            ("paths looked up", number::grouped(profile.lookups.len() as u64)),
            ("exec to end", time(profile.recording.duration_us)),
        ];
        figures.map(|(label, value)| (label.to_owned(), value)).into()
    }

    /// A table of the files with these indices.
    pub fn file_table(&self, order: &[usize]) -> Table {
        let several_runs = self.profile.recording.runs > 1;
        let mut columns = vec![("first use", Kind::Number), ("used", Kind::Number), ("of", Kind::Number)];
        columns.extend([("share", Kind::Number), ("extents", Kind::Number)]);
        if several_runs {
            columns.push(("runs", Kind::Number));
        }
        columns.push(("file", Kind::Path));
        // Shown only if needed, to leave more room for the paths.
        if order.iter().any(|index| self.states[*index] != FileState::Current) {
            columns.push(("state", Kind::Text));
        }
        let mut table = Table::new(columns);
        for index in order {
            let (file, state) = (&self.profile.files[*index], self.states[*index]);
            let used = file.used_bytes();
            let mut row = vec![first_use_us(file).map_or("–".into(), time), size(used), size(file.size_bytes)];
            row.extend([number::share(used, file.size_bytes), number::grouped(file.extents.len() as u64)]);
            if several_runs {
                row.push(most_runs(file).to_string());
            }
            row.push(printable(&file.path));
            row.push(if state == FileState::Current { String::new() } else { state.name().to_owned() });
            table.row(row);
        }
        table
    }

    /// All extents by first use; those used by fewer than half of the runs come last.
    pub fn extent_table(&self) -> Table {
        let columns = [("first use", Kind::Number), ("offset", Kind::Number), ("length", Kind::Number)];
        let more = [("runs", Kind::Number), ("on disk", Kind::Number), ("file", Kind::Path)];
        let mut table = Table::new(columns.into_iter().chain(more));
        for Position { file, extent } in self.profile.in_order() {
            let file = &self.profile.files[file];
            let extent = &file.extents[extent];
            table.row([
                time(extent.first_use_us),
                number::grouped(extent.offset_bytes),
                number::grouped(extent.length_bytes),
                extent.runs.to_string(),
                extent.physical_bytes.map_or("–".into(), number::grouped),
                printable(&file.path),
            ]);
        }
        table
    }

    /// A table of metadata, one row for each device.
    pub fn metadata_table(&self) -> Table {
        let columns = [("used", Kind::Number), ("extents", Kind::Number), ("type", Kind::Text)];
        let mut table = Table::new(columns.into_iter().chain([("device", Kind::Text), ("mounted on", Kind::Path)]));
        for device in &self.profile.metadata {
            let used = device.extents.iter().map(|extent| extent.length_bytes).sum();
            table.row([
                size(used),
                number::grouped(device.extents.len() as u64),
                printable(device.fs_type.as_bytes()),
                printable(&device.device_path),
                printable(&device.mount_point),
            ]);
        }
        table
    }

    /// The first milestones, and the number of others. First uses of files are listed only on demand: the file table has them,
    /// too.
    pub fn milestone_table(&self, limit: usize, first_uses: bool) -> (Table, usize) {
        let wanted = |milestone: &&Milestone| first_uses || milestone.kind != MilestoneKind::FirstOpen;
        let mut table = Table::new([("time", Kind::Number), ("event", Kind::Text), ("file", Kind::Path)]);
        for milestone in self.profile.milestones.iter().filter(wanted).take(limit) {
            let name = milestone_name(milestone.kind).replace('_', " ");
            table.row([time(milestone.time_us), name, printable(&milestone.path)]);
        }
        (table, self.profile.milestones.iter().filter(wanted).count().saturating_sub(limit))
    }

    /// A self-contained HTML page.
    pub fn page(&self, name: &Path) -> String {
        let command = command_line(&self.profile.recording.command);
        let file = printable(name.as_os_str().as_encoded_bytes());
        let program = self.profile.recording.command.first().map(|program| file_name(program));
        let mut page = Page::new(&format!("Files read by {}", program.as_deref().unwrap_or("the program")));
        page.code(if command.is_empty() { &file } else { &command });
        for warning in self.warnings() {
            page.warning(&warning);
        }
        page.figures(&self.figures());
        page.section("Timeline").text(
            "Each row is a file, in order of first use from top to bottom. Each dot is a used part of it; \
             the larger the dot, the more bytes were used at once.",
        );
        page.legend(&[("data", "file data"), ("metadata", "metadata of the file system")]);
        page.picture(&svg::timeline(&self.timeline()), "Time since exec. Dashed lines: programs executed, readiness.");
        page.section("Page map").text(
            "The files with the most used bytes, each from its first byte to its last. Parts without colour were not used.",
        );
        page.picture(&svg::page_map(&self.maps()), "");
        page.section("Files").table(&self.file_table(&self.order_by_bytes(PAGE_ROWS)));
        let more = self.profile.files.len().saturating_sub(PAGE_ROWS);
        if more > 0 {
            page.text(&format!("… and {} with fewer used bytes.", number::count(more as u64, "file", "files")));
        }
        if !self.profile.metadata.is_empty() {
            page.section("Metadata").table(&self.metadata_table());
        }
        let (milestones, more) = self.milestone_table(MILESTONE_ROWS, false);
        if !milestones.is_empty() {
            page.section("Milestones").table(&milestones);
            if more > 0 {
                page.text(&format!("… and {}.", number::count(more as u64, "more", "more")));
            }
        }
        page.section("Recording").facts(&self.facts());
        page.render()
    }

    /// The files with the most used bytes first.
    fn order_by_bytes(&self, limit: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.profile.files.len()).collect();
        sorting::sort_by_key(&mut order, |index| std::cmp::Reverse(self.profile.files[*index].used_bytes()));
        order.truncate(limit);
        order
    }

    fn timeline(&self) -> Timeline {
        let profile = self.profile;
        let mut timeline = Timeline { duration_us: profile.recording.duration_us, ..Timeline::default() };
        let mut add = |label: String, metadata: bool, extents: &[Extent]| {
            let row = timeline.rows.len();
            let bytes = extents.iter().map(|extent| extent.length_bytes).sum();
            timeline.rows.push(Row { label, bytes, metadata });
            let dot = |extent: &Extent| Dot { row, time_us: extent.first_use_us, bytes: extent.length_bytes };
            timeline.dots.extend(extents.iter().map(dot));
        };
        for device in &profile.metadata {
            add(format!("metadata of {}", printable(&device.mount_point)), true, &device.extents);
        }
        let mut files: Vec<&File> = profile.files.iter().filter(|file| !file.extents.is_empty()).collect();
        sorting::sort_by_key(&mut files, |file| first_use_us(file));
        for file in files {
            add(printable(&file.path), false, &file.extents);
        }
        let shown = profile.milestones.iter().filter(|milestone| milestone.kind != MilestoneKind::FirstOpen);
        timeline.events = shown
            .map(|milestone| {
                let label = match milestone.kind {
                    MilestoneKind::Ready => "ready".to_owned(),
                    _ => file_name(&milestone.path),
                };
                Event { time_us: milestone.time_us, label }
            })
            .collect();
        sorting::sort_by_key(&mut timeline.events, |event| event.time_us);
        timeline
    }

    fn maps(&self) -> Vec<FileMap> {
        let map = |index: usize| {
            let file = &self.profile.files[index];
            let used = file.used_bytes();
            let share = number::share(used, file.size_bytes);
            FileMap {
                label: printable(&file.path),
                note: format!("{} of {}, {share}", size(used), size(file.size_bytes)),
                size_bytes: file.size_bytes,
                used: file.extents.iter().map(Extent::range).collect(),
            }
        };
        self.order_by_bytes(MAPPED_FILES).into_iter().map(map).collect()
    }
}
