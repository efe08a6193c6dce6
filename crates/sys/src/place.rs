//! Paths as root in directories that others may write.
//!
//! Between two calls with the same path, the owner of any directory in it can put a symbolic link there. So a path is
//! resolved once, and what it led to is kept open:
//!
//! ```text
//!     /home/eva/d/x.img ──▶ directory (O_PATH) + "x.img"  ──▶ /proc/self/fd/N/x.img   look at it, remove it, unmount it
//!     /home/eva/mnt     ──▶ directory (O_PATH)            ──▶ /proc/self/fd/N         mount on it
//!     /home/eva/x.img   ──▶ regular file (O_PATH)         ──▶ /proc/self/fd/N         open it for reading and writing
//! ```
//!
//! The kernel resolves such a link to the open object itself, wherever its path leads by then.

use crate::{Error, Result};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A name in a directory that is held open.
#[derive(Debug)]
pub struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    /// Resolves the directory of `path`; the name in it is not looked at. `None`: there is no such directory.
    pub fn of(path: &Path) -> Result<Option<Place>> {
        let failed = |e| Error::io(format!("look at {}", path.display()), e);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(io::Error::other("it has no directory above it")));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(directory) => Ok(Some(Place { directory, name: name.into() })),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// A path that leads through the descriptor. Valid in this process, while this lives.
    pub fn path(&self) -> PathBuf {
        link(&self.directory).join(&self.name)
    }

    /// Where it is now, as the mount table writes it.
    pub fn current_path(&self) -> Result<PathBuf> {
        Ok(current_path(&self.directory)?.join(&self.name))
    }
}

/// A directory to mount on.
#[derive(Debug)]
pub struct MountPoint {
    directory: OwnedFd,
}

impl MountPoint {
    /// Opens a directory; symbolic links in its path are followed, this one time.
    pub fn open(path: &Path) -> io::Result<MountPoint> {
        Self::open_with(path, OFlags::empty())
    }

    /// Opens the directory in a place; a symbolic link there is an error.
    pub fn open_in(place: &Place) -> io::Result<MountPoint> {
        Self::open_with(&place.path(), OFlags::NOFOLLOW)
    }

    fn open_with(path: &Path, more: OFlags) -> io::Result<MountPoint> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        Ok(MountPoint { directory: open(path, flags, Mode::empty())? })
    }

    /// A path that leads through the descriptor.
    pub fn path(&self) -> PathBuf {
        link(&self.directory)
    }

    /// Where the directory is now.
    pub fn current_path(&self) -> Result<PathBuf> {
        current_path(&self.directory)
    }
}

/// Opens the regular file that a path leads to. Nothing else is opened: no FIFO, no device. Symbolic links are followed,
/// this one time.
pub fn open_regular_file(path: &Path, writable: bool) -> io::Result<File> {
    let handle = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !FileType::from_raw_mode(fstat(&handle)?.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    File::options().read(true).write(writable).custom_flags(flags).open(link(&handle))
}

/// Where an open file or directory is now, without symbolic links.
pub fn path_of(fd: &impl AsFd) -> Result<PathBuf> {
    fs::read_link(link(fd)).map_err(|e| Error::io("find an open file's path", e))
}

fn link(fd: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

fn current_path(directory: &OwnedFd) -> Result<PathBuf> {
    let path = path_of(directory)?;
    // The kernel says so of a directory that was removed, and of one with such a name: no mount can be found by it.
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(removed) if fs::symlink_metadata(&path).is_err() => {
            let removed = PathBuf::from(OsString::from_vec(removed.to_vec()));
            Err(Error::io(format!("look at {}", removed.display()), io::Error::from(io::ErrorKind::NotFound)))
        }
        _ => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Regression: what lies in a directory was removed by a path in which somebody had put a link by then.
    #[test]
    fn place_stays_in_its_directory_when_a_link_replaces_that() {
        let home = tempfile::tempdir().unwrap();
        let (theirs, ours) = (home.path().join("theirs"), home.path().join("ours"));
        for directory in [&theirs, &ours] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("x"), "").unwrap();
        }
        let place = Place::of(&ours.join("x")).unwrap().unwrap();
        fs::rename(&ours, home.path().join("moved")).unwrap();
        symlink(&theirs, &ours).unwrap();
        assert_eq!(place.current_path().unwrap(), home.path().canonicalize().unwrap().join("moved/x"));
        fs::remove_file(place.path()).unwrap();
        assert!(theirs.join("x").exists() && !home.path().join("moved/x").exists());
    }

    #[test]
    fn place_without_a_directory_is_none() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        assert!(Place::of(&home.path().join("none/x")).unwrap().is_none());
        assert!(Place::of(&home.path().join("file/x")).unwrap().is_none());
        assert!(Place::of(Path::new("/")).is_err());
        assert!(Place::of(Path::new("x")).unwrap().is_some());
    }

    #[test]
    fn mount_point_in_a_place_is_no_link() {
        let home = tempfile::tempdir().unwrap();
        symlink("/", home.path().join("link")).unwrap();
        let place = Place::of(&home.path().join("link")).unwrap().unwrap();
        assert!(MountPoint::open_in(&place).is_err());
        assert!(MountPoint::open(&home.path().join("link")).is_ok());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let home = tempfile::tempdir().unwrap();
        let fifo = home.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // A FIFO would block until somebody writes.
        for path in [fifo.as_path(), home.path(), Path::new("/dev/null")] {
            assert_eq!(open_regular_file(path, false).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let file = home.path().join("file");
        fs::write(&file, "x").unwrap();
        let opened = open_regular_file(&file, true).unwrap();
        assert_eq!(path_of(&opened).unwrap(), file.canonicalize().unwrap());
    }
}
