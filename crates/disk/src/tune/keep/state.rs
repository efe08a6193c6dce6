//! Recorded states: the earlier window, and which window it is now.
//!
//! A state is found by its window, not by its file name. A disk, each of its partitions and every mount point of its file
//! systems reach the same window, each with another name.
//!
//! ```text
//!     same boot, same device number, same disk sequence number or mount source      ──▶ the window that was set
//!     otherwise the identity (after a restart the rule has set the window)           ──▶ the window of the device with this identity
//! ```

use super::files::{TEMPORARY, find_place, remove, remove_empty, replace, temporary};
use super::{STATES, Store};
use crate::tune::identity::Identity;
use crate::tune::{Error, Result, System, Target};
use ahead_model::{DeviceNumber, sorting};
use ahead_sys::mounts::Mount;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Maximum size of a state file; longer ones are rejected. Unit: bytes.
pub(super) const LONGEST_BYTES: u64 = 1 << 16;
/// Prefix of the key of a state without an identity, followed by the device number.
const BY_NUMBER: &str = "bdi-";

/// A recorded window: the value that was set, and the earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The target's name at that time.
    pub name: String,
    /// The target's identity, if it has one.
    pub identity: Option<Identity>,
    /// Its window before the first change, KiB.
    pub previous_kb: u64,
    /// The window that we set last, KiB.
    pub applied_kb: u64,
    /// All windows that we have set since, KiB. Recorded before they are set, so that the window of a killed process is known as
    /// ours.
    pub written_kb: Vec<u64>,
    pub window: Window,
    /// Directories created for this or another target, below the root, the deepest first.
    pub directories: Vec<PathBuf>,
}

/// The window that was set. Device numbers are reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The boot id.
    pub boot: Option<String>,
    /// The backing device's number.
    pub number: DeviceNumber,
    /// Disk sequence number; null if the kernel does not report it, and for a mount.
    pub diskseq: Option<u64>,
    /// The `read_ahead_kb` file.
    pub setting: PathBuf,
}

impl Window {
    pub(super) fn of(system: &System, target: &Target) -> Window {
        let diskseq = system.diskseq(target.number);
        Window { boot: system.boot(), number: target.number, diskseq, setting: target.setting.clone() }
    }
}

/// A state and its key.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub key: String,
    pub state: Settings,
}

/// The present window of a state.
pub(super) enum WindowPlace {
    /// It exists; its setting.
    Here(PathBuf),
    /// It does not exist any more.
    Gone,
    /// It exists but cannot be identified; the reason.
    Unknown(String),
}

impl Settings {
    /// Whether we have set this value.
    pub(super) fn is_ours(&self, kb: u64) -> bool {
        self.applied_kb == kb || self.written_kb.contains(&kb)
    }
}

/// The key for a device without an identity.
pub(super) fn key_by_number(number: DeviceNumber) -> String {
    format!("{BY_NUMBER}{}-{}", number.major, number.minor)
}

impl Kept {
    pub(super) fn place(&self, system: &System) -> WindowPlace {
        let mounts = system.mounts().unwrap_or_default();
        let own = Some(&self.state.window)
            .filter(|window| window.boot == system.boot() && is_setting(system, &window.setting));
        if let Some(window) = own.filter(|window| self.is_still(system, &mounts, window)) {
            return WindowPlace::Here(window.setting.clone());
        }
        let mut found = self.state.identity.as_ref().map(|identity| identity.settings(system)).unwrap_or_default();
        found.iter_mut().for_each(|setting| *setting = fs::canonicalize(&setting).unwrap_or_default());
        sorting::sort(&mut found);
        found.dedup();
        match (found.pop(), found.len()) {
            (Some(setting), 0) => WindowPlace::Here(setting),
            (Some(_), _) => WindowPlace::Unknown("several devices have its identity".into()),
            (None, _) => match own.filter(|window| is_hidden(system, &mounts, window)) {
                Some(_) => WindowPlace::Unknown("it is mounted in another mount namespace".into()),
                None => WindowPlace::Gone,
            },
        }
    }

    /// Whether the window still belongs to the same device or mount.
    fn is_still(&self, system: &System, mounts: &[Mount], window: &Window) -> bool {
        if is_of_device(window) {
            return system.diskseq(window.number) == window.diskseq;
        }
        // The number of a mount without a device is reused as soon as it is unmounted.
        let is_it = |mount: &Mount| {
            number_of(system, mount) == Some(window.number) && String::from_utf8_lossy(&mount.source) == self.state.name
        };
        mounts.iter().any(is_it)
    }
}

fn is_of_device(window: &Window) -> bool {
    !window.number.is_anonymous()
}

fn number_of(system: &System, mount: &Mount) -> Option<DeviceNumber> {
    system.governing_mount(mount).map(|(number, _)| number)
}

/// Whether a window without a device exists, but no mount here has it.
fn is_hidden(system: &System, mounts: &[Mount], window: &Window) -> bool {
    !is_of_device(window) && !mounts.iter().any(|mount| number_of(system, mount) == Some(window.number))
}

/// Whether a path is that of a window: a state in a tree of another user may name any file.
fn is_setting(system: &System, path: &Path) -> bool {
    let is_below = |path: PathBuf| fs::canonicalize(system.sys("")).is_ok_and(|sys| path.starts_with(sys));
    path.ends_with("read_ahead_kb") && fs::canonicalize(path).is_ok_and(is_below)
}

/// Whether two paths lead to the same setting.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

impl Store {
    /// All states by key; errors for damaged ones.
    pub(super) fn kept(&self) -> Result<Vec<(String, Result<Settings>)>> {
        let states = self.keys()?.into_iter().map(|key| (self.state(&key), key));
        Ok(states.filter_map(|(state, key)| Some((key, state.transpose()?))).collect())
    }

    /// The states of a target's window, under any key.
    ///
    /// Errors: the state under the target's own key is damaged. Others are reported when they are restored.
    pub(super) fn of_window(&self, target: &Target) -> Result<Vec<Kept>> {
        let own = target.identity.as_ref().ok().map(Identity::file_name);
        let mut found = Vec::new();
        for (key, state) in self.kept()? {
            let is_own = Some(&key) == own.as_ref() || key == key_by_number(target.number);
            let kept = match state {
                Ok(state) => Kept { key, state },
                Err(error) if is_own => return Err(error),
                Err(_) => continue,
            };
            let is_its = match kept.place(&self.system) {
                WindowPlace::Here(setting) => is_same(&setting, &target.setting),
                WindowPlace::Gone => Some(&kept.key) == own.as_ref(),
                WindowPlace::Unknown(_) => false,
            };
            if is_its {
                found.push(kept);
            }
        }
        Ok(found)
    }

    /// The keys of all states.
    fn keys(&self) -> Result<Vec<String>> {
        let Some(place) = find_place(&self.system.kept, &self.state_file(""))? else { return Ok(Vec::new()) };
        let entries = fs::read_dir(place.directory().descriptor_path());
        let entries = entries.map_err(|e| Error::io("list the recorded windows", e))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut keys: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
        sorting::sort(&mut keys);
        Ok(keys)
    }

    pub(super) fn state_file(&self, key: &str) -> PathBuf {
        self.at(Path::new(STATES)).join(format!("{key}.json"))
    }

    pub(super) fn state(&self, key: &str) -> Result<Option<Settings>> {
        let path = self.state_file(key);
        let Some(place) = find_place(&self.system.kept, &path)? else { return Ok(None) };
        match fs::metadata(place.path()) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() <= LONGEST_BYTES => {}
            Ok(_) => return Err(Error::State { path, why: "it is too long".into() }),
            Err(e) => return Err(Error::io(format!("stat {}", path.display()), e)),
        }
        let text = fs::read(place.path()).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
        serde_json::from_slice(&text).map(Some).map_err(|e| Error::State { path, why: e.to_string() })
    }

    pub(super) fn write_state(&self, key: &str, state: &Settings) -> Result<()> {
        let text = serde_json::to_string_pretty(state).expect("plain values");
        replace(&self.system.kept, &self.state_file(key), &(text + "\n"))
    }

    /// Removes a state, and created directories that are empty.
    pub(super) fn forget(&self, key: &str, state: &Settings) -> Result<()> {
        let file = self.state_file(key);
        remove(&self.system.kept, &temporary(&file))?;
        remove(&self.system.kept, &file)?;
        state.directories.iter().for_each(|directory| remove_empty(&self.system.kept, &self.at(directory)));
        Ok(())
    }

    /// Removes temporary files of a process that was killed before its first state was complete.
    pub(super) fn remove_partial_files(&self) -> Result<()> {
        let directory = self.at(Path::new(STATES));
        if let Some(place) = find_place(&self.system.kept, &self.state_file(""))? {
            let names = place.directory().names()?;
            let mut left = names.iter().filter(|name| name.to_string_lossy().ends_with(TEMPORARY));
            left.try_for_each(|name| place.directory().remove_file(name))?;
        }
        // The directories of states: it is not recorded which process created them, so they are removed only if empty.
        directory.ancestors().take(2).for_each(|directory| remove_empty(&self.system.kept, directory));
        Ok(())
    }
}
