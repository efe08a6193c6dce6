//! The list of disks: one JSON file each under `/run/ahead/disk`, readable by all users.

use crate::name::is_valid_name;
use crate::{Error, Floor, ModelSource, Punctuality, Result};
use ahead_device::Model;
use ahead_model::DeviceNumber;
use ahead_model::sorting;
use ahead_process::Signals;
use ahead_process::undo::home;
use ahead_process::undo::{Guard, ProcessId};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of disks. `ahead restore` or the next boot removes its content.
pub const HOME: &str = "/run/ahead/disk";

/// Creates the directory of disks.
pub fn make_home() -> Result<()> {
    Ok(home::make_directory("emulating a disk", Path::new(HOME))?)
}

/// Serialises attaching a loop device and setting its queue with detaching one, until its queue is restored. Otherwise the next
/// process could attach a free device at once, and record the settings of the last one as the earlier ones.
const TURN: &str = "/run/ahead/loop-devices.lock";

/// Timeout for the lock. Detaching a disk takes half a minute at worst, and several processes may wait.
const TURN_TIME: Duration = Duration::from_secs(300);

/// Waits for the lock, which is held until the file is closed. A signal ends the wait with the error from `interrupted`.
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
    pub name: String,
    /// The path of the image, absolute.
    pub image: PathBuf,
    pub model: ModelSource,
    /// Its size, bytes.
    pub capacity_bytes: u64,
    /// `/dev/loopN`.
    pub device: PathBuf,
    /// The number of `device`, as stat and diskstats report it.
    pub device_number: DeviceNumber,
    /// Its mount point.
    pub mount: Option<PathBuf>,
    /// The file system on it, as mount(8) names it.
    pub filesystem: Option<String>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether reads are served from a copy in memory.
    pub preload: bool,
    /// The initial read-ahead window, KiB.
    pub read_ahead_kb: u64,
    /// The speed of the emulation without a model.
    pub floor: Floor,
    /// The timing accuracy when it was attached, at each depth of its model.
    pub punctuality: Vec<Punctuality>,
    /// Whether the model is faster than the emulation, or times were inaccurate: then times differ from the model's.
    pub beyond_rig: bool,
    /// The reason, in one line.
    pub beyond_rig_why: Option<String>,
    /// The daemon that serves it.
    pub daemon: ProcessId,
}

impl DiskInfo {
    /// Whether its daemon runs. A disk whose daemon was killed returns only errors; `ahead restore` removes it.
    pub fn is_alive(&self) -> bool {
        self.daemon.is_alive()
    }

    /// The parsed model.
    pub fn model(&self) -> Result<Model> {
        self.model.model()
    }
}

/// The paths of one disk.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The mount point of the FUSE file system.
    pub directory: PathBuf,
    /// The file that the loop device opens.
    pub file: PathBuf,
    /// The description of the disk.
    pub state: PathBuf,
    /// The socket of the daemon.
    pub socket: PathBuf,
    /// The daemon's log.
    pub log: PathBuf,
}

/// The name of the only file in the FUSE file system.
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

/// Writes the description of a disk, under a guard that removes it. Readers skip a partial file.
pub fn write(info: &DiskInfo) -> Result<Guard> {
    let path = Paths::of(&info.name).state;
    let what = || format!("write {}", path.display());
    let text = serde_json::to_vec_pretty(info).map_err(|e| Error::io(what(), std::io::Error::other(e)))?;
    let (mut file, guard) = ahead_process::undo::create_file(info.daemon, &path, 0o644)?;
    file.write_all(&text).map_err(|e| Error::io(what(), e))?;
    Ok(guard)
}

/// All emulated disks, by name, including those whose daemon was killed ([`DiskInfo::is_alive`]).
pub fn list() -> Result<Vec<DiskInfo>> {
    list_in(Path::new(HOME))
}

fn list_in(home: &Path) -> Result<Vec<DiskInfo>> {
    // Root detaches the devices named there, so only root may have written the files.
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
    sorting::sort_by(&mut disks, |a, b| a.name.cmp(&b.name));
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

/// The disk with this name, image, device or mount point; without one, the only disk.
pub fn find_or_only(text: Option<&str>) -> Result<DiskInfo> {
    if let Some(text) = text {
        return find(text);
    }
    let mut disks = list()?;
    match disks.len() {
        1 => Ok(disks.remove(0)),
        0 => Err(Error::Invalid("there is no emulated disk".into())),
        count => Err(Error::Invalid(format!("there are {count} emulated disks: name one of `ahead disk list`"))),
    }
}

/// The running disk with this device number.
pub fn find_by_device(device: DeviceNumber) -> Option<DiskInfo> {
    list().ok()?.into_iter().find(|disk| disk.device_number == device && disk.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_files_are_skipped() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("broken.json"), "{").unwrap();
        std::fs::write(home.path().join("x.log"), "text").unwrap();
        assert_eq!(list_in(home.path()).unwrap(), []);
        assert_eq!(list_in(&home.path().join("missing")).unwrap(), []);
    }

    #[test]
    fn missing_disk_is_unknown() {
        assert!(matches!(find("no such disk"), Err(Error::Unknown(_))));
    }
}
