//! Whole fetches of real files.

use super::*;
use crate::device_store::Descriptions;
use crate::prefetch::{DeviceDescription, Options, Reason, confirm};
use ahead_profile::{Extent, File, Profile};
use proptest::prelude::*;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

const PAGE: u64 = 4096;

/// What is at the path of an entry when it is fetched.
#[derive(Clone, Copy, Debug)]
enum Now {
    AsRecorded,
    Evicted,
    Changed,
    Gone,
    Directory,
    Deleted,
}

#[derive(Clone, Debug)]
struct Entry {
    now: Now,
    size_bytes: u64,
    extents: Vec<Extent>,
}

fn entry() -> impl Strategy<Value = Entry> {
    let now = [Now::AsRecorded, Now::Evicted, Now::Evicted, Now::Changed, Now::Gone, Now::Directory, Now::Deleted];
    // Pages of gap and of extent, so that they are disjoint; the last may lie at or beyond the file's end.
    let extents = prop::collection::vec((0..12u64, 1..40u64, 0..1000u64), 0..8).prop_map(|lengths| {
        let mut at = 0;
        let extent = |(gap, pages, first_use_us)| {
            let offset_bytes = at + gap * PAGE;
            at = offset_bytes + pages * PAGE;
            let physical_bytes = Some(offset_bytes);
            Extent { offset_bytes, length_bytes: pages * PAGE, first_use_us, runs: 1, physical_bytes, warm_use: None }
        };
        lengths.into_iter().map(extent).collect()
    });
    (prop::sample::select(now.to_vec()), 1..600_000u64, extents).prop_map(|(now, size_bytes, extents)| Entry {
        now,
        size_bytes,
        extents,
    })
}

/// The entry's file in this directory, and how a profile lists it.
fn listed(entry: &Entry, path: &std::path::Path) -> File {
    std::fs::write(path, vec![1; entry.size_bytes as usize]).unwrap();
    let made = std::fs::metadata(path).unwrap();
    match entry.now {
        Now::AsRecorded | Now::Deleted => {}
        Now::Evicted => ahead_sys::evict::file(std::fs::File::open(path).unwrap()).unwrap(),
        Now::Changed => std::fs::write(path, vec![1; entry.size_bytes as usize + 1]).unwrap(),
        Now::Gone => std::fs::remove_file(path).unwrap(),
        Now::Directory => {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
    }
    File {
        path: path.as_os_str().as_bytes().to_vec(),
        size_bytes: made.len(),
        mtime_ns: made.mtime() * 1_000_000_000 + made.mtime_nsec(),
        deleted: matches!(entry.now, Now::Deleted),
        extents: entry.extents.clone(),
        ..File::default()
    }
}

/// In the source tree: a temporary directory may be a tmpfs, whose files have no page cache of a device.
fn home() -> (tempfile::TempDir, std::path::PathBuf) {
    let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = std::fs::canonicalize(home.path()).unwrap();
    (home, path)
}

/// One evicted file of `pages` pages, all of them used.
fn one_file(home: &std::path::Path, pages: u64) -> Arc<Profile> {
    let whole = Extent { length_bytes: pages * PAGE, runs: 1, ..Extent::default() };
    let entry = Entry { now: Now::Evicted, size_bytes: pages * PAGE, extents: vec![whole] };
    Arc::new(Profile { files: vec![listed(&entry, &home.join("file"))], ..Profile::default() })
}

fn used_bytes(profile: &Profile) -> u64 {
    profile.data_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_used_byte_is_in_the_account_once(
        entries in prop::collection::vec(entry(), 0..6),
        description in prop::sample::select(vec![DeviceDescription::ROTATING, DeviceDescription::FLASH]),
        budget_bytes in prop::option::of(0..2_000_000u64),
        wait: bool,
        late: bool,
        threads in prop::option::of(2..4usize),
        low_memory: bool,
    ) {
        let (_guard, home) = home();
        let files = entries.iter().enumerate().map(|(index, entry)| listed(entry, &home.join(index.to_string())));
        let profile = Arc::new(Profile { files: files.collect(), ..Profile::default() });
        let descriptions = Descriptions::of_all(description, std::path::Path::new("given.toml"));
        let deadline = late.then_some(Duration::ZERO);
        let options = Options { budget_bytes, deadline, wait, keep_ranges: true, threads, low_memory, ..Options::default() };
        let account = start(Replay { profile: profile.clone(), descriptions, options, ..Replay::default() }).unwrap().finish();
        prop_assert_eq!(account.accounted_bytes(), used_bytes(&profile), "{:?}", account);
        prop_assert!(account.issued_bytes <= budget_bytes.unwrap_or(u64::MAX));
        let bytes = |bridged: bool| {
            let ranges = account.ranges.iter().filter(move |issued| issued.bridged == bridged);
            ranges.map(|issued| issued.range.end - issued.range.start).sum::<u64>()
        };
        prop_assert_eq!((bytes(false) + bytes(true), bytes(true)), (account.issued_bytes, account.bridged_bytes));
        prop_assert_eq!(account.arrived_us.is_some(), wait && !late);
    }
}

/// Regression: nothing compared the deadline but a look every 50 ms, and a sample of the files was opened before.
#[test]
fn a_time_that_is_over_fetches_nothing() {
    let (_guard, home) = home();
    let lookup = |_| ahead_profile::Lookup { path: b"/"[..].into(), ..ahead_profile::Lookup::default() };
    let lookups = (0..100).map(lookup).collect();
    let profile = Arc::new(Profile { lookups, ..Profile::clone(&one_file(&home, 64)) });
    for deadline in [Duration::ZERO, Duration::from_micros(1)] {
        // No program waits, so that the plan is not one that expects no gain.
        let options = Options { deadline: Some(deadline), head_start: HeadStart::None, ..Options::default() };
        let account = start(Replay { profile: profile.clone(), options, ..Replay::default() }).unwrap().finish();
        assert_eq!((account.issued_bytes, account.lookups, account.looked_warm), (0, 0, false), "{account:?}");
        assert_eq!(account.skipped[&Reason::Deadline].bytes, 64 * PAGE);
    }
}

/// Regression: a plan without samples was taken for a plan whose pages are all cached.
#[test]
fn plan_without_samples_does_not_look_warm() {
    let (_guard, home) = home();
    let entry = Entry { extents: one_file(&home, 1).files[0].extents.clone(), now: Now::Gone, size_bytes: PAGE };
    let gone = Profile { files: vec![listed(&entry, &home.join("gone"))], ..Profile::default() };
    for profile in [Profile::default(), gone] {
        assert!(!start(Replay::new(profile)).unwrap().finish().looked_warm);
    }
}

/// A fetch that waited, and has ended.
fn ended(home: &std::path::Path) -> Running {
    let options = Options { wait: true, keep_ranges: true, ..Options::default() };
    let mut running = start(Replay { profile: one_file(home, 64), options, ..Replay::default() }).unwrap();
    running.thread.take().unwrap().join().unwrap();
    assert!(running.shared.ledger.open().arrived_us.is_some());
    running
}

fn all_pages_arrive(running: &Running) -> bool {
    let shared = &running.shared;
    let ranges = shared.ledger.open().ranges.clone();
    confirm::wait(&ranges, &shared.sources, &shared.ledger, || shared.waits_on())
}

/// Regression: the thread that waited for arrival waited at the brake, too, and no other thread was left to release the brake.
#[test]
fn pause_does_not_hold_the_wait_for_arrival() {
    let (_guard, home) = home();
    let running = ended(&home);
    running.shared.brake.pause(true);
    assert!(all_pages_arrive(&running));
}

/// Regression: a thread that did the work itself and paused for memory waited without end, because only this thread checked memory.
#[test]
fn caller_checks_memory_while_the_only_other_thread_works() {
    let (_guard, home) = home();
    let options = Options { threads: Some(2), wait: true, head_start: HeadStart::None, ..Options::default() };
    let shared = Arc::new(Shared::new(Replay { profile: one_file(&home, 64), options, ..Replay::default() }));
    shared.brake.pause(true);
    let account = start_with(shared).unwrap().finish();
    assert_eq!((account.issued_bytes, account.arrived_us.is_some()), (64 * PAGE, true), "{account:?}");
}

/// Regression: the account had a time of arrival, though waiting was given up.
#[test]
fn stopped_wait_reports_no_arrival() {
    let (_guard, home) = home();
    let running = ended(&home);
    running.stopper().stop();
    assert!(!all_pages_arrive(&running));
}

/// Regression: a profile that claimed a long recording held the program for three quarters of it.
#[test]
fn neither_a_profile_nor_a_device_holds_the_program_for_long() {
    let (second, began) = (Duration::from_secs(1), Instant::now());
    let seen_after = |time: Duration| began + time;
    let most_us = i64::MAX as u64;
    assert_eq!(held_until(most_us, began, seen_after(60 * second)), began + LONGEST_HEAD_START);
    assert_eq!(held_until(most_us, began, began), began + LONGEST_STILL);
    assert_eq!(held_until(4_000_000, began, seen_after(2 * second)), began + 3 * second);
    assert_eq!(held_until(0, began, seen_after(60 * second)), began + UNKNOWN_HEAD_START);
}
