//! Windows that follow the program, in a control group that holds a third of the profile.

use super::{LONGEST, saved};
use ahead_profile::{Milestone, MilestoneKind, Profile};
use ahead_sys::diskstats;
use ahead_tests::rig::group::Group;
use ahead_tests::rig::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory of the group.
const LIMIT_BYTES: u64 = 32 * MIB;
/// The files of the profile: three times as much.
const FILES: u64 = 48;
const FILE_BYTES: u64 = 2 * MIB;
const TOTAL_BYTES: u64 = FILES * FILE_BYTES;

/// A file system with files, their profile, and a group that holds a third of them.
struct Scene {
    group: Group,
    files: Vec<PathBuf>,
    profile: tempfile::NamedTempFile,
    mounted: Mounted,
    /// Of the last run.
    status: Option<i32>,
}

impl Scene {
    fn new(limit_bytes: u64) -> Option<Scene> {
        let group = Group::with_memory(limit_bytes)?;
        let mut mounted = Mounted::new("ext4")?;
        let files: Vec<PathBuf> = (0..FILES).map(|index| mounted.file(format!("file{index:02}"), FILE_BYTES)).collect();
        mounted.make_cold();
        let mut profile = Profile::default();
        for (index, path) in files.iter().enumerate() {
            let mut file = mounted.used(path, &[0..MIB, MIB..FILE_BYTES]);
            let time_us = index as u64 * 20_000;
            file.extents.iter_mut().enumerate().for_each(|(half, extent)| extent.first_use_us = time_us + half as u64);
            profile.files.push(file);
            let path = path.as_os_str().as_bytes().to_vec();
            profile.milestones.push(Milestone { time_us, kind: MilestoneKind::FirstOpen, path, warm_us: None });
        }
        profile.recording.runs = 1;
        Some(Scene { group, files, profile: saved(&profile), mounted, status: None })
    }

    /// Runs a shell script with a window. Returns its output, the bytes that the device read, and the account.
    fn run(&mut self, window: &str, script: &str) -> (String, u64, Value) {
        self.run_with(&["--window", window], script)
    }

    /// The same with these options of `ahead run`.
    fn run_with(&mut self, options: &[&str], script: &str) -> (String, u64, Value) {
        self.mounted.make_cold();
        let account = tempfile::NamedTempFile::new().unwrap();
        let before = diskstats::reads(self.mounted.number()).unwrap().bytes;
        let run = ahead(["run"]).args(options).arg("--account").arg(account.path()).arg("-p").arg(self.profile.path());
        let run = run.args(["--", "sh", "-c", script, "sh"]).args(&self.files).in_group(&self.group);
        let done = run.behind(["timeout", &LONGEST.as_secs().to_string()]).done();
        self.status = done.status.code();
        let bytes = diskstats::reads(self.mounted.number()).unwrap().bytes - before;
        assert!(self.status.is_some_and(|status| [0, SCRIPT_STATUS].contains(&status)), "{options:?}: {done}");
        (done.out, bytes, serde_json::from_slice(&fs::read(account.path()).unwrap()).unwrap())
    }
}

const READ_ALL: &str = "cat \"$@\" | wc -c";

/// The status of a script that passes it on.
const SCRIPT_STATUS: i32 = 7;

fn figure(account: &Value, name: &str) -> u64 {
    account["window"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {account}"))
}

#[test]
fn profile_of_three_times_memory_is_followed_and_read_once() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES) else { return };
    for window in ["auto", "8M", "4K"] {
        let (output, bytes, account) = scene.run(window, READ_ALL);
        assert_eq!(output.trim(), TOTAL_BYTES.to_string());
        assert!(bytes < TOTAL_BYTES / 4 * 5, "{window}: {bytes} bytes, {account}");
        assert!(figure(&account, "milestones_seen") > FILES / 4, "{window}: {account}");
        assert!(figure(&account, "largest_bytes") <= LIMIT_BYTES / 2, "{window}: {account}");
        assert!(account["issued_bytes"].as_u64() > Some(0), "{window}: {account}");
    }
}

#[test]
fn low_memory_reads_no_gap_and_passes_the_status_on() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES + 5 * MIB) else { return };
    let script = format!("{READ_ALL}; exit {SCRIPT_STATUS}");
    let (output, bytes, account) = scene.run_with(&["--low-memory"], &script);
    assert_eq!((output.trim(), scene.status), (TOTAL_BYTES.to_string().as_str(), Some(SCRIPT_STATUS)));
    assert!(bytes < TOTAL_BYTES / 4 * 5, "{bytes} bytes, {account}");
    assert!(figure(&account, "largest_bytes") <= LIMIT_BYTES / 3, "{account}");
    assert_eq!(account["bridged_bytes"], 0, "{account}");
}

#[test]
fn profile_that_fits_into_the_given_window_is_prefetched_at_once() {
    let Some(mut scene) = Scene::new(8 * LIMIT_BYTES) else { return };
    let (output, _, account) = scene.run("128M", READ_ALL);
    assert_eq!(output.trim(), TOTAL_BYTES.to_string());
    assert!(account.get("window").is_none_or(Value::is_null), "{account}");
    let found = account["issued_bytes"].as_u64().unwrap() + account["already_resident_bytes"].as_u64().unwrap();
    assert_eq!(found, TOTAL_BYTES, "{account}");
}

#[test]
fn milestones_that_never_come_do_not_hold_the_program() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES + MIB) else { return };
    let (output, bytes, account) = scene.run("auto", "echo done");
    assert_eq!((output.trim(), figure(&account, "milestones_seen")), ("done", 0));
    assert!(bytes < LIMIT_BYTES, "{account}");
}

#[test]
fn program_that_forks_a_thousand_times_is_followed() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES + 2 * MIB) else { return };
    let script = "i=0; while [ $i -lt 1000 ]; do (:); i=$((i+1)); done; cat \"$@\" | wc -c";
    let (output, bytes, account) = scene.run("auto", script);
    assert_eq!(output.trim(), TOTAL_BYTES.to_string());
    assert!(bytes < TOTAL_BYTES / 2 * 3, "{bytes} bytes, {account}");
}

#[test]
fn eviction_of_everything_again_and_again_costs_a_limited_number_of_reads() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES + 3 * MIB) else { return };
    let (over, files) = (AtomicBool::new(false), scene.files.clone());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // While the file system is made cold, they are not there.
                let opened = files.iter().filter_map(|file| File::open(file).ok());
                opened.for_each(|file| drop(ahead_sys::evict::file(&file)));
                std::thread::yield_now();
            }
        });
        let script = "for f in \"$@\"; do cat \"$f\"; done | wc -c";
        // The thread ends also if the run panics.
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.run("auto", script)));
        over.store(true, Ordering::Relaxed);
        let (output, bytes, account) = run.unwrap();
        assert_eq!(output.trim(), TOTAL_BYTES.to_string());
        // Each read of the program, and each item at most five times.
        assert!(bytes < TOTAL_BYTES * 8, "{bytes} bytes, {account}");
    });
}

#[test]
fn window_of_a_replay_follows_a_running_process() {
    let Some(mut scene) = Scene::new(LIMIT_BYTES + 4 * MIB) else { return };
    scene.mounted.make_cold();
    let script = "while read step && [ $# -gt 0 ]; do cat \"$1\"; shift; done >/dev/null";
    let mut steps = program("sh").args(["-c", script, "sh"]).args(&scene.files).open_input().start();
    let replay =
        ahead(["replay", "--json", "--priority", "normal", "--window", "8M", "--follow", &steps.pid().to_string()]);
    let replay = replay.arg(scene.profile.path()).start();
    // The program goes on when the file after the next one has been prefetched.
    for file in &scene.files[2..20] {
        wait_until("a file ahead of the program", || resident_bytes(file) == FILE_BYTES);
        steps.send("");
    }
    steps.end();
    let account = replay.end_by("TERM").json();
    assert_eq!(account["window"]["progress"][0], "observer", "{account}");
    assert!(figure(&account, "milestones_seen") > 4, "{account}");
}
