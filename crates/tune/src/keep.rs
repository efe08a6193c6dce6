//! Setting a window for good, with a way back.
//!
//! ```text
//!     /var/lib/ahead/tune/NAME.json      what was set before, written first; until it is taken back
//!     /etc/udev/rules.d/99-ahead-tune-NAME.rules, or a unit in /etc/systemd/system      what sets it again
//! ```
//!
//! What is taken back is only what we set: a window that somebody has changed since stays, and so does a rule that is not ours.
//! The earlier value is that of before the first of our changes, however many have followed.

use crate::identity::Identity;
use crate::rule::Rule;
use crate::{Error, Result, System, Target, find};
use ahead_kernel::{machine, undo};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Below the root of what is kept.
const STATES: &str = "var/lib/ahead/tune";
/// Longer than any state of ours: hostile beyond.
const LONGEST_BYTES: u64 = 1 << 16;

/// What was set, and what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The target's name at that time.
    pub name: String,
    /// What tells it from others, if anything does.
    pub identity: Option<Identity>,
    /// Its window before the first change, KiB.
    pub previous_kb: u64,
    /// What we set, KiB.
    pub applied_kb: u64,
    /// Directories that were made for it or for another target, below the root, the deepest first.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
}

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
}

/// Where it is kept.
#[derive(Clone, Debug, Default)]
pub struct Store {
    system: System,
}

fn key(target: &Target) -> String {
    let (major, minor) = target.number;
    target.identity.as_ref().map_or_else(|_| format!("bdi-{major}-{minor}"), Identity::file_name)
}

impl Store {
    /// In this system's directories.
    pub fn new(system: System) -> Store {
        Store { system }
    }

    /// Whether a rule could name the target, and somebody reads it.
    ///
    /// Errors: nothing tells it from others; there is no udev, or no systemd.
    pub fn may_persist(&self, target: &Target) -> Result<()> {
        let what = || format!("a rule for {}", target.name);
        let identity = target.identity.as_ref().map_err(|why| Error::unsupported(what(), why))?;
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
        Ok(())
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

    /// Sets a window, KiB, and keeps what was there before; with `persist` a rule sets it again after a restart. Gives the
    /// rule's file.
    ///
    /// Errors: not root; something cannot be written. Then everything is as it was.
    pub fn set(&self, target: &Target, kb: u64, persist: bool) -> Result<Option<PathBuf>> {
        if !machine::is_root() {
            return Err(ahead_kernel::Error::needs_root(format!("setting the window of {}", target.name)).into());
        }
        if persist {
            self.may_persist(target)?;
        }
        let (key, current_kb) = (key(target), target.current_kb()?);
        let before = self.state(&key)?;
        let rule = target.identity.as_ref().ok().filter(|_| persist).map(|identity| Rule::new(identity, kb));
        let state = Settings {
            name: target.name.clone(),
            identity: target.identity.clone().ok(),
            previous_kb: before.as_ref().map_or(current_kb, |state| state.previous_kb),
            applied_kb: kb,
            directories: self.directories(&key, rule.as_ref())?,
        };
        let done = self.write_state(&key, &state).and_then(|()| self.write(target, kb, rule));
        if done.is_err() {
            // The first error is the one that is told.
            let _ = match &before {
                Some(before) => self.write_state(&key, before),
                None => self.forget(&key, &state),
            };
        }
        done
    }

    /// Directories that are made for a target's files, and those that were made for others: who is the last takes them away.
    fn directories(&self, key: &str, rule: Option<&Rule>) -> Result<Vec<PathBuf>> {
        let state = Path::new(STATES).join(key);
        let files = [Some(&state), rule.map(|rule| &rule.path), rule.and_then(|rule| rule.link.as_ref())];
        let missing = files.into_iter().flatten().flat_map(|file| file.ancestors().skip(1));
        let missing = missing.filter(|directory| !self.at(directory).exists()).map(PathBuf::from);
        let mut directories: Vec<PathBuf> = missing.collect();
        for key in self.keys()? {
            // Another target's state that is damaged is told when that target is looked at.
            directories.extend(self.state(&key).ok().flatten().into_iter().flat_map(|state| state.directories));
        }
        directories.sort_by_key(|directory| (std::cmp::Reverse(directory.components().count()), directory.clone()));
        directories.dedup();
        Ok(directories)
    }

    fn write(&self, target: &Target, kb: u64, rule: Option<Rule>) -> Result<Option<PathBuf>> {
        if let Some(rule) = &rule {
            let earlier = fs::read_to_string(self.at(&rule.path)).ok();
            self.write_rule(rule).inspect_err(|_| drop(self.take_rule(rule)))?;
            undo::write_setting(&target.setting, &kb.to_string()).inspect_err(|_| {
                let _ = match earlier {
                    Some(text) => replace(&self.at(&rule.path), &text),
                    None => self.take_rule(rule).map(drop),
                };
            })?;
        } else {
            undo::write_setting(&target.setting, &kb.to_string())?;
        }
        Ok(rule.map(|rule| self.at(&rule.path)))
    }

    /// Compares the rule of a target with what is set.
    ///
    /// Errors: no rule can be about it; it has vanished.
    pub fn check(&self, target: &Target) -> Result<Checked> {
        let what = || format!("a rule for {}", target.name);
        let identity = target.identity.as_ref().map_err(|why| Error::unsupported(what(), why))?;
        let running_kb = target.current_kb()?;
        let path = self.at(&Rule::new(identity, running_kb).path);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let rule_kb = Rule::kb(&text);
        let intact = rule_kb.is_some_and(|kb| {
            let rule = Rule::new(identity, kb);
            text == rule.text && rule.link.is_none_or(|link| self.at(&link).exists())
        });
        Ok(Checked { rule: path, rule_kb, running_kb, intact })
    }

    /// Takes back what was set for a target. `None`: nothing was.
    ///
    /// Errors: not root; something cannot be written or removed; the state is not ours.
    pub fn restore(&self, target: &Target) -> Result<Option<Restored>> {
        let key = key(target);
        let Some(state) = self.state(&key)? else { return Ok(None) };
        self.take_back(&key, &state, Some(target)).map(Some)
    }

    /// Takes back everything that is kept. Of targets that are not here now only the rules are taken away.
    ///
    /// Errors: as in [`Store::restore`].
    pub fn restore_all(&self, targets: &[Target]) -> Result<Vec<Restored>> {
        let mut done = Vec::new();
        for own in self.keys()? {
            if let Some(state) = self.state(&own)? {
                let mut known: Vec<Target> = targets.to_vec();
                // One file system may be mounted in several places, of which only one is among the targets.
                if let Some(Identity::Mount { point, .. }) = &state.identity {
                    known.extend(find(&self.system, Path::new(point)).unwrap_or_default());
                }
                let target = known.iter().find(|target| key(target) == own);
                done.push(self.take_back(&own, &state, target)?);
            }
        }
        Ok(done)
    }

    fn take_back(&self, key: &str, state: &Settings, target: Option<&Target>) -> Result<Restored> {
        if !machine::is_root() {
            return Err(ahead_kernel::Error::needs_root(format!("taking back the window of {}", state.name)).into());
        }
        let mut done = Restored { name: state.name.clone(), ..Restored::default() };
        if let Some(identity) = &state.identity {
            done.removed = self.take_rule(&Rule::new(identity, state.applied_kb))?;
        }
        match target.map(|target| Ok::<_, Error>((target, target.current_kb()?))).transpose()? {
            None => done.left_alone = Some("it is not here now".into()),
            Some((target, now)) if now == state.applied_kb => {
                undo::write_setting(&target.setting, &state.previous_kb.to_string())?;
                done.restored_kb = Some(state.previous_kb);
            }
            Some((_, now)) if now == state.previous_kb => done.restored_kb = Some(now),
            Some((_, now)) => done.left_alone = Some(format!("it was set to {now} KiB since")),
        }
        self.forget(key, state)?;
        Ok(done)
    }

    /// Of whom something is kept.
    fn keys(&self) -> Result<Vec<String>> {
        let entries = match fs::read_dir(self.at(Path::new(STATES))) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::io("list what is kept", e))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut keys: Vec<String> = names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect();
        keys.sort();
        Ok(keys)
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.system.kept.join(path)
    }

    fn state_file(&self, key: &str) -> PathBuf {
        self.at(Path::new(STATES)).join(format!("{key}.json"))
    }

    fn state(&self, key: &str) -> Result<Option<Settings>> {
        let path = self.state_file(key);
        match fs::metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() <= LONGEST_BYTES => {}
            Ok(_) => return Err(Error::State { path, why: "it is too long".into() }),
            Err(e) => return Err(Error::io(format!("look at {}", path.display()), e)),
        }
        let text = fs::read(&path).map_err(|e| Error::io(format!("read {}", path.display()), e))?;
        serde_json::from_slice(&text).map(Some).map_err(|e| Error::State { path, why: e.to_string() })
    }

    fn write_state(&self, key: &str, state: &Settings) -> Result<()> {
        let text = serde_json::to_string_pretty(state).expect("plain values");
        replace(&self.state_file(key), &(text + "\n"))
    }

    /// Removes a state, and the directories that were made, as long as nobody has put anything into them.
    fn forget(&self, key: &str, state: &Settings) -> Result<()> {
        remove(&self.state_file(key))?;
        state.directories.iter().for_each(|directory| drop(fs::remove_dir(self.at(directory))));
        Ok(())
    }

    fn write_rule(&self, rule: &Rule) -> Result<()> {
        let path = self.at(&rule.path);
        if fs::read_to_string(&path).is_ok_and(|text| !Rule::is_ours(&text)) {
            return Err(Error::State { path, why: "it is not ours".into() });
        }
        replace(&path, &rule.text)?;
        let Some(link) = rule.link.as_ref().map(|link| self.at(link)) else { return Ok(()) };
        make_parent(&link)?;
        let name = path.file_name().expect("a rule has a name");
        match symlink(Path::new("..").join(name), &link) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io(format!("make {}", link.display()), e)),
            _ => Ok(()),
        }
    }

    /// Removes a rule of ours, and says what is gone.
    fn take_rule(&self, rule: &Rule) -> Result<Vec<PathBuf>> {
        let path = self.at(&rule.path);
        if !fs::read_to_string(&path).is_ok_and(|text| Rule::is_ours(&text)) {
            return Ok(Vec::new());
        }
        let link = rule.link.as_ref().map(|link| self.at(link));
        if let Some(link) = &link {
            remove(link)?;
        }
        remove(&path)?;
        Ok([Some(path), link].into_iter().flatten().collect())
    }
}

fn make_parent(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    Ok(fs::create_dir_all(directory).map_err(|e| unwritable(directory, e))?)
}

fn unwritable(directory: &Path, error: std::io::Error) -> ahead_kernel::Error {
    ahead_kernel::Error::unwritable("keeping a window", directory, error)
}

/// Renamed into place: half of a rule would be worse than none.
fn replace(path: &Path, text: &str) -> Result<()> {
    make_parent(path)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        // udev and systemd are root; people may want to read it.
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|failed| failed.error)
    };
    Ok(write().map_err(|e| unwritable(directory, e))?)
}

fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        done => done.map(|()| true).map_err(|e| Error::io(format!("remove {}", path.display()), e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Kind;

    struct Home {
        home: tempfile::TempDir,
        store: Store,
        target: Target,
    }

    /// A system below a directory, with a target whose window is 128. `None`: only root may set anything.
    fn home(identity: Identity) -> Option<Home> {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        for directory in ["etc/udev", "etc/systemd"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        let setting = home.path().join("read_ahead_kb");
        fs::write(&setting, "128\n").unwrap();
        let (number, kind, name) = ((8, 0), Kind::Disk, "sda".into());
        let target = Target {
            number,
            setting,
            kind,
            name,
            directory: None,
            device: None,
            identity: Ok(identity),
            notes: Vec::new(),
        };
        Some(Home { store: Store::new(System::keeping_in(home.path())), home, target })
    }

    fn serial() -> Identity {
        Identity::Property { name: "ID_SERIAL".into(), value: "x".into() }
    }

    fn mounted() -> Identity {
        Identity::Mount { point: "/mnt/x".into(), source: "s:/x".into(), fs_type: "nfs4".into() }
    }

    fn files(directory: &Path) -> usize {
        let entries = fs::read_dir(directory).unwrap().flatten();
        entries.map(|entry| if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { 1 }).sum()
    }

    /// Those that `home` has not made.
    fn directories(home: &Path) -> Vec<PathBuf> {
        let made = ["etc/udev/rules.d", "etc/systemd/system", "var"].map(|path| home.join(path));
        made.into_iter().filter(|path| path.exists()).collect()
    }

    /// Regression: directories that were made for the first of two targets stayed.
    #[test]
    fn the_last_target_takes_the_directories_away() {
        let Some(Home { home, store, target: one }) = home(serial()) else { return };
        let other = Identity::Property { name: "ID_SERIAL".into(), value: "y".into() };
        let other = Target { number: (8, 1), identity: Ok(other), ..one.clone() };
        store.set(&one, 256, true).unwrap();
        store.set(&other, 256, true).unwrap();
        store.restore(&one).unwrap();
        assert_eq!(directories(home.path()).len(), 2);
        store.restore(&other).unwrap();
        assert!(directories(home.path()).is_empty());
    }

    #[test]
    fn a_rule_that_nobody_reads_is_told() {
        let Some(Home { home, mut store, target }) = home(serial()) else { return };
        store.system.root = home.path().into();
        assert!(store.unread(&target).unwrap().contains("/run/udev/control"));
        fs::create_dir_all(home.path().join("run/udev/control")).unwrap();
        assert_eq!(store.unread(&target), None);
    }

    #[test]
    fn what_is_set_is_taken_back_to_what_was_there_first() {
        for identity in [serial(), mounted()] {
            let Some(Home { home, store, target }) = home(identity) else { return };
            store.set(&target, 256, false).unwrap();
            let rule = store.set(&target, 512, true).unwrap().unwrap();
            assert!(rule.starts_with(home.path()) && target.current_kb().unwrap() == 512);
            assert!(store.check(&target).unwrap().agrees());
            let done = store.restore(&target).unwrap().unwrap();
            assert_eq!((done.restored_kb, target.current_kb().unwrap()), (Some(128), 128));
            assert_eq!(files(home.path()), 1, "only the setting");
            assert!(directories(home.path()).is_empty(), "none but those that were there");
            assert_eq!(store.restore(&target).unwrap(), None);
        }
    }

    #[test]
    fn rule_and_running_value_are_told_apart() {
        let Some(Home { home: _home, store, target }) = home(serial()) else { return };
        let none = store.check(&target).unwrap();
        assert_eq!((none.rule_kb, none.agrees()), (None, false));
        let rule = store.set(&target, 512, true).unwrap().unwrap();
        fs::write(&target.setting, "128\n").unwrap();
        let checked = store.check(&target).unwrap();
        assert_eq!((checked.rule_kb, checked.running_kb, checked.agrees()), (Some(512), 128, false));
        fs::write(&target.setting, "512\n").unwrap();
        let text = fs::read_to_string(&rule).unwrap();
        fs::write(&rule, text.replace("ID_SERIAL", "ID_WWN")).unwrap();
        assert!(!store.check(&target).unwrap().intact, "somebody has changed it");
    }

    #[test]
    fn what_others_have_set_or_written_stays() {
        let Some(Home { home: _home, store, target }) = home(serial()) else { return };
        let rule = store.set(&target, 512, true).unwrap().unwrap();
        fs::write(&target.setting, "4096\n").unwrap();
        fs::write(&rule, "mine").unwrap();
        let done = store.restore(&target).unwrap().unwrap();
        assert_eq!((done.restored_kb, done.removed), (None, Vec::new()));
        assert!(done.left_alone.unwrap().contains("4096"));
        assert_eq!(fs::read_to_string(&rule).unwrap(), "mine");
        assert!(matches!(store.set(&target, 64, true), Err(Error::State { .. })));
        assert_eq!(target.current_kb().unwrap(), 4096);
        assert_eq!(store.restore(&target).unwrap(), None, "nothing was kept");
    }

    #[test]
    fn of_what_is_not_here_the_rule_goes() {
        let Some(Home { home, store, target }) = home(mounted()) else { return };
        store.set(&target, 512, true).unwrap();
        let done = store.restore_all(&[]).unwrap();
        assert_eq!((done.len(), done[0].removed.len(), done[0].restored_kb), (1, 2, None));
        assert_eq!(files(home.path()), 1);
        assert_eq!(store.restore_all(&[]).unwrap(), []);
    }

    #[test]
    fn what_nothing_names_is_set_but_not_kept() {
        let Some(Home { home, store, mut target }) = home(serial()) else { return };
        target.identity = Err("it has no serial number".into());
        let refused = store.set(&target, 512, true).unwrap_err();
        assert!(refused.to_string().contains("it has no serial number"), "{refused}");
        assert_eq!((target.current_kb().unwrap(), files(home.path())), (128, 1));
        assert_eq!(store.set(&target, 512, false).unwrap(), None);
        assert_eq!(store.restore(&target).unwrap().unwrap().restored_kb, Some(128));
    }

    #[test]
    fn a_state_that_is_damaged_is_an_error() {
        let Some(Home { home: _home, store, target }) = home(serial()) else { return };
        store.set(&target, 512, false).unwrap();
        for text in ["{", "[]", "{\"name\":1}", &"x".repeat(LONGEST_BYTES as usize + 1)] {
            fs::write(store.state_file(&key(&target)), text).unwrap();
            assert!(matches!(store.restore(&target), Err(Error::State { .. })));
        }
    }
}
