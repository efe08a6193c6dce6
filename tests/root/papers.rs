//! Papers against the real page cache: read times show the kernel's behaviour on a real ext2, and no disk remains
//! afterwards.

use crate::crash::wait_until;
use crate::machine_lock;
use ahead_sys::machine;
use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn live<'a>(lines: &'a Value, claim: &str) -> &'a str {
    let line = lines.as_array().unwrap().iter().find(|line| line["claim"].as_str().unwrap().contains(claim));
    line.unwrap()["live"].as_str().unwrap()
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(", ").map(|word| word.parse().unwrap()).collect()
}

/// Remaining objects of an `ahead papers` with this process id: disks, mounts, its directory.
fn left_of(pid: u32) -> Vec<String> {
    let (disk, directory) = (format!("papers-{pid}"), format!("ahead-papers-{pid}"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&disk)).map(str::to_owned).collect();
    left.extend(ahead_disk::find(&disk).ok().map(|disk| format!("disk {}", disk.name)));
    left.extend(Path::new("/dev/shm").join(&directory).exists().then_some(directory));
    let pieces = ahead_undo::notes().unwrap().into_iter().filter(|(_, note)| note.owner.pid == pid);
    left.extend(pieces.map(|(_, note)| note.action.to_string()));
    left
}

/// Regression: the disk's daemon stayed alive and kept the disk mounted in the directory to remove.
#[test]
fn after_a_kill_restore_detaches_the_disk_and_removes_its_directory() {
    if !machine::is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: an emulated disk needs root and FUSE");
        return;
    }
    let _alone = machine_lock::alone();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["papers", "roudier", "--live"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (pid, name) = (child.id(), format!("papers-{}", child.id()));
    let directory = PathBuf::from(format!("/dev/shm/ahead-papers-{pid}"));
    // The first file appears when the disk is complete; writing it takes seconds.
    wait_until("the disk", || directory.join("mnt/0").exists());
    let daemon = ahead_disk::find(&name).unwrap().daemon;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(daemon.is_alive() && !left_of(pid).is_empty(), "nothing was left to undo");
    let restored = Command::cargo_bin("ahead").unwrap().arg("restore").assert().success();
    let stdout = String::from_utf8_lossy(&restored.get_output().stdout).into_owned();
    assert!(stdout.contains(&format!("undone: process {}", daemon.pid)), "{stdout}");
    assert!(stdout.contains(&format!("undone: directory {}", directory.display())), "{stdout}");
    assert_eq!(left_of(pid), Vec::<String>::new(), "{stdout}");
    assert!(!daemon.is_alive());
    let none = predicates::str::contains("NOT undone").not();
    Command::cargo_bin("ahead").unwrap().arg("restore").assert().success().stdout(none);
}

#[test]
fn pelouins_drops_are_at_his_places() {
    if !machine::is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: an emulated disk needs root and FUSE");
        return;
    }
    // Another measuring program would change the times.
    let _alone = machine_lock::alone();
    let output =
        Command::cargo_bin("ahead").unwrap().args(["papers", "pelouin", "--live", "--json"]).assert().success();
    let lines: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let drops = numbers(live(&lines, "four large drops"));
    // If a hypervisor or other programs occupy the processors, the reader waits and read-ahead catches up: one of the
    // five positions may show no drop. Without read-ahead in windows of 31 pages there would be no drop at all.
    let late = [122_880, 249_856, 376_832, 503_808].into_iter().filter(|drop| drops.contains(drop)).count();
    let early = usize::from(numbers(live(&lines, "the main dip")).contains(&49_152));
    assert!(late + early >= 4, "{drops:?}, {lines:#}");
    let left = Command::cargo_bin("ahead").unwrap().args(["disk", "list", "--json"]).assert().success();
    let left: Value = serde_json::from_slice(&left.get_output().stdout).unwrap();
    let is_ours = |disk: &Value| disk["name"].as_str().unwrap_or_default().starts_with("papers-");
    assert!(!left.as_array().unwrap().iter().any(is_ours), "{left}");
    let homes = std::fs::read_dir("/dev/shm").unwrap().flatten();
    assert!(!homes.into_iter().any(|home| home.file_name().to_string_lossy().starts_with("ahead-papers-")));
}

/// Each statement of section 3 has a result on this kernel. Only statements that no other program's work can change are compared.
#[test]
fn opdenackers_system_calls_are_shown_on_this_kernel() {
    if !machine::is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: an emulated disk needs root and FUSE");
        return;
    }
    let _alone = machine_lock::alone();
    let output =
        Command::cargo_bin("ahead").unwrap().args(["papers", "opdenacker", "--live", "--json"]).assert().success();
    let lines: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    let verdict = |claim: &str| {
        let line = lines.as_array().unwrap().iter().find(|line| line["claim"].as_str().unwrap().ends_with(claim));
        line.unwrap()["live_verdict"].as_str().unwrap()
    };
    for claim in [
        "readahead reads whole pages",
        "POSIX_FADV_SEQUENTIAL",
        "POSIX_FADV_NORMAL",
        "POSIX_FADV_RANDOM",
        "POSIX_FADV_WILLNEED",
        "POSIX_FADV_WILLNEED does not block",
        "POSIX_FADV_DONTNEED",
        "fadvise is not binding",
        "madvise reads pages of a mapped file, or discards them",
    ] {
        assert_eq!(verdict(claim), "holds", "{claim}: {lines:#}");
    }
    for claim in [
        "readahead blocks until all data have been read",
        "the readahead system call is binding",
        "POSIX_FADV_NOREUSE",
        "demand paging loads each page only when it is needed",
    ] {
        assert_eq!(verdict(claim), "differs", "{claim}: {lines:#}");
    }
    assert!(live(&lines, "demand paging").starts_with("16 touched pages load "));
    assert!(live(&lines, "preloading entire files").starts_with("the start of this program loads "));
}
