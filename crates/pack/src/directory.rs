//! The directory of a relocation in the root of its file system: the donor and the record.
//!
//! ```text
//!     MOUNT/.ahead-pack/   root's alone, locked while a relocation works on it
//!         donor            contiguous blocks; after the exchange, the old blocks
//!         record.json      complete and durable before the first exchange
//! ```
//!
//! A donor without a record has no block of a file: a crash came before the record, or after the end. It is removed.
//!
//! Owner and mode prove nothing: the file system may come from a user's image or another machine. A record counts only if root has kept a copy
//! of it on this machine ([`super::copies`]).

use super::copies::{self, Copies};
use ahead::Result;
use ahead_plan::relocation::{MAX_RECORD_BYTES, Record};
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
    /// The number of the file system in the names of copies.
    file_system: u64,
}

/// A relocation that is kept.
#[derive(Debug)]
pub struct Pending {
    pub directory: PackDirectory,
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
    /// Why the directories of other file systems are left alone.
    pub unusable: Vec<String>,
}

/// Finds the relocations that are kept, and locks those of this profile. Only file systems of which root has a copy of a record are looked at:
/// a user's mounted image is not touched, unless it is a copy of such a file system. One that cannot be used does not stop the others.
///
/// # Errors
/// A relocation of this profile is at work; the copies cannot be read.
pub fn kept(profile: &Path) -> Result<Kept> {
    let mut seen = BTreeSet::new();
    let mut kept = Kept::default();
    let Some(copies) = Copies::open()? else { return Ok(kept) };
    let roots = mounts::own()?.into_iter().filter(|mount| mount.fs_type == "ext4" && mount.root == b"/");
    for mount in roots.filter(|mount| seen.insert(mount.device)) {
        let mount_point = PathBuf::from(OsStr::from_bytes(&mount.mount_point));
        // Another file system may be mounted on it: then this one is not reachable here.
        let Ok(root) = Directory::open(&mount_point) else { continue };
        if ahead_sys::openat::identity(&root)?.device != mount.device.key() {
            continue;
        }
        let has_copy = number_of(&root).is_ok_and(|number| copies.of(number).is_ok_and(|names| !names.is_empty()));
        if !has_copy || !root.has(OsStr::new(NAME)) {
            continue;
        }
        let found = PackDirectory::open_in(root).and_then(|directory| {
            let record = directory.record()?;
            Ok((directory, record))
        });
        let (mut directory, record) = match found {
            Ok(found) => found,
            Err(error) => {
                kept.unusable.push(format!("{}: {error}", mount_point.display()));
                continue;
            }
        };
        match record {
            Some(record) if record.profile == profile.as_os_str().as_bytes() => {
                directory.lock()?;
                kept.own.push(Pending { directory, record, mount_point });
            }
            Some(record) => kept.others.push(description(&record, &mount_point)),
            // Unless a relocation is about to write it.
            None if directory.lock().is_ok() && directory.record()?.is_none() => directory.remove()?,
            None => {}
        }
    }
    Ok(kept)
}

/// The number of a file system for [`copies`]: ext4 derives it from the UUID.
fn number_of(root: &Directory) -> Result<u64> {
    let status = rustix::fs::fstatvfs(root).map_err(|error| Error::io("statfs", error))?;
    Ok(status.f_fsid)
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
        let file_system = number_of(&root)?;
        Ok(PackDirectory { root, own, lock, file_system })
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
    /// It cannot be read, or root has no copy of it.
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
        let is_ours = Copies::open()?.map_or(Ok(false), |copies| copies.has(self.file_system, &text))?;
        if !is_ours {
            let why = "root has no copy of this record in /var/lib/ahead/pack, so it is not used: every file has its content, and the \
                       directory can be removed";
            return Err(failed(io::Error::other(why)).into());
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
        // Blocks of deleted files can be allocated when the journal has committed their deletion and run its callbacks, and a waiter may be woken
        // before these. They have run when a later transaction is committed, that of the new file.
        self.commit()?;
        let donor = self.own.create_file(OsStr::new(DONOR))?;
        self.commit()?;
        match rustix::fs::fallocate(&donor, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(donor),
            Err(error) => {
                self.own.remove_file(OsStr::new(DONOR))?;
                Err(Error::io("allocate the donor", error))
            }
        }
    }

    /// Waits until the journal has committed what has been done.
    fn commit(&self) -> std::result::Result<(), Error> {
        rustix::fs::syncfs(&self.lock).map_err(|error| Error::io("syncfs", error))
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
        // First: what is in the file system counts only with it.
        copies::add(self.file_system, record, &text)?;
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

    /// Removes record, donor, directory and the copy of the record, durably: in this order, because a donor without a record is known to have no
    /// block of a file, and a record without a donor could not be undone.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn end(&self, record: &Record) -> Result<()> {
        self.own.remove_file(OsStr::new(RECORD))?;
        // The next steps free blocks.
        self.sync()?;
        self.remove()?;
        self.sync()?;
        copies::remove(self.file_system, record)
    }

    /// Removes a directory without a record.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove(&self) -> Result<()> {
        self.own.remove_file(OsStr::new(NEW_RECORD))?;
        self.own.remove_file(OsStr::new(DONOR))?;
        Ok(self.root.remove_directory(OsStr::new(NAME))?)
    }
}

impl AsFd for PackDirectory {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.lock.as_fd()
    }
}
