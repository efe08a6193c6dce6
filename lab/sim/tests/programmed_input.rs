//! Programmed input costs processor time, which is charged to the interrupted process.

use ahead_sim::{Counters, Moved, Scenario};

/// 4 MiB (1024 pages) through a mapping; moving a page takes 100 us.
fn run(policy: &str, user_us_per_page: u64) -> Counters {
    let text = format!(
        "policies = [\"{policy}\"]\n[machine]\npio_us_per_page = 100\nfault_around_pages = 1\n[disk]\nmodel = \"ssd\"\nfolio_order = 0\n\
         max_request_kb = 16\n[[workload]]\npattern = \"sequential\"\nvia = \"mmap\"\nfile_mb = 4\nuser_us_per_page = {user_us_per_page}\n"
    );
    let scenario = Scenario::from_toml(&text, ".".as_ref()).unwrap();
    scenario.run(&scenario.policies[0]).unwrap()
}

fn total_ns(moved: Moved) -> u64 {
    moved.from_user_ns + moved.from_system_ns + moved.from_idle_ns
}

#[test]
fn every_page_is_moved_once_and_is_system_time() {
    for policy in ["none", "advise(64)", "true-readahead(64)", "linux-6.18"] {
        let counters = run(policy, 300);
        assert_eq!(total_ns(counters.moved), counters.issued_pages * 100_000, "{policy}");
        assert!(counters.system_ns >= total_ns(counters.moved), "{policy}");
        assert!(counters.user_ns + counters.system_ns <= counters.elapsed_ns, "{policy}");
    }
}

#[test]
fn waiting_process_is_not_interrupted() {
    let counters = run("none", 300);
    assert_eq!(counters.moved, Moved { from_idle_ns: 1024 * 100_000, ..Moved::default() });
}

#[test]
fn computing_process_is_interrupted() {
    let counters = run("true-readahead(64)", 3000);
    // Except for the first two groups: the process waits for their first page.
    assert!(counters.moved.from_idle_ns <= 128 * 100_000, "{:?}", counters.moved);
    assert!(counters.moved.from_user_ns >= (1024 - 128) * 100_000, "{:?}", counters.moved);
    // The user time does not change.
    assert_eq!(counters.user_ns, run("none", 3000).user_ns);
}
