//! Decisions of single readers, and a table of open files.

use ahead_policy::steering::{
    Act, Class, Decision, Effect, Kind, Limits, Machine, Mapped, OpenFile, Progress, Readahead, Steering, Target,
};
use std::collections::BTreeMap;

/// The steering of open files with the same window before the first act.
pub struct Table {
    pub steering: Steering,
    pub files: BTreeMap<u64, OpenFile>,
    pub baseline: u64,
}

impl Table {
    pub fn new(limits: &Limits) -> Table {
        Table { steering: Steering::new(limits), files: BTreeMap::new(), baseline: 32 }
    }

    pub fn decide(&mut self, decision: &Decision, machine: &Machine) -> Vec<Act> {
        let file = self.files.entry(decision.target.open).or_insert_with(|| OpenFile::new(self.baseline));
        self.steering.decide(file, decision, machine)
    }

    pub fn progress(&mut self, open: u64, progress: &Progress, machine: &Machine) -> Vec<Act> {
        let file = self.files.entry(open).or_insert_with(|| OpenFile::new(self.baseline));
        self.steering.progress(file, progress, machine).into_iter().collect()
    }

    pub fn class(&self, open: u64) -> Class {
        self.files.get(&open).map_or(Class::Unknown, OpenFile::class)
    }

    pub fn window(&self, open: u64) -> Option<u64> {
        self.files.get(&open)?.window()
    }

    pub fn effect(&self, open: u64) -> Option<Effect> {
        self.files.get(&open)?.effect()
    }

    pub fn poll_after_ns(&self, open: u64) -> Option<u64> {
        self.files.get(&open)?.poll_after_ns()
    }
}

/// The decision with another window of its open file.
pub fn with_window(window_pages: u64, decision: Decision) -> Decision {
    Decision { before: Readahead { window_pages, ..decision.before }, ..decision }
}

/// The decision with another window of the kernel before it.
pub fn after(start: u64, size: u64, decision: Decision) -> Decision {
    Decision { before: Readahead { start, size, async_size: size, ..decision.before }, ..decision }
}

/// The decision about another open file.
pub fn of(open: u64, decision: Decision) -> Decision {
    Decision { target: Target { open, inode: open, ..decision.target }, ..decision }
}

/// The decisions of a reader with equal steps.
pub fn row(open: u64, first: u64, step: i64, length: u64, count: u64) -> Vec<Decision> {
    let page = |index: u64| first.checked_add_signed(step.saturating_mul(index as i64));
    (0..count)
        .map_while(page)
        .zip(1..)
        .map(|(page, number)| Decision {
            waits: number,
            wait_ns: 1000 * number,
            at_ns: 2000 * number,
            ..of(open, read(page, length))
        })
        .collect()
}

/// A call that misses, in a file of 1 GiB on a disk with a window of 128 KiB.
pub fn read(page: u64, wanted: u64) -> Decision {
    Decision {
        target: Target { open: 1, inode: 1, descriptor: Some(3), ..Target::default() },
        page,
        wanted,
        before: Readahead { window_pages: 32, ..Readahead::default() },
        file_pages: 1 << 18,
        disk_window_pages: 32,
        ..Decision::default()
    }
}

pub fn fault(page: u64) -> Decision {
    let read = read(page, 1);
    let mapping = Some(Mapped { end_page: 1 << 18, ..Mapped::default() });
    Decision { kind: Kind::Fault, target: Target { mapping, ..read.target }, ..read }
}

/// A page of the file for each number, in no order.
pub fn anywhere(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 46
}

/// The windows that acts set, in order; 0: set back.
pub fn windows(acts: &[Act]) -> Vec<u64> {
    let window = |act: &Act| match act {
        Act::SetWindow { pages, .. } => Some(*pages),
        Act::Restore { .. } => Some(0),
        _ => None,
    };
    acts.iter().filter_map(window).collect()
}

/// A sequential reader at its marker, with full windows of `window` pages: one decision for each window. The reader waits for `wait_ns` of
/// each millisecond.
pub fn sequential(steering: &mut Table, from: u64, count: u64, wait_ns: impl Fn(u64) -> u64) -> Vec<Act> {
    let mut acts = Vec::new();
    let (mut page, mut waited) = (from, 0);
    for number in 1..=count {
        let window = steering.window(1).unwrap_or(32);
        waited += wait_ns(window);
        let at_ns = (from + number) * 1_000_000;
        let marker = with_window(window, after(page, window, read(page, 4)));
        let marker = Decision { kind: Kind::Marker, at_ns, waits: number, wait_ns: waited, ..marker };
        acts.extend(steering.decide(&marker, &Machine::default()));
        page += window;
    }
    acts
}
