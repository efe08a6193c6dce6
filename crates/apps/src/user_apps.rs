//! The programs of one user, while the service runs: found by the key of a start, measured, learned, and written when something is worth it.
//!
//! The file of a program has two writers. Its choice is the user's, so that of the file counts; the rest is the service's, so that of the memory
//! counts. A file that is gone was forgotten by its user.

use crate::agreement::agreement;
use crate::decision::{StartDecision, StartSituation, UserChoice, WaitLimits, decide};
use crate::history::AppStart;
use crate::key::{AppKey, AppVersion, StartKey};
use crate::store::{App, AppsError, MAX_APPS, UserStore};
use ahead_profile::Profile;
use std::collections::HashMap;

/// The programs of one user.
#[derive(Debug)]
pub struct UserApps {
    store: UserStore,
    apps: HashMap<AppKey, CachedApp>,
}

#[derive(Debug)]
struct CachedApp {
    app: App,
    /// Recordings in the profile; 1 for a pinned one.
    recordings: usize,
    is_stored: bool,
    is_changed: bool,
    /// Counts up with each start.
    used: u64,
}

impl UserApps {
    /// Reads what is known.
    pub fn open(store: UserStore) -> UserApps {
        let apps = store.apps().into_iter().map(|app| (app.key.clone(), CachedApp::stored(&store, app))).collect();
        UserApps { store, apps }
    }

    /// The user's files.
    pub fn store(&self) -> &UserStore {
        &self.store
    }

    /// The program of a start: that of its variant, where it has a separate profile. A new one is added; where there are too many, the one
    /// that was started longest ago makes room in memory.
    pub fn find(&mut self, start: &StartKey, version: AppVersion) -> AppKey {
        let base = self.apps.get(&start.app);
        let is_own = |variant: &String| base.is_some_and(|base| base.app.variants.is_own(variant));
        let key = if start.variant.as_ref().is_some_and(is_own) { start.split() } else { start.app.clone() };
        self.refresh(&key);
        let used = self.apps.values().map(|cached| cached.used).max().unwrap_or(0) + 1;
        if !self.apps.contains_key(&key) {
            self.make_room();
            self.apps.insert(key.clone(), CachedApp::new(key.clone()));
        }
        if let Some(cached) = self.apps.get_mut(&key) {
            cached.used = used;
            cached.app.history.see_version(version);
        }
        key
    }

    /// Decides about a start. Recordings and variants of `situation` are filled in here.
    pub fn decide(
        &self,
        start: &StartKey,
        key: &AppKey,
        situation: StartSituation,
        limits: &WaitLimits,
    ) -> StartDecision {
        let unknown = App::new(key.clone());
        let (app, recordings) = self.apps.get(key).map_or((&unknown, 0), |cached| (&cached.app, cached.recordings));
        let is_new_variant = start.variant.as_ref().is_some_and(|variant| app.variants.is_new(variant));
        let is_new_variant = is_new_variant && key.variant.is_none();
        let situation = StartSituation { recordings, is_new_variant, ..situation };
        decide(&app.history, app.choice, &situation, limits)
    }

    /// What is known of a program.
    pub fn app(&self, key: &AppKey) -> Option<&App> {
        self.apps.get(key).map(|cached| &cached.app)
    }

    /// The profile to prefetch.
    pub fn profile(&self, key: &AppKey) -> Option<Profile> {
        let cached = self.apps.get(key).filter(|cached| cached.recordings > 0)?;
        self.store.profile(&cached.app)
    }

    /// Adds a start that is over. `use_day`: see [`crate::UseDays`].
    pub fn add(&mut self, key: &AppKey, start: AppStart, use_day: u32, limits: &WaitLimits) {
        let Some(cached) = self.apps.get_mut(key) else { return };
        cached.app.history.add(start, use_day, limits.is_wait(start.waited_us, start.elapsed_us));
        cached.is_changed = true;
    }

    /// Keeps the recording of a start: in the profile of its variant, if that reads other pages than the rest. `finish` completes the merged
    /// profile. Returns how far it agrees with the common profile, for [`Self::learned`].
    ///
    /// # Errors
    /// The disk is full; the directory cannot be written. Then the next start is recorded again.
    pub fn learn(
        &mut self,
        start: &StartKey,
        recording: Profile,
        finish: impl FnOnce(&mut Profile),
    ) -> Result<f64, AppsError> {
        self.refresh(&start.app);
        // The first recording is the common profile.
        let agreed = self.profile(&start.app).map_or(1.0, |common| agreement(&common, &recording));
        let key = self.place_of(start, agreed);
        self.store.add_recording(&key, recording, finish)?;
        self.count_recordings(&key);
        Ok(agreed)
    }

    /// Takes over that a copy of this process has learned from a recording. Returns the program that it was added to.
    pub fn learned(&mut self, start: &StartKey, agreed: f64) -> AppKey {
        let key = self.place_of(start, agreed);
        self.count_recordings(&key);
        key
    }

    fn place_of(&mut self, start: &StartKey, agreed: f64) -> AppKey {
        let base = self.apps.entry(start.app.clone()).or_insert_with(|| CachedApp::new(start.app.clone()));
        let Some(variant) = &start.variant else { return start.app.clone() };
        base.is_changed = true;
        if base.app.variants.compare(variant, agreed) { start.split() } else { start.app.clone() }
    }

    fn count_recordings(&mut self, key: &AppKey) {
        let app = self.apps.entry(key.clone()).or_insert_with(|| CachedApp::new(key.clone()));
        app.recordings = self.store.recordings(key).map_or(0, |kept| kept.numbers().len());
        app.app.history.recorded();
        app.is_changed = true;
    }

    /// Writes what has changed: programs that have waited, have a profile, or are chosen. Returns how many were written.
    ///
    /// # Errors
    /// The first failure; the rest is tried, and what failed is tried again.
    pub fn flush(&mut self) -> Result<usize, AppsError> {
        let (mut written, mut failed) = (0, None);
        let changed = self.apps.iter().filter(|(_, cached)| cached.is_changed && cached.is_worth_keeping());
        let changed: Vec<AppKey> = changed.map(|(key, _)| key.clone()).collect();
        for key in changed {
            self.refresh(&key);
            let Some(cached) = self.apps.get_mut(&key) else { continue };
            match self.store.save(&cached.app) {
                Ok(()) => {
                    (cached.is_changed, cached.is_stored) = (false, true);
                    written += 1;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(written), Err)
    }

    /// Takes over what the user has done with the file of a program.
    fn refresh(&mut self, key: &AppKey) {
        match (self.apps.get_mut(key), self.store.load(key)) {
            (Some(cached), Some(stored)) => {
                if cached.app.choice != stored.choice {
                    cached.app.choice = stored.choice;
                    cached.recordings = CachedApp::stored(&self.store, stored).recordings;
                }
                cached.is_stored = true;
            }
            (Some(cached), None) if cached.is_stored => drop(self.apps.remove(key)),
            (None, Some(stored)) => {
                self.make_room();
                self.apps.insert(key.clone(), CachedApp::stored(&self.store, stored));
            }
            _ => {}
        }
    }

    fn make_room(&mut self) {
        while self.apps.len() >= MAX_APPS {
            let last = self.apps.iter().min_by_key(|(_, cached)| (cached.is_worth_keeping(), cached.used));
            let Some(last) = last.map(|(key, _)| key.clone()) else { return };
            self.apps.remove(&last);
        }
    }
}

impl CachedApp {
    fn new(key: AppKey) -> CachedApp {
        CachedApp { app: App::new(key), recordings: 0, is_stored: false, is_changed: false, used: 0 }
    }

    fn stored(store: &UserStore, app: App) -> CachedApp {
        let kept = store.recordings(&app.key).map_or(0, |kept| kept.numbers().len());
        let recordings = if app.choice == UserChoice::Pinned { kept.max(1) } else { kept };
        CachedApp { app, recordings, is_stored: true, is_changed: false, used: 0 }
    }

    fn is_worth_keeping(&self) -> bool {
        let history = &self.app.history;
        self.recordings > 0 || self.app.choice != UserChoice::None || history.without().is_some()
    }
}
