//! What a transaction of the package manager changed: the profile that the next boot replays, made to fit the files that are there now.
//!
//! ```text
//!     dpkg, RPM ─▶ ahead boot changed ─▶ state.json: the next boot is recorded
//!                                     ─▶ replay.ahead: files with another identity ─▶ content check ─▶ kept, kept in part, stale
//!                                                      packages' profiles that no boot includes     ─▶ added, to be fetched last
//!                                     ─▶ boot-N.ahead: the same identities, so that the recordings count on
//! ```
//!
//! A package manager waits: bytes and time are limited, and whatever fails is a message. The note comes first: it is what must not be lost.

use super::packages::{self, PACKAGE_PROFILES};
use super::store::{BootStore, State};
use super::units::is_installed;
use crate::Result;
use crate::content::{ContentReader, Examined, Replaced};
use crate::notify::Notify;
use crate::prefetch::file_as_it_is;
use ahead_profile::{File, PathBytes, Profile};
use ahead_sys::mounts;
use ahead_sys::root::Root;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The triggers end `ahead` after 10 s. Another process has the lock while it saves a recording.
const LOCK_TIME: Duration = Duration::from_secs(3);
/// For the content check. What is left is for writing the profiles.
const CHECK_TIME: Duration = Duration::from_secs(4);
/// The files of a transaction are in the page cache. Where they are not, a disk reads this in the time above, if at all.
const CHECK_BYTES: u64 = 512 << 20;

/// What became of the files of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Files that are the recorded ones.
    pub same: usize,
    /// Replaced files that have all of the used content.
    pub kept: usize,
    /// Replaced files that have some of it.
    pub kept_in_part: usize,
    /// Replaced files that have nothing of it, or of which the profile does not say what was used.
    pub stale: usize,
    /// Files that are gone.
    pub missing: usize,
    /// Files that were not looked at: out of time, or not readable.
    pub unknown: usize,
    /// Packages' profiles that were added.
    pub packages: usize,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changes { same, kept, kept_in_part, stale, missing, unknown, packages } = self;
        write!(f, "{same} files as recorded, {kept} replaced and kept, {kept_in_part} kept in part, {stale} stale, ")?;
        write!(f, "{missing} missing, {unknown} not examined; {packages} profiles of packages added")
    }
}

/// Notes that packages were changed, and makes the profile fit what is there now. `None`: nothing was learned on this machine, and boots are
/// not replayed.
///
/// # Errors
/// The note cannot be saved, or the profile cannot be read or written. The profile is the earlier one then.
pub fn note_changes(notify: Notify<'_>) -> Result<Option<Changes>> {
    let (store, root) = (BootStore::here(), Root::default());
    if !store.directory().exists() && !is_installed(Path::new("/")) {
        return Ok(None);
    }
    let lock = store.lock(LOCK_TIME);
    let state = store.state();
    let state = State { packages_changed: true, transactions: state.transactions.wrapping_add(1), ..state };
    // Also without the lock: two notes are the same as one.
    store.save_state(&state)?;
    let _lock = lock?;
    fit_profile(&store, &root, notify).map(Some)
}

/// As [`note_changes`], without the note: for the first profile of a machine whose packages carry profiles.
///
/// # Errors
/// As [`note_changes`].
pub(super) fn begin(notify: Notify<'_>) -> Result<()> {
    let (store, root) = (BootStore::here(), Root::default());
    if store.profile_to_replay().is_some() || packages::load(&root, Path::new(PACKAGE_PROFILES)).is_empty() {
        return Ok(());
    }
    let _lock = store.lock(LOCK_TIME)?;
    fit_profile(&store, &root, notify).map(drop)
}

fn fit_profile(here: &BootStore, root: &Root, notify: Notify<'_>) -> Result<Changes> {
    // That of another kernel, while this one has none.
    let path = here.profile_to_replay().unwrap_or_else(|| here.profile_path());
    let store = BootStore::of_profile(&path).unwrap_or_else(|| here.clone());
    let mut profile = if path.exists() { ahead_profile::load(&path)? } else { Profile::default() };
    let known = store.state().known_packages;
    let until = Instant::now() + CHECK_TIME;
    let mut reader = ContentReader::new(root, CHECK_BYTES, CHECK_TIME);
    let (mut changes, replaced) = examine(&profile, &mut reader);
    let is_changed = apply(&mut profile, &replaced);
    find_places(&mut profile, &replaced, root)?;
    let packages = packages::load(root, Path::new(PACKAGE_PROFILES));
    changes.packages = packages::add_to(&mut profile, &packages, &known, root, until, notify)?;
    if is_changed || changes.packages > 0 && !profile.files.is_empty() {
        reader.add_checks(&mut profile);
        ahead_profile::fit(&mut profile);
        ahead_profile::save(&profile, &path)?;
    }
    if is_changed {
        store.change_recordings(|recording| apply(recording, &replaced))?;
    }
    Ok(changes)
}

/// By path, the files that were replaced and still have used content.
type ReplacedFiles = HashMap<PathBytes, Replaced>;

fn examine(profile: &Profile, reader: &mut ContentReader) -> (Changes, ReplacedFiles) {
    let (mut changes, mut found) = (Changes::default(), ReplacedFiles::new());
    for file in profile.files.iter().filter(|file| !file.deleted && !file.extents.is_empty()) {
        let count = match reader.examine(file) {
            Examined::Same => &mut changes.same,
            Examined::Replaced(replaced) => {
                let all = replaced.all;
                found.insert(file.path.clone(), replaced);
                if all { &mut changes.kept } else { &mut changes.kept_in_part }
            }
            Examined::Stale => &mut changes.stale,
            Examined::Missing => &mut changes.missing,
            Examined::Unknown => &mut changes.unknown,
        };
        *count += 1;
    }
    (changes, found)
}

/// Gives the entries of replaced files the identity and the extents of the files now. Returns whether there is one.
fn apply(profile: &mut Profile, replaced: &ReplacedFiles) -> bool {
    let mut changed = false;
    for file in profile.files.iter_mut().filter(|file| !file.deleted) {
        if let Some(replaced) = replaced.get(&file.path).filter(|replaced| replaced.is_of(file)) {
            replaced.apply(file);
            changed = true;
        }
    }
    changed
}

/// Adds the places on the disk, which decide the order on a disk that seeks.
fn find_places(profile: &mut Profile, replaced: &ReplacedFiles, root: &Root) -> Result<()> {
    let table = mounts::own()?;
    for file in profile.files.iter_mut().filter(|file| replaced.contains_key(&file.path)) {
        let now = file_as_it_is(root, &table, &file.path, &file.used_ranges());
        now.iter().for_each(|now| set_places(file, now));
    }
    Ok(())
}

/// The place of an extent is that of its first byte.
fn set_places(file: &mut File, now: &File) {
    for extent in &mut file.extents {
        // Those of the file now are in order of their offsets.
        let next = now.extents.partition_point(|there| there.offset_bytes <= extent.offset_bytes);
        let there = next.checked_sub(1).map(|index| &now.extents[index]);
        extent.physical_bytes =
            there.and_then(|there| Some(there.physical_bytes? + (extent.offset_bytes - there.offset_bytes)));
    }
}
