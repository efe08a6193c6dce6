//! Properties of the steering for all decisions, times and counters; and its behaviour for single readers.

mod common;

use ahead_policy::steering::{Act, Class, Failure, Kind, Limits, Machine, Progress, Seen, Steering};
use ahead_policy::{Advice, DeviceDescription};
use common::{anywhere, fault, read, row, sequential, windows};
use proptest::prelude::*;

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
fn seen() -> impl Strategy<Value = Seen> {
    let kind = prop::sample::select(vec![Kind::Miss, Kind::Miss, Kind::Marker, Kind::Fault]);
    let advice = prop::sample::select(vec![Advice::Normal, Advice::Normal, Advice::Normal, Advice::Random]);
    let window = prop_oneof![6 => Just(32u64), 1 => number()];
    let which = (0..4u64, 0..2u64, kind, advice, any::<bool>(), prop::bool::weighted(0.05));
    let pages = (number(), number(), number(), number(), number(), prop::option::of(number()));
    let counters = (number(), number(), number(), number(), number(), number());
    (which, pages, counters, window.clone(), window).prop_map(|(which, pages, counters, window_pages, baseline)| {
        let (open, file, kind, advice, has_descriptor, is_random) = which;
        let (page, wanted, start, size, async_size, prev_page) = pages;
        let (at_ns, waits, wait_ns, issued_pages, wasted_pages, file_pages) = counters;
        let mapping = (kind == Kind::Fault).then_some((start, size));
        Seen {
            at_ns,
            open,
            file,
            kind,
            page,
            wanted,
            start,
            size,
            async_size,
            window_pages,
            prev_page,
            is_random,
            file_pages,
            disk_window_pages: 32,
            baseline_window_pages: baseline,
            waits,
            wait_ns,
            issued_pages,
            wasted_pages,
            has_descriptor,
            mapping,
            advice,
        }
    })
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
    Seen(Box<Seen>, bool),
    /// A reader with equal steps.
    Row {
        open: u64,
        first: u64,
        step: i64,
        length: u64,
        count: u64,
    },
    Progress(Progress),
    Tick(u64, bool),
    Forget(u64),
    Undone(u64, Failure),
}

fn step() -> impl Strategy<Value = Step> {
    let failure = prop::sample::select(vec![Failure::Gone, Failure::Refused, Failure::Busy, Failure::DryRun]);
    let progress = (0..4u64, number(), number(), prop::option::of((number(), number())))
        .prop_map(|(open, at_ns, page, waits)| Step::Progress(Progress { open, at_ns, page, waits }));
    let row = (0..4u64, number(), -80..80i64, 1..40u64, 1..40u64)
        .prop_map(|(open, first, step, length, count)| Step::Row { open, first, step, length, count });
    prop_oneof![
        8 => (seen(), prop::bool::weighted(0.9)).prop_map(|(seen, keeps)| Step::Seen(Box::new(seen), keeps)),
        4 => row,
        2 => progress,
        1 => (number(), any::<bool>()).prop_map(|(now_ns, pressure)| Step::Tick(now_ns, pressure)),
        1 => (0..4u64).prop_map(Step::Forget),
        1 => (0..4u64, failure).prop_map(|(open, failure)| Step::Undone(open, failure)),
    ]
}

fn check_acts(acts: &[Act], limits: &Limits) -> Result<(), TestCaseError> {
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
    prop_assert!(limits.max_files > 0);
    Ok(())
}

proptest! {
    #[test]
    fn any_decisions_give_bounded_acts(steps in prop::collection::vec(step(), 1..60), device in device(), files in 1..4usize) {
        let limits = Limits { max_files: files, ..Limits::default() };
        let mut steering = Steering::new(&limits);
        let machine = Machine { device, ..Machine::default() };
        for step in steps {
            let acts = match step {
                Step::Seen(seen, keeps) => {
                    let window = steering.window(seen.open).filter(|_| keeps).unwrap_or(seen.window_pages);
                    let seen = Seen { window_pages: window, ..*seen };
                    let acts = steering.seen(&seen, &machine);
                    for act in &acts {
                        if let Act::Fetch { ranges, .. } = act {
                            prop_assert!(ranges.iter().all(|range| range.end <= seen.file_pages), "{seen:?}: {acts:?}");
                        }
                    }
                    acts
                }
                Step::Row { open, first, step, length, count } => {
                    row(open, first, step, length, count).iter().flat_map(|seen| steering.seen(seen, &machine)).collect()
                }
                Step::Progress(progress) => steering.progress(&progress, &machine),
                Step::Tick(now_ns, pressure) => steering.tick(now_ns, &Machine { pressure, ..machine }),
                Step::Forget(open) => { steering.forget(open); Vec::new() }
                Step::Undone(open, failure) => { steering.undone(open, failure); Vec::new() }
            };
            check_acts(&acts, &limits)?;
            prop_assert!(steering.files() <= files);
            for open in steering.polled() {
                prop_assert!(steering.poll_after_ns(open).is_some_and(|after| (1..=1_000_000_000).contains(&after)));
            }
        }
    }

    /// An open file with its own advice gets no act, whatever it reads.
    #[test]
    fn advised_open_files_get_no_act(list in prop::collection::vec(seen(), 1..60)) {
        let mut steering = Steering::new(&Limits::default());
        for seen in list {
            let advised = Seen { open: 1, file: 1, baseline_window_pages: 64, ..seen };
            prop_assert_eq!(steering.seen(&advised, &Machine::default()), vec![]);
            prop_assert_eq!(steering.class(1), Class::Advised);
        }
    }

    /// Backward readers of any block length are fetched ahead after three accesses, and all fetched pages are before the reader.
    #[test]
    fn backward_readers_are_fetched_ahead(length in 1..64u64, from in 10_000..200_000u64) {
        let mut steering = Steering::new(&Limits::default());
        let first = from;
        for (number, seen) in row(1, first, -(length as i64), length, 3).iter().enumerate() {
            let acts = steering.seen(&Seen { file: 1, ..*seen }, &Machine::default());
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
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&read(0, 4), &Machine::default());
    // It waits for 60 % of the time with the classic window, and not at all with a larger one.
    let acts = sequential(&mut steering, 32, 100, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(windows(&acts), [128]);
    assert_eq!((steering.class(1), steering.window(1)), (Class::Sequential, Some(128)));
    let effect = steering.effect(1).unwrap();
    assert!(effect.before.wait_ns > 0 && effect.after.wait_ns_per_mib() < effect.before.wait_ns_per_mib());
}

#[test]
fn larger_window_without_an_effect_is_set_back_and_not_tried_again_soon() {
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&read(0, 4), &Machine::default());
    // The disk is the limit: the wait per page stays the same.
    let acts = sequential(&mut steering, 32, 1000, |window| window * 20_000);
    assert_eq!(windows(&acts), [128, 0]);
    assert_eq!(steering.window(1), None);
}

#[test]
fn reader_without_waits_is_left_alone_and_becomes_quiet() {
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&read(0, 4), &Machine::default());
    let acts = sequential(&mut steering, 32, 100, |_| 0);
    assert_eq!(acts, [Act::Quiet { open: 1, quiet: true }]);
    let later = steering.tick(60_000_000_000, &Machine::default());
    assert_eq!(later, [Act::Quiet { open: 1, quiet: false }]);
}

/// The first windows of the kernel are small. Waits for these are no reason for a larger limit.
#[test]
fn kernel_ramp_is_no_reason_to_grow() {
    let mut steering = Steering::new(&Limits::default());
    let mut acts = steering.seen(&read(0, 1), &Machine::default());
    for (number, (page, start, size)) in [(1, 0, 4), (4, 4, 16)].into_iter().enumerate() {
        let waits = 1 + number as u64;
        let seen = Seen {
            kind: Kind::Marker,
            start,
            size,
            waits,
            wait_ns: 1_000_000 * waits,
            at_ns: 1_000_000 * waits,
            ..read(page, 1)
        };
        acts.extend(steering.seen(&seen, &Machine::default()));
    }
    assert_eq!(acts, []);
}

#[test]
fn random_faults_in_a_file_larger_than_memory_get_one_page_and_consecutive_ones_the_window_back() {
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    let mut acts = Vec::new();
    for number in 0..8u64 {
        let window = steering.window(1).unwrap_or(32);
        let seen = Seen { window_pages: window, ..fault(anywhere(number)) };
        acts.extend(steering.seen(&seen, &machine));
    }
    assert_eq!((windows(&acts), steering.class(1)), (vec![1], Class::RandomMapped));
    let consecutive = |steering: &mut Steering| -> Vec<Act> {
        (1000..1020)
            .flat_map(|page| {
                let window_pages = steering.window(1).unwrap_or(32);
                steering.seen(&Seen { window_pages, ..fault(page) }, &machine)
            })
            .collect()
    };
    assert_eq!(windows(&consecutive(&mut steering)), [0]);
    assert_eq!(steering.window(1), None);
}

/// A small file that is mapped fits into memory, and programs use much of it: libraries, indexes.
#[test]
fn random_faults_in_a_small_file_are_left_alone() {
    let mut steering = Steering::new(&Limits::default());
    let faults = (0..100u64).flat_map(|number| {
        let seen = Seen { file_pages: 512, ..fault(number * 131 % 512) };
        steering.seen(&seen, &Machine::default())
    });
    assert_eq!(faults.collect::<Vec<_>>(), []);
}

#[test]
fn program_that_changes_the_window_itself_is_left_alone_from_then_on() {
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&read(0, 4), &Machine::default());
    let acts = sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(windows(&acts), [128]);
    // POSIX_FADV_NORMAL of the program: the window of the disk again.
    let acts = steering.seen(&Seen { at_ns: 1 << 40, ..read(5000, 4) }, &Machine::default());
    assert_eq!((acts, steering.class(1), steering.window(1)), (vec![], Class::Advised, None));
}

/// Regression: an open file that was first seen while the window of another one was set was left alone for good.
#[test]
fn window_of_the_disk_during_an_act_is_no_advice() {
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&Seen { disk_window_pages: 1, ..read(50_000, 4) }, &Machine::default());
    assert_eq!(steering.class(1), Class::Advised);
    for seen in row(1, 49_996, -4, 4, 3) {
        steering.seen(&seen, &Machine::default());
    }
    assert_eq!(steering.class(1), Class::Backward);
}

#[test]
fn strides_in_both_directions_are_fetched_after_three_accesses() {
    for (step, length) in [(16i64, 4u64), (8, 1), (-16, 4), (100, 3)] {
        let mut steering = Steering::new(&Limits::default());
        let acts: Vec<Act> =
            row(1, 50_000, step, length, 3).iter().flat_map(|seen| steering.seen(seen, &Machine::default())).collect();
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
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { can_fetch: false, ..Machine::default() };
    let acts: Vec<Act> = row(1, 20_000, -4, 4, 50).iter().flat_map(|seen| steering.seen(seen, &machine)).collect();
    assert!(!acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
    let acts = sequential(&mut steering, 30_000, 200, |_| 500_000);
    assert!(acts.iter().any(|act| matches!(act, Act::SetWindow { .. })), "{acts:?}");
}

#[test]
fn several_readers_at_equal_distances_are_no_stride() {
    let mut steering = Steering::new(&Limits::default());
    let mut acts = Vec::new();
    for round in 0..4u64 {
        for reader in 0..16u64 {
            acts.extend(steering.seen(&read(reader * 2048 + round * 4, 4), &Machine::default()));
        }
    }
    assert!(acts.iter().all(|act| !matches!(act, Act::Fetch { .. })), "{acts:?}");
    assert_eq!(steering.class(1), Class::Interleaved);
}

#[test]
fn polls_fetch_the_next_pages_before_the_reader_misses() {
    let mut steering = Steering::new(&Limits::default());
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
        take(steering.seen(&seen, &machine));
    }
    let mut now_ns = 10_000;
    for block in 3..500u64 {
        let first = 50_000 - 4 * block;
        now_ns += steering.poll_after_ns(1).unwrap();
        let progress = Progress { open: 1, at_ns: now_ns, page: first + 3, waits: Some((block, block * 1000)) };
        let edge = take(steering.progress(&progress, &machine));
        assert!(edge < first, "block {block}: the reader is at {first}, fetched to {edge}");
    }
}

#[test]
fn reader_that_leaves_its_pattern_gets_no_fetches_for_a_while() {
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine::default();
    let mut acts = Vec::new();
    for part in 0..100u64 {
        for seen in row(1, 10_000 + part * 5000, -16, 16, 4) {
            acts.extend(steering.seen(&Seen { at_ns: part, ..seen }, &machine));
        }
    }
    let fetches = acts.iter().filter(|act| matches!(act, Act::Fetch { .. })).count();
    assert!(windows(&acts).contains(&0), "{acts:?}");
    assert!(fetches < 40, "{fetches}");
}

#[test]
fn eight_hundred_streams_share_a_small_memory() {
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { available_pages: 16_384, ..Machine::default() };
    let mut set = std::collections::HashMap::new();
    for round in 0..40u64 {
        for open in 1..=800u64 {
            let window = set.get(&open).copied().unwrap_or(32);
            let page = round * window;
            let seen = Seen { kind: Kind::Marker, open, file: open, at_ns: round * 1_000_000_000, ..read(page, 1) };
            let seen = Seen { start: page, size: window, async_size: window, window_pages: window, ..seen };
            for act in steering.seen(&seen, &machine) {
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
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { available_pages: 16_384, ..Machine::default() };
    let mut acts = Vec::new();
    for (round, page) in [(0, 0), (1, 1), (2, 4)] {
        for open in 1..=200u64 {
            let kind = if page == 0 { Kind::Miss } else { Kind::Marker };
            let at_ns = round * 1_000_000_000 + open;
            acts.extend(steering.seen(&Seen { kind, open, file: open, at_ns, ..read(page, 1) }, &machine));
        }
        // The memory of the machine is no reason to leave a control group's streams alone.
        acts.extend(steering.tick((round + 1) * 1_000_000_000, &Machine::default()));
    }
    let set = |open| acts.iter().any(|act| matches!(act, Act::SetWindow { open: of, .. } if *of == open));
    assert!((1..=200).all(set) && windows(&acts).iter().max() == Some(&16), "{acts:?}");
}

#[test]
fn pressure_shrinks_windows_at_once() {
    let mut steering = Steering::new(&Limits::default());
    steering.seen(&read(0, 4), &Machine::default());
    sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(steering.window(1), Some(128));
    let machine = Machine { pressure: true, ..Machine::default() };
    let acts = steering.tick(60_000_000, &machine);
    assert_eq!(windows(&acts), [64], "{acts:?}");
}

#[test]
fn acts_that_are_only_printed_are_not_repeated_at_once() {
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    let mut count = 0;
    for number in 0..1000u64 {
        let acts = steering.seen(&Seen { at_ns: number, ..fault(anywhere(number)) }, &machine);
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
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine::default();
    steering.seen(&read(0, 4), &machine);
    sequential(&mut steering, 32, 20, |window| if window > 32 { 0 } else { 600_000 });
    assert_eq!(steering.window(1), Some(128));
    let mut acts = Vec::new();
    for part in 0..100u64 {
        for seen in row(1, 10_000 + part * 2000, -16, 16, 4) {
            let window_pages = steering.window(1).unwrap_or(32);
            acts.extend(steering.seen(&Seen { window_pages, at_ns: part, ..seen }, &machine));
        }
    }
    assert!(acts.iter().any(|act| matches!(act, Act::Restore { .. })), "{acts:?}");
    assert_eq!((steering.window(1), steering.class(1)), (None, Class::Backward));
}

#[test]
fn reader_that_stops_is_polled_no_longer() {
    let mut steering = Steering::new(&Limits::default());
    for seen in row(1, 50_000, -4, 4, 3) {
        steering.seen(&seen, &Machine::default());
    }
    let mut now_ns = 10_000;
    let mut polls = 0;
    while let Some(after_ns) = steering.poll_after_ns(1) {
        now_ns += after_ns;
        polls += 1;
        assert!(polls < 200);
        steering.progress(&Progress { open: 1, at_ns: now_ns, page: 49_995, waits: None }, &Machine::default());
    }
    assert!(now_ns < 120_000_000_000, "{now_ns}");
}

/// A window that cannot be set is not asked for.
#[test]
fn open_file_without_a_descriptor_gets_no_window() {
    let mut steering = Steering::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    for number in 0..100u64 {
        let seen = Seen { has_descriptor: false, ..fault(anywhere(number)) };
        assert_eq!(steering.seen(&seen, &machine), []);
    }
    assert_eq!(steering.class(1), Class::RandomMapped);
}

#[test]
fn address_of_a_closed_file_is_used_by_another_one() {
    let mut steering = Steering::new(&Limits::default());
    for seen in row(1, 50_000, -4, 4, 5) {
        steering.seen(&seen, &Machine::default());
    }
    assert_eq!(steering.class(1), Class::Backward);
    steering.seen(&Seen { file: 2, ..read(0, 4) }, &Machine::default());
    assert_eq!((steering.class(1), steering.files()), (Class::Unknown, 1));
}

/// The calls of a reader in no order, for each of which the kernel reads 16 pages.
fn read_too_much(machine: &Machine) -> Vec<u64> {
    let mut steering = Steering::new(&Limits::default());
    let mut acts = Vec::new();
    for number in 1..=130u64 {
        let window_pages = steering.window(1).unwrap_or(32);
        let seen = Seen { window_pages, issued_pages: 16 * number, at_ns: number, ..read(anywhere(number), 1) };
        acts.extend(steering.seen(&seen, machine));
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
