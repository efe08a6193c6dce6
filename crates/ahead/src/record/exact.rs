//! Settings for exact recordings.
//!
//! During a precise recording, read-ahead is off on every file system, wherever it is mounted.
//!
//! With the window at 0, read(2) loads only its pages, one by one, and a fault loads only its page. ext4 also reads inode
//! tables ahead (32 blocks). Its setting may be 0, too. Only reads that a file system needs for a lookup remain: in ext4 up to
//! 8 blocks of a directory at once. Every other run needs them, too, so they count as used.
//!
//! During any recording, a fault maps only its page, if the kernel permits that setting. Otherwise a fault maps the cached
//! pages among the 16 pages around it, and which of them the program touches is unknown. The setting is in debugfs, which a
//! locked-down kernel refuses: then those windows are an upper bound of the used pages.

use super::single_faults::{SETTING, SingleFaults};
use ahead_sys::{Error, Result};
use ahead_undo::machine_lock::MachineLock;
use ahead_undo::{Guard, ProcessId};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Switches read-ahead off until the guards are dropped. Needs root, a writable sysfs, and the machine-wide lock.
pub fn switch_read_ahead_off(_lock: &MachineLock) -> Result<Vec<Guard>> {
    // All backing devices, instead of the mount table's: the BDI of btrfs has no device number, and mounts in containers are
    // not visible here.
    let mut files = settings_below("/sys/class/bdi", "read_ahead_kb");
    files.extend(settings_below("/sys/fs/ext4", "inode_readahead_blks"));
    files.retain(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0"));
    let switched = files.iter().map(|file| match ahead_undo::set_file(file, "0") {
        // The device was removed since the listing, so no process can read from it.
        Err(_) if !file.exists() => Ok(None),
        other => other.map(Some).map_err(as_unavailable),
    });
    switched.filter_map(Result::transpose).collect()
}

/// A container's `/sys` is often read-only.
fn as_unavailable(error: Error) -> Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ROFS | Errno::PERM | Errno::ACCESS) => {
            Error::Unsupported { what: "switching read-ahead off".into(), why: error.to_string() }
        }
        _ => error,
    }
}

/// The files of a setting, for every device that has it.
fn settings_below(directory: &str, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join(name)).filter(|file| file.exists()).collect()
}

const DEBUGFS: &str = "/sys/kernel/debug";

/// Makes faults map only one page, on the whole machine, until the result is dropped. Needs root.
///
/// # Errors
/// The kernel has no debugfs, or refuses writes to it (lockdown).
pub fn switch_fault_around_off() -> Result<SingleFaults> {
    let mut guards = Vec::new();
    let mut directory = PathBuf::from(DEBUGFS);
    if !directory.join(SETTING).exists() {
        // Each process mounts its own, so that none unmounts another's.
        let own = ProcessId::own()?;
        directory = format!("/run/ahead/debugfs-{}-{}", own.pid, own.start_ticks).into();
        guards.push(ahead_undo::create_directory(own, &directory)?);
        guards.push(ahead_undo::mounts::mount_noted(own, Path::new("ahead"), &directory, "debugfs", false, "")?);
    }
    // The last change is undone first, also if the setting cannot be changed.
    guards.reverse();
    SingleFaults::switch(directory.join(SETTING), guards)
}
