//! Why `ahead run` starts a program without its stored profile: a note beside the profile.
//!
//! ```text
//!     NAME-HASH.ahead      the profile
//!     NAME-HASH.note       written by run and compare, read by run          ignored once the profile is another file
//! ```
//!
//! A note is read by the process that becomes the program, before anything else, so it must be short and must not make it wait: it is read only
//! where no server or other process answers for its directory, and through no link. Only the owner of the store writes there. A note that cannot be read or
//! written is as none.

use super::candidates;
use crate::output;
use ahead_model::mounts::covering;
use ahead_sys::{mounts, openat};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why the profile is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Verdict {
    /// The program waits for its disk for less than a prefetch costs; microseconds.
    NoWaits {
        /// At most this.
        waits_us: u64,
        /// What the prefetch costs.
        cost_us: u64,
    },
    /// A comparison found no gain, and that most of what was prefetched was not used.
    Wasted {
        /// Prefetched and not used, bytes.
        wasted_bytes: u64,
        /// Prefetched, bytes.
        issued_bytes: u64,
    },
    /// A comparison found that every run with the profile was slower than every cold run; medians in microseconds.
    Slower {
        /// With the profile.
        ahead_us: u64,
        /// Cold.
        cold_us: u64,
    },
    /// Most files have changed since the recording.
    Stale {
        /// Used bytes of changed files.
        stale_bytes: u64,
        /// Used bytes of the profile.
        used_bytes: u64,
    },
}

impl Verdict {
    /// Whether the profile should be recorded again, and not only be left alone.
    pub fn asks_for_a_recording(&self) -> bool {
        matches!(self, Verdict::Wasted { .. } | Verdict::Stale { .. })
    }
}

/// A note, as it is in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    verdict: Verdict,
    profile: NoteVersion,
}

/// Which file the profile was.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NoteVersion {
    inode: u64,
    size_bytes: u64,
    mtime_s: i64,
    mtime_ns: i64,
}

impl NoteVersion {
    fn of(profile: &Path) -> Option<NoteVersion> {
        let now = fs::metadata(profile).ok()?;
        let (mtime_s, mtime_ns) = (now.mtime(), now.mtime_nsec());
        Some(NoteVersion { inode: now.ino(), size_bytes: now.len(), mtime_s, mtime_ns })
    }
}

/// A longer note is not one of ours, bytes.
const MAX_BYTES: u64 = 4096;

/// The note for a profile in the store.
pub(crate) fn place(profile: &Path) -> PathBuf {
    profile.with_extension("note")
}

/// What was found about the stored profile of a command in this directory.
pub fn for_command(argv: &[OsString]) -> Option<Verdict> {
    let mounts = mounts::own().ok()?;
    let is_local = |profile: &PathBuf| {
        let at = covering(&mounts, profile.as_os_str().as_bytes());
        at.is_some_and(|index| !mounts[index].kind().is_answered_by_others())
    };
    let candidates = candidates(argv, None);
    if !candidates.iter().all(is_local) {
        return None;
    }
    read(candidates.iter().find(|profile| openat::look_up(profile).unwrap_or(false))?)
}

fn read(profile: &Path) -> Option<Verdict> {
    let mut text = Vec::new();
    let handle = openat::handle(&place(profile)).ok().filter(openat::Handle::is_regular_file)?;
    File::from(handle.reopen().ok()?).take(MAX_BYTES + 1).read_to_end(&mut text).ok()?;
    let note: Note = (text.len() as u64 <= MAX_BYTES).then(|| serde_json::from_slice(&text).ok())??;
    (Some(note.profile) == NoteVersion::of(profile)).then_some(note.verdict)
}

/// Leaves a note beside a profile in the store, or removes it. Where that is refused, there is none.
pub fn write(profile: &Path, verdict: Option<Verdict>) {
    let place = place(profile);
    let written = match (verdict, NoteVersion::of(profile)) {
        (Some(verdict), Some(version)) => {
            let note = Note { verdict, profile: version };
            serde_json::to_vec(&note)
                .map_err(std::io::Error::other)
                .and_then(|json| output::replace(&place, &json).map_err(std::io::Error::other))
        }
        _ => fs::remove_file(&place),
    };
    written.unwrap_or_else(|error| tracing::debug!("{}: {error}", place.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_for_one_version_of_the_profile() {
        let home = tempfile::tempdir().unwrap();
        let profile = fs::canonicalize(home.path()).unwrap().join("git-12345678.ahead");
        fs::write(&profile, "profile").unwrap();
        let verdict = Verdict::Wasted { wasted_bytes: 15, issued_bytes: 16 };
        write(&profile, Some(verdict));
        assert_eq!(read(&profile), Some(verdict));
        fs::remove_file(&profile).unwrap();
        assert_eq!(read(&profile), None);
        fs::write(&profile, "another one").unwrap();
        assert_eq!(read(&profile), None);
        write(&profile, None);
        assert!(!place(&profile).exists());
    }

    #[test]
    fn what_is_not_a_note_is_none() {
        let home = tempfile::tempdir().unwrap();
        let profile = home.path().join("p.ahead");
        fs::write(&profile, "profile").unwrap();
        for text in [vec![], b"{}".to_vec(), vec![b' '; MAX_BYTES as usize + 1], b"\xff\xfe".to_vec()] {
            fs::write(place(&profile), text).unwrap();
            assert_eq!(read(&profile), None);
        }
    }
}
