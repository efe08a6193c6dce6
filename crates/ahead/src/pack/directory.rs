//! The directory of a relocation in the root of its file system: the donor and the record.
//!
//! ```text
//!     MOUNT/.ahead-pack/   root's alone, locked while a relocation works on it
//!         donor            contiguous blocks; after the exchange, the old blocks
//!         record.json      complete and durable before the first exchange
//! ```
//!
//! A donor without a record has no block of a file: a crash came before the record, or after the end. It is removed.

use crate::Result;
use ahead_pack::{MAX_RECORD_BYTES, Record};
use ahead_sys::directory::Directory;
use ahead_sys::{Error, mounting, mounts};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, ResolveFlags, openat2};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the directory.
const NAME: &str = ".ahead-pack";
const DONOR: &str = "donor";
const RECORD: &str = "record.json";
const NEW_RECORD: &str = "record.new";

/// The open directory.
#[derive(Debug)]
pub struct PackDirectory {
    root: Directory,
    own: Directory,
    /// Holds the lock; also the descriptor to sync with.
    lock: File,
}

/// A relocation that is kept.
#[derive(Debug)]
pub struct Pending {
    /// Its directory.
    pub directory: PackDirectory,
    /// Its record.
    pub record: Record,
    /// The root of its file system.
    pub mount_point: PathBuf,
}

/// The relocations that are kept in the mounted ext4 file systems.
#[derive(Debug, Default)]
pub struct Kept {
    /// Those of one profile, locked.
    pub own: Vec<Pending>,
    /// The others, as text.
    pub others: Vec<String>,
}

/// Finds the relocations that are kept, and locks those of this profile. Directories of that name that are not root's are skipped: a user may
/// own the root of a file system.
///
/// # Errors
/// A relocation of this profile is at work; its record cannot be read.
pub fn kept(profile: &Path) -> Result<Kept> {
    let mut seen = BTreeSet::new();
    let mut kept = Kept::default();
    let roots = mounts::own()?.into_iter().filter(|mount| mount.fs_type == "ext4" && mount.root == b"/");
    for mount in roots.filter(|mount| seen.insert(mount.device)) {
        let mount_point = PathBuf::from(OsStr::from_bytes(&mount.mount_point));
        // Another file system may be mounted on it: then this one is not reachable here.
        let Ok(root) = Directory::open(&mount_point) else { continue };
        if !root.has(OsStr::new(NAME)) || ahead_sys::openat::identity(&root)?.device != mount.device.key() {
            continue;
        }
        let mut directory = match PackDirectory::open_in(root) {
            Ok(directory) => directory,
            Err(error) => {
                tracing::warn!("{}: {error}", mount_point.display());
                continue;
            }
        };
        match directory.record()? {
            Some(record) if record.profile == profile.as_os_str().as_bytes() => {
                directory.lock()?;
                kept.own.push(Pending { directory, record, mount_point });
            }
            Some(record) => kept.others.push(description(&record, &mount_point)),
            // Unless a relocation is about to write it.
            None if directory.lock().is_ok() && directory.record()?.is_none() => directory.remove(false)?,
            None => {}
        }
    }
    Ok(kept)
}

fn description(record: &Record, mount_point: &Path) -> String {
    let profile = Path::new(OsStr::from_bytes(&record.profile));
    format!("{} (in {})", profile.display(), mount_point.display())
}

/// Which relocation is kept in the file system with this root, as a sentence.
pub fn kept_in(mount_point: &Path) -> Result<Option<String>> {
    let root = Directory::open(mount_point)?;
    if !root.has(OsStr::new(NAME)) {
        return Ok(None);
    }
    let record = PackDirectory::open_in(root)?.record()?;
    Ok(record.map(|record| {
        let what = description(&record, mount_point);
        format!("the relocation of {what} is kept, {} bytes: end it with --commit or --undo first", record.bytes())
    }))
}

impl PackDirectory {
    /// Opens the directory, or makes it.
    ///
    /// # Errors
    /// The path is not the root of a mount; a directory of that name is not root's alone; another relocation works on it.
    pub fn open_or_create(mount_point: &Path) -> Result<PackDirectory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let what = || format!("open {}", mount_point.display());
        let opened = openat2(rustix::fs::CWD, mount_point, flags, Mode::empty(), resolve);
        let opened = opened.map_err(|error| Error::io(what(), error))?;
        if !mounting::is_mount_root(&opened)? {
            return Err(Error::io(what(), io::Error::other("not the root of a mount")).into());
        }
        let root =
            Directory::open(&PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened))))?;
        if root.has(OsStr::new(NAME)) {
            let mut directory = PackDirectory::open_in(root)?;
            directory.lock()?;
            if directory.record()?.is_none() {
                directory.own.remove_file(OsStr::new(DONOR))?;
                directory.own.remove_file(OsStr::new(NEW_RECORD))?;
            }
            return Ok(directory);
        }
        drop(root.create_directory(OsStr::new(NAME))?);
        let mut directory = PackDirectory::open_in(root)?;
        directory.lock()?;
        Ok(directory)
    }

    fn open_in(root: Directory) -> Result<PackDirectory> {
        let own = root.directory(OsStr::new(NAME))?;
        let metadata = own.metadata()?;
        let is_on_root = metadata.dev() == root.metadata()?.dev();
        let failed = |why: &str| Error::io(format!("use {NAME}"), io::Error::other(why.to_owned()));
        if metadata.uid() != 0 || metadata.mode() & 0o7777 != 0o700 || !is_on_root {
            return Err(
                failed("it is not a directory of root's alone (mode 0700) in this file system: remove it").into()
            );
        }
        let lock = File::open(own.descriptor_path()).map_err(|error| Error::io(format!("open {NAME}"), error))?;
        Ok(PackDirectory { root, own, lock })
    }

    /// Excludes other relocations until it is dropped.
    fn lock(&mut self) -> Result<()> {
        match rustix::fs::flock(&self.lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let path = self.root.path().join(NAME);
                Err(Error::io(path.display().to_string(), io::Error::other("another ahead pack works on it")).into())
            }
            locked => Ok(locked.map_err(|error| Error::io(format!("lock {NAME}"), error))?),
        }
    }

    /// The record; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn record(&self) -> Result<Option<Record>> {
        let what = format!("read {NAME}/{RECORD}");
        let failed = |error: io::Error| Error::io(what.clone(), error);
        let file = match self.open(RECORD, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let mut text = Vec::new();
        file.take(MAX_RECORD_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_RECORD_BYTES {
            return Err(failed(io::Error::other("it is too long")).into());
        }
        Ok(Some(Record::decode(&text).map_err(|error| failed(io::Error::other(error)))?))
    }

    fn open(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&self.own, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    /// Makes the donor, with blocks for this number of bytes.
    ///
    /// # Errors
    /// Too little room (`ENOSPC`): then it is removed.
    pub fn create_donor(&self, bytes: u64) -> std::result::Result<File, Error> {
        self.own.remove_file(OsStr::new(DONOR))?;
        // Blocks of deleted files can be allocated after the next commit of the journal.
        rustix::fs::syncfs(&self.lock).map_err(|error| Error::io("syncfs", error))?;
        let donor = self.own.create_file(OsStr::new(DONOR))?;
        match rustix::fs::fallocate(&donor, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(donor),
            Err(error) => {
                self.own.remove_file(OsStr::new(DONOR))?;
                Err(Error::io("allocate the donor", error))
            }
        }
    }

    /// Opens the donor of a record.
    ///
    /// # Errors
    /// It is missing, or another file.
    pub fn donor(&self, record: &Record) -> Result<File> {
        let failed = |error| Error::io(format!("open {NAME}/{DONOR}"), error);
        let donor = self.open(DONOR, OFlags::RDWR).map_err(failed)?;
        if donor.metadata().map_err(failed)?.ino() != record.donor_inode {
            return Err(failed(io::Error::other("it is not the donor of the record")).into());
        }
        Ok(donor)
    }

    /// Writes the record, and returns when it and the donor's allocation survive a power cut.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_record(&self, record: &Record) -> Result<()> {
        let failed = |error: io::Error| Error::io(format!("write {NAME}/{RECORD}"), error);
        let text = record.encode();
        if text.len() as u64 > MAX_RECORD_BYTES {
            return Err(failed(io::Error::other("the profile has too many ranges")).into());
        }
        self.own.remove_file(OsStr::new(NEW_RECORD))?;
        let mut file = self.own.create_file(OsStr::new(NEW_RECORD))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        self.own.rename(OsStr::new(NEW_RECORD), OsStr::new(RECORD))?;
        self.sync()
    }

    /// Writes everything in the file system to the disk.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.lock).map_err(|error| Error::io("syncfs", error).into())
    }

    /// Removes record, donor and directory: in this order, because a donor without a record is known to have no block of a file, and a record
    /// without a donor could not be undone. `durably`: returns when they are gone on the disk.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self, durably: bool) -> Result<()> {
        self.own.remove_file(OsStr::new(RECORD))?;
        if durably {
            // The next steps free blocks.
            self.sync()?;
        }
        self.own.remove_file(OsStr::new(NEW_RECORD))?;
        self.own.remove_file(OsStr::new(DONOR))?;
        self.root.remove_directory(OsStr::new(NAME))?;
        if durably { self.sync() } else { Ok(()) }
    }
}

impl AsFd for PackDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.lock.as_fd()
    }
}
