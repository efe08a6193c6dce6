//! Jobs on real file systems: policies and kernel read the same, the device's counts are right, and nothing is left whoever
//! ends it and when.

use crate::crash::wait_until;
use crate::machine_lock;
use crate::mounted::Mounted;
use ahead_kernel::{bdi, machine, undo};
use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn bench(arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.arg("bench").args(arguments).arg("--directory").arg(directory).timeout(Duration::from_secs(300));
    command
}

fn rows(arguments: &[&str], directory: &Path) -> Vec<Value> {
    let output = bench(arguments, directory).arg("--json").assert().success();
    let whole: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    whole["rows"].as_array().unwrap().clone()
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))
}

/// What a file system has of its own.
fn is_left(directory: &Path) -> bool {
    let mut names = fs::read_dir(directory).unwrap().flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("ahead-bench-"))
}

/// The policy of this kernel's name makes the device do what the kernel makes it do.
#[test]
fn the_kernel_s_policy_asks_the_device_for_what_the_kernel_does() {
    for fs_type in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::alone(fs_type) else { return };
        let policies = ["--policy", "kernel", "--policy", "linux-6.18", "--runs", "1", "--size", "8M"];
        for job in [&["streams", "--streams", "1,2"][..], &["random", "--count", "200"], &["mmapit"]] {
            for pair in rows(&[job, &policies[..]].concat(), &mounted.root).chunks(2) {
                let (kernel, policy) = (&pair[0], &pair[1]);
                assert_eq!((&kernel["policy"], &policy["policy"]), (&"kernel".into(), &"linux-6.18".into()));
                let (theirs, ours) = (count(kernel, "device_bytes"), count(policy, "device_bytes"));
                assert!(ours.abs_diff(theirs) * 10 <= theirs, "{fs_type}: {kernel:#} {policy:#}");
                let (theirs, ours) = (count(kernel, "misses"), count(policy, "misses"));
                assert!(ours.abs_diff(theirs) * 10 <= theirs, "{fs_type}: {kernel:#} {policy:#}");
                assert!(policy["amplification"].as_f64().unwrap() >= 0.99, "{policy:#}");
            }
        }
        assert!(!is_left(&mounted.root));
    }
}

#[test]
fn every_job_runs_and_its_pages_add_up() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    for job in ["mmapit", "bonnie", "streams", "random", "patterns"] {
        let small = [job, "--size", "4M", "--count", "100", "--streams", "1,3", "--runs", "1", "--policy", "ahead"];
        for row in rows(&small, &mounted.root) {
            let pages = count(&row, "hits") + count(&row, "locked") + count(&row, "misses");
            assert_eq!(pages, count(&row, "read_bytes") / 4096, "{row:#}");
            let used = count(&row, "used_bytes");
            assert!(count(&row, "device_bytes") >= used || count(&row, "write_bytes") > 0, "{row:#}");
            assert!(count(&row, "issued_bytes") >= used || count(&row, "write_bytes") > 0, "{row:#}");
        }
    }
    assert!(!is_left(&mounted.root));
}

/// The kernel's window is set for the runs alone. That of btrfs, whose backing device has no number, was not found.
#[test]
fn the_window_is_set_back() {
    for fs_type in ["ext4", "btrfs"] {
        let Some(mounted) = Mounted::alone(fs_type) else { return };
        let setting = bdi::read_ahead_file_below(&mounted.root).unwrap();
        let before = bdi::read_kb(setting.clone()).unwrap();
        let sweep = ["random", "--count", "50", "--size", "8M", "--runs", "1", "--pages", "1,256"];
        let rows = rows(&sweep, &mounted.root);
        let mapped: Vec<&Value> = rows.iter().filter(|row| row["variant"] == "mmap").collect();
        assert!(count(mapped[1], "device_bytes") > 10 * count(mapped[0], "device_bytes"), "{mapped:#?}");
        assert_eq!(bdi::read_kb(setting).unwrap(), before);
    }
}

#[test]
fn a_file_system_that_is_full_or_read_only_is_left_as_it_was() {
    let Some(mut mounted) = Mounted::alone("ext4") else { return };
    bench(&["streams", "--size", "400M", "--streams", "4"], &mounted.root)
        .assert()
        .code(1)
        .stderr(predicate::str::contains("has room for"));
    assert!(!is_left(&mounted.root));
    drop(mounted.mount.take());
    let own = undo::ProcessId::own().unwrap();
    let device = mounted.device.device.clone();
    mounted.mount = Some(ahead_kernel::mounting::mount_noted(own, &device, &mounted.root, "ext4", true, "").unwrap());
    bench(&["streams", "--size", "1M"], &mounted.root)
        .assert()
        .code(1)
        .stderr(predicate::str::contains("Read-only file system"));
}

/// What is left of a bench with this process id.
fn notes_of(pid: u32) -> Vec<String> {
    let notes = undo::notes().unwrap().into_iter().filter(|(_, note)| note.owner.pid == pid);
    notes.map(|(_, note)| note.action.to_string()).collect()
}

#[test]
fn stopped_or_killed_nothing_stays() {
    let Some(mounted) = Mounted::alone("ext4") else { return };
    let before = bdi::read_ahead_kb(mounted.number()).unwrap();
    for signal in ["INT", "TERM", "KILL"] {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
            .args(["bench", "random", "--size", "64M", "--count", "100000", "--runs", "100", "--pages", "8"])
            .arg("--directory")
            .arg(&mounted.root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The second note is the window's: the first run has begun.
        wait_until("the first run", || notes_of(child.id()).len() >= 2);
        let killed = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
        let ended = child.wait().unwrap();
        if signal == "KILL" {
            assert!(is_left(&mounted.root));
            Command::cargo_bin("ahead").unwrap().arg("restore").assert().success();
        } else {
            assert_eq!(ended.code(), Some(if signal == "INT" { 130 } else { 143 }));
        }
        assert_eq!(notes_of(child.id()), Vec::<String>::new(), "{signal}");
        assert!(!is_left(&mounted.root), "{signal}");
        assert_eq!(bdi::read_ahead_kb(mounted.number()).unwrap(), before, "{signal}");
    }
}

/// On a disk whose speed is known: a stream comes to its bandwidth, and its own counts are those that are told.
#[test]
fn on_an_emulated_disk_one_stream_is_as_fast_as_the_disk() {
    if !machine::is_root() || !Path::new("/dev/fuse").exists() || !Path::new("/dev/shm").is_dir() {
        eprintln!("skipped: an emulated disk needs root and FUSE");
        return;
    }
    let _alone = machine_lock::alone();
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let (image, mount) = (home.path().join("disk.img"), home.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let name = format!("bench-{}", std::process::id());
    let disk = |arguments: &[&str]| Command::cargo_bin("ahead").unwrap().arg("disk").args(arguments).assert().success();
    let place = mount.to_str().unwrap();
    disk(&["create", image.to_str().unwrap(), "--size", "512M", "--model", "cloud", "--name", &name, "--mount", place]);
    let policies =
        ["--policy", "kernel", "--policy", "linux-6.18", "--policy", "ahead", "--policy", "true-readahead(64)"];
    let options = ["streams", "--streams", "1", "--size", "32M", "--runs", "3"];
    let rows = std::panic::catch_unwind(|| rows(&[&options[..], &policies].concat(), &mount));
    disk(&["detach", &name]);
    for row in rows.unwrap() {
        assert_eq!(count(&row, "device_bytes"), 32 * MIB, "{row:#}");
        // 125 MiB/s is what it has; a machine that does something else besides takes some of it.
        let fastest = row["throughput_bytes_per_s"]["max"].as_f64().unwrap();
        assert!((80e6..140e6).contains(&fastest), "{row:#}");
    }
}
