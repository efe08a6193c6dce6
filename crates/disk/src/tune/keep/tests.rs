//! Tests on a directory in place of a system.

use super::files::temporary;
use super::state::LONGEST_BYTES;
use super::*;
use crate::tune::system::testing::{Disk, machine as system_of};
use crate::tune::target::Kind;
use ahead_model::DeviceNumber;
use std::fs;
use std::os::unix::fs::symlink;

struct Home {
    home: tempfile::TempDir,
    store: Store,
    target: Target,
}

const DISKS: [Disk; 2] =
    [("sda", (8, 0), &[("diskseq", "7")], "E:ID_SERIAL=x\n"), ("sdb", (8, 16), &[("diskseq", "8")], "E:ID_SERIAL=y\n")];
/// Device number of the mount.
const NUMBER: DeviceNumber = DeviceNumber::new(0, 50);

/// A system below a directory, with a target whose window is 128. `None`: setting a window needs root.
fn home(identity: Identity) -> Option<Home> {
    if !machine::is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let (home, system) = system_of(&DISKS);
    for directory in ["etc/udev", "etc/systemd", "sys/class/bdi/0:50"] {
        fs::create_dir_all(home.path().join(directory)).unwrap();
    }
    fs::write(home.path().join("sys/class/bdi/0:50/read_ahead_kb"), "128\n").unwrap();
    let is_mount = matches!(identity, Identity::Mount { .. });
    let (number, kind, name) =
        if is_mount { (NUMBER, Kind::Network, "s:/x") } else { (DeviceNumber::new(8, 0), Kind::Disk, "sda") };
    let target = Target { kind, name: name.into(), identity: Ok(identity), ..of_number(home.path(), number) };
    let home = Home { store: Store::new(system), home, target };
    home.mount(if is_mount { &["/mnt/x"] } else { &[] }, "s:/x");
    Some(home)
}

fn of_number(home: &Path, number: DeviceNumber) -> Target {
    let setting = home.join(format!("sys/class/bdi/{number}/read_ahead_kb"));
    let (name, identity) = ("sda".into(), Err("nothing names it".into()));
    Target { number, setting, kind: Kind::Disk, name, directory: None, device: None, identity, notes: Vec::new() }
}

/// Regression: with `--root TREE` rules and states were written, and directories removed, where links in the tree lead to.
#[test]
fn links_below_the_root_lead_to_no_file_outside() {
    let Some(home) = home(Identity::Property { name: "ID_SERIAL".into(), value: "x".into() }) else { return };
    let host = tempfile::tempdir().unwrap();
    for directory in ["rules.d", "lib/ahead/tune"] {
        fs::create_dir_all(host.path().join(directory)).unwrap();
    }
    symlink(host.path().join("rules.d"), home.home.path().join("etc/udev/rules.d")).unwrap();
    symlink(host.path().join("lib"), home.home.path().join("var")).unwrap();
    home.store.set(&home.target, 512, true).unwrap();
    assert_eq!((files(host.path()), home.now()), (0, 512));
    home.store.restore_all().unwrap();
    assert!(host.path().join("lib/ahead/tune").is_dir(), "a directory of the host was removed");
    assert_eq!((files(host.path()), home.now()), (0, 128));
}

/// Regression: a state in a tree of another user made `--restore --root TREE` write to any file that holds a number.
#[test]
fn state_that_names_another_file_than_a_window_changes_nothing() {
    let Some(home) = home(Identity::Property { name: "ID_SERIAL".into(), value: "x".into() }) else { return };
    home.store.set(&home.target, 512, false).unwrap();
    let victim = home.home.path().join("victim/read_ahead_kb");
    fs::create_dir(victim.parent().unwrap()).unwrap();
    fs::write(&victim, "512\n").unwrap();
    let state = fs::read_dir(home.home.path().join(STATES)).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&state).unwrap();
    let named = text.replace(home.target.setting.to_str().unwrap(), victim.to_str().unwrap());
    assert_ne!(named, text);
    fs::write(&state, named).unwrap();
    home.store.restore_all().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "512\n");
}

impl Home {
    /// Replaces the mount table.
    fn mount(&self, points: &[&str], source: &str) {
        let line = |(id, point): (usize, &&str)| format!("{} 1 0:50 / {point} rw - nfs4 {source} rw\n", id + 2);
        let table: String = points.iter().enumerate().map(line).collect();
        fs::write(self.home.path().join("proc/self/mountinfo"), table).unwrap();
    }

    /// Sets the window, as another process would.
    fn set_by_hand(&self, kb: u64) {
        fs::write(&self.target.setting, format!("{kb}\n")).unwrap();
    }

    fn now(&self) -> u64 {
        self.target.current_kb().unwrap()
    }

    /// The number of recorded files.
    fn kept(&self) -> usize {
        files(&self.home.path().join("etc")) + files(&self.home.path().join("var"))
    }

    /// The same window with another identity.
    fn also(&self, uuid: &str) -> Target {
        let identity = Identity::FileSystem { uuid: uuid.into(), on_partition: true };
        Target { identity: Ok(identity), ..self.target.clone() }
    }

    /// Restores the only recorded state of the target.
    fn restore(&self) -> Restored {
        let mut done = self.store.restore(&self.target).unwrap();
        assert_eq!(done.len(), 1, "{done:?}");
        done.remove(0)
    }

    fn restart(&self) {
        fs::write(self.home.path().join("proc/sys/kernel/random/boot_id"), "next-start\n").unwrap();
        self.set_by_hand(128);
    }
}

fn serial() -> Identity {
    Identity::Property { name: "ID_SERIAL".into(), value: "x".into() }
}

fn mounted() -> Identity {
    Identity::Mount { point: "/mnt/x".into(), source: "s:/x".into(), fs_type: "nfs4".into() }
}

fn files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| if entry.file_type().unwrap().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

/// The directories that `home` has not created.
fn directories(home: &Path) -> Vec<PathBuf> {
    let made = ["etc/udev/rules.d", "etc/systemd/system", "var"].map(|path| home.join(path));
    made.into_iter().filter(|path| path.exists()).collect()
}

/// Regression: directories that were created for the first of two targets stayed.
#[test]
fn restoring_the_last_target_removes_the_directories() {
    let Some(Home { home, store, target: one }) = home(serial()) else { return };
    let other = Identity::Property { name: "ID_SERIAL".into(), value: "y".into() };
    let other = Target { identity: Ok(other), ..of_number(home.path(), DeviceNumber::new(8, 16)) };
    store.set(&one, 256, true).unwrap();
    store.set(&other, 256, true).unwrap();
    store.restore(&one).unwrap();
    assert_eq!(directories(home.path()).len(), 2);
    store.restore(&other).unwrap();
    assert!(directories(home.path()).is_empty());
}

#[test]
fn rule_without_a_running_reader_is_reported() {
    let Some(Home { home, store, target }) = home(serial()) else { return };
    assert!(store.unread(&target).unwrap().contains("/run/udev/control"));
    fs::create_dir_all(home.path().join("run/udev/control")).unwrap();
    assert_eq!(store.unread(&target), None);
}

#[test]
fn restore_sets_the_first_earlier_window() {
    for identity in [serial(), mounted()] {
        let Some(home) = home(identity) else { return };
        home.store.set(&home.target, 256, false).unwrap();
        let rule = home.store.set(&home.target, 512, true).unwrap().rule.unwrap();
        assert!(rule.starts_with(home.home.path()) && home.now() == 512);
        assert!(home.store.check(&home.target).unwrap().agrees());
        assert_eq!((home.restore().restored_kb, home.now()), (Some(128), 128));
        assert_eq!(home.kept(), 0);
        assert!(directories(home.home.path()).is_empty(), "only those that existed before");
        assert_eq!(home.store.restore(&home.target).unwrap(), []);
    }
}

#[test]
fn check_compares_rule_and_current_window() {
    let Some(home) = home(serial()) else { return };
    let check = || home.store.check(&home.target).unwrap();
    assert_eq!((check().rule_kb, check().agrees()), (None, false));
    let rule = home.store.set(&home.target, 512, true).unwrap().rule.unwrap();
    home.set_by_hand(128);
    let checked = check();
    assert_eq!((checked.rule_kb, checked.running_kb, checked.agrees()), (Some(512), 128, false));
    home.set_by_hand(512);
    let text = fs::read_to_string(&rule).unwrap();
    fs::write(&rule, text.replace("ID_SERIAL", "ID_WWN")).unwrap();
    assert!(!check().intact, "the rule was changed");
}

#[test]
fn changes_of_other_processes_are_kept() {
    let Some(home) = home(serial()) else { return };
    let rule = home.store.set(&home.target, 512, true).unwrap().rule.unwrap();
    home.set_by_hand(4096);
    fs::write(&rule, "mine").unwrap();
    let done = home.restore();
    assert_eq!((done.restored_kb, done.removed), (None, Vec::new()));
    assert!(done.left_alone.unwrap().contains("4096"));
    assert_eq!(fs::read_to_string(&rule).unwrap(), "mine");
    assert!(matches!(home.store.set(&home.target, 64, true), Err(Error::State { .. })));
    assert_eq!(home.now(), 4096);
    assert_eq!(home.store.restore(&home.target).unwrap(), [], "nothing was recorded");
}

/// Regression: a value that another process had set between two changes was lost.
#[test]
fn value_set_by_another_process_between_changes_is_restored() {
    let Some(home) = home(serial()) else { return };
    home.store.set(&home.target, 512, false).unwrap();
    home.set_by_hand(4096);
    home.store.set(&home.target, 1024, false).unwrap();
    assert_eq!((home.restore().restored_kb, home.now()), (Some(4096), 4096));
}

/// Regression: if the process was killed between recording and setting, its earlier window counted as another
/// process's.
#[test]
fn interrupted_change_is_restored() {
    let Some(home) = home(serial()) else { return };
    home.store.set(&home.target, 512, false).unwrap();
    home.store.set(&home.target, 1024, false).unwrap();
    home.set_by_hand(512);
    assert_eq!((home.restore().restored_kb, home.now()), (Some(128), 128));
}

/// Regression: partial files of a killed process stayed.
#[test]
fn partial_files_of_a_killed_process_are_removed() {
    let Some(home) = home(serial()) else { return };
    let rule = home.store.set(&home.target, 512, true).unwrap().rule.unwrap();
    let state = home.store.state_file(&serial().file_name());
    for half in [temporary(&rule), temporary(&state)] {
        fs::write(half, "half").unwrap();
    }
    home.restore();
    assert_eq!((home.kept(), directories(home.home.path()).len()), (0, 0));
    // Killed before its first state was complete, or begun. (Regression: restoring by target left the files.)
    let by_name = |home: &Home| home.store.restore(&home.target).unwrap().len();
    let all = |home: &Home| home.store.restore_all().unwrap().len();
    let ways: [fn(&Home) -> usize; 2] = [by_name, all];
    for (restored, is_begun) in ways.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        fs::create_dir_all(state.parent().unwrap()).unwrap();
        if is_begun {
            fs::write(temporary(&state), "half").unwrap();
        }
        assert_eq!((restored(&home), files(&home.home.path().join("var"))), (0, 0));
        assert!(!state.parent().unwrap().exists());
    }
}

/// Regression: two rules of one window contradicted each other, and the first window was lost.
#[test]
fn window_has_one_rule() {
    let Some(home) = home(serial()) else { return };
    let (one, other) = (home.also("1-1"), home.also("2-2"));
    let first = home.store.set(&one, 512, true).unwrap().rule.unwrap();
    let set = home.store.set(&other, 1024, true).unwrap();
    assert_eq!((set.replaced, first.exists(), home.kept()), (vec![first], false, 2));
    // Reached by the other identity, its rule is the same.
    assert!(home.store.check(&one).unwrap().agrees());
    assert_eq!(home.store.restore(&one).unwrap()[0].restored_kb, Some(128));
    assert_eq!((home.now(), home.kept()), (128, 0));
    assert_eq!(home.store.restore(&other).unwrap(), []);
}

/// Regression: a window that was set by its device was not found by a later mount from the device, nor the reverse.
#[test]
fn window_is_found_by_every_identity() {
    let Some(home) = home(serial()) else { return };
    let unnamed = of_number(home.home.path(), DeviceNumber::new(8, 0));
    home.store.set(&unnamed, 512, false).unwrap();
    assert_eq!((home.restore().restored_kb, home.now()), (Some(128), 128));
    let mounted = home.also("1-1");
    home.store.set(&mounted, 512, true).unwrap();
    assert_eq!(home.store.restore(&unnamed).unwrap()[0].restored_kb, Some(128));
    home.store.set(&mounted, 512, true).unwrap();
    let done = home.store.restore_all().unwrap();
    assert_eq!(done[0].1.as_ref().unwrap().restored_kb, Some(128), "nothing is mounted from it");
    assert_eq!((home.now(), home.kept()), (128, 0));
}

/// Regression: with one file system at two mount points, the second state recorded the window of the first change as the
/// earlier one.
#[test]
fn file_system_at_two_mount_points_has_one_window() {
    let Some(home) = home(mounted()) else { return };
    home.mount(&["/mnt/x", "/mnt/y"], "s:/x");
    let second = Identity::Mount { point: "/mnt/y".into(), source: "s:/x".into(), fs_type: "nfs4".into() };
    let second = Target { identity: Ok(second), ..home.target.clone() };
    home.store.set(&home.target, 512, false).unwrap();
    home.store.set(&second, 1024, false).unwrap();
    assert_eq!((home.restore().restored_kb, home.now()), (Some(128), 128));
    assert_eq!(home.store.restore(&second).unwrap(), []);
}

/// Regression: a device that got a reused number got the window of the device before it.
#[test]
fn reused_device_number_is_another_window() {
    let Some(home) = home(serial()) else { return };
    let unnamed = of_number(home.home.path(), DeviceNumber::new(8, 0));
    home.store.set(&unnamed, 512, false).unwrap();
    fs::write(home.home.path().join("sys/block/sda/diskseq"), "9\n").unwrap();
    assert_eq!(home.store.restore(&unnamed).unwrap(), [], "another disk");
    assert_eq!(home.store.restore_all().unwrap()[0].1.as_ref().unwrap().restored_kb, None);
    home.set_by_hand(128);
    home.store.set(&unnamed, 512, false).unwrap();
    home.restart();
    home.set_by_hand(512);
    assert_eq!(home.store.restore(&unnamed).unwrap(), [], "another boot");
    let Some(home) = self::home(mounted()) else { return };
    home.store.set(&home.target, 512, false).unwrap();
    home.mount(&["/mnt/y"], "s:/other");
    let other = Target { name: "s:/other".into(), identity: Err("x".into()), ..home.target.clone() };
    assert_eq!(home.store.restore(&other).unwrap(), [], "another mount");
}

/// After a restart the rule has set the window.
#[test]
fn window_set_by_a_rule_is_restored() {
    for identity in [serial(), mounted()] {
        let Some(home) = home(identity) else { return };
        home.store.set(&home.target, 512, true).unwrap();
        home.restart();
        home.set_by_hand(512);
        assert_eq!((home.restore().restored_kb, home.now(), home.kept()), (Some(128), 128, 0));
    }
}

#[test]
fn rule_of_a_missing_device_is_removed() {
    let Some(home) = home(mounted()) else { return };
    home.store.set(&home.target, 512, true).unwrap();
    home.mount(&[], "");
    fs::remove_file(&home.target.setting).unwrap();
    let done = home.store.restore_all().unwrap();
    let restored = done[0].1.as_ref().unwrap();
    assert_eq!((done.len(), restored.removed.len(), restored.restored_kb), (1, 2, None));
    assert_eq!(home.kept(), 0);
    assert!(home.store.restore_all().unwrap().is_empty());
}

/// Regression: a window that could not be restored was forgotten.
#[test]
fn earlier_window_of_a_hidden_mount_stays_recorded() {
    let Some(home) = home(mounted()) else { return };
    home.store.set(&home.target, 512, true).unwrap();
    home.mount(&[], "");
    let done = home.store.restore_all().unwrap().remove(0).1.unwrap();
    assert_eq!((done.restored_kb, done.kept_kb, done.removed.len()), (None, Some(128), 2));
    home.mount(&["/mnt/x"], "s:/x");
    assert_eq!((home.restore().restored_kb, home.now(), home.kept()), (Some(128), 128, 0));
}

/// Regression: a copy of a file system took over the state of the first one.
#[test]
fn identity_of_another_device_is_refused() {
    let Some(home) = home(serial()) else { return };
    let one = home.also("1-1");
    home.store.set(&one, 512, true).unwrap();
    let copy = Target { identity: one.identity.clone(), ..of_number(home.home.path(), DeviceNumber::new(8, 16)) };
    let refused = home.store.set(&copy, 1024, true).unwrap_err().to_string();
    assert!(refused.contains("1-1 also identifies another device"), "{refused}");
    assert_eq!(home.store.restore(&copy).unwrap(), []);
    let set = || home.store.set(&copy, 1024, false).unwrap();
    set();
    assert_eq!(home.store.restore(&copy).unwrap()[0].restored_kb, Some(128));
    assert!(home.store.check(&home.target).unwrap().agrees(), "the rule of the first one stays");
    set();
    assert_eq!((home.restore().restored_kb, copy.current_kb().unwrap()), (Some(128), 1024));
    assert_eq!(home.store.restore(&copy).unwrap()[0].restored_kb, Some(128));
}

/// Regression: a rule that could not be written destroyed the earlier one.
#[test]
fn failed_write_changes_nothing() {
    for identity in [serial(), mounted()] {
        let Some(home) = home(identity) else { return };
        let rule = home.store.set(&home.target, 512, true).unwrap().rule.unwrap();
        let (text, kept) = (fs::read_to_string(&rule).unwrap(), home.kept());
        // A directory at the temporary path makes the write fail for root, too.
        fs::create_dir(temporary(&rule)).unwrap();
        home.store.set(&home.target, 1024, true).unwrap_err();
        fs::remove_dir(temporary(&rule)).unwrap();
        assert_eq!((fs::read_to_string(&rule).unwrap(), home.now(), home.kept()), (text.clone(), 512, kept));
        let broken = Target { setting: home.home.path().join("no/such"), ..home.target.clone() };
        home.store.set(&broken, 1024, true).unwrap_err();
        assert_eq!((fs::read_to_string(&rule).unwrap(), home.kept()), (text, kept));
        assert!(home.store.check(&home.target).unwrap().agrees());
    }
}

fn link_of(home: &Home, point: &str) -> PathBuf {
    let name = format!("ahead-tune-{}.service", home.target.identity.as_ref().unwrap().file_name());
    home.home.path().join(format!("etc/systemd/system/{point}.mount.wants")).join(name)
}

/// Regression: a link to another file counted as one that enables the unit.
#[test]
fn wrong_link_is_repaired() {
    let Some(home) = home(mounted()) else { return };
    home.store.set(&home.target, 512, true).unwrap();
    let link = link_of(&home, "mnt-x");
    fs::remove_file(&link).unwrap();
    symlink("/no/such", &link).unwrap();
    assert!(!home.store.check(&home.target).unwrap().intact);
    home.store.set(&home.target, 512, true).unwrap();
    assert!(link.exists() && home.store.check(&home.target).unwrap().agrees());
}

/// Regression: after a change of the btrfs' mount point, the earlier link stayed.
#[test]
fn btrfs_has_one_link_wherever_it_is_mounted() {
    let at = |point: &str| Identity::Btrfs { uuid: "12-34".into(), point: point.into() };
    let Some(mut home) = home(at("/a")) else { return };
    let directory = home.home.path().join("sys/fs/btrfs/12-34/bdi");
    fs::create_dir_all(&directory).unwrap();
    (home.target.number, home.target.setting) = (DeviceNumber::new(0, 43), directory.join("read_ahead_kb"));
    home.set_by_hand(128);
    home.store.set(&home.target, 512, true).unwrap();
    let first = link_of(&home, "a");
    home.target.identity = Ok(at("/b"));
    let set = home.store.set(&home.target, 512, true).unwrap();
    assert_eq!(set.replaced, std::slice::from_ref(&first));
    assert!(!first.is_symlink() && link_of(&home, "b").exists());
    symlink("../x", &first).unwrap();
    home.restore();
    assert_eq!((home.kept(), directories(home.home.path()).len()), (0, 0));
}

#[test]
fn target_without_identity_is_set_but_not_persisted() {
    let Some(mut home) = home(serial()) else { return };
    home.target.identity = Err("it has no serial number".into());
    let refused = home.store.set(&home.target, 512, true).unwrap_err();
    assert!(refused.to_string().contains("it has no serial number"), "{refused}");
    assert_eq!((home.now(), home.kept()), (128, 0));
    assert_eq!(home.store.set(&home.target, 512, false).unwrap(), Set::default());
    assert_eq!(home.restore().restored_kb, Some(128));
}

#[test]
fn damaged_state_is_an_error() {
    let Some(home) = home(serial()) else { return };
    home.store.set(&home.target, 512, false).unwrap();
    for text in ["{", "[]", "{\"name\":1}", &"x".repeat(LONGEST_BYTES as usize + 1)] {
        fs::write(home.store.state_file(&serial().file_name()), text).unwrap();
        assert!(matches!(home.store.restore(&home.target), Err(Error::State { .. })));
    }
}

/// Regression: one damaged state prevented that the others were restored.
#[test]
fn damaged_state_does_not_prevent_other_restores() {
    let Some(home) = home(serial()) else { return };
    home.store.set(&home.target, 512, true).unwrap();
    fs::write(home.store.state_file("0-damaged"), "{").unwrap();
    let done = home.store.restore_all().unwrap();
    assert!(done[0].1.is_err() && done[1].1.as_ref().unwrap().restored_kb == Some(128), "{done:?}");
    assert_eq!((home.now(), home.kept()), (128, 1));
}

/// Regression: a line feed in the type of a mount became a line of its unit, and root executed it.
#[test]
fn mount_that_no_unit_can_name_is_refused() {
    let Some(home) = home(mounted()) else { return };
    let fs_type = "fuse.x\nExecStartPre=/bin/false";
    let hostile = Identity::Mount { point: "/mnt/x".into(), source: "s:/x".into(), fs_type: fs_type.into() };
    let target = Target { identity: Ok(hostile), ..home.target.clone() };
    let refused = home.store.set(&target, 512, true).unwrap_err();
    assert!(matches!(&refused, Error::Kernel(own) if own.is_unavailable()), "{refused}");
    assert_eq!((home.now(), home.kept()), (128, 0));
}
