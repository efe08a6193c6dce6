//! What a user asks for: pin, forget, exclude programs by their names.

use crate::decision::UserChoice;
use crate::shared::key_of_command;
use crate::store::{App, AppsError, UserStore};
use std::path::Path;
use std::time::Duration;

/// What is to be done with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppChange {
    /// Prefetch it always, with the profile as it is.
    Pin,
    /// Forget what is known.
    Forget,
    /// Leave it alone. A path may name a program that is not known.
    Exclude,
    /// Let the service decide again.
    Include,
}

/// Why a program was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// No program has this name.
    #[error("no program {name:?} is known; {}", hint(.similar))]
    Unknown {
        /// The name.
        name: String,
        /// Names that are similar.
        similar: Vec<String>,
    },
    /// It was never recorded.
    #[error("{0} has no profile yet; record one with: sudo ahead record --cold -- CMD")]
    NoProfile(String),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] AppsError),
}

fn hint(similar: &[String]) -> String {
    match similar.is_empty() {
        true => "see the known ones with: ahead apps".into(),
        false => format!("similar ones: {}", similar.join(", ")),
    }
}

/// The service has the lock while it writes what a start has shown.
const LOCK_TIME: Duration = Duration::from_secs(5);
/// Names that an error suggests.
const SUGGESTED: usize = 5;

/// The calling user and group.
pub fn calling_user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl UserStore {
    /// Changes the programs that a word names: the key of the list, a name, or a path. Returns their names.
    ///
    /// # Errors
    /// There is none; it has no profile to pin; the store cannot be written.
    pub fn change(&self, word: &str, change: AppChange) -> Result<Vec<String>, ChangeError> {
        let _lock = self.lock(LOCK_TIME)?;
        let path = Path::new(word);
        let unknown = || {
            let may_be_new = change == AppChange::Exclude && path.is_absolute();
            let key = may_be_new.then(|| key_of_command(path, &[], Path::new("/"))).flatten();
            key.map(|start| vec![App::new(start.app)])
        };
        let found = self.named(word).or_else(|error| unknown().ok_or(error))?;
        let change_one = |mut app: App| {
            let name = app.key.name();
            match change {
                AppChange::Pin if !self.pin(&mut app, None)? => return Err(ChangeError::NoProfile(name)),
                AppChange::Pin => {}
                AppChange::Forget => self.forget(&app.key)?,
                AppChange::Exclude => self.choose(&mut app, UserChoice::Excluded)?,
                AppChange::Include => self.choose(&mut app, UserChoice::None)?,
            }
            Ok(name)
        };
        found.into_iter().map(change_one).collect()
    }

    fn named(&self, word: &str) -> Result<Vec<App>, ChangeError> {
        let apps = self.apps();
        let is_named = |app: &&App| {
            let key = &app.key;
            let file = key.program.rsplit(|at| *at == b'/').next().unwrap_or_default();
            let names = [key.directory_name(), key.name(), key.to_string()];
            names.iter().any(|name| name == word) || [&key.program[..], file].contains(&word.as_bytes())
        };
        let found: Vec<App> = apps.iter().filter(is_named).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let is_similar = |name: &String| {
            let first = |text: &str| text.chars().take(2).collect::<String>();
            name.contains(word) || word.contains(name.as_str()) || first(name) == first(word)
        };
        let mut similar: Vec<String> = apps.iter().map(|app| app.key.name()).filter(is_similar).collect();
        similar.sort();
        similar.dedup();
        similar.truncate(SUGGESTED);
        Err(ChangeError::Unknown { name: word.into(), similar })
    }
}
