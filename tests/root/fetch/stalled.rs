//! A disk that does not answer, or answers with errors: every wait has a limit, and every byte is counted.

use super::{replay, saved};
use ahead_disk::DiskInfo;
use ahead_profile::Profile;
use ahead_sys::machine::page_size;
use ahead_tests::rig::emulated::{fail, heal, stall};
use ahead_tests::rig::prelude::*;
use ahead_tests::rig::profile::{of_files, used};

/// Time of each read of a stalled disk, milliseconds.
const STALL_MS: u64 = 8000;

/// Limit for work that does not wait for a read.
const LONGEST: Duration = Duration::from_secs(6);

/// Each used page is the first of a stretch of this length: too far apart to be read together.
const STRETCH: u64 = 256 << 10;

/// An emulated disk with an evicted file whose inode is in memory.
pub(super) struct Disk {
    pub(super) info: DiskInfo,
    pub(super) profile: Profile,
    pub(super) file: PathBuf,
    _disks: Disks,
}

impl Disk {
    /// A disk of this model, with this many used pages. `None`, with the reason printed, where disks cannot be emulated.
    pub(super) fn new(model: &str, pages: u64) -> Option<Disk> {
        let mut disks = Disks::new()?;
        let (info, mount) = disks.mounted("stalled", &["--size", "256M", "--model", model]);
        let file = mount.join("file");
        fs::write(&file, vec![7; (pages * STRETCH) as usize]).unwrap();
        make_cold(&file);
        let used_pages: Vec<_> = (0..pages).map(|page| page * STRETCH..page * STRETCH + page_size()).collect();
        let mut profile = of_files(vec![used(&file, &used_pages)]);
        profile.files[0].fs_path.clear();
        profile.files[0].extents.iter_mut().zip(0..).for_each(|(extent, page)| extent.first_use_us = page);
        Some(Disk { info, profile, file, _disks: disks })
    }

    fn stall(&self) {
        stall(&self.info, STALL_MS);
    }
}

/// The sum of the profile's bytes over all outcomes, by the equation of docs/reference/json.md.
fn accounted(account: &Value) -> u64 {
    let bytes = |key: &str| account[key].as_u64().unwrap();
    let skipped = account["skipped"].as_object().unwrap().values().map(|skipped| skipped["bytes"].as_u64().unwrap());
    let others = ["already_resident_bytes", "stale_bytes", "failed_bytes"].map(bytes);
    bytes("issued_bytes") - bytes("bridged_bytes") + others.iter().sum::<u64>() + skipped.sum::<u64>()
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
        let done = ahead(["replay", "--wait", "--json", "--deadline", "500ms"]).arg(profile.path()).ok();
        assert!(done.took > Duration::from_millis(500) && done.took < LONGEST, "{model}, {pages}: {:?}", done.took);
        let account = done.json();
        let found = (&account["arrived_us"], accounted(&account));
        assert_eq!(found, (&Value::Null, disk.profile.data_bytes()), "{account}");
    }
}

/// Regression: the status was 1.
#[test]
fn a_replay_ended_by_a_signal_has_the_signals_status() {
    let Some(disk) = Disk::new("ssd", 200) else { return };
    let profile = saved(&disk.profile);
    disk.stall();
    for (signal, number) in [("INT", 2), ("TERM", 15)] {
        let replay = ahead(["replay", "--wait"]).arg(profile.path()).start();
        // When the worker exists, the signal handlers are installed.
        wait_until("the worker", || !process::children(replay.pid()).is_empty());
        let done = replay.end_by(signal).code(128 + number);
        done.says(format!("stopped by signal {number}")).in_one_line();
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
    let done = ahead(["run", "-p"]).arg(profile.path()).args(["--", "echo", "started"]).ok().out_is("started\n");
    // The program was held, but within the limit.
    assert!(done.took > Duration::from_secs(1) && done.took < LONGEST, "{done:?}");
}

/// Regression: unreadable bytes were counted as issued and as failed.
#[test]
fn unreadable_data_is_reported_and_accounted_for_once() {
    let Some(disk) = Disk::new("nvme", 50) else { return };
    fail(&disk.info, 0, 256 * MIB);
    let account = replay(&disk.profile, &[]);
    assert_eq!(accounted(&account), disk.profile.data_bytes(), "{account}");
    assert_eq!(account["unreadable_bytes"], account["issued_bytes"], "{account}");
    assert!(account["issued_bytes"].as_u64() > Some(0) && account["first_failure"].is_string(), "{account}");
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
        let replay = ahead(["replay"]).args(arguments).arg(profile.path()).start();
        wait_until("the worker", || !process::children(replay.pid()).is_empty());
        let worker = process::children(replay.pid())[0];
        // The disk answers no request: the number of requests in flight reaches its maximum.
        let (mut under_way, mut since, deadline) = (0, Instant::now(), Instant::now() + Duration::from_secs(60));
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
        let threads = process::threads(worker);
        let classes =
            program("ionice").arg("-p").args(threads.iter().map(|thread| thread.file_name().unwrap())).done().out;
        assert!(classes.lines().any(|line| line == class), "{classes}");
        replay.end_by("TERM");
        // The requests in flight end before the next replay begins.
        heal(&disk.info);
        wait_until("the end of the reads", || fs::read_to_string(&inflight).unwrap().trim().starts_with("0 "));
        evict(&disk.file);
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
        evict(&disk.file);
        stall(&disk.info, stall_ms);
        let account = replay(&disk.profile, &[&["--window", "40K", "--deadline", "5s"][..], device].concat());
        let spun_up_us = account["window"]["spun_up_us"].as_u64();
        assert_eq!(spun_up_us.is_some_and(|us| us > 1_000_000), is_spin_up, "{account}");
        if !is_spin_up {
            assert!(spun_up_us.is_none() && account["requests"].as_u64() >= Some(7), "{account}");
            assert_eq!(account["devices"][0]["source"], "given", "{account}");
        }
    }
}
