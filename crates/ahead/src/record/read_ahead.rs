//! Whether read-ahead stayed off, as a precise recording claims: what is recorded may have set it, or mounted what has its
//! own.

use ahead_model::{DeviceNumber, sorting};
use ahead_profile::Profile;
use ahead_sys::{bdi, openat};
use std::fs;
use std::path::{Path, PathBuf};

/// The settings, of all devices of the machine, that were not 0 at some moment.
#[derive(Debug, Default)]
pub struct SwitchedOn {
    /// In `/sys/class/bdi`, by entry.
    windows: Vec<PathBuf>,
    /// In `/sys/fs/ext4`, by entry.
    inode_tables: Vec<PathBuf>,
}

impl SwitchedOn {
    /// As things stand.
    pub fn now() -> SwitchedOn {
        SwitchedOn {
            windows: entries_that_are_on("/sys/class/bdi", "read_ahead_kb"),
            inode_tables: entries_that_are_on("/sys/fs/ext4", "inode_readahead_blks"),
        }
    }

    /// The setting of a device from which something was read, if it is one of these.
    pub fn of_any_in<'a>(&'a self, profile: &Profile) -> Option<&'a Path> {
        let files = profile.files.iter().map(|file| file.device);
        let devices = sorting::set_of(files.chain(profile.metadata.iter().map(|m| m.device)));
        devices.into_iter().find_map(|device| self.window_of(device).or_else(|| self.inode_table_of(device)))
    }

    fn window_of(&self, device: u64) -> Option<&Path> {
        let own = bdi::read_ahead_file(DeviceNumber::from_key(device)).and_then(|file| fs::canonicalize(file).ok());
        let governs = |window: &&PathBuf| match &own {
            Some(own) => fs::canonicalize(window).is_ok_and(|window| window == *own),
            // A file system whose backing device is numbered by itself (btrfs): any that no device's number names.
            None => !is_named_by_number(window),
        };
        self.windows.iter().find(governs).map(PathBuf::as_path)
    }

    fn inode_table_of(&self, device: u64) -> Option<&Path> {
        let node = openat::block_device_node(device).ok()?;
        let is_own = |table: &&PathBuf| entry_name(table) == node.file_name();
        self.inode_tables.iter().find(is_own).map(PathBuf::as_path)
    }
}

fn entries_that_are_on(directory: &str, setting: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_on = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text.trim() != "0");
    entries.map(|entry| entry.path().join(setting)).filter(is_on).collect()
}

fn entry_name(setting: &Path) -> Option<&std::ffi::OsStr> {
    setting.parent()?.file_name()
}

fn is_named_by_number(window: &Path) -> bool {
    let name = entry_name(window).and_then(|name| name.to_str()).unwrap_or_default();
    name.bytes().all(|byte| byte.is_ascii_digit() || byte == b':')
}
