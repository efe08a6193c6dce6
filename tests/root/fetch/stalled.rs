//! A disk that does not answer, or answers with errors: every wait has a limit, and every byte is counted.

use super::{MIB, replay, saved};
use crate::machine_lock;
use ahead_disk::{ByteRange, Client, DiskInfo, FaultChange};
use ahead_profile::{Extent, File, Profile};
use ahead_sys::{evict, machine, openat};
use assert_cmd::Command;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::RwLockReadGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time of each read of a stalled disk, milliseconds.
const STALL_MS: u64 = 8000;

/// Limit for work that does not wait for a read.
const LONGEST: Duration = Duration::from_secs(6);

/// Each used page is the first of a stretch of this length: too far apart to be read together.
const STRETCH: u64 = 256 << 10;

/// An emulated disk with an evicted file whose inode is in memory.
struct Disk {
    info: DiskInfo,
    profile: Profile,
    _home: tempfile::TempDir,
    _machine: RwLockReadGuard<'static, ()>,
}

impl Disk {
    /// A disk of this model, with this many used pages. `None`, with the reason printed, where disks cannot be emulated.
    fn new(model: &str, pages: u64) -> Option<Disk> {
        if !machine::is_root() || !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: needs root, FUSE and loop devices");
            return None;
        }
        let machine = machine_lock::shared();
        let home = tempfile::tempdir().unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        let (image, mount) = (directory.join("image"), directory.join("mnt"));
        fs::create_dir(&mount).unwrap();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-stalled-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut create = Command::cargo_bin("ahead").unwrap();
        create.args(["disk", "create"]).arg(&image).args(["--name", &name, "--size", "256M", "--model", model]);
        create.arg("--mount").arg(&mount).assert().success();
        let info = ahead_disk::find(&name).unwrap();
        let file = mount.join("file");
        fs::write(&file, vec![7; (pages * STRETCH) as usize]).unwrap();
        let opened = fs::File::open(&file).unwrap();
        opened.sync_all().unwrap();
        evict::file(&opened).unwrap();
        Some(Disk { info, profile: profile_of(&file, pages), _home: home, _machine: machine })
    }

    fn fault(&self, change: FaultChange) {
        Client::new(&self.info).fault(change).unwrap();
    }

    fn stall(&self) {
        self.fault(FaultChange { stall_ms: Some(STALL_MS), ..FaultChange::default() });
    }
}

/// Limit for the kernel's outstanding reads of an ended program, before the disk can be detached.
const LETS_GO: Duration = Duration::from_secs(60);

impl Drop for Disk {
    fn drop(&mut self) {
        let cleared = Client::new(&self.info).fault(FaultChange { clear: true, ..FaultChange::default() });
        let deadline = Instant::now() + LETS_GO;
        let detached = loop {
            match ahead_disk::detach(&self.info) {
                Err(_) if Instant::now() < deadline => std::thread::yield_now(),
                done => break cleared.and(done),
            }
        };
        match detached {
            Err(error) if std::thread::panicking() => eprintln!("not detached: {error}"),
            detached => detached.unwrap(),
        }
    }
}

fn profile_of(path: &Path, pages: u64) -> Profile {
    let now = openat::handle(path).unwrap().identity();
    let extent = |page| Extent {
        offset_bytes: page * STRETCH,
        length_bytes: machine::page_size(),
        first_use_us: page,
        runs: 1,
        physical_bytes: None,
        warm_use: None,
    };
    let file = File {
        path: path.as_os_str().as_bytes().to_vec(),
        device: now.device,
        inode: now.inode,
        size_bytes: now.size_bytes,
        mtime_ns: now.mtime_ns,
        extents: (0..pages).map(extent).collect(),
        ..File::default()
    };
    Profile { files: vec![file], ..Profile::default() }
}

/// The sum of the profile's bytes over all outcomes, by the equation of docs/reference/json.md.
fn accounted(account: &Value) -> u64 {
    let bytes = |key: &str| account[key].as_u64().unwrap();
    let skipped = account["skipped"].as_object().unwrap().values().map(|skipped| skipped["bytes"].as_u64().unwrap());
    let others = ["already_resident_bytes", "stale_bytes", "failed_bytes"].map(bytes);
    bytes("issued_bytes") - bytes("bridged_bytes") + others.iter().sum::<u64>() + skipped.sum::<u64>()
}

/// Runs `ahead`. Returns its output, and the time when both the output and the process had ended.
fn output_of(arguments: &[&str]) -> (String, Duration) {
    let begin = Instant::now();
    let ahead = assert_cmd::cargo::cargo_bin("ahead");
    let mut running = std::process::Command::new(ahead).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    let text = std::io::read_to_string(running.stdout.take().unwrap()).unwrap();
    assert!(running.wait().unwrap().success());
    (text, begin.elapsed())
}

/// Regression: the deadline applied while reads were submitted. It did not apply while they arrived, nor after the
/// disk's queue was full. After a first correction the account was in time, but the command ended only with the disk's
/// answer.
#[test]
fn a_replay_on_a_silent_disk_ends_at_its_deadline() {
    // All reads in the disk's queue; more reads than the queue holds, in both orders.
    for (model, pages) in [("hdd", 20), ("hdd", 200), ("ssd", 200)] {
        let Some(disk) = Disk::new(model, pages) else { return };
        let profile = saved(&disk.profile);
        disk.stall();
        let profile = profile.path().to_str().unwrap();
        let (account, after) = output_of(&["replay", "--wait", "--json", "--deadline", "500ms", profile]);
        assert!(after > Duration::from_millis(500) && after < LONGEST, "{model}, {pages}: {after:?}");
        let account: Value = serde_json::from_str(&account).unwrap();
        assert_eq!(
            (&account["arrived_us"], accounted(&account)),
            (&Value::Null, disk.profile.data_bytes()),
            "{account}"
        );
    }
}

/// Regression: the status was 1.
#[test]
fn a_replay_ended_by_a_signal_has_the_signals_status() {
    let Some(disk) = Disk::new("ssd", 200) else { return };
    let profile = saved(&disk.profile);
    disk.stall();
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let mut replay = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"));
        replay.args(["replay", "--wait"]).arg(profile.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let replay = replay.spawn().unwrap();
        let pid = replay.id();
        // When the worker exists, the signal handlers are installed.
        let deadline = Instant::now() + LONGEST;
        while fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "the worker has not started");
        }
        std::process::Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
        let output = replay.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(128 + number), "{said}");
        assert!(said.contains(&format!("stopped by signal {number}")) && said.lines().count() == 1, "{said}");
    }
}

/// Regression: the program was held for three quarters of the time that a profile named, or until a device answered.
/// Its end was reported only after the device's answer.
#[test]
fn a_program_starts_while_the_disk_stalls() {
    // More reads than the disk's queue holds: the fetch is stuck before the head start is over.
    let Some(mut disk) = Disk::new("hdd", 200) else { return };
    disk.profile.recording.duration_us = 30_000_000;
    // Used from the end to the beginning: with uses in disk order the program would not wait.
    for (from_end, extent) in disk.profile.files[0].extents.iter_mut().rev().enumerate() {
        extent.first_use_us = from_end as u64;
    }
    let profile = saved(&disk.profile);
    disk.stall();
    let (output, after) = output_of(&["run", "-p", profile.path().to_str().unwrap(), "--", "echo", "started"]);
    assert_eq!(output, "started\n");
    // The program was held, but within the limit.
    assert!(after > Duration::from_secs(1) && after < LONGEST, "{after:?}");
}

/// Regression: unreadable bytes were counted as issued and as failed.
#[test]
fn unreadable_data_is_reported_and_accounted_for_once() {
    let Some(disk) = Disk::new("nvme", 50) else { return };
    let everything = ByteRange { offset_bytes: 0, length_bytes: 256 * MIB };
    disk.fault(FaultChange { fail: vec![everything], ..FaultChange::default() });
    let account = replay(&disk.profile, &[]);
    assert_eq!(accounted(&account), disk.profile.data_bytes(), "{account}");
    assert_eq!(account["unreadable_bytes"], account["issued_bytes"], "{account}");
    assert!(account["issued_bytes"].as_u64() > Some(0) && account["first_failure"].is_string(), "{account}");
}

/// The process that `ahead` has started.
fn worker_of(pid: u32) -> u32 {
    let deadline = Instant::now() + LETS_GO;
    loop {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        if let Some(worker) = children.split_whitespace().next() {
            return worker.parse().unwrap();
        }
        assert!(Instant::now() < deadline, "there is no worker");
    }
}

/// Regression: a replay in the background had the default I/O priority, and filled a rotating disk's queue. Another
/// program's read waited for all of these requests.
#[test]
fn background_replay_does_not_fill_the_queue_of_a_rotating_disk() {
    let Some(disk) = Disk::new("hdd", 200) else { return };
    let profile = saved(&disk.profile);
    let inflight = format!("/sys/block/{}/inflight", disk.info.device.file_name().unwrap().to_str().unwrap());
    disk.stall();
    for (arguments, class, is_short) in
        [(&[][..], "idle", true), (&["--priority", "normal"][..], "none: prio 0", false)]
    {
        let mut replay = std::process::Command::new(assert_cmd::cargo::cargo_bin("ahead"));
        replay.arg("replay").args(arguments).arg(profile.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut replay = replay.spawn().unwrap();
        let worker = worker_of(replay.id());
        // The disk answers no request: the number of requests in flight reaches its maximum.
        let (mut under_way, mut since, deadline) = (0, Instant::now(), Instant::now() + LETS_GO);
        while under_way == 0 || since.elapsed() < Duration::from_secs(1) {
            assert!(Instant::now() < deadline, "{under_way} requests are under way");
            let text = fs::read_to_string(&inflight).unwrap();
            let reads: u32 = text.split_whitespace().next().unwrap().parse().unwrap();
            if reads != under_way {
                (under_way, since) = (reads, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(under_way <= 4, is_short, "{under_way} requests are under way");
        let threads = fs::read_dir(format!("/proc/{worker}/task")).unwrap();
        let threads: Vec<String> = threads.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let classes = std::process::Command::new("ionice").arg("-p").args(&threads).output().unwrap();
        let classes = String::from_utf8(classes.stdout).unwrap();
        assert!(classes.lines().any(|line| line == class), "{classes}");
        std::process::Command::new("kill").arg(replay.id().to_string()).status().unwrap();
        replay.wait().unwrap();
        // The requests in flight end before the next replay begins.
        disk.fault(FaultChange { clear: true, ..FaultChange::default() });
        crate::crash::wait_until("the end of the reads", || {
            fs::read_to_string(&inflight).unwrap().trim().starts_with("0 ")
        });
        evict::file(fs::File::open(Path::new(OsStr::from_bytes(&disk.profile.files[0].path))).unwrap()).unwrap();
        disk.stall();
    }
}

/// Regression: spin-ups were timed over sums, so that seven short reads looked like one.
#[test]
fn one_long_read_is_a_spin_up_and_seven_short_ones_are_none() {
    let Some(mut disk) = Disk::new("hdd", 16) else { return };
    for (page, extent) in disk.profile.files[0].extents.iter_mut().enumerate() {
        // As far apart as reads that check a description; later uses are beyond the deadline.
        (extent.physical_bytes, extent.first_use_us) = (Some(page as u64 * 8 * MIB), page as u64 * 10_000_000);
    }
    let description = tempfile::NamedTempFile::new().unwrap();
    fs::write(description.path(), "access_us = 200000\nhop_us = 200000\nbandwidth_mb_per_s = 150\nparallelism = 1\n")
        .unwrap();
    let described = ["--device", description.path().to_str().unwrap()];
    // The long reads last: those that a replay leaves behind delay the next one.
    for (stall_ms, device, is_spin_up) in [(200, &described[..], false), (1500, &[][..], true)] {
        evict::file(fs::File::open(Path::new(OsStr::from_bytes(&disk.profile.files[0].path))).unwrap()).unwrap();
        disk.fault(FaultChange { stall_ms: Some(stall_ms), ..FaultChange::default() });
        let account = replay(&disk.profile, &[&["--window", "40K", "--deadline", "5s"][..], device].concat());
        let spun_up_us = account["window"]["spun_up_us"].as_u64();
        assert_eq!(spun_up_us.is_some_and(|us| us > 1_000_000), is_spin_up, "{account}");
        if !is_spin_up {
            assert!(spun_up_us.is_none() && account["requests"].as_u64() >= Some(7), "{account}");
            assert_eq!(account["devices"][0]["source"], "given", "{account}");
        }
    }
}
