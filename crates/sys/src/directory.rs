//! A directory and its files, kept open: files are created, opened and removed relative to a descriptor.
//!
//! ```text
//!     path ──open──▶ Directory ──mkdirat──▶ Directory ──openat(O_EXCL, O_NOFOLLOW)──▶ HeldFile
//!                        │                     │                                     │ /proc/self/fd/N
//!                        ╰──unlinkat───────────╯                                     ╰──▶ the same file, opened again
//! ```
//!
//! The owner of a directory can rename its files, and replace them by links, FIFOs or other directories, at any time. If a
//! privileged process uses a path twice, it may reach two different files. Code here resolves a path once, and then uses
//! only descriptors and single names.

mod entry;

pub use entry::DirectoryEntry;

use crate::file_identity::FileIdentity;
use crate::{Error, Result};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, StatxFlags, Uid, chownat, mkdirat, openat, renameat, statx,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Nested directories that are open at once while a tree is removed. Deeper directories are moved up first, so that neither
/// the stack nor the descriptor table limits the depth of a tree.
const OPEN_LEVELS: u32 = 32;
/// Buffer size of one getdents64 call, as in the C library. Unit: bytes.
const LIST_BYTES: usize = 32 << 10;

/// An open directory. Renaming it does not change which directory it is. The path is for messages only.
#[derive(Debug)]
pub struct Directory {
    /// Opened with `O_PATH`: the kernel checks permissions at each operation in it.
    handle: File,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory by its path, once. Symbolic links in the path are followed.
    pub fn open(path: &Path) -> Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        Ok(Directory { handle: handle.into(), path: path.into() })
    }

    /// A directory from an `O_PATH` descriptor.
    pub(crate) fn of(handle: OwnedFd, path: PathBuf) -> Result<Directory> {
        let directory = Directory { handle: handle.into(), path };
        match directory.metadata()?.is_dir() {
            true => Ok(directory),
            false => Err(failed("open", &directory.path, Errno::NOTDIR)),
        }
    }

    /// A name in it.
    pub fn entry(self, name: &OsStr) -> DirectoryEntry {
        DirectoryEntry::new(self, name)
    }

    /// The path that it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the directory now.
    ///
    /// Errors: the directory was removed.
    pub fn current_path(&self) -> Result<PathBuf> {
        let path = path_of(&self.handle)?;
        // The kernel appends this to the path of a removed directory. A directory may have such a name, too.
        match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
            Some(removed) if fs::symlink_metadata(&path).is_err() => {
                let removed = PathBuf::from(OsString::from_vec(removed.to_vec()));
                Err(failed("find", &removed, io::Error::from(io::ErrorKind::NotFound)))
            }
            _ => Ok(path),
        }
    }

    /// A path through the descriptor (`/proc/self/fd/N`): valid in this process while this value lives, even if the
    /// directory is moved.
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.handle)
    }

    /// Its metadata now: owner, mode, device.
    pub fn metadata(&self) -> Result<Metadata> {
        self.handle.metadata().map_err(|e| failed("stat", &self.path, e))
    }

    /// Opens a regular file in it for reading. No link is followed, and nothing is opened that another file system answers for: a user may
    /// mount one on a file of theirs.
    ///
    /// Errors: `InvalidInput` if it is another kind of file, or a mount point.
    pub fn regular_file(&self, name: &OsStr) -> Result<File> {
        let open = || -> io::Result<File> {
            let handle = self.open_name(name, OFlags::PATH, Mode::empty())?;
            if !is_on_one_mount(&self.handle, &handle) || !handle.metadata()?.is_file() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
            }
            let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
            File::options().read(true).custom_flags(flags).open(descriptor_path(&handle))
        };
        open().map_err(|e| failed("open", &self.path.join(name), e))
    }

    /// Opens a directory in it, unless a file system is mounted there.
    pub fn own_directory(&self, name: &OsStr) -> Result<Directory> {
        let inner = self.directory(name)?;
        match is_on_one_mount(&self.handle, &inner.handle) {
            true => Ok(inner),
            false => Err(failed("open", &inner.path, io::Error::other("a file system is mounted on it"))),
        }
    }

    /// Gives a directory that root has made to a user and a group. Nothing to do for its owner.
    pub fn give_to(&self, user: u32, group: u32) -> Result<()> {
        let now = self.metadata()?;
        if (now.uid(), now.gid()) == (user, group) {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        let given = chownat(&self.handle, "", Some(user), Some(group), AtFlags::EMPTY_PATH);
        given.map_err(|e| failed("change the owner of", &self.path, e))
    }

    /// Opens a directory in it. A symbolic link is not followed.
    pub fn directory(&self, name: &OsStr) -> Result<Directory> {
        let path = self.path.join(name);
        let handle = self.open_name(name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        Ok(Directory { handle: handle.map_err(|e| failed("open", &path, e))?, path })
    }

    /// Creates a directory in it for the caller alone (mode 0700) and opens it.
    ///
    /// Errors: the name exists; another user replaced the new directory before it was opened.
    pub fn create_directory(&self, name: &OsStr) -> Result<Directory> {
        let path = self.path.join(name);
        checked(name)
            .and_then(|name| mkdirat(&self.handle, name, Mode::RWXU))
            .map_err(|e| failed("create", &path, e))?;
        let made = self.directory(name)?;
        if made.is_new()? {
            return Ok(made);
        }
        let why = "another process replaced it while it was created; choose a directory that only you may write";
        Err(failed("create", &path, io::Error::other(why)))
    }

    /// Whether the directory that was just opened can be the directory that was just created: it is empty and has the owner of
    /// new files on this file system. A test file gives that owner, because servers and mount options (`root_squash`, `uid=`)
    /// assign files to other users than their creators.
    fn is_new(&self) -> Result<bool> {
        if !self.names()?.is_empty() {
            return Ok(false);
        }
        Ok(self.owner_of_new_files()? == self.metadata()?.uid())
    }

    /// Creates a file without a name, so that nothing is left if this process is killed. If the file system cannot do that:
    /// creates a named file and removes it at once.
    fn owner_of_new_files(&self) -> Result<u32> {
        let name = OsStr::new(".ahead-owner");
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(&self.handle, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(nameless) => nameless.into(),
            Err(_) => self.create_file(name).and_then(|file| self.remove_file(name).map(|()| file))?,
        };
        file.metadata().map(|metadata| metadata.uid()).map_err(|e| failed("stat", &self.path.join(name), e))
    }

    /// Creates a file in it for the caller alone (mode 0600), for reading and writing. Fails if the name exists, also as a
    /// symbolic link.
    pub fn create_file(&self, name: &OsStr) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open_name(name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed("create", &self.path.join(name), e))
    }

    fn open_name(&self, name: &OsStr, flags: OFlags, mode: Mode) -> rustix::io::Result<File> {
        openat(&self.handle, checked(name)?, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode).map(File::from)
    }

    /// Whether the name exists in it. `true`, too, if that cannot be determined.
    pub fn has(&self, name: &OsStr) -> bool {
        !matches!(self.open_name(name, OFlags::PATH, Mode::empty()), Err(Errno::NOENT))
    }

    /// Whether `name` in it is the given file. The target of a link and the root of a mount are other files; a server of such a
    /// mount is not asked.
    pub fn holds(&self, name: &OsStr, expected: FileIdentity) -> bool {
        let is_expected = |found: &File| found.metadata().is_ok_and(|metadata| FileIdentity::of(&metadata) == expected);
        let found = self.open_name(name, OFlags::PATH, Mode::empty());
        found.is_ok_and(|found| is_on_one_mount(&self.handle, &found) && is_expected(&found))
    }

    /// Renames a file in it, and replaces the file that has the new name.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let renamed = checked(from).and_then(|from| renameat(&self.handle, from, &self.handle, checked(to)?));
        renamed.map_err(|e| failed("rename", &self.path.join(from), e))
    }

    /// Creates a symbolic link in it, in place of the file or link that has the name.
    pub fn replace_link(&self, name: &OsStr, target: &Path) -> Result<()> {
        let new = OsString::from(format!(".ahead-link-{}", std::process::id()));
        // Left by a process with our number that was killed.
        self.remove_file(&new)?;
        symlinkat(target, &self.handle, &new).map_err(|e| failed("create", &self.path.join(name), e))?;
        self.rename(&new, name).inspect_err(|_| {
            // The first error is the one to report.
            let _ = self.remove_file(&new);
        })
    }

    /// Removes a file, or a symbolic link itself. A missing file is not an error.
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        self.unlink(name, AtFlags::empty()).map_err(|e| failed("remove", &self.path.join(name), e))
    }

    /// Removes an empty directory. A missing directory is not an error.
    pub fn remove_directory(&self, name: &OsStr) -> Result<()> {
        self.unlink(name, AtFlags::REMOVEDIR).map_err(|e| failed("remove", &self.path.join(name), e))
    }

    fn unlink(&self, name: &OsStr, flags: AtFlags) -> rustix::io::Result<()> {
        match unlinkat(&self.handle, checked(name)?, flags) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// The names in it, without `.` and `..`.
    pub fn names(&self) -> Result<Vec<OsString>> {
        self.first_names(usize::MAX)
    }

    /// As [`Directory::names`], at most `limit` of them: another user may have made millions.
    pub fn first_names(&self, limit: usize) -> Result<Vec<OsString>> {
        let failed = |e| failed("list", &self.path, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(&self.handle, ".", flags, Mode::empty()).map_err(failed)?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(listed, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while names.len() < limit
            && let Some(entry) = entries.next()
        {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Removes a directory in it with its content, if it is the expected one. No link is followed and no mount point crossed.
    /// `false`: the name is missing, or another file has it.
    pub fn remove_tree(&self, name: &OsStr, expected: FileIdentity) -> Result<bool> {
        if !self.holds(name, expected) {
            return Ok(false);
        }
        let tree = self.directory(name)?;
        if FileIdentity::of(&tree.metadata()?) != expected {
            return Ok(false);
        }
        tree.clear()?;
        // If the tree was renamed in the meantime, it stays, empty: the name now belongs to another file.
        if self.holds(name, expected) { self.remove_directory(name).map(|()| true) } else { Ok(false) }
    }

    /// Removes its content. Files that appear during the removal stay: NFS and FUSE create such files, by renaming each removed
    /// file that is still open.
    pub fn clear(&self) -> Result<()> {
        let mut moved = 0;
        loop {
            let before = moved;
            self.clear_names(self.names()?, self, OPEN_LEVELS, &mut moved)?;
            if moved == before {
                return Ok(());
            }
        }
    }

    fn clear_names(&self, names: Vec<OsString>, top: &Directory, levels: u32, moved: &mut u64) -> Result<()> {
        for name in names {
            let path = self.path.join(&name);
            match self.unlink(&name, AtFlags::empty()) {
                // EISDIR on Linux, EPERM in POSIX: the name is a directory.
                Err(Errno::ISDIR | Errno::PERM) => {}
                done => {
                    done.map_err(|e| failed("remove", &path, e))?;
                    continue;
                }
            }
            let inner = self.directory(&name)?;
            if !is_on_one_mount(&self.handle, &inner.handle) {
                let why = "a file system is mounted on it; unmount that first";
                return Err(failed("remove", &path, io::Error::other(why)));
            }
            if levels == 0 {
                *moved += 1;
                let up = OsString::from(format!(".ahead-deep-{moved}"));
                renameat(&self.handle, &name, &top.handle, &up).map_err(|e| failed("move", &path, e))?;
                continue;
            }
            inner.clear_names(inner.names()?, top, levels - 1, moved)?;
            self.remove_directory(&name)?;
        }
        Ok(())
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Checks that a name is a single component and neither `.` nor `..`.
fn checked(name: &OsStr) -> rustix::io::Result<&OsStr> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/');
    if is_plain { Ok(name) } else { Err(Errno::INVAL) }
}

fn failed(what: &str, path: &Path, error: impl Into<io::Error>) -> Error {
    Error::io(format!("{what} {}", path.display()), error)
}

/// Whether no file system is mounted on the inner directory. Before Linux 5.8 (no mount id in statx), device numbers are compared.
fn is_on_one_mount(outer: &File, inner: &File) -> bool {
    match (mount_id(outer), mount_id(inner)) {
        (Some(outer), Some(inner)) => outer == inner,
        _ => matches!((outer.metadata(), inner.metadata()), (Ok(outer), Ok(inner)) if outer.dev() == inner.dev()),
    }
}

/// The mount id, as in the mount table, of the mount through which a file was opened. No server is asked. `None` before
/// Linux 5.8.
pub fn mount_id(fd: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, "", flags, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// Opens the regular file at a path. No other kind of file is opened: no FIFO, no device. Symbolic links are followed, once.
///
/// Errors: `InvalidInput` if it is not a regular file.
pub fn open_regular_file(path: &Path, writable: bool) -> io::Result<File> {
    let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode).is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK;
    File::options().read(true).write(writable).custom_flags(flags).open(descriptor_path(&handle))
}

/// The path of an open file or directory now, without symbolic links.
pub fn path_of(fd: &impl AsFd) -> Result<PathBuf> {
    fs::read_link(descriptor_path(fd)).map_err(|e| Error::io("find an open file's path", e))
}

fn descriptor_path(fd: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()).into()
}

/// A regular file or block device that is kept open. It can be opened again after another file has taken its name.
#[derive(Debug)]
pub struct HeldFile {
    file: File,
    path: PathBuf,
}

impl HeldFile {
    /// Keeps an open file. `path`: its name in messages.
    pub fn new(file: File, path: PathBuf) -> HeldFile {
        HeldFile { file, path }
    }

    /// Opens a path once, for reading. A FIFO or a terminal does not block.
    ///
    /// Errors: neither a regular file nor a block device.
    pub fn open(path: &Path) -> Result<HeldFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        let handle = HeldFile::new(handle.into(), path.into());
        let metadata = handle.file.metadata().map_err(|e| failed("stat", path, e))?;
        let kind = FileType::from_raw_mode(metadata.mode());
        if !kind.is_file() && !kind.is_block_device() {
            return Err(failed("open", path, io::Error::other("it is neither a regular file nor a block device")));
        }
        let file = handle.open_again(OpenOptions::new().read(true)).map_err(|e| failed("open", path, e))?;
        Ok(HeldFile { file, path: path.into() })
    }

    /// Returns the descriptor alone.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its name in messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn length_bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    /// Opens the same file once more. The new open file has its own read-ahead state.
    pub fn open_again(&self, how: &OpenOptions) -> io::Result<File> {
        how.open(descriptor_path(&self.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn home() -> (tempfile::TempDir, Directory) {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        (home, directory)
    }

    #[test]
    fn renamed_directory_is_still_used() {
        let (home, directory) = home();
        let made = directory.create_directory("made".as_ref()).unwrap();
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        fs::rename(home.path().join("made"), home.path().join("away")).unwrap();
        symlink("/nowhere", home.path().join("made")).unwrap();
        drop(made.create_file("file".as_ref()).unwrap());
        assert!(home.path().join("away/file").exists());
        assert!(directory.directory("made".as_ref()).is_err(), "a symbolic link is not followed");
    }

    #[test]
    fn existing_name_is_neither_opened_nor_followed() {
        let (home, directory) = home();
        fs::write(home.path().join("victim"), "kept").unwrap();
        symlink("victim", home.path().join("link")).unwrap();
        fs::hard_link(home.path().join("victim"), home.path().join("hard")).unwrap();
        rustix::fs::mknodat(&directory, "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        for name in ["victim", "link", "hard", "fifo"] {
            assert!(directory.create_file(name.as_ref()).unwrap_err().exists(), "{name}");
            assert!(directory.create_directory(name.as_ref()).unwrap_err().exists(), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/etc"] {
            assert!(directory.create_file(name.as_ref()).is_err(), "{name:?}");
        }
        assert_eq!(fs::read_to_string(home.path().join("victim")).unwrap(), "kept");
        assert!(HeldFile::open(&home.path().join("fifo")).is_err(), "a FIFO does not block");
    }

    #[test]
    fn deep_tree_is_removed_without_following_links() {
        let (home, directory) = home();
        let tree = directory.create_directory("tree".as_ref()).unwrap();
        let expected = FileIdentity::of(&tree.metadata().unwrap());
        fs::create_dir(home.path().join("kept")).unwrap();
        fs::write(home.path().join("kept/file"), "kept").unwrap();
        symlink(home.path().join("kept"), home.path().join("tree/link")).unwrap();
        let mut deep = home.path().join("tree");
        for _ in 0..3 * OPEN_LEVELS {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("file"), "").unwrap();
        }
        assert!(directory.remove_tree("tree".as_ref(), expected).unwrap());
        assert!(!home.path().join("tree").exists() && home.path().join("kept/file").exists());
        assert!(!directory.remove_tree("tree".as_ref(), expected).unwrap());
    }

    #[test]
    fn replaced_tree_is_not_removed() {
        let (home, directory) = home();
        let tree = directory.create_directory("tree".as_ref()).unwrap();
        let expected = FileIdentity::of(&tree.metadata().unwrap());
        fs::rename(home.path().join("tree"), home.path().join("away")).unwrap();
        fs::create_dir(home.path().join("victim")).unwrap();
        fs::write(home.path().join("victim/file"), "kept").unwrap();
        symlink("victim", home.path().join("tree")).unwrap();
        assert!(!directory.remove_tree("tree".as_ref(), expected).unwrap());
        fs::remove_file(home.path().join("tree")).unwrap();
        fs::rename(home.path().join("victim"), home.path().join("tree")).unwrap();
        assert!(!directory.remove_tree("tree".as_ref(), expected).unwrap());
        assert_eq!(fs::read_to_string(home.path().join("tree/file")).unwrap(), "kept");
    }

    #[test]
    fn mount_in_a_tree_is_not_emptied() {
        if !crate::machine::is_root() {
            return eprintln!("skipped: needs root");
        }
        let (home, directory) = home();
        let tree = directory.create_directory("tree".as_ref()).unwrap();
        let (inner, kept) = (home.path().join("tree/inner"), home.path().join("kept"));
        for path in [&inner, &kept] {
            fs::create_dir(path).unwrap();
        }
        fs::write(kept.join("file"), "kept").unwrap();
        // A bind mount has the device number of the directory around it.
        if let Err(error) = rustix::mount::mount_bind(&kept, &inner) {
            return eprintln!("skipped: cannot mount here: {error}");
        }
        let refused = tree.clear();
        rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert!(refused.unwrap_err().to_string().contains("unmount"));
        assert!(kept.join("file").exists());
        tree.clear().unwrap();
    }

    #[test]
    fn held_file_opened_again_is_the_same_file() {
        let (home, directory) = home();
        let file = directory.create_file("file".as_ref()).unwrap();
        let held = HeldFile::new(file, home.path().join("file"));
        fs::rename(home.path().join("file"), home.path().join("away")).unwrap();
        fs::write(home.path().join("file"), "another").unwrap();
        held.open_again(OpenOptions::new().write(true)).unwrap().set_len(5).unwrap();
        assert_eq!((held.length_bytes().unwrap(), fs::read(home.path().join("file")).unwrap().len()), (5, 7));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let (home, directory) = home();
        rustix::fs::mknodat(&directory, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // A FIFO would block until another process opens it for writing.
        for path in [&home.path().join("fifo"), home.path(), Path::new("/dev/null")] {
            assert_eq!(open_regular_file(path, false).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let file = home.path().join("file");
        fs::write(&file, "x").unwrap();
        let opened = open_regular_file(&file, true).unwrap();
        assert_eq!(path_of(&opened).unwrap(), file.canonicalize().unwrap());
    }

    /// The owner of a directory cannot present another directory as one that was just created in it.
    #[test]
    fn directory_that_is_not_new_is_refused() {
        let (home, directory) = home();
        for (name, is_new) in [("full", false), ("empty", true)] {
            fs::create_dir(home.path().join(name)).unwrap();
            if !is_new {
                fs::write(home.path().join(name).join("file"), "kept").unwrap();
            }
            assert_eq!(directory.directory(name.as_ref()).unwrap().is_new().unwrap(), is_new, "{name}");
        }
        if !crate::machine::is_root() {
            return eprintln!("skipped: the rest needs root");
        }
        std::os::unix::fs::chown(home.path().join("empty"), Some(54_321), None).unwrap();
        assert!(!directory.directory("empty".as_ref()).unwrap().is_new().unwrap());
    }
}
