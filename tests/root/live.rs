//! A policy on a slow disk: the reader's view of its cache does not depend on timing.

use ahead_measure::bench::live::{Counters, Engine, Reader, Settings};
use ahead_policy::{Parameters, named};
use ahead_tests::rig::emulated::stall;
use ahead_tests::rig::prelude::*;

const PAGE: usize = 4096;
const PAGES: usize = 64;

/// Time of each disk read, milliseconds. A lookup (`preadv2` with `RWF_NOWAIT`) of an absent page makes the kernel
/// start a read. The lookup must return before that read ends, also when both processors are busy.
const STALL_MS: u64 = 500;

/// Reads the file once, evicts it, and makes the disk slow; then the reader reads `again`. Returns the counters.
fn evicted(call: usize, again: fn(&mut Reader)) -> Option<Counters> {
    let mut disks = Disks::new()?;
    let (disk, mount) = disks.mounted("live", &["--size", "64M", "--model", "ssd", "--fs", "ext4"]);
    let path = mount.join("file");
    fs::write(&path, vec![7; PAGES * PAGE]).unwrap();
    make_cold(&path);
    let policy = named("fixed(64)").unwrap().build(&Parameters::default()).unwrap();
    let engine = Engine::new(policy, Settings::default());
    let mut reader = engine.open(&path).unwrap();
    read_all(&mut reader, call);
    engine.settle();
    make_cold(&path);
    stall(&disk, STALL_MS);
    again(&mut reader);
    Some(engine.counters())
}

fn read_all(reader: &mut Reader, call: usize) {
    let mut buffer = vec![0; call];
    for at in (0..PAGES * PAGE).step_by(call) {
        assert_eq!(reader.read_at(&mut buffer, at as u64).unwrap(), call);
        assert!(buffer.iter().all(|byte| *byte == 7));
    }
}

/// Regression: the reader found evicted pages one by one, each with its own read.
#[test]
fn pages_evicted_together_are_found_together() {
    let reads_one = |reader: &mut Reader| assert_eq!(reader.read_at(&mut [0; PAGE], 0).unwrap(), PAGE);
    let Some(counters) = evicted(PAGE, reads_one) else { return };
    assert_eq!((counters.evicted_pages, counters.misses), (PAGES as u64, 2), "{counters:?}");
}

#[test]
fn evicted_pages_are_noticed_and_read_again() {
    let Some(counters) = evicted(PAGES * PAGE, |reader| read_all(reader, PAGES * PAGE)) else { return };
    assert!(counters.evicted_pages > 0 && counters.misses >= 2, "{counters:?}");
    assert_eq!(counters.issued_pages, counters.used_pages, "{counters:?}");
}
