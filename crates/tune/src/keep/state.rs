//! What was set before, as it is written down, and whose window it is now.
//!
//! A state is found by the window and not by the name of its file: the same window is come to by a disk, by each of its partitions,
//! and by every place where a file system is mounted, each with a name of its own.
//!
//! ```text
//!     the same start of the machine, the number, and a disk's sequence number or a mount's source      ──▶ the window that was set
//!     otherwise what the rule names (it has set another window since: after a restart, say)            ──▶ the window that it has set
//! ```

use super::files::{TEMPORARY, remove, replace, temporary};
use super::{STATES, Store};
use crate::identity::Identity;
use crate::{Error, Result, System, Target};
use ahead_model::DeviceNumber;
use ahead_sys::mounts::Mount;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Longer than any state of ours: hostile beyond.
pub(super) const LONGEST_BYTES: u64 = 1 << 16;
/// Before the number in the name of a state whose device has no identity.
const BY_NUMBER: &str = "bdi-";

/// What was set, and what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The target's name at that time.
    pub name: String,
    /// What tells it from others, if anything does.
    pub identity: Option<Identity>,
    /// Its window before the first change, KiB.
    pub previous_kb: u64,
    /// What we set, KiB.
    pub applied_kb: u64,
    /// All that we have set since then, KiB: written down before it is set, so that one that is killed in between leaves a window
    /// that is known as ours.
    #[serde(default)]
    pub written_kb: Vec<u64>,
    /// Whose window it was; none in states of older versions.
    #[serde(default)]
    pub window: Option<Window>,
    /// Directories that were made for it or for another target, below the root, the deepest first.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
}

/// Which window was set: numbers are given again to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Which start of the machine it was.
    pub boot: Option<String>,
    /// The backing device's number.
    pub number: DeviceNumber,
    /// Which of the disks that have had this number; null where the kernel does not tell, and of a mount.
    pub diskseq: Option<u64>,
    /// Its file.
    pub setting: PathBuf,
}

impl Window {
    pub(super) fn of(system: &System, target: &Target) -> Window {
        let diskseq = system.diskseq(target.number);
        Window { boot: system.boot(), number: target.number, diskseq, setting: target.setting.clone() }
    }
}

/// A state, with the name under which it is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub key: String,
    pub state: Settings,
}

/// Where the window of a state is now.
pub(super) enum Place {
    /// Its setting.
    Here(PathBuf),
    /// The window is not there any more.
    Gone,
    /// It is there, but it is not known which one it is; why.
    Unknown(String),
}

impl Settings {
    /// Whether we set this.
    pub(super) fn is_ours(&self, kb: u64) -> bool {
        self.applied_kb == kb || self.written_kb.contains(&kb)
    }
}

/// The name for a device that has no identity.
pub(super) fn key_by_number(number: DeviceNumber) -> String {
    format!("{BY_NUMBER}{}-{}", number.major, number.minor)
}

impl Kept {
    pub(super) fn place(&self, system: &System) -> Place {
        let mounts = system.mounts().unwrap_or_default();
        let own = self.state.window.as_ref().filter(|window| window.boot == system.boot() && window.setting.exists());
        if let Some(window) = own.filter(|window| self.is_still(system, &mounts, window)) {
            return Place::Here(window.setting.clone());
        }
        let mut found = match (&self.state.identity, &self.state.window) {
            (Some(identity), _) => identity.settings(system),
            (None, Some(_)) => Vec::new(),
            // Older versions wrote down nothing else.
            (None, None) => {
                let number = self.key.strip_prefix(BY_NUMBER).and_then(|number| number.replace('-', ":").parse().ok());
                number.and_then(|number| system.governing(number)).map(|(_, setting)| setting).into_iter().collect()
            }
        };
        found.iter_mut().for_each(|setting| *setting = fs::canonicalize(&setting).unwrap_or_default());
        found.sort_unstable();
        found.dedup();
        match (found.pop(), found.len()) {
            (Some(setting), 0) => Place::Here(setting),
            (Some(_), _) => Place::Unknown("several devices are named as it is".into()),
            (None, _) => match own.filter(|window| is_hidden(system, &mounts, window)) {
                Some(_) => Place::Unknown("it is mounted where it cannot be seen from here".into()),
                None => Place::Gone,
            },
        }
    }

    /// Whether it has the number still.
    fn is_still(&self, system: &System, mounts: &[Mount], window: &Window) -> bool {
        if is_of_device(window) {
            return system.diskseq(window.number) == window.diskseq;
        }
        // Of what has no device, the number is given again as soon as it is unmounted.
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

/// Whether a window without a device is there, and nothing that is mounted here has it.
fn is_hidden(system: &System, mounts: &[Mount], window: &Window) -> bool {
    !is_of_device(window) && !mounts.iter().any(|mount| number_of(system, mount) == Some(window.number))
}

/// Whether two paths lead to one setting.
fn is_same(one: &Path, other: &Path) -> bool {
    one == other || matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

impl Store {
    /// All that is kept; what is damaged with the reason.
    pub(super) fn kept(&self) -> Result<Vec<(String, Result<Settings>)>> {
        let states = self.keys()?.into_iter().map(|key| (self.state(&key), key));
        Ok(states.filter_map(|(state, key)| Some((key, state.transpose()?))).collect())
    }

    /// What is kept of a target's window, under whatever name.
    ///
    /// Errors: the state of the target's own name is damaged. Others' are told when they are looked at.
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
                Place::Here(setting) => is_same(&setting, &target.setting),
                Place::Gone => Some(&kept.key) == own.as_ref(),
                Place::Unknown(_) => false,
            };
            if is_its {
                found.push(kept);
            }
        }
        Ok(found)
    }

    /// Of whom something is kept.
    fn keys(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(self.at(Path::new(STATES))) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::io("list what is kept", e))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut keys: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
        keys.sort();
        Ok(keys)
    }

    pub(super) fn state_file(&self, key: &str) -> PathBuf {
        self.at(Path::new(STATES)).join(format!("{key}.json"))
    }

    pub(super) fn state(&self, key: &str) -> Result<Option<Settings>> {
        let path = self.state_file(key);
        match fs::metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() <= LONGEST_BYTES => {}
            Ok(_) => return Err(Error::State { path, why: "it is too long".into() }),
            Err(e) => return Err(Error::io(format!("look at {}", path.display()), e)),
        }
        let text = fs::read(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
        serde_json::from_slice(&text).map(Some).map_err(|e| Error::State { path, why: e.to_string() })
    }

    pub(super) fn write_state(&self, key: &str, state: &Settings) -> Result<()> {
        let text = serde_json::to_string_pretty(state).expect("plain values");
        replace(&self.state_file(key), &(text + "\n"))
    }

    /// Removes a state, and the directories that were made, as long as nobody has put anything into them.
    pub(super) fn forget(&self, key: &str, state: &Settings) -> Result<()> {
        let file = self.state_file(key);
        remove(&temporary(&file))?;
        remove(&file)?;
        state.directories.iter().for_each(|directory| drop(fs::remove_dir(self.at(directory))));
        Ok(())
    }

    /// Removes what one that was killed has left before its first state was whole.
    pub(super) fn sweep(&self) -> Result<()> {
        let directory = self.at(Path::new(STATES));
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut left = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(TEMPORARY));
        left.try_for_each(|entry| remove(&entry.path()).map(drop))?;
        // The directories of states: nothing says who has made them, but nothing else lies there, and they go only if they are empty.
        directory.ancestors().take(2).for_each(|directory| drop(fs::remove_dir(directory)));
        Ok(())
    }
}
