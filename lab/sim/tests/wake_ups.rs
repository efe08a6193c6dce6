//! Room in the queue: a waiting process gets free room at once, with any number of waiting processes and any limit.

use ahead_sim::{Counters, Scenario};

fn runs(text: &str) -> Vec<(String, Counters)> {
    let scenario = Scenario::from_toml(text, ".".as_ref()).unwrap();
    scenario.policies.iter().map(|choice| (choice.to_string(), scenario.run(choice).unwrap())).collect()
}

/// Regression: once each process has its inode and pointer block, writing needs no disk. The writers waited for a timer
/// of writeback.
#[test]
fn writers_that_wait_for_room_do_not_wait_for_a_timer() {
    for (streams, requests, most_ns) in [(16, 1, 10_000_000), (40, 1, 50_000_000), (300, 4, 100_000_000)] {
        let text = format!(
            "policies = [\"none\"]\n[disk]\nmodel = \"hdd\"\nlayout = \"ext2\"\nnr_requests = {requests}\n\
             [[workload]]\npattern = \"write\"\nfile_mb = 1\nblocks = 4\nstreams = {streams}\n"
        );
        for (policy, run) in runs(&text) {
            assert!(run.ended && run.elapsed_ns < most_ns, "{streams}, {policy}: {run:?}");
        }
    }
}

/// Regression: a process that was woken and found its inode cached left the others waiting without end.
#[test]
fn readers_with_few_requests_never_idle() {
    for pattern in ["stride", "sequential", "random", "sparse"] {
        for more in ["streams = 8", "streams = 40\nreopens = true\nblocks = 4\npasses = 2"] {
            let text = format!(
                "policies = [\"none\", \"linux-6.18\", \"true-readahead(64)\", \"ahead\", \"oracle\"]\n[disk]\nlayout = \"ext2\"\n\
                 nr_requests = 1\n[[workload]]\npattern = \"{pattern}\"\nfile_mb = 1\n{more}\n"
            );
            for (policy, run) in runs(&text) {
                let works_ns = run.device.busy_ns + run.user_ns + run.system_ns;
                assert!(run.ended && run.elapsed_ns <= works_ns, "{pattern}, {more}, {policy}: {run:?}");
            }
        }
    }
}

#[test]
fn hundreds_of_readers_share_a_few_requests() {
    for (streams, requests) in [(300, 2), (1000, 4)] {
        let text = format!(
            "policies = [\"none\", \"linux-6.18\", \"ahead\"]\n[disk]\nlayout = \"ext2\"\nnr_requests = {requests}\n\
             [[workload]]\npattern = \"random\"\nfile_mb = 1\nblocks = 4\nstreams = {streams}\n"
        );
        for (policy, run) in runs(&text) {
            let works_ns = run.device.busy_ns + run.user_ns + run.system_ns;
            assert!(run.ended && run.elapsed_ns <= works_ns, "{streams}, {policy}: {run:?}");
        }
    }
}
