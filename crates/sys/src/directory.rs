//! A directory and its files, kept open: what is made, opened and removed there is found by descriptor.
//!
//! ```text
//!     path ──open──▶ Directory ──mkdirat──▶ Directory ──openat(O_EXCL, no link)──▶ HeldFile
//!                        │                     │                                     │ /proc/self/fd/N
//!                        ╰──unlinkat───────────╯                                     ╰──▶ the same file, opened again
//! ```
//!
//! Whoever owns a directory can rename what is in it, and put links, FIFOs or other directories in its place, at any
//! time. A privileged process that uses a path twice may therefore meet two different files. It uses a path once, here,
//! and then only descriptors and single names.

use crate::file_identity::FileIdentity;
use crate::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, mkdirat, openat, renameat, statx, unlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories within one another that are open while a tree is removed. What lies deeper is moved up first, so that
/// neither the stack nor the table of descriptors limits the depth of a tree.
const OPEN_LEVELS: u32 = 32;
/// Room for the entries that one system call lists. Unit: bytes; what the C library takes.
const LIST_BYTES: usize = 32 << 10;

/// A directory that stays the same one however it is renamed. The path is for messages only.
#[derive(Debug)]
pub struct Directory {
    /// Opened with `O_PATH`: permission is checked when something is done in it.
    handle: File,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory by its path, for the only time. Links in the path are followed.
    pub fn open(path: &Path) -> Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        Ok(Directory { handle: handle.into(), path: path.into() })
    }

    /// Where it was when it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is now: owner, mode, device.
    pub fn metadata(&self) -> Result<Metadata> {
        self.handle.metadata().map_err(|e| failed("look at", &self.path, e))
    }

    /// Opens a directory in it. A link is not followed.
    pub fn directory(&self, name: &OsStr) -> Result<Directory> {
        let path = self.path.join(name);
        let handle = self.open_name(name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        Ok(Directory { handle: handle.map_err(|e| failed("open", &path, e))?, path })
    }

    /// Makes a directory in it for the caller alone (mode 0700) and opens it.
    ///
    /// Errors: the name is taken; what was opened is not what was made, because another user replaced it in between.
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

    /// Whether a directory that was just opened can be the one that was just made: empty, and of the owner that our files
    /// have on this file system. That is asked of a file, because servers and mount options (`root_squash`, `uid=`) give
    /// files to others than their makers.
    fn is_new(&self) -> Result<bool> {
        if !self.names()?.is_empty() {
            return Ok(false);
        }
        Ok(self.owner_of_new_files()? == self.metadata()?.uid())
    }

    /// Of a file without a name, so that nothing is left if this process is killed; where such files cannot be made, of one that is
    /// removed at once.
    fn owner_of_new_files(&self) -> Result<u32> {
        let name = OsStr::new(".ahead-owner");
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(&self.handle, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(nameless) => nameless.into(),
            Err(_) => self.create_file(name).and_then(|file| self.remove_file(name).map(|()| file))?,
        };
        file.metadata().map(|metadata| metadata.uid()).map_err(|e| failed("look at", &self.path.join(name), e))
    }

    /// Makes a file in it for the caller alone (mode 0600), to be read and written. Fails if the name is taken by anything, a link
    /// included.
    pub fn create_file(&self, name: &OsStr) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open_name(name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed("create", &self.path.join(name), e))
    }

    fn open_name(&self, name: &OsStr, flags: OFlags, mode: Mode) -> rustix::io::Result<File> {
        openat(&self.handle, checked(name)?, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode).map(File::from)
    }

    /// Whether anything has this name in it, or that cannot be found out.
    pub fn has(&self, name: &OsStr) -> bool {
        !matches!(self.open_name(name, OFlags::PATH, Mode::empty()), Err(Errno::NOENT))
    }

    /// Whether the one that is meant has this name in it. What a link leads to, and what is mounted there, is something else; a
    /// server behind such a mount is not asked.
    pub fn holds(&self, name: &OsStr, meant: FileIdentity) -> bool {
        let is_meant = |found: &File| found.metadata().is_ok_and(|metadata| FileIdentity::of(&metadata) == meant);
        let found = self.open_name(name, OFlags::PATH, Mode::empty());
        found.is_ok_and(|found| is_on_one_mount(&self.handle, &found) && is_meant(&found))
    }

    /// Gives a file in it another name in it, in place of what has that name.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        let renamed = checked(from).and_then(|from| renameat(&self.handle, from, &self.handle, checked(to)?));
        renamed.map_err(|e| failed("rename", &self.path.join(from), e))
    }

    /// Removes a file, or a link itself. That there is none is no error.
    pub fn remove_file(&self, name: &OsStr) -> Result<()> {
        self.unlink(name, AtFlags::empty()).map_err(|e| failed("remove", &self.path.join(name), e))
    }

    /// Removes an empty directory. That there is none is no error.
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
        let failed = |e| failed("list", &self.path, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(&self.handle, ".", flags, Mode::empty()).map_err(failed)?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut entries = RawDir::new(listed, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if !matches!(name.as_slice(), b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        Ok(names)
    }

    /// Removes a directory in it with all that is in that, if it is the one that is meant. No link is followed and no mount
    /// point crossed. `false`: something else, or nothing, has this name now.
    pub fn remove_tree(&self, name: &OsStr, meant: FileIdentity) -> Result<bool> {
        if !self.holds(name, meant) {
            return Ok(false);
        }
        let tree = self.directory(name)?;
        if FileIdentity::of(&tree.metadata()?) != meant {
            return Ok(false);
        }
        tree.clear()?;
        // Empty now. If it was renamed meanwhile it stays where it is: what has its name is not ours.
        if self.holds(name, meant) { self.remove_directory(name).map(|()| true) } else { Ok(false) }
    }

    /// Removes everything in it. What comes into it meanwhile stays: on NFS and FUSE that is, under another name, each file that is open
    /// still.
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
                // EISDIR on Linux, EPERM in POSIX: it is a directory.
                Err(Errno::ISDIR | Errno::PERM) => {}
                done => {
                    done.map_err(|e| failed("remove", &path, e))?;
                    continue;
                }
            }
            let inner = self.directory(&name)?;
            if !is_on_one_mount(&self.handle, &inner.handle) {
                let why = "something is mounted on it; unmount that first";
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

/// A name that leads nowhere else.
fn checked(name: &OsStr) -> rustix::io::Result<&OsStr> {
    let is_plain = !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/');
    if is_plain { Ok(name) } else { Err(Errno::INVAL) }
}

fn failed(what: &str, path: &Path, error: impl Into<io::Error>) -> Error {
    Error::io(format!("{what} {}", path.display()), error)
}

/// Whether nothing is mounted on the inner one. Before Linux 5.8, which has no numbers of mounts here, device numbers tell.
fn is_on_one_mount(outer: &File, inner: &File) -> bool {
    match (mount_id(outer), mount_id(inner)) {
        (Some(outer), Some(inner)) => outer == inner,
        _ => matches!((outer.metadata(), inner.metadata()), (Ok(outer), Ok(inner)) if outer.dev() == inner.dev()),
    }
}

/// The number, in the mount table, of the mount by which a file was opened. Nothing is asked of a server. `None` before
/// Linux 5.8.
pub fn mount_id(fd: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = statx(fd, "", flags, StatxFlags::MNT_ID).ok()?;
    (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id)
}

/// A regular file or block device that is kept open. Opened again it is the same file, whatever has its name by then.
#[derive(Debug)]
pub struct HeldFile {
    file: File,
    path: PathBuf,
}

impl HeldFile {
    /// Keeps an open file. `path`: how messages name it.
    pub fn new(file: File, path: PathBuf) -> HeldFile {
        HeldFile { file, path }
    }

    /// Opens what is at a path, for the only time, to be read. A FIFO or a terminal there does not block.
    ///
    /// Errors: it is neither a regular file nor a block device.
    pub fn open(path: &Path) -> Result<HeldFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let looked = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| failed("open", path, e))?;
        let looked = HeldFile::new(looked.into(), path.into());
        let metadata = looked.file.metadata().map_err(|e| failed("look at", path, e))?;
        let kind = FileType::from_raw_mode(metadata.mode());
        if !kind.is_file() && !kind.is_block_device() {
            return Err(failed("open", path, io::Error::other("it is neither a regular file nor a block device")));
        }
        let file = looked.open_again(OpenOptions::new().read(true)).map_err(|e| failed("open", path, e))?;
        Ok(HeldFile { file, path: path.into() })
    }

    /// The opening alone.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The opening that keeps it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// How messages name it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length, bytes.
    pub fn length_bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    /// Opens the same file once more. The new opening has a read-ahead state of its own.
    pub fn open_again(&self, how: &OpenOptions) -> io::Result<File> {
        how.open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn home() -> (tempfile::TempDir, Directory) {
        let home = tempfile::tempdir().unwrap();
        let directory = Directory::open(home.path()).unwrap();
        (home, directory)
    }

    #[test]
    fn a_renamed_directory_is_still_the_one_that_is_used() {
        let (home, directory) = home();
        let made = directory.create_directory("made".as_ref()).unwrap();
        assert_eq!(made.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        fs::rename(home.path().join("made"), home.path().join("away")).unwrap();
        symlink("/nowhere", home.path().join("made")).unwrap();
        drop(made.create_file("file".as_ref()).unwrap());
        assert!(home.path().join("away/file").exists());
        assert!(directory.directory("made".as_ref()).is_err(), "a link is not followed");
    }

    #[test]
    fn what_has_a_name_already_is_neither_opened_nor_followed() {
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
    fn a_tree_is_removed_without_following_links_and_however_deep() {
        let (home, directory) = home();
        let tree = directory.create_directory("tree".as_ref()).unwrap();
        let meant = FileIdentity::of(&tree.metadata().unwrap());
        fs::create_dir(home.path().join("kept")).unwrap();
        fs::write(home.path().join("kept/file"), "kept").unwrap();
        symlink(home.path().join("kept"), home.path().join("tree/link")).unwrap();
        let mut deep = home.path().join("tree");
        for _ in 0..3 * OPEN_LEVELS {
            deep.push("d");
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("file"), "").unwrap();
        }
        assert!(directory.remove_tree("tree".as_ref(), meant).unwrap());
        assert!(!home.path().join("tree").exists() && home.path().join("kept/file").exists());
        assert!(!directory.remove_tree("tree".as_ref(), meant).unwrap());
    }

    #[test]
    fn another_directory_or_link_in_the_place_of_a_tree_stays() {
        let (home, directory) = home();
        let tree = directory.create_directory("tree".as_ref()).unwrap();
        let meant = FileIdentity::of(&tree.metadata().unwrap());
        fs::rename(home.path().join("tree"), home.path().join("away")).unwrap();
        fs::create_dir(home.path().join("victim")).unwrap();
        fs::write(home.path().join("victim/file"), "kept").unwrap();
        symlink("victim", home.path().join("tree")).unwrap();
        assert!(!directory.remove_tree("tree".as_ref(), meant).unwrap());
        fs::remove_file(home.path().join("tree")).unwrap();
        fs::rename(home.path().join("victim"), home.path().join("tree")).unwrap();
        assert!(!directory.remove_tree("tree".as_ref(), meant).unwrap());
        assert_eq!(fs::read_to_string(home.path().join("tree/file")).unwrap(), "kept");
    }

    #[test]
    fn what_is_mounted_in_a_tree_is_not_emptied() {
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
        // A bind mount has the device number of what is around it.
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
    fn a_held_file_is_the_same_one_when_it_is_opened_again() {
        let (home, directory) = home();
        let file = directory.create_file("file".as_ref()).unwrap();
        let held = HeldFile::new(file, home.path().join("file"));
        fs::rename(home.path().join("file"), home.path().join("away")).unwrap();
        fs::write(home.path().join("file"), "another").unwrap();
        held.open_again(OpenOptions::new().write(true)).unwrap().set_len(5).unwrap();
        assert_eq!((held.length_bytes().unwrap(), fs::read(home.path().join("file")).unwrap().len()), (5, 7));
    }

    /// The owner of a directory cannot pass another one for a directory that was just made in it.
    #[test]
    fn a_directory_that_is_not_new_is_refused() {
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
