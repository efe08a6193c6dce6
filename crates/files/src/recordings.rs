//! The last recordings of one thing that happens again and again, and what they have in common.
//!
//! ```text
//!     PREFIX-17.ahead … PREFIX-21.ahead     the last recordings, by number
//!     replay.ahead                          these, merged: for each page, how many of them used it
//! ```
//!
//! Numbers order the recordings, not dates: the clock may be wrong until it is set. The directory is kept open, so that a user who may rename
//! it cannot lead a reader elsewhere. Of a directory that another user may write, only that user's regular files count.

use crate::profile::{Access, ProfilePlace, load_open};
use ahead_profile::{File, LoadError, PathBytes, Profile, SaveError};
use ahead_sys::directory::Directory;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;

/// The file of the merged profile.
pub const MERGED: &str = "replay.ahead";

/// Names in one directory that are looked at: more were not written by us.
const MAX_ENTRIES: usize = 1000;

/// The recordings in a directory.
#[derive(Debug)]
pub struct RecordingStore {
    directory: Directory,
    prefix: &'static str,
    most: usize,
    /// User and group.
    owner: Option<(u32, u32)>,
}

impl RecordingStore {
    /// The last `most` recordings, whose names begin with `prefix`.
    pub fn new(directory: Directory, prefix: &'static str, most: usize) -> RecordingStore {
        RecordingStore { directory, prefix, most, owner: None }
    }

    /// Files belong to this user and group. Those of other users are not read.
    pub fn owned_by(self, user: u32, group: u32) -> RecordingStore {
        RecordingStore { owner: Some((user, group)), ..self }
    }

    /// The numbers of the recordings, ascending.
    pub fn numbers(&self) -> Vec<u64> {
        let names = self.directory.first_names(MAX_ENTRIES).unwrap_or_default();
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| self.number_of(name)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// All recordings that can be read, in order. A damaged one (a power cut) is left out.
    pub fn load_all(&self) -> Vec<Profile> {
        self.load(&self.numbers())
    }

    /// Loads a profile in the directory.
    ///
    /// # Errors
    /// Every [`LoadError`]; a symbolic link and a file of another user are refused.
    pub fn load_named(&self, name: &str) -> Result<Profile, LoadError> {
        let path = self.directory.path().join(name);
        match self.directory.regular_file(OsStr::new(name)) {
            Ok(file) => load_open(file, &path, self.owner.map(|(user, _)| user)),
            Err(error) => {
                let source = error.raw_os_error().map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error);
                Err(LoadError::Io { path, source })
            }
        }
    }

    /// Saves a profile in the directory.
    ///
    /// # Errors
    /// Every [`SaveError`]. An existing file is unchanged then.
    pub fn save_named(&self, name: &str, profile: &Profile) -> Result<(), SaveError> {
        self.place(name)?.save(profile, self.owner.map(|owner| Access { owner, mode: None }))
    }

    /// Adds a recording, removes the oldest ones, and merges the rest. `alone`: all earlier recordings are removed. `finish` completes the
    /// merged profile.
    ///
    /// # Errors
    /// The profiles cannot be written. The merged profile is the earlier one then.
    pub fn add(&self, profile: Profile, alone: bool, finish: impl FnOnce(&mut Profile)) -> Result<(), SaveError> {
        let before = self.numbers();
        let number = before.last().map_or(1, |last| last.saturating_add(1));
        self.save_named(&self.name_of(number), &profile)?;
        let kept_before = if alone { 0 } else { self.most - 1 };
        let (old, kept) = before.split_at(before.len().saturating_sub(kept_before));
        // A damaged recording is left out, and removed in its turn.
        let mut all = self.load(kept);
        all.push(profile);
        self.save_merged(all, finish)?;
        for number in old {
            // The next recording tries again.
            let _ = self.directory.remove_file(OsStr::new(&self.name_of(*number)));
        }
        Ok(())
    }

    /// Makes the merged profile again from the recordings if it is damaged. Returns whether it was.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn repair(&self, finish: impl FnOnce(&mut Profile)) -> Result<bool, SaveError> {
        let damaged = matches!(self.load_named(MERGED), Err(LoadError::Decode { .. }));
        let recordings = if damaged { self.load_all() } else { Vec::new() };
        if recordings.is_empty() {
            return Ok(false);
        }
        self.save_merged(recordings, finish)?;
        Ok(true)
    }

    /// Changes the entries of all recordings. `change` returns whether it has changed one.
    ///
    /// # Errors
    /// A recording cannot be written.
    pub fn change(&self, mut change: impl FnMut(&mut Profile) -> bool) -> Result<(), SaveError> {
        for number in self.numbers() {
            let name = self.name_of(number);
            let Ok(mut profile) = self.load_named(&name) else { continue };
            if change(&mut profile) {
                self.save_named(&name, &profile)?;
            }
        }
        Ok(())
    }

    /// Removes all recordings and the merged profile.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn clear(&self) -> ahead_sys::Result<()> {
        self.directory.remove_file(OsStr::new(MERGED))?;
        self.numbers().iter().try_for_each(|number| self.directory.remove_file(OsStr::new(&self.name_of(*number))))
    }

    fn load(&self, numbers: &[u64]) -> Vec<Profile> {
        let loaded = numbers.iter().map(|number| self.load_named(&self.name_of(*number)));
        loaded.filter_map(|loaded| loaded.inspect_err(|error| tracing::warn!("skipped: {error}")).ok()).collect()
    }

    fn save_merged(&self, recordings: Vec<Profile>, finish: impl FnOnce(&mut Profile)) -> Result<(), SaveError> {
        let mut merged = merge_in_order(recordings);
        finish(&mut merged);
        self.save_named(MERGED, &merged)
    }

    fn place(&self, name: &str) -> Result<ProfilePlace, SaveError> {
        let path = self.directory.path().join(name);
        match self.directory.as_fd().try_clone_to_owned() {
            Ok(directory) => ProfilePlace::within(directory, &path),
            Err(source) => Err(SaveError::Io { path, step: "open its directory", source }),
        }
    }

    fn name_of(&self, number: u64) -> String {
        format!("{}-{number}.ahead", self.prefix)
    }

    fn number_of(&self, name: &OsStr) -> Option<u64> {
        name.to_str()?.strip_prefix(self.prefix)?.strip_prefix('-')?.strip_suffix(".ahead")?.parse().ok()
    }
}

/// Merges recordings in this order, whatever their dates are.
fn merge_in_order(mut recordings: Vec<Profile>) -> Profile {
    let date = recordings.last().map_or(0, |latest| latest.recording.created_unix_s);
    for (number, profile) in recordings.iter_mut().enumerate() {
        profile.recording.created_unix_s = number as u64;
    }
    let (earlier, by_path) = uses_of_earlier_versions(&recordings);
    let mut merged = ahead_profile::merge(recordings);
    merged.recording.created_unix_s = date;
    let runs = merged.recording.runs;
    for file in &mut merged.files {
        let more = by_path.get(&file.path).map_or(0, |index| earlier[*index]);
        file.extents.iter_mut().for_each(|extent| extent.runs = extent.runs.saturating_add(more).min(runs));
    }
    ahead_profile::fit(&mut merged);
    merged
}

/// Recordings that used a version of a file.
struct UsedVersion<'a> {
    latest: &'a File,
    recordings: u32,
    /// Recordings that used an earlier version.
    earlier: u32,
}

/// For each file the recordings that used an earlier version, and the index by path. They count as uses of what the last version has:
/// else an upgraded file would be fetched last until most recordings have used it.
fn uses_of_earlier_versions(recordings: &[Profile]) -> (Vec<u32>, HashMap<PathBytes, usize>) {
    let (mut versions, mut by_path): (Vec<UsedVersion>, HashMap<PathBytes, usize>) = Default::default();
    for recording in recordings {
        for file in recording.files.iter().filter(|file| !file.deleted && !file.extents.is_empty()) {
            let index = by_path.get(&file.path).copied().unwrap_or_else(|| {
                by_path.insert(file.path.clone(), versions.len());
                versions.push(UsedVersion { latest: file, recordings: 0, earlier: 0 });
                versions.len() - 1
            });
            let version = &mut versions[index];
            if !file.is_version_of(version.latest) {
                version.earlier += std::mem::take(&mut version.recordings);
            }
            version.latest = file;
            version.recordings += recording.recording.runs;
        }
    }
    (versions.iter().map(|version| version.earlier).collect(), by_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, Recording};

    fn recording(used: &[u64]) -> Profile {
        let extents = used.iter().map(|page| Extent {
            offset_bytes: page * 4096,
            length_bytes: 4096,
            runs: 1,
            ..Extent::default()
        });
        let file =
            File { path: b"/bin/x".to_vec(), size_bytes: 1 << 20, extents: extents.collect(), ..File::default() };
        let recording = Recording { runs: 1, ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    /// Regression: a file that a package upgrade replaced had the support of one boot in five, and was fetched last for three boots.
    #[test]
    fn upgraded_file_keeps_the_support_of_its_earlier_versions() {
        let version = |mtime_ns: i64, pages: &[u64]| {
            let mut profile = recording(pages);
            profile.files[0].mtime_ns = mtime_ns;
            profile
        };
        let merged = merge_in_order(vec![
            version(1, &[0]),
            version(1, &[0]),
            version(1, &[0]),
            version(2, &[0, 9]),
            version(2, &[0]),
        ]);
        let support: Vec<u32> = merged.files[0].extents.iter().map(|extent| extent.runs).collect();
        assert_eq!(support, [5, 4]);
        // A file that only the last boot read is no upgrade.
        let new = |path: &str| {
            let mut profile = version(2, &[0]);
            profile.files[0].path = path.into();
            profile
        };
        let merged = merge_in_order(vec![new("/a"), new("/a"), new("/b")]);
        assert_eq!(merged.files.iter().map(|file| file.extents[0].runs).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn links_fifos_and_files_of_other_users_are_not_read() {
        let home = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let store = |owner| RecordingStore::new(Directory::open(home.path()).unwrap(), "start", 3).owned_by(owner, 0);
        let kept = RecordingStore::new(Directory::open(home.path()).unwrap(), "start", 3);
        for page in 0..5 {
            kept.add(recording(&[page]), false, |_| {}).unwrap();
        }
        assert_eq!((kept.numbers(), store(own).load_all().len()), (vec![3, 4, 5], 3));
        assert!(store(own + 1).load_all().is_empty() && store(own + 1).load_named(MERGED).is_err());
        std::os::unix::fs::symlink("start-3.ahead", home.path().join("start-6.ahead")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, home.path().join("start-7.ahead"), 0o600.into()).unwrap();
        let large = std::fs::File::create(home.path().join("start-8.ahead")).unwrap();
        large.set_len(1 << 40).unwrap();
        assert_eq!((kept.numbers().len(), kept.load_all().len()), (6, 3));
        kept.clear().unwrap();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
