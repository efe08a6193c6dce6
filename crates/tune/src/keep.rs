//! Setting a window for good, with a way back.
//!
//! ```text
//!     /var/lib/ahead/tune/NAME.json      what was set before, written first; until it is taken back
//!     /etc/udev/rules.d/99-ahead-tune-NAME.rules, or a unit in /etc/systemd/system      what sets it again
//! ```
//!
//! What is taken back is only what we set: a window that somebody has changed since stays, and so does a rule that is not ours.
//! The earlier value is that of before the first of our changes, however many have followed, or what somebody else has set between
//! two of them. A window has one state and one rule, by whichever way it was come to ([`state`]). Who calls this is alone: nobody
//! else has a window set for a while, which would be taken for somebody's choice.

mod files;
mod state;
#[cfg(test)]
mod tests;

use crate::identity::Identity;
use crate::rule::{Rule, RulePlace};
use crate::{Error, Result, System, Target};
use ahead_sys::{bdi, machine};
use files::{RuleFiles, unwritable};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::Serialize;
use state::{Kept, Place, key_by_number};
pub use state::{Settings, Window};
use std::path::{Path, PathBuf};

/// Below the root of what is kept.
const STATES: &str = "var/lib/ahead/tune";

/// A rule beside the running value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The rule's file.
    pub rule: PathBuf,
    /// What it says, KiB; null: there is none, or it is not ours.
    pub rule_kb: Option<u64>,
    /// What is set now, KiB.
    pub running_kb: u64,
    /// It is as we write it, and switched on.
    pub intact: bool,
}

impl Checked {
    /// A rule is there, and says what is set.
    pub fn agrees(&self) -> bool {
        self.intact && self.rule_kb == Some(self.running_kb)
    }
}

/// What was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The rule that keeps it.
    pub rule: Option<PathBuf>,
    /// Files of earlier rules for the same window, which are gone now.
    pub replaced: Vec<PathBuf>,
}

/// What was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Whose.
    pub name: String,
    /// The window that is set again, KiB; null: it was left alone.
    pub restored_kb: Option<u64>,
    /// Files that are gone now.
    pub removed: Vec<PathBuf>,
    /// Why the window was left alone.
    pub left_alone: Option<String>,
    /// The window that could not be set again, KiB, and is kept for another time; null: nothing is kept any more.
    pub kept_kb: Option<u64>,
}

/// Where it is kept.
#[derive(Clone, Debug, Default)]
pub struct Store {
    system: System,
}

impl Store {
    /// In this system's directories.
    pub fn new(system: System) -> Store {
        Store { system }
    }

    /// Whether a window of the target could be set and kept: before hours of measuring are for nothing.
    ///
    /// Errors: not root; a directory cannot be written; with `persist` as [`Store::may_persist`].
    pub fn may_set(&self, target: &Target, persist: bool) -> Result<()> {
        if !machine::is_root() {
            return Err(ahead_sys::Error::needs_root(format!("setting the window of {}", target.name)).into());
        }
        self.may_write(&Path::new(STATES).join("x"))?;
        if !persist {
            return Ok(());
        }
        self.may_persist(target)?;
        let place = target.identity.as_ref().ok().map(RulePlace::of);
        place.map_or(Ok(()), |place| self.may_write(&place.path))
    }

    /// Whether a file could be made: by the nearest directory that is there.
    fn may_write(&self, file: &Path) -> Result<()> {
        let path = self.at(file);
        let Some(there) = path.ancestors().skip(1).find(|directory| directory.is_dir()) else { return Ok(()) };
        let may = accessat(CWD, there, Access::WRITE_OK, AtFlags::EACCESS);
        Ok(may.map_err(|e| unwritable(there, e.into()))?)
    }

    /// Whether a rule could name the target, and somebody reads it.
    ///
    /// Errors: nothing tells it from others; another device here has its rule; there is no udev, or no systemd.
    pub fn may_persist(&self, target: &Target) -> Result<()> {
        let what = || format!("a rule for {}", target.name);
        let identity = target.identity.as_ref().map_err(|why| Error::unsupported(what(), why))?;
        Rule::new(identity, 0).map_err(|why| Error::unsupported(what(), why))?;
        let (who, homes) = match identity {
            Identity::Mount { .. } | Identity::Btrfs { .. } => {
                ("systemd", &["etc/systemd", "usr/lib/systemd", "lib/systemd"][..])
            }
            _ => ("udev", &["etc/udev", "usr/lib/udev", "lib/udev"][..]),
        };
        if !homes.iter().any(|home| self.system.kept.join(home).is_dir()) {
            let why = format!(
                "there is no {who} that would read it; set the window at each start: ahead tune … --kb … --apply"
            );
            return Err(Error::unsupported(what(), why));
        }
        match self.holder_of(identity, target)? {
            Some(other) => {
                let why =
                    format!("{identity} is what another device is kept by ({other}); take that back first: --restore");
                Err(Error::unsupported(what(), why))
            }
            None => Ok(()),
        }
    }

    /// Of another window that is kept by this identity, its name.
    fn holder_of(&self, identity: &Identity, target: &Target) -> Result<Option<String>> {
        let key = identity.file_name();
        let Some(state) = self.state(&key)? else { return Ok(None) };
        let is_its = self.of_window(target)?.iter().any(|kept| kept.key == key);
        Ok((!is_its).then_some(state.name))
    }

    /// Why a rule for the target does nothing yet, if so: who would read it is installed, but does not run.
    pub fn unread(&self, target: &Target) -> Option<String> {
        let (who, sign) = match target.identity.as_ref().ok()? {
            Identity::Mount { .. } | Identity::Btrfs { .. } => ("systemd", "run/systemd/system"),
            _ => ("udev", "run/udev/control"),
        };
        let is_running = self.system.root.join(sign).exists();
        (!is_running)
            .then(|| format!("{who} does not run here (there is no /{sign}): nothing reads the rule until it does"))
    }

    /// Sets a window, KiB, and keeps what was there before; with `persist` a rule sets it again after a restart, in place of any
    /// earlier rule of ours for the same window.
    ///
    /// Errors: not root; something cannot be written. Then everything is as it was.
    pub fn set(&self, target: &Target, kb: u64, persist: bool) -> Result<Set> {
        self.may_set(target, persist)?;
        let current_kb = target.current_kb()?;
        let earlier = self.of_window(target)?;
        let rule = target.identity.as_ref().ok().filter(|_| persist).map(|identity| Rule::new(identity, kb));
        let rule = rule.transpose().map_err(|why| Error::unsupported(format!("a rule for {}", target.name), why))?;
        let (key, state) = self.next_state(target, &earlier, current_kb, kb, rule.as_ref())?;
        let before = self.state(&key)?;
        self.write_state(&key, &state).and_then(|()| self.write(target, kb, rule.as_ref())).inspect_err(|_| {
            // The first error is the one that is told.
            let _ = match &before {
                Some(before) => self.write_state(&key, before),
                None => self.forget(&key, &state),
            };
        })?;
        let Some(rule) = rule else { return Ok(Set::default()) };
        let files = self.files(rule.place);
        let mut replaced = files.remove_other_links()?;
        for Kept { key, state } in earlier.into_iter().filter(|kept| kept.key != key) {
            replaced.extend(self.take_rule(&state)?);
            self.forget(&key, &state)?;
        }
        Ok(Set { rule: Some(files.path()), replaced })
    }

    /// What is written down before a window is set, and under which name.
    fn next_state(
        &self,
        target: &Target,
        earlier: &[Kept],
        current_kb: u64,
        kb: u64,
        rule: Option<&Rule>,
    ) -> Result<(String, Settings)> {
        let own = target.identity.as_ref().ok();
        let chosen = match rule {
            // It takes the place of all others.
            Some(_) => first(earlier),
            None => earlier.iter().find(|kept| kept.state.is_ours(current_kb)).or(earlier.first()),
        };
        let key = match (own, rule, chosen) {
            (Some(identity), Some(_), _) => identity.file_name(),
            (_, _, Some(chosen)) => chosen.key.clone(),
            (Some(identity), ..) if self.holder_of(identity, target)?.is_none() => identity.file_name(),
            _ => key_by_number(target.number),
        };
        // Of what another one is kept by nothing is written down: its rule would go with this window.
        let own = own.filter(|identity| identity.file_name() == key).cloned();
        let identity = chosen.filter(|_| rule.is_none()).map_or(own, |chosen| chosen.state.identity.clone());
        let is_ours = |kept: &Kept| kept.state.is_ours(current_kb) || kept.state.previous_kb == current_kb;
        // What somebody else has set since is what is there before this change.
        let kept = chosen.filter(|_| earlier.iter().any(is_ours));
        let written = earlier
            .iter()
            .filter(|_| kept.is_some())
            .flat_map(|kept| kept.state.written_kb.iter().copied().chain([kept.state.applied_kb]));
        let mut written_kb: Vec<u64> = written.chain([kb]).collect();
        written_kb.sort_unstable();
        written_kb.dedup();
        let state = Settings {
            name: target.name.clone(),
            identity,
            previous_kb: kept.map_or(current_kb, |kept| kept.state.previous_kb),
            applied_kb: kb,
            written_kb,
            window: Some(Window::of(&self.system, target)),
            directories: self.directories(&key, rule)?,
        };
        Ok((key, state))
    }

    /// Directories that are made for a target's files, and those that were made for others: who is the last takes them away.
    fn directories(&self, key: &str, rule: Option<&Rule>) -> Result<Vec<PathBuf>> {
        let state = Path::new(STATES).join(key);
        let files = [Some(&state), rule.map(|rule| &rule.place.path), rule.and_then(|rule| rule.place.link.as_ref())];
        let missing = files.into_iter().flatten().flat_map(|file| file.ancestors().skip(1));
        let missing = missing.filter(|directory| !self.at(directory).exists()).map(PathBuf::from);
        let mut directories: Vec<PathBuf> = missing.collect();
        // Another target's state that is damaged is told when that target is looked at.
        directories.extend(self.kept()?.into_iter().filter_map(|(_, state)| state.ok()).flat_map(|s| s.directories));
        directories.sort_by_key(|directory| (std::cmp::Reverse(directory.components().count()), directory.clone()));
        directories.dedup();
        Ok(directories)
    }

    fn write(&self, target: &Target, kb: u64, rule: Option<&Rule>) -> Result<()> {
        let before = rule.map(|rule| self.files(rule.place.clone()).write(&rule.text)).transpose()?;
        ahead_undo::write_setting(&target.setting, &kb.to_string()).inspect_err(|_| {
            if let Some(before) = before {
                before.put_back();
            }
        })?;
        Ok(())
    }

    /// Compares the rule of a target with what is set.
    ///
    /// Errors: no rule can be about it; it has vanished.
    pub fn check(&self, target: &Target) -> Result<Checked> {
        let what = || format!("a rule for {}", target.name);
        // The rule may name it in another way than it would be named now: by another partition, say.
        let kept = self.of_window(target).unwrap_or_default();
        let mut kept = kept.iter().filter_map(|kept| kept.state.identity.as_ref());
        let written = kept.find(|identity| self.files(RulePlace::of(identity)).text().is_some());
        let own = target.identity.as_ref().map_err(|why| Error::unsupported(what(), why));
        let identity = written.map_or(own, Ok)?;
        let running_kb = target.current_kb()?;
        let place = RulePlace::of(identity);
        let (rule, files) = (self.at(&place.path), self.files(place));
        let text = files.text();
        let rule_kb = text.as_deref().and_then(Rule::kb);
        // What no rule can name was written by an older version: it is not as we would write it.
        let is_as_written =
            |kb: u64| Rule::new(identity, kb).is_ok_and(|rule| text.as_ref() == Some(&rule.text)) && files.is_linked();
        Ok(Checked { rule, rule_kb, running_kb, intact: rule_kb.is_some_and(is_as_written) })
    }

    /// Takes back what was set for a target, by whichever way its window was come to; nothing: nothing was.
    ///
    /// Errors: not root; something cannot be written or removed; the state is not ours.
    pub fn restore(&self, target: &Target) -> Result<Vec<Restored>> {
        let done = self.take_back_all(self.of_window(target)?);
        let done = done.into_iter().map(|(_, done)| done).collect::<Result<_>>()?;
        self.sweep()?;
        Ok(done)
    }

    /// Takes back everything that is kept, and says of each by its name how that went. Of what is not here now only the rules
    /// are taken away.
    ///
    /// Errors: what is kept cannot be listed.
    pub fn restore_all(&self) -> Result<Vec<(String, Result<Restored>)>> {
        let (mut kept, mut done) = (Vec::new(), Vec::new());
        for (key, state) in self.kept()? {
            match state {
                Ok(state) => kept.push(Kept { key, state }),
                Err(error) => done.push((key, Err(error))),
            }
        }
        done.extend(self.take_back_all(kept));
        self.sweep()?;
        Ok(done)
    }

    /// The last change of a window first, where there are several of it.
    fn take_back_all(&self, mut kept: Vec<Kept>) -> Vec<(String, Result<Restored>)> {
        let is_last = |kept: &Kept| match kept.place(&self.system) {
            Place::Here(setting) => bdi::read_kb(setting).is_ok_and(|now| kept.state.is_ours(now)),
            _ => false,
        };
        let mut done = Vec::new();
        while !kept.is_empty() {
            let next = kept.remove(kept.iter().position(is_last).unwrap_or(0));
            done.push((next.state.name.clone(), self.take_back(&next)));
        }
        done
    }

    fn take_back(&self, kept: &Kept) -> Result<Restored> {
        let state = &kept.state;
        if !machine::is_root() {
            return Err(ahead_sys::Error::needs_root(format!("taking back the window of {}", state.name)).into());
        }
        let place = kept.place(&self.system);
        let mut done = Restored { name: state.name.clone(), removed: self.take_rule(state)?, ..Restored::default() };
        match place {
            Place::Gone => done.left_alone = Some("it is not here now".into()),
            Place::Unknown(why) => {
                (done.left_alone, done.kept_kb) = (Some(why), Some(state.previous_kb));
                return Ok(done);
            }
            Place::Here(setting) => match bdi::read_kb(setting.clone())? {
                now if now == state.previous_kb => done.restored_kb = Some(now),
                now if state.is_ours(now) => {
                    ahead_undo::write_setting(&setting, &state.previous_kb.to_string())?;
                    done.restored_kb = Some(state.previous_kb);
                }
                now => done.left_alone = Some(format!("it was set to {now} KiB since")),
            },
        }
        self.forget(&kept.key, state)?;
        Ok(done)
    }

    /// Removes a rule of ours, and says what is gone.
    fn take_rule(&self, state: &Settings) -> Result<Vec<PathBuf>> {
        let place = state.identity.as_ref().map(RulePlace::of);
        place.map_or(Ok(Vec::new()), |place| self.files(place).remove())
    }

    fn files(&self, place: RulePlace) -> RuleFiles<'_> {
        RuleFiles::new(&self.system.kept, place)
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.system.kept.join(path)
    }
}

/// Of several states of one window, the one that was written first: what was there before it is none of ours.
fn first(kept: &[Kept]) -> Option<&Kept> {
    let is_first =
        |one: &&Kept| !kept.iter().any(|other| other.key != one.key && other.state.is_ours(one.state.previous_kb));
    kept.iter().find(is_first).or(kept.first())
}
