//! Traces of real kernels (`traces/`), recorded with `bench/conform/run --keep`, those of 7.2 with `make test-kernels`: every decision
//! must be that of the policy. The test needs no privilege. In traces named `threads-…` decisions of threads overlap in ways that the
//! comparison once counted as mismatches. In `khugepaged` that thread read mapped pages through the program's open file during faults of
//! the program. It also replaced cached pages by huge pages.

use ahead_sim::conform::{KINDS, Report, conform};
use std::fs;
use std::path::{Path, PathBuf};

fn traces() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut traces: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    traces.sort();
    traces
}

fn report(path: &Path, policy: Option<&str>) -> Report {
    conform(&fs::read(path).unwrap()[..], policy).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn policy_agrees_with_every_decision_of_the_golden_traces() {
    let (mut decisions, mut beyond) = (0, 0);
    for path in traces() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let report = report(&path, None);
        assert!(name.starts_with(report.policy.trim_start_matches("linux-")), "{name} with {}", report.policy);
        for (way, tally) in [("step by step", &report.step), ("running free", &report.free_running)] {
            let differing = tally.mismatches.iter().find(|mismatch| !mismatch.is_overlapping);
            assert!(tally.agrees(), "{name}, {way}: {differing:?}");
            // Decisions overlap only where threads share an open file.
            if !["threads", "processes", "khugepaged"].iter().any(|shared| name.contains(shared)) {
                assert_eq!((tally.matched, tally.resynchronised), (tally.decisions, 0), "{name}, {way}");
                assert_eq!((tally.folios_matched, tally.corrected), (tally.decisions, 0), "{name}, {way}");
                // Since 7.x a fault on a page in flight does not count, and the trace does not show whether a page was in flight.
                assert!(tally.balances_taken == 0 || report.policy == "linux-7.2", "{name}, {way}");
            }
            assert!(tally.matched * 100 >= tally.decisions * 98, "{name}, {way}");
            assert!(tally.decisions >= 50, "{name}, {way}: {} decisions", tally.decisions);
        }
        decisions += report.step.decisions;
        beyond += report.step.beyond_single_pages;
    }
    assert!(decisions > 5_000 && beyond > 3_000, "{decisions} decisions, {beyond} beyond single pages");
}

/// A decision has the same kind with both methods: a fault in a sequential mapping is a fault in both.
#[test]
fn both_methods_count_the_same_decisions_of_each_kind() {
    for path in traces() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Report { step, free_running: free, .. } = report(&path, None);
        for kind in KINDS {
            assert_eq!(step.of(kind).decisions, free.of(kind).decisions, "{name}: {kind:?}");
        }
    }
}

#[test]
fn policy_of_another_kernel_does_not_agree() {
    for (trace, policy) in
        [("6.18-fuse-64k-all", "linux-7.2"), ("6.18-ext4-128k-all", "linux-6.12"), ("7.2-ext4-128k-all", "linux-6.18")]
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{trace}.trace"));
        let report = report(&path, Some(policy));
        let free = &report.free_running;
        assert!(!report.agrees() && free.first_mismatch.is_some(), "{policy}");
        assert!(report.matched < report.decisions || free.matched < free.decisions, "{policy}");
    }
}
