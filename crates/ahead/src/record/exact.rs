//! Settings for exact recordings.
//!
//! ```text
//!     one page per fault (debugfs)?  ──yes, and hits are seen──▶ read-ahead stays on: an event for each page that is used
//!                 └──no──▶ read-ahead off: every page that is read was used          └─ windows are limited, inode tables not read ahead
//! ```
//!
//! During any recording, a fault maps only its page, if the kernel permits that setting. Otherwise a fault maps the cached
//! pages among the 16 pages around it, and which of them the program touches is unknown. The setting is in debugfs, which a
//! locked-down kernel refuses. Then a precise recording needs read-ahead off on every file system, wherever it is mounted: with
//! the window at 0, read(2) loads only its pages, one by one, and a fault loads only its page.
//!
//! Metadata of ext4 is seen when it is read, not when it is used. So in every cold recording, ext4 reads no inode tables ahead (32
//! blocks by default). Only reads that a file system needs for a lookup remain: in ext4 up to 8 blocks of a directory at once. Every other
//! run needs them, too, so they count as used. With read-ahead on, listing a directory of several blocks reads blocks after them, too.

use super::single_faults::{SETTING, SingleFaults};
use ahead_process::undo::machine_lock::MachineLock;
use ahead_process::undo::{Guard, ProcessId};
use ahead_sys::{Error, Result, machine};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Switches read-ahead off until the guards are dropped. Needs root, a writable sysfs, and the machine-wide lock.
pub fn switch_read_ahead_off(_lock: &MachineLock) -> Result<Vec<Guard>> {
    // All backing devices, instead of the mount table's: the BDI of btrfs has no device number, and mounts in containers are
    // not visible here.
    let mut files = settings_below("/sys/class/bdi", "read_ahead_kb");
    files.extend(settings_below("/sys/fs/ext4", "inode_readahead_blks"));
    switch_off(files)
}

/// Makes ext4 read no inode tables ahead, and limits every window to [`WINDOW_KB`], until the guards are dropped. As
/// [`switch_read_ahead_off`].
pub fn limit_read_ahead(_lock: &MachineLock) -> Result<Vec<Guard>> {
    let mut windows = settings_below("/sys/class/bdi", "read_ahead_kb");
    windows.retain(|file| number_in(file).is_some_and(|now_kb| now_kb > WINDOW_KB));
    let limited = set_all(windows, &WINDOW_KB.to_string());
    let tables = switch_off(settings_below("/sys/fs/ext4", "inode_readahead_blks"));
    Ok(limited?.into_iter().chain(tables?).collect())
}

/// The kernel's default window before Linux 6.17, KiB. A larger window has larger folios, up to huge pages, and faults map a folio completely:
/// with 8 MiB, 6 to 19 % of the recorded pages of three of five programs were mapped in this way only (Linux 6.18, ext4), and with 128
/// KiB 1 to 3 %.
const WINDOW_KB: u64 = 128;

/// The first Linux whose faults map all pages of a folio ("mm/fault: try to map the entire file folio in finish_fault()"), not
/// only of a huge page.
const FOLIOS_MAPPED_SINCE: (u32, u32) = (6, 18);

/// Size of the smallest folio that one fault maps completely, pages.
pub fn mapped_folio_pages() -> u64 {
    let release = machine::kernel_release();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= FOLIOS_MAPPED_SINCE {
        return 2;
    }
    let huge_page = number_in(Path::new("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"));
    huge_page.map_or(u64::MAX, |bytes| bytes / machine::page_size())
}

fn number_in(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn switch_off(mut files: Vec<PathBuf>) -> Result<Vec<Guard>> {
    files.retain(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0"));
    set_all(files, "0")
}

fn set_all(files: Vec<PathBuf>, value: &str) -> Result<Vec<Guard>> {
    let switched = files.iter().map(|file| match ahead_process::undo::set_file(file, value) {
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
        guards.push(ahead_process::undo::create_directory(own, &directory)?);
        guards.push(ahead_process::undo::mounts::mount_noted(
            own,
            Path::new("ahead"),
            &directory,
            "debugfs",
            false,
            "",
        )?);
    }
    // The last change is undone first, also if the setting cannot be changed.
    guards.reverse();
    SingleFaults::switch(directory.join(SETTING), guards)
}
