//! The directory below which the paths of a profile or a list are resolved: that of the machine, or of an image or a container.
//!
//! ```text
//!     Root::default()       /usr/bin/x ──▶ /usr/bin/x             no symbolic link is followed
//!     Root::at("/mnt")      /usr/bin/x ──▶ /mnt/usr/bin/x         links are followed as in a chroot of /mnt (RESOLVE_IN_ROOT):
//!                           /lib → /usr/lib stays in /mnt         an absolute target starts at /mnt, and no path leads outside
//! ```
//!
//! The directory is opened once: a path that leads to another directory later has no effect. Without openat2 (before Linux 5.6) no link
//! in it is followed.

use crate::openat::{self, Handle};
use crate::{Error, Result, directory};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

    fn open(&self, path: &Path) -> Result<OwnedFd> {
        openat::open_from(self.0.as_ref().map(|below| below.directory.as_fd()), path)
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

    fn size(root: &Root, path: &str) -> Option<u64> {
        root.handle(Path::new(path)).ok().map(|handle| handle.identity().size_bytes)
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
