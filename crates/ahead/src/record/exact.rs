//! Making reads exact.
//!
//! For the time of a precise recording, nothing is read ahead on any file system, wherever it is mounted.
//!
//! With the window at 0, read(2) brings its pages one by one and a fault brings its page alone. ext4 also reads inode
//! tables ahead by itself (32 blocks); 0 is a value that it accepts. What is left are the reads that a file system needs
//! for a lookup: up to 8 blocks of a directory at once in ext4. They would be read again in any other run, so they count.
//!
//! For the time of any recording, a fault maps its page alone, where the kernel lets us say so. Otherwise it maps the 16
//! pages around it, those that are in the cache, and which of them the program touches then nobody can tell. The setting
//! is in debugfs, which a locked-down kernel does not give away: then those windows are an upper bound of what was used.

use super::single_faults::SingleFaults;
use ahead_sys::{Error, Result};
use ahead_undo::machine_lock::MachineLock;
use ahead_undo::{Guard, ProcessId};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Switches read-ahead off until the guards are dropped. Needs root, a writable sysfs, and that nobody else does it.
pub fn switch_read_ahead_off(_lock: &MachineLock) -> Result<Vec<Guard>> {
    // Not by the devices of the mount table: the backing devices of btrfs are numbered by themselves, and containers
    // have mounts that we do not see.
    let mut files = settings_below("/sys/class/bdi", "read_ahead_kb");
    files.extend(settings_below("/sys/fs/ext4", "inode_readahead_blks"));
    files.retain(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0"));
    let switched = files.iter().map(|file| match ahead_undo::set_file(file, "0") {
        // Its device has gone since they were listed, and nothing can be read from it.
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

/// A setting of every device that has it.
fn settings_below(directory: &str, name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().join(name)).filter(|file| file.exists()).collect()
}

const DEBUGFS: &str = "/sys/kernel/debug";
pub(super) const SETTING: &str = "fault_around_bytes";

/// Makes faults map one page each, on the whole machine, until what this gives is dropped. Needs root.
///
/// # Errors
/// Where the kernel has no debugfs, or does not let it be written (lockdown).
pub fn switch_fault_around_off() -> Result<SingleFaults> {
    let mut guards = Vec::new();
    let mut directory = PathBuf::from(DEBUGFS);
    if !directory.join(SETTING).exists() {
        // Each process its own, so that none takes it away from another.
        let own = ProcessId::own()?;
        directory = format!("/run/ahead/debugfs-{}-{}", own.pid, own.start_ticks).into();
        guards.push(ahead_undo::create_directory(own, &directory)?);
        guards.push(ahead_undo::mounts::mount_noted(own, Path::new("ahead"), &directory, "debugfs", false, "")?);
    }
    // What was done last is undone first, also when the setting cannot be changed.
    guards.reverse();
    SingleFaults::switch(directory.join(SETTING), guards)
}
