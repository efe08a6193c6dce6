//! What a profile lacks.

use super::LeftOut;
use super::recorder::Recording;

impl Recording {
    /// Counts of items missing from the profile, by reason, with the JSON key and the text.
    pub fn missing(&self) -> [(u64, &'static str, &'static str); 12] {
        let Recording { profile, left_out, counters, entries_beyond_limits, outside, .. } = self;
        let &LeftOut { unreachable, without_device, made_here, other_kinds, .. } = left_out;
        let &LeftOut { unseen_namespaces, unnamed_files, not_looked_for, unkept_lookups, .. } = left_out;
        let unkept = counters.unkept + unkept_lookups;
        [
            (profile.recording.lost_events, "lost_events", "events LOST: the profile is incomplete"),
            (unreachable, "unreachable_files", "files on file systems that cannot be reached from here"),
            (without_device, "files_without_device", "files without a device (tmpfs and the like)"),
            (made_here, "files_made_here", "files that were created or grew during the recording"),
            (other_kinds, "other_inodes", "other inodes"),
            (unseen_namespaces, "unseen_namespaces", "mount namespaces that ended before their paths could be read"),
            (unnamed_files, "files_without_path", "files whose path was not found"),
            (counters.unreadable, "unreadable_lookups", "looked-up paths that could not be read"),
            (unkept, "unkept_events", "of the lost events because of the memory limit: record a shorter run"),
            (
                *entries_beyond_limits,
                "entries_beyond_limits",
                "entries beyond the limits of a profile: record a shorter run",
            ),
            (outside.files, "files_outside_root", "files outside the root directory"),
            (not_looked_for, "files_not_looked_for", "files that count as deleted, in directories too large to search"),
        ]
    }
}
