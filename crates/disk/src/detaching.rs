//! Detaching a disk.
//!
//! ```text
//!     mounted elsewhere? open? ─▶ unmount ─▶ claimed or still open? ─▶ loop device ─▶ queue ─▶ FUSE ─▶ daemon ─▶ notes
//!          └─ refused, untouched     └─ busy: refused      └─ mounted again, refused
//! ```
//!
//! As with umount(8), a disk in use is refused and does not change; the message names its users where they can be seen. Other
//! mount namespaces cannot be checked in advance (an unmount may reach them or not). If they keep the disk, that is detected
//! after the unmount, and the disk is mounted again. A signal during a wait has the same effect. After the loop device is
//! detached, the rest is always completed.

use crate::state::{self, DiskInfo, Paths};
use crate::teardown::{END_TIME, require_root, restore_settings_of, undo_all_of};
use crate::{Client, Error, Result};
use ahead_process::Signals;
use ahead_process::undo::Action;
use ahead_process::wait_end;
use ahead_sys::directory::DirectoryEntry;
use ahead_sys::loopdev::Attachment;
use ahead_sys::mounts::{self, Mount};
use ahead_sys::{block, holders, loopdev, mounting};
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for a file system to release its device after the unmount, and for udev to close a new device. An ending process can
/// hold the last reference for some milliseconds.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// Interval of checks; there is no event to wait for.
const CHECK_EVERY: Duration = Duration::from_millis(10);

/// Unmounts and detaches a disk, and ends its daemon. A disk in use is an error and does not change.
pub fn detach(disk: &DiskInfo) -> Result<()> {
    let signals = Signals::take()?;
    require_root()?;
    let _turn = state::take_turn(&signals, Error::StillAttached)?;
    if !disk.is_alive() {
        return undo_all_of(disk.daemon);
    }
    let (file, sequence) = (Paths::of(&disk.name).file, loopdev::sequence(&disk.device));
    Detaching { disk, file, sequence, signals }.run()
}

/// Detaches several disks. Returns those that are detached, and the first error. The others are still detached after an error, but not after a
/// signal.
pub fn detach_all(disks: &[DiskInfo]) -> (Vec<&DiskInfo>, Option<Error>) {
    let (mut detached, mut failed) = (Vec::new(), None);
    for disk in disks {
        match detach(disk) {
            Ok(()) => detached.push(disk),
            Err(error) => {
                let is_signal = matches!(error, Error::StillAttached(_));
                failed = failed.or(Some(error));
                if is_signal {
                    break;
                }
            }
        }
    }
    (detached, failed)
}

/// A disk that is being detached.
struct Detaching<'a> {
    disk: &'a DiskInfo,
    /// The backing file of the loop device.
    file: PathBuf,
    /// The disk sequence number at the beginning: the loop device may be reused by another process.
    sequence: Option<u64>,
    signals: Signals,
}

impl Detaching<'_> {
    fn run(&self) -> Result<()> {
        let disk = self.disk;
        if let Some(signal) = self.signals.poll() {
            return Err(Error::StillAttached(signal.number));
        }
        let mount = only_mount(disk)?;
        if self.is_attached()? && !self.wait_until(|| holders::of(&disk.device).is_empty())? {
            return Err(busy(&disk.device));
        }
        // Kept open while the disk is mounted: the path may lead to a link later.
        let entry = mount.as_ref().map(|mount| DirectoryEntry::of(point(mount))).transpose()?.flatten();
        let mount = mount.zip(entry);
        if let Some((mount, entry)) = &mount {
            self.unmount(mount, entry)?;
        }
        if let Err(error) = self.release_device() {
            return Err(match mount.map_or(Ok(()), |(mount, entry)| self.mount_again(&mount, &entry)) {
                Ok(()) => error,
                Err(again) => Error::Busy(format!("{error}; and mounting it again failed: {again}")),
            });
        }
        if let Err(error) = restore_settings_of(disk.daemon) {
            tracing::debug!("retrying at the end: {error}");
        }
        mounting::unmount_lazy(&Paths::of(&disk.name).directory)?;
        // The daemon may have ended already, with its file system.
        let asked = Client::new(disk).end();
        if !wait_end(disk.daemon, END_TIME)? {
            asked?;
            return Err(Error::Daemon(format!(
                "the daemon of the disk {} does not end; kill {}",
                disk.name, disk.daemon.pid
            )));
        }
        undo_all_of(disk.daemon)
    }

    /// Repeats for a while if no user is visible: a process that was just forked keeps its parent's descriptors until it
    /// executes its own program.
    fn unmount(&self, mount: &Mount, entry: &DirectoryEntry) -> Result<()> {
        let target = point(mount);
        if mounting::mount_number(entry).is_some_and(|number| number != mount.id) {
            return Err(Error::Busy(format!("{} was moved during the detach; detach again", target.display())));
        }
        let mut done = Ok(());
        self.wait_until(|| {
            done = mounting::unmount(&entry.path());
            !matches!(&done, Err(e) if e.is_busy()) || !users(target).is_empty()
        })?;
        done.map_err(|e| if e.is_busy() { busy(target) } else { e.into() })
    }

    /// Whether the loop device still belongs to the disk. A killed detach may have detached it, and another process may have
    /// attached it since.
    fn is_attached(&self) -> Result<bool> {
        Ok(loopdev::check_attachment(&self.disk.device, &self.file, self.sequence)? == Attachment::Unchanged)
    }

    /// Detaches the loop device, or leaves it attached after an error.
    fn release_device(&self) -> Result<()> {
        let device = &self.disk.device;
        if !self.is_attached()? {
            return Ok(());
        }
        if !self.wait_until(|| !is_claimed(device))? {
            return Err(Error::Busy(format!(
                "{} is in use: it is mounted in another mount namespace, or part of another device (lsblk {0}); end \
                 that and detach again",
                device.display()
            )));
        }
        loopdev::detach_if_unchanged(device, &self.file, self.sequence)?;
        // The kernel detaches an open device only at its last close.
        let refused = match self.wait_until(|| matches!(self.is_attached(), Ok(false))) {
            Ok(true) => return Ok(()),
            Ok(false) => busy(device),
            Err(error) => error,
        };
        match loopdev::cancel_detach(device) {
            Ok(()) => Err(refused),
            // The last process has closed it just now.
            Err(_) if !self.is_attached()? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Mounts the disk again, with a new note, because it is another mount.
    fn mount_again(&self, mount: &Mount, entry: &DirectoryEntry) -> Result<()> {
        let is_its = |action: &Action| matches!(action, Action::Unmount { target, .. } if target == point(mount));
        ahead_process::undo::forget(self.disk.daemon, is_its)?;
        ahead_process::undo::mounts::mount_again(self.disk.daemon, &self.disk.device, mount, entry)?.leave();
        Ok(())
    }

    /// Waits for a condition, at most for [`RELEASE_TIME`]. A signal is an error.
    fn wait_until(&self, mut is_so: impl FnMut() -> bool) -> Result<bool> {
        let deadline = Instant::now() + RELEASE_TIME;
        while !is_so() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            if let Some(signal) = self.signals.wait(Some(CHECK_EVERY))? {
                return Err(Error::StillAttached(signal.number));
            }
        }
        Ok(true)
    }
}

/// The mount of the disk. Errors: the disk is mounted elsewhere, or its mount is covered.
fn only_mount(disk: &DiskInfo) -> Result<Option<Mount>> {
    let all = mounts::own()?;
    let is_of_disk =
        |mount: &&Mount| mount.device == disk.device_number || mount.source == disk.device.as_os_str().as_bytes();
    let is_ours = |mount: &Mount| disk.mount.as_ref().is_some_and(|m| m.as_os_str().as_bytes() == mount.mount_point);
    let of_disk: Vec<&Mount> = all.iter().filter(is_of_disk).collect();
    if let Some(other) = of_disk.iter().find(|mount| !is_ours(mount)) {
        let place = String::from_utf8_lossy(&other.mount_point);
        return Err(Error::Busy(format!(
            "the disk {} is in use: it is mounted on {place}, too; unmount it there and detach again",
            disk.name
        )));
    }
    let Some(mount) = of_disk.last().and(disk.mount.as_deref()) else { return Ok(None) };
    let top = all.iter().rfind(|other| other.mount_point == mount.as_os_str().as_bytes());
    match top.filter(is_of_disk) {
        Some(top) => Ok(Some(top.clone())),
        None => Err(Error::Busy(format!(
            "the disk {} is in use: another file system is mounted over it on {}; unmount that and detach again",
            disk.name,
            mount.display()
        ))),
    }
}

/// Whether an exclusive open fails: the device is mounted in some namespace, or part of another device.
fn is_claimed(device: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(block::O_EXCL).open(device);
    opened.is_err_and(|e| e.kind() == ErrorKind::ResourceBusy)
}

fn point(mount: &Mount) -> &Path {
    Path::new(OsStr::from_bytes(&mount.mount_point))
}

/// Maximum number of users in a message.
const NAMED_MOST: usize = 5;

/// The processes that use a path, and the mounts below it.
fn users(path: &Path) -> Vec<String> {
    let mut users: Vec<String> = holders::of(path).iter().map(|h| format!("{} ({})", h.name, h.pid)).collect();
    let below = |mount: &Mount| {
        let at = point(mount);
        (at.starts_with(path) && at != path).then(|| format!("a mount on {}", at.display()))
    };
    users.extend(mounts::own().unwrap_or_default().iter().filter_map(below));
    users
}

fn busy(path: &Path) -> Error {
    let mut users = users(path);
    if users.len() > NAMED_MOST {
        users.truncate(NAMED_MOST);
        users.push("others".into());
    }
    let by = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
    Error::Busy(format!("{} is in use{by}: end this use and detach again", path.display()))
}
