//! Regression tests of the steering: readers that were once misjudged, decision by decision.

mod common;

use ahead_policy::DeviceDescription;
use ahead_policy::steering::{Act, Class, Decision, Kind, Limits, Machine, Progress};
use common::{Table, after, anywhere, fault, read, row, sequential, windows, with_window};

/// The decisions of a reader of blocks of four pages over whole windows of `window` pages, from a page on: a miss, then markers.
/// `at`: its number of decisions so far.
fn pass(from: u64, to: u64, window: u64, at: &mut u64) -> Vec<Decision> {
    let mut list = Vec::new();
    let mut page = from;
    while page < to {
        *at += 1;
        let is_first = page == from;
        let (kind, size) = if is_first { (Kind::Miss, 0) } else { (Kind::Marker, window) };
        let seen = Decision { kind, file_pages: 16_384, ..after(page, size, read(page, 4)) };
        list.push(Decision { at_ns: *at * 1_000_000, waits: *at, wait_ns: *at * 900_000, ..seen });
        page += window;
    }
    list
}

/// Carries out the windows; returns the acts.
fn carried_out(steering: &mut Table, machine: &Machine, list: Vec<Decision>) -> Vec<Act> {
    let mut acts = Vec::new();
    for seen in list {
        let window_pages = steering.window(1).unwrap_or(32);
        acts.extend(steering.decide(&with_window(window_pages, seen), machine));
    }
    acts
}

/// Regression: a reader that began its file again became interleaved, and hundreds of MiB were fetched.
#[test]
fn reader_that_starts_again_at_the_first_page_stays_sequential_and_nothing_is_fetched() {
    let machine = Machine { device: DeviceDescription::ROTATING, ..Machine::default() };
    for first in [0, 4096] {
        let mut steering = Table::new(&Limits::default());
        let mut at = 0;
        for round in 0..5 {
            let from = if round == 0 { first } else { 0 };
            for seen in pass(from, 16_384, 32, &mut at) {
                let acts = carried_out(&mut steering, &machine, vec![seen]);
                assert!(!acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
                let class = steering.class(1);
                assert!(matches!(class, Class::Unknown | Class::Sequential), "{round}, {seen:?}: {class}");
            }
        }
        assert_eq!(steering.class(1), Class::Sequential);
    }
}

/// Regression: the same with parts of the file in the cache, which cause no decisions.
#[test]
fn reader_that_finds_parts_of_its_file_cached_stays_sequential() {
    let machine = Machine { device: DeviceDescription::ROTATING, ..Machine::default() };
    let mut steering = Table::new(&Limits::default());
    let mut at = 0;
    let mut list = pass(2000, 16_384, 32, &mut at);
    for _ in 0..4 {
        for part in 0..4 {
            list.extend(pass(part * 4096 + 900, part * 4096 + 3000, 32, &mut at));
        }
    }
    for seen in list {
        let acts = carried_out(&mut steering, &machine, vec![seen]);
        assert!(!acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
        assert!(matches!(steering.class(1), Class::Unknown | Class::Sequential), "{seen:?}");
    }
}

/// A second reader that follows the first one through the same open file is another stream.
#[test]
fn two_readers_that_continue_in_turn_are_interleaved() {
    let machine = Machine { device: DeviceDescription::ROTATING, ..Machine::default() };
    let mut steering = Table::new(&Limits::default());
    let (mut at, mut other) = (0, 0);
    let mut acts = carried_out(&mut steering, &machine, pass(0, 8192, 32, &mut at));
    let mut start = 8160;
    for pair in pass(8192, 12_000, 32, &mut at).into_iter().zip(pass(0, 3808, 32, &mut other)) {
        for seen in [pair.0, pair.1] {
            // The open file has one window: that of the decision before.
            let seen = Decision { at_ns: pair.0.at_ns, ..after(start, 32, seen) };
            start = seen.page;
            acts.extend(carried_out(&mut steering, &machine, vec![seen]));
        }
    }
    assert_eq!(steering.class(1), Class::Interleaved);
    assert!(acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
}

/// Regression: the window was set back with "0 pages in sequence", and the class became unknown.
#[test]
fn window_set_back_in_dense_use_has_its_reason_and_the_class_stays() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine::default();
    let mut acts = Vec::new();
    for number in 0..1000u64 {
        let window_pages = steering.window(1).unwrap_or(32);
        let fault = with_window(window_pages, fault(anywhere(number) >> 2));
        let seen = Decision { at_ns: number, file_pages: 1 << 16, issued_pages: number, ..fault };
        acts.extend(steering.decide(&seen, &machine));
        assert!(acts.is_empty() || steering.class(1) == Class::RandomMapped, "{number}: {}", steering.class(1));
    }
    let [Act::SetWindow { pages: 1, .. }, Act::Restore { reason, .. }] = &acts[..] else { panic!("{acts:?}") };
    let reason = reason.to_string();
    assert!(reason.contains(" single pages cost 1 % of reading the other 256.0 MiB of the file"), "{reason}");
}

/// Regression: the time before the act was counted from the boot on, so that the share of the waits was 0.
#[test]
fn waits_before_the_act_are_measured_from_the_first_decision_on() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 1 << 16, ..Machine::default() };
    for number in 0..20u64 {
        let window_pages = steering.window(1).unwrap_or(32);
        let at_ns = 1_000_000_000_000 + number * 1_000_000;
        let seen = Decision { at_ns, waits: 70 + number, wait_ns: 950_000 * (70 + number), ..fault(anywhere(number)) };
        steering.decide(&with_window(window_pages, seen), &machine);
    }
    let effect = steering.effect(1).unwrap();
    assert!((effect.before.wait_share() - 0.95).abs() < 0.01, "{effect:?}");
    assert!((effect.after.wait_share() - 0.95).abs() < 0.01, "{effect:?}");
    assert_eq!(effect.before.advanced_pages, effect.before.waits + 1, "{effect:?}");
}

/// An act at the first decision has nothing before it.
#[test]
fn effect_without_decisions_before_the_act_is_absent() {
    let mut steering = Table::new(&Limits::default());
    let machine = Machine { available_pages: 100, ..Machine::default() };
    let acts = steering.decide(&Decision { kind: Kind::Marker, ..read(0, 4) }, &machine);
    assert_eq!(windows(&acts), [16]);
    let seen = Decision { at_ns: 1_000_000, waits: 1, wait_ns: 100, ..with_window(16, read(32, 4)) };
    steering.decide(&seen, &machine);
    assert_eq!(steering.effect(1), None);
}

/// Regression: the window grew too slowly at the start of a file on a far disk. A reader that only waits needs one window to be judged.
#[test]
fn reader_that_only_waits_gets_a_larger_window_after_one_window() {
    for (wait_ns, decisions, expected) in [(970_000, 3, vec![128]), (700_000, 4, vec![128]), (300_000, 6, vec![64])] {
        let mut steering = Table::new(&Limits::default());
        steering.decide(&read(0, 4), &Machine::default());
        let acts = sequential(&mut steering, 32, decisions - 1, |_| wait_ns);
        assert_eq!(acts, [], "{wait_ns}");
        let mut steering = Table::new(&Limits::default());
        steering.decide(&read(0, 4), &Machine::default());
        let acts = sequential(&mut steering, 32, decisions, |_| wait_ns);
        assert_eq!(windows(&acts), expected, "{wait_ns}");
    }
}

/// Regression: polls of a reader that waited for fetched pages became rare. When the pages arrived, it used them before the next poll, and
/// missed the pages after them.
#[test]
fn reader_that_waits_for_fetched_pages_is_polled_until_they_arrive() {
    let mut steering = Table::new(&Limits::default());
    let device = DeviceDescription::ROTATING;
    let machine = Machine { device, ..Machine::default() };
    for seen in row(1, 50_000, -4, 4, 3) {
        steering.decide(&seen, &machine);
    }
    let mut now_ns = 10_000;
    let poll = |steering: &mut Table, now_ns: &mut u64, page| {
        *now_ns += steering.poll_after_ns(1).unwrap();
        steering.progress(1, &Progress { at_ns: *now_ns, page, waits: None }, &machine)
    };
    // It moves on, then it waits. Fetched: the pages of an access.
    poll(&mut steering, &mut now_ns, 49_991);
    let (begun_ns, planned_ns) = (now_ns, steering.poll_after_ns(1).unwrap());
    while now_ns < begun_ns + 2 * device.access_ns {
        poll(&mut steering, &mut now_ns, 49_991);
        assert_eq!(steering.poll_after_ns(1), Some(planned_ns), "{now_ns}");
    }
    while now_ns < begun_ns + 1_000_000_000 {
        poll(&mut steering, &mut now_ns, 49_991);
    }
    assert!(steering.poll_after_ns(1).unwrap() > 100_000_000);
}

/// Regression: a reader whose former runs ended where it goes on now, because the pages before are in the cache, became interleaved.
#[test]
fn reader_that_goes_on_at_the_ends_of_its_former_runs_stays_sequential() {
    let machine = Machine { device: DeviceDescription::ROTATING, ..Machine::default() };
    let mut steering = Table::new(&Limits::default());
    let mut at = 0;
    // In the second pass the parts that were cached in the first one are missing, and the others are cached.
    for first in [100, 1100, 100, 1100] {
        for part in 0..6 {
            for seen in pass(first + part * 2000, first + part * 2000 + 1000, 250, &mut at) {
                let acts = carried_out(&mut steering, &machine, vec![seen]);
                assert!(!acts.iter().any(|act| matches!(act, Act::Fetch { .. })), "{acts:?}");
                assert_ne!(steering.class(1), Class::Interleaved, "{seen:?}");
            }
        }
    }
}

/// Regression: a reader of a mapping that skips some pages behind a window was taken for one whose pages were evicted before use, because
/// the pages that the kernel reads before a fault were compared with the window. Its window was halved again and again.
#[test]
fn fault_behind_a_window_is_no_eviction() {
    let mut steering = Table::new(&Limits::default());
    let (mut page, mut window) = (1000, (0, 0));
    for number in 1..200u64 {
        let seen = Decision { at_ns: number * 1_000_000, ..after(window.0, window.1, fault(page)) };
        let acts = steering.decide(&seen, &Machine::default());
        assert_eq!(windows(&acts), [], "{number}: {acts:?}");
        window = (page - 16, 32);
        page += 16 + 2 + number % 7;
    }
}
