//! A file system in an image on a loop device, for tests that need a separate one.
//!
//! ```text
//!     home/image ─▶ /dev/loopN ─▶ home/mnt = root            home/NAME: beside it, for mounts and programs
//! ```

use super::machine::{Held, needs_root, skip};
use super::program::{built, program};
use super::wait::wait_until;
use ahead_model::DeviceNumber;
use ahead_process::undo::loops::Loop;
use ahead_process::undo::{Guard, ProcessId};
use ahead_sys::{block, diskstats, evict, mounting, openat};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const PAGE: u64 = 4096;
pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// A file system on a loop device. It is unmounted and detached when dropped.
pub struct Mounted {
    pub fs_type: &'static str,
    pub root: PathBuf,
    pub mount: Option<Guard>,
    pub device: Option<Loop>,
    // After the device, which has its image in it.
    pub home: tempfile::TempDir,
    options: String,
    direct_io: bool,
    // Fetched pages must stay in the cache.
    _machine: Held,
}

/// How a file system is made.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    pub fs_type: &'static str,
    pub mebibytes: u64,
    pub mkfs: &'a [&'a str],
    pub options: &'a str,
    /// The loop device reads its image without the page cache of the file system below.
    pub direct_io: bool,
}

impl Image<'_> {
    pub fn of(fs_type: &'static str) -> Image<'static> {
        // ext: otherwise the kernel writes the inode tables and the journal later, during the measurement; and since Linux 5.13 it reads the block
        // bitmaps at a random moment within the first five seconds.
        let is_ext = fs_type.starts_with("ext");
        let mkfs: &[&str] = if is_ext { &["-E", "lazy_itable_init=0,lazy_journal_init=0"] } else { &[] };
        let options = if is_ext { "no_prefetch_block_bitmaps" } else { "" };
        Image { fs_type, mebibytes: 512, mkfs, options, direct_io: true }
    }
}

/// Copies the program and the laboratory's program beside it, in another process: other users may have no access to those that cargo built. A file that
/// this process writes is briefly open in the children that other tests fork, and the kernel does not execute a file that is open for writing.
pub fn copy_ahead(to: &Path) {
    for (name, to) in [("ahead", to.to_owned()), ("ahead-lab", to.with_file_name("ahead-lab"))] {
        program("cp").arg(built(name)).arg(to).ok();
    }
}

/// Mounts under a guard. `None`, with the reason printed, where that is impossible.
pub fn mount(source: impl AsRef<Path>, target: &Path, fs_type: &str, options: &str) -> Option<Guard> {
    fs::create_dir_all(target).unwrap();
    let own = ProcessId::own().unwrap();
    let mounted = ahead_process::undo::mounts::mount_noted(own, source.as_ref(), target, fs_type, false, options);
    mounted.or_else(|error| skip(error).ok_or(())).ok()
}

/// An overlay of `lower` with its directories for changes in `home`, mounted on `home/merged`.
pub fn overlay(lower: &Path, home: &Path) -> Option<(PathBuf, Guard)> {
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| home.join(name));
    for directory in [&upper, &work] {
        fs::create_dir_all(directory).unwrap();
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let guard = mount("overlay", &merged, "overlay", &options)?;
    Some((merged, guard))
}

/// A mount of another program, removed when dropped.
pub struct Unmounted(pub PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        program("umount").arg(&self.0).works();
    }
}

/// A FUSE mount of one directory on another. `None`, with the reason printed, without bindfs.
pub fn bindfs(options: &[&str], below: &Path, above: &Path) -> Option<Unmounted> {
    fs::create_dir_all(above).unwrap();
    if program("bindfs").args(options).args([below, above]).works() {
        return Some(Unmounted(fs::canonicalize(above).unwrap()));
    }
    skip("no bindfs")
}

impl Mounted {
    /// `None`, with the reason printed, where that is impossible.
    pub fn new(fs_type: &'static str) -> Option<Mounted> {
        Mounted::of(Image::of(fs_type), Held::shared)
    }

    /// The same for a test that counts merged requests of several threads: concurrent tests would take the processors.
    pub fn alone(fs_type: &'static str) -> Option<Mounted> {
        Mounted::of(Image::of(fs_type), Held::alone)
    }

    pub fn of(image: Image, hold: impl FnOnce() -> Held) -> Option<Mounted> {
        needs_root()?;
        let machine = hold();
        let home = tempfile::tempdir().unwrap();
        // A profile of another user must be able to name a path in it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let Image { fs_type, mebibytes, mkfs, options, direct_io } = image;
        let path = home.path().join("image");
        fs::File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        if !program(format!("mkfs.{fs_type}")).args(mkfs).arg(&path).works() {
            return skip(format!("no mkfs.{fs_type} {mkfs:?}"));
        }
        let root = home.path().join("mnt");
        fs::create_dir(&root).unwrap();
        let (root, options) = (fs::canonicalize(root).unwrap(), options.to_owned());
        let mut mounted =
            Mounted { fs_type, root, home, mount: None, device: None, options, direct_io, _machine: machine };
        match mounted.attach() {
            Ok(()) => Some(mounted),
            Err(error) => skip(error),
        }
    }

    /// The backing file of the loop device.
    pub fn image(&self) -> PathBuf {
        self.home.path().join("image")
    }

    /// Attaches the loop device and mounts it.
    pub fn attach(&mut self) -> ahead_sys::Result<()> {
        self.device =
            Some(ahead_process::undo::loops::attach(ProcessId::own()?, &self.image(), self.direct_io, false)?);
        self.try_mount(false)
    }

    /// The same with other options from now on.
    pub fn attach_with(&mut self, options: &str) -> ahead_sys::Result<()> {
        options.clone_into(&mut self.options);
        self.attach()
    }

    fn try_mount(&mut self, read_only: bool) -> ahead_sys::Result<()> {
        let own = ProcessId::own()?;
        let mount = |options: &str| {
            ahead_process::undo::mounts::mount_noted(own, self.node(), &self.root, self.fs_type, read_only, options)
        };
        let mounted = match mount(&self.options) {
            // Older kernels do not know the option about bitmaps.
            Err(_) if self.options == Image::of(self.fs_type).options => mount(""),
            mounted => mounted,
        };
        self.mount = Some(mounted?);
        Ok(())
    }

    /// Unmounts it. Not a lazy unmount as by the guard: a process that another test has just forked would keep all cached pages.
    pub fn unmount(&mut self) {
        if let Some(mount) = self.mount.take() {
            wait_until("the unmount", || mounting::unmount(&self.root).is_ok());
            drop(mount);
        }
    }

    /// Unmounts it and detaches the device.
    pub fn detach(&mut self) {
        self.unmount();
        if let Some(device) = self.device.take() {
            // A process that is starting in a separate mount namespace has a copy of the mount, and the kernel writes until that is gone.
            let exclusive = || fs::File::options().read(true).custom_flags(block::O_EXCL).open(&device.device);
            wait_until("the end of the file system", || exclusive().is_ok());
        }
    }

    pub fn mount_again(&mut self) {
        self.try_mount(false).unwrap();
    }

    /// Unmounts it, and mounts it for reading only.
    pub fn make_read_only(&mut self) {
        drop(self.mount.take());
        self.try_mount(true).unwrap();
    }

    /// Unmounts, mounts again, and evicts the device's pages: no page of the file system stays cached.
    pub fn make_cold(&mut self) {
        self.unmount();
        evict::block_device(self.node()).unwrap();
        self.mount_again();
    }

    /// Fills all but one mebibyte of what other users may write.
    pub fn fill(&self) {
        let fill = "fallocate -l $(( $(stat -f -c '%a * %S' \"$1\") - 1048576 )) \"$1/filler\"";
        program(&self.root).by_script(fill).ok();
    }

    /// A directory beside the mount point.
    pub fn beside(&self, name: &str) -> PathBuf {
        let path = self.home.path().join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// An overlay whose lower layer is a directory of this file system.
    pub fn overlay(&self) -> Option<(PathBuf, Guard)> {
        let lower = self.root.join("lower");
        fs::create_dir_all(&lower).unwrap();
        overlay(&lower, &self.root)
    }

    /// The path as text.
    pub fn place(&self) -> &str {
        self.root.to_str().unwrap()
    }

    /// The device's node.
    pub fn node(&self) -> &Path {
        &self.device.as_ref().expect("an attached device").device
    }

    pub fn number(&self) -> DeviceNumber {
        block::device_number(self.node()).unwrap()
    }

    /// The block device's number, as in stat.
    pub fn key(&self) -> u64 {
        openat::handle(&self.root).unwrap().identity().device
    }

    /// A file of settings of the device's queue.
    pub fn queue(&self, name: &str) -> PathBuf {
        block::queue_file(self.number(), name)
    }

    /// The device's requests and bytes that `work` causes.
    pub fn reads(&self, work: impl FnOnce()) -> diskstats::Reads {
        let before = diskstats::reads(self.number()).unwrap();
        work();
        diskstats::reads(self.number()).unwrap() - before
    }

    pub fn requests(&self, work: impl FnOnce()) -> u64 {
        self.reads(work).requests
    }

    /// A file of this many bytes, without holes or equal blocks.
    pub fn file(&self, name: impl AsRef<OsStr>, bytes: u64) -> PathBuf {
        let path = self.root.join(name.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at / KIB * 31 + at % 251) as u8).collect();
        fs::write(&path, content).unwrap();
        path
    }

    /// A profile's entry for a file of which these ranges were used, in this order.
    pub fn used(&self, path: &Path, ranges: &[std::ops::Range<u64>]) -> ahead_profile::File {
        ahead_profile::File { fs_type: self.fs_type.into(), ..super::profile::used(path, ranges) }
    }

    /// A file of this many pages, no two of them equal.
    pub fn pages(&self, name: impl AsRef<OsStr>, pages: u64) -> PathBuf {
        self.file(name, pages * PAGE)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Before the loop device is detached.
        drop(self.mount.take());
    }
}
