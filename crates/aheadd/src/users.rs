//! The programs of the users who start some.

use ahead_apps::{AppStore, UserApps};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Users whose programs are in memory. Others are read again when they start something.
const MOST_USERS: usize = 64;
/// A user without a store is looked for again after this time: `ahead record` makes one.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);

/// What is known, by user.
#[derive(Debug)]
pub struct Users {
    store: AppStore,
    known: HashMap<u32, KnownUser>,
}

#[derive(Debug)]
struct KnownUser {
    /// `None`: no program of the user has waited for a disk yet.
    apps: Option<UserApps>,
    used: Instant,
    is_changed: bool,
}

impl Users {
    /// Nothing is read yet.
    pub fn new(store: AppStore) -> Users {
        Users { store, known: HashMap::new() }
    }

    /// The store.
    pub fn store(&self) -> &AppStore {
        &self.store
    }

    /// The programs of a user. `None`: nothing is known, or it cannot be read.
    pub fn of(&mut self, uid: u32, now: Instant) -> Option<&mut UserApps> {
        let is_stale = |known: &KnownUser| known.apps.is_none() && now.duration_since(known.used) > UNKNOWN_FOR;
        if self.known.get(&uid).is_none_or(is_stale) {
            let found = self.store.user(uid).unwrap_or_else(|error| {
                tracing::warn!("programs of user {uid}: {error}");
                None
            });
            self.insert(uid, found.map(UserApps::open), now);
        }
        let known = self.known.get_mut(&uid)?;
        if known.apps.is_some() {
            known.used = now;
        }
        known.apps.as_mut()
    }

    /// The same, and makes a store for a user of whom nothing is known.
    pub fn make(&mut self, (uid, gid): (u32, u32), now: Instant) -> Option<&mut UserApps> {
        if self.of(uid, now).is_none() {
            let made = self.store.make_user(uid, gid);
            let made = made.inspect_err(|error| tracing::warn!("programs of user {uid}: {error}")).ok()?;
            self.insert(uid, Some(UserApps::open(made)), now);
        }
        self.of(uid, now)
    }

    fn insert(&mut self, uid: u32, apps: Option<UserApps>, now: Instant) {
        while self.known.len() >= MOST_USERS && !self.known.contains_key(&uid) {
            let Some(oldest) = self.known.iter().min_by_key(|(_, user)| user.used).map(|(uid, _)| *uid) else { break };
            self.flush(oldest);
            self.known.remove(&oldest);
        }
        self.known.insert(uid, KnownUser { apps, used: now, is_changed: false });
    }

    /// Notes that there is something to write.
    pub fn change(&mut self, uid: u32) {
        self.known.entry(uid).and_modify(|user| user.is_changed = true);
    }

    /// Whether there is something to write.
    pub fn is_changed(&self) -> bool {
        self.known.values().any(|user| user.is_changed)
    }

    /// Writes what has changed. What another process holds is written the next time.
    pub fn flush_all(&mut self) {
        let changed: Vec<u32> = self.known.iter().filter(|(_, user)| user.is_changed).map(|(uid, _)| *uid).collect();
        changed.into_iter().for_each(|uid| self.flush(uid));
    }

    /// Writes what has changed of one user.
    pub fn flush(&mut self, uid: u32) {
        let Some(KnownUser { apps: Some(apps), is_changed, .. }) = self.known.get_mut(&uid) else { return };
        // The user may hold it without end.
        let Ok(_lock) = apps.store().lock(Duration::ZERO) else { return };
        match apps.flush() {
            Ok(written) => {
                tracing::debug!("user {uid}: {written} programs written");
                *is_changed = false;
            }
            Err(error) => tracing::warn!("programs of user {uid} are not written, and tried again: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_again_and_bounded() {
        let home = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let mut users = Users::new(AppStore::make(home.path()).unwrap());
        let now = Instant::now();
        (1..2 * MOST_USERS as u32).for_each(|uid| assert!(users.of(own + uid, now).is_none()));
        assert_eq!(users.known.len(), MOST_USERS);
        assert!(users.of(own, now).is_none());
        // Another process makes it.
        AppStore::make(home.path()).unwrap().make_user(own, rustix::process::getegid().as_raw()).unwrap();
        assert!(users.of(own, now).is_none());
        assert!(users.of(own, now + 2 * UNKNOWN_FOR).is_some());
    }
}
