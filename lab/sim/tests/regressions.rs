//! Regression tests, one for each past mistake.

use ahead_sim::{Counters, Scenario, read_small};

fn runs(text: &str) -> Vec<(String, Counters)> {
    let scenario = Scenario::from_toml(text, ".".as_ref()).unwrap();
    scenario.policies.iter().map(|choice| (choice.to_string(), scenario.run(choice).unwrap())).collect()
}

/// Half a second of work in each of ten seconds, cut off during a sleep. The run's time is its limit, and the run is
/// marked as cut off.
#[test]
fn run_at_its_time_limit_is_marked() {
    let text = |end_s: u64| {
        format!(
            "policies = [\"none\"]\n[machine]\nend_s = {end_s}\n[disk]\nmodel = \"ssd\"\n\
             [[workload]]\npattern = \"sequential\"\nfile_mb = 1\nblock_kb = 256\nrate_kb_per_s = 64\n"
        )
    };
    let (_, cut) = runs(&text(5)).remove(0);
    assert!(!cut.ended);
    assert_eq!(cut.elapsed_ns, 5_000_000_000);
    let (_, whole) = runs(&text(100)).remove(0);
    assert!(whole.ended && whole.read_bytes == 1 << 20);
}

/// If blocks do not divide a file, its last block is shorter, and it is read.
#[test]
fn file_is_read_to_its_end_with_any_block_length() {
    for pattern in ["sequential", "backward", "interleaved", "interleaved-backward"] {
        for (via, block_kb) in [("read", 768), ("mmap", 768), ("read", 100), ("mmap", 100)] {
            let readers = if pattern.starts_with("inter") { "readers = 2\n" } else { "" };
            let text = format!(
                "policies = [\"none\", \"linux-6.18\", \"ahead\", \"oracle\"]\n[disk]\nmodel = \"ssd\"\n[[workload]]\n\
                 pattern = \"{pattern}\"\nfile_mb = 1\nblock_kb = {block_kb}\nvia = \"{via}\"\n{readers}"
            );
            for (policy, run) in runs(&text) {
                assert_eq!(run.read_bytes, 1 << 20, "{pattern}, {via}, {block_kb}, {policy}");
            }
        }
    }
    let (_, rewritten) =
        runs("policies = [\"none\"]\n[[workload]]\npattern = \"rewrite\"\nfile_mb = 1\nblock_kb = 768\n").remove(0);
    assert_eq!((rewritten.read_bytes, rewritten.write_bytes), (1 << 20, 1 << 20));
}

/// A program's work on its bytes takes the same time, however a policy divides it.
#[test]
fn the_same_work_takes_the_same_time_under_every_policy() {
    let text = "policies = [\"none\", \"fixed(7)\", \"linux-2.6\", \"linux-6.18\", \"zfetch\", \"ahead\", \"oracle\"]\n\
                [disk]\nmodel = \"ssd\"\n[[workload]]\npattern = \"sequential\"\nfile_mb = 4\ncall_bytes = 4097\n\
                user_us_per_page = 1.7\n";
    for (policy, run) in runs(text) {
        assert_eq!(run.user_ns, 1024 * 1700, "{policy}");
    }
}

#[test]
fn binary_scenario_is_reported_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("latin-1.toml");
    std::fs::write(&path, b"policies = [\"none\"]\nname = \"caf\xe9\"\n").unwrap();
    assert_eq!(read_small(&path).unwrap_err().to_string(), "line 2: not UTF-8");
    assert_eq!(Scenario::load(&path).unwrap_err().to_string(), "line 2: not UTF-8");
    // This text is only too long: a character cut at its end is no error.
    std::fs::write(&path, "é".repeat(1 << 18)).unwrap();
    assert!(Scenario::load(&path).unwrap_err().to_string().contains("at most 262144 bytes"));
}

/// A full queue admitted every reader with one request at a time, so that the head moved back and forth between all of
/// them. Eight streams had 0.59 of the throughput of one, and 64 had 0.43.
#[test]
fn many_streams_keep_their_throughput_with_a_full_queue() {
    let elapsed_ns = |streams: u64| {
        let text = format!(
            "policies = [\"ahead\"]\n[machine]\nmemory_mb = 8192\n[disk]\nmodel = \"hdd\"\n[[workload]]\n\
             pattern = \"sequential\"\nfile_mb = {}\nblock_kb = 32\nstreams = {streams}\n",
            1536 / streams
        );
        runs(&text)[0].1.elapsed_ns as f64
    };
    let one = elapsed_ns(1);
    for (streams, share) in [(2, 0.95), (4, 0.95), (8, 0.95), (16, 0.95), (32, 0.93), (64, 0.9)] {
        assert!(one / elapsed_ns(streams) > share, "{streams} streams: {:.3}", one / elapsed_ns(streams));
    }
}

/// Wu's 800 slow streams, but through mappings. When memory is short, pages behind a mapped reader get another round,
/// so they suggest a longer life than unread pages have. In the past nearly every prefetched page was evicted before
/// its use.
#[test]
fn mapped_streams_in_little_memory_do_not_thrash() {
    let (_, run) = runs(
        "policies = [\"ahead\"]\n[machine]\nmemory_mb = 64\n[disk]\nmodel = \"hdd\"\n[[workload]]\npattern = \"sequential\"\n\
         via = \"mmap\"\nfile_mb = 4\nstreams = 800\nblock_kb = 4\nrate_kb_per_s = 1\n",
    )
    .remove(0);
    assert!(run.ended);
    // 6,746 of 247,883 requests; before the fix, 255,349 of 260,145.
    assert!(run.thrashings * 100 < run.device.requests * 5, "{run:?}");
    assert!(run.wasted_pages * 20 < run.issued_pages, "{run:?}");
}

/// Regression: `oracle` did not end if readers have hardly a page each. Its prefetched pages were evicted before their
/// use, and fetched again.
#[test]
fn oracle_ends_with_hardly_a_page_for_each_reader() {
    for seed in 0..3 {
        let text = format!(
            "policies = [\"none\", \"oracle\"]\nseed = {seed}\n[machine]\nmemory_mb = 2\nend_s = 1000\n\
             dirty_background_ratio = 29\ndirty_ratio = 58\ndirty_expire_ms = 1000\ndirty_writeback_ms = 400\n\
             [disk]\nmodel = \"cloud\"\nread_ahead_kb = 512\nfolio_order = 3\nnr_requests = 2\nscheduler = \"cfq\"\n\
             [[workload]]\npattern = \"mixed\"\nfile_mb = 2\nblock_kb = 8\nvia = \"mmap\"\nstreams = 39\n\
             [[workload]]\npattern = \"rewrite\"\nfile_mb = 4\nblock_kb = 64\nstreams = 15\nfsync = true\n"
        );
        let [(_, none), (_, oracle)] = runs(&text).try_into().unwrap();
        assert!(none.ended && oracle.ended, "{seed}: {oracle:?}");
        // Without a limit on its losses, `oracle` took more than 20 times as long as no read-ahead.
        assert!(oracle.elapsed_ns <= 2 * none.elapsed_ns, "{seed}: {} and {}", oracle.elapsed_ns, none.elapsed_ns);
    }
}
