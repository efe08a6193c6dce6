//! `ahead replay --yield`: other programs read first.

use super::saved;
use super::stalled::Disk;
use ahead_sys::cache;
use ahead_tests::rig::prelude::*;

/// Used pages of the profile.
const PAGES: u64 = 200;

/// A program that reads the disk of this file without a gap.
fn reader_beside(disk: &Disk) -> Running {
    let device = disk.info.device.to_str().unwrap();
    let script = "while :; do dd if=$0 of=/dev/null bs=64k iflag=direct status=none; echo .; done";
    program("sh").args(["-c", script, device]).in_own_process_group().start()
}

fn resident_pages(disk: &Disk) -> u64 {
    let file = fs::File::open(&disk.file).unwrap();
    cache::resident_bytes(&file, 0, file.metadata().unwrap().len()).unwrap() / 4096
}

#[test]
fn replay_that_yields_waits_while_another_program_reads_and_goes_on_when_the_disk_is_quiet() {
    let Some(disk) = Disk::new("hdd", PAGES) else { return };
    let profile = saved(&disk.profile);
    let mut reader = reader_beside(&disk);
    // It has read the disk once.
    reader.line();
    let began = Instant::now();
    let replay = ahead(["replay", "--yield", "--wait", "--json"]).arg(profile.path()).start();
    (0..2).for_each(|_| drop(reader.line()));
    let resident = resident_pages(&disk);
    // One request a second, and those before the reader was seen.
    let most = began.elapsed().as_secs() + 5;
    assert!(resident <= most, "{resident} pages after {:?}", began.elapsed());
    drop(reader);
    let account = replay.ends_with(0).json();
    assert_eq!(account["first_failure"], Value::Null, "{account}");
    assert!(resident_pages(&disk) >= PAGES, "{account}");
}

#[test]
fn replay_that_lets_others_read_ends_at_once_by_a_signal_or_its_deadline() {
    let Some(disk) = Disk::new("hdd", PAGES) else { return };
    let profile = saved(&disk.profile);
    let mut reader = reader_beside(&disk);
    reader.line();
    let replay = ahead(["replay", "--yield"]).arg(profile.path()).start();
    wait_until("the worker", || !process::children(replay.pid()).is_empty());
    let began = Instant::now();
    replay.end_by("TERM").code(128 + 15);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let began = Instant::now();
    ahead(["replay", "--yield", "--deadline", "1s"]).arg(profile.path()).ok();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
