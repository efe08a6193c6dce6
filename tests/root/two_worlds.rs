//! The library for programs, and the prefetch of a profile, in both worlds: the same accesses to real files, and in the simulator with the policy
//! of the name. The requests are the same, one by one.
//!
//! ```text
//!     accesses ─┬─▶ Reader, advise, Prefetcher, Replay ─▶ cold files on an emulated disk     requests
//!               ╰─▶ policy of the name, planner ────────▶ simulated machine                  requests
//! ```
//!
//! How fast a disk is differs between the worlds. So it is fixed what has arrived before each access.

mod mapped;
mod plan;
mod prefetcher;
mod reader;

use ahead_model::RangeSet;
use ahead_policy::{Access, Event, FileId, Found, PAGE_BYTES, Policy, Requests, View, Wants};
use ahead_sim::{Op, Program, Scenario};
use std::sync::{Arc, Mutex};

/// A pause of the simulated program in which everything arrives, nanoseconds.
const PAUSE_NS: u64 = 100_000_000_000;

/// A disk with ten requests a second: a part of a piece is in flight while the reader uses the one before it.
const SLOW_DISK: &str = r#"
    kind = "cloud"
    name = "slow"
    latency_us = 1000
    iops = 10
    mb_per_s = 10000
    io_unit_kb = 128
    burst_ios = 1
    burst_kb = 65536
    outstanding = 128
    scheduler = "none"
    nr_requests = 1023
    max_request_kb = 128
"#;

const SCENARIO: &str = r#"
    policies = ["none"]
    [machine]
    memory_mb = 512
    [disk]
    model = "slow.toml"
    [[workload]]
    pattern = "sequential"
    file_mb = 1
"#;

/// A machine with the slow disk.
fn scenario() -> Scenario {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("slow.toml"), SLOW_DISK).unwrap();
    Scenario::from_toml(SCENARIO, directory.path()).unwrap()
}

/// What is requested up to the end of a step, by file: bytes.
type Requested = Vec<RangeSet>;

/// A policy, and what it requests or the kernel reads for an access, in each step.
struct ObservedPolicy {
    policy: Box<dyn Policy>,
    log: Arc<Mutex<Vec<Requested>>>,
}

impl ObservedPolicy {
    fn note(&self, view: &dyn View, requests: &mut Requests, read_alone: Option<&Access>) {
        let mut log = self.log.lock().unwrap();
        let step = ((view.now_ns() / PAUSE_NS) as usize).min(log.len() - 1);
        let alone = read_alone.filter(|access| !requests.cover(access.file, access.page));
        let mut add = |file: FileId, first: u64, pages: u64| {
            let bytes = first * PAGE_BYTES..(first + pages) * PAGE_BYTES;
            log[step..].iter_mut().for_each(|requested| requested[file.0 as usize].insert(bytes.clone()));
        };
        alone.into_iter().for_each(|access| add(access.file, access.page, 1));
        for request in requests.take() {
            add(request.file, request.first, request.pages);
            requests.add(request);
        }
    }
}

impl Policy for ObservedPolicy {
    fn wants(&self) -> Wants {
        self.policy.wants()
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        self.policy.access(access, view, requests);
        self.note(view, requests, Some(access).filter(|access| access.found == Found::Absent));
    }

    fn event(&mut self, event: &Event, view: &dyn View, requests: &mut Requests) {
        self.policy.event(event, view, requests);
        self.note(view, requests, None);
    }
}

/// What is requested up to the end of each step of a program. A step is an operation, after which everything arrives.
fn simulated(policy: Box<dyn Policy>, file_bytes: &[u64], first: Option<Op>, steps: &[Op]) -> Vec<Requested> {
    let log = Arc::new(Mutex::new(vec![vec![RangeSet::new(); file_bytes.len()]; steps.len()]));
    let pauses = steps.iter().flat_map(|op| [*op, Op::Sleep { time_ns: PAUSE_NS }]);
    let ops: Vec<Op> = first.into_iter().chain(pauses).collect();
    let program = Program { ops: Box::new(ops.into_iter()), user_per_page_ns: 0.0 };
    let pages: Vec<u64> = file_bytes.iter().map(|bytes| bytes.div_ceil(PAGE_BYTES)).collect();
    let observed = ObservedPolicy { policy, log: log.clone() };
    assert!(scenario().machine_with(Box::new(observed), &pages, vec![program]).run().ended);
    log.lock().unwrap().clone()
}
