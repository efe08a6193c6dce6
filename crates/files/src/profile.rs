//! Profiles on disk.
//!
//! ```text
//!     save:  bytes ─▶ a file without a name ─fsync─▶ linked to a temporary name ─rename─▶ NAME.ahead ─fsync directory
//!     load:  stat: a regular file? ─▶ open, non-blocking ─▶ the same file? ─▶ read up to the maximum size ─▶ decode
//! ```
//!
//! If a process is killed while saving, no file is left (except between link and rename). A reader sees the old profile or the
//! new one. Loading follows symbolic links, because a user may link `current.ahead` to a profile, and no profile is trusted for
//! its path. Saving replaces them, so that a link from another user in `/tmp` cannot redirect root's recording to another file.
//! Links to devices and directories are not replaced, nor are devices and directories. A caller that saves after some work
//! opens the directory before it ([`ProfilePlace`]): a program may replace the directory by a link in the meantime.

use crate::replacement::Replacement;
use ahead_profile::{DecodeError, LoadError, MAX_FILE_BYTES, Profile, SaveError, decode_shared, encode};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::fs::{fchmod, fstat, open, openat, openat2, stat, statat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Profiles contain private paths, so only their owner may read a new one.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Saves a profile with mode 0600 and atomically replaces an existing file.
///
/// Errors: every [`SaveError`]. Then an existing file is unchanged, and no other file is left.
pub fn save(profile: &Profile, path: &Path) -> Result<(), SaveError> {
    ProfilePlace::open(path)?.save(profile, None)
}

/// Who may use the file of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// User and group.
    pub owner: (u32, u32),
    /// Permission to read and write; `None`: that of a new profile.
    pub mode: Option<u32>,
}

/// The bits of a mode that are kept: reading and writing.
const KEPT_MODE: u32 = 0o666;

/// The destination of a profile: an open directory, and a name in it. Wherever the path leads when the profile is saved, no
/// file is created in another directory.
#[derive(Debug)]
pub struct ProfilePlace {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
}

impl ProfilePlace {
    /// Opens the directory of a path.
    pub fn open(path: &Path) -> Result<ProfilePlace, SaveError> {
        let opened = openat(CWD, directory_of(path), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        ProfilePlace::within(opened.map_err(|error| failure(path, CREATE)(error.into()))?, path)
    }

    /// A destination in a directory that the caller has opened for this path.
    pub fn within(directory: OwnedFd, path: &Path) -> Result<ProfilePlace, SaveError> {
        let name = path.file_name().ok_or(SaveError::NotAFile { path: path.into(), kind: "a directory" })?;
        Ok(ProfilePlace { name: name.into(), directory, path: path.into() })
    }

    /// Whether the name exists.
    pub fn is_taken(&self) -> bool {
        statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Checks whether a profile could be saved now, before minutes of recording. Leaves no file. Whether the disk will be full
    /// later is unknown.
    pub fn check(&self) -> Result<(), SaveError> {
        self.begin().map(drop)
    }

    /// As [`save`], and sets the owner of the file: for a recording that root makes for another user, or a profile that is changed in its place.
    ///
    /// Errors: also if the path leads to another directory now.
    pub fn save(&self, profile: &Profile, access: Option<Access>) -> Result<(), SaveError> {
        let bytes = encode(profile)?;
        let fail = |step| failure(&self.path, step);
        if !self.is_at_its_path() {
            return Err(SaveError::Moved { path: self.path.clone() });
        }
        let mut temporary = self.begin()?;
        temporary.file().write_all(&bytes).map_err(fail("write"))?;
        if let Some(Access { owner: (user, group), mode }) = access {
            std::os::unix::fs::fchown(temporary.file(), Some(user), Some(group)).map_err(fail("change its owner"))?;
            if let Some(mode) = mode {
                let mode = Mode::from_raw_mode(mode & KEPT_MODE);
                fchmod(temporary.file(), mode).map_err(|error| fail("change its mode")(error.into()))?;
            }
        }
        temporary.file().sync_all().map_err(fail("fsync"))?;
        temporary.rename_to(&self.name).map_err(fail("rename into place"))?;
        sync_directory(&self.directory).map_err(fail("fsync its directory"))
    }

    /// Loads the profile that has the name now, and who may use its file. A symbolic link is refused.
    ///
    /// Errors: every [`LoadError`].
    pub fn load(&self) -> Result<(Profile, Access), LoadError> {
        let fail = |error: Errno| LoadError::Io { path: self.path.clone(), source: error.into() };
        regular(&self.path, &statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail)?)?;
        let opened = openat(&self.directory, &self.name, READING | OFlags::NOFOLLOW, Mode::empty());
        let (bytes, stat) = read_open(opened.map_err(fail)?.into(), &self.path)?;
        let profile = decode_shared(&bytes.into());
        let profile = profile.map_err(|source| LoadError::Decode { path: self.path.clone(), source })?;
        Ok((profile, Access { owner: (stat.st_uid, stat.st_gid), mode: Some(stat.st_mode) }))
    }

    /// Only for the error message: files are created in the open directory in any case.
    fn is_at_its_path(&self) -> bool {
        let key = |stat: Stat| (stat.st_dev, stat.st_ino);
        let (own, there) = (fstat(&self.directory).map(key), stat(directory_of(&self.path)).map(key));
        own.is_ok() && own == there
    }

    fn begin(&self) -> Result<Replacement<'_>, SaveError> {
        if let Ok(there) = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            let in_the_way = match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => None,
                FileType::Symlink => self.kind_of_link_target(),
                other => Some(kind(other)),
            };
            if let Some(kind) = in_the_way {
                return Err(SaveError::NotAFile { path: self.path.clone(), kind });
            }
        }
        Replacement::create(self.directory.as_fd(), MODE).map_err(failure(&self.path, CREATE))
    }

    /// The kind of a symbolic link's target, unless that is a regular file or missing. Links of the system (`/dev/stdout`) must
    /// stay even if they lead to a regular file now: such a link goes through a descriptor.
    fn kind_of_link_target(&self) -> Option<&'static str> {
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

/// The first step, in error messages.
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
    decode_shared(&bytes.into()).map_err(|source| LoadError::Decode { path: path.into(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |error: Errno| LoadError::Io { path: path.into(), source: error.into() };
    let before = stat(path).map_err(fail)?;
    regular(path, &before)?;
    read_open(open(path, READING, Mode::empty()).map_err(fail)?.into(), path).map(|(bytes, _)| bytes)
}

/// NONBLOCK and NOCTTY: if a FIFO or terminal has replaced the file, opening it has no effect.
const READING: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Loads the profile in an open regular file. `path`: its name, for messages.
///
/// Errors: every [`LoadError`]; a file of another owner than `owner`.
pub(crate) fn load_open(file: File, path: &Path, owner: Option<u32>) -> Result<Profile, LoadError> {
    let (bytes, stat) = read_open(file, path)?;
    if owner.is_some_and(|owner| owner != stat.st_uid) {
        return Err(LoadError::NotAFile { path: path.into(), kind: "a file of another user" });
    }
    decode_shared(&bytes.into()).map_err(|source| LoadError::Decode { path: path.into(), source })
}

fn read_open(file: File, path: &Path) -> Result<(Vec<u8>, Stat), LoadError> {
    let now = fstat(&file).map_err(|error| LoadError::Io { path: path.into(), source: error.into() })?;
    regular(path, &now)?;
    let size_bytes = now.st_size as u64;
    // A file that is too large is not read, and one that grows is read only up to the limit; decode reports it.
    if size_bytes > MAX_FILE_BYTES {
        let source = DecodeError::TooLarge { bytes: size_bytes, limit: MAX_FILE_BYTES };
        return Err(LoadError::Decode { path: path.into(), source });
    }
    let mut bytes = Vec::with_capacity(size_bytes as usize);
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|source| LoadError::Io { path: path.into(), source })?;
    Ok((bytes, now))
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
        _ => "not a regular file",
    }
}
