//! The directory below which the paths of a profile or a list are resolved: that of the machine, or of an image or a container.
//!
//! ```text
//!     Root::default()       /usr/bin/x ──▶ /usr/bin/x             no symbolic link is followed
//!     Root::at("/mnt")      /usr/bin/x ──▶ /mnt/usr/bin/x         links are followed as in a chroot of /mnt (RESOLVE_IN_ROOT):
//!                           /lib → /usr/lib stays in /mnt         an absolute target starts at /mnt, and no path leads outside
//! ```
//!
//! The directory is opened once: a path that leads to another directory later has no effect.

use crate::directory::{self, Directory};
use crate::openat::{self, Handle};
use crate::rooted::{self, Steps};
use crate::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// All users may list a directory of the system, only its owner may write it.
const DIRECTORY_MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

/// Where absolute paths start. The default is the root directory of this process.
#[derive(Clone, Debug, Default)]
pub struct Root(Option<Arc<Below>>);

#[derive(Debug)]
struct Below {
    directory: OwnedFd,
    /// Without symbolic links.
    path: PathBuf,
}

impl Root {
    /// A root directory. The path may have symbolic links: the caller's user has named it.
    ///
    /// Errors: it is no directory.
    pub fn at(path: &Path) -> Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::empty());
        let directory = opened.map_err(|e| Error::io(format!("open the root directory {}", path.display()), e))?;
        let path = directory::path_of(&directory)?;
        if path == Path::new("/") {
            return Ok(Root::default());
        }
        Ok(Root(Some(Arc::new(Below { directory, path }))))
    }

    /// Its path: the prefix of the paths in it. Empty for the default.
    pub fn prefix(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), |below| &below.path)
    }

    /// The path of a file in it, as this process sees it.
    pub fn outer(&self, path: &[u8]) -> Vec<u8> {
        [self.prefix().as_os_str().as_bytes(), path].concat()
    }

    /// A handle on the file at this absolute path in it.
    pub fn handle(&self, path: &Path) -> Result<Handle> {
        Handle::of(self.open(path)?, path)
    }

    /// As [`openat::look_up`].
    pub fn look_up(&self, path: &Path) -> Result<bool> {
        openat::existence(self.open(path))
    }

    /// As [`openat::list`].
    pub fn list(&self, path: &Path, goes_on: impl FnMut(usize) -> bool) -> Result<usize> {
        self.handle(path)?.list(path, goes_on)
    }

    /// The file that a user has named, and its path without symbolic links. Without a root directory, too, links are followed; a relative
    /// path starts at the root directory, or else at the working directory.
    pub fn find(&self, path: &Path) -> Result<(Handle, PathBuf)> {
        let fd = match &self.0 {
            Some(_) => self.open(&Path::new("/").join(path))?,
            None => {
                let opened = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
                opened.map_err(|e| Error::io(format!("open {}", path.display()), e))?
            }
        };
        let outer = directory::path_of(&fd)?;
        let inner = match &self.0 {
            Some(below) => Path::new("/").join(outer.strip_prefix(&below.path).map_err(|_| {
                let moved = std::io::Error::other("it was moved out of the root directory meanwhile");
                Error::io(format!("find {}", path.display()), moved)
            })?),
            None => outer,
        };
        Ok((Handle::of(fd, path)?, inner))
    }

    /// The directory at this absolute path in it. Symbolic links are followed as in a chroot of the root directory; `/` for the default.
    pub fn directory(&self, path: &Path) -> Result<Directory> {
        self.walk_to_directory(path, &mut ())
    }

    /// As [`Self::directory`], and creates the missing ones: all users may list them, and only their owner may write them, with any umask.
    pub fn make_directory(&self, path: &Path) -> Result<Directory> {
        self.walk_to_directory(path, &mut Making)
    }

    fn walk_to_directory(&self, path: &Path, steps: &mut impl Steps) -> Result<Directory> {
        let found = rooted::walk(self.start()?.as_fd(), path, steps)?;
        Directory::of(found, PathBuf::from(OsStr::from_bytes(&self.outer(path.as_os_str().as_bytes()))))
    }

    /// A descriptor of the directory itself.
    pub(crate) fn start(&self) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match &self.0 {
            Some(below) => openat(&below.directory, ".", flags, Mode::empty()),
            None => openat(CWD, "/", flags, Mode::empty()),
        };
        opened.map_err(|e| Error::io("open the root directory", e))
    }

    fn open(&self, path: &Path) -> Result<OwnedFd> {
        openat::open_from(self.0.as_ref().map(|below| below.directory.as_fd()), path)
    }
}

/// Creates missing directories.
struct Making;

impl Steps for Making {
    fn make(&mut self, directory: BorrowedFd<'_>, name: &OsStr, _path: &Path) -> rustix::io::Result<()> {
        match mkdirat(directory, name, DIRECTORY_MODE) {
            Ok(()) => {}
            // Another process was first.
            Err(Errno::EXIST) => return Ok(()),
            Err(error) => return Err(error),
        }
        // The umask may have removed permissions.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rooted::set_mode(openat(directory, name, flags, Mode::empty())?.as_fd(), DIRECTORY_MODE)
    }
}

/// Two roots are equal if they are the same open directory.
impl PartialEq for Root {
    fn eq(&self, other: &Root) -> bool {
        let number = |root: &Root| root.0.as_ref().map(|below| below.directory.as_raw_fd());
        number(self) == number(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A root directory with a file, links to it, and links that lead out of it; the file outside has another size.
    fn image() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(home.path()).unwrap();
        let image = base.join("image");
        fs::create_dir_all(image.join("usr/lib")).unwrap();
        fs::write(image.join("usr/lib/x"), "inside").unwrap();
        fs::write(base.join("x"), "outside the root directory").unwrap();
        symlink("/usr/lib", image.join("lib")).unwrap();
        symlink("usr/lib", image.join("lib64")).unwrap();
        symlink("x", image.join("usr/lib/y")).unwrap();
        symlink("../../../../../../../../../usr/lib/x", image.join("up")).unwrap();
        symlink(base.join("x"), image.join("out")).unwrap();
        symlink("/proc/self/root", image.join("magic")).unwrap();
        (home, image)
    }

    /// Kernels without openat2 find the same.
    fn size(root: &Root, path: &str) -> Option<u64> {
        let size = root.handle(Path::new(path)).ok().map(|handle| handle.identity().size_bytes);
        let up = Path::new(path).components().any(|name| name == std::path::Component::ParentDir);
        let walked = rooted::walk(root.start().unwrap().as_fd(), Path::new(path), &mut ());
        let walked = walked.and_then(|fd| Handle::of(fd, Path::new(path))).ok().filter(|_| !up);
        assert_eq!(walked.map(|handle| handle.identity().size_bytes), size, "{path}");
        size
    }

    #[test]
    fn links_are_followed_within_the_root_and_never_outside() {
        let (_home, image) = image();
        let root = Root::at(&image).unwrap();
        for inside in ["/usr/lib/x", "/lib/x", "/lib64/x", "/usr/lib/y", "/up"] {
            assert_eq!(size(&root, inside), Some(6), "{inside}");
        }
        for outside in ["/out", "/magic/etc", "/../x", "/etc/passwd", "usr/lib/x"] {
            assert_eq!(size(&root, outside), None, "{outside}");
        }
        assert!(root.look_up(Path::new("/lib/x")).unwrap() && !root.look_up(Path::new("/lib/none")).unwrap());
        // Without a root directory no link is followed.
        let outer = image.join("lib/x");
        assert!(Root::default().handle(&outer).is_err());
        assert!(Root::default().handle(&image.join("usr/lib/x")).is_ok());
    }

    #[test]
    fn found_file_has_its_path_in_the_root() {
        let (_home, image) = image();
        let root = Root::at(&image).unwrap();
        for named in ["/lib/y", "lib/y", "/usr/lib/x"] {
            let (handle, path) = root.find(Path::new(named)).unwrap();
            assert_eq!((path.as_path(), handle.identity().size_bytes), (Path::new("/usr/lib/x"), 6), "{named}");
            assert_eq!(root.outer(path.as_os_str().as_bytes()), image.join("usr/lib/x").as_os_str().as_bytes());
        }
        let (_, path) = Root::default().find(&image.join("lib64/y")).unwrap();
        assert_eq!(path, image.join("usr/lib/x"));
        assert!(root.find(Path::new("/out")).is_err());
    }

    #[test]
    fn directories_are_found_and_made_within_the_root() {
        let (home, image) = image();
        let root = Root::at(&image).unwrap();
        fs::create_dir(home.path().join("host")).unwrap();
        symlink(home.path().join("host"), image.join("etc")).unwrap();
        symlink("../../../host/", image.join("var")).unwrap();
        assert_eq!(root.directory(Path::new("/lib64")).unwrap().names().unwrap().len(), 2);
        for missing in ["/etc", "/var", "/usr/none", "/usr/lib/x"] {
            assert!(root.directory(Path::new(missing)).is_err(), "{missing}");
        }
        // Both links lead outside the root: in it there is no such directory, and it is made there.
        assert_eq!(root.make_directory(Path::new("/var/a/b")).unwrap().path(), image.join("var/a/b"));
        assert!(image.join("host/a/b").is_dir());
        let outside = image.join(home.path().strip_prefix("/").unwrap()).join("host/systemd");
        root.make_directory(Path::new("/etc/systemd")).unwrap();
        assert!(outside.is_dir());
        assert!(fs::read_dir(home.path().join("host")).unwrap().next().is_none());
        assert!(
            root.make_directory(Path::new("/usr/lib/x")).is_err() && root.make_directory(Path::new("etc")).is_err()
        );
        symlink("loop", image.join("loop")).unwrap();
        assert_eq!(root.directory(Path::new("/loop")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn root_directory_stays_the_one_that_was_opened() {
        let (_home, image) = image();
        let root = Root::at(&image).unwrap();
        fs::rename(&image, image.with_extension("old")).unwrap();
        fs::create_dir_all(image.join("usr/lib")).unwrap();
        fs::write(image.join("usr/lib/x"), "another file").unwrap();
        assert_eq!(size(&root, "/usr/lib/x"), Some(6));
        assert!(Root::at(&image.join("usr/lib/x")).unwrap_err().to_string().contains("root directory"));
        assert_eq!(Root::at(Path::new("/")).unwrap(), Root::default());
    }
}
