//! The files of what is known.
//!
//! ```text
//!     /var/lib/ahead/apps/                 0711, root's: each user reaches his own directory, and sees no other
//!         use-days.json                    the clock by which programs age
//!         off                              exists: the service is off (where no service manager knows that)
//!         UID/                             0700, the user's, written by the service
//!             off                          exists: off for this user
//!             git-1b2c3d4e/state.json      key, history, choice, variants
//!                          start-3.ahead … start-10.ahead, replay.ahead
//!                          pinned.ahead
//! ```
//!
//! A user may put anything into his directory. It is reached by descriptors, through no link and no mount; of a file only the regular one of
//! that user counts, up to a size, after a check. Whatever cannot be read is as if it were not there.

use crate::agreement::Variants;
use crate::decision::UserChoice;
use crate::history::History;
use crate::key::AppKey;
use ahead_files::{MERGED, RecordingStore, replace_in};
use ahead_process::undo::home;
use ahead_profile::{Profile, SaveError};
use ahead_sys::directory::Directory;
use ahead_sys::root::Root;
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, openat};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The store of this machine.
pub const HOME: &str = "/var/lib/ahead/apps";
/// Recorded starts of a program that are kept, and merged: a page's support is how many of them used it.
pub const KEPT_STARTS: usize = crate::RECENT_STARTS;
/// All that is kept of all users, bytes.
const MAX_BYTES: u64 = 64 << 20;
/// All that is kept of one user: half of that, so that a second user always finds room.
const MAX_USER_BYTES: u64 = 32 << 20;
/// Programs of a user that are remembered: some times as many as anybody starts in a week.
pub const MAX_APPS: usize = 512;
/// Users, and names in a directory of one, that are looked at. The user may have made any number.
const MAX_NAMES: usize = 4 * MAX_APPS;
/// Days of use after which a program that was not started is forgotten: a quarter of a year of work days. Days on which nothing is started
/// do not count, so a wrong date makes nothing old.
const FORGOTTEN_DAYS: u32 = 90;
/// A state has some thousand bytes.
const MAX_STATE_BYTES: u64 = 64 << 10;

const STATE: &str = "state.json";
const PINNED: &str = "pinned.ahead";
const RECORDING: &str = "start";
const OFF: &str = "off";
const USE_DAYS: &str = "use-days.json";

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AppsError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] ahead_sys::Error),
    /// A profile cannot be saved.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// The days on which programs were started. They pass one by one, whatever the clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseDays {
    /// The last date, days since 1970.
    pub date: u64,
    /// The number of the day.
    pub number: u32,
}

impl UseDays {
    /// The number of the day of this time, seconds since 1970. Another date is the next day.
    pub fn at(&mut self, unix_s: u64) -> u32 {
        if std::mem::replace(&mut self.date, unix_s / 86_400) != self.date {
            self.number = self.number.saturating_add(1);
        }
        self.number
    }
}

/// All that is known of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct App {
    /// Its program.
    pub key: AppKey,
    /// What its user wants.
    #[serde(default)]
    pub choice: UserChoice,
    /// Which first words have a separate profile.
    #[serde(default)]
    pub variants: Variants,
    /// Its starts.
    #[serde(default)]
    pub history: History,
}

impl App {
    /// A program of which nothing is known.
    pub fn new(key: AppKey) -> App {
        App { key, choice: UserChoice::None, variants: Variants::default(), history: History::default() }
    }
}

/// The store of all users.
#[derive(Debug)]
pub struct AppStore {
    directory: Directory,
}

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Programs that were not started for long.
    pub old: usize,
    /// Programs for which there was no room.
    pub crowded_out: usize,
}

impl AppStore {
    /// Opens the store. `None`: there is none.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(home: &Path) -> Result<Option<AppStore>, AppsError> {
        match Directory::open(home) {
            Err(error) if is_missing(&error) => Ok(None),
            opened => Ok(Some(AppStore { directory: opened? })),
        }
    }

    /// Opens the store, and makes it where there is none. For root.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make(home: &Path) -> Result<AppStore, AppsError> {
        let directory = Root::default().make_directory(home)?;
        let mode = Mode::from_raw_mode(0o711);
        let made = chmodat(&directory, ".", mode, AtFlags::empty());
        made.map_err(|error| ahead_sys::Error::io(format!("change the mode of {}", home.display()), error))?;
        Ok(AppStore { directory })
    }

    /// The users with a directory.
    pub fn users(&self) -> Vec<u32> {
        let names = self.directory.first_names(MAX_NAMES).unwrap_or_default();
        let mut users: Vec<u32> = names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect();
        users.sort_unstable();
        users
    }

    /// What is known of the programs of a user. `None`: nothing.
    ///
    /// # Errors
    /// The directory cannot be opened, does not belong to the user, or has another file system mounted on it.
    pub fn user(&self, user: u32) -> Result<Option<UserStore>, AppsError> {
        match self.directory.own_directory(OsStr::new(&user.to_string())) {
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(directory) => {
                let metadata = directory.metadata()?;
                if metadata.uid() != user {
                    let what = format!("use {}", directory.path().display());
                    return Err(ahead_sys::Error::io(what, io::Error::other("it belongs to another user")).into());
                }
                Ok(Some(UserStore { directory, owner: (user, metadata.gid()) }))
            }
        }
    }

    /// The same, and makes the directory where there is none. For root.
    ///
    /// # Errors
    /// See above; the disk is full.
    pub fn make_user(&self, user: u32, group: u32) -> Result<UserStore, AppsError> {
        if let Some(found) = self.user(user)? {
            return Ok(found);
        }
        let directory = self.directory.create_directory(OsStr::new(&user.to_string()))?;
        directory.give_to(user, group)?;
        Ok(UserStore { directory, owner: (user, group) })
    }

    /// The store of a user whose wishes are to be noted. Root makes one where there is none.
    ///
    /// # Errors
    /// See above.
    pub fn user_to_change(&self, user: u32, group: u32) -> Result<Option<UserStore>, AppsError> {
        if ahead_sys::machine::is_root() { self.make_user(user, group).map(Some) } else { self.user(user) }
    }

    /// The clock by which programs age.
    pub fn use_days(&self) -> UseDays {
        read_json(&self.directory, USE_DAYS, None).unwrap_or_default()
    }

    /// Saves the clock.
    ///
    /// # Errors
    /// The disk is full.
    pub fn save_use_days(&self, days: UseDays) -> Result<(), AppsError> {
        write_json(&self.directory, USE_DAYS, &days, None)
    }

    /// Whether the service was switched off for all.
    pub fn is_off(&self) -> bool {
        self.directory.has(OsStr::new(OFF))
    }

    /// Switches the service off for all, or on.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_off(&self, is_off: bool) -> Result<(), AppsError> {
        set_off(&self.directory, is_off, None)
    }

    /// Forgets programs that were not started for many days of use, and, while the store is too large, those that were started longest ago: of the
    /// user who has most, so that no user crowds out another. Pinned ones go last.
    pub fn tidy(&self, use_day: u32) -> Forgotten {
        let mut forgotten = Forgotten::default();
        let mut users: Vec<(UserStore, Vec<KeptApp>)> = Vec::new();
        for user in self.users().into_iter().filter_map(|user| self.user(user).ok()?) {
            let (old, mut kept): (Vec<_>, Vec<_>) = user.kept().into_iter().partition(|app| app.is_old(use_day));
            forgotten.old += old.iter().filter(|app| user.remove(&app.name).is_ok()).count();
            // The last one goes first.
            kept.sort_by_key(|app| (std::cmp::Reverse(app.is_chosen), std::cmp::Reverse(app.last_use_day)));
            users.push((user, kept));
        }
        let bytes = |apps: &[KeptApp]| apps.iter().map(|app| app.bytes).sum::<u64>();
        loop {
            let total: u64 = users.iter().map(|(_, apps)| bytes(apps)).sum();
            let Some((user, apps)) = users.iter_mut().max_by_key(|(_, apps)| bytes(apps)) else { break };
            if total <= MAX_BYTES && bytes(apps) <= MAX_USER_BYTES {
                break;
            }
            let Some(last) = apps.pop() else { break };
            forgotten.crowded_out += usize::from(user.remove(&last.name).is_ok());
        }
        forgotten
    }
}

/// What is kept of one program, by the name of its directory.
struct KeptApp {
    name: String,
    bytes: u64,
    is_readable: bool,
    is_chosen: bool,
    last_use_day: u32,
}

impl KeptApp {
    fn is_old(&self, use_day: u32) -> bool {
        // A day that is not yet is today.
        let age = use_day.saturating_sub(self.last_use_day);
        !self.is_readable || age >= FORGOTTEN_DAYS && !self.is_chosen
    }
}

/// The store of one user.
#[derive(Debug)]
pub struct UserStore {
    directory: Directory,
    owner: (u32, u32),
}

/// Holds the lock of a user's store until it is dropped.
#[derive(Debug)]
pub struct AppsLock {
    _directory: File,
}

impl UserStore {
    /// Whose it is.
    pub fn user(&self) -> u32 {
        self.owner.0
    }

    /// The group of its files.
    pub fn group(&self) -> u32 {
        self.owner.1
    }

    /// Keeps other processes from changing it. The user may hold the lock without end: `limit` is the longest wait.
    ///
    /// # Errors
    /// Another process has it.
    pub fn lock(&self, limit: Duration) -> Result<AppsLock, AppsError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&self.directory, ".", flags, Mode::empty());
        let path = self.directory.path();
        let file: File =
            opened.map_err(|error| ahead_sys::Error::io(format!("open {}", path.display()), error))?.into();
        home::lock_within(&file, path, limit, |pause| {
            std::thread::sleep(pause);
            Ok::<(), ahead_sys::Error>(())
        })?;
        Ok(AppsLock { _directory: file })
    }

    /// The programs, in no order.
    pub fn apps(&self) -> Vec<App> {
        let names = self.directory.first_names(MAX_NAMES).unwrap_or_default();
        let read = names.iter().filter_map(|name| {
            let app = self.read(name)?;
            // Only at its own place, so that a copy does not count twice.
            (*name == *app.key.directory_name()).then_some(app)
        });
        read.take(MAX_APPS).collect()
    }

    /// A program. `None`: it is not known.
    pub fn load(&self, key: &AppKey) -> Option<App> {
        self.read(OsStr::new(&key.directory_name())).filter(|app| app.key == *key)
    }

    fn read(&self, name: &OsStr) -> Option<App> {
        let directory = self.directory.own_directory(name).ok()?;
        let app: App = read_json(&directory, STATE, Some(self.user()))?;
        Some(App { history: app.history.cut(), ..app })
    }

    /// Saves what is known of a program.
    ///
    /// # Errors
    /// The disk is full; the directory cannot be written. What was there before is still there.
    pub fn save(&self, app: &App) -> Result<(), AppsError> {
        write_json(&self.make(&app.key)?, STATE, app, Some(self.owner))
    }

    /// The profile to prefetch: the pinned one, or the merged recordings, made again if they are damaged.
    pub fn profile(&self, app: &App) -> Option<Profile> {
        let kept = self.recordings(&app.key)?;
        if app.choice == UserChoice::Pinned
            && let Ok(profile) = kept.load_named(PINNED)
        {
            return Some(profile);
        }
        let loaded = kept.load_named(MERGED).or_else(|error| {
            let repaired = kept.repair(|_| {}).unwrap_or_default();
            if repaired { kept.load_named(MERGED) } else { Err(error) }
        });
        loaded.ok()
    }

    /// Adds the recording of a start. `finish` completes the merged profile.
    ///
    /// # Errors
    /// The disk is full; the directory cannot be written.
    pub fn add_recording(
        &self,
        key: &AppKey,
        recording: Profile,
        finish: impl FnOnce(&mut Profile),
    ) -> Result<(), AppsError> {
        let directory = self.make(key)?;
        Ok(self.store_in(directory).add(recording, false, finish)?)
    }

    /// Makes this profile, or the merged one as it is now, the one that is prefetched until it is unpinned. Returns whether there is one.
    ///
    /// # Errors
    /// The disk is full; the directory cannot be written.
    pub fn pin(&self, app: &mut App, profile: Option<Profile>) -> Result<bool, AppsError> {
        let Some(profile) = profile.or_else(|| self.profile(app)) else { return Ok(false) };
        let directory = self.make(&app.key)?;
        self.store_in(directory).save_named(PINNED, &profile)?;
        app.choice = UserChoice::Pinned;
        self.save(app).map(|()| true)
    }

    /// Sets what the user wants. A pinned profile is removed.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn choose(&self, app: &mut App, choice: UserChoice) -> Result<(), AppsError> {
        self.make(&app.key)?.remove_file(OsStr::new(PINNED))?;
        app.choice = choice;
        self.save(app)
    }

    /// Forgets a program.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn forget(&self, key: &AppKey) -> Result<(), AppsError> {
        self.remove(&key.directory_name())
    }

    /// Whether the user has switched the service off.
    pub fn is_off(&self) -> bool {
        self.directory.has(OsStr::new(OFF))
    }

    /// Switches the service off for this user, or on.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_off(&self, is_off: bool) -> Result<(), AppsError> {
        set_off(&self.directory, is_off, Some(self.owner))
    }

    /// The recordings of a program.
    pub fn recordings(&self, key: &AppKey) -> Option<RecordingStore> {
        Some(self.store_in(self.directory.own_directory(OsStr::new(&key.directory_name())).ok()?))
    }

    fn store_in(&self, directory: Directory) -> RecordingStore {
        RecordingStore::new(directory, RECORDING, KEPT_STARTS).owned_by(self.owner.0, self.owner.1)
    }

    fn make(&self, key: &AppKey) -> Result<Directory, AppsError> {
        let name = key.directory_name();
        let name = OsStr::new(&name);
        match self.directory.own_directory(name) {
            Err(error) if is_missing(&error) => {
                let made = self.directory.create_directory(name)?;
                made.give_to(self.owner.0, self.owner.1)?;
                Ok(made)
            }
            opened => Ok(opened?),
        }
    }

    /// Removes our files in a directory. What the user has put there stays, and the directory with it.
    fn remove(&self, name: &str) -> Result<(), AppsError> {
        let name = OsStr::new(name);
        match self.directory.own_directory(name) {
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(directory) => {
                directory.remove_file(OsStr::new(STATE))?;
                directory.remove_file(OsStr::new(PINNED))?;
                self.store_in(directory).clear()?;
            }
        }
        Ok(self.directory.remove_directory(name)?)
    }

    fn kept(&self) -> Vec<KeptApp> {
        let names = self.directory.first_names(MAX_NAMES).unwrap_or_default();
        let kept = names.iter().filter_map(|name| {
            let directory = self.directory.own_directory(name).ok()?;
            let files = directory.first_names(MAX_NAMES).unwrap_or_default();
            let sizes = files.iter().filter_map(|file| directory.regular_file(file).ok()?.metadata().ok());
            let bytes = sizes.map(|metadata| metadata.blocks() * 512).sum();
            let app = self.read(name);
            Some(KeptApp {
                name: name.to_str()?.to_owned(),
                bytes,
                is_readable: app.is_some(),
                is_chosen: app.as_ref().is_some_and(|app| app.choice != UserChoice::None),
                last_use_day: app.map_or(0, |app| app.history.last_use_day),
            })
        });
        kept.collect()
    }
}

fn is_missing(error: &ahead_sys::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOENT.raw_os_error())
}

fn set_off(directory: &Directory, is_off: bool, owner: Option<(u32, u32)>) -> Result<(), AppsError> {
    if is_off { write(directory, OFF, b"", owner) } else { Ok(directory.remove_file(OsStr::new(OFF))?) }
}

/// A file in JSON of this owner. `None`: there is none, or it is none of ours.
fn read_json<T: for<'a> Deserialize<'a>>(directory: &Directory, name: &str, owner: Option<u32>) -> Option<T> {
    let file = directory.regular_file(OsStr::new(name)).ok()?;
    let metadata = file.metadata().ok()?;
    if owner.is_some_and(|owner| metadata.uid() != owner) {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_STATE_BYTES + 1).read_to_end(&mut text).ok()?;
    if text.len() as u64 > MAX_STATE_BYTES {
        return None;
    }
    let parsed = serde_json::from_slice(&text);
    parsed.inspect_err(|error| tracing::info!("{}/{name}: skipped: {error}", directory.path().display())).ok()
}

fn write_json(
    directory: &Directory,
    name: &str,
    value: &impl Serialize,
    owner: Option<(u32, u32)>,
) -> Result<(), AppsError> {
    let text = serde_json::to_vec(value);
    let text = text.map_err(|error| ahead_sys::Error::io(format!("write {name}"), io::Error::from(error)))?;
    write(directory, name, &text, owner)
}

fn write(directory: &Directory, name: &str, content: &[u8], owner: Option<(u32, u32)>) -> Result<(), AppsError> {
    let written = replace_in(directory.as_fd(), OsStr::new(name), content, 0o600, owner);
    let what = || format!("write {}", directory.path().join(name).display());
    Ok(written.map_err(|error| ahead_sys::Error::io(what(), error))?)
}

#[cfg(test)]
mod tests;
