//! The disks there are: one JSON file each under `/run/ahead/disk`, readable by everybody.

use crate::name::is_valid_name;
use crate::{Error, Floor, ModelSource, Punctuality, Result};
use ahead_device::Model;
use ahead_model::DeviceNumber;
use ahead_process::Signals;
use ahead_undo::home;
use ahead_undo::{Guard, ProcessId};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the disks live. What is left there is removed by `ahead restore` or the next boot.
pub const HOME: &str = "/run/ahead/disk";

/// Makes the directory of the disks.
pub fn make_home() -> Result<()> {
    Ok(home::make_directory("emulating a disk", Path::new(HOME))?)
}

/// Serialises who takes a loop device and sets its queue with who gives one back, until its queue is set back. A free device is
/// taken at once by the next one, who would note what the last one had set as what was there before.
const TURN: &str = "/run/ahead/loop-devices.lock";

/// How long others may have their turn. To take a disk down takes half a minute at worst, and some may be before us.
const TURN_TIME: Duration = Duration::from_secs(300);

/// Waits for the others. Held until the file is closed. A signal ends the wait; `interrupted`: with which error.
pub fn take_turn(signals: &Signals, interrupted: fn(i32) -> Error) -> Result<File> {
    let file = home::open_lock("emulating a disk", Path::new(TURN))?;
    home::lock_within(&file, Path::new(TURN), TURN_TIME, |pause| match signals.wait(Some(pause))? {
        Some(signal) => Err(interrupted(signal.number)),
        None => Ok(()),
    })?;
    Ok(file)
}

/// An emulated disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Its name.
    pub name: String,
    /// The image behind it, absolute.
    pub image: PathBuf,
    /// Its model.
    pub model: ModelSource,
    /// Its size, bytes.
    pub capacity_bytes: u64,
    /// `/dev/loopN`.
    pub device: PathBuf,
    /// The number of `device`, as stat and diskstats report it.
    pub device_number: DeviceNumber,
    /// Where it is mounted.
    pub mount: Option<PathBuf>,
    /// The file system on it, as mount(8) names it.
    pub filesystem: Option<String>,
    /// No writes.
    pub read_only: bool,
    /// Reads are served from a copy in memory.
    pub preload: bool,
    /// The read-ahead window it was given, KiB.
    pub read_ahead_kb: u64,
    /// How fast the rig is without a model.
    pub floor: Floor,
    /// How true its times were when it was attached, at each depth of its model.
    pub punctuality: Vec<Punctuality>,
    /// The model is faster than the rig can be, or its times were not true: they are not the model's.
    pub beyond_rig: bool,
    /// Why, in one line.
    pub beyond_rig_why: Option<String>,
    /// The daemon that serves it.
    pub daemon: ProcessId,
}

impl DiskInfo {
    /// Whether its daemon runs. A disk whose daemon was killed only gives errors; `ahead restore` removes it.
    pub fn is_alive(&self) -> bool {
        self.daemon.is_alive()
    }

    /// Its model, for whoever wants to ask it.
    pub fn model(&self) -> Result<Model> {
        self.model.model()
    }
}

/// The paths of one disk.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Where the FUSE file system is mounted.
    pub directory: PathBuf,
    /// The file that the loop device opens.
    pub file: PathBuf,
    /// What the disk is.
    pub state: PathBuf,
    /// Where the daemon answers.
    pub socket: PathBuf,
    /// What the daemon has to say.
    pub log: PathBuf,
}

/// The one file in the FUSE file system.
pub const FILE_NAME: &str = "image";

impl Paths {
    /// The files of the disk of this name.
    pub fn of(name: &str) -> Paths {
        let home = Path::new(HOME);
        let directory = home.join(name);
        Paths {
            file: directory.join(FILE_NAME),
            directory,
            state: home.join(format!("{name}.json")),
            socket: home.join(format!("{name}.sock")),
            log: home.join(format!("{name}.log")),
        }
    }
}

/// Writes what the disk is, under a guard that removes it. Whoever reads half of it sees no disk, as a moment before.
pub fn write(info: &DiskInfo) -> Result<Guard> {
    let path = Paths::of(&info.name).state;
    let what = || format!("write {}", path.display());
    let text = serde_json::to_vec_pretty(info).map_err(|e| Error::io(what(), std::io::Error::other(e)))?;
    let (mut file, guard) = ahead_undo::create_file(info.daemon, &path, 0o644)?;
    file.write_all(&text).map_err(|e| Error::io(what(), e))?;
    Ok(guard)
}

/// All emulated disks, by name; also those whose daemon was killed ([`DiskInfo::is_alive`]).
pub fn list() -> Result<Vec<DiskInfo>> {
    list_in(Path::new(HOME))
}

fn list_in(home: &Path) -> Result<Vec<DiskInfo>> {
    // Root takes down what the files there name: nobody else may have written them.
    if !home::look_for_directory("listing emulated disks", home)? {
        return Ok(Vec::new());
    }
    let entries = match std::fs::read_dir(home) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(format!("list {}", home.display()), e)),
    };
    let mut disks: Vec<DiskInfo> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok())
        .filter(|info: &DiskInfo| is_valid_name(&info.name))
        .collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(disks)
}

/// The disk with this name, image, device or mount point.
pub fn find(text: &str) -> Result<DiskInfo> {
    let path = std::fs::canonicalize(text).unwrap_or_else(|_| PathBuf::from(text));
    let disks = list()?;
    let named = disks.iter().find(|disk| disk.name == text);
    let found = named.or_else(|| {
        disks.iter().find(|disk| disk.image == path || disk.device == path || disk.mount.as_deref() == Some(&path))
    });
    found.cloned().ok_or_else(|| Error::Unknown(text.into()))
}

/// The living disk with this device number.
pub fn find_by_device(device: DeviceNumber) -> Option<DiskInfo> {
    list().ok()?.into_iter().find(|disk| disk.device_number == device && disk.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_disks_are_passed_over() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("broken.json"), "{").unwrap();
        std::fs::write(home.path().join("x.log"), "text").unwrap();
        assert_eq!(list_in(home.path()).unwrap(), []);
        assert_eq!(list_in(&home.path().join("missing")).unwrap(), []);
    }

    #[test]
    fn a_disk_that_is_not_there_is_not_found() {
        assert!(matches!(find("no such disk"), Err(Error::Unknown(_))));
    }
}
