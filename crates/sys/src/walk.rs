//! A walk through the directories of one mounted file system, within limits.
//!
//! No symbolic link is followed, no other mount is entered, and every directory is opened below the root of the walk: a directory
//! that its owner replaces meanwhile leads nowhere else.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Limits of all walks of one task.
#[derive(Debug)]
pub struct Budget {
    entries: usize,
    deadline: Instant,
}

/// Maximum number of entries: a machine with many packages has some hundred thousand files.
const ENTRIES_MOST: usize = 1 << 22;
/// Maximum time. A million cold entries take about ten seconds from a solid-state disk.
const TIME_MOST: Duration = Duration::from_secs(60);
/// Maximum memory for the names of directories that were found and not yet read, bytes.
const PENDING_MOST_BYTES: usize = 64 << 20;

impl Default for Budget {
    fn default() -> Budget {
        Budget::new()
    }
}

impl Budget {
    pub fn new() -> Budget {
        Budget::of(ENTRIES_MOST, TIME_MOST)
    }

    pub fn of(entries: usize, time: Duration) -> Budget {
        Budget { entries, deadline: Instant::now() + time }
    }

    /// Takes one entry. `false`: a limit is reached.
    fn take(&mut self) -> bool {
        // The clock is read for a few entries only.
        if self.entries == 0 || (self.entries.is_multiple_of(64) && Instant::now() >= self.deadline) {
            self.entries = 0;
            return false;
        }
        self.entries -= 1;
        true
    }
}

/// A file that the walk has found.
#[derive(Debug)]
pub struct Entry<'a> {
    pub directory: &'a OwnedFd,
    pub name: &'a CStr,
    /// The inode number in the directory.
    pub inode: u64,
    pub kind: FileType,
    /// The directory's path from the root of the walk, without slashes around.
    below: &'a [u8],
}

impl Entry<'_> {
    /// Its path from the root of the walk, with a leading slash.
    pub fn path(&self) -> Vec<u8> {
        let mut path = Vec::new();
        if !self.below.is_empty() {
            path.push(b'/');
            path.extend(self.below);
        }
        path.push(b'/');
        path.extend(self.name.to_bytes());
        path
    }
}

/// Whether the visitor needs more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Stop,
}

/// What a walk left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// A limit was reached.
    pub is_cut: bool,
    /// Directories that could not be opened, or not read to their end.
    pub unread_directories: u64,
    /// Directories on which another file system is mounted.
    pub mount_points: u64,
}

/// Calls `visit` for everything below a directory that is not a directory.
///
/// # Errors
/// The kernel has no openat2 (Linux 5.6), or a container forbids it.
pub fn walk(
    root: impl AsFd,
    budget: &mut Budget,
    mut visit: impl FnMut(&Entry<'_>) -> Next,
) -> rustix::io::Result<Walked> {
    let root = root.as_fd();
    let mut pending: Vec<Vec<u8>> = vec![b".".to_vec()];
    let (mut pending_bytes, mut walked) = (0, Walked::default());
    let mut buffer = Vec::with_capacity(64 << 10);
    while let Some(path) = pending.pop() {
        pending_bytes -= path.len().min(pending_bytes);
        let directory = match open_below(root, &path) {
            Ok(directory) => directory,
            Err(error @ (Errno::NOSYS | Errno::PERM)) if path == b"." => return Err(error),
            Err(Errno::XDEV) => {
                walked.mount_points += 1;
                continue;
            }
            // Removed meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(_) => {
                walked.unread_directories += 1;
                continue;
            }
        };
        let below: &[u8] = if path == b"." { b"" } else { &path };
        let mut listing = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(found) = listing.next() {
            let Ok(found) = found else {
                walked.unread_directories += 1;
                break;
            };
            if !budget.take() {
                return Ok(Walked { is_cut: true, ..walked });
            }
            let name = found.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = known_kind(&directory, name, found.file_type());
            let entry = Entry { directory: &directory, name, inode: found.ino(), kind, below };
            if kind == FileType::Directory {
                let path = entry.path().split_off(1);
                let fits = pending_bytes + path.len() <= PENDING_MOST_BYTES;
                walked.is_cut |= !fits;
                if fits {
                    pending_bytes += path.len();
                    pending.push(path);
                }
            } else if visit(&entry) == Next::Stop {
                return Ok(walked);
            }
        }
    }
    Ok(walked)
}

fn open_below(root: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    match openat2(root, path, flags, Mode::empty(), resolve) {
        // A rename happened meanwhile: the kernel cannot tell whether the path left the root. Once more.
        Err(Errno::AGAIN) => openat2(root, path, flags, Mode::empty(), resolve),
        // O_NOATIME needs CAP_FOWNER, which root in a container may lack.
        Err(Errno::PERM) => openat2(root, path, flags - OFlags::NOATIME, Mode::empty(), resolve),
        other => other,
    }
}

/// Some file systems do not store the type in the directory.
fn known_kind(directory: &OwnedFd, name: &CStr, kind: FileType) -> FileType {
    if kind != FileType::Unknown {
        return kind;
    }
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn unreadable_directory_is_counted_and_the_rest_is_found() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("a/closed")).unwrap();
        fs::write(home.path().join("a/x"), "").unwrap();
        let closed: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        fs::set_permissions(home.path().join("a/closed"), closed).unwrap();
        let mut names = Vec::new();
        let walked = walk(fs::File::open(home.path()).unwrap(), &mut Budget::new(), |entry| {
            names.push(entry.path());
            Next::GoOn
        });
        let unread = u64::from(!crate::machine::is_root());
        assert_eq!(walked.unwrap(), Walked { unread_directories: unread, ..Walked::default() });
        assert_eq!(names, [b"/a/x".to_vec()]);
    }
}
