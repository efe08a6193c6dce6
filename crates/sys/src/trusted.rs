//! Who may change the file at a path: root uses programs and rules only where no other user can replace them, and follows no link of another
//! user to a place where it writes.
//!
//! ```text
//!     /usr/local/bin/ahead      /  ─▶ usr ─▶ local ─▶ bin ─▶ ahead      each belongs to root, and neither group nor others may write it
//!     /home/eva/.local/bin/ahead     home ─▶ eva ✗                      eva can rename .local, and put another one in its place
//! ```
//!
//! Symbolic links are followed, and the directories on the way of each link count, too. The process behind a FUSE mount says who owns its files,
//! so that mount must be root's, too.

use crate::directory::mount_id;
use crate::mounts;
use crate::openat::{self, Handle};
use crate::root::Root;
use crate::rooted::{self, Reached, Steps};
use crate::{Error, Result};
use ahead_model::file_system_kind::Place;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// When the file of a trusted path is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Now, through the returned handle. A directory with the sticky bit (`/tmp`) is no obstacle: only root can replace root's file there.
    Now,
    /// Later, by its path. When root's file is gone from a directory like `/tmp`, any user may create one with its name.
    Later,
}

/// The write permission of group and others, and the bit by which only the owner of a file may rename it (`S_ISVTX`).
const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A handle on the file at an absolute path, if only root can write it or replace it: the file, each directory above it, and each link on
/// the way belong to root, neither group nor others may write them, and none lies on a FUSE mount of another user. In `root` the path starts there. `purpose`: the operation that needs
/// the file, for messages. A regular file is read by [`Handle::reopen`]: another file may have the path by then.
///
/// Errors: [`Error::NotPermitted`] names the first directory or file that another user may write; those of opening it.
pub fn trusted_path(purpose: &str, root: &Root, path: &Path, when: Use) -> Result<Handle> {
    let file = rooted::walk(root.start()?.as_fd(), path, &mut Trusting { purpose, root, when, mount: None })?;
    Handle::of(file, path)
}

/// The directory at a path, for root: no symbolic link on the way is followed that another user owns. A relative path starts at the working
/// directory.
///
/// Errors: such a link; no directory.
pub fn directory_by_links_of_root(path: &Path) -> Result<OwnedFd> {
    let failed = |error: io::Error| Error::io(format!("open {}", path.display()), error);
    let start = if path.is_absolute() { PathBuf::new() } else { std::env::current_dir().map_err(failed)? };
    let found = rooted::walk(Root::default().start()?.as_fd(), &start.join(path), &mut LinksOfRoot)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(&found, ".", flags, Mode::empty()).map_err(|error| failed(error.into()))
}

struct LinksOfRoot;

impl Steps for LinksOfRoot {
    fn see(&mut self, there: &Reached<'_>) -> Result<()> {
        let stat = there.stat()?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() || stat.st_uid == 0 {
            return Ok(());
        }
        let why = "a symbolic link that is not root's: name the place that it leads to";
        Err(Error::io(format!("open {}", there.path.display()), io::Error::other(why)))
    }

    fn opens_descriptors(&self) -> bool {
        true
    }
}

/// Refuses what another user may change.
struct Trusting<'a> {
    purpose: &'a str,
    root: &'a Root,
    when: Use,
    /// The last mount that was reached.
    mount: Option<u64>,
}

impl Steps for Trusting<'_> {
    fn see(&mut self, there: &Reached<'_>) -> Result<()> {
        let shown = Path::new("/").join(self.root.prefix()).join(there.path.strip_prefix("/").unwrap_or(there.path));
        let shown = shown.display();
        let refusal = |remedy| Error::NotPermitted { what: self.purpose.into(), remedy };
        // Before the file's owner is looked at: the process of another user may not answer.
        let mount = mount_id(there.file);
        if (mount.is_none() || mount != self.mount)
            && let Err(why) = check_mount(there)
        {
            return Err(refusal(format!("{shown} {why}; choose a path on another file system")));
        }
        self.mount = mount;
        let stat = there.stat()?;
        check_file(&stat, self.when).map_err(|why| {
            let elsewhere = format!("{shown} {why}; choose a path on which all belongs to root");
            // Without others' write permission a directory like /tmp is of no use.
            refusal(match is_sticky(&stat) {
                true => elsewhere,
                false => format!("{elsewhere}, or: chown root: {shown}; chmod go-w {shown}"),
            })
        })
    }
}

/// Errors: why the owner and the permissions of a file say nothing.
fn check_mount(there: &Reached<'_>) -> std::result::Result<(), String> {
    let user = match mounts::of_open(there.file) {
        Ok(Some(mount)) => mount.fuse_user(),
        // In a chroot the table has no mount for its root directory.
        _ => match openat::file_system_of(there.file) {
            Ok(kind) if kind.place != Place::Process => None,
            _ => return Err("is perhaps on a FUSE mount of another user: the mount table does not have it".into()),
        },
    };
    match user {
        None | Some(0) => Ok(()),
        Some(user) => Err(format!("is on a FUSE mount of user {user}, whose process says who owns its files")),
    }
}

/// Errors: why another user can change the file.
fn check_file(stat: &Stat, when: Use) -> std::result::Result<(), String> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if stat.st_uid != 0 {
        return Err(format!("belongs to user {}, who can replace it", stat.st_uid));
    }
    // The mode of a link has no meaning.
    if kind.is_symlink() || stat.st_mode & OTHERS_MAY_WRITE == 0 {
        return Ok(());
    }
    if is_sticky(stat) && when == Use::Now {
        return Ok(());
    }
    Err(format!("may be written by other users than root (mode {:o})", stat.st_mode & 0o7777))
}

/// Whether only the owner of a file in this directory may rename or remove it.
fn is_sticky(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_mode & STICKY != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    /// A tree with a program, in which root alone may write.
    fn tree() -> Option<(tempfile::TempDir, PathBuf)> {
        if !crate::machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let tree = fs::canonicalize(home.path()).unwrap();
        for directory in ["usr", "usr/bin", "opt", "tmp"] {
            fs::create_dir(tree.join(directory)).unwrap();
            set_mode(&tree.join(directory), 0o755);
        }
        for program in ["usr/bin/x", "tmp/x"] {
            fs::write(tree.join(program), "x").unwrap();
            set_mode(&tree.join(program), 0o755);
        }
        symlink("/usr", tree.join("opt/usr")).unwrap();
        Some((home, tree))
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn found(tree: &Path, path: &str, when: Use) -> Result<Handle> {
        trusted_path("testing", &Root::at(tree).unwrap(), Path::new(path), when)
    }

    fn refusal_of(tree: &Path, path: &str) -> String {
        let refused = found(tree, path, Use::Later).unwrap_err();
        assert!(refused.is_unavailable(), "{refused}");
        refused.to_string()
    }

    #[test]
    fn file_that_only_root_can_replace_is_trusted() {
        let Some((_home, tree)) = tree() else { return };
        for path in ["/usr/bin/x", "/opt/usr/bin/x", "/opt/../usr/bin/./x"] {
            assert!(found(&tree, path, Use::Later).unwrap().is_regular_file(), "{path}");
        }
        assert_eq!(found(&tree, "/usr/bin/y", Use::Later).unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let own = trusted_path("testing", &Root::default(), Path::new("/proc/version"), Use::Later);
        assert!(own.is_ok(), "{own:?}");
    }

    #[test]
    fn directory_file_and_link_of_another_user_are_refused_by_name() {
        let Some((_home, tree)) = tree() else { return };
        for path in ["usr/bin/x", "usr/bin", "usr"] {
            let path = tree.join(path);
            chown(&path, Some(54_321), None).unwrap();
            let refused = refusal_of(&tree, "/opt/usr/bin/x");
            assert!(refused.contains(&format!("{} belongs to user 54321", path.display())), "{refused}");
            chown(&path, Some(0), None).unwrap();
            for mode in [0o775, 0o757] {
                set_mode(&path, mode);
                let refused = refusal_of(&tree, "/opt/usr/bin/x");
                assert!(refused.contains(&format!("chmod go-w {}", path.display())), "{refused}");
            }
            set_mode(&path, 0o755);
        }
        std::os::unix::fs::lchown(tree.join("opt/usr"), Some(54_321), None).unwrap();
        assert!(refusal_of(&tree, "/opt/usr/bin/x").contains("opt/usr belongs to"));
        assert!(found(&tree, "/usr/bin/x", Use::Later).is_ok());
        chown(&tree, Some(54_321), None).unwrap();
        assert!(refusal_of(&tree, "/usr/bin/x").contains("belongs to user 54321"));
    }

    /// Regression: a link that the user owned led root to a place where the user may not write.
    #[test]
    fn root_follows_only_links_of_root() {
        let Some((_home, tree)) = tree() else { return };
        let directory = tree.join("usr/bin");
        let link = tree.join("link");
        symlink("usr/../usr/bin/.", &link).unwrap();
        let inode = |path: &Path| -> Result<u64> {
            let opened = directory_by_links_of_root(path)?;
            Ok(rustix::fs::fstat(opened).unwrap().st_ino)
        };
        let failure = |path: &Path| inode(path).unwrap_err().raw_os_error();
        let inode_of = |path: &Path| fs::metadata(path).unwrap().ino();
        for path in [&link, &directory] {
            assert_eq!(inode(path).unwrap(), inode_of(&directory), "{}", path.display());
        }
        let descriptor = fs::File::open(&directory).unwrap();
        let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        assert_eq!(inode(&by_descriptor).unwrap(), inode_of(&directory));
        assert_eq!(inode(&by_descriptor.join("../../usr/..")).unwrap(), inode_of(&tree));
        assert_eq!(inode(Path::new("..")).unwrap(), inode_of(Path::new("..")));
        assert_eq!(inode(Path::new("")).unwrap(), inode_of(Path::new(".")));
        assert_eq!(failure(&directory.join("x")), Some(libc::ENOTDIR));
        symlink("turn", tree.join("turn")).unwrap();
        assert_eq!(failure(&tree.join("turn")), Some(libc::ELOOP));
        std::os::unix::fs::lchown(&link, Some(54_321), None).unwrap();
        assert!(inode(&link).unwrap_err().to_string().contains("not root's"));
    }

    /// Regression: the message about a program below /tmp had the remedy `chmod go-w /tmp`.
    #[test]
    fn directory_with_the_sticky_bit_is_trusted_for_use_at_once_only() {
        let Some((_home, tree)) = tree() else { return };
        set_mode(&tree.join("tmp"), 0o1777);
        assert!(found(&tree, "/tmp/x", Use::Now).unwrap().reopen().is_ok());
        let refused = refusal_of(&tree, "/tmp/x");
        assert!(refused.contains("mode 1777") && !refused.contains("chmod"), "{refused}");
        chown(tree.join("tmp/x"), Some(54_321), None).unwrap();
        assert!(found(&tree, "/tmp/x", Use::Now).is_err());
    }
}
