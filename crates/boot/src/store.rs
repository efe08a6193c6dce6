//! The recordings of boots, and what is known about the last ones.
//!
//! ```text
//!     /var/lib/ahead/boot/ROOT-KERNEL/boot-17.ahead … boot-21.ahead   the last recorded boots, by number
//!                                     replay.ahead                    these, merged
//!                                     state.json
//!     /var/lib/ahead/boot/settled-KERNEL                              exists while the next boot is not to be recorded
//! ```
//!
//! ROOT is the UUID of the root file system. Numbers order the recordings, not dates: the clock may be wrong until it is set.

use super::Circumstances;
use super::decision::reason_to_record;
use super::state::{BootState, KEPT_BOOTS};
use ahead::Result;
use ahead::output::system;
use ahead_files::lists::content::ContentReader;
use ahead_files::{MERGED, RecordingStore};
use ahead_process::undo::home;
use ahead_profile::{PathBytes, Profile};
use ahead_sys::directory::Directory;
use ahead_sys::root::Root;
use ahead_sys::{fsuuid, machine, mounts};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of all boots.
pub(super) const HOME: &str = "/var/lib/ahead/boot";
/// Begins the names of recordings.
const RECORDING: &str = "boot";
const STATE: &str = "state.json";
/// With the kernel's release, in the directory of all boots. `ahead-boot-record.service` has it as a condition: no program has to be read
/// from the disk of a boot to say that nothing is due.
const SETTLED: &str = "settled-";
/// In the directory of all boots.
const LOCK: &str = "lock";
/// A state has a few hundred bytes.
const MAX_STATE_BYTES: u64 = 64 << 10;
/// Recordings in one directory that are looked at: more were not written by us.
const MAX_ENTRIES: usize = 1000;

/// The content check of a boot: the pages are resident, so 1 GiB takes less than a second. The service manager waits for 30 s.
const CHECK_BYTES: u64 = 1 << 30;
const CHECK_TIME: Duration = Duration::from_secs(5);

/// Holds the lock of the directory of all boots until it is dropped.
#[derive(Debug)]
pub struct StoreLock {
    _file: fs::File,
}

/// The recordings of one root file system and kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootStore {
    directory: PathBuf,
}

impl BootStore {
    /// That of this machine's root file system and kernel. Reads nothing of it.
    pub fn here() -> BootStore {
        BootStore::below(Path::new(HOME), &root_name(), &machine::kernel_release())
    }

    fn below(home: &Path, root: &str, kernel: &str) -> BootStore {
        BootStore { directory: home.join(plain(&format!("{root}-{kernel}"))) }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of the merged profile.
    pub fn profile_path(&self) -> PathBuf {
        self.directory.join(MERGED)
    }

    /// The profile to replay: that of this kernel, or else the latest of another kernel on the same root. An upgrade of the kernel changes
    /// few of the files that a boot reads.
    pub fn profile_to_replay(&self) -> Option<PathBuf> {
        let own = self.profile_path();
        if own.exists() {
            return Some(own);
        }
        let home = self.directory.parent()?;
        let root = root_name();
        let others = fs::read_dir(home).ok()?.flatten().take(MAX_ENTRIES);
        let of_root = others.filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.strip_prefix(&root).is_some_and(|rest| rest.starts_with('-')))
        });
        let profiles = of_root.map(|entry| entry.path().join(MERGED));
        profiles.filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path))).max().map(|(_, path)| path)
    }

    /// The store in which a profile lies.
    pub(super) fn of_profile(profile: &Path) -> Option<BootStore> {
        Some(BootStore { directory: profile.parent()?.to_path_buf() })
    }

    /// Keeps other processes from changing the directory of all boots: two boots may share it (containers), and a trigger of a package
    /// manager may run while a recording is saved.
    ///
    /// # Errors
    /// The directory cannot be written, other users may write it, or another process has held the lock for `limit`.
    pub fn lock(&self, limit: Duration) -> Result<StoreLock> {
        self.make()?;
        let path = self.home().join(LOCK);
        let file = home::open_lock("change the recordings of boots", &path)?;
        home::lock_within(&file, &path, limit, |pause| {
            std::thread::sleep(pause);
            Ok::<(), ahead_sys::Error>(())
        })?;
        Ok(StoreLock { _file: file })
    }

    /// The state. One that is missing or damaged is that of a machine that knows nothing.
    pub fn state(&self) -> BootState {
        let path = self.directory.join(STATE);
        let read = || -> io::Result<Option<String>> {
            let Ok(directory) = Directory::open(&self.directory) else { return Ok(None) };
            let file = match directory.regular_file(OsStr::new(STATE)) {
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(None),
                file => file.map_err(io::Error::other)?,
            };
            let mut text = String::new();
            file.take(MAX_STATE_BYTES).read_to_string(&mut text)?;
            Ok(Some(text))
        };
        let state = read().and_then(|text| Ok(text.map(|text| serde_json::from_str(&text)).transpose()?));
        state
            .unwrap_or_else(|error| {
                tracing::warn!("{}: skipped: {error}", path.display());
                None
            })
            .unwrap_or_default()
    }

    /// Saves the state.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save_state(&self, state: &BootState) -> Result<()> {
        self.make()?;
        let text = serde_json::to_string(state).map_err(|error| ahead::Error::io("write the state", error.into()))?;
        let is_due = reason_to_record(&Circumstances::default(), state, self.recordings().len()).is_some();
        // In this order: a boot is rather recorded once too often.
        self.unsettle(is_due)?;
        system::replace(&self.directory.join(STATE), text.as_bytes())?;
        if is_due { Ok(()) } else { system::replace(&self.home().join(settled()), b"") }
    }

    fn home(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// For this kernel; if a recording is due, for all kernels and roots. The unit's condition does not know the root: the name of one without a UUID may change, and a disk may be
    /// copied. Other kernels are settled again at the end of their next boot.
    fn unsettle(&self, is_due: bool) -> Result<()> {
        let entries = fs::read_dir(self.home()).into_iter().flatten().flatten().take(MAX_ENTRIES);
        let own = settled();
        let is_settled = |name: &OsStr| {
            if is_due { name.as_encoded_bytes().starts_with(SETTLED.as_bytes()) } else { name == own.as_str() }
        };
        for entry in entries.filter(|entry| is_settled(&entry.file_name())) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ahead::Error::io(format!("remove {}", entry.path().display()), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The profile that this boot replays, without the files that only packages name: no boot has used them yet.
    pub(super) fn replayed(&self) -> Option<Profile> {
        let path = self.profile_to_replay()?;
        let store = BootStore::of_profile(&path)?;
        let recorded = store.kept().ok()?.load_all();
        let files = recorded.iter().flat_map(|recording| &recording.files);
        let recorded: std::collections::HashSet<&PathBytes> = files.map(|file| &file.path).collect();
        let mut profile = ahead_files::load(&path).ok()?;
        profile.files.retain(|file| recorded.contains(&file.path));
        Some(profile)
    }

    /// Creates the directory.
    ///
    /// # Errors
    /// It cannot be created: the file system may be full or read-only.
    pub fn make(&self) -> Result<()> {
        Ok(Root::default().make_directory(&self.directory).map(drop)?)
    }

    /// The numbers of the kept recordings, ascending.
    pub fn recordings(&self) -> Vec<u64> {
        self.kept().map(|kept| kept.numbers()).unwrap_or_default()
    }

    /// Adds a recording, removes the oldest ones, and merges the rest. `alone`: all earlier recordings are removed.
    ///
    /// # Errors
    /// The profiles cannot be written. The merged profile is the earlier one then.
    pub fn add(&self, profile: Profile, alone: bool) -> Result<()> {
        self.make()?;
        Ok(self.kept()?.add(profile, alone, add_checks)?)
    }

    /// Makes the merged profile again from the recordings if it is damaged. Returns whether it was.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn repair(&self) -> Result<bool> {
        let Ok(kept) = self.kept() else { return Ok(false) };
        Ok(kept.repair(add_checks)?)
    }

    /// Changes the entries of all recordings, as those of the merged profile were. `change` returns whether it has changed a profile.
    ///
    /// # Errors
    /// A recording cannot be written.
    pub(super) fn change_recordings(&self, change: impl FnMut(&mut Profile) -> bool) -> Result<()> {
        Ok(self.kept()?.change(change)?)
    }

    fn kept(&self) -> Result<RecordingStore> {
        Ok(RecordingStore::new(Directory::open(&self.directory)?, RECORDING, KEPT_BOOTS))
    }
}

/// The boot is over, and its pages are still resident.
fn add_checks(merged: &mut Profile) {
    ContentReader::new(&Root::default(), CHECK_BYTES, CHECK_TIME).add_checks(merged);
}

/// The name of the file that a settled machine has for this kernel. A release with other characters has no file: the observer starts, and says
/// that nothing is due.
fn settled() -> String {
    format!("{SETTLED}{}", plain(&machine::kernel_release()))
}

/// A release is any text that the builder of the kernel chose.
fn plain(text: &str) -> String {
    let plain = |at: char| if at.is_ascii_alphanumeric() || ".+~_-".contains(at) { at } else { '_' };
    text.chars().map(plain).take(200).collect()
}

/// The root file system: its UUID, or else its type and device.
fn root_name() -> String {
    if let Ok(Some(uuid)) = fsuuid::of(Path::new("/")) {
        return uuid;
    }
    let table = mounts::own().unwrap_or_default();
    let root = mounts::covering(&table, b"/").map(|index| &table[index]);
    root.map_or_else(|| "root".into(), |mount| format!("{}-{}", mount.fs_type, mount.device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Extent, File, Recording};

    fn recording(used: &[u64], created_unix_s: u64) -> Profile {
        let extents = used.iter().map(|page| Extent {
            offset_bytes: page * 4096,
            length_bytes: 4096,
            runs: 1,
            ..Extent::default()
        });
        let file =
            File { path: b"/bin/x".to_vec(), size_bytes: 1 << 20, extents: extents.collect(), ..File::default() };
        Profile {
            recording: Recording { runs: 1, created_unix_s, ..Recording::default() },
            files: vec![file],
            ..Profile::default()
        }
    }

    #[test]
    fn last_recordings_are_kept_and_merged() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1/../../x y");
        assert_eq!(store.directory().parent(), Some(home.path()));
        assert_eq!(store.state(), BootState::default());
        for boot in 0..8u64 {
            store.add(recording(&[0, 10 + 2 * boot], 1000 - boot), false).unwrap();
        }
        assert_eq!(store.recordings(), [4, 5, 6, 7, 8]);
        let merged = ahead_files::load(&store.profile_path()).unwrap();
        let support: Vec<(u64, u32)> =
            merged.files[0].extents.iter().map(|extent| (extent.offset_bytes / 4096, extent.runs)).collect();
        assert_eq!((merged.recording.runs, merged.recording.created_unix_s), (5, 993));
        assert!(support.contains(&(0, 5)) && support.contains(&(24, 1)) && !support.contains(&(14, 1)), "{support:?}");
        store.add(recording(&[3], 5), true).unwrap();
        assert_eq!(store.recordings(), [9]);
    }

    #[test]
    fn damaged_state_and_recordings_are_left_out() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        store.save_state(&BootState { requested: true, ..BootState::default() }).unwrap();
        assert!(store.state().requested);
        fs::write(store.directory().join(STATE), "{\"requested\": 7").unwrap();
        assert_eq!(store.state(), BootState::default());
        fs::write(store.directory().join("boot-1.ahead"), "half of a file").unwrap();
        store.add(recording(&[1], 0), false).unwrap();
        assert_eq!(ahead_files::load(&store.profile_path()).unwrap().recording.runs, 1);
        assert_eq!(store.recordings(), [1, 2]);
    }

    #[test]
    fn recordings_are_ordered_by_number_when_the_clock_jumps_back() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        for (boot, created_unix_s) in [(0, 2_000_000_000), (1, 2_000_000_100), (2, 0), (3, 500)] {
            let mut profile = recording(&[0], created_unix_s);
            // Each boot sees another version: the last one counts, whatever the clock says.
            (profile.files[0].mtime_ns, profile.files[0].size_bytes) = (boot, (1 << 20) + boot as u64);
            store.add(profile, false).unwrap();
        }
        assert_eq!(store.recordings(), [1, 2, 3, 4]);
        let merged = ahead_files::load(&store.profile_path()).unwrap();
        assert_eq!((merged.files[0].mtime_ns, merged.recording.created_unix_s, merged.recording.runs), (3, 500, 4));
    }

    /// Regression: a transaction, or a request, during the observation of a boot was forgotten when the recording was saved.
    #[test]
    fn note_during_a_recording_concerns_the_next_boot() {
        let before = BootState { packages_changed: true, requested: true, transactions: 3, ..BootState::default() };
        let packages = || vec![("a.list".to_owned(), 7)];
        let after = before.after_recording(&before, packages());
        assert_eq!(after, BootState { transactions: 3, known_packages: packages(), ..BootState::default() });
        let noted = BootState { transactions: 4, ..before.clone() };
        // A package that arrived in the middle of the boot is not known to be included.
        assert_eq!(
            noted.after_recording(&before, packages()),
            BootState { packages_changed: true, transactions: 4, ..BootState::default() }
        );
        let requested = BootState { requested: false, ..before.clone() };
        assert!(before.after_recording(&requested, packages()).requested);
    }

    #[test]
    fn hostile_state_is_skipped() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        store.make().unwrap();
        let path = store.directory().join(STATE);
        let deep = "[".repeat(60_000);
        for text in [
            "",
            "{",
            "{\"requested\":",
            "[]",
            "null",
            "{\"transactions\":-1}",
            "{\"known_packages\":{\"a\":1e99}}",
            &deep,
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(store.state(), BootState::default(), "{text:.40}");
        }
        fs::write(&path, vec![b' '; 1 << 20]).unwrap();
        assert_eq!(store.state(), BootState::default());
        fs::remove_file(&path).unwrap();
        // Opening a FIFO would wait for a writer.
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        assert_eq!(store.state(), BootState::default());
    }

    #[test]
    fn settled_store_says_so_until_a_recording_is_due() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        let is_settled = |state: BootState| {
            store.save_state(&state).unwrap();
            home.path().join(settled()).exists()
        };
        assert!(!is_settled(BootState::default()));
        for boot in 0..KEPT_BOOTS as u64 {
            store.add(recording(&[boot], boot), false).unwrap();
        }
        assert!(is_settled(BootState::default()));
        assert!(!is_settled(BootState { requested: true, ..BootState::default() }));
        assert!(is_settled(BootState { stale_percent: 10, ..BootState::default() }));
        assert!(!is_settled(BootState { packages_changed: true, ..BootState::default() }));
        assert!(!is_settled(BootState { stale_percent: 10, stale_limit_percent: Some(9), ..BootState::default() }));
        // Regression: the file of another root with this kernel kept this root from being recorded.
        assert!(is_settled(BootState::default()));
        // A boot of this kernel does not concern another one.
        fs::write(home.path().join("settled-5.0"), "").unwrap();
        assert!(is_settled(BootState::default()) && home.path().join("settled-5.0").exists());
        let other = BootStore::below(home.path(), "other-root", "6.1");
        let _lock = other.lock(Duration::ZERO).unwrap();
        other.save_state(&BootState::default()).unwrap();
        let left = fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.file_name());
        assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(SETTLED)));
        assert!(is_settled(BootState::default()));
    }

    #[test]
    fn files_that_only_packages_name_are_no_part_of_what_boots_used() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), &root_name(), "6.1");
        assert!(store.replayed().is_none());
        store.add(recording(&[0, 3], 5), false).unwrap();
        let mut profile = ahead_files::load(&store.profile_path()).unwrap();
        let named = File { path: b"/only/named".to_vec(), ..profile.files[0].clone() };
        profile.files.push(named);
        ahead_files::save(&profile, &store.profile_path()).unwrap();
        let replayed = store.replayed().unwrap();
        assert_eq!(replayed.files.iter().map(|file| &file.path[..]).collect::<Vec<_>>(), [b"/bin/x"]);
    }

    /// Regression: a damaged profile was replayed by no boot until the next recording, ten boots later.
    #[test]
    fn damaged_profile_is_made_again_from_the_recordings() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        assert!(!store.repair().unwrap());
        store.add(recording(&[0, 3], 5), false).unwrap();
        let whole = fs::read(store.profile_path()).unwrap();
        assert!(!store.repair().unwrap());
        for damaged in [&whole[..whole.len() / 2], b"", b"\x89AHEAD\r\n"] {
            fs::write(store.profile_path(), damaged).unwrap();
            assert!(store.repair().unwrap());
            assert_eq!(fs::read(store.profile_path()).unwrap(), whole);
        }
    }

    #[test]
    fn two_recorders_on_one_store_save_one_after_the_other() {
        let home = tempfile::tempdir().unwrap();
        let store = BootStore::below(home.path(), "root", "6.1");
        let held = store.lock(Duration::ZERO).unwrap();
        let error = store.lock(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("another process has held"), "{error}");
        drop(held);
        std::thread::scope(|scope| {
            for boot in 0..4 {
                let store = store.clone();
                scope.spawn(move || {
                    let _lock = store.lock(Duration::from_secs(60)).unwrap();
                    store.add(recording(&[boot], boot), false).unwrap();
                });
            }
        });
        assert_eq!(store.recordings(), [1, 2, 3, 4]);
        assert_eq!(ahead_files::load(&store.profile_path()).unwrap().recording.runs, 4);
    }
}
