//! Creates and attaches disks: every step around the daemon.
//!
//! ```text
//!     checks ─▶ image ─▶ daemon ─▶ loop device ─▶ queue ─▶ floor ─▶ mkfs ─▶ model, accuracy ─▶ mount ─▶ state file ─▶ commit
//!                 │         └──────────────┴──────────┴───── noted for the daemon ──────┴─────────┘
//!                 └─ noted for this process until the end
//! ```

use crate::accuracy;
use crate::daemon_start::StartedDaemon;
use crate::filesystem::{self, Filesystem};
use crate::floor;
use crate::launcher::Launcher;
use crate::server::REQUEST_MAX_BYTES;
use crate::{Error, Result};
use ahead_device::Model;
use ahead_disk::protocol::{FaultChange, Faults, Setup};
use ahead_disk::state::{self, Paths};
use ahead_disk::teardown::{require_root, undo_all_of};
use ahead_disk::{Client, DiskInfo, Floor, ModelSource, Punctuality, default_name, is_valid_name};
use ahead_model::DeviceNumber;
use ahead_process::Signals;
use ahead_process::undo::{Guard, ProcessId};
use ahead_process::wait_end;
use ahead_sys::directory::{self, Directory};
use ahead_sys::{block, loopdev, mounting};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Disk sizes are whole pages, bytes: a direct read of the last page must not be short.
const SIZE_STEP_BYTES: u64 = 4096;
/// The smallest disk, bytes: space for the measurement of the floor.
const MIN_SIZE_BYTES: u64 = 1 << 20;
/// The largest disk that models support, bytes.
const MAX_SIZE_BYTES: u64 = 1 << 46;

/// A disk to attach.
#[derive(Clone, Debug)]
pub struct Attach {
    pub image: PathBuf,
    /// The disk's name; `None`: from the image.
    pub name: Option<String>,
    /// The disk's model.
    pub model: ModelSource,
    pub mount: Option<PathBuf>,
    /// Refuse writes.
    pub read_only: bool,
    /// The read-ahead window, KiB.
    pub read_ahead_kb: u64,
    /// Serve reads from a copy in memory.
    pub preload: bool,
    /// Log writes and flushes in this new file; an absolute path.
    pub write_log: Option<PathBuf>,
    /// Faults to inject when the disk is complete.
    pub faults: Faults,
}

/// A disk to make.
#[derive(Clone, Debug)]
pub struct Create {
    /// The attachment. The image must not exist yet.
    pub attach: Attach,
    /// Size of the disk, bytes.
    pub size_bytes: u64,
    /// The file system to make; `None`: none.
    pub filesystem: Option<Filesystem>,
}

/// Makes an image with a file system, attaches and mounts it.
pub fn create(launcher: &Launcher, create: &Create) -> Result<DiskInfo> {
    require_root()?;
    let Create { attach, size_bytes, filesystem } = create;
    check_size(*size_bytes, *filesystem)?;
    attach.faults.check(*size_bytes)?;
    filesystem.map(Filesystem::mkfs).transpose()?;
    if filesystem.is_none() && attach.mount.is_some() {
        return Err(Error::Usage("without a file system there is nothing to mount: leave out --mount".into()));
    }
    // Waits for a file system that does not answer happen here, where a signal still ends the process by default.
    let (name, mount) = (checked_name(attach)?, attach.mount.as_deref().map(checked_mount).transpose()?);
    let signals = Signals::take()?;
    let (image, guard) = new_image(&attach.image, *size_bytes)?;
    let new = Some(guard);
    bring_up(launcher, attach, Parts { name, image, mount, make: *filesystem, new }, &signals)
}

/// Attaches an existing image and mounts it.
pub fn attach(launcher: &Launcher, attach: &Attach) -> Result<DiskInfo> {
    require_root()?;
    // As above: until image and mount point are open, a signal ends the process by default.
    let (name, mount) = (checked_name(attach)?, attach.mount.as_deref().map(checked_mount).transpose()?);
    let image = existing_image(&attach.image, !attach.read_only)?;
    let signals = Signals::take()?;
    attach.faults.check(image.size_bytes)?;
    bring_up(launcher, attach, Parts { name, image, mount, make: None, new: None }, &signals)
}

/// Waits for the end of an abandoned daemon, then undoes its notes.
pub fn finish_after(daemon: ProcessId) -> Result<()> {
    if !wait_end(daemon, Duration::from_secs(60))? {
        return Err(Error::Busy(format!("process {} does not end", daemon.pid)));
    }
    undo_all_of(daemon)
}

fn check_size(size_bytes: u64, filesystem: Option<Filesystem>) -> Result<()> {
    let minimum = filesystem.map_or(MIN_SIZE_BYTES, Filesystem::min_bytes);
    let on = filesystem.map_or(String::new(), |f| format!(" with {}", f.name()));
    if size_bytes < minimum {
        return Err(Error::Usage(format!("a disk{on} needs at least {} MiB: give a larger --size", minimum >> 20)));
    }
    if size_bytes > MAX_SIZE_BYTES {
        return Err(Error::Usage("a disk can have at most 64 TiB: give a smaller --size".into()));
    }
    if !size_bytes.is_multiple_of(SIZE_STEP_BYTES) {
        return Err(Error::Usage("a disk's size must be a multiple of 4096 bytes".into()));
    }
    Ok(())
}

fn checked_name(attach: &Attach) -> Result<String> {
    let name = attach.name.clone().unwrap_or_else(|| default_name(&attach.image));
    if !is_valid_name(&name) {
        return Err(Error::Invalid(format!(
            "{name:?} is not a valid disk name: use at most 64 letters, digits, '.', '_' and '-'"
        )));
    }
    // The daemon reserves the name; this check gives the error before the first change.
    if let Some(other) = state::list()?.into_iter().find(|disk| disk.name == name) {
        let remedy = match other.is_alive() {
            true => format!("choose another with --name, or: sudo ahead disk detach {name}"),
            false => "its daemon was killed; clean up with: sudo ahead restore".into(),
        };
        return Err(Error::Invalid(format!("there is a disk named {name} already: {remedy}")));
    }
    Ok(name)
}

/// Opens and checks the directory for the mount. The mount uses this descriptor, because the path of the directory may change.
fn checked_mount(mount: &Path) -> Result<Directory> {
    let invalid = |why: &str| Err(Error::Invalid(format!("cannot mount on {}: {why}", mount.display())));
    let point = match Directory::open(mount) {
        Ok(point) => point,
        Err(ahead_sys::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return invalid(&format!("it does not exist; make it with: mkdir -p {}", mount.display()));
        }
        Err(ahead_sys::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotADirectory => {
            return invalid("it is not a directory");
        }
        Err(e) => return Err(e.into()),
    };
    // With the dot the path is that of the directory, not of the symbolic link to it.
    let path = point.descriptor_path().join(".");
    if mounting::is_mount_point(&path)? {
        return invalid("a file system is already mounted there");
    }
    let entries = std::fs::read_dir(&path).map_err(|e| Error::io(format!("list {}", mount.display()), e))?;
    if entries.take(1).count() > 0 {
        return invalid("the directory is not empty");
    }
    Ok(point)
}

/// An open image, opened once: its path may lead to another file at any time.
struct ImageFile {
    file: File,
    path: PathBuf,
    size_bytes: u64,
}

/// Makes a sparse image without data. The guard removes the image unless the caller keeps it.
fn new_image(path: &Path, size_bytes: u64) -> Result<(ImageFile, Guard)> {
    let absolute = std::path::absolute(path).map_err(|e| Error::io(format!("find {}", path.display()), e))?;
    let (file, guard) =
        ahead_process::undo::create_file(ProcessId::own()?, &absolute, 0o600).map_err(|e| match e.exists() {
            true => Error::Invalid(format!("{} exists already: attach it, or choose another name", path.display())),
            false => e.into(),
        })?;
    file.set_len(size_bytes).map_err(|e| Error::io(format!("make {} {size_bytes} bytes long", path.display()), e))?;
    let path = directory::path_of(&file)?;
    Ok((ImageFile { file, path, size_bytes }, guard))
}

fn existing_image(path: &Path, writable: bool) -> Result<ImageFile> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::Invalid(format!("{} is not a regular file", path.display())),
        _ => Error::io(format!("attach {}", path.display()), e),
    };
    let file = directory::open_regular_file(path, writable).map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    check_size(size_bytes, None).map_err(|e| Error::Invalid(format!("{}: {e}", path.display())))?;
    Ok(ImageFile { path: directory::path_of(&file)?, file, size_bytes })
}

/// The checked and open parts of a disk.
struct Parts {
    name: String,
    image: ImageFile,
    mount: Option<Directory>,
    make: Option<Filesystem>,
    /// The guard of a new image.
    new: Option<Guard>,
}

/// Makes the complete disk. Each step is noted for the daemon; an error undoes all of them.
fn bring_up(launcher: &Launcher, attach: &Attach, parts: Parts, signals: &Signals) -> Result<DiskInfo> {
    let model = attach.model.model()?;
    let Parts { name, image, mount, make, new } = parts;
    let capacity_bytes = image.size_bytes;
    let setup = Setup {
        name: name.clone(),
        image: image.path.clone(),
        model: attach.model.clone(),
        capacity_bytes,
        preload: attach.preload,
        read_only: attach.read_only,
        write_log: attach.write_log.clone(),
    };
    let daemon = StartedDaemon::launch(launcher, &setup, &image.file, signals)?;
    let owner = daemon.process;
    check_signals(signals)?;
    let turn = state::take_turn(signals, Error::Interrupted)?;
    let (device, device_number) = attach_loop(owner, &name, capacity_bytes, attach.read_only)?;
    let mut queue = set_queue(owner, device_number, &model, attach.read_ahead_kb)?;
    drop(turn);
    let client = Client::named(&name);
    let floor = floor::measure(&device, &client, capacity_bytes, longest_request(&model))?;
    check_signals(signals)?;
    let filesystem = make_or_detect(make, &device, &image.file, &client)?;
    check_signals(signals)?;
    let (lead, punctuality) = accuracy::engage(&device, &client, &model, capacity_bytes, floor.lead)?;
    let floor = Floor { lead, ..floor };
    check_signals(signals)?;
    let mount_on = |point| mount_on(owner, &device, point, filesystem, &image.file, attach.read_only);
    let mounted = mount.as_ref().map(mount_on).transpose()?;
    let mount = mount.map(|point| point.current_path()).transpose()?;
    client.fault(FaultChange {
        clear: true,
        fail: attach.faults.fail.clone(),
        stall_ms: Some(attach.faults.stall_ms),
    })?;
    let beyond_rig_why = floor::shortfall(&floor, &model).or_else(|| inaccuracy(&punctuality));
    let disk = DiskInfo {
        name,
        image: image.path,
        model: attach.model.clone(),
        capacity_bytes,
        device,
        device_number,
        mount,
        filesystem: filesystem.map(|f| f.name().to_owned()),
        read_only: attach.read_only,
        preload: attach.preload,
        read_ahead_kb: attach.read_ahead_kb,
        floor,
        punctuality,
        beyond_rig: beyond_rig_why.is_some(),
        beyond_rig_why,
        daemon: owner,
    };
    let written = state::write(&disk)?;
    client.reset()?;
    check_signals(signals)?;
    complete(daemon, new)?;
    for guard in std::mem::take(&mut queue.0).into_iter().chain(mounted).chain([written]) {
        guard.leave();
    }
    Ok(disk)
}

/// Keeps the image, and lets the daemon run alone. On an error both are removed.
///
/// The note of the image is removed first: a kill in between leaves an unused image. In reverse order, `restore` would remove the image of
/// a complete disk.
fn complete(daemon: StartedDaemon, new_image: Option<Guard>) -> Result<()> {
    new_image.as_ref().map_or(Ok(()), Guard::drop_note)?;
    daemon.commit()?;
    if let Some(guard) = new_image {
        guard.leave();
    }
    Ok(())
}

/// Why the times of a disk are not accurate; `None`: they are accurate.
fn inaccuracy(punctuality: &[Punctuality]) -> Option<String> {
    let worst = punctuality.iter().find(|at_depth| !accuracy::holds_with_margin(at_depth))?;
    let (percent, depth) = (worst.share * 100.0, worst.depth);
    let at_a_time = if depth == 1 { "one read".into() } else { format!("{depth} reads") };
    Some(format!("with {at_a_time} at a time, only {percent:.1} % took the time of the model within 5 % or 60 µs"))
}

/// Returns an error after a signal to stop; called between two steps.
fn check_signals(signals: &Signals) -> Result<()> {
    signals.poll().map_or(Ok(()), |signal| Err(Error::Interrupted(signal.number)))
}

fn longest_request(model: &Model) -> u64 {
    model.max_request_bytes().min(u64::from(REQUEST_MAX_BYTES))
}

fn attach_loop(owner: ProcessId, name: &str, capacity_bytes: u64, read_only: bool) -> Result<(PathBuf, DeviceNumber)> {
    let file = Paths::of(name).file;
    let attached = ahead_process::undo::loops::attach(owner, &file, true, read_only)?;
    let status = loopdev::status(&attached.device)?;
    if !status.is_some_and(|status| status.direct_io) {
        return Err(Error::Kernel(ahead_sys::Error::Unsupported {
            what: format!("direct I/O on {}", attached.device.display()),
            why: "the loop driver of this kernel does not support it on FUSE".into(),
        }));
    }
    let number = block::device_number(&attached.device)?;
    let size = block::size_bytes(number)?;
    if size != capacity_bytes {
        return Err(Error::Daemon(format!("the disk has {size} bytes where its image has {capacity_bytes}")));
    }
    Ok((attached.leave(), number))
}

/// Drops its elements from the last to the first. A setting of the queue may depend on an earlier one. After the scheduler is restored,
/// `nr_requests` cannot have the value that it had under the other scheduler.
#[derive(Debug)]
struct Stack<T>(Vec<T>);

impl<T> Drop for Stack<T> {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// Sets the queue as Linux sets it for such a disk.
fn set_queue(owner: ProcessId, device: DeviceNumber, model: &Model, read_ahead_kb: u64) -> Result<Stack<Guard>> {
    let set =
        |setting, value: &str| ahead_process::undo::set_file_for(owner, &block::queue_file(device, setting), value);
    // Noted first, so restored last, for any value at that time. The kernel raises the window of a rotational device when its longest
    // request changes, and when the device is detached.
    let window = block::queue_file(device, "read_ahead_kb");
    let mut guards = Stack(vec![ahead_process::undo::note_setting(owner, &window)?]);
    // The scheduler first: it resets nr_requests.
    let optional = [("scheduler", model.scheduler().to_owned()), ("nr_requests", model.nr_requests().to_string())];
    for (setting, value) in optional {
        match set(setting, &value) {
            Ok(guard) => guards.0.push(guard),
            // The disk works without this setting: a kernel may lack the scheduler, and a loop device has only 128 tags.
            Err(error) => tracing::info!("the disk cannot have {setting} {value}: {error}"),
        }
    }
    let required = [
        ("rotational", u8::from(model.rotational()).to_string()),
        ("max_sectors_kb", (longest_request(model) >> 10).to_string()),
    ];
    for (setting, value) in required {
        guards.0.push(set(setting, &value)?);
    }
    ahead_process::undo::write_setting(&window, &read_ahead_kb.to_string())?;
    Ok(guards)
}

fn make_or_detect(
    make: Option<Filesystem>,
    device: &Path,
    image: &File,
    client: &Client,
) -> Result<Option<Filesystem>> {
    let Some(filesystem) = make else { return filesystem::detect(image) };
    filesystem.make(device).map_err(|error| match client.stat() {
        // mkfs reports only an I/O error; the daemon knows that the disk of the image is full.
        Ok(stat) => match stat.image_error {
            Some(why) => Error::Invalid(format!("{error} ({why})")),
            None => error,
        },
        Err(_) => error,
    })?;
    Ok(make)
}

fn mount_on(
    owner: ProcessId,
    device: &Path,
    point: &Directory,
    filesystem: Option<Filesystem>,
    image: &File,
    read_only: bool,
) -> Result<Guard> {
    let filesystem = filesystem.ok_or_else(|| {
        Error::Invalid("the image has no ext2, ext3, ext4, xfs or btrfs on it: leave out --mount".into())
    })?;
    let options = filesystem.mount_options(image)?;
    Ok(ahead_process::undo::mounts::mount_noted_on(owner, device, point, filesystem.name(), read_only, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the image stayed when its disk was not completed.
    #[test]
    fn image_is_removed_if_the_daemon_ends_before_the_commit() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let own = ProcessId::own().unwrap();
        let image = |name: &str| ahead_process::undo::create_file(own, &home.path().join(name), 0o600).unwrap().1;
        let is_noted = |name: &str| {
            let is_it = |action: &ahead_process::undo::Action| matches!(action, ahead_process::undo::Action::Remove { path, .. } if path.ends_with(name));
            ahead_process::undo::notes().unwrap().iter().any(|(_, note)| is_it(&note.action))
        };
        for (name, alive) in [("goes.img", false), ("stays.img", true)] {
            let done = complete(StartedDaemon::stand_in(alive), Some(image(name)));
            assert_eq!(
                (done.is_ok(), home.path().join(name).exists(), is_noted(name)),
                (alive, alive, false),
                "{name}"
            );
        }
    }

    /// Regression: after a signal during `attach`, a note of `nr_requests` could not be undone.
    #[test]
    fn settings_are_undone_from_the_last_to_the_first() {
        struct Setting<'a>(&'a std::cell::RefCell<Vec<u8>>, u8);
        impl Drop for Setting<'_> {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        let order = std::cell::RefCell::new(Vec::new());
        drop(Stack(vec![Setting(&order, 1), Setting(&order, 2), Setting(&order, 3)]));
        assert_eq!(order.into_inner(), [3, 2, 1]);
    }

    #[test]
    fn sizes_are_checked() {
        assert!(check_size(4 << 30, Some(Filesystem::Ext4)).is_ok());
        for (size, filesystem) in [(100 << 20, Some(Filesystem::Xfs)), (4096, None), ((1 << 30) + 512, None)] {
            assert!(check_size(size, filesystem).is_err(), "{size}");
        }
        assert!(check_size(u64::MAX, None).is_err());
    }

    #[test]
    fn mount_point_must_be_an_empty_directory() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("inside");
        assert!(checked_mount(&inside).unwrap_err().to_string().contains("mkdir -p"));
        std::fs::create_dir(&inside).unwrap();
        assert!(checked_mount(&inside).is_ok());
        assert!(checked_mount(home.path()).unwrap_err().to_string().contains("not empty"));
        assert!(checked_mount(Path::new("/proc")).unwrap_err().to_string().contains("already"));
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(checked_mount(file.path()).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn image_must_be_a_large_enough_regular_file() {
        let home = tempfile::tempdir().unwrap();
        assert!(existing_image(home.path(), true).err().unwrap().to_string().contains("regular"));
        assert!(existing_image(&home.path().join("none"), true).is_err());
        let small = home.path().join("small");
        std::fs::write(&small, "x").unwrap();
        assert!(existing_image(&small, true).err().unwrap().to_string().contains("at least"));
    }
}
