//! Walks a path one name at a time, with descriptors only, as in a chroot of its first directory.
//!
//! ```text
//!     /lib/x in TREE      TREE ──"lib"──▶ a link to /usr/lib ─▶ TREE ──"usr"──▶ directory ──"lib"──▶ directory ──"x"──▶ file
//!                                         an absolute target starts at TREE; ".." ends at TREE
//! ```
//!
//! openat2 with RESOLVE_IN_ROOT does this in one call. Here each step is needed: to create a missing directory, and to see who may change
//! it or has made a link ([`crate::trusted`]). No step follows a link or opens `..`, so a directory that is renamed meanwhile leads to no place
//! outside. It works on every kernel. Only a walk that opens descriptors of processes may leave the first directory.

use crate::{Error, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links in one path, as in the kernel (MAXSYMLINKS).
const MAX_LINKS: u32 = 40;

/// A file that a walk has reached. A symbolic link is reached itself.
pub(crate) struct Reached<'a> {
    /// Open without access (`O_PATH`).
    pub file: BorrowedFd<'a>,
    /// Its path from the first directory.
    pub path: &'a Path,
}

impl Reached<'_> {
    /// Asks its file system, which may be a server.
    pub fn stat(&self) -> Result<Stat> {
        fstat(self.file).map_err(|e| failed(self.path, e))
    }
}

/// What a walk does beside opening files. `()` does nothing.
pub(crate) trait Steps {
    /// Called for the first directory and then for each file on the way, links included, before its file system is asked for more. An error
    /// ends the walk.
    fn see(&mut self, _: &Reached<'_>) -> Result<()> {
        Ok(())
    }

    /// Creates a missing name in a directory, or returns `ENOENT`.
    fn make(&mut self, _directory: BorrowedFd<'_>, _name: &OsStr, _path: &Path) -> rustix::io::Result<()> {
        Err(Errno::NOENT)
    }

    /// Whether a link of procfs leads to the open file of a process, which may lie outside the first directory. Otherwise its text is a path.
    fn opens_descriptors(&self) -> bool {
        false
    }
}

impl Steps for () {}

/// The place of a walk.
struct RootedPlace {
    /// The directories above the next file, the lowest one first: `..` returns to a descriptor.
    above: Vec<OwnedFd>,
    /// The path of the last one.
    path: PathBuf,
    /// The lowest directory is a descriptor of a process, and `..` leads out of it.
    is_descriptor: bool,
}

/// Opens an absolute path below a directory.
pub(crate) fn walk(root: BorrowedFd<'_>, path: &Path, steps: &mut impl Steps) -> Result<OwnedFd> {
    if !path.is_absolute() {
        return Err(failed(path, io::Error::other("not an absolute path")));
    }
    let mut place = RootedPlace::first(root)?;
    see(steps, place.directory(), &place.path)?;
    let (mut left, mut links) = (names(path), 0);
    while let Some(name) = left.pop() {
        if name == ".." {
            place.leave()?;
            continue;
        }
        let at = place.path.join(&name);
        let opened = match open(place.directory(), &name) {
            Err(Errno::NOENT) => {
                steps.make(place.directory(), &name, &at).and_then(|()| open(place.directory(), &name))
            }
            opened => opened,
        };
        let file = opened.map_err(|e| failed(&at, e))?;
        if see(steps, file.as_fd(), &at)? != FileType::Symlink {
            place.enter(file, at);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(failed(path, Errno::LOOP));
        }
        if steps.opens_descriptors() && fstatfs(&file).map_err(|e| failed(&at, e))?.f_type == PROC_SUPER_MAGIC {
            place = place.at_descriptor(&name, at)?;
            continue;
        }
        let target = readlinkat(&file, "", Vec::new()).map_err(|e| failed(&at, e))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            place = RootedPlace::first(root)?;
        }
        left.extend(names(&target));
    }
    Ok(place.above.pop().expect("the first directory stays"))
}

impl RootedPlace {
    fn first(root: BorrowedFd<'_>) -> Result<RootedPlace> {
        let path = PathBuf::from("/");
        let first = open(root, OsStr::new(".")).map_err(|e| failed(&path, e))?;
        Ok(RootedPlace { above: vec![first], path, is_descriptor: false })
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.above.last().expect("the first directory stays").as_fd()
    }

    fn enter(&mut self, file: OwnedFd, path: PathBuf) {
        self.above.push(file);
        self.path = path;
    }

    /// Follows `..`, which in the first directory leads to itself.
    fn leave(&mut self) -> Result<()> {
        if self.above.len() > 1 {
            self.above.pop();
            self.path.pop();
        } else if self.is_descriptor {
            self.path.push("..");
            self.above = vec![open(self.directory(), OsStr::new("..")).map_err(|e| failed(&self.path, e))?];
        }
        Ok(())
    }

    /// Follows a link of procfs: its text is not a path.
    fn at_descriptor(&self, name: &OsStr, path: PathBuf) -> Result<RootedPlace> {
        let opened = openat(self.directory(), name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        Ok(RootedPlace { above: vec![opened.map_err(|e| failed(&path, e))?], path, is_descriptor: true })
    }
}

fn see(steps: &mut impl Steps, file: BorrowedFd<'_>, path: &Path) -> Result<FileType> {
    let there = Reached { file, path };
    steps.see(&there)?;
    Ok(FileType::from_raw_mode(there.stat()?.st_mode))
}

fn open(directory: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn failed(path: &Path, error: impl Into<io::Error>) -> Error {
    Error::io(format!("open {}", path.display()), error)
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.into()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.rev().collect()
}

/// Sets the mode of a directory or file that was opened with `O_PATH`: with any umask.
pub(crate) fn set_mode(file: BorrowedFd<'_>, mode: Mode) -> rustix::io::Result<()> {
    rustix::fs::chmodat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), mode, AtFlags::empty())
}
