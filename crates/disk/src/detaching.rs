//! Taking a disk down.
//!
//! ```text
//!     mounted elsewhere? open? ─▶ unmount ─▶ claimed or still open? ─▶ loop device ─▶ queue ─▶ FUSE ─▶ daemon ─▶ notes
//!          └─ refused, untouched     └─ busy: refused      └─ mounted again, refused
//! ```
//!
//! As umount(8) does: a disk in use is refused and stays as it is, and whoever uses it is named where that can be seen.
//! Other mount namespaces cannot be judged beforehand (an unmount may reach them or not); what they keep is found out
//! after the unmount, which is then taken back. A signal while we wait takes it back, too; once the loop device is gone
//! nothing can be taken back any more, and the rest is finished.

use crate::state::{self, DiskInfo, Paths};
use crate::teardown::{END_TIME, require_root, restore_settings_of, undo_all_of};
use crate::{Client, Error, Result};
use ahead_process::Signals;
use ahead_process::wait_end;
use ahead_sys::directory::DirectoryEntry;
use ahead_sys::loopdev::Attachment;
use ahead_sys::mounts::{self, Mount};
use ahead_sys::{block, holders, loopdev, mounting};
use ahead_undo::Action;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a file system may take to let go of its device after it was unmounted, and whoever looks at new devices
/// (udev) to close it: a process that is just ending can hold the last reference for some milliseconds.
const LET_GO_TIME: Duration = Duration::from_secs(2);

/// How often that is looked for; there is no event to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Unmounts and detaches a disk, and ends its daemon. A disk in use is an error, and stays as it is.
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

/// A disk that is being taken down.
struct Detaching<'a> {
    disk: &'a DiskInfo,
    /// What the loop device is attached to.
    file: PathBuf,
    /// The loop device's as we began: it can be given to another one meanwhile.
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
        if self.is_attached()? && !self.soon(|| holders::of(&disk.device).is_empty())? {
            return Err(busy(&disk.device));
        }
        // Held open while it is mounted there: what lies at that path later may be a link.
        let place = mount.as_ref().map(|mount| DirectoryEntry::of(point(mount))).transpose()?.flatten();
        let mount = mount.zip(place);
        if let Some((mount, place)) = &mount {
            self.unmount(mount, place)?;
        }
        if let Err(error) = self.let_go() {
            return Err(match mount.map_or(Ok(()), |(mount, place)| self.mount_again(&mount, &place)) {
                Ok(()) => error,
                Err(again) => Error::Busy(format!("{error}; and it could not be mounted again: {again}")),
            });
        }
        if let Err(error) = restore_settings_of(disk.daemon) {
            tracing::debug!("tried again at the end: {error}");
        }
        mounting::unmount_lazy(&Paths::of(&disk.name).directory)?;
        // It may have ended by itself already, with its file system.
        let told = Client::new(disk).end();
        if !wait_end(disk.daemon, END_TIME)? {
            told?;
            return Err(Error::Daemon(format!(
                "the daemon of the disk {} does not end: kill {}",
                disk.name, disk.daemon.pid
            )));
        }
        undo_all_of(disk.daemon)
    }

    /// Tries again for a while if nobody uses it who could be named: a process that was forked has what its parent had open until
    /// it starts its own program.
    fn unmount(&self, mount: &Mount, place: &DirectoryEntry) -> Result<()> {
        let target = point(mount);
        if mounting::mount_number(place).is_some_and(|number| number != mount.id) {
            return Err(Error::Busy(format!("{} was moved just now: detach again", target.display())));
        }
        let mut done = Ok(());
        self.soon(|| {
            done = mounting::unmount(&place.path());
            !matches!(&done, Err(e) if e.is_busy()) || !users(target).is_empty()
        })?;
        done.map_err(|e| if e.is_busy() { busy(target) } else { e.into() })
    }

    /// Whether the loop device is still the disk's: a detach that was killed may have come that far, and the device may
    /// be another one's by now.
    fn is_attached(&self) -> Result<bool> {
        Ok(loopdev::check_attachment(&self.disk.device, &self.file, self.sequence)? == Attachment::Unchanged)
    }

    /// Detaches the loop device, or leaves it as it was.
    fn let_go(&self) -> Result<()> {
        let device = &self.disk.device;
        if !self.is_attached()? {
            return Ok(());
        }
        if !self.soon(|| !is_claimed(device))? {
            return Err(Error::Busy(format!(
                "{} is in use: it is mounted in another mount namespace, or part of another device (lsblk {0}); end \
                 that and detach again",
                device.display()
            )));
        }
        loopdev::detach_if_unchanged(device, &self.file, self.sequence)?;
        // Whoever has it open keeps it: the kernel detaches it only when the last one closes it.
        let refused = match self.soon(|| matches!(self.is_attached(), Ok(false))) {
            Ok(true) => return Ok(()),
            Ok(false) => busy(device),
            Err(error) => error,
        };
        match loopdev::cancel_detach(device) {
            Ok(()) => Err(refused),
            // The last one has closed it just now.
            Err(_) if !self.is_attached()? => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the unmount back. Noted anew: it is another mount now.
    fn mount_again(&self, mount: &Mount, place: &DirectoryEntry) -> Result<()> {
        let is_its = |action: &Action| matches!(action, Action::Unmount { target, .. } if target == point(mount));
        ahead_undo::forget(self.disk.daemon, is_its)?;
        ahead_undo::mounts::mount_again(self.disk.daemon, &self.disk.device, mount, place)?.leave();
        Ok(())
    }

    /// Waits a little for something that is about to come.
    fn soon(&self, mut is_so: impl FnMut() -> bool) -> Result<bool> {
        let deadline = Instant::now() + LET_GO_TIME;
        while !is_so() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            if let Some(signal) = self.signals.wait(Some(LOOK_EVERY))? {
                return Err(Error::StillAttached(signal.number));
            }
        }
        Ok(true)
    }
}

/// Where the disk is mounted, if it is where we mounted it and nowhere else.
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
            "the disk {} is in use: something else is mounted over it on {}; unmount that and detach again",
            disk.name,
            mount.display()
        ))),
    }
}

/// Opening a block device exclusively fails while it is mounted anywhere, or part of something else.
fn is_claimed(device: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(block::O_EXCL).open(device);
    opened.is_err_and(|e| e.kind() == ErrorKind::ResourceBusy)
}

fn point(mount: &Mount) -> &Path {
    Path::new(OsStr::from_bytes(&mount.mount_point))
}

/// More than these are not named.
const NAMED_MOST: usize = 5;

/// Who has it open, and what is mounted below.
fn users(place: &Path) -> Vec<String> {
    let mut who: Vec<String> = holders::of(place).iter().map(|h| format!("{} ({})", h.name, h.pid)).collect();
    let below = |mount: &Mount| {
        let at = point(mount);
        (at.starts_with(place) && at != place).then(|| format!("a mount on {}", at.display()))
    };
    who.extend(mounts::own().unwrap_or_default().iter().filter_map(below));
    who
}

fn busy(place: &Path) -> Error {
    let mut who = users(place);
    if who.len() > NAMED_MOST {
        who.truncate(NAMED_MOST);
        who.push("others".into());
    }
    let by = if who.is_empty() { String::new() } else { format!(" by {}", who.join(", ")) };
    Error::Busy(format!("{} is in use{by}: end what uses it and detach again", place.display()))
}
