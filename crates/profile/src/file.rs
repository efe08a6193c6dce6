//! Profiles on disk.
//!
//! ```text
//!     save:  bytes ─▶ a file without a name ─fsync─▶ given a temporary name ─rename─▶ NAME.ahead ─fsync directory
//!     load:  stat: a regular file? ─▶ open, never blocking ─▶ still that file? ─▶ read up to the cap ─▶ decode
//! ```
//!
//! Whoever is killed while saving leaves nothing behind (but for the moment between link and rename), and whoever loads
//! sees the old profile or the new one. Symbolic links are followed when loading, because a user may link
//! `current.ahead` to a profile and nothing is trusted for its place; they are replaced when saving, so that a link
//! that a stranger left in `/tmp` cannot lead a root user's recording onto another file. Links to devices and directories
//! stay, as these do themselves. Whoever saves at the end of some work opens the directory before it ([`Place`]): a program
//! that runs meanwhile may put a link in its place.

use crate::error::{LoadError, SaveError};
use crate::header::MAX_FILE_BYTES;
use crate::model::Profile;
use crate::replacement::Replacement;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fstat, open, openat, openat2, stat, statat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Profiles name private paths: for their owner alone.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Saves a profile with mode 0600, replacing what is there in one step.
///
/// Errors: every [`SaveError`]; then what was at the path before is still there, and nothing else is.
pub fn save(profile: &Profile, path: &Path) -> Result<(), SaveError> {
    Place::open(path)?.save(profile, None)
}

/// Where a profile will be saved: a directory that is open already, and a name in it. Whatever the path leads to by the
/// time of saving, nothing is made in another directory.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// Opens the directory that the path leads to now.
    pub fn open(path: &Path) -> Result<Place, SaveError> {
        let opened = openat(CWD, directory_of(path), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Place::within(opened.map_err(|error| failure(path, CREATE)(error.into()))?, path)
    }

    /// In a directory that the caller has opened as the one of this path.
    pub fn within(directory: OwnedFd, path: &Path) -> Result<Place, SaveError> {
        let name = path.file_name().ok_or(SaveError::NotAFile { path: path.into(), kind: "a directory" })?;
        Ok(Place { name: name.into(), directory, path: path.into() })
    }

    /// Whether something is there.
    pub fn is_taken(&self) -> bool {
        statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Finds out whether a profile could be saved there now: for who is about to spend minutes on making one. Leaves nothing
    /// behind. That the disk is not full by then cannot be known.
    pub fn check(&self) -> Result<(), SaveError> {
        self.begin().map(drop)
    }

    /// Like [`save`], and gives the file to a user and group: for a recording made as root for somebody else.
    ///
    /// Errors: also where the path leads to another directory by now.
    pub fn save(&self, profile: &Profile, owner: Option<(u32, u32)>) -> Result<(), SaveError> {
        let bytes = crate::encode(profile)?;
        let fail = |step| failure(&self.path, step);
        if !self.is_at_its_path() {
            return Err(SaveError::Moved { path: self.path.clone() });
        }
        let mut temporary = self.begin()?;
        temporary.file().write_all(&bytes).map_err(fail("write"))?;
        if let Some((user, group)) = owner {
            std::os::unix::fs::fchown(temporary.file(), Some(user), Some(group)).map_err(fail("change its owner"))?;
        }
        temporary.file().sync_all().map_err(fail("fsync"))?;
        temporary.rename_to(&self.name).map_err(fail("rename into place"))?;
        sync_directory(&self.directory).map_err(fail("fsync its directory"))
    }

    /// For the message alone: what is made is made in the directory that is open.
    fn is_at_its_path(&self) -> bool {
        let key = |stat: Stat| (stat.st_dev, stat.st_ino);
        let (own, there) = (fstat(&self.directory).map(key), stat(directory_of(&self.path)).map(key));
        own.is_ok() && own == there
    }

    fn begin(&self) -> Result<Replacement<'_>, SaveError> {
        if let Ok(there) = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            let in_the_way = match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => None,
                FileType::Symlink => self.link_to_no_file(),
                other => Some(kind(other)),
            };
            if let Some(kind) = in_the_way {
                return Err(SaveError::NotAFile { path: self.path.clone(), kind });
            }
        }
        Replacement::create(self.directory.as_fd(), MODE).map_err(failure(&self.path, CREATE))
    }

    /// What a symbolic link leads to, unless that is a file, or nothing. The system's links (`/dev/stdout`) must stay even
    /// where they lead to a file at this moment: such a one goes through a descriptor.
    fn link_to_no_file(&self) -> Option<&'static str> {
        let there = statat(&self.directory, &self.name, AtFlags::empty()).ok()?;
        let there = FileType::from_raw_mode(there.st_mode);
        if there != FileType::RegularFile {
            return Some(kind(there));
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = openat2(&self.directory, &self.name, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
        (opened.err() == Some(Errno::LOOP)).then_some("a link to an open file")
    }
}

/// The first step, as an error names it.
const CREATE: &str = "create a file in its directory";

fn failure(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> SaveError {
    move |source| match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT) => SaveError::NoSpace { path: path.into() },
        _ => SaveError::Io { path: path.into(), step, source },
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The new name must survive a power failure too. Some file systems have no fsync for directories.
fn sync_directory(directory: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::fsync(openat(directory, ".", flags, Mode::empty())?) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

/// Loads and checks a profile.
///
/// Errors: every [`LoadError`]; a FIFO, device or directory is refused without being opened.
pub fn load(path: &Path) -> Result<Profile, LoadError> {
    let bytes = read(path)?;
    crate::decode::decode_shared(&bytes.into()).map_err(|source| LoadError::Decode { path: path.into(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |error: Errno| LoadError::Io { path: path.into(), source: error.into() };
    let before = stat(path).map_err(fail)?;
    regular(path, &before)?;
    // NONBLOCK and NOCTTY: should a FIFO or terminal have taken the file's place by now, opening it does nothing.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty()).map_err(fail)?);
    let size_bytes = {
        let now = fstat(&file).map_err(fail)?;
        regular(path, &now)?;
        now.st_size as u64
    };
    // A file that is too large is not read at all, and one that grows meanwhile not beyond the cap: decode tells.
    if size_bytes > MAX_FILE_BYTES {
        let source = crate::DecodeError::TooLarge { bytes: size_bytes, limit: MAX_FILE_BYTES };
        return Err(LoadError::Decode { path: path.into(), source });
    }
    let mut bytes = Vec::with_capacity(size_bytes as usize);
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| LoadError::Io { path: path.into(), source })?;
    Ok(bytes)
}

fn regular(path: &Path, stat: &Stat) -> Result<(), LoadError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        other => Err(LoadError::NotAFile { path: path.into(), kind: kind(other) }),
    }
}

fn kind(of: FileType) -> &'static str {
    match of {
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "no regular file",
    }
}
