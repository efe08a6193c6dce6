//! Sets a window permanently, and restores the earlier one.
//!
//! ```text
//!     /var/lib/ahead/tune/NAME.json      the earlier window, written before the change, until it is restored
//!     /etc/udev/rules.d/99-ahead-tune-NAME.rules, or a unit in /etc/systemd/system      sets the window after a restart
//! ```
//!
//! Only our own changes are undone: a window that another process has changed since stays, and so does a file that is not ours.
//! The earlier value is the value before our first change, or the value that another process has set between two of our
//! changes. A window has one state and one rule, whichever path leads to it ([`state`]). Callers hold the machine-wide
//! lock: without it, a window that another process has set temporarily would count as a permanent choice.

mod files;
mod state;
#[cfg(test)]
mod tests;

use crate::tune::identity::Identity;
use crate::tune::rule::{Rule, RulePlace};
use crate::tune::{Error, Result, System, Target};
use ahead_model::sorting;
use ahead_sys::{bdi, machine};
use files::{RuleFiles, unwritable};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::Serialize;
use state::{Kept, WindowPlace, key_by_number};
pub use state::{Settings, Window};
use std::path::{Path, PathBuf};

/// Directory of states, below the root.
const STATES: &str = "var/lib/ahead/tune";

/// A rule compared with the current window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    pub rule: PathBuf,
    /// Window in the rule, KiB; null: there is no rule of ours.
    pub rule_kb: Option<u64>,
    /// Current window, KiB.
    pub running_kb: u64,
    /// Whether the rule is unchanged and enabled.
    pub intact: bool,
}

impl Checked {
    /// Whether there is a rule with the current window.
    pub fn agrees(&self) -> bool {
        self.intact && self.rule_kb == Some(self.running_kb)
    }
}

/// The result of setting a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The rule that keeps the window.
    pub rule: Option<PathBuf>,
    /// Removed files of earlier rules for the same window.
    pub replaced: Vec<PathBuf>,
}

/// The result of restoring a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Name of the target.
    pub name: String,
    /// The restored window, KiB; null: it was not changed.
    pub restored_kb: Option<u64>,
    /// Removed files.
    pub removed: Vec<PathBuf>,
    /// Why the window was not changed.
    pub left_alone: Option<String>,
    /// An earlier window that could not be restored and stays recorded, KiB; null: none.
    pub kept_kb: Option<u64>,
}

/// The store of earlier windows and rules.
#[derive(Clone, Debug, Default)]
pub struct Store {
    system: System,
}

impl Store {
    /// The store in this system's directories.
    pub fn new(system: System) -> Store {
        Store { system }
    }

    /// Whether a window of the target could be set and kept. Checked before hours of measuring.
    ///
    /// Errors: not root; a directory cannot be written; with `persist`, as [`Store::may_persist`].
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

    /// Checks the nearest existing directory of a file for write permission.
    fn may_write(&self, file: &Path) -> Result<()> {
        let path = self.at(file);
        let Some(there) = path.ancestors().skip(1).find(|directory| directory.is_dir()) else { return Ok(()) };
        let may = accessat(CWD, there, Access::WRITE_OK, AtFlags::EACCESS);
        Ok(may.map_err(|e| unwritable(there, e.into()))?)
    }

    /// Whether a rule can name the target, and udev or systemd can read it.
    ///
    /// Errors: the target has no identity; another device here has its rule; there is no udev, or no systemd.
    pub fn may_persist(&self, target: &Target) -> Result<()> {
        let what = || format!("a rule for {}", target.name);
        let identity = target.identity.as_ref().map_err(|why| Error::unsupported(what(), why))?;
        Rule::new(identity, 0).map_err(|why| Error::unsupported(what(), why))?;
        let (reader, homes) = match identity {
            Identity::Mount { .. } | Identity::Btrfs { .. } => {
                ("systemd", &["etc/systemd", "usr/lib/systemd", "lib/systemd"][..])
            }
            _ => ("udev", &["etc/udev", "usr/lib/udev", "lib/udev"][..]),
        };
        if !homes.iter().any(|home| self.system.kept.join(home).is_dir()) {
            let why = format!(
                "there is no {reader} to read it; set the window at each start: sudo ahead tune … --kb … --apply"
            );
            return Err(Error::unsupported(what(), why));
        }
        match self.holder_of(identity, target)? {
            Some(other) => {
                let why = format!("{identity} also identifies another device ({other}); restore that first: --restore");
                Err(Error::unsupported(what(), why))
            }
            None => Ok(()),
        }
    }

    /// The name of another window whose rule has this identity.
    fn holder_of(&self, identity: &Identity, target: &Target) -> Result<Option<String>> {
        let key = identity.file_name();
        let Some(state) = self.state(&key)? else { return Ok(None) };
        let is_its = self.of_window(target)?.iter().any(|kept| kept.key == key);
        Ok((!is_its).then_some(state.name))
    }

    /// Why a rule for the target has no effect yet: udev or systemd is installed but does not run.
    pub fn unread(&self, target: &Target) -> Option<String> {
        let (reader, sign) = match target.identity.as_ref().ok()? {
            Identity::Mount { .. } | Identity::Btrfs { .. } => ("systemd", "run/systemd/system"),
            _ => ("udev", "run/udev/control"),
        };
        let is_running = self.system.root.join(sign).exists();
        (!is_running)
            .then(|| format!("{reader} does not run here (there is no /{sign}): the rule has no effect until it does"))
    }

    /// Sets a window, KiB, and records the earlier one. With `persist`, a rule sets the window after each restart, and replaces
    /// any earlier rule of ours for the same window.
    ///
    /// Errors: not root; a file cannot be written. Then nothing has changed.
    pub fn set(&self, target: &Target, kb: u64, persist: bool) -> Result<Set> {
        self.may_set(target, persist)?;
        let current_kb = target.current_kb()?;
        let earlier = self.of_window(target)?;
        let rule = target.identity.as_ref().ok().filter(|_| persist).map(|identity| Rule::new(identity, kb));
        let rule = rule.transpose().map_err(|why| Error::unsupported(format!("a rule for {}", target.name), why))?;
        let (key, state) = self.next_state(target, &earlier, current_kb, kb, rule.as_ref())?;
        let before = self.state(&key)?;
        self.write_state(&key, &state).and_then(|()| self.write(target, kb, rule.as_ref())).inspect_err(|_| {
            // Reports the first error, not one of the cleanup.
            let _ = match &before {
                Some(before) => self.write_state(&key, before),
                None => self.forget(&key, &state),
            };
        })?;
        let Some(rule) = rule else { return Ok(Set::default()) };
        let files = self.files(rule.place);
        let mut replaced = files.remove_other_links()?;
        for Kept { key, state } in earlier.into_iter().filter(|kept| kept.key != key) {
            replaced.extend(self.remove_rule(&state)?);
            self.forget(&key, &state)?;
        }
        Ok(Set { rule: Some(files.path()), replaced })
    }

    /// The state to record before a window is set, and its key.
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
            // The new rule replaces all others.
            Some(_) => first(earlier),
            None => earlier.iter().find(|kept| kept.state.is_ours(current_kb)).or(earlier.first()),
        };
        let key = match (own, rule, chosen) {
            (Some(identity), Some(_), _) => identity.file_name(),
            (_, _, Some(chosen)) => chosen.key.clone(),
            (Some(identity), ..) if self.holder_of(identity, target)?.is_none() => identity.file_name(),
            _ => key_by_number(target.number),
        };
        // If the identity belongs to another window's rule, it is not recorded: that rule would be removed with this window.
        let own = own.filter(|identity| identity.file_name() == key).cloned();
        let identity = chosen.filter(|_| rule.is_none()).map_or(own, |chosen| chosen.state.identity.clone());
        let is_ours = |kept: &Kept| kept.state.is_ours(current_kb) || kept.state.previous_kb == current_kb;
        // A value that another process has set since is the earlier value of this change.
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
            window: Window::of(&self.system, target),
            directories: self.directories(&key, rule)?,
        };
        Ok((key, state))
    }

    /// Directories created for a target's files, and those created for others: the last target to be restored removes them.
    fn directories(&self, key: &str, rule: Option<&Rule>) -> Result<Vec<PathBuf>> {
        let state = Path::new(STATES).join(key);
        let files = [Some(&state), rule.map(|rule| &rule.place.path), rule.and_then(|rule| rule.place.link.as_ref())];
        let missing = files.into_iter().flatten().flat_map(|file| file.ancestors().skip(1));
        let missing = missing.filter(|directory| !self.at(directory).exists()).map(PathBuf::from);
        let mut directories: Vec<PathBuf> = missing.collect();
        // A damaged state of another target is reported when that target is restored.
        directories.extend(self.kept()?.into_iter().filter_map(|(_, state)| state.ok()).flat_map(|s| s.directories));
        sorting::sort_by_key(&mut directories, |directory| {
            (std::cmp::Reverse(directory.components().count()), directory.clone())
        });
        directories.dedup();
        Ok(directories)
    }

    fn write(&self, target: &Target, kb: u64, rule: Option<&Rule>) -> Result<()> {
        let before = rule.map(|rule| self.files(rule.place.clone()).write(&rule.text)).transpose()?;
        ahead_process::undo::write_setting(&target.setting, &kb.to_string()).inspect_err(|_| {
            if let Some(before) = before {
                before.put_back();
            }
        })?;
        Ok(())
    }

    /// Compares the rule of a target with its current window.
    ///
    /// Errors: no rule can name the target; the target has vanished.
    pub fn check(&self, target: &Target) -> Result<Checked> {
        let what = || format!("a rule for {}", target.name);
        // The rule may name the target in another way than now, for example by another partition.
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
        let is_as_written =
            |kb: u64| Rule::new(identity, kb).is_ok_and(|rule| text.as_ref() == Some(&rule.text)) && files.is_linked();
        Ok(Checked { rule, rule_kb, running_kb, intact: rule_kb.is_some_and(is_as_written) })
    }

    /// Restores the earlier window of a target, whichever path leads to it. Empty: nothing was recorded.
    ///
    /// Errors: not root; a file cannot be written or removed; the state is invalid.
    pub fn restore(&self, target: &Target) -> Result<Vec<Restored>> {
        let done = self.restore_each(self.of_window(target)?);
        let done = done.into_iter().map(|(_, done)| done).collect::<Result<_>>()?;
        self.remove_partial_files()?;
        Ok(done)
    }

    /// Restores every recorded window, and returns the result of each by name. For targets that do not exist now, only the
    /// rules are removed.
    ///
    /// Errors: the states cannot be listed.
    pub fn restore_all(&self) -> Result<Vec<(String, Result<Restored>)>> {
        let (mut kept, mut done) = (Vec::new(), Vec::new());
        for (key, state) in self.kept()? {
            match state {
                Ok(state) => kept.push(Kept { key, state }),
                Err(error) => done.push((key, Err(error))),
            }
        }
        done.extend(self.restore_each(kept));
        self.remove_partial_files()?;
        Ok(done)
    }

    /// Restores the last change of a window first, if there are several.
    fn restore_each(&self, mut kept: Vec<Kept>) -> Vec<(String, Result<Restored>)> {
        let is_last = |kept: &Kept| match kept.place(&self.system) {
            WindowPlace::Here(setting) => bdi::read_kb(setting).is_ok_and(|now| kept.state.is_ours(now)),
            _ => false,
        };
        let mut done = Vec::new();
        while !kept.is_empty() {
            let next = kept.remove(kept.iter().position(is_last).unwrap_or(0));
            done.push((next.state.name.clone(), self.restore_one(&next)));
        }
        done
    }

    fn restore_one(&self, kept: &Kept) -> Result<Restored> {
        let state = &kept.state;
        if !machine::is_root() {
            return Err(ahead_sys::Error::needs_root(format!("restoring the window of {}", state.name)).into());
        }
        let place = kept.place(&self.system);
        let mut done = Restored { name: state.name.clone(), removed: self.remove_rule(state)?, ..Restored::default() };
        match place {
            WindowPlace::Gone => done.left_alone = Some("the device is not present".into()),
            WindowPlace::Unknown(why) => {
                (done.left_alone, done.kept_kb) = (Some(why), Some(state.previous_kb));
                return Ok(done);
            }
            WindowPlace::Here(setting) => match bdi::read_kb(setting.clone())? {
                now if now == state.previous_kb => done.restored_kb = Some(now),
                now if state.is_ours(now) => {
                    ahead_process::undo::write_setting(&setting, &state.previous_kb.to_string())?;
                    done.restored_kb = Some(state.previous_kb);
                }
                now => done.left_alone = Some(format!("its value is {now} KiB now")),
            },
        }
        self.forget(&kept.key, state)?;
        Ok(done)
    }

    /// Removes our rule of a state, and returns the removed files.
    fn remove_rule(&self, state: &Settings) -> Result<Vec<PathBuf>> {
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

/// The first of several states of one window: its earlier value is not one of ours.
fn first(kept: &[Kept]) -> Option<&Kept> {
    let is_first =
        |one: &&Kept| !kept.iter().any(|other| other.key != one.key && other.state.is_ours(one.state.previous_kb));
    kept.iter().find(is_first).or(kept.first())
}
