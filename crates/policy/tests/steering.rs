//! Properties of the steering for all decisions, times and counters; and its behaviour for single readers.

mod common;

use ahead_policy::steering::{
    Act, Class, Decision, Failure, Kind, Limits, Machine, Mapped, Progress, Readahead, Target,
};
use ahead_policy::{Advice, DeviceDescription};
use common::{Table, after, anywhere, fault, of, read, row, sequential, windows, with_window};
use proptest::prelude::*;

impl Table {
    fn with_baseline(self, baseline: u64) -> Table {
        Table { baseline, ..self }
    }

    fn tick(&mut self, now_ns: u64, machine: &Machine) -> Vec<Act> {
        self.steering.tick(self.files.values_mut(), now_ns, machine)
    }

    fn forget(&mut self, open: u64) {
        if let Some(mut file) = self.files.remove(&open) {
            self.steering.forget(&mut file);
        }
    }

    fn undone(&mut self, open: u64, failure: Failure) {
        if let Some(file) = self.files.get_mut(&open) {
            self.steering.undone(file, failure);
        }
    }
}

/// Numbers at the edges of their range, and ordinary ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..100u64,
        4 => 0..5000u64,
        1 => prop::sample::select(vec![0, 1, u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 32, i64::MAX as u64]),
        1 => any::<u64>(),
    ]
}

/// Counters and times go forwards or backwards.
fn decision() -> impl Strategy<Value = Decision> {
    let kind = prop::sample::select(vec![Kind::Miss, Kind::Miss, Kind::Marker, Kind::Fault]);
    let advice = prop::sample::select(vec![Advice::Normal, Advice::Normal, Advice::Normal, Advice::Random]);
    let which = (0..4u64, 0..2u64, kind, advice, any::<bool>(), prop::bool::weighted(0.05));
    let pages = (number(), number(), number(), number(), number(), any::<i64>());
    let counters = (number(), number(), number(), number(), number(), number());
    (which, pages, counters, window()).prop_map(|(which, pages, counters, window_pages)| {
        let (open, inode, kind, advice, has_descriptor, is_random) = which;
        let (page, wanted, start, size, async_size, prev_pos) = pages;
        let (at_ns, waits, wait_ns, issued_pages, wasted_pages, file_pages) = counters;
        let mapping = (kind == Kind::Fault).then_some(Mapped { first_page: start, end_page: size, address: 0, advice });
        Decision {
            at_ns,
            target: Target { open, inode, descriptor: has_descriptor.then_some(3), mapping, ..Target::default() },
            kind,
            page,
            wanted,
            before: Readahead { start, size, async_size, window_pages, prev_pos, is_random, mmap_miss: 0 },
            file_pages,
            disk_window_pages: 32,
            waits,
            wait_ns,
            issued_pages,
            wasted_pages,
            ..Decision::default()
        }
    })
}

fn window() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(32u64), 1 => number()]
}

fn device() -> impl Strategy<Value = DeviceDescription> {
    let odd = DeviceDescription { access_ns: u64::MAX, bandwidth_bytes_per_s: 0.0, ..DeviceDescription::FLASH };
    let none = DeviceDescription { parallelism: 0, request_ns: u64::MAX, access_ns: 0, ..DeviceDescription::FLASH };
    prop::sample::select(vec![
        DeviceDescription::FLASH,
        DeviceDescription::ROTATING,
        DeviceDescription::WU_2010,
        DeviceDescription { bandwidth_bytes_per_s: f64::NAN, ..odd },
        odd,
        none,
    ])
}

#[derive(Clone, Debug)]
enum Step {
    /// A decision; the window is the one that the last act has set, except for some.
    Decision(Box<Decision>, bool),
    /// A reader with equal steps.
    Row {
        open: u64,
        first: u64,
        step: i64,
        length: u64,
        count: u64,
    },
    Progress(u64, Progress),
    Tick(u64, bool),
    Forget(u64),
    Undone(u64, Failure),
}

fn step() -> impl Strategy<Value = Step> {
    let failure = prop::sample::select(vec![Failure::Gone, Failure::Refused, Failure::Busy, Failure::DryRun]);
    let progress = (0..4u64, number(), number(), prop::option::of((number(), number())))
        .prop_map(|(open, at_ns, page, waits)| Step::Progress(open, Progress { at_ns, page, waits }));
    let row = (0..4u64, number(), -80..80i64, 1..40u64, 1..40u64)
        .prop_map(|(open, first, step, length, count)| Step::Row { open, first, step, length, count });
    prop_oneof![
        8 => (decision(), prop::bool::weighted(0.9)).prop_map(|(decision, keeps)| Step::Decision(Box::new(decision), keeps)),
        4 => row,
        2 => progress,
        1 => (number(), any::<bool>()).prop_map(|(now_ns, pressure)| Step::Tick(now_ns, pressure)),
        1 => (0..4u64).prop_map(Step::Forget),
        1 => (0..4u64, failure).prop_map(|(open, failure)| Step::Undone(open, failure)),
    ]
}

fn check_acts(acts: &[Act]) -> Result<(), TestCaseError> {
    for act in acts {
        match act {
            Act::SetWindow { pages, reason, .. } => {
                prop_assert!(*pages >= 1, "{act:?}");
                prop_assert!(!reason.to_string().is_empty());
            }
            Act::Fetch { ranges, reason, .. } => {
                prop_assert!(!ranges.is_empty() && ranges.len() <= 1024, "{act:?}");
                prop_assert!(ranges.iter().all(|range| range.start < range.end), "{act:?}");
                let pages: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                prop_assert!(pages <= 1 << 40, "{act:?}");
                prop_assert!(!reason.to_string().is_empty());
            }
            Act::Restore { reason, .. } => prop_assert!(!reason.to_string().is_empty()),
            Act::Quiet { .. } => {}
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_decisions_give_bounded_acts(steps in prop::collection::vec(step(), 1..60), device in device(), baseline in window()) {
        let mut steering = Table::new(&Limits::default()).with_baseline(baseline);
        let machine = Machine { device, ..Machine::default() };
        for step in steps {
            let acts = match step {
                Step::Decision(seen, keeps) => {
                    let window = steering.window(seen.target.open).filter(|_| keeps);
                    let seen = with_window(window.unwrap_or(seen.before.window_pages), *seen);
                    let acts = steering.decide(&seen, &machine);
                    for act in &acts {
                        if let Act::Fetch { ranges, .. } = act {
                            prop_assert!(ranges.iter().all(|range| range.end <= seen.file_pages), "{seen:?}: {acts:?}");
                        }
                    }
                    acts
                }
                Step::Row { open, first, step, length, count } => {
                    row(open, first, step, length, count).iter().flat_map(|seen| steering.decide(seen, &machine)).collect()
                }
                Step::Progress(open, progress) => steering.progress(open, &progress, &machine),
                Step::Tick(now_ns, pressure) => steering.tick(now_ns, &Machine { pressure, ..machine }),
                Step::Forget(open) => { steering.forget(open); Vec::new() }
                Step::Undone(open, failure) => { steering.undone(open, failure); Vec::new() }
            };
            check_acts(&acts)?;
            let mut polls = (0..4).filter_map(|open| steering.poll_after_ns(open));
            prop_assert!(polls.all(|after| (1..=1_000_000_000).contains(&after)));
        }
    }

    /// An open file with its own advice gets no act, whatever it reads.
    #[test]
    fn advised_open_files_get_no_act(list in prop::collection::vec(decision(), 1..60)) {
        let mut steering = Table::new(&Limits::default()).with_baseline(64);
        for seen in list {
            prop_assert_eq!(steering.decide(&of(1, seen), &Machine::default()), vec![]);
            prop_assert_eq!(steering.class(1), Class::Advised);
        }
    }

    /// Backward readers of any block length are fetched ahead after three accesses, and all fetched pages are before the reader.
    #[test]
    fn backward_readers_are_fetched_ahead(length in 1..64u64, from in 10_000..200_000u64) {
        let mut steering = Table::new(&Limits::default());
        let first = from;
        for (number, seen) in row(1, first, -(length as i64), length, 3).iter().enumerate() {
            let acts = steering.decide(seen, &Machine::default());
            prop_assert_eq!(acts.len(), usize::from(number == 2), "{:?}", acts);
            for act in acts {
                let Act::Fetch { ranges, .. } = act else { panic!("{act:?}") };
                prop_assert!(ranges.iter().all(|range| range.end <= seen.page));
            }
        }
        prop_assert_eq!(steering.class(1), Class::Backward);
    }
}

#[test]
fn waiting_reader_gets_a_larger_window_and_keeps_it_if_it_helps() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&read(0, 4), &Machine::default());
    // It waits for 60 % of the time with the classic window, and not at all with a larger one.
    let acts = sequential(&mut steering, 32, 100, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(windows(&acts), [128]);
    assert_eq!((steering.class(1), steering.window(1)), (Class::Sequential, Some(128)));
    let effect = steering.effect(1).unwrap();
    assert!(effect.before.wait_ns > 0 && effect.after.wait_ns_per_mib() < effect.before.wait_ns_per_mib());
}

#[test]
fn larger_window_without_an_effect_is_set_back_and_not_tried_again_soon() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&read(0, 4), &Machine::default());
    // The disk is the limit: the wait per page stays the same.
    let acts = sequential(&mut steering, 32, 1000, |window| window * 20_000);
    assert_eq!(windows(&acts), [128, 0]);
    assert_eq!(steering.window(1), None);
}

#[test]
fn reader_without_waits_is_left_alone_and_becomes_quiet() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&read(0, 4), &Machine::default());
    let acts = sequential(&mut steering, 32, 100, |_| 0);
    assert_eq!(acts, [Act::Quiet { open: 1, quiet: true }]);
    let later = steering.tick(60_000_000_000, &Machine::default());
    assert_eq!(later, [Act::Quiet { open: 1, quiet: false }]);
}

/// The first windows of the kernel are small. Waits for these are no reason for a larger limit.
#[test]
fn kernel_ramp_is_no_reason_to_grow() {
    let mut steering = Table::new(&Limits::default());
    let mut acts = steering.decide(&read(0, 1), &Machine::default());
    for (number, (page, start, size)) in [(1, 0, 4), (4, 4, 16)].into_iter().enumerate() {
        let waits = 1 + number as u64;
        let (wait_ns, at_ns) = (1_000_000 * waits, 1_000_000 * waits);
        let seen = Decision { kind: Kind::Marker, waits, wait_ns, at_ns, ..after(start, size, read(page, 1)) };
        acts.extend(steering.decide(&seen, &Machine::default()));
    }
    assert_eq!(acts, []);
}

#[test]
fn random_faults_in_a_file_larger_than_memory_get_one_page_and_consecutive_ones_the_window_back() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    let mut acts = Vec::new();
    for number in 0..8u64 {
        let window = steering.window(1).unwrap_or(32);
        let seen = with_window(window, fault(anywhere(number)));
        acts.extend(steering.decide(&seen, &machine));
    }
    assert_eq!((windows(&acts), steering.class(1)), (vec![1], Class::RandomMapped));
    let consecutive = |steering: &mut Table| -> Vec<Act> {
        (1000..1020)
            .flat_map(|page| {
                let window_pages = steering.window(1).unwrap_or(32);
                steering.decide(&with_window(window_pages, fault(page)), &machine)
            })
            .collect()
    };
    assert_eq!(windows(&consecutive(&mut steering)), [0]);
    assert_eq!(steering.window(1), None);
}

/// A small file that is mapped fits into memory, and programs use much of it: libraries, indexes.
#[test]
fn random_faults_in_a_small_file_are_left_alone() {
    let mut steering = Table::new(&Limits::default());
    let faults = (0..100u64).flat_map(|number| {
        let seen = Decision { file_pages: 512, ..fault(number * 131 % 512) };
        steering.decide(&seen, &Machine::default())
    });
    assert_eq!(faults.collect::<Vec<_>>(), []);
}

#[test]
fn program_that_changes_the_window_itself_is_left_alone_from_then_on() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&read(0, 4), &Machine::default());
    let acts = sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(windows(&acts), [128]);
    // POSIX_FADV_NORMAL of the program: the window of the disk again.
    let acts = steering.decide(&Decision { at_ns: 1 << 40, ..read(5000, 4) }, &Machine::default());
    assert_eq!((acts, steering.class(1), steering.window(1)), (vec![], Class::Advised, None));
}

/// Regression: an open file that was first seen while the window of another one was set was left alone for good.
#[test]
fn window_of_the_disk_during_an_act_is_no_advice() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&Decision { disk_window_pages: 1, ..read(50_000, 4) }, &Machine::default());
    assert_eq!(steering.class(1), Class::Advised);
    for seen in row(1, 49_996, -4, 4, 3) {
        steering.decide(&seen, &Machine::default());
    }
    assert_eq!(steering.class(1), Class::Backward);
}

#[test]
fn strides_in_both_directions_are_fetched_after_three_accesses() {
    for (step, length) in [(16i64, 4u64), (8, 1), (-16, 4), (100, 3)] {
        let mut steering = Table::new(&Limits::default());
        let acts: Vec<Act> = row(1, 50_000, step, length, 3)
            .iter()
            .flat_map(|seen| steering.decide(seen, &Machine::default()))
            .collect();
        assert_eq!(steering.class(1), Class::Stride, "{step}");
        let next = 50_000i64 + 3 * step;
        let Some(Act::Fetch { ranges, .. }) = acts.first() else { panic!("{step}: {acts:?}") };
        assert_eq!(ranges[0], next as u64..next as u64 + length, "{step}");
    }
}

/// The steps of 16 readers through one open file look like a stride of one reader.
/// Regression: a file system whose files must not be opened again, or rules without fetches, ended the steering of windows, too.
#[test]
fn pattern_that_may_not_be_fetched_gets_no_act_and_a_stream_after_it_a_window() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { can_fetch: false, ..Machine::default() };
    let acts: Vec<Act> = row(1, 20_000, -4, 4, 50).iter().flat_map(|seen| steering.decide(seen, &machine)).collect();
    assert!(!acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
    let acts = sequential(&mut steering, 30_000, 200, |_| 500_000);
    assert!(acts.iter().any(|act| matches!(act, Act::SetWindow { .. })), "{acts:?}");
}

#[test]
fn several_readers_at_equal_distances_are_no_stride() {
    let mut steering = Table::new(&Limits::default());
    let mut acts = Vec::new();
    for round in 0..4u64 {
        for reader in 0..16u64 {
            acts.extend(steering.decide(&read(reader * 2048 + round * 4, 4), &Machine::default()));
        }
    }
    assert!(acts.iter().all(|act| !matches!(act, Act::Fetch { .. })), "{acts:?}");
    assert_eq!(steering.class(1), Class::Interleaved);
}

#[test]
fn polls_fetch_the_next_pages_before_the_reader_misses() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine::default();
    let mut fetched_to = 50_000;
    let mut take = |acts: Vec<Act>| {
        for act in acts {
            let Act::Fetch { ranges, .. } = act else { panic!("{act:?}") };
            ranges.iter().for_each(|range| fetched_to = fetched_to.min(range.start));
        }
        fetched_to
    };
    for seen in row(1, 50_000, -4, 4, 3) {
        take(steering.decide(&seen, &machine));
    }
    let mut now_ns = 10_000;
    for block in 3..500u64 {
        let first = 50_000 - 4 * block;
        now_ns += steering.poll_after_ns(1).unwrap();
        let progress = Progress { at_ns: now_ns, page: first + 3, waits: Some((block, block * 1000)) };
        let edge = take(steering.progress(1, &progress, &machine));
        assert!(edge < first, "block {block}: the reader is at {first}, fetched to {edge}");
    }
}

#[test]
fn reader_that_leaves_its_pattern_gets_no_fetches_for_a_while() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine::default();
    let mut acts = Vec::new();
    for part in 0..100u64 {
        for seen in row(1, 10_000 + part * 5000, -16, 16, 4) {
            acts.extend(steering.decide(&Decision { at_ns: part, ..seen }, &machine));
        }
    }
    let fetches = acts.iter().filter(|act| matches!(act, Act::Fetch { .. })).count();
    assert!(windows(&acts).contains(&0), "{acts:?}");
    assert!(fetches < 40, "{fetches}");
}

#[test]
fn eight_hundred_streams_share_a_small_memory() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 16_384, ..Machine::default() };
    let mut set = std::collections::HashMap::new();
    for round in 0..40u64 {
        for open in 1..=800u64 {
            let window = set.get(&open).copied().unwrap_or(32);
            let page = round * window;
            let seen = with_window(window, after(page, window, of(open, read(page, 1))));
            let seen = Decision { kind: Kind::Marker, at_ns: round * 1_000_000_000, ..seen };
            for act in steering.decide(&seen, &machine) {
                if let Act::SetWindow { open, pages, .. } = act {
                    set.insert(open, pages);
                }
            }
        }
    }
    let sum: u64 = (1..=800).map(|open| set.get(&open).copied().unwrap_or(32)).sum();
    assert!(sum <= 16_384 / 4, "{sum}");
}

/// Regression: the first of many slow streams kept their windows until their next decision, and the kernel had given them all of it by then.
#[test]
fn slow_streams_get_their_part_before_their_next_decision() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 16_384, ..Machine::default() };
    let mut acts = Vec::new();
    for (round, page) in [(0, 0), (1, 1), (2, 4)] {
        for open in 1..=200u64 {
            let kind = if page == 0 { Kind::Miss } else { Kind::Marker };
            let at_ns = round * 1_000_000_000 + open;
            acts.extend(steering.decide(&Decision { kind, at_ns, ..of(open, read(page, 1)) }, &machine));
        }
        // The memory of the machine is no reason to leave a control group's streams alone.
        acts.extend(steering.tick((round + 1) * 1_000_000_000, &Machine::default()));
    }
    let set = |open| acts.iter().any(|act| matches!(act, Act::SetWindow { open: of, .. } if *of == open));
    assert!((1..=200).all(set) && windows(&acts).iter().max() == Some(&16), "{acts:?}");
}

#[test]
fn pressure_shrinks_windows_at_once() {
    let mut steering = Table::new(&Limits::default());
    steering.decide(&read(0, 4), &Machine::default());
    sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(steering.window(1), Some(128));
    let machine = Machine { pressure: true, ..Machine::default() };
    let acts = steering.tick(60_000_000, &machine);
    assert_eq!(windows(&acts), [64], "{acts:?}");
}

#[test]
fn acts_that_are_only_printed_are_not_repeated_at_once() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    let mut count = 0;
    for number in 0..1000u64 {
        let acts = steering.decide(&Decision { at_ns: number, ..fault(anywhere(number)) }, &machine);
        count += acts.len();
        if !acts.is_empty() {
            steering.undone(1, Failure::DryRun);
        }
    }
    assert_eq!((count, steering.class(1)), (1, Class::RandomMapped));
}

/// Regression: after useless fetches an enlarged window was set back, and the next decision with it counted as advice of the program.
#[test]
fn window_is_set_back_after_useless_fetches_and_the_file_is_steered_again() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine::default();
    steering.decide(&read(0, 4), &machine);
    sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(steering.window(1), Some(128));
    let mut acts = Vec::new();
    for part in 0..100u64 {
        for seen in row(1, 10_000 + part * 2000, -16, 16, 4) {
            let window_pages = steering.window(1).unwrap_or(32);
            acts.extend(steering.decide(&with_window(window_pages, Decision { at_ns: part, ..seen }), &machine));
        }
    }
    assert!(acts.iter().any(|act| matches!(act, Act::Restore { .. })), "{acts:?}");
    assert_eq!((steering.window(1), steering.class(1)), (None, Class::Backward));
}

#[test]
fn reader_that_stops_is_polled_no_longer() {
    let mut steering = Table::new(&Limits::default());
    for seen in row(1, 50_000, -4, 4, 3) {
        steering.decide(&seen, &Machine::default());
    }
    let mut now_ns = 10_000;
    let mut polls = 0;
    while let Some(after_ns) = steering.poll_after_ns(1) {
        now_ns += after_ns;
        polls += 1;
        assert!(polls < 200);
        steering.progress(1, &Progress { at_ns: now_ns, page: 49_995, waits: None }, &Machine::default());
    }
    assert!(now_ns < 120_000_000_000, "{now_ns}");
}

/// A window that cannot be set is not asked for.
#[test]
fn open_file_without_a_descriptor_gets_no_window() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    for number in 0..100u64 {
        let fault = fault(anywhere(number));
        let seen = Decision { target: Target { descriptor: None, ..fault.target }, ..fault };
        assert_eq!(steering.decide(&seen, &machine), []);
    }
    assert_eq!(steering.class(1), Class::RandomMapped);
}

/// The calls of a reader in no order, for each of which the kernel reads 16 pages.
fn read_too_much(machine: &Machine) -> Vec<u64> {
    let mut steering = Table::new(&Limits::default());
    let mut acts = Vec::new();
    for number in 1..=130u64 {
        let window_pages = steering.window(1).unwrap_or(32);
        let read = with_window(window_pages, read(anywhere(number), 1));
        acts.extend(steering.decide(&Decision { issued_pages: 16 * number, at_ns: number, ..read }, machine));
    }
    windows(&acts)
}

/// In a file that fits into memory the kernel reads more where its pages are cached already: they will be used.
#[test]
fn random_reads_of_a_file_larger_than_memory_get_a_small_window_if_the_kernel_reads_more() {
    let small = Machine { available_pages: 1 << 16, ..Machine::default() };
    assert_eq!(read_too_much(&small), [2]);
    let large = Machine { available_pages: 1 << 19, ..Machine::default() };
    assert_eq!(read_too_much(&large), []);
}
