//! Properties of every choice, over random profiles and timelines.

use super::*;
use crate::tests::{PAGE, device, lookups_of, profile};
use crate::{Source, pieces};
use ahead_profile::{Thread, Timeline, Wakeup, WarmUse};
use proptest::prelude::*;

/// A timeline of a few threads, which may contradict itself.
fn timeline() -> impl Strategy<Value = Timeline> {
    let threads = prop::collection::vec((prop::option::of(0..3u32), 0..5000u64, 0..100_000u64), 1..4);
    let wakeups = prop::collection::vec((0..4u32, 0..100_000u64, 0..4u32, 0..100_000u64), 0..12);
    (threads, wakeups).prop_map(|(threads, wakeups)| Timeline {
        threads: threads
            .into_iter()
            .map(|(parent, parent_cpu_us, cpu_us)| Thread { parent, parent_cpu_us, cpu_us })
            .collect(),
        wakeups: wakeups
            .into_iter()
            .map(|(by, by_cpu_us, woken, woken_cpu_us)| Wakeup { by, by_cpu_us, woken, woken_cpu_us })
            .collect(),
        ..Timeline::default()
    })
}

/// Uses by threads in turn.
fn with_uses(mut pieces: Vec<Piece>, threads: u32) -> Vec<Piece> {
    for (index, piece) in pieces.iter_mut().enumerate() {
        let (thread, time_us) = (index as u32 % threads, piece.first_use_us * 50);
        piece.warm_use = Some(WarmUse { time_us, thread, cpu_us: time_us / u64::from(threads) });
    }
    pieces
}

fn sources_and_pages(plan: &Plan) -> Vec<(Source, u64)> {
    let spans = plan.steps.iter().filter_map(Step::span);
    let ranges = spans.flat_map(|span| span.used.iter().map(|range| (span.source, range.clone())));
    let mut pages: Vec<_> = ranges
        .flat_map(|(source, range)| (range.start / PAGE..range.end.div_ceil(PAGE)).map(move |p| (source, p)))
        .collect();
    pages.sort_unstable();
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_choice_has_each_piece_once_and_is_the_best_of_all(
        profile in profile(), timeline in prop::option::of(timeline()), device in device(), may_wait in any::<bool>(),
        compute_us in prop::sample::select(vec![None, Some(0.0), Some(1e5), Some(1e7)]), budget in 0..3_000_000u64,
    ) {
        let threads = timeline.as_ref().map_or(1, |timeline| timeline.threads.len() as u32);
        let all = with_uses(pieces(&profile, PAGE), threads);
        let total: u64 = all.iter().map(Piece::bytes).sum();
        let program = Program { timeline: timeline.as_ref(), compute_us, reading_us: 45.0, processors: 2 };
        let choose = || plan_for(all.clone(), lookups_of(&profile), &device, &program, may_wait, budget);
        let Planned { plan, choice } = choose();
        prop_assert_eq!(&choose(), &Planned { plan: plan.clone(), choice });
        prop_assert!(plan.planned_bytes <= budget);
        prop_assert_eq!(plan.planned_bytes + plan.over_budget_bytes, total);
        prop_assert!(choice.expected_us <= choice.rule_us);
        let least_gain_us = (LEAST_GAIN * choice.rule_us as f64).max(LEAST_GAIN_US) + 1.0;
        prop_assert!(!choice.timeline || choice.expected_us as f64 <= choice.nothing_us as f64 + least_gain_us);
        prop_assert!(choice.timeline || choice.order == ChosenOrder::Rule);
        prop_assert!(choice.order == ChosenOrder::Rule || choice.rule_us - choice.expected_us + 1 >= LEAST_GAIN_US as u64);
        prop_assert!(choice.head_start_us <= choice.expected_us);
        // One more run than the limit allows may be under way.
        prop_assert!(choice.simulated_steps <= MOST_STEPS + MOST_STEPS / LEAST_RUNS);
        if choice.order == ChosenOrder::Nothing {
            prop_assert!(plan.steps.is_empty());
            return Ok(());
        }
        let rule = crate::plan(all.clone(), lookups_of(&profile), &device, compute_us, budget);
        prop_assert_eq!(sources_and_pages(&plan), sources_and_pages(&rule));
        prop_assert_eq!(plan.steps.iter().filter(|step| step.span().is_none()).count(), profile.lookups.len());
        prop_assert!(plan.metadata_steps <= plan.usual_steps && plan.head_start_steps <= plan.usual_steps);
        prop_assert!(may_wait || plan.head_start_steps <= plan.metadata_steps);
        for step in &plan.steps[plan.usual_steps..] {
            let span = step.span().expect("lookups are usual");
            let first = all.iter().find(|p| p.source == span.source && p.range.contains(&span.used[0].start));
            prop_assert!(first.is_some_and(|piece| piece.late));
        }
    }

    /// A program of one thread needs its computing, and the transfer of all it uses.
    #[test]
    fn no_time_is_below_its_bounds(profile in profile(), device in device(), compute_us in 0.0..1e6f64) {
        let all = pieces(&profile, PAGE);
        let usual: u64 = all.iter().filter(|piece| !piece.late).map(Piece::bytes).sum();
        let program = Program { compute_us: Some(compute_us), ..Program::UNKNOWN };
        let choice = plan_for(all, lookups_of(&profile), &device, &program, device.seeks(), u64::MAX).choice;
        if choice.candidates > 0 {
            let transfer_us = device.transfer_us(usual) - device.burst.map_or(0.0, |burst| device.transfer_us(burst.bytes));
            for expected_us in [choice.expected_us, choice.rule_us] {
                prop_assert!(expected_us as f64 + 1.0 >= compute_us.max(transfer_us), "{choice:?} {transfer_us}");
            }
            prop_assert!(choice.nothing_us as f64 + 1.0 >= compute_us);
            prop_assert!((choice.warm_us as f64 - compute_us).abs() <= 1.0);
        }
    }
}

/// A file in 200 scattered parts of 64 KiB on a rotating disk, of which the program uses three quarters in the first 5 % of its computing.
fn early_user() -> (Vec<Piece>, Timeline) {
    let piece = |index: u64| {
        let start = index * (1 << 20);
        let cpu_us = if index < 150 { index * 400 } else { 60_000 + (index - 150) * 28_000 };
        Piece {
            source: Source::File(0),
            range: start..start + 65_536,
            late: false,
            first_use_us: index,
            physical_bytes: Some(index * 37 % 200 * (64 << 20)),
            warm_use: Some(WarmUse { time_us: cpu_us, thread: 0, cpu_us }),
        }
    };
    let thread = Thread { cpu_us: 1_460_000, ..Thread::default() };
    ((0..200).map(piece).collect(), Timeline { warm_us: 1_460_000, threads: vec![thread], ..Timeline::default() })
}

#[test]
fn a_program_that_needs_most_pages_early_computes_beside_the_rest_of_the_sweep() {
    let (pieces, timeline) = early_user();
    let program = Program { timeline: Some(&timeline), processors: 2, ..Program::UNKNOWN };
    let chosen = plan_for(pieces, Vec::new(), &DeviceDescription::ROTATING, &program, true, u64::MAX);
    let Choice { order, expected_us, rule_us, warm_us, timeline, .. } = chosen.choice;
    assert_eq!((order, warm_us, timeline), (ChosenOrder::ByPosition, 1_460_000, true));
    assert!(expected_us + 150_000 < rule_us, "{:?}", chosen.choice);
    assert!(chosen.plan.head_start_steps < chosen.plan.usual_steps && chosen.plan.queue_us.is_some());
}

#[test]
fn a_huge_profile_is_planned_by_the_rule() {
    let (pieces, mut timeline) = early_user();
    timeline.wakeups = vec![Wakeup::default(); 50_000];
    let program = Program { timeline: Some(&timeline), processors: 2, ..Program::UNKNOWN };
    let chosen = plan_for(pieces, Vec::new(), &DeviceDescription::ROTATING, &program, true, u64::MAX);
    assert_eq!((chosen.choice.order, chosen.choice.candidates), (ChosenOrder::Rule, 0));
    assert_eq!(chosen.plan.steps.len(), 200);
}

#[test]
fn nothing_to_fetch_is_no_choice() {
    let chosen = plan_for(Vec::new(), Vec::new(), &DeviceDescription::ROTATING, &Program::UNKNOWN, true, u64::MAX);
    assert_eq!((chosen.plan.steps.len(), chosen.choice.candidates), (0, 0));
}
