//! Writing: dirty pages, the time of their writeback, and the processes that wait for it.

use ahead_sim::{Counters, Scenario};

fn run_with(policy: &str, machine: &str, disk: &str, workload: &str) -> Counters {
    let text = format!("policies = [\"{policy}\"]\n[machine]\n{machine}\n[disk]\n{disk}\n[[workload]]\n{workload}\n");
    let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
    scenario.run(&scenario.policies[0]).unwrap()
}

fn run(machine: &str, workload: &str) -> Counters {
    run_with("linux-6.12", machine, "model = \"ssd\"", workload)
}

const WRITE: &str = "pattern = \"write\"\nfile_mb = 64\n";

#[test]
fn writes_below_the_limits_need_no_disk() {
    let counters = run("memory_mb = 1024", WRITE);
    assert_eq!((counters.write_bytes, counters.dirtied_pages), (64 << 20, 16_384));
    assert_eq!((counters.unwritten_pages, counters.device.requests, counters.misses), (16_384, 0, 0));
    assert_eq!(counters.idle_ns(), 0);
}

#[test]
fn a_writer_waits_at_the_limit_and_the_disk_is_kept_busy() {
    let counters = run("memory_mb = 64", WRITE);
    assert!(counters.dirty_waits > 0 && counters.writeback_wait_ns > 0, "{counters:?}");
    // At most a fifth of the memory is unwritten at the end.
    assert!(counters.unwritten_pages <= 16_384 / 5, "{counters:?}");
    assert_eq!(counters.written_pages + counters.unwritten_pages, 16_384);
    // The write requests are long.
    assert!(counters.device.write_bytes > counters.device.write_requests * (256 << 10), "{counters:?}");
    // With larger limits the writer waits less.
    let more = run("memory_mb = 64\ndirty_background_ratio = 40\ndirty_ratio = 80", WRITE);
    assert!(more.elapsed_ns < counters.elapsed_ns && more.writeback_wait_ns < counters.writeback_wait_ns);
}

#[test]
fn fsync_waits_for_the_disk() {
    let counters = run("memory_mb = 1024", &format!("{WRITE}fsync = true\n"));
    assert_eq!((counters.unwritten_pages, counters.written_pages), (0, 16_384));
    // The built-in `ssd` writes at least 500 MB/s.
    assert!(counters.writeback_wait_ns > 64_000_000 && counters.elapsed_ns > 100_000_000, "{counters:?}");
}

/// Dirty pages are written after `dirty_expire`, checked every `dirty_writeback`, and not before.
#[test]
fn old_dirty_pages_are_written() {
    let slow = format!("{WRITE}rate_kb_per_s = 16384\n");
    let limits = |expire_ms: u64| {
        let machine = format!("memory_mb = 4096\ndirty_expire_ms = {expire_ms}\ndirty_writeback_ms = 100");
        run(&machine, &slow)
    };
    let (soon, late) = (limits(500), limits(10_000));
    assert!(soon.written_pages > 12_000 && soon.dirty_waits == 0, "{soon:?}");
    assert_eq!(late.written_pages, 0, "{late:?}");
}

#[test]
fn written_pages_are_hits_for_reads() {
    let counters = run("memory_mb = 256", "pattern = \"rewrite\"\nfile_mb = 64\nblock_kb = 16\npasses = 2");
    // The second pass hits every page: each page is read from the disk once.
    assert_eq!((counters.issued_pages, counters.used_pages), (16_384, 16_384));
    assert_eq!((counters.read_bytes, counters.write_bytes), (128 << 20, 128 << 20));
}

#[test]
fn partly_overwritten_page_is_read_first() {
    let machine = "memory_mb = 4\ndirty_background_ratio = 0\ndirty_ratio = 10";
    let halves = "pattern = \"write\"\nfile_mb = 16\npasses = 2\nblock_kb = 4\ncall_bytes = 2048";
    let counters = run(machine, halves);
    // The first pass creates the pages. In the second pass they are evicted, and the first half-page write of each page
    // reads it.
    assert_eq!(counters.misses, 4096);
    assert_eq!(counters.issued_pages, 4096);
    let wholes = run(machine, "pattern = \"write\"\nfile_mb = 16\npasses = 2\nblock_kb = 4");
    assert_eq!((wholes.misses, wholes.issued_pages), (0, 0));
}

#[test]
fn ext2_writes_pointer_blocks_with_the_data() {
    let disk = "model = \"ssd\"\nlayout = \"ext2\"";
    let counters = run_with("none", "memory_mb = 8", disk, "pattern = \"write\"\nfile_mb = 64\nfsync = true");
    // 64 MiB: the first indirect block, a double-indirect one, and 15 below it. Each is written several times while it
    // fills.
    assert!((17..400).contains(&counters.written_metadata_pages), "{counters:?}");
    assert_eq!(counters.written_pages, 16_384 + counters.written_metadata_pages);
    assert_eq!(counters.unwritten_pages, 0);
    // Only the inode existed before.
    assert_eq!(counters.metadata_pages, 1);
}

/// A reader beside a writer. With mq-deadline the reader waits for a batch of writes. With c-scan it waits until the
/// writer reaches the end of its file, because the reader's blocks are behind the head.
#[test]
fn deadline_scheduler_bounds_the_wait_of_a_reader() {
    let waits_most_ns = |scheduler: &str| {
        let text = format!(
            "policies = [\"linux-6.12\"]\n[machine]\nmemory_mb = 64\n[disk]\nmodel = \"emmc\"\nscheduler = \"{scheduler}\"\n\
             [[workload]]\npattern = \"random\"\nfile_mb = 32\nblock_kb = 16\n\
             [[workload]]\npattern = \"write\"\nfile_mb = 1024\npasses = 2\n"
        );
        let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
        let (_, calls) = scenario.run_with_calls(&scenario.policies[0]).unwrap();
        calls.iter().filter(|call| call.process == 0).map(|call| call.ended_ns - call.began_ns).max().unwrap()
    };
    // Sixteen requests of 512 KiB at 125 MB/s take 67 ms, the whole file 8.6 s.
    assert!((60_000_000..140_000_000).contains(&waits_most_ns("mq-deadline")));
    assert!(waits_most_ns("c-scan") > 8_000_000_000);
}

/// A backward seek clears the flag for sequential reads in Linux 1.3. The kernel then requests the wanted pages only.
#[test]
fn backward_seek_stops_the_read_ahead_of_linux_1_3() {
    let reads = |pattern: &str| {
        let machine = "memory_mb = 24\ndirty_background_ratio = 60\ndirty_ratio = 60";
        let workload = format!("pattern = \"{pattern}\"\nfile_mb = 8\nblock_kb = 16");
        let device = run_with("linux-1.3", machine, "model = \"roudier-4\"\nfolio_order = 0", &workload).device;
        device.requests - device.write_requests
    };
    // Four pages per request, or nine.
    assert_eq!(reads("rewrite"), 512);
    assert!(reads("sequential") <= 2048 / 9 + 2);
}
