//! The subject of a probe: a private test file, an existing file, or a block device; and the disk below.
//!
//! The private file has no name, so the kernel removes it however the process ends. Where a file system cannot make such files,
//! the file has a name until it is removed, right after its creation.

use crate::probe::cold_check::ColdCheck;
use crate::probe::error::{Error, Result};
use crate::probe::{Watcher, data, node};
use ahead_model::DeviceNumber;
pub use ahead_model::PAGE_BYTES;
use ahead_model::file_system_kind::Place;
use ahead_model::random::SplitMix64;
use ahead_sys::directory::Directory;
use ahead_sys::mapping::Mapping;
use ahead_sys::openat::Handle;
use ahead_sys::{block, cache, machine, mounts, openat};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Length of a piece when writing a file, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// After this number of bytes the writer waits until the disk has them: a second or less on all but the slowest disks.
const SYNCED_BYTES: u64 = 16 << 20;
/// Smallest size that can be probed, bytes.
const LEAST_BYTES: u64 = 16 * PAGE_BYTES;
/// The probe leaves this part of the file's size free in the file system: one part in `RESERVE`.
const RESERVE: u64 = 8;

/// The probed file or device.
#[derive(Debug)]
pub struct Subject {
    held: File,
    /// A path for opening it again.
    path: PathBuf,
    /// The name in messages.
    name: String,
    pages: u64,
    /// The directory for test files, if there is one.
    directory: Option<Directory>,
    is_device: bool,
    /// The block device below, if this process may read the device.
    device: Option<PathBuf>,
    pub(crate) cold_check: ColdCheck,
    /// Why read times are not those of the disk.
    missing: Option<String>,
}

impl Subject {
    /// A file, a device, or a test file of `size_bytes` in a directory. With `timing_only` the probe makes no query to the kernel about
    /// it.
    ///
    /// Errors: no such path, too little space, not permitted, a device in use, a kind of file that cannot be probed.
    pub fn new(path: &Path, size_bytes: u64, timing_only: bool, watcher: &dyn Watcher) -> Result<Subject> {
        // From here on the subject has one name, also after a mount or a rename along the path.
        let path = &fs::canonicalize(path).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
        match Directory::open(path) {
            Ok(directory) => {
                let held = test_file(&directory, size_bytes, watcher)?;
                let subject = Subject::of(held, "the test file".into(), size_bytes, timing_only, watcher)?;
                return Ok(Subject { directory: Some(directory), ..subject });
            }
            Err(error) if error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error()) => {}
            Err(error) => return Err(error.into()),
        }
        // The checked file is the opened file: a user who may write the directory could replace the file by a FIFO or a device.
        let looked = openat::handle(path)?;
        if looked.block_device().is_some() {
            Subject::device(&looked, path, timing_only, watcher)
        } else if looked.is_regular_file() {
            lies_on_a_disk(&looked, path)?;
            Subject::file(&looked, path, timing_only, watcher)
        } else {
            Err(Error::Unsuitable(format!(
                "{} is no file, directory or block device; give a directory on what is to be probed",
                path.display()
            )))
        }
    }

    fn file(looked: &Handle, path: &Path, timing_only: bool, watcher: &dyn Watcher) -> Result<Subject> {
        let held = File::from(looked.reopen().map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::ACCESS.raw_os_error() => not_permitted(
                format!("reading {}", path.display()),
                "give a file that you may read, or run it as root (sudo ahead …)",
            ),
            _ => error.into(),
        })?);
        let size_bytes = held.metadata().map_err(|e| Error::io(format!("look at {}", path.display()), e))?.len();
        if size_bytes < LEAST_BYTES {
            let why = "a file of some MiB is wanted, or a directory, in which one is made";
            return Err(Error::Unsuitable(format!("{} has only {size_bytes} bytes: {why}", path.display())));
        }
        Subject::of(held, path.display().to_string(), size_bytes, timing_only, watcher)
    }

    fn device(looked: &Handle, path: &Path, timing_only: bool, watcher: &dyn Watcher) -> Result<Subject> {
        let what = format!("open {}", path.display());
        let in_use = || {
            let why = "is in use (mounted, or part of something); probe a directory on it instead";
            Error::Unsuitable(format!("{} {why}", path.display()))
        };
        let same = format!("/proc/self/fd/{}", looked.as_fd().as_raw_fd());
        let held = File::options().read(true).custom_flags(block::O_EXCL).open(same).map_err(|e| match e.kind() {
            ErrorKind::ResourceBusy => in_use(),
            // In a container even root may be refused access to the mounted device.
            ErrorKind::PermissionDenied if machine::is_root() && is_mounted(path) => in_use(),
            ErrorKind::PermissionDenied if machine::is_root() => not_permitted(
                format!("reading {}, even for root here,", path.display()),
                "allow the device in the container's rules, or give a directory on it",
            ),
            ErrorKind::PermissionDenied => ahead_sys::Error::needs_root(format!("reading {}", path.display())).into(),
            _ => Error::io(what.clone(), e),
        })?;
        let size_bytes = rustix::fs::seek(&held, rustix::fs::SeekFrom::End(0)).map_err(|e| Error::io(what, e))?;
        if size_bytes < LEAST_BYTES {
            let why = format!("has only {size_bytes} bytes: there is nothing to be read");
            return Err(Error::Unsuitable(format!("{} {why}", path.display())));
        }
        let mut subject = Subject::of(held, path.display().to_string(), size_bytes, timing_only, watcher)?;
        (subject.is_device, subject.device) = (true, Some(path.to_owned()));
        Ok(subject)
    }

    fn of(held: File, name: String, size_bytes: u64, timing_only: bool, watcher: &dyn Watcher) -> Result<Subject> {
        let metadata = held.metadata().map_err(|e| Error::io("look at a file", e))?;
        // A node that this process may not read has the same effect as no node.
        let node = if metadata.file_type().is_file() { node::of(metadata.dev()) } else { None };
        let device = node.filter(|node| File::open(node).is_ok());
        // This path always opens the same file, even if another file has the name by then.
        let path = PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
        let exact = File::open(&path).map_err(|e| Error::io(format!("open {name} again"), e))?;
        cache::exact_reads(&exact)?;
        let cold_check = ColdCheck::of(&held, &exact, timing_only)?;
        let pages = size_bytes / PAGE_BYTES;
        let (directory, missing) = (None, None);
        let mut subject = Subject { held, path, name, pages, directory, is_device: false, device, cold_check, missing };
        subject.make_cold(watcher)?;
        if metadata.file_type().is_file() && !subject.is_served()? {
            subject.missing = data::missing(&subject.held, size_bytes, timing_only)?;
        }
        Ok(subject)
    }

    /// Number of whole pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// A path for opening it again.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name in messages: the test file has no name.
    pub(crate) fn shown(&self) -> &str {
        &self.name
    }

    /// The block device below, or the subject itself. `None` without a device, or if this process may not read the device.
    pub fn block_device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    /// Why read times are not those of the disk: the file has holes, or space without written data. `None`: they are.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// The directory for test files: the given one.
    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// Whether the subject is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Device number of its file system.
    pub fn device_number(&self) -> Result<DeviceNumber> {
        let metadata = self.held.metadata().map_err(|e| Error::io("look at a file", e))?;
        let number = if self.is_device { metadata.rdev() } else { metadata.dev() };
        Ok(DeviceNumber::from_stat(number))
    }

    /// Whether a FUSE server answers the reads.
    pub fn is_served(&self) -> Result<bool> {
        Ok(openat::file_system_of(&self.held)?.place == Place::Process)
    }

    /// Opens the subject again: the kernel has no history of this reader.
    pub fn open(&self) -> Result<File> {
        self.is_read();
        self.reopen()
    }

    /// Opens the subject for exact reads: when a read ends, no page is in flight.
    pub fn open_exact(&self) -> Result<File> {
        let file = self.reopen()?;
        cache::exact_reads(&file)?;
        Ok(file)
    }

    fn reopen(&self) -> Result<File> {
        File::open(&self.path).map_err(|e| Error::io(format!("open {} again", self.name), e))
    }

    /// The open file, for queries about layout.
    pub fn held(&self) -> &File {
        &self.held
    }

    /// Maps the whole subject; a fault reads a single page, and ignores the marks that trigger read-ahead.
    pub fn map_exact(&self, file: &File) -> Result<Mapping> {
        let mapping = Mapping::new(file, (self.pages * PAGE_BYTES) as usize)?;
        mapping.exact_faults()?;
        Ok(mapping)
    }

    /// Reads one byte of a page through an open file. Returns nanoseconds.
    pub fn read_page(&self, file: &File, page: u64) -> Result<u64> {
        self.read(file, page * PAGE_BYTES, 1)
    }

    /// Reads some bytes through an open file. Returns nanoseconds.
    pub fn read(&self, file: &File, offset_bytes: u64, length_bytes: usize) -> Result<u64> {
        let mut buffer = vec![0_u8; length_bytes];
        let began = std::time::Instant::now();
        file.read_exact_at(&mut buffer, offset_bytes).map_err(|e| Error::io(format!("read {}", self.name), e))?;
        Ok(began.elapsed().as_nanos() as u64)
    }
}

/// Makes the private test file.
fn test_file(directory: &Directory, size_bytes: u64, watcher: &dyn Watcher) -> Result<File> {
    let path = directory.path();
    lies_on_a_disk(directory, path)?;
    let space = rustix::fs::fstatvfs(directory).map_err(|errno| refused(path, errno))?;
    // A file system that cannot be written reports no free space either.
    let mut held = nameless(directory).map_err(|errno| refused(path, errno))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    if free_bytes < size_bytes + size_bytes / RESERVE {
        let directory = path.display().to_string();
        return Err(Error::NoSpace { directory, free_bytes, wanted_bytes: size_bytes });
    }
    write_all(&mut held, size_bytes, path, watcher)?;
    Ok(held)
}

/// Whether a file system of this device is mounted here.
fn is_mounted(device: &Path) -> bool {
    let number = block::device_number(device).ok();
    number.is_some_and(|number| mounts::own().unwrap_or_default().iter().any(|mount| mount.device == number))
}

/// A file without a name in a directory.
pub(crate) fn nameless(directory: &Directory) -> rustix::io::Result<File> {
    let (flags, mode) = (OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR);
    match rustix::fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Ok(fd) => Ok(File::from(fd)),
        Err(error @ (Errno::ACCESS | Errno::ROFS | Errno::NOSPC | Errno::PERM)) => Err(error),
        Err(_) => {
            let name = format!(".ahead-probe-{}", std::process::id());
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let fd = rustix::fs::openat(directory, &name, flags, mode)?;
            rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
            Ok(File::from(fd))
        }
    }
}

/// Checks that the file has a disk: files in memory, and files that the kernel generates, cannot be probed.
fn lies_on_a_disk(fd: impl AsFd, path: &Path) -> Result<()> {
    if openat::file_system_of(fd)?.has_page_cache() {
        return Ok(());
    }
    let why = "there is no disk behind it: its files lie in memory, or the kernel makes them up".to_owned();
    Err(ahead_sys::Error::Unsupported { what: format!("probing {}", path.display()), why }.into())
}

/// Why the test file could not be made, and the remedy.
fn refused(directory: &Path, errno: Errno) -> Error {
    match errno {
        Errno::ACCESS | Errno::PERM => not_permitted(
            format!("making a test file in {}", directory.display()),
            "give a directory that you may write, or a file that you may read",
        ),
        // A FUSE server that shows existing files only.
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL => Error::Unsuitable(format!(
            "no file can be made in {} ({errno}); give a file of some MiB on it",
            directory.display()
        )),
        Errno::ROFS => Error::Unsuitable(format!(
            "{} is mounted read-only, so that no test file can be made; give a file of some MiB on it",
            directory.display()
        )),
        _ => Error::io(format!("make a test file in {}", directory.display()), errno),
    }
}

fn not_permitted(what: String, remedy: &str) -> Error {
    ahead_sys::Error::NotPermitted { what, remedy: remedy.into() }.into()
}

/// Fills a file with bytes that no file system or drive can compress, and writes it to the disk. Piece by piece, so that a user who
/// cancels does not wait until the disk has written all of it.
fn write_all(file: &mut File, size_bytes: u64, directory: &Path, watcher: &dyn Watcher) -> Result<()> {
    let failed = |e: std::io::Error| match e.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Unsuitable(format!(
            "{} became full while the test file of {size_bytes} bytes was written; choose a smaller one with --size",
            directory.display()
        )),
        _ => Error::io(format!("write a test file in {}", directory.display()), e),
    };
    let mut piece = vec![0_u8; PIECE_BYTES];
    let (mut left, mut random) = (size_bytes, SplitMix64::new(1));
    while left > 0 {
        watcher.go_on("write the test file")?;
        for word in piece.chunks_exact_mut(8) {
            word.copy_from_slice(&random.number().to_le_bytes());
        }
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..now as usize]).map_err(failed)?;
        left -= now;
        if (size_bytes - left).is_multiple_of(SYNCED_BYTES) {
            file.sync_data().map_err(failed)?;
        }
    }
    file.sync_all().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    struct Unwatched;

    impl Watcher for Unwatched {
        fn go_on(&self, _: &str) -> Result<()> {
            Ok(())
        }
    }

    /// Regression: a FIFO that replaced a file after the check was opened, and the open waited without end.
    #[test]
    fn fifo_is_refused_without_an_open() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(matches!(Subject::new(&path, 0, false, &Unwatched), Err(Error::Unsuitable(_))));
        assert!(openat::handle(&path.canonicalize().unwrap()).unwrap().reopen().is_err());
    }

    /// Regression: the test file was made in another directory that had the given directory's name by then.
    #[test]
    fn files_are_made_in_the_given_directory_after_its_rename() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (given, away) = (home.path().join("given"), home.path().join("away"));
        fs::create_dir(&given).unwrap();
        let subject = Subject::new(&given, LEAST_BYTES, false, &Unwatched).unwrap();
        fs::rename(&given, &away).unwrap();
        std::os::unix::fs::symlink("/nowhere", &given).unwrap();
        nameless(subject.directory().unwrap()).unwrap();
        assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
    }

    /// Regression: the probe also read another file that had replaced the first, and the answers mixed both.
    #[test]
    fn replaced_file_is_read_unchanged() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("file");
        fs::write(&path, vec![1; LEAST_BYTES as usize]).unwrap();
        let subject = Subject::new(&path, 0, false, &Unwatched).unwrap();
        fs::write(home.path().join("other"), "another").unwrap();
        fs::rename(home.path().join("other"), &path).unwrap();
        assert_eq!(subject.open().unwrap().metadata().unwrap().len(), LEAST_BYTES);
        assert!(subject.shown().ends_with("file"));
    }

    /// Regression: each page of a file of a terabyte was checked before each run, for 40 seconds.
    #[test]
    fn file_of_a_terabyte_is_cold_within_seconds() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        if file.as_file().set_len(1 << 40).is_err() {
            return eprintln!("skipped: no file of a terabyte on this file system");
        }
        let began = Instant::now();
        for timing_only in [false, true] {
            let subject = Subject::new(file.path(), 0, timing_only, &Unwatched).unwrap();
            subject.read_page(&subject.open().unwrap(), 0).unwrap();
            subject.make_cold(&Unwatched).unwrap();
        }
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}
