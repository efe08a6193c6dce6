//! An instance of tracefs: buffers and settings that no other user of ftrace shares.
//!
//! ```text
//!     mounted tracefs, or one that is mounted for us ──▶ instances/ahead-PID-TICKS-N
//!                                                            buffers, events, filter; tracing_on last
//! ```
//!
//! Each step has an undo note: after a SIGKILL the guardian switches `tracing_on` off at once, and `ahead restore` removes the
//! instance, then the mount.

use crate::nobpf::format::FormatError;
use ahead_process::undo::{Guard, ProcessId, write_setting};
use ahead_sys::mounts::{self, Mount, covering};
use ahead_sys::{Error, Result};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const WHAT: &str = "recording by ftrace";

/// An instance. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Instance {
    directory: PathBuf,
    /// In order of their undoing: the instance, then a mount and its directory.
    guards: Vec<Guard>,
    /// Restores `tracing_on`.
    is_on: Option<Guard>,
}

impl Instance {
    /// Creates an instance whose tracing is off.
    ///
    /// # Errors
    /// [`Error::Unsupported`] and [`Error::NotPermitted`]: the kernel has no tracefs, or refuses it.
    pub(crate) fn create() -> Result<Instance> {
        let owner = ProcessId::own()?;
        let (root, mut guards) = match mounted() {
            Some(root) => (root, Vec::new()),
            None => mount_own(owner)?,
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = root.join(format!("instances/ahead-{}-{}-{number}", owner.pid, owner.start_ticks));
        guards.push(ahead_process::undo::create_directory(owner, &directory).map_err(as_unavailable)?);
        guards.reverse();
        let instance = Instance { directory, guards, is_on: None };
        instance.write("tracing_on", "0")?;
        Ok(instance)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Sets a file of the instance. The instance itself is noted, so that its settings need no notes.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        write_setting(&self.path(name), text).map_err(as_unavailable)
    }

    pub(crate) fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        read_whole(&path).map_err(|e| as_unavailable(Error::io(format!("read {}", path.display()), e)))
    }

    pub(crate) fn has_event(&self, event: &str) -> bool {
        self.path(&format!("events/{event}/enable")).exists()
    }

    /// Starts tracing, under a note of the setting: with it, the guardian ends tracing at once after a SIGKILL.
    pub(crate) fn switch_on(&mut self) -> Result<()> {
        self.is_on = Some(ahead_process::undo::set_file(&self.path("tracing_on"), "1")?);
        Ok(())
    }

    pub(crate) fn switch_off(&mut self) -> Result<()> {
        self.is_on.take().map_or(Ok(()), Guard::undo)
    }

    /// Opens the buffer of each processor. Reading never waits.
    pub(crate) fn open_buffers(&self) -> Result<Vec<File>> {
        self.processors()?.iter().map(|directory| self.open_buffer(&directory.join("trace_pipe_raw"))).collect()
    }

    fn open_buffer(&self, path: &Path) -> Result<File> {
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        file.map_err(|e| as_unavailable(Error::io(format!("open {}", path.display()), e)))
    }

    /// The directories of the processors.
    pub(crate) fn processors(&self) -> Result<Vec<PathBuf>> {
        let directory = self.path("per_cpu");
        let failed = |e| Error::io(format!("list {}", directory.display()), e);
        let entries = fs::read_dir(&directory).map_err(failed)?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
    }

    /// The events that did not fit into the buffers.
    pub(crate) fn lost_events(&self) -> Result<u64> {
        let stats = |directory: PathBuf| {
            let path = directory.join("stats");
            fs::read_to_string(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))
        };
        self.processors()?.into_iter().map(|directory| stats(directory).map(|text| lost_in(&text))).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Tracing ends first; then the instance is removed, then the mount.
        drop(self.is_on.take());
        self.guards.drain(..).for_each(drop);
    }
}

/// Larger than any file that is read. Unit: bytes.
const TEXT_BYTES: usize = 64 << 10;

/// Reads a file with a large buffer: the kernel ends `events/header_page` after the first read, however small (`show_header_file`,
/// kernel/trace/trace_events.c).
fn read_whole(path: &Path) -> std::io::Result<String> {
    let (mut file, mut text, mut length) = (File::open(path)?, vec![0; TEXT_BYTES], 0);
    loop {
        match file.read(&mut text[length..])? {
            0 => break,
            bytes => length += bytes,
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(std::io::Error::other)
}

/// The sum of the lost events in `per_cpu/cpuN/stats`: overwritten, interrupted while writing, and refused by a full buffer.
fn lost_in(stats: &str) -> u64 {
    let number = |line: &str| {
        let (name, number) = line.split_once(':')?;
        let is_loss = ["overrun", "commit overrun", "dropped events"].contains(&name.trim());
        number.trim().parse::<u64>().ok().filter(|_| is_loss)
    };
    stats.lines().filter_map(number).sum()
}

/// The root of a writable tracefs that is mounted where its path leads to it.
fn mounted() -> Option<PathBuf> {
    let table = mounts::own().ok()?;
    let is_usable = |index: &usize| {
        let mount: &Mount = &table[*index];
        let is_writable = |options: &[u8]| options.split(|byte| *byte == b',').any(|word| word == b"rw");
        mount.fs_type == "tracefs"
            && mount.root == b"/"
            && is_writable(&mount.options)
            && is_writable(&mount.super_options)
            && covering(&table, &mount.mount_point) == Some(*index)
    };
    let found = (0..table.len()).find(is_usable)?;
    Some(Path::new(OsStr::from_bytes(&table[found].mount_point)).into())
}

/// Mounts tracefs for this process alone to use. Not detached: `ahead restore` must reach the instance by a path.
fn mount_own(owner: ProcessId) -> Result<(PathBuf, Vec<Guard>)> {
    let directory = PathBuf::from(format!("/run/ahead/tracefs-{}-{}", owner.pid, owner.start_ticks));
    let mut guards = vec![ahead_process::undo::create_directory(owner, &directory)?];
    guards.push(ahead_process::undo::mounts::mount_noted(owner, Path::new("ahead"), &directory, "tracefs", false, "")?);
    Ok((directory, guards))
}

/// A kernel without instances, or one that is locked down.
fn as_unavailable(error: Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOENT | libc::EROFS | libc::ENOSYS | libc::EINVAL) => {
            Error::Unsupported { what: WHAT.into(), why: error.to_string() }
        }
        _ => error,
    }
}

/// A format file that is not understood.
pub(crate) fn format_error(file: &str, error: &FormatError) -> Error {
    Error::Unsupported { what: WHAT.into(), why: format!("{file}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_summed() {
        let stats = "entries: 12\noverrun: 3\ncommit overrun: 1\nbytes: 480\noldest event ts:  5.1\nnow ts: 7.2\n\
            dropped events: 40\nread events: 9\n";
        assert_eq!(lost_in(stats), 44);
        assert_eq!(lost_in("overrun: x\n\n:"), 0);
    }
}
