//! The file for a new profile, and the rights with which it is written.
//!
//! ```text
//!     place                       directory opened, file created      where that is refused
//!     in the user's home          with the user's rights              the error
//!     named by the caller         with the user's rights              as root, through links that root owns; the file is
//!                                                                     then given to the user
//! ```
//!
//! The user may put a symbolic link anywhere in a directory of theirs, at any moment, and so may the program that is recorded. So the
//! directory is opened before the program starts ([`Place`]). Where the user may not write, root follows no link of another user.

use super::{Arguments, home, new_profile_path_for};
use crate::error::IoContext;
use crate::{Error, Result};
use ahead_profile::{Access, Place, Profile, SaveError};
use ahead_sys::user::User;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// The place of a new profile, opened before the recording.
#[derive(Debug)]
pub struct ProfileOutput<'a> {
    path: PathBuf,
    place: Place,
    user: Option<&'a User>,
    /// Root creates the file, and then gives it to the user.
    by_root: bool,
}

impl ProfileOutput<'_> {
    /// The file of this name, or else that of a command that this user runs. Finds out before the run whether the profile can be saved
    /// after it. Creates the directories of a default place, for their owner alone.
    ///
    /// # Errors
    /// The profile could not be saved there.
    pub fn prepare<'a>(
        named: Option<&PathBuf>,
        command: &[OsString],
        arguments: Arguments,
        user: Option<&'a User>,
    ) -> Result<ProfileOutput<'a>> {
        let path = named.cloned().unwrap_or_else(|| new_profile_path_for(command, user, arguments));
        if named.is_none() {
            make_directory(&path, user)?;
        }
        let Some(rights) = user else {
            let place = Place::open(&path)?;
            place.check()?;
            return Ok(ProfileOutput { path, place, user, by_root: true });
        };
        let opened = rights.with_file_rights(|| Place::open(&path).and_then(|place| place.check().map(|()| place)))?;
        let (place, by_root) = match opened {
            Err(error) if named.is_some() && is_refused(&error) => (open_as_root(&path)?, true),
            opened => (opened?, false),
        };
        Ok(ProfileOutput { path, place, user, by_root })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a profile already.
    pub fn is_taken(&self) -> bool {
        self.place.is_taken()
    }

    /// Saves the profile in one step.
    ///
    /// # Errors
    /// [`SaveError`]: what was there before is still there.
    pub fn save(&self, profile: &Profile) -> Result<()> {
        let saved = match self.user {
            Some(user) if !self.by_root => user.with_file_rights(|| self.place.save(profile, None))?,
            user => self.place.save(profile, user.map(|user| Access { owner: (user.uid, user.gid), mode: None })),
        };
        Ok(saved?)
    }
}

fn make_directory(path: &Path, user: Option<&User>) -> Result<()> {
    let home = home(user);
    if path.starts_with(&home) && !home.is_dir() {
        let home = home.display();
        return Err(Error::Failed(format!(
            "the home directory {home} does not exist: name a place for the profile with -o"
        )));
    }
    let Some(directory) = path.parent() else { return Ok(()) };
    let make = || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let made = user.map_or_else(|| Ok(make()), |user| user.with_file_rights(make))?;
    made.what(&format!("cannot keep a profile in {} (-o names another place)", directory.display()))
}

/// Whether another user could save it there.
fn is_refused(error: &SaveError) -> bool {
    matches!(error, SaveError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

fn open_as_root(path: &Path) -> Result<Place> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let opened = open_by_links_of_root(directory).map_err(|error| match error {
        Errno::LOOP => io::Error::other("a symbolic link in the path is not root's: name the place that it leads to"),
        other => other.into(),
    });
    let place = Place::within(opened.what(&format!("cannot save {}", path.display()))?, path)?;
    place.check()?;
    Ok(place)
}

/// The symbolic links that are followed in one path; the kernel's own limit (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;

/// Opens a directory, and follows no symbolic link on the way that is not root's (`ELOOP`).
fn open_by_links_of_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let mut left = names_of(path);
    let start = |path: &Path| openat(CWD, if path.is_absolute() { "/" } else { "." }, DIRECTORY, Mode::empty());
    let (mut at, mut links) = (start(path)?, 0);
    while let Some(name) = left.pop() {
        let next = openat(&at, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&next)?;
        if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if stat.st_uid != 0 || links > MAX_LINKS {
            return Err(Errno::LOOP);
        }
        // A descriptor of one of root's processes: its target is not a path.
        if fstatfs(&next)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
            at = openat(&at, &name, DIRECTORY, Mode::empty())?;
            continue;
        }
        let target = PathBuf::from(OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes()));
        if target.is_absolute() {
            at = start(&target)?;
        }
        left.extend(names_of(&target));
    }
    openat(&at, ".", DIRECTORY, Mode::empty())
}

/// The last name first.
fn names_of(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    /// Regression: a link that the user owned led root to a place where the user may not write.
    #[test]
    fn root_follows_only_links_of_root() {
        if !ahead_sys::machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        std::fs::create_dir_all(&directory).unwrap();
        let link = home.path().join("link");
        symlink("a/../a/b/.", &link).unwrap();
        let inode = |path: &Path| open_by_links_of_root(path).map(|fd| fstat(fd).unwrap().st_ino);
        let expected = std::fs::metadata(&directory).unwrap().ino();
        assert_eq!((inode(&link), inode(&directory)), (Ok(expected), Ok(expected)));
        let descriptor = std::fs::File::open(&directory).unwrap();
        let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
        assert_eq!(inode(Path::new(&by_descriptor)), Ok(expected));
        lchown(&link, Some(54_321), None).unwrap();
        assert_eq!(inode(&link), Err(Errno::LOOP));
        symlink("turn", home.path().join("turn")).unwrap();
        assert_eq!(inode(&home.path().join("turn")), Err(Errno::LOOP));
    }
}
