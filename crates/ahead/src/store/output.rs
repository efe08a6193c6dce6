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
//! directory is opened before the program starts ([`ProfilePlace`]). Where the user may not write, root follows no link of another user.

use super::{Arguments, home, new_profile_path_for};
use crate::error::{Context, IoContext};
use crate::{Error, Result};
use ahead_files::{Access, ProfilePlace};
use ahead_profile::{Profile, SaveError};
use ahead_sys::trusted::directory_by_links_of_root;
use ahead_sys::user::User;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The place of a new profile, opened before the recording.
#[derive(Debug)]
pub struct ProfileOutput<'a> {
    path: PathBuf,
    place: ProfilePlace,
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
            let place = ProfilePlace::open(&path)?;
            place.check()?;
            return Ok(ProfileOutput { path, place, user, by_root: true });
        };
        let opened =
            rights.with_file_rights(|| ProfilePlace::open(&path).and_then(|place| place.check().map(|()| place)))?;
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

    /// The profile that is there, read with the rights of the user. `None`: there is none that can be read.
    pub fn earlier(&self) -> Option<Profile> {
        if !self.is_taken() {
            return None;
        }
        match self.user {
            Some(user) => user.with_file_rights(|| ahead_files::load(&self.path)).ok()?.ok(),
            None => ahead_files::load(&self.path).ok(),
        }
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

fn open_as_root(path: &Path) -> Result<ProfilePlace> {
    let directory = directory_by_links_of_root(path.parent().unwrap_or(Path::new("/")));
    let place = ProfilePlace::within(directory.context(|| format!("cannot save {}", path.display()))?, path)?;
    place.check()?;
    Ok(place)
}
