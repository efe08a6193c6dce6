//! Policies drive real files: the bytes are right, and the counts are those of the simulator's machine.

use ahead_measure::bench::live::{Counters, Engine, Reader, Settings};
use ahead_policy::{Access, DeviceDescription, Found, Parameters, Policy, Requests, View, Wants, named};
use ahead_tests::rig::cold::becomes_cold;

const PAGE: usize = 4096;

/// A cold file on disk whose pages differ: each is filled with its number; `None` if its pages cannot be evicted.
fn cold_file(pages: usize) -> Option<tempfile::NamedTempFile> {
    let content: Vec<u8> = (0..pages).flat_map(|page| [page as u8; PAGE]).collect();
    ahead_tests::rig::cold::cold_file(&content)
}

fn engine(policy: &str, settings: Settings) -> Engine {
    Engine::new(named(policy).unwrap().build(&Parameters::default()).unwrap(), settings)
}

fn window(pages: u64) -> Settings {
    Settings { window_pages: Some(pages), ..Settings::default() }
}

/// Reads the first `pages` pages of a file from front to back by calls of `call` bytes, and checks their content.
fn read_all(reader: &mut Reader, pages: usize, call: usize) {
    let mut buffer = vec![0; call];
    for at in (0..pages * PAGE).step_by(call) {
        let read = reader.read_at(&mut buffer, at as u64).unwrap();
        assert_eq!(read, call.min(pages * PAGE - at));
        let wrong = (0..read).find(|index| buffer[*index] != ((at + index) / PAGE) as u8);
        assert_eq!(wrong, None, "read from {at}");
    }
    assert_eq!(reader.read_at(&mut buffer, reader.size_bytes()).unwrap(), 0);
}

fn check_sums(counters: &Counters, pages: u64) {
    assert_eq!(counters.hits + counters.locked + counters.misses, pages, "{counters:?}");
    assert!(counters.used_pages + counters.unread_pages + counters.wasted_pages <= counters.issued_pages + pages);
}

#[test]
fn without_read_ahead_every_page_is_a_miss_and_nothing_else_is_read() {
    let Some(file) = cold_file(64) else { return };
    let engine = engine("none", Settings::default());
    let mut reader = engine.open(file.path()).unwrap();
    read_all(&mut reader, 12, 3 * PAGE);
    let cached = ahead_sys::cache::present(file.as_file(), 0, 64 * PAGE as u64).unwrap();
    assert_eq!(cached, [0..12 * PAGE as u64]);
    let counters = engine.counters();
    assert_eq!((counters.misses, counters.issued_pages, counters.unread_pages), (12, 12, 0), "{counters:?}");
}

#[test]
fn every_policy_reads_what_is_in_the_file_by_calls_and_through_a_mapping() {
    let Some(file) = cold_file(600) else { return };
    for policy in ahead_policy::CATALOGUE.iter().filter(|policy| !policy.needs_future() && !policy.needs_profile()) {
        let name = if policy.arguments.is_empty() { policy.name.to_owned() } else { format!("{}(24)", policy.name) };
        for mapped in [false, true] {
            assert!(becomes_cold(file.as_file()));
            let engine = engine(&name, window(32));
            let mut reader = engine.open(file.path()).unwrap();
            if mapped {
                let mut bucket = [0; PAGE];
                for page in 0..600_u64 {
                    assert_eq!(reader.copy_mapped(page, &mut bucket).unwrap(), PAGE);
                    assert_eq!(bucket, [page as u8; PAGE], "{name}");
                }
                assert!(reader.copy_mapped(600, &mut bucket).is_err());
            } else {
                read_all(&mut reader, 600, 5 * PAGE);
            }
            drop(reader);
            check_sums(&engine.counters(), 600);
        }
    }
}

#[test]
fn the_kernel_s_policy_asks_for_the_kernel_s_windows() {
    let Some(file) = cold_file(512) else { return };
    let engine = engine("linux-6.18", window(32));
    let mut reader = engine.open(file.path()).unwrap();
    read_all(&mut reader, 512, 16 * PAGE);
    let counters = engine.counters();
    // One miss begins the stream; a window of 32 pages each time a mark is met, none beyond the file's end.
    assert_eq!((counters.misses, counters.decisions), (1, 16), "{counters:?}");
    assert_eq!((counters.issued_pages, counters.used_pages, counters.unread_pages), (512, 512, 0));
}

#[test]
fn a_full_queue_makes_one_policy_wait_and_another_drop() {
    let Some(file) = cold_file(4096) else { return };
    let narrow = Settings { queue_limit: Some(1), window_pages: Some(32), ..Settings::default() };
    let run = |policy: &str| {
        assert!(becomes_cold(file.as_file()));
        let engine = engine(policy, narrow);
        let mut reader = engine.open(file.path()).unwrap();
        read_all(&mut reader, 4096, PAGE);
        engine.counters()
    };
    // A group is longer than a request may be on most disks, and the queue takes one.
    let (waits, drops) = (run("advise(2048)"), run("true-readahead(2048)"));
    assert_eq!(waits.dropped_pages, 0);
    if waits.requests > 2 {
        assert!(waits.queue_waits > 0, "{waits:?}");
        assert!(drops.dropped_pages > 0, "{drops:?}");
    }
    // What the kernel has taken away before it was used is read once more.
    assert_eq!(waits.issued_pages, 4096 + waits.evicted_pages, "{waits:?}");
    assert_eq!(drops.issued_pages, 4096 + drops.evicted_pages, "{drops:?}");
}

/// All readers finish that wait for room for all their requests, in a queue with little room.
#[test]
fn readers_with_large_requests_take_turns_in_a_small_queue() {
    let device = DeviceDescription {
        access_ns: 10_000_000,
        bandwidth_bytes_per_s: 100e6,
        parallelism: 1,
        request_ns: 0,
        ..DeviceDescription::WU_2010
    };
    let policy = named("ahead").unwrap().build(&Parameters { device, ..Parameters::default() }).unwrap();
    let engine = Engine::new(policy, Settings { queue_limit: Some(2), window_pages: Some(32), ..Settings::default() });
    let files: Vec<_> = (0..8).map_while(|_| cold_file(4096)).collect();
    std::thread::scope(|scope| {
        for file in &files {
            let mut reader = engine.open(file.path()).unwrap();
            scope.spawn(move || read_all(&mut reader, 4096, 8 * PAGE));
        }
    });
    let counters = engine.counters();
    assert_eq!(counters.used_pages, 4096 * files.len() as u64, "{counters:?}");
    assert!(files.is_empty() || counters.queue_waits > 0, "{counters:?}");
}

/// Asks for each missed page with a separate request, and for pages behind it with another one.
struct Apart;

impl Policy for Apart {
    fn wants(&self) -> Wants {
        Wants { calls: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, _: &dyn View, requests: &mut Requests) {
        if access.found == Found::Absent {
            requests.pages(access.file, access.page, 1);
            requests.pages(access.file, access.page + 100, 8);
        }
    }
}

/// The reader waits itself for the page that it misses, and no reaper does. If the queue has no room for its other requests,
/// that page has to come first, and is left to the reapers.
#[test]
fn a_reader_s_own_page_does_not_hold_the_room_that_it_waits_for() {
    let Some(file) = cold_file(400) else { return };
    for queue_limit in [1, 2, 64] {
        assert!(becomes_cold(file.as_file()));
        let settings = Settings { queue_limit: Some(queue_limit), ..Settings::default() };
        let engine = Engine::new(Box::new(Apart), settings);
        let mut reader = engine.open(file.path()).unwrap();
        read_all(&mut reader, 400, PAGE);
        let counters = engine.counters();
        assert_eq!(counters.hits + counters.locked + counters.misses, 400, "{counters:?}");
        assert_eq!(counters.used_pages, 400, "{queue_limit}: {counters:?}");
        assert_eq!(counters.issued_pages, 400 + counters.evicted_pages, "{queue_limit}: {counters:?}");
        assert!(counters.queue_waits > 0 || queue_limit > 1, "{counters:?}");
    }
}

#[test]
fn written_pages_are_cached() {
    let Some(file) = cold_file(16) else { return };
    let engine = engine("none", Settings::default());
    let mut reader = engine.open_to_write(file.path()).unwrap();
    reader.write_at(&[16; PAGE], 16 * PAGE as u64).unwrap();
    reader.sync().unwrap();
    assert_eq!(reader.size_bytes(), 17 * PAGE as u64);
    read_all(&mut reader, 17, PAGE);
    assert_eq!(engine.counters().hits, 1);
}

#[test]
fn readers_of_one_file_share_what_is_cached() {
    let Some(file) = cold_file(256) else { return };
    let engine = engine("linux-6.18", window(32));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| read_all(&mut engine.open(file.path()).unwrap(), 256, 4 * PAGE));
        }
    });
    let counters = engine.counters();
    assert_eq!(counters.hits + counters.locked + counters.misses, 4 * 256);
    assert!(counters.issued_pages <= 256 + counters.evicted_pages, "{counters:?}");
}

#[test]
fn only_regular_files_can_be_opened() {
    let engine = engine("none", Settings::default());
    assert!(engine.open(std::env::temp_dir().as_path()).is_err());
    assert!(engine.open("/dev/null".as_ref()).is_err());
    assert!(engine.open("/no/such/file".as_ref()).is_err());
}
