//! Where the profile goes, and with whose rights.
//!
//! A path that was named (`-o`) is root's word: it is written as root, and the file given to the user. The place in the
//! user's home is the user's: he may put a symbolic link anywhere in it, at any moment, and that must not lead root.

use crate::paths;
use ahead_kernel::user::User;
use ahead_profile::Profile;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The place of one profile.
#[derive(Debug)]
pub struct Keeper<'a> {
    path: PathBuf,
    user: Option<&'a User>,
    is_named: bool,
}

impl Keeper<'_> {
    /// For what was named, or else for a command that this user runs.
    pub fn new<'a>(named: Option<&PathBuf>, command: &[OsString], user: Option<&'a User>) -> Keeper<'a> {
        let path = named.cloned().unwrap_or_else(|| paths::new_profile_path_for(command, user));
        Keeper { path, user, is_named: named.is_some() }
    }

    /// Where it is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is a profile already.
    pub fn is_taken(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok()
    }

    /// Finds out before the run whether the profile can be kept afterwards. Makes the directories of a place that nobody
    /// named, for their owner alone.
    pub fn prepare(&self) -> anyhow::Result<()> {
        let home = paths::home(self.user);
        if !self.is_named && self.path.starts_with(&home) && !home.is_dir() {
            bail!("the home directory {} does not exist: name a place for the profile with -o", home.display());
        }
        self.with_rights(|| {
            if let Some(directory) = self.path.parent().filter(|_| !self.is_named) {
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
                made.with_context(|| {
                    format!("cannot keep a profile in {} (-o names another place)", directory.display())
                })?;
            }
            Ok(ahead_profile::check_place(&self.path)?)
        })?
    }

    /// Saves it in one step.
    pub fn save(&self, profile: &Profile) -> anyhow::Result<()> {
        let owner = self.user.filter(|_| self.is_named).map(|user| (user.uid, user.gid));
        self.with_rights(|| ahead_profile::save_owned(profile, &self.path, owner))?.map_err(Into::into)
    }

    fn with_rights<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        match self.user.filter(|_| !self.is_named) {
            Some(user) => Ok(user.with_file_rights(work)?),
            None => Ok(work()),
        }
    }
}
