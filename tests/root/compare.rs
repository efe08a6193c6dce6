//! Comparing on an emulated disk: the accounts add up, and what is said can be checked against the disk's own counters.

use crate::machine_lock;
use ahead_kernel::machine;
use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(arguments);
    command
}

/// An emulated rotating disk with 40 files on it; detached in the end, whatever happens.
struct Disk {
    name: String,
    home: tempfile::TempDir,
}

impl Disk {
    fn new(name: &str) -> Option<Disk> {
        if !machine::is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: an emulated disk needs root and FUSE");
            return None;
        }
        // On a tmpfs: caches are dropped while it is in use.
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let disk = Disk { name: format!("{name}-{}", std::process::id()), home };
        fs::create_dir(disk.mount()).unwrap();
        let (image, mount) = (disk.home.path().join("image"), disk.mount());
        let paths = [image.to_str().unwrap(), mount.to_str().unwrap()];
        ahead(&[
            "disk", "create", paths[0], "--size", "256M", "--model", "hdd", "--mount", paths[1], "--name", &disk.name,
        ])
        .assert()
        .success();
        for index in 0..40u64 {
            // What is read of each is far from what is read of the next, so that there is something to gain.
            fs::write(disk.file(index), vec![index as u8; 3 << 20]).unwrap();
        }
        Some(disk)
    }

    fn mount(&self) -> PathBuf {
        self.home.path().join("disk")
    }

    fn file(&self, index: u64) -> PathBuf {
        self.mount().join(format!("file{index:02}"))
    }

    fn profile(&self) -> String {
        self.home.path().join("p.ahead").to_str().unwrap().to_owned()
    }

    /// Reads the first pages of every file, in an order that is not the disk's.
    fn program(&self) -> Vec<String> {
        let files: Vec<String> = (0..40u64).map(|i| self.file(i * 17 % 40).to_str().unwrap().to_owned()).collect();
        ["head", "-q", "-c", "12288"].map(str::to_owned).into_iter().chain(files).collect()
    }

    fn compare(&self, more: &[&str]) -> Value {
        let (profile, program) = (self.profile(), self.program());
        ahead(&["record", "--cold", "-o", &profile, "--"]).args(&program).assert().success();
        let done =
            ahead(&["compare", "-p", &profile, "--runs", "3", "--json"]).args(more).arg("--").args(&program).assert();
        let output = done.success().get_output().clone();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        ahead(&["disk", "detach", &self.name]).assert().success();
    }
}

#[test]
fn every_prefetched_byte_is_used_bridged_or_wasted_and_the_disk_agrees() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare") else { return };
    let result = disk.compare(&["--against", "nothing=true"]);
    let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"));
    let (prefetched, used) = (number("prefetched_bytes"), number("used_bytes"));
    assert_eq!(prefetched, used + number("bridged_bytes") + number("wasted_bytes"));
    assert!(used >= 40 * 3 * 4096, "all that head reads was on its way: {result}");
    assert_eq!(result["used_according_to"], "a recorded run");
    assert!(result["cold"]["device"]["bytes"].as_u64().unwrap() >= 40 * 3 * 4096, "{result}");
    assert_eq!(result["warm"]["device"]["requests"], 0, "{result}");
    assert!(result["bound_s"].as_f64().unwrap() >= result["warm"]["median_s"].as_f64().unwrap());
    assert!(result["cold"]["median_s"].as_f64().unwrap() > result["warm"]["median_s"].as_f64().unwrap());
    assert_eq!(result["model"], "hdd");
    assert_eq!(result["against"][0]["name"], "nothing");
    for key in ["speedup", "recovered_share", "read_ahead_kb", "runs", "kernel", "verdict"] {
        assert!(!result[key].is_null(), "{key} in {result}");
    }
}

#[test]
fn a_program_that_is_killed_leaves_nothing_of_a_comparison() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-kill") else { return };
    let profile = disk.profile();
    ahead(&["record", "--cold", "-o", &profile, "--", "cat"]).arg(disk.file(0)).assert().success();
    let scratch = tempfile::tempdir().unwrap();
    // The command itself ends the comparison, as somebody at a terminal would.
    let done = ahead(&["compare", "-p", &profile, "--", "sh", "-c", "kill -TERM $PPID; exec tail -f /dev/null"])
        .env("TMPDIR", scratch.path())
        .assert();
    let output = done.code(1).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by a signal"), "{output:?}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
