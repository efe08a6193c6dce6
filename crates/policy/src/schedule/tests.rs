//! The schedule alone: simulated workers and a simulated program.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const PAGE: u64 = 4096;

/// A budget for one consumer: counts what is held.
#[derive(Debug, Default)]
struct Held {
    bytes: u64,
    /// Nothing more is granted, unless nothing is held.
    is_exhausted: bool,
}

impl Reserve for Held {
    fn take(&mut self, bytes: u64) -> bool {
        let is_granted = self.bytes == 0 || !self.is_exhausted;
        self.bytes += if is_granted { bytes } else { 0 };
        is_granted
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }
}

fn absent(pages: u64, position: u64) -> Found {
    Found::Absent { bytes: pages * PAGE, place: Place { device: 1, is_rotating: false, position } }
}

fn schedule_of(items: u64, limits: Limits) -> (Schedule<()>, Held) {
    let mut schedule = Schedule::new(0, PAGE);
    schedule.set_limits(limits);
    (0..items).for_each(|_| schedule.push(Some(())));
    (schedule, Held::default())
}

/// Hands the next item over, with its path if it is needed.
fn hand_over<P: Clone>(schedule: &mut Schedule<P>, path: P) {
    let index = schedule.end();
    if schedule.next_with_path() == index { schedule.push(Some(path)) } else { schedule.push_later(index + 1) }
}

/// Carries out all work that can be started, and returns the items that were read, in their order.
fn run(schedule: &mut Schedule<()>, held: &mut Held, found: impl Fn(u64) -> Found) -> Vec<u64> {
    let mut read = Vec::new();
    while let Some(start) = schedule.next(held) {
        match start.work {
            Work::LookUp => schedule.looked_up(start.index, found(start.index)),
            Work::ReadAhead { bytes } => {
                schedule.requested(start.index, Some(bytes));
                read.push(start.index);
            }
        }
    }
    read
}

#[test]
fn items_of_the_window_are_read_and_none_beyond() {
    let (mut schedule, mut held) = schedule_of(20, Limits { items: 5, bytes: u64::MAX });
    schedule.take(1, &mut held);
    let mut read = run(&mut schedule, &mut held, |index| absent(2, index));
    read.sort_unstable();
    assert_eq!((read, held.bytes), (vec![1, 2, 3, 4, 5], 10 * PAGE));
    assert_eq!(schedule.outcomes().requested, 5);
}

#[test]
fn bytes_limit_the_window_and_consumed_items_make_room() {
    let (mut schedule, mut held) = schedule_of(20, Limits { items: 4096, bytes: 8 * PAGE });
    schedule.take(1, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(2, 0)).len(), 4);
    // Item 1 is consumed, and then item 2: half of the window is empty.
    schedule.take(3, &mut held);
    assert!(run(&mut schedule, &mut held, |_| absent(2, 0)).is_empty(), "three quarters are held");
    schedule.take(4, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(2, 0)), [5, 6]);
    assert_eq!(held.bytes, 8 * PAGE);
}

#[test]
fn batch_is_read_in_one_sweep_except_for_urgent_items() {
    let (mut schedule, mut held) = schedule_of(9, Limits { items: 4096, bytes: u64::MAX });
    schedule.take(1, &mut held);
    for _ in 0..8 {
        let start = schedule.next(&mut held).unwrap();
        assert_eq!(start.work, Work::LookUp);
        // The lookups end in the reverse order, so that all items are ready at once.
    }
    (1..9).rev().for_each(|index| schedule.looked_up(index, absent(1, 100 - index)));
    let read: Vec<u64> = std::iter::from_fn(|| schedule.next(&mut held).map(|start| start.index)).collect();
    assert_eq!(read, [1, 2, 8, 7, 6, 5, 4, 3]);
}

#[test]
fn sweep_continues_upwards_and_begins_again_at_the_bottom() {
    let (mut schedule, mut held) = schedule_of(100, Limits { items: 4096, bytes: u64::MAX });
    schedule.take(1, &mut held);
    let started: Vec<u64> = (1..100).map(|_| schedule.next(&mut held).unwrap().index).collect();
    assert_eq!(started.len(), 99);
    let is_cached = |index: &u64| ![50, 60, 70, 80, 90].contains(index);
    (1..100).filter(is_cached).for_each(|index| schedule.looked_up(index, Found::Cached));
    for (index, position) in [(50, 500), (60, 300), (70, 400)] {
        schedule.looked_up(index, absent(1, position));
    }
    assert_eq!(schedule.next(&mut held).unwrap().index, 60);
    schedule.looked_up(80, absent(1, 200));
    schedule.looked_up(90, absent(1, 450));
    let rest: Vec<u64> = std::iter::from_fn(|| schedule.next(&mut held).map(|start| start.index)).collect();
    assert_eq!(rest, [70, 90, 50, 80]);
}

#[test]
fn large_item_is_read_in_its_first_part_and_the_next_one_fits() {
    let (mut schedule, mut held) = schedule_of(3, Limits { items: 4096, bytes: 10 * PAGE });
    schedule.take(1, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1000, 0)), [1, 2]);
    assert_eq!(held.bytes, 10 * PAGE);
}

#[test]
fn one_page_is_enough_for_one_item_ahead() {
    let (mut schedule, mut held) = schedule_of(10, Limits { items: 4096, bytes: 1 });
    for taken in 1..10 {
        schedule.take(taken, &mut held);
        assert_eq!(run(&mut schedule, &mut held, |_| absent(7, 0)), [taken]);
        assert_eq!(held.bytes, PAGE);
    }
    schedule.take(10, &mut held);
    assert!(schedule.next(&mut held).is_none());
    assert_eq!((held.bytes, schedule.outcomes().requested), (0, 9));
}

#[test]
fn exhausted_budget_delays_items_and_one_is_granted() {
    let (mut schedule, mut held) = schedule_of(10, Limits { items: 4096, bytes: u64::MAX });
    held.is_exhausted = true;
    schedule.take(1, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)), [1]);
    schedule.take(2, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)), [2]);
    held.is_exhausted = false;
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)).len(), 7);
}

#[test]
fn hanging_lookup_holds_up_later_items_until_it_is_taken() {
    let (mut schedule, mut held) = schedule_of(10, Limits { items: 4096, bytes: 3 * PAGE });
    schedule.take(1, &mut held);
    assert_eq!(schedule.next(&mut held).unwrap().index, 1);
    assert!(run(&mut schedule, &mut held, |_| absent(1, 0)).is_empty());
    schedule.take(2, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)), [2, 3, 4]);
    schedule.looked_up(1, absent(1, 0));
    assert!(schedule.next(&mut held).is_none());
    assert_eq!((schedule.outcomes().late, schedule.outcomes().requested), (1, 3));
}

#[test]
fn cached_items_are_checked_less_and_less_until_one_is_absent() {
    let (mut schedule, mut held) = schedule_of(0, Limits { items: 4096, bytes: u64::MAX });
    let mut looked_up = 0;
    for taken in 0..10_000 {
        hand_over(&mut schedule, ());
        while let Some(start) = schedule.next(&mut held) {
            schedule.looked_up(start.index, Found::Cached);
            looked_up += 1;
        }
        schedule.take(taken, &mut held);
    }
    assert!((160..400).contains(&looked_up), "{looked_up} lookups");
    assert!(schedule.outcomes().unchecked > 9000);
    (0..LARGEST_STRIDE).for_each(|_| hand_over(&mut schedule, ()));
    let start = schedule.next(&mut held).unwrap();
    assert!(!schedule.needs_later_paths());
    schedule.looked_up(start.index, absent(1, 0));
    assert!(schedule.needs_later_paths() && schedule.next_hand_over() == 0);
    schedule.add_later_paths(|_| Some(()));
    assert!(!schedule.needs_later_paths());
    // Item 9999 and 64 more are not taken.
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)).len(), 65);
}

#[test]
fn items_are_handed_over_before_a_quarter_of_the_window_is_consumed() {
    let (mut schedule, mut held) = schedule_of(64, Limits { items: 8, bytes: u64::MAX });
    schedule.take(1, &mut held);
    run(&mut schedule, &mut held, |_| absent(1, 0));
    assert_eq!((schedule.items_ahead(), schedule.next_hand_over()), (8, 3));
    let (mut schedule, mut held) = schedule_of(1000, Limits { items: 4096, bytes: u64::MAX });
    schedule.take(1, &mut held);
    run(&mut schedule, &mut held, |_| absent(1, 0));
    assert_eq!(schedule.next_hand_over(), 65);
}

#[test]
fn items_behind_a_hanging_lookup_are_handed_over_when_its_item_is_taken() {
    let (mut schedule, mut held) = schedule_of(40, Limits { items: 4096, bytes: u64::MAX });
    schedule.take(1, &mut held);
    let hanging: Vec<u64> = (0..3).map(|_| schedule.next(&mut held).unwrap().index).collect();
    assert_eq!((hanging, run(&mut schedule, &mut held, |_| absent(1, 0)).len()), (vec![1, 2, 3], 0));
    for taken in 2..4 {
        assert_eq!(schedule.next_hand_over(), taken);
        schedule.take(taken, &mut held);
        assert!(schedule.next(&mut held).is_none());
    }
    assert_eq!(schedule.next_hand_over(), 4);
    schedule.take(4, &mut held);
    assert_eq!(run(&mut schedule, &mut held, |_| absent(1, 0)).len(), 36);
}

/// What happens next in a random history.
#[derive(Clone, Debug)]
enum Step {
    Push(u8),
    Take(u8),
    Start,
    /// Ends one of the started works: cached, unreadable, absent, or failed.
    Finish(prop::sample::Index, u8, u64),
    Limit(u64, u64),
    Exhaust(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1..40u8).prop_map(Step::Push),
        2 => (1..20u8).prop_map(Step::Take),
        6 => Just(Step::Start),
        6 => (any::<prop::sample::Index>(), 0..10u8, 0..20u64).prop_map(|(which, kind, n)| Step::Finish(which, kind, n)),
        1 => (0..50u64, 0..40u64).prop_map(|(items, pages)| Step::Limit(items, pages * PAGE)),
        1 => any::<bool>().prop_map(Step::Exhaust),
    ];
    prop::collection::vec(step, 1..400)
}

/// A schedule and what was seen of it.
struct Watched {
    schedule: Schedule<u64>,
    held: Held,
    taken: u64,
    limits: Limits,
    /// What was admitted to a larger window stays admitted.
    window_end: u64,
    running: Vec<(u64, Work)>,
    looked_up: BTreeSet<u64>,
    read: BTreeSet<u64>,
}

impl Watched {
    fn new() -> Watched {
        let limits = Limits { items: 20, bytes: 20 * PAGE };
        let mut schedule = Schedule::new(0, PAGE);
        schedule.set_limits(limits);
        Watched {
            schedule,
            held: Held::default(),
            taken: 0,
            limits,
            window_end: limits.items,
            running: Vec::new(),
            looked_up: BTreeSet::new(),
            read: BTreeSet::new(),
        }
    }

    fn push(&mut self, count: u8) {
        for _ in 0..count {
            let index = self.schedule.end();
            hand_over(&mut self.schedule, index);
        }
    }

    fn start(&mut self) -> Result<bool, TestCaseError> {
        if self.schedule.needs_later_paths() {
            self.schedule.add_later_paths(Some);
        }
        let before = self.held.bytes;
        self.window_end = self.window_end.max(self.taken + self.limits.items.max(1));
        let Some(start) = self.schedule.next(&mut self.held) else { return Ok(false) };
        prop_assert_eq!(start.index, start.path);
        prop_assert!(start.index >= self.taken, "a taken item is started");
        prop_assert!(start.index < self.window_end, "an item beyond the window is started");
        let started = if start.work == Work::LookUp { &mut self.looked_up } else { &mut self.read };
        prop_assert!(started.insert(start.index), "{} is started twice", start.index);
        prop_assert!(start.work == Work::LookUp || self.looked_up.contains(&start.index));
        let most = self.limits.bytes.max(PAGE);
        prop_assert!(self.held.bytes <= most.max(before), "{} of {most} bytes are held", self.held.bytes);
        self.running.push((start.index, start.work));
        Ok(true)
    }

    fn finish(&mut self, which: usize, kind: u8, n: u64) {
        let (index, work) = self.running.swap_remove(which);
        match (work, kind) {
            (Work::LookUp, 0..=4) => self.schedule.looked_up(index, Found::Cached),
            (Work::LookUp, 5) => self.schedule.looked_up(index, Found::Unreadable),
            (Work::LookUp, _) => self.schedule.looked_up(index, absent(n, index * 7 % 11)),
            (Work::ReadAhead { .. }, 0) => self.schedule.requested(index, None),
            (Work::ReadAhead { bytes }, _) => self.schedule.requested(index, Some(bytes)),
        }
    }

    fn take(&mut self, count: u8) {
        self.taken += u64::from(count);
        self.schedule.take(self.taken, &mut self.held);
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Push(count) => self.push(count),
            Step::Take(count) => self.take(count),
            Step::Start => drop(self.start()?),
            Step::Finish(which, kind, n) if !self.running.is_empty() => {
                self.finish(which.index(self.running.len()), kind, n);
            }
            Step::Finish(..) => {}
            Step::Limit(items, bytes) => {
                self.limits = Limits { items, bytes };
                self.schedule.set_limits(self.limits);
            }
            Step::Exhaust(is_exhausted) => self.held.is_exhausted = is_exhausted,
        }
        prop_assert_eq!(self.schedule.held_bytes, self.held.bytes);
        Ok(())
    }
}

proptest! {
    /// Never more than the window ahead; no item started twice, or after it was taken; each item counted once.
    #[test]
    fn any_history_stays_within_the_window(steps in steps()) {
        let mut watched = Watched::new();
        for step in steps {
            watched.step(step)?;
        }
        let end = watched.schedule.end().max(watched.taken);
        watched.schedule.take(end, &mut watched.held);
        let Outcomes { requested, cached, unreadable, late, not_started, unchecked, .. } = watched.schedule.outcomes();
        prop_assert_eq!(requested + cached + unreadable + late + not_started + unchecked, end);
        watched.schedule.take(end + 1, &mut watched.held);
        prop_assert_eq!(watched.held.bytes, 0);
    }

    /// A program that waits for the workers finds each item looked up and read exactly once, and always one read ahead.
    #[test]
    fn every_item_is_read_once_if_the_program_is_slow(
        sizes in prop::collection::vec(1..30u64, 2..200),
        items in 0..30u64,
        pages in 0..30u64,
        is_exhausted: bool,
    ) {
        let mut watched = Watched::new();
        watched.step(Step::Limit(items, pages * PAGE))?;
        watched.held.is_exhausted = is_exhausted;
        sizes.iter().for_each(|_| watched.push(1));
        for taken in 1..sizes.len() as u64 {
            watched.take(1);
            while watched.start()? {
                let index = watched.running[0].0;
                watched.finish(0, 9, sizes[index as usize]);
            }
            prop_assert!(watched.read.contains(&taken), "item {} is not read ahead", taken);
        }
        prop_assert_eq!(watched.schedule.outcomes().requested, sizes.len() as u64 - 1);
    }
}
