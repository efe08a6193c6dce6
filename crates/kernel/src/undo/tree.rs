//! Emptying a directory that is held open.
//!
//! ```text
//!     top/a/b/c   ──▶   top/a, top/1/c   ──▶   top/1, top/2   ──▶   top
//!                 b moved up, a removed   c moved up, 1 removed
//! ```
//!
//! What lies in a subdirectory is removed, and a directory in it is moved up into the top first. So two descriptors are
//! enough for any depth, and every name is looked up in a directory that is held open: no symbolic link is followed, and
//! nothing outside is reached. What is mounted inside is not entered.

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How often the directory is read: once for each level, at most. One to which another process adds names without end is
/// given up.
const ROUNDS_MOST: u32 = 1 << 20;

/// How many names are tried for a directory that is moved up.
const NAMES_MOST: u32 = 1 << 10;

/// Removes all that is in it.
pub(super) fn empty(top: &impl AsFd) -> io::Result<()> {
    let mut moved = 0;
    for _ in 0..ROUNDS_MOST {
        let mut was_empty = true;
        for entry in Dir::read_from(top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_itself_or_parent(name) {
                continue;
            }
            was_empty = false;
            if !remove_file(top, name)? {
                remove_directory(top, name, &mut moved)?;
            }
        }
        if was_empty {
            return Ok(());
        }
    }
    Err(io::Error::other("another process keeps adding files; end it first"))
}

fn is_itself_or_parent(name: &CStr) -> bool {
    [b".".as_slice(), b".."].contains(&name.to_bytes())
}

/// `false`: it is a directory.
fn remove_file(directory: &impl AsFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // POSIX gives EPERM for a directory; so does a file that cannot be removed, as the next step will find.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn remove_directory(top: &impl AsFd, name: &CStr, moved: &mut u32) -> io::Result<()> {
    let directory = match open_below(top, name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::XDEV) => return Err(io::Error::other("something is mounted in it; unmount that first")),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Errno::PERM.into()),
        Err(e) => return Err(e.into()),
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let inner = entry.file_name();
        if !is_itself_or_parent(inner) && !remove_file(&directory, inner)? {
            move_up(&directory, inner, top, moved)?;
        }
    }
    match unlinkat(top, name, AtFlags::REMOVEDIR) {
        // Something was added meanwhile: the next round.
        Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn open_below(top: &impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(top, name, flags, Mode::empty(), ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, or forbidden by a container.
        Err(Errno::NOSYS | Errno::PERM) => {
            let directory = openat(top, name, flags, Mode::empty())?;
            let device = |fd: &dyn AsFd| rustix::fs::fstat(fd.as_fd()).map(|stat| stat.st_dev);
            if device(&directory)? == device(top)? { Ok(directory) } else { Err(Errno::XDEV) }
        }
        other => other,
    }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &impl AsFd, moved: &mut u32) -> io::Result<()> {
    for _ in 0..NAMES_MOST {
        *moved = moved.wrapping_add(1);
        match renameat(from, name, top, format!("ahead-removed-{moved}")) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // The name is taken.
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    #[test]
    fn tree_is_emptied_and_what_links_lead_to_stays() {
        let (home, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("kept"), "x").unwrap();
        for directory in ["a/b/c", "a/d", "ahead-removed-1/x", "ahead-removed-2"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        for (number, place) in ["", "a", "a/b", "a/b/c"].into_iter().enumerate() {
            symlink(outside.path(), home.path().join(place).join("link")).unwrap();
            fs::write(home.path().join(place).join(number.to_string()), "x").unwrap();
        }
        empty(&File::open(home.path()).unwrap()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        assert!(outside.path().join("kept").exists());
    }

    /// Regression: each level took a descriptor, and a deep tree could not be removed.
    #[test]
    fn tree_may_be_deeper_than_there_are_descriptors() {
        let home = tempfile::tempdir().unwrap();
        let mut at = rustix::fs::open(home.path(), OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "d", Mode::from_raw_mode(0o700)).unwrap();
            at = openat(&at, "d", OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap();
        }
        empty(&File::open(home.path()).unwrap()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_mounted_inside_stays() {
        let home = tempfile::tempdir().unwrap();
        let inside = home.path().join("inside");
        fs::create_dir(&inside).unwrap();
        if let Err(error) = crate::mounting::mount("none".as_ref(), &inside, "tmpfs", false, "") {
            return eprintln!("skipped: {error}");
        }
        fs::write(inside.join("kept"), "x").unwrap();
        let emptied = empty(&File::open(home.path()).unwrap());
        let kept = inside.join("kept").exists();
        crate::mounting::unmount(&inside).unwrap();
        assert!(emptied.unwrap_err().to_string().contains("mounted") && kept);
    }
}
