//! Opens files named by an untrusted list.
//!
//! ```text
//!     path ──openat2(O_PATH, no symlink, no magic link)──▶ handle ──fstat──▶ regular file? real file system?
//!                                                            │                      │ yes
//!                                                            └── /proc/self/fd/N ◀──┘
//!                                                                      │ reopened for reading: the same file
//!                                                                      ▼
//!                                                                      File
//! ```
//!
//! Opening an `O_PATH` handle has no side effect: no FIFO blocks, no tape rewinds. The file that is reopened is the file that
//! was checked, however often another process renames files in between.

use crate::{Error, Result, descriptors, rooted};
use ahead_model::DeviceNumber;
use ahead_model::FileSystemKind;
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, open, openat, openat2};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle on the file at a path: it identifies the file and gives no access.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
    stat: Stat,
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device number from stat, `(major << 32) | minor`.
    pub device: u64,
    pub inode: u64,
    pub size_bytes: u64,
    /// Modification time, nanoseconds since 1970 (negative before).
    pub mtime_ns: i64,
    /// Owner's user id.
    pub owner: u32,
}

/// The kind of a directory's entry, as the directory stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File,
    Directory,
    /// The file system does not store kinds.
    Unknown,
    /// A symbolic link, device, FIFO or socket.
    Other,
}

impl EntryKind {
    fn of(kind: rustix::fs::FileType) -> EntryKind {
        match kind {
            rustix::fs::FileType::RegularFile => EntryKind::File,
            rustix::fs::FileType::Directory => EntryKind::Directory,
            rustix::fs::FileType::Unknown => EntryKind::Unknown,
            _ => EntryKind::Other,
        }
    }
}

/// Set when openat2 is found to be missing (before Linux 5.6, or forbidden by a container).
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// A handle on the file at this absolute path. No symbolic link in any component is followed, and no `..`.
pub fn handle(path: &Path) -> Result<Handle> {
    Handle::of(open_unfollowed(path)?, path)
}

/// The same without waiting for a disk or a server. `None`: the kernel does not know the path yet, or the file cannot be opened so (before
/// Linux 5.12).
pub fn handle_if_cached(path: &Path) -> Option<Handle> {
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).ok()?;
    Handle::of(opened, path).ok()
}

fn open_unfollowed(path: &Path) -> Result<OwnedFd> {
    open_from(None, path)
}

/// Opens an absolute path without access. In a `root` directory the path starts there, and symbolic links are followed as in a chroot
/// of it, never outside; without one no link is followed.
pub(crate) fn open_from(root: Option<BorrowedFd<'_>>, path: &Path) -> Result<OwnedFd> {
    let failed = |e: std::io::Error| Error::io(format!("open {}", path.display()), e);
    if !path.is_absolute() {
        return Err(failed(std::io::Error::other("not an absolute path")));
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(failed(std::io::Error::other("the path contains \"..\"")));
    }
    let opened = if NO_OPENAT2.load(Ordering::Relaxed) { Err(Errno::NOSYS) } else { by_openat2(root, path) };
    match opened {
        Err(Errno::NOSYS | Errno::PERM) => {
            NO_OPENAT2.store(true, Ordering::Relaxed);
            match root {
                Some(root) => return rooted::walk(root, path, &mut ()),
                None => by_components(path),
            }
        }
        other => other,
    }
    .map_err(|e| failed(e.into()))
}

fn by_openat2(root: Option<BorrowedFd<'_>>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let ((start, path), flags, resolve) = match root {
        Some(root) => ((root, path), flags, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS),
        None => {
            let flags = flags | OFlags::NOFOLLOW;
            (descriptors::start_of(path), flags, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
        }
    };
    // EAGAIN: after a concurrent rename the kernel cannot guarantee that no link was followed. Try once more.
    match openat2(start, path, flags, Mode::empty(), resolve) {
        Err(Errno::AGAIN) => openat2(start, path, flags, Mode::empty(), resolve),
        other => other,
    }
}

/// Opens one component at a time without following links: what openat2 does in one call. With `O_PATH` a symbolic link itself is
/// opened. `O_DIRECTORY` refuses it in the middle of the path; at the end the caller refuses it, as it is not a regular file.
fn by_components(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = open("/", flags | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let Some(mut name) = names.next() else { return Ok(at) };
    for next in names {
        at = openat(&at, name, flags | OFlags::DIRECTORY, Mode::empty())?;
        name = next;
    }
    openat(&at, name, flags, Mode::empty())
}

impl Handle {
    /// A handle from an `O_PATH` descriptor of the file at this path.
    pub fn of(fd: OwnedFd, path: &Path) -> Result<Handle> {
        let stat = fstat(&fd).map_err(|e| Error::io(format!("fstat {}", path.display()), e))?;
        Ok(Handle { fd, stat })
    }

    /// The identity of the file.
    pub fn identity(&self) -> Identity {
        identity_of(&self.stat)
    }

    pub fn is_directory(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.stat.st_mode).is_dir()
    }

    pub fn is_regular_file(&self) -> bool {
        rustix::fs::FileType::from_raw_mode(self.stat.st_mode).is_file()
    }

    /// Whether less space is allocated than the file is long: it may have holes, or its file system compresses it.
    pub fn may_have_holes(&self) -> bool {
        /// The unit of `st_blocks` (stat(2)), bytes.
        const BLOCK_BYTES: u64 = 512;
        (self.stat.st_blocks as u64).saturating_mul(BLOCK_BYTES) < self.stat.st_size as u64
    }

    /// The number of the block device, `(major << 32) | minor`. `None`: the file is not a block device.
    pub fn block_device(&self) -> Option<u64> {
        let kind = rustix::fs::FileType::from_raw_mode(self.stat.st_mode);
        kind.is_block_device().then(|| DeviceNumber::from_stat(self.stat.st_rdev).key())
    }

    /// Opens the block device for reading. Only for a device that was requested by its number ([`Self::block_device`]), never for
    /// one named by an untrusted list.
    pub fn reopen_block_device(&self) -> Result<OwnedFd> {
        if self.block_device().is_none() {
            return Err(Error::io("open", std::io::Error::other("not a block device")));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        descriptors::reopen(self.fd.as_fd(), flags).map_err(|e| Error::io("open the block device for reading", e))
    }

    /// The type of its file system, by `statfs`.
    pub fn file_system(&self) -> Result<FileSystemKind> {
        file_system_of(&self.fd)
    }

    /// Opens the regular file for reading. Never blocks, never becomes a controlling terminal, and does not update the access
    /// time where that is permitted.
    pub fn reopen(&self) -> Result<OwnedFd> {
        if !self.is_regular_file() {
            return Err(Error::io("open", std::io::Error::other("not a regular file")));
        }
        self.reopen_as(OFlags::NONBLOCK | OFlags::NOCTTY)
    }

    /// Opens the directory for reading if it lies on a disk ([`FileSystemKind::is_on_disk`]). Listing any other directory loads no
    /// metadata from a disk. It may run code of a driver or daemon, trigger a mount or query another machine.
    pub fn reopen_directory(&self) -> Result<OwnedFd> {
        if !self.is_directory() || !self.file_system()?.is_on_disk() {
            return Err(Error::io("open", std::io::Error::other("not a directory on a disk")));
        }
        self.reopen_as(OFlags::DIRECTORY)
    }

    /// Reads the directory at this path while `goes_on(count)`: [`list`].
    pub(crate) fn list(&self, path: &Path, mut goes_on: impl FnMut(usize) -> bool) -> Result<usize> {
        let failed = |e| Error::io(format!("list {}", path.display()), e);
        let directory = self.reopen_directory()?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
        let mut count = 0;
        while goes_on(count) {
            match entries.next() {
                Some(entry) => entry.map_err(failed)?,
                None => break,
            };
            count += 1;
        }
        Ok(count)
    }

    /// The names in the directory, with their kinds, at most `limit`: without `.` and `..`, in any order. Reads only directories on a
    /// disk, as [`Handle::reopen_directory`].
    pub fn entries(&self, limit: usize) -> Result<Vec<(OsString, EntryKind)>> {
        let directory = self.reopen_directory()?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries = rustix::fs::RawDir::new(&directory, buffer.spare_capacity_mut());
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(entry) = entries.next()
        {
            let entry = entry.map_err(|e| Error::io("list a directory", e))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.push((OsString::from_vec(name.to_vec()), EntryKind::of(entry.file_type())));
            }
        }
        Ok(found)
    }

    fn reopen_as(&self, more: OFlags) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | more;
        // O_NOATIME is for the owner and root. The check saves a failed call for each file of another user.
        let user = rustix::process::geteuid();
        let first = if user.is_root() || user.as_raw() == self.stat.st_uid { flags | OFlags::NOATIME } else { flags };
        match descriptors::reopen(self.fd.as_fd(), first) {
            Err(Errno::PERM) if first != flags => descriptors::reopen(self.fd.as_fd(), flags),
            other => other,
        }
        .map_err(|e| Error::io("open for reading", e))
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The identity of an open file.
pub fn identity(fd: impl AsFd) -> Result<Identity> {
    fstat(fd).map(|stat| identity_of(&stat)).map_err(|e| Error::io("fstat", e))
}

fn identity_of(stat: &Stat) -> Identity {
    Identity {
        device: DeviceNumber::from_stat(stat.st_dev).key(),
        inode: stat.st_ino,
        size_bytes: stat.st_size as u64,
        mtime_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
        owner: stat.st_uid,
    }
}

/// The device node of a block device (`/dev/sda1`), named as by the kernel. In a container it may be missing.
pub fn block_device_node(key: u64) -> Result<std::path::PathBuf> {
    let path = format!("/sys/dev/block/{}/uevent", DeviceNumber::from_key(key));
    let text = descriptors::read_text(Path::new(&path)).map_err(|e| Error::io(format!("read {path}"), e))?;
    let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map(|name| Path::new("/dev").join(name)).ok_or(Error::Parse { path: path.into(), text })
}

/// The type of the file system of an open file.
pub fn file_system_of(fd: impl AsFd) -> Result<FileSystemKind> {
    fstatfs(fd).map(|stat| FileSystemKind::of_magic(stat.f_type as u64)).map_err(|e| Error::io("fstatfs", e))
}

/// Looks a path up to load its metadata. No link is followed; only an `O_PATH` handle is opened. Returns whether the path
/// exists. The kernel caches a negative answer, too.
pub fn look_up(path: &Path) -> Result<bool> {
    existence(open_unfollowed(path))
}

pub(crate) fn existence(opened: Result<OwnedFd>) -> Result<bool> {
    match opened {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Reads a directory to load its metadata, while `goes_on(count)`, and returns the number of entries read. Opens only directories
/// on a disk. Does not trigger an automount: the first handle is opened without `O_DIRECTORY`, which would.
pub fn list(path: &Path, goes_on: impl FnMut(usize) -> bool) -> Result<usize> {
    handle(path)?.list(path, goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs;

    fn refused(path: &Path) -> bool {
        let by_call = handle(path).and_then(|handle| handle.reopen());
        let by_hand = by_components(path).map_err(|e| Error::io("open", e)).and_then(|fd| {
            let stat = fstat(&fd).map_err(|e| Error::io("fstat", e))?;
            Handle { fd, stat }.reopen()
        });
        assert_eq!(by_call.is_err(), by_hand.is_err(), "{}", path.display());
        by_call.is_err()
    }

    #[test]
    fn only_regular_files_without_links_in_the_path_are_opened() {
        let home = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        let file = home.join("file");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, home.join("link")).unwrap();
        fs::create_dir(home.join("directory")).unwrap();
        std::os::unix::fs::symlink(home.join("directory"), home.join("way")).unwrap();
        fs::write(home.join("directory/inner"), "x").unwrap();
        rustix::fs::mknodat(CWD, home.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(home.join("socket")).unwrap();
        assert!(!refused(&file));
        assert!(!refused(&home.join("directory/inner")));
        for bad in ["link", "directory", "way/inner", "fifo", "socket", "absent"] {
            assert!(refused(&home.join(bad)), "{bad}");
        }
        for bad in ["/dev/null", "/dev/tty", "/proc/self/exe", "/"] {
            assert!(refused(Path::new(bad)), "{bad}");
        }
        assert!(handle(&home.join("directory/../file")).is_err());
        assert!(handle(Path::new("Cargo.toml")).is_err());
    }

    #[test]
    fn reopened_file_is_the_checked_file() {
        let home = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(home.path()).unwrap().join("file");
        fs::write(&path, "first").unwrap();
        let checked = handle(&path).unwrap();
        fs::rename(&path, path.with_extension("old")).unwrap();
        fs::write(&path, "second").unwrap();
        let file = fs::File::from(checked.reopen().unwrap());
        assert_eq!(std::io::read_to_string(file).unwrap(), "first");
        assert_eq!(checked.identity().size_bytes, 5);
    }

    #[test]
    fn generated_file_systems_have_no_page_cache() {
        for path in ["/proc/version", "/sys/kernel/mm"] {
            let handle = handle(Path::new(path)).unwrap();
            assert!(!handle.file_system().unwrap().has_page_cache(), "{path}");
        }
        let here = handle(&fs::canonicalize(env!("CARGO_MANIFEST_DIR")).unwrap()).unwrap();
        assert!(here.file_system().unwrap().has_page_cache());
    }

    #[test]
    fn only_directories_on_a_disk_are_listed() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        fs::create_dir(home.join("directory")).unwrap();
        std::os::unix::fs::symlink(home.join("directory"), home.join("link")).unwrap();
        rustix::fs::mknodat(CWD, home.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(list(&home.join("directory"), |_| true).unwrap(), 2);
        for bad in ["link", "fifo", "absent"] {
            assert!(list(&home.join(bad), |_| true).is_err(), "{bad}");
        }
        for bad in ["/proc", "/proc/self/fd", "/sys", "/dev", "/dev/pts"] {
            assert!(list(Path::new(bad), |_| true).is_err(), "{bad}");
        }
    }

    #[test]
    fn look_up_reports_existence_and_list_stops_at_its_limit() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(home.path().join("a"), "").unwrap();
        assert!(look_up(&home.path().join("a")).unwrap());
        assert!(!look_up(&home.path().join("b")).unwrap());
        assert!(!look_up(&home.path().join("a/b")).unwrap());
        assert_eq!(list(home.path(), |_| true).unwrap(), 3);
        assert_eq!(list(home.path(), |count| count < 2).unwrap(), 2);
        assert!(list(&home.path().join("a"), |_| true).is_err());
    }
}
