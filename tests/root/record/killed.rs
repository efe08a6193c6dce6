//! The settings that a killed recording has changed.

use super::rig::{Home, volume_alone};
use ahead_process::undo::{Action, ProcessId};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::process::guardians;
use ahead_tests::rig::wait::wait_within;

const SET_BACK: &str = "that a killed ahead had left changed";

/// A cold, precise recording of a program that has started, and ends with its input.
fn cold_recording(home: &Home) -> Running {
    let mut recorder = home.recorder(&["--cold", "--", "sh", "-c", "echo runs; exec cat"]).open_input().start();
    assert_eq!(recorder.line(), "runs");
    recorder
}

/// The read-ahead window of a volume's device, KiB.
fn read_ahead(volume: &Mounted) -> String {
    ahead_sys::block::read_setting(&volume.queue("read_ahead_kb")).unwrap()
}

#[test]
fn the_settings_of_a_killed_recording_can_be_restored() {
    let Some(volume) = volume_alone("ext4") else { return };
    let before = read_ahead(&volume);
    assert_ne!(before, "0");
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    assert_eq!(read_ahead(&volume), "0");
    // The program ends because its input ends.
    recorder.kill();
    assert!(!home.profile().exists());
    // The next measurement restores the settings, unless another process on this machine needs them at that time.
    wait_within(Duration::from_secs(120), "the setting", || {
        home.recorder(&["--", "true"]).ok();
        read_ahead(&volume) == before
    });
    ahead(["restore"]).ok();
}

/// Regression: after a SIGKILL read-ahead was off on every disk until the next start of `ahead`.
#[test]
fn a_guardian_restores_the_settings_of_a_killed_recording_at_once() {
    let Some(volume) = volume_alone("ext4") else { return };
    let before = read_ahead(&volume);
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.pid();
    assert_eq!((read_ahead(&volume).as_str(), guardians(pid).len()), ("0", 1));
    let guardian = guardians(pid)[0];
    // The guardian has a separate session, and no descriptors except the standard streams.
    assert_eq!(process::stat_field(guardian, 3), Some(guardian.to_string()));
    let open = process::open_descriptors(guardian);
    let is_known = |path: &PathBuf| {
        path == Path::new("/dev/null")
            || ["pipe:", "anon_inode:"].iter().any(|kind| path.to_str().unwrap().starts_with(kind))
    };
    assert!(open.iter().all(is_known), "{open:?}");
    recorder.kill();
    wait_until("the guardian's work", || read_ahead(&volume) == before && notes_of(pid).is_empty());
    wait_until("the guardian's end", || guardians(pid).is_empty());
}

#[test]
fn a_guardian_ends_with_its_recording_and_restore_replaces_a_killed_guardian() {
    let Some(volume) = volume_alone("ext4") else { return };
    let before = read_ahead(&volume);
    let home = Home::new();
    let recorder = cold_recording(&home);
    let pid = recorder.pid();
    recorder.ends_with(0);
    wait_until("the guardian's end", || guardians(pid).is_empty());
    let mut recorder = cold_recording(&home);
    guardians(recorder.pid()).into_iter().for_each(|guardian| process::signal(guardian, "KILL"));
    recorder.kill();
    ahead(["restore"]).ok();
    assert_eq!(read_ahead(&volume), before);
}

/// Regression: the waiting recording had searched for abandoned settings before the kill. It had also changed the size
/// of all faults of the machine while it waited.
#[test]
fn a_recording_that_waits_for_a_killed_one_restores_its_settings() {
    let Some(volume) = volume_alone("ext4") else { return };
    let (before, setting) = (read_ahead(&volume), volume.queue("read_ahead_kb"));
    let (home, other) = (Home::new(), Home::new());
    let mut killed = cold_recording(&home);
    let waiting = other.recorder(&["--cold", "--no-precise", "--", "cat", setting.to_str().unwrap()]);
    let mut waiting = waiting.start();
    // The process that it waits for is named.
    let awaited = format!("waiting for the end of another cold recording or measurement: process {} (", killed.pid());
    let message = waiting.says(&awaited);
    assert!(message.contains("ahead record ") && message.contains(" --cold "), "{message}");
    assert_eq!(notes_of(waiting.pid()), Vec::<String>::new());
    killed.kill();
    waiting.ends_with(0).out_is(&format!("{before}\n"));
    ahead(["restore"]).ok();
}

/// Regression: the profile was marked precise although read-ahead had been switched on during the recording.
#[test]
fn settings_are_not_restored_during_a_cold_recording() {
    let Some(volume) = volume_alone("ext4") else { return };
    let before = read_ahead(&volume);
    let (home, other) = (Home::new(), Home::new());
    let recorder = cold_recording(&home);
    let killed = ProcessId { pid: std::process::id(), start_ticks: 1 };
    let action = Action::SetFile { path: volume.queue("read_ahead_kb"), old: before.clone(), new: Some("0".into()) };
    ahead_process::undo::note_for(killed, action).unwrap().leave();
    let beside = other.recorder(&["--", "true"]).done();
    let during = read_ahead(&volume);
    recorder.ends_with(0);
    ahead(["restore"]).ok();
    beside.success().never_says(SET_BACK);
    assert_eq!((during.as_str(), read_ahead(&volume)), ("0", before));
}
