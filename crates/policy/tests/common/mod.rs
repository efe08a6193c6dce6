//! Decisions of single readers.

use ahead_policy::steering::{Act, Kind, Machine, Seen, Steering};

/// The decisions of a reader with equal steps.
pub fn row(open: u64, first: u64, step: i64, length: u64, count: u64) -> Vec<Seen> {
    let page = |index: u64| first.checked_add_signed(step.saturating_mul(index as i64));
    (0..count)
        .map_while(page)
        .zip(1..)
        .map(|(page, number)| Seen {
            open,
            waits: number,
            wait_ns: 1000 * number,
            at_ns: 2000 * number,
            ..read(page, length)
        })
        .collect()
}

/// A call that misses, in a file of 1 GiB on a disk with a window of 128 KiB.
pub fn read(page: u64, wanted: u64) -> Seen {
    Seen {
        open: 1,
        file: 1,
        page,
        wanted,
        window_pages: 32,
        file_pages: 1 << 18,
        disk_window_pages: 32,
        baseline_window_pages: 32,
        has_descriptor: true,
        ..Seen::default()
    }
}

pub fn fault(page: u64) -> Seen {
    Seen { kind: Kind::Fault, mapping: Some((0, 1 << 18)), ..read(page, 1) }
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
pub fn sequential(steering: &mut Steering, from: u64, count: u64, wait_ns: impl Fn(u64) -> u64) -> Vec<Act> {
    let mut acts = Vec::new();
    let (mut page, mut waited) = (from, 0);
    for number in 1..=count {
        let window = steering.window(1).unwrap_or(32);
        waited += wait_ns(window);
        let at_ns = (from + number) * 1_000_000;
        let seen = Seen {
            kind: Kind::Marker,
            start: page,
            size: window,
            async_size: window,
            window_pages: window,
            at_ns,
            ..read(page, 4)
        };
        let seen = Seen { waits: number, wait_ns: waited, ..seen };
        acts.extend(steering.seen(&seen, &Machine::default()));
        page += window;
    }
    acts
}
