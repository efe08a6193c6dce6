//! What was done, or would be done.

use super::file_system::{FileSystem, Planned};
use super::reason::Reason;
use ahead_plan::relocation::{Layout, PackedFile, Record};
use ahead_profile::Profile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// A file that stays where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedFile {
    /// Its path, with U+FFFD for what is not UTF-8.
    pub path: String,
    /// Why.
    pub reason: Reason,
    /// Used bytes in it.
    pub bytes: u64,
}

impl RefusedFile {
    pub(super) fn of_profile(profile: &Profile, file: usize, reason: Reason) -> RefusedFile {
        let file = &profile.files[file];
        RefusedFile { path: String::from_utf8_lossy(&file.path).into_owned(), reason, bytes: file.used_bytes() }
    }

    /// A file of a record: its bytes that were to be exchanged.
    pub(super) fn of_record(record: &Record, file: usize, reason: Reason) -> RefusedFile {
        let bytes = record.moves.iter().filter(|one| one.file == file).map(|one| one.length_bytes).sum();
        RefusedFile { path: String::from_utf8_lossy(&record.files[file].path).into_owned(), reason, bytes }
    }
}

/// The state of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackState {
    /// It would be packed.
    Planned,
    /// It is packed, and the old blocks are kept.
    Packed,
    /// A part is exchanged.
    Interrupted,
    /// Nothing is to be moved: everything lies in order, or the gain would be too small.
    Nothing,
    /// It cannot be packed.
    Refused,
    /// Everything lies where it lay before.
    Undone,
    /// The old blocks are free.
    Committed,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileSystemReport {
    /// Its root.
    pub mount_point: String,
    /// Its device, `8:1`; `None`: after undo and commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What was done.
    pub state: PackState,
    /// Why it cannot be packed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Files of which a part is moved.
    pub files: u64,
    /// Bytes that are moved.
    pub bytes: u64,
    /// Bytes that lie in order already.
    pub stays_bytes: u64,
    /// After an undo: bytes that could not be given their old place, because another program has moved, truncated or deleted them.
    pub elsewhere_bytes: u64,
    /// Expected figures; `None`: after undo and commit.
    #[serde(flatten)]
    pub expected: Option<Expected>,
}

/// Expected figures of a relocation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Expected {
    /// Seconds of the disk for a replay with the places before.
    pub before_s: f64,
    /// The same with the new places.
    pub after_s: f64,
    /// Fragments that the files get in addition; negative: they have fewer.
    pub fragments_added: i64,
    /// Contiguous pieces of the new place; for a dry run, the one that is hoped for.
    pub runs: u64,
}

impl FileSystemReport {
    fn new(file_system: &FileSystem, state: PackState) -> FileSystemReport {
        FileSystemReport {
            mount_point: file_system.mount_point.display().to_string(),
            device: Some(file_system.device.to_string()),
            state,
            refused: None,
            files: 0,
            bytes: 0,
            stays_bytes: 0,
            elsewhere_bytes: 0,
            expected: None,
        }
    }

    pub(super) fn refused(file_system: &FileSystem, why: String) -> FileSystemReport {
        FileSystemReport { refused: Some(why), ..FileSystemReport::new(file_system, PackState::Refused) }
    }

    pub(super) fn nothing(file_system: &FileSystem, layout: &Layout) -> FileSystemReport {
        FileSystemReport { stays_bytes: layout.stays_bytes, ..FileSystemReport::new(file_system, PackState::Nothing) }
    }

    pub(super) fn planned(
        file_system: &FileSystem,
        layout: &Layout,
        planned: &Planned,
        state: PackState,
    ) -> FileSystemReport {
        let mut files: Vec<usize> = layout.segments.iter().map(|segment| segment.file).collect();
        files.sort_unstable();
        files.dedup();
        let Planned { before_s, after_s, fragments_added, runs } = *planned;
        FileSystemReport {
            files: files.len() as u64,
            bytes: layout.bytes(),
            stays_bytes: layout.stays_bytes,
            expected: Some(Expected { before_s, after_s, fragments_added, runs }),
            ..FileSystemReport::new(file_system, state)
        }
    }

    pub(super) fn of_record(mount_point: &Path, record: &Record, state: PackState) -> FileSystemReport {
        FileSystemReport {
            mount_point: mount_point.display().to_string(),
            device: None,
            state,
            refused: None,
            files: record.files.len() as u64,
            bytes: record.bytes(),
            stays_bytes: 0,
            elsewhere_bytes: 0,
            expected: None,
        }
    }
}

/// The whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub profile: String,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The file systems of its files.
    pub file_systems: Vec<FileSystemReport>,
    /// Files that stay where they are.
    pub refused: Vec<RefusedFile>,
    /// The signal that ended the work.
    pub stopped_by: Option<i32>,
    /// Files of the records that were carried out.
    #[serde(skip)]
    pub(super) packed_files: Vec<PackedFile>,
}

impl Report {
    pub(super) fn new(profile: &Path, dry_run: bool) -> Report {
        Report {
            profile: profile.display().to_string(),
            dry_run,
            file_systems: Vec::new(),
            refused: Vec::new(),
            stopped_by: None,
            packed_files: Vec::new(),
        }
    }

    /// Whether every file system was refused, or there is none: with the reason.
    pub fn failure(&self) -> Option<String> {
        if self.file_systems.is_empty() {
            let mut reasons: Vec<&str> = self.refused.iter().map(|file| file.reason.text()).collect();
            reasons.sort_unstable();
            reasons.dedup();
            return Some(format!(
                "no file can be moved: {}",
                if reasons.is_empty() { "the profile has none".into() } else { reasons.join("; ") }
            ));
        }
        let refused: Vec<String> = self
            .file_systems
            .iter()
            .filter_map(|one| one.refused.as_ref().map(|why| format!("{}: {why}", one.mount_point)))
            .collect();
        (refused.len() == self.file_systems.len()).then(|| refused.join("; "))
    }

    /// The report as text for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
        for one in &self.file_systems {
            let what = format!("{} in {} files", size(one.bytes), one.files);
            line(match (one.state, &one.refused) {
                (PackState::Refused, why) => format!("{}: refused: {}", one.mount_point, why.as_deref().unwrap_or("")),
                (PackState::Planned, _) => format!("{}: {what} would be moved", one.mount_point),
                (PackState::Packed, _) => {
                    format!("{}: {what} are packed; the old blocks are kept until --commit or --undo", one.mount_point)
                }
                (PackState::Interrupted, _) => {
                    format!("{}: interrupted; repeat it, or end it with --commit or --undo", one.mount_point)
                }
                (PackState::Nothing, _) => {
                    format!("{}: nothing to move; {} lie in order", one.mount_point, size(one.stays_bytes))
                }
                (PackState::Undone, _) => format!("{}: {what} are where they were", one.mount_point),
                (PackState::Committed, _) => format!("{}: the old blocks of {what} are free", one.mount_point),
            });
            if let Some(Expected { before_s, after_s, fragments_added, runs }) = one.expected {
                line(format!("  replay           {before_s:.3} s before, {after_s:.3} s after (simulated)"));
                line(format!("  fragments added  {fragments_added}; the new place is in {runs} contiguous piece(s)"));
            }
            if one.elsewhere_bytes > 0 {
                line(format!(
                    "  {} were moved, truncated or deleted by other programs, and stay",
                    size(one.elsewhere_bytes)
                ));
            }
        }
        let mut by_reason: BTreeMap<Reason, (u64, u64, &str)> = BTreeMap::new();
        for file in &self.refused {
            let entry = by_reason.entry(file.reason).or_insert((0, 0, &file.path));
            (entry.0, entry.1) = (entry.0 + 1, entry.1 + file.bytes);
        }
        for (reason, (files, bytes, first)) in by_reason {
            let first: String = first
                .chars()
                .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
                .collect();
            line(format!(
                "not moved  {files:>5} files, {:>10}  {}: {first}{}",
                size(bytes),
                reason.text(),
                if files > 1 { ", …" } else { "" }
            ));
        }
        text
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
