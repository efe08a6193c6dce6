//! The library for programs in both worlds: the same accesses to a real file, and in the simulator with the policy of its name. The requests are
//! the same, one by one.
//!
//! ```text
//!     accesses ─┬─▶ Reader ─▶ a cold file in the page cache      requests, by the events of the library's log
//!               ╰─▶ simulated machine ─▶ policy `reader`         requests, by an observer of the policy
//! ```
//!
//! How fast the disk is differs between the worlds, so that it is fixed what has arrived: before a call everything that was requested
//! ([`Arrival::Early`]), or only the part of a piece in which the last call has ended ([`Arrival::Late`]).

use ahead_policy::policies::reader::Readers;
use ahead_policy::{FileId, OpenId, PAGE_BYTES, Parameters};
use ahead_read::stream::{Budget, Reader, ReaderOptions};
use ahead_sim::{Op, Program, Scenario};
use ahead_sys::cache;
use ahead_tests::rig::cold::{becomes_cold, cold_file};
use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

const FILE_BYTES: u64 = 12 << 20;

/// Longest call. Each is within one piece: a read that has found its first pages only may find the others at the second look on a fast disk.
const LONGEST_CALL_BYTES: u64 = 64 << 10;

/// A read without waiting starts the read of an absent page. A fast disk may answer before the call returns, so that the real reader misses no page
/// where the simulated one does. In about one of thirty runs on busy processors; different decisions would differ in each.
const ATTEMPTS: u32 = 5;

/// The budget of the reader in both worlds. It is small, so that its requests never fill the queue of the real device, which is emptied in time
/// only if a processor is free.
const BUDGET_BYTES: u64 = 1 << 20;

/// The longest request of the disk: a part of a piece that arrives as a whole.
const REQUEST_BYTES: u64 = 128 << 10;

/// What has arrived before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Early,
    Late,
}

thread_local! {
    /// The requests of the reader of this thread.
    static REQUESTED: RefCell<Vec<Range<u64>>> = const { RefCell::new(Vec::new()) };
}

/// Notes the requests in the log of the library. It is that of all threads: with one for each, events are lost while another one is dropped.
struct Requested;

#[derive(Default)]
struct Piece(Range<u64>);

impl Visit for Piece {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "start" => self.0.start = value,
            "end" => self.0.end = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl Subscriber for Requested {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ahead_read::requests"
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut piece = Piece::default();
        event.record(&mut piece);
        REQUESTED.with_borrow_mut(|requested| requested.push(piece.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Waits until these pages are read.
fn wait_for(file: &File, pieces: &[Range<u64>]) {
    let pages = pieces.iter().flat_map(|piece| (piece.start..piece.end.min(FILE_BYTES)).step_by(PAGE_BYTES as usize));
    for page in pages {
        while !cache::probe(file, page).unwrap() {
            std::thread::yield_now();
        }
    }
}

/// The requests of a reader of a real file. `None`, with the reason printed: it cannot be cold.
fn in_the_kernel(file: &File, calls: &[Range<u64>], arrival: Arrival) -> Option<Vec<Range<u64>>> {
    static SET: Once = Once::new();
    SET.call_once(|| tracing::subscriber::set_global_default(Requested).unwrap());
    REQUESTED.take();
    let requested = || REQUESTED.with_borrow(Vec::clone);
    let options = ReaderOptions::default().budget(Budget::new(BUDGET_BYTES));
    let mut reader = Reader::with_options(file.try_clone().unwrap(), options).unwrap();
    let mut buffer = vec![0; LONGEST_CALL_BYTES as usize];
    let mut seen = 0;
    let mut run = || {
        for call in calls {
            reader.read_at(&mut buffer[..(call.end - call.start) as usize], call.start).unwrap();
            let pieces = requested();
            wait_for(file, &pieces[seen..]);
            seen = pieces.len();
            if arrival == Arrival::Late {
                let last = call.end - 1;
                if !becomes_cold(file) {
                    return false;
                }
                if let Some(piece) = pieces.iter().rfind(|piece| piece.contains(&last)) {
                    let start = last - (last - piece.start) % REQUEST_BYTES;
                    let part = start..piece.end.min(start + REQUEST_BYTES);
                    cache::read_ahead(file, part.start, part.end - part.start).unwrap();
                    wait_for(file, &[part]);
                }
            }
        }
        true
    };
    let is_complete = becomes_cold(file) && run();
    is_complete.then(requested)
}

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

/// The requests of the policy on a simulated machine.
fn in_the_simulator(calls: &[Range<u64>], arrival: Arrival) -> Vec<Range<u64>> {
    let text = "policies = [\"reader\"]\n[machine]\nmemory_mb = 512\n[disk]\nmodel = \"slow.toml\"\n[[workload]]\npattern = \"sequential\"\nfile_mb = 1\n";
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("slow.toml"), SLOW_DISK).unwrap();
    let scenario = Scenario::from_toml(text, directory.path()).unwrap();
    let (open, file) = (OpenId(0), FileId(0));
    let pause = (arrival == Arrival::Early).then_some(Op::Sleep { time_ns: 100_000_000_000 });
    let ops = calls.iter().flat_map(|call| {
        let read = Op::Read { open, file, offset_bytes: call.start, length_bytes: call.end - call.start };
        [Some(read), pause].into_iter().flatten()
    });
    let ops: Vec<Op> = [Op::Open { open, file }].into_iter().chain(ops).collect();
    let program = Program { ops: Box::new(ops.into_iter()), user_per_page_ns: 0.0 };
    let log = Arc::new(Mutex::new(Vec::new()));
    let observed = log.clone();
    let parameters = Parameters { budget_pages: Some(BUDGET_BYTES / PAGE_BYTES), ..Parameters::default() };
    let policy =
        Readers::new(&parameters).observed(Box::new(move |piece| observed.lock().unwrap().push(piece.clone())));
    let counters = scenario.machine_with(Box::new(policy), &[FILE_BYTES / PAGE_BYTES], vec![program]).run();
    assert!(counters.ended);
    log.lock().unwrap().clone()
}

/// Calls of `length` bytes whose beginnings lie `step` bytes apart.
fn run(first: u64, length: u64, step: i64, count: usize) -> Vec<Range<u64>> {
    let starts = std::iter::successors(Some(first), |start| start.checked_add_signed(step));
    let calls = starts.map(|start| start..(start + length).min(FILE_BYTES));
    calls.take_while(|call| call.start < call.end).take(count).collect()
}

fn compare(calls: &[Range<u64>], arrival: Arrival) -> usize {
    // All readers of a process share the queue of a device: requests of another one could fill it.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(file) = cold_file(&vec![7; FILE_BYTES as usize]) else { return 0 };
    let simulated = in_the_simulator(calls, arrival);
    let mut requests = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(made) = in_the_kernel(&file.reopen().unwrap(), calls, arrival) else { return 0 };
        requests = made;
        if requests == simulated {
            return requests.len();
        }
    }
    let first = simulated.iter().zip(&requests).take_while(|(one, other)| one == other).count();
    assert_eq!(simulated[first..], requests[first..], "{arrival:?}, after {first} requests");
    first
}

#[test]
fn early_and_late_readers_request_the_same_pieces_in_both_worlds() {
    let calls = |length: u64, step: i64| {
        let first = if step < 0 { FILE_BYTES - length } else { 0 };
        run(first, length, step, usize::MAX)
    };
    for (length, step) in [(4096, 4096), (65_536, 65_536), (16_384, -16_384), (8192, 131_072), (5000, -200_000)] {
        let calls = calls(length, step);
        // The parts of a piece arrive upwards: a backward reader finds the others when it has waited for the last one.
        let is_upwards_or_short = step > 0 || step < -(REQUEST_BYTES as i64);
        let arrivals = [Arrival::Early, Arrival::Late].into_iter().take(1 + usize::from(is_upwards_or_short));
        for arrival in arrivals {
            let requests = compare(&calls, arrival);
            eprintln!("{} calls of {length} bytes, step {step}, {arrival:?}: {requests} equal requests", calls.len());
        }
    }
}
