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
use super::state::BootState;
use super::store::BootStore;
use super::units::is_installed;
use ahead::prefetch::file_as_it_is;
use ahead::{Notify, Result};
use ahead_files::lists::content::{ContentReader, Examined, Replaced, used_ranges};
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
        write!(f, "files: {same} as recorded, {kept} replaced and kept, {kept_in_part} kept in part, {stale} stale, ")?;
        write!(f, "{missing} missing, {unknown} not examined; profiles of packages: {packages} added")
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
    let state = BootState { packages_changed: true, transactions: state.transactions.wrapping_add(1), ..state };
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
    if store.repair()? {
        notify(&format!("{}: damaged; made again from the recordings", path.display()));
    }
    let mut profile = if path.exists() { ahead_files::load(&path)? } else { Profile::default() };
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
        ahead_files::save(&profile, &path)?;
    }
    if is_changed {
        store.change_recordings(|recording| apply(recording, &replaced))?;
    }
    Ok(changes)
}

/// The files that were replaced and still have used content.
#[derive(Default)]
struct ReplacedFiles {
    files: Vec<Replaced>,
    by_path: HashMap<PathBytes, usize>,
}

impl ReplacedFiles {
    fn get(&self, path: &PathBytes) -> Option<&Replaced> {
        self.by_path.get(path).map(|index| &self.files[*index])
    }
}

fn examine(profile: &Profile, reader: &mut ContentReader) -> (Changes, ReplacedFiles) {
    let (mut changes, mut found) = (Changes::default(), ReplacedFiles::default());
    for file in profile.files.iter().filter(|file| !file.deleted && !file.extents.is_empty()) {
        let count = match reader.examine(file) {
            Examined::Same => &mut changes.same,
            Examined::Replaced(replaced) => {
                let all = replaced.all;
                found.by_path.insert(file.path.clone(), found.files.len());
                found.files.push(replaced);
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
    for file in profile.files.iter_mut().filter(|file| replaced.get(&file.path).is_some()) {
        let now = file_as_it_is(root, &table, &file.path, &used_ranges(file));
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
        // Those of the file now lack its holes.
        let there = there.filter(|there| extent.offset_bytes < there.end_bytes());
        extent.physical_bytes =
            there.and_then(|there| Some(there.physical_bytes? + (extent.offset_bytes - there.offset_bytes)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, Recording};
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;
    use std::time::UNIX_EPOCH;

    /// Files of packages, recorded by two boots. Not in /tmp, which may be in memory.
    struct Machine {
        _home: tempfile::TempDir,
        path: PathBuf,
        store: BootStore,
    }

    const PIECE: u64 = ahead_profile::PIECE_BYTES;

    impl Machine {
        fn new(files: &[&str]) -> Machine {
            let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let path = fs::canonicalize(home.path()).unwrap();
            let store = BootStore::of_profile(&path.join("boot/root-6.1/replay.ahead")).unwrap();
            let machine = Machine { _home: home, path, store };
            for name in files {
                machine.install(name, 1);
            }
            for _ in 0..2 {
                let files = files.iter().map(|name| machine.entry(name)).collect();
                let recording = Recording { runs: 1, ..Recording::default() };
                machine.store.add(Profile { recording, files, ..Profile::default() }, false).unwrap();
            }
            machine
        }

        /// As a package manager does. The content is that of a program: other versions differ in the first piece.
        fn install(&self, name: &str, version: u8) {
            self.install_with(name, version, &|at| if at < 100 { version } else { (at / 9) as u8 });
        }

        fn install_with(&self, name: &str, time_s: u8, content: &dyn Fn(u64) -> u8) {
            let new = self.path.join(format!("{name}.dpkg-new"));
            fs::write(&new, (0..4 * PIECE).map(content).collect::<Vec<u8>>()).unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000 + u64::from(time_s));
            fs::File::open(&new).unwrap().set_modified(time).unwrap();
            fs::rename(new, self.path.join(name)).unwrap();
        }

        fn entry(&self, name: &str) -> File {
            let path = self.path.join(name);
            let now = fs::metadata(&path).unwrap();
            File {
                path: path.into_os_string().into_encoded_bytes(),
                size_bytes: now.len(),
                mtime_ns: now.mtime() * 1_000_000_000,
                inode: now.ino(),
                extents: vec![Extent { length_bytes: 3 * PIECE, runs: 1, ..Extent::default() }],
                ..File::default()
            }
        }

        /// As after a transaction. The profile afterwards, too: path, used pieces, and whether a replay would read it.
        fn change(&self) -> (Changes, Vec<(String, u64, bool)>) {
            let changes = fit_profile(&self.store, &Root::default(), &|message| panic!("{message}")).unwrap();
            let profile = ahead_files::load(&self.store.profile_path()).unwrap();
            let row = |file: &File| {
                let name = Path::new(std::ffi::OsStr::from_bytes(&file.path)).file_name().unwrap();
                let now = self.entry(name.to_str().unwrap());
                let fits = (now.size_bytes, now.mtime_ns, now.inode) == (file.size_bytes, file.mtime_ns, file.inode);
                (name.to_str().unwrap().to_owned(), file.used_bytes() / PIECE, fits)
            };
            let mut rows: Vec<_> = profile.files.iter().map(row).collect();
            rows.sort();
            (changes, rows)
        }
    }

    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn reinstalled_files_are_replayed_again_and_upgraded_ones_in_part() {
        let machine = Machine::new(&["a", "b", "c", "d"]);
        // Installed again with another time, upgraded, replaced by another program.
        machine.install_with("a", 9, &|at| if at < 100 { 1 } else { (at / 9) as u8 });
        machine.install("b", 2);
        machine.install_with("c", 3, &|_| 77);
        let (changes, rows) = machine.change();
        let expected = Changes { same: 1, kept: 1, kept_in_part: 1, stale: 1, ..Changes::default() };
        assert_eq!(changes, expected);
        let row = |name: &str, pieces, fits| (name.to_owned(), pieces, fits);
        assert_eq!(rows, [row("a", 3, true), row("b", 2, true), row("c", 3, false), row("d", 3, true)]);
        let text = "files: 1 as recorded, 1 replaced and kept, 1 kept in part, 1 stale, 0 missing, 0 not examined; \
                    profiles of packages: 0 added";
        assert_eq!(changes.to_string(), text);
        // The recordings have the same: the next merge counts them.
        let recording = ahead_files::load(&machine.store.directory().join("boot-1.ahead")).unwrap();
        let kept = recording.files.iter().find(|file| file.path.ends_with(b"/a")).unwrap();
        assert_eq!(kept.mtime_ns, machine.entry("a").mtime_ns);
        // Nothing more to do, and the content of the new files is known.
        let (again, _) = machine.change();
        assert_eq!(again, Changes { same: 3, stale: 1, ..Changes::default() });
        machine.install_with("a", 12, &|at| if at < 100 { 1 } else { (at / 9) as u8 });
        assert_eq!(machine.change().0.kept, 1);
    }

    #[test]
    fn same_package_installed_again_is_kept_without_a_check() {
        let machine = Machine::new(&["a"]);
        let inode = machine.entry("a").inode;
        machine.install("a", 1);
        assert_ne!(machine.entry("a").inode, inode);
        let (changes, rows) = machine.change();
        assert_eq!((changes.kept, rows), (1, vec![("a".to_owned(), 3, true)]));
    }

    #[test]
    fn half_of_the_packages_upgraded_makes_only_that_half_stale() {
        let names: Vec<String> = (0..10).map(|number| format!("f{number}")).collect();
        let machine = Machine::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        names.iter().step_by(2).for_each(|name| machine.install_with(name, 5, &|at| at as u8 ^ 0x55));
        let (changes, rows) = machine.change();
        assert_eq!((changes.same, changes.stale), (5, 5));
        assert_eq!(rows.iter().filter(|(_, pieces, fits)| *pieces == 3 && *fits).count(), 5);
    }

    #[test]
    fn packages_profile_is_added_without_any_recording() {
        let machine = Machine::new(&[]);
        let root = machine.path.join("root");
        fs::create_dir_all(root.join(&PACKAGE_PROFILES[1..])).unwrap();
        fs::write(root.join(&PACKAGE_PROFILES[1..]).join("a.list"), "/x\n").unwrap();
        fs::write(root.join("x"), [1; 5000]).unwrap();
        fs::remove_dir_all(machine.store.directory()).unwrap();
        machine.store.make().unwrap();
        let changes = fit_profile(&machine.store, &Root::at(&root).unwrap(), &|message| panic!("{message}")).unwrap();
        let profile = ahead_files::load(&machine.store.profile_path()).unwrap();
        assert_eq!((changes.packages, profile.files[0].used_bytes(), profile.recording.runs), (1, 5000, 1));
    }

    #[test]
    fn damaged_profile_is_made_again_or_an_error() {
        let machine = Machine::new(&["a"]);
        fs::write(machine.store.profile_path(), "half").unwrap();
        assert_eq!(fit_profile(&machine.store, &Root::default(), &|_| ()).unwrap().same, 1);
        for recording in ["boot-1.ahead", "boot-2.ahead"] {
            fs::remove_file(machine.store.directory().join(recording)).unwrap();
        }
        fs::write(machine.store.profile_path(), "half").unwrap();
        let error = fit_profile(&machine.store, &Root::default(), &|_| ()).unwrap_err().to_string();
        assert!(error.contains("replay.ahead: truncated") || error.contains("not an ahead profile"), "{error}");
        assert_eq!(fs::read(machine.store.profile_path()).unwrap(), b"half");
    }
}
