//! Where the profile goes, and with whose rights.
//!
//! ```text
//!     place                       directory opened, file made         where that is refused
//!     in the user's home          with the user's rights              the error
//!     named with -o               with the user's rights              as root, by links of root's alone; the file is
//!                                                                     given to the user
//! ```
//!
//! The user may put a symbolic link anywhere in a directory of his, at any moment, and so may the program that is recorded.
//! So the directory is opened before the program starts ([`Place`]), and root goes where the user may not write only by a path
//! that no link of anybody else bends.

use ahead::store::{self, Arguments};
use ahead_profile::{Place, Profile, SaveError};
use ahead_sys::user::User;
use anyhow::{Context, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// The place of one profile.
#[derive(Debug)]
pub struct Keeper<'a> {
    path: PathBuf,
    place: Place,
    user: Option<&'a User>,
    /// The file is made by root, and then given to the user.
    by_root: bool,
}

impl Keeper<'_> {
    /// For what was named, or else for a command that this user runs. Finds out before the run whether the profile can be
    /// kept afterwards. Creates the directories of a default place, for their owner alone.
    pub fn new<'a>(
        named: Option<&PathBuf>,
        command: &[OsString],
        arguments: Arguments,
        user: Option<&'a User>,
    ) -> anyhow::Result<Keeper<'a>> {
        let path = named.cloned().unwrap_or_else(|| store::new_profile_path_for(command, user, arguments));
        if named.is_none() {
            make_directory(&path, user)?;
        }
        let Some(rights) = user else {
            let place = Place::open(&path)?;
            place.check()?;
            return Ok(Keeper { path, place, user, by_root: true });
        };
        let opened = rights.with_file_rights(|| Place::open(&path).and_then(|place| place.check().map(|()| place)))?;
        let (place, by_root) = match opened {
            Err(error) if named.is_some() && is_refused(&error) => (open_as_root(&path)?, true),
            opened => (opened?, false),
        };
        Ok(Keeper { path, place, user, by_root })
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a profile already.
    pub fn is_taken(&self) -> bool {
        self.place.is_taken()
    }

    /// Saves it in one step.
    pub fn save(&self, profile: &Profile) -> anyhow::Result<()> {
        let saved = match self.user {
            Some(user) if !self.by_root => user.with_file_rights(|| self.place.save(profile, None))?,
            user => self.place.save(profile, user.map(|user| (user.uid, user.gid))),
        };
        Ok(saved?)
    }
}

fn make_directory(path: &Path, user: Option<&User>) -> anyhow::Result<()> {
    let home = store::home(user);
    if path.starts_with(&home) && !home.is_dir() {
        bail!("the home directory {} does not exist: name a place for the profile with -o", home.display());
    }
    let Some(directory) = path.parent() else { return Ok(()) };
    let make = || std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    let made = user.map_or_else(|| Ok(make()), |user| user.with_file_rights(make))?;
    made.with_context(|| format!("cannot keep a profile in {} (-o names another place)", directory.display()))
}

/// Whether it is a matter of who does it.
fn is_refused(error: &SaveError) -> bool {
    matches!(error, SaveError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

fn open_as_root(path: &Path) -> anyhow::Result<Place> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let opened = open_by_links_of_root(directory).map_err(|error| match error {
        Errno::LOOP => io::Error::other("a symbolic link on the way is not root's: name the place that it leads to"),
        other => other.into(),
    });
    let place = Place::within(opened.with_context(|| format!("cannot save {}", path.display()))?, path)?;
    place.check()?;
    Ok(place)
}

/// As many symbolic links as the kernel follows in one path (`MAXSYMLINKS`).
const LINKS_MOST: u32 = 40;

/// Opens a directory, and follows on the way no symbolic link that is not root's (`ELOOP`).
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
        if stat.st_uid != 0 || links > LINKS_MOST {
            return Err(Errno::LOOP);
        }
        // A descriptor of a process of root's: what it leads to is no text.
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

    /// Regression: a link of the user's led root to a place where the user may not write.
    #[test]
    fn only_links_of_root_lead_root() {
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
