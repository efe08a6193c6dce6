//! `Reader`, and the policy `reader`. The requests of the library are those in its log.
//!
//! How fast the disk is differs between the worlds, so that it is fixed what has arrived: before a call everything that was requested
//! ([`Arrival::Early`]), or only the part of a piece in which the last call has ended ([`Arrival::Late`]). During a call nothing arrives: a read
//! without waiting (`RWF_NOWAIT`) starts the read of an absent page, and must return before its end.

use super::{PAUSE_NS, scenario};
use crate::library::target::{ColdFile, Target};
use ahead::{Budget, Reader, ReaderOptions};
use ahead_policy::policies::reader::Readers;
use ahead_policy::{FileId, OpenId, PAGE_BYTES, Parameters};
use ahead_sim::{Op, Program};
use ahead_sys::cache;
use ahead_tests::rig::prelude::unless_reclaimed;
use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, Once};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

const FILE_BYTES: u64 = 4 << 20;

/// Longest call. Each is within one piece: a read that has found its first pages only may find the others at the second look on a fast disk.
const LONGEST_CALL_BYTES: u64 = 64 << 10;

/// Time of each read of the disk during a call, milliseconds: longer than a thread waits for a busy processor.
const STALL_MS: u64 = 100;

/// The budget of the reader in both worlds. It is small, so that its requests never fill the queue of the device.
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

/// The requests of a reader of a real file.
fn in_the_kernel(target: &Target, cold: &ColdFile, calls: &[Range<u64>], arrival: Arrival) -> Vec<Range<u64>> {
    static SET: Once = Once::new();
    SET.call_once(|| tracing::subscriber::set_global_default(Requested).unwrap());
    REQUESTED.take();
    let requested = || REQUESTED.with_borrow(Vec::clone);
    let options = ReaderOptions::default().budget(Budget::new(BUDGET_BYTES));
    cold.make_cold();
    let file = File::open(&cold.path).unwrap();
    let mut reader = Reader::with_options(file.try_clone().unwrap(), options).unwrap();
    let mut buffer = vec![0; LONGEST_CALL_BYTES as usize];
    let mut seen = 0;
    for call in calls {
        target.stall(STALL_MS);
        reader.read_at(&mut buffer[..(call.end - call.start) as usize], call.start).unwrap();
        target.heal();
        let pieces = requested();
        wait_for(&file, &pieces[seen..]);
        seen = pieces.len();
        if arrival == Arrival::Late {
            let last = call.end - 1;
            cold.make_cold();
            if let Some(piece) = pieces.iter().rfind(|piece| piece.contains(&last)) {
                let start = last - (last - piece.start) % REQUEST_BYTES;
                let part = start..piece.end.min(start + REQUEST_BYTES);
                cache::read_ahead(&file, part.start, part.end - part.start).unwrap();
                wait_for(&file, &[part]);
            }
        }
    }
    requested()
}

/// The requests of the policy on a simulated machine.
fn in_the_simulator(calls: &[Range<u64>], arrival: Arrival) -> Vec<Range<u64>> {
    let (open, file) = (OpenId(0), FileId(0));
    let pause = (arrival == Arrival::Early).then_some(Op::Sleep { time_ns: PAUSE_NS });
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
    let counters = scenario().machine_with(Box::new(policy), &[FILE_BYTES / PAGE_BYTES], vec![program]).run();
    assert!(counters.ended);
    log.lock().unwrap().clone()
}

/// Calls of `length` bytes whose beginnings lie `step` bytes apart.
fn run(first: u64, length: u64, step: i64, count: usize) -> Vec<Range<u64>> {
    let starts = std::iter::successors(Some(first), |start| start.checked_add_signed(step));
    let calls = starts.map(|start| start..(start + length).min(FILE_BYTES));
    calls.take_while(|call| call.start < call.end).take(count).collect()
}

fn compare(target: &Target, file: &ColdFile, calls: &[Range<u64>], arrival: Arrival) -> usize {
    let (simulated, real) = (in_the_simulator(calls, arrival), in_the_kernel(target, file, calls, arrival));
    let first = simulated.iter().zip(&real).take_while(|(one, other)| one == other).count();
    assert_eq!(simulated[first..], real[first..], "{arrival:?}, after {first} requests");
    first
}

#[test]
fn early_and_late_readers_request_the_same_pieces_in_both_worlds() {
    unless_reclaimed(compare_readers);
}

fn compare_readers() {
    // All readers of a process share the queue of a device.
    let Some(target) = Target::alone("two-worlds") else { return };
    let file = target.cold_file("file", FILE_BYTES);
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
            let requests = compare(&target, &file, &calls, arrival);
            eprintln!("{} calls of {length} bytes, step {step}, {arrival:?}: {requests} equal requests", calls.len());
        }
    }
}
