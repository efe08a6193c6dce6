//! A profile as JSON. The schema is documented in docs/reference/json.md. Lists are always complete.

use super::{FileState, Shown, first_use_us, milestone_name};
use crate::json::{add_path, lossy, percent_where_needed};
use ahead_profile::{File, Metadata, Position, Precision, Profile};
use serde_json::{Value, json};

impl Shown<'_> {
    /// The profile, its files in this order. `extents`, `timeline`: also the lists of these.
    pub fn json(&self, order: &[usize], extents: bool, timeline: bool) -> Value {
        let Shown { profile, states } = *self;
        let recording = &profile.recording;
        let count = |state: FileState| states.iter().filter(|other| **other == state).count();
        let milestones = profile.milestones.iter().map(|milestone| {
            let mut row = json!({ "time_us": milestone.time_us, "kind": milestone_name(milestone.kind) });
            add_path(&mut row, "path", &milestone.path);
            row
        });
        let files = order.iter().map(|index| file_json(&profile.files[*index], states[*index]));
        let mut value = json!({
            "files": profile.files.len(),
            "extents": profile.files.iter().map(|file| file.extents.len()).sum::<usize>(),
            "bytes": profile.data_bytes(),
            "metadata_bytes": profile.metadata_bytes(),
            "metadata_extents": profile.metadata.iter().map(|device| device.extents.len()).sum::<usize>(),
            "lookups": profile.lookups.len(),
            "precise": recording.precision == Precision::Precise,
            "cold": recording.cold,
            "metadata_seen": recording.metadata_seen,
            "lost_events": recording.lost_events,
            "runs": recording.runs,
            "stale_files": self.stale_files(),
            "missing_files": count(FileState::Missing),
            "changed_files": count(FileState::Changed),
            "unknown_files": count(FileState::Unknown),
            "deleted_files": count(FileState::Deleted),
            "command": lossy(&recording.command),
            "duration_us": recording.duration_us,
            "created_unix_s": recording.created_unix_s,
            "read_ahead_kb": recording.read_ahead_kb,
            "kernel": recording.kernel,
            "machine": recording.machine,
            "source": recording.source,
            "milestones": milestones.collect::<Vec<_>>(),
            "metadata": profile.metadata.iter().map(device_json).collect::<Vec<_>>(),
            "file_list": files.collect::<Vec<_>>(),
        });
        add_path(&mut value, "directory", &recording.directory);
        if !recording.root.is_empty() {
            add_path(&mut value, "root", &recording.root);
        }
        if let Some(exact) = percent_where_needed(&recording.command) {
            value["command_percent"] = exact.into();
        }
        if extents {
            value["extent_order"] = "first_use".into();
            value["extent_list"] = profile.in_order().into_iter().map(|at| extent_json(profile, at)).collect();
        }
        if timeline {
            value["timeline"] = self.timeline_json();
        }
        value
    }
}

fn file_json(file: &File, state: FileState) -> Value {
    let mut row = json!({
        "size_bytes": file.size_bytes,
        "used_bytes": file.used_bytes(),
        "extents": file.extents.len(),
        "first_use_us": first_use_us(file),
        "runs": file.extents.iter().map(|extent| extent.runs).max(),
        "fs_type": file.fs_type,
        "inode": file.inode,
        "mtime_ns": file.mtime_ns,
        "state": state.name(),
    });
    add_path(&mut row, "path", &file.path);
    if let Some(seen) = &file.seen_path {
        add_path(&mut row, "seen_path", seen);
    }
    row
}

fn device_json(device: &Metadata) -> Value {
    let mut row = json!({
        "bytes": device.extents.iter().map(|extent| extent.length_bytes).sum::<u64>(),
        "extents": device.extents.len(),
        "fs_type": device.fs_type,
    });
    add_path(&mut row, "device_path", &device.device_path);
    add_path(&mut row, "mount_point", &device.mount_point);
    row
}

fn extent_json(profile: &Profile, at: Position) -> Value {
    let file = &profile.files[at.file];
    let extent = &file.extents[at.extent];
    let mut row = json!({
        "offset_bytes": extent.offset_bytes,
        "length_bytes": extent.length_bytes,
        "first_use_us": extent.first_use_us,
        "runs": extent.runs,
        "physical_bytes": extent.physical_bytes,
    });
    add_path(&mut row, "path", &file.path);
    row
}
