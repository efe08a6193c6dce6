//! The request queue alone: turns, service times and queued time.

use ahead_device::{Model, Op};
use ahead_policy::FileId;
use ahead_sim::{Added, Done, Queue, Range, Scheduler};

const A: FileId = FileId(1);
const B: FileId = FileId(2);
/// Blocks that contain the places of a file's pages belong to no file that a process reads.
const POINTERS: FileId = FileId(u32::MAX);
const REQUEST_BYTES: u64 = 64 << 10;
const TURNAROUND_NS: u64 = 1_000_000;

fn queue() -> Queue {
    let model = Model::builtin("hdd").unwrap();
    Queue::new(&model, 1 << 30, 64, REQUEST_BYTES, Scheduler::Cfq).with_turnaround(TURNAROUND_NS)
}

/// Adds a whole request for a file, at a place counted in requests.
fn add(queue: &mut Queue, file: FileId, asker: FileId, place: u64) {
    let range = Range { file, first: place * 16, pages: 16, asker };
    assert_eq!(queue.add(Op::Read, place * REQUEST_BYTES, range, REQUEST_BYTES, 0), Added::Yes);
}

/// All completed requests, in order.
fn run(queue: &mut Queue) -> Vec<Done> {
    queue.unplug(0);
    let mut all = Vec::new();
    while let Some(at_ns) = queue.next_done_ns().into_iter().chain(queue.next_turn_ns()).min() {
        queue.turn_at(at_ns);
        all.extend(queue.take_done(at_ns, at_ns));
    }
    all
}

#[test]
fn next_request_waits_for_the_turnaround_beside_another_reader() {
    let [alone, beside] = [false, true].map(|is_beside| {
        let mut queue = queue();
        add(&mut queue, A, A, 0);
        add(&mut queue, A, A, 1);
        if is_beside {
            add(&mut queue, B, B, 1000);
        }
        run(&mut queue)
    });
    assert_eq!(beside[0].at_ns, alone[0].at_ns);
    let later_ns = beside[1].at_ns - alone[1].at_ns;
    // The drive reads on meanwhile: the pages already in its buffer need no pass of the head.
    assert!((1..=TURNAROUND_NS).contains(&later_ns), "{later_ns}");
    assert_eq!(beside[1].ranges[0].file, A, "it is still the slice of A");
}

/// Regression: a pointer block had a separate time slice.
#[test]
fn pointer_block_uses_the_slice_of_its_reader() {
    let mut queue = queue();
    add(&mut queue, A, A, 0);
    add(&mut queue, B, B, 1000);
    add(&mut queue, POINTERS, A, 10);
    let order: Vec<FileId> = run(&mut queue).iter().map(|done| done.ranges[0].file).collect();
    assert_eq!(order, [A, POINTERS, B]);
}

#[test]
fn queued_time_adds_up_over_all_requests() {
    let mut queue = queue();
    add(&mut queue, A, A, 0);
    add(&mut queue, A, A, 1);
    let done = run(&mut queue);
    // Two requests until the first completes, then one.
    assert_eq!(queue.account().queued_ns, 2 * done[0].at_ns + (done[1].at_ns - done[0].at_ns));
}
