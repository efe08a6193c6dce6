//! The settings that a killed recording has changed.

use super::end::read_ahead_file;
use super::rig::{Home, Volume, ahead};
use ahead_undo::{Action, ProcessId};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SET_BACK: &str = "that a killed ahead had left changed";

/// A cold, precise recording of a program that has started, and ends with its input.
fn cold_recording(home: &Home) -> Child {
    let mut recorder = ahead()
        .args(["record", "--cold", "-o"])
        .arg(home.profile())
        .args(["--", "sh", "-c", "echo runs; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    recorder
}

#[test]
fn the_settings_of_a_killed_recording_can_be_restored() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    assert_ne!(before, "0\n");
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    assert_eq!(read_ahead(), "0\n");
    recorder.kill().unwrap();
    // The program ends because its input ends.
    recorder.wait().unwrap();
    assert!(!home.profile().exists());
    // The next measurement restores the settings, unless another process on this machine needs them at that time.
    let deadline = Instant::now() + Duration::from_secs(120);
    while read_ahead() != before {
        assert!(Instant::now() < deadline, "{} is not restored", read_ahead_file(&volume).display());
        let next = ahead().args(["record", "-o"]).arg(home.profile()).args(["--", "true"]).output().unwrap();
        assert!(next.status.success(), "{next:?}");
    }
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// The guardians of a process, found by their arguments.
pub fn guardians(of: u32) -> Vec<u32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
        words.windows(2).any(|pair| pair == [b"--after", of.to_string().as_bytes()])
    };
    processes.filter(is_one).collect()
}

/// Regression: after a SIGKILL read-ahead was off on every disk until the next start of `ahead`.
#[test]
fn a_guardian_restores_the_settings_of_a_killed_recording_at_once() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    assert_eq!((read_ahead().as_str(), guardians(pid).len()), ("0\n", 1));
    let guardian = guardians(pid)[0];
    // The guardian has a separate session, and no descriptors except the standard streams.
    let stat = fs::read_to_string(format!("/proc/{guardian}/stat")).unwrap();
    // Field 6, the fourth after the name in parentheses.
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, guardian.to_string());
    let open = fs::read_dir(format!("/proc/{guardian}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let open: Vec<PathBuf> = open.filter_map(|link| fs::read_link(link).ok()).collect();
    let is_known = |path: &PathBuf| {
        path == Path::new("/dev/null")
            || ["pipe:", "anon_inode:"].iter().any(|kind| path.to_str().unwrap().starts_with(kind))
    };
    assert!(open.iter().all(is_known), "{open:?}");
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let is_noted = || ahead_undo::notes().unwrap().iter().any(|(_, note)| note.owner.pid == pid);
    crate::crash::wait_until("the guardian's work", || read_ahead() == before && !is_noted());
    crate::crash::wait_until("the guardian's end", || guardians(pid).is_empty());
}

#[test]
fn a_guardian_ends_with_its_recording_and_restore_replaces_a_killed_guardian() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let read_ahead = || fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let before = read_ahead();
    let home = Home::new();
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    crate::crash::wait_until("the guardian's end", || guardians(pid).is_empty());
    let mut recorder = cold_recording(&home);
    let pid = recorder.id();
    for guardian in guardians(pid) {
        assert!(Command::new("kill").args(["-KILL", &guardian.to_string()]).status().unwrap().success());
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert_eq!(read_ahead(), before);
}

/// Regression: the waiting recording had searched for abandoned settings before the kill. It had also changed the size
/// of all faults of the machine while it waited.
#[test]
fn a_recording_that_waits_for_a_killed_one_restores_its_settings() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let before = fs::read_to_string(read_ahead_file(&volume)).unwrap();
    let (home, other) = (Home::new(), Home::new());
    let mut killed = cold_recording(&home);
    let mut waiting = ahead()
        .args(["record", "--cold", "--no-precise", "-o"])
        .arg(other.profile())
        .args(["--", "cat"])
        .arg(read_ahead_file(&volume))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(waiting.stderr.take().unwrap());
    let mut message = String::new();
    errors.read_line(&mut message).unwrap();
    assert!(message.contains("waiting for the end"), "{message}");
    let notes = ahead_undo::notes().unwrap();
    assert!(notes.iter().all(|(_, note)| note.owner.pid != waiting.id()), "{notes:?}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    errors.read_to_string(&mut message).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{message}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), before);
    assert!(ahead().arg("restore").output().unwrap().status.success());
}

/// Regression: the profile was marked precise although read-ahead had been switched on during the recording.
#[test]
fn settings_are_not_restored_during_a_cold_recording() {
    let _alone = crate::machine_lock::alone();
    let Some(volume) = Volume::new("ext4") else { return };
    let file = read_ahead_file(&volume);
    let read_ahead = || fs::read_to_string(&file).unwrap();
    let before = read_ahead();
    let (home, other) = (Home::new(), Home::new());
    let mut recorder = cold_recording(&home);
    let killed = ProcessId { pid: std::process::id(), start_ticks: 1 };
    let action = Action::SetFile { path: file.clone(), old: before.trim().into(), new: Some("0".into()) };
    ahead_undo::note_for(killed, action).unwrap().leave();
    let beside = ahead().args(["record", "-o"]).arg(other.profile()).args(["--", "true"]).output().unwrap();
    let (during, message) = (read_ahead(), String::from_utf8_lossy(&beside.stderr));
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    assert!(ahead().arg("restore").output().unwrap().status.success());
    assert!(beside.status.success() && !message.contains(SET_BACK), "{message}");
    assert_eq!((during.as_str(), read_ahead()), ("0\n", before));
}
