//! `ahead compare` on an emulated disk: accounts add up, and figures agree with the disk's own counters.

mod dead;
mod page;

use crate::machine_lock;
use crate::reclaim::unless_reclaimed;
use ahead_profile::{Extent, File, Profile};
use ahead_sys::{diskstats, machine};
use ahead_undo::{Action, Note};
use assert_cmd::Command;
use assert_cmd::assert::Assert;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

fn ahead(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("ahead").unwrap();
    command.args(arguments);
    command
}

fn result_of(done: Assert) -> Value {
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// An emulated rotating disk with 40 files. It is detached when the value is dropped.
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
        // On a tmpfs: its pages stay when caches are dropped.
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
            // The ranges read of two files are far apart, so that prefetching saves time.
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

    /// Reads the first pages of every file in an order other than the disk's.
    fn program(&self) -> Vec<String> {
        let files: Vec<String> = (0..40u64).map(|i| self.file(i * 17 % 40).to_str().unwrap().to_owned()).collect();
        ["head", "-q", "-c", "12288"].map(str::to_owned).into_iter().chain(files).collect()
    }

    fn record(&self, program: &[String]) {
        ahead(&["record", "--cold", "-o", &self.profile(), "--"]).args(program).assert().success();
    }

    /// Records the program and compares it with the profile.
    fn compare(&self, more: &[&str]) -> Value {
        let program = self.program();
        self.record(&program);
        self.compare_with(more, &program)
    }

    /// Compares a program with the existing profile.
    fn compare_with(&self, more: &[&str], program: &[String]) -> Value {
        result_of(self.comparison(more, program).success())
    }

    fn comparison(&self, more: &[&str], program: &[String]) -> Assert {
        let profile = self.profile();
        ahead(&["compare", "-p", &profile, "--runs", "3", "--json"]).args(more).arg("--").args(program).assert()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        ahead(&["disk", "detach", &self.name]).assert().success();
    }
}

#[test]
fn every_prefetched_byte_is_used_bridged_or_wasted_and_the_disk_agrees() {
    unless_reclaimed(|| {
        let _alone = machine_lock::alone();
        let Some(disk) = Disk::new("compare") else { return };
        let result = disk.compare(&["--against", "nothing=true"]);
        let number = |key: &str| result[key].as_u64().unwrap_or_else(|| panic!("{key} in {result}"));
        let (prefetched, used) = (number("prefetched_bytes"), number("used_bytes"));
        assert_eq!(prefetched, used + number("bridged_bytes") + number("wasted_bytes"));
        assert!(used >= 40 * 3 * 4096, "every page that head reads was prefetched and used: {result}");
        assert_eq!(result["used_according_to"], "a recorded run");
        assert!(result["cold"]["device"]["bytes"].as_u64().unwrap() >= 40 * 3 * 4096, "{result}");
        assert_eq!(result["warm"]["device"]["requests"], 0, "{result}");
        let bound = result["bound_s"].as_f64().unwrap();
        assert!(bound >= result["warm"]["min_s"].as_f64().unwrap(), "{result}");
        for kind in ["cold", "ahead"] {
            assert!(result[kind]["min_s"].as_f64().unwrap() >= bound, "{kind} is below the bound: {result}");
        }
        assert_eq!(result["bound_kind"], "causal");
        assert!(result["cold"]["median_s"].as_f64().unwrap() > result["warm"]["median_s"].as_f64().unwrap());
        assert_eq!(result["model"], "hdd");
        assert_eq!(result["against"][0]["name"], "nothing");
        for key in ["speedup", "recovered_share", "read_ahead_kb", "runs", "kernel", "verdict"] {
            assert!(!result[key].is_null(), "{key} in {result}");
        }
    });
}

#[test]
fn a_killed_program_leaves_nothing_of_a_comparison() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-kill") else { return };
    let profile = disk.profile();
    ahead(&["record", "--cold", "-o", &profile, "--", "cat"]).arg(disk.file(0)).assert().success();
    let scratch = tempfile::tempdir().unwrap();
    // The compared command itself ends the comparison, as kill in a terminal would.
    let done = ahead(&["compare", "-p", &profile, "--", "sh", "-c", "kill -TERM $PPID; exec tail -f /dev/null"])
        .env("TMPDIR", scratch.path())
        .assert();
    let output = done.code(128 + 15).get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped by signal 15"), "{output:?}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

/// Regression: pages whose state the kernel hides from a user (files of root) counted as evicted.
#[test]
fn pages_of_unknown_state_do_not_count_as_evicted() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-user") else { return };
    let profile = disk.profile();
    ahead(&["record", "--cold", "-o", &profile, "--", "head", "-c", "8192"]).arg(disk.file(0)).assert().success();
    // A user who may read the profile and the disk, and is the owner of neither.
    for (path, mode) in [(disk.home.path().to_path_buf(), 0o755), (profile.clone().into(), 0o644)] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    // This user may have no access to the binary: copy it beside the disk.
    let binary = disk.home.path().join("ahead");
    crate::mounted::copy_ahead(&binary);
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["compare", "-p", &profile, "--runs", "1", "--json", "--", "head", "-c", "8192"])
        .arg(disk.file(0))
        .assert()
        .success();
    let result: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    assert_eq!(result["cold_state"]["evicted"], "data");
    assert!(result["cold_state"]["unknown_bytes"].as_u64().unwrap() >= 8192, "{result}");
}

/// Regression: the emulated drive's own buffer served a "cold" run with data of the run before.
#[test]
fn the_drives_own_buffer_is_empty_in_cold_runs() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-buffer") else { return };
    let large = disk.mount().join("large");
    fs::write(&large, vec![7; 32 << 20]).unwrap();
    let program = ["cat".to_owned(), large.to_str().unwrap().to_owned()];
    disk.record(&program);
    let result = disk.compare_with(&["--no-reference"], &program);
    let (cold, bound) = (&result["cold"]["min_s"], result["bound_s"].as_f64().unwrap());
    // A buffer is three times as fast.
    assert!(cold.as_f64().unwrap() >= bound, "{result}");
}

/// Regression: the search for files followed the eviction and read their names and inodes. Then all pages were evicted
/// again.
#[test]
fn check_of_resident_pages_after_an_eviction_reads_nothing() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-look") else { return };
    let program = disk.program();
    disk.record(&program);
    let device = ahead_disk::find(&disk.name).unwrap().device_number;
    let before = diskstats::reads(device).unwrap();
    let result = disk.compare_with(&["--no-reference"], &program);
    let read = (diskstats::reads(device).unwrap() - before).requests;
    // A disturbed run was measured again; its reads count, too.
    let kinds =
        ["cold", "ahead", "warm"].into_iter().flat_map(|kind| [&result[kind]["samples"], &result[kind]["repeated"]]);
    let samples = kinds.flat_map(|samples| samples.as_array().unwrap());
    let in_runs: u64 = samples.map(|sample| sample["requests"].as_u64().unwrap()).sum();
    // Other processes may cause a few reads; a search after each of six evictions causes 24.
    assert!(
        in_runs > 80 && (in_runs..in_runs + 4).contains(&read),
        "{read} requests, {in_runs} of them in runs: {result}"
    );
}

/// Regression: the bound was the recording's, although the program now used other pages.
#[test]
fn the_bound_follows_the_pages_used_and_not_the_profile() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-bound") else { return };
    disk.record(&disk.program());
    let other = [words("head -q -c 12288"), vec![disk.file(0).to_str().unwrap().to_owned()]].concat();
    let bound = |more: &[&str]| disk.compare_with(more, &other)["bound_s"].as_f64().unwrap();
    let (of_the_profile, of_the_run) = (bound(&["--no-reference"]), bound(&[]));
    assert!(of_the_run < of_the_profile / 2.0, "{of_the_run} {of_the_profile}");
}

/// Evictions are counted from a file that the program reads and then drops from the cache. Its deleted copy does not count.
#[test]
fn evictions_during_a_run_are_counted() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("evicted") else { return };
    let (file, copy) = (disk.file(3), disk.mount().join("copy"));
    let [file, copy] = [&file, &copy].map(|path| path.to_str().unwrap());
    let script =
        format!("cat {file} >/dev/null; dd if={file} of=/dev/null iflag=nocache count=0; cp {file} {copy}; rm {copy}");
    let program = ["sh", "-c", &script].map(str::to_owned);
    disk.record(&program);
    let result = disk.compare_with(&["--no-reference"], &program);
    for kind in ["cold", "ahead", "warm"] {
        let samples = result[kind]["samples"].as_array().unwrap();
        assert_eq!(samples.len(), 3);
        for sample in samples {
            let evicted = sample["evicted_bytes"].as_u64().unwrap();
            assert!((3 << 20..6 << 20).contains(&evicted), "{kind}: {sample}");
        }
    }
}

/// Regression: a concurrent recording set read-ahead to 0 during the cold runs, without a warning.
#[test]
fn a_changed_read_ahead_is_reported() {
    let _alone = machine_lock::alone();
    let Some(disk) = Disk::new("compare-window") else { return };
    disk.record(&disk.program());
    let device = ahead_disk::find(&disk.name).unwrap().device_number;
    let setting = format!("echo 64 >/sys/dev/block/{device}/queue/read_ahead_kb");
    let result = disk.compare_with(&["--no-reference"], &["sh".into(), "-c".into(), setting]);
    assert_eq!(result["read_ahead_kb_seen"].as_array().unwrap().len(), 2, "{result}");
    assert_eq!(result["read_ahead_kb"], result["read_ahead_kb_seen"][0]);
}

/// Regression: a concurrent recording made each fault of the machine map one page only, without a warning.
#[test]
fn a_concurrent_recording_is_reported() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let is_reported = || result_of(small.compare(&[], "true").assert().success())["recorded_meanwhile"].clone();
    assert_eq!(is_reported(), false);
    let mut recorder = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["record", "-o"])
        .arg(small.path("other.ahead"))
        .args(["--", "sh", "-c", "echo runs; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(recorder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "runs\n");
    // Only some kernels allow the change.
    let is_changed = |note: &Note| {
        note.owner.pid == recorder.id()
            && matches!(&note.action, Action::SetFile { path, .. } if path.ends_with("fault_around_bytes"))
    };
    let expected = ahead_undo::notes().unwrap().iter().any(|(_, note)| is_changed(note));
    if !expected {
        eprintln!("skipped: this kernel does not allow changing the size of faults");
    }
    let reported = is_reported();
    drop(recorder.stdin.take());
    assert!(recorder.wait().unwrap().success());
    assert_eq!(reported, expected);
}

/// The variables in which sudo names the calling user.
const BEHIND_SUDO: [(&str, &str); 3] = [("SUDO_UID", "65534"), ("SUDO_GID", "65534"), ("SUDO_USER", "nobody")];

/// A file and its profile, for tests without a slow disk.
struct Small {
    home: tempfile::TempDir,
}

impl Small {
    fn new() -> Option<Small> {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        let small = Small { home: tempfile::tempdir().unwrap() };
        let data = small.path("data");
        fs::write(&data, [1; 8192]).unwrap();
        let extents = vec![Extent { length_bytes: 8192, runs: 1, ..Extent::default() }];
        let path = data.as_os_str().as_bytes().to_vec();
        let mut profile = Profile { files: vec![File { path, extents, ..File::default() }], ..Profile::default() };
        profile.recording.runs = 1;
        ahead_profile::save(&profile, &small.path("p.ahead")).unwrap();
        Some(small)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Compares a shell script whose `$0` is the directory: one round, no reference recording.
    fn compare(&self, more: &[&str], script: &str) -> Command {
        let profile = self.path("p.ahead");
        let mut command = ahead(&["compare", "--json", "--runs", "1", "--no-reference", "-p"]);
        command.arg(profile).args(more).args(["--", "sh", "-c", script]).arg(self.home.path());
        command
    }
}

fn stderr_of(done: &Assert) -> String {
    String::from_utf8_lossy(&done.get_output().stderr).into_owned()
}

/// The runs that were measured again, because the kernel evicted pages meanwhile.
fn repeated(result: &Value) -> usize {
    let rivals = result["against"].as_array().unwrap();
    let measured = ["cold", "ahead", "warm"].into_iter().map(|kind| &result[kind]).chain(rivals);
    measured.map(|one| one["repeated"].as_array().unwrap().len()).sum()
}

/// Regression: the first run read the whole input, later runs nothing.
#[test]
fn every_run_reads_the_same_standard_input() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let greedy = ["--against", "greedy=cat >/dev/null"];
    let result = result_of(small.compare(&greedy, r#"cat >>"$0/seen""#).write_stdin("piped\n").assert().success());
    assert_eq!(small.read("seen"), "piped\n".repeat(4 + repeated(&result)), "{result}");
    // From a file, starting at its offset.
    fs::write(small.path("input"), "first\nsecond\n").unwrap();
    let done = Command::new("sh")
        .args(["-c", r#"{ read -r first; exec "$0" "$@"; } <"$INPUT""#])
        .env("INPUT", small.path("input"))
        .arg(assert_cmd::cargo::cargo_bin("ahead"))
        .args(["compare", "--json", "--runs", "1", "--no-reference", "-p"])
        .arg(small.path("p.ahead"))
        .args(["--", "sh", "-c", r#"cat >>"$0/again""#])
        .arg(small.home.path())
        .assert();
    let result = result_of(done.success());
    assert_eq!(small.read("again"), "second\n".repeat(3 + repeated(&result)), "{result}");
}

#[test]
fn failed_runs_are_reported_and_in_the_result() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let page = small.path("page.html");
    let against = ["--against", "exits=exit 4", "--against", "fails=false", "--against", "works=true"];
    let mut compared = small.compare(&[&against[..], &["--html", page.to_str().unwrap()]].concat(), "exit 3");
    let done = compared.arg(std::ffi::OsString::from_vec(b"\xff".to_vec())).assert().success();
    let message = stderr_of(&done);
    assert_eq!(message.matches("the command's exit status was 3").count(), 1, "{message}");
    assert!(message.contains("exits failed with exit status 4") && !message.contains("Cold"), "{message}");
    let result = result_of(done);
    assert_eq!(result["program_status"], 3);
    let statuses: Vec<_> = (0..3).map(|index| result["against"][index]["status"].as_i64().unwrap()).collect();
    assert_eq!(statuses, [4, 1, 0]);
    assert!((0..2).all(|index| result["against"][index]["recovered_share"].is_null()), "{result}");
    assert!(result["ready"].is_null());
    // Failed runs have no time in the table, and no bar.
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches(">failed<").count(), 2, "{page}");
    assert!(page.contains("Measured 2") && page.contains(" UTC. Profile: "), "{page}");
    assert!(page.contains("works: ") && !page.contains("exits: ") && !page.contains("fails: "), "{page}");
    // The command is a list of words, as bytes where one is not UTF-8.
    assert_eq!((&result["command"][0], &result["command_percent"][4]), (&"sh".into(), &"%FF".into()));
}

#[test]
fn a_program_that_never_gets_ready_is_reported() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let done = small.compare(&["--until-output", "NEVER"], "echo no").assert().success();
    assert!(stderr_of(&done).contains("without being ready"), "{}", stderr_of(&done));
    assert_eq!(result_of(done)["ready"], false);
    let done = small.compare(&["--until-output", "yes"], "echo yes; exec sleep 1000").assert().success();
    assert_eq!(result_of(done)["ready"], true);
}

/// Regression: a recording switched read-ahead off during the cold runs of a comparison.
#[test]
fn no_cold_recording_starts_during_a_comparison() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    small.compare(&[], r#"flock -n /run/ahead/alone.lock touch "$0/free"; touch "$0/ran""#).assert().success();
    assert!(small.path("ran").exists() && !small.path("free").exists());
}

/// Regression: the directory of a killed comparison was never removed.
#[test]
fn restore_removes_the_directory_of_a_killed_comparison() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let left = || fs::read_dir(scratch.path()).unwrap().count();
    let script = r#"touch "$TMPDIR"/ahead-compare-*/more; kill -KILL $PPID"#;
    small.compare(&[], script).env("TMPDIR", scratch.path()).assert().failure();
    assert_eq!(left(), 1);
    ahead(&["restore"]).assert().success();
    assert_eq!(left(), 0);
}

/// Regression: root opened a refused FIFO and hung; and each failure was reported as an error of the file's owner.
#[test]
fn invalid_profile_is_not_reported_as_an_error_of_its_owner() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    fs::set_permissions(small.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let profile = small.path("p.ahead");
    for make in ["mkfifo", "touch"] {
        fs::remove_file(&profile).unwrap();
        Command::new(make).arg(&profile).assert().success();
        fs::set_permissions(&profile, fs::Permissions::from_mode(0o644)).unwrap();
        let done = small.compare(&[], "true").envs(BEHIND_SUDO).timeout(Duration::from_secs(60)).assert().code(1);
        let message = stderr_of(&done);
        assert!(message.contains("p.ahead") && !message.contains("chown"), "{message}");
    }
}

/// Regression: root recorded into a directory of the user, who can put a link there.
#[test]
fn root_does_not_write_into_a_directory_of_the_user() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let (scratch, roots, binary) = (small.path("scratch"), small.path("roots"), small.path("ahead"));
    fs::create_dir(&scratch).unwrap();
    fs::create_dir(&roots).unwrap();
    // Another user may have no access to the binary.
    crate::mounted::copy_ahead(&binary);
    for (name, mode) in [("", 0o755), ("scratch", 0o1777), ("p.ahead", 0o644)] {
        fs::set_permissions(small.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let script = r#"cat "$0/data" >&2
        for own in "$TMPDIR"/ahead-compare-*; do mv "$own" "$own.gone" && ln -s "$0/roots" "$own"; done; true"#;
    let done = Command::new(&binary)
        .args(["compare", "--json", "--runs", "1", "-p"])
        .arg(small.path("p.ahead"))
        .args(["--", "sh", "-c", script])
        .arg(small.home.path())
        .envs(BEHIND_SUDO)
        .env("TMPDIR", &scratch)
        .assert();
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "root wrote through the user's link");
    assert_eq!(result_of(done.success())["used_according_to"], "a recorded run");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

/// Regression: a signal took effect only during a run, and counted as a failed run.
#[test]
fn a_signal_between_two_runs_ends_a_comparison() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    let done = small.compare(&["--prepare", "kill -TERM $PPID"], r#"touch "$0/ran""#).assert().code(128 + 15);
    assert!(stderr_of(&done).contains("stopped by signal 15"), "{}", stderr_of(&done));
    assert!(!small.path("ran").exists());
}

/// Regression: a message of `ahead run` counted as the program's output, and did not reach the user.
#[test]
fn a_message_of_ahead_run_does_not_count_as_readiness() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    // Without a profile there is no account, which is an error.
    let prepare = format!("rm -f '{}'", small.path("p.ahead").display());
    let options = ["--prepare", &prepare, "--until-output", "runs without"];
    let done = small.compare(&options, r#"echo no; echo ended >>"$0/runs""#).assert().code(1);
    let message = stderr_of(&done);
    assert!(message.contains("runs without a profile") && message.contains("without being ready"), "{message}");
    // A run is repeated if the kernel evicted pages meanwhile.
    let ended = small.read("runs").lines().count();
    assert!(ended >= 2 && small.read("runs") == "ended\n".repeat(ended), "{ended}");
}

#[test]
fn a_profile_that_the_sudo_user_cannot_read_is_reported_before_the_first_run() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    for path in [small.home.path().to_path_buf(), small.path("data")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let done = small.compare(&[], r#"touch "$0/ran""#).envs(BEHIND_SUDO).assert().code(1);
    let message = stderr_of(&done);
    assert!(
        message.contains("nobody") && message.contains("p.ahead") && message.contains("ermission denied"),
        "{message}"
    );
    assert!(!small.path("ran").exists());
}

/// Regression: messages of `ahead run` went to /dev/null together with the program's output.
#[test]
fn messages_of_ahead_run_reach_the_user() {
    let _alone = machine_lock::alone();
    let Some(small) = Small::new() else { return };
    // The cold run removes the program, so the run with ahead does not find it. Nothing is observed without root, so the cold run
    // is not repeated.
    let (program, binary) = (small.path("once"), small.path("ahead"));
    fs::write(&program, "#!/bin/sh\nrm -- \"$0\"\n").unwrap();
    crate::mounted::copy_ahead(&binary);
    for (name, mode) in [("", 0o777), ("p.ahead", 0o644), ("once", 0o755)] {
        fs::set_permissions(small.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["compare", "--no-reference", "-p"])
        .arg(small.path("p.ahead"))
        .arg("--")
        .arg(&program)
        .assert()
        .code(127);
    let message = stderr_of(&done);
    assert!(message.contains("once: not found") && message.contains("status was 127"), "{message}");
}

/// With read-ahead, times of use do not show the disk: they are measured after the run.
#[test]
fn recording_with_read_ahead_measures_the_disk() {
    let Some(disk) = Disk::new("times") else { return };
    let _alone = crate::machine_lock::alone();
    ahead(&["record", "--cold", "--no-precise", "-o", &disk.profile(), "--"]).args(disk.program()).assert().success();
    let profile = ahead_profile::load(Path::new(&disk.profile())).unwrap();
    let device = profile.files.iter().find(|file| file.path.ends_with(b"/file00")).unwrap().device;
    let times = profile.recording.devices.iter().find(|times| times.device == device).expect("times of the disk");
    // The built-in model `hdd`: 7 to 9 ms on average; what follows is in its buffer.
    assert!(times.far_ns > 3_000_000 && times.near_ns * 2 < times.far_ns, "{times:?}");
}
