//! The paper's true read-ahead: figures 5 to 7.

use super::questions::in_one_piece;
use super::{LEVELS, Levels, Machines, Runs, Usage, at_levels, mb_per_s, rate, waits};
use crate::counts::seconds;
use crate::{Bound, Job, Lines, Measure, PaperError, run_all};
use ahead_sim::Counters;

/// Waits for the queue that the paper counts with 512 pages and more.
const QUEUE_WAITS: f64 = 7000.0;
/// Capacity of the queue of 2.2, requests (`NR_REQUEST`).
const QUEUE_REQUESTS: f64 = 128.0;
/// The paper's P, accesses.
const PERIOD: u64 = 16;

pub(super) fn add(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    add_figure_5(lines, runs);
    add_figure_6(lines, runs);
    add_figure_7(lines, runs);
    add_saturation(lines, machines, runs)?;
    add_period(lines, machines, runs)
}

fn add_figure_5(lines: &mut Lines, runs: &Runs) {
    let at_64 = runs.modified.at(64);
    let idle_s = Usage::of(at_64).idle_s;
    lines.input(
        "figure 5: throughput at 64 pages",
        "12.5 MB/s",
        rate(mb_per_s(at_64)),
        "the program's time, less half a second idle; the idle time is a result",
    );
    lines.number(
        "figure 5: idle time at 64 pages",
        "just over half a second",
        Measure::new(idle_s, "s", 2),
        Bound::Between(0.5, 0.75),
        "just over half: less than three quarters",
    );
    let share = idle_s / seconds(at_64.elapsed_ns);
    lines.number(
        "figure 5: share of idle time, at 64 pages",
        "nearly 10 %",
        Measure::percent(share),
        Bound::Between(6.0, 10.0),
        "half a second of eight is 6.5 %: the paper's two numbers",
    );
    let idle = |level: u64| Usage::of(runs.modified.at(level)).idle_s;
    let least = LEVELS.iter().map(|level| idle(*level)).fold(f64::INFINITY, f64::min);
    lines.shape(
        "figure 5: idle time approaches zero at 32 and 64 pages",
        "lowest there",
        format!("{:.2} s and {:.2} s; the lowest is {least:.2} s", idle(32), idle(64)),
        idle(32) - least < 0.1 && idle(64) - least < 0.1,
        "within 0.1 s of the lowest",
    );
}

fn add_figure_6(lines: &mut Lines, runs: &Runs) {
    let idle = |level: u64| (Usage::of(runs.dma.at(level)).idle_s, Usage::of(runs.modified.at(level)).idle_s);
    let cases = [512, 1024, 2048, 4096, 8192];
    let text = |level: &u64| format!("{:.1} to {:.1} s at {level}", idle(*level).0, idle(*level).1);
    let drastic = cases.iter().all(|level| idle(*level).1 < 0.35 * idle(*level).0);
    lines.shape(
        "figure 6: idle time falls drastically with 512 pages and more",
        "drastic reduction",
        cases.iter().map(text).collect::<Vec<_>>().join(", "),
        drastic,
        "to less than 35 %",
    );
    let (before, after) = idle(256);
    lines.number(
        "figure 6: idle time falls with 256 pages: remaining share",
        "drastic reduction",
        Measure::percent(after / before),
        Bound::AtMost(35.0),
        "the queue holds 256 pages here, so the original does not wait for it yet; at 260 pages it does",
    );
}

fn add_figure_7(lines: &mut Lines, runs: &Runs) {
    add_queue_waits(lines, runs);
    for level in [64, 256] {
        let [old, new] = [runs.dma.at(level), runs.modified.at(level)].map(waits);
        lines.number(
            &format!("figure 7: waits at {level} pages, true read-ahead relative to the original"),
            "less than half",
            Measure::percent(new as f64 / old as f64),
            Bound::AtMost(50.0),
            &format!("{old} and {new} waits"),
        );
    }
    add_few_pages(lines, runs);
    let after: Vec<u64> = [512, 1024, 2048, 4096, 8192].iter().map(|level| waits(runs.modified.at(*level))).collect();
    let (fewest, most) = (after.iter().min().copied().unwrap_or(0), after.iter().max().copied().unwrap_or(0));
    lines.shape(
        "figure 7: a plateau beyond 512 pages",
        "essentially plateaus",
        format!("{after:?} waits"),
        most as f64 <= 1.1 * fewest as f64,
        "within 10 % of each other",
    );
    let both = |level: u64| (level, waits(runs.dma.at(level)), waits(runs.modified.at(level)));
    let (fewer, others): (Vec<_>, Vec<_>) = LEVELS.map(both).into_iter().partition(|(_, old, new)| new < old);
    let except = others.iter().map(|(level, old, new)| format!("; {old} and {new} at {level}"));
    lines.shape(
        "figure 7: in every case fewer waits",
        "in every case",
        format!("fewer at {} of {} levels{}", fewer.len(), LEVELS.len(), except.collect::<String>()),
        others.is_empty(),
        "fewer at every level; an equal number does not count",
    );
}

/// The number of waits for room in the queue.
fn add_queue_waits(lines: &mut Lines, runs: &Runs) {
    let least = [1024, 2048, 4096, 8192].iter().map(|level| runs.dma.at(*level).queue_waits).min().unwrap_or(0);
    lines.number(
        "figure 7: waits for the queue, 1024 pages and more",
        "more than 7000",
        Measure::count(least),
        Bound::AtLeast(QUEUE_WAITS),
        "the fewest of four levels",
    );
    lines.number(
        "figure 7: waits for the queue, 512 pages",
        "more than 7000",
        Measure::count(runs.dma.at(512).queue_waits),
        Bound::AtLeast(QUEUE_WAITS),
        "as stated; here the first 256 pages of a group fit into the queue without a wait",
    );
    let none: u64 = [1, 2, 4, 8, 16, 32, 64, 128, 256].iter().map(|level| runs.dma.at(*level).queue_waits).sum();
    lines.number(
        "figure 7: waits for the queue, up to 256 pages",
        "none",
        Measure::count(none),
        Bound::AtMost(0.0),
        "nine levels",
    );
    let dropped: u64 = LEVELS.iter().map(|level| runs.modified.at(*level).queue_waits).sum();
    let share = dropped as f64 / LEVELS.iter().map(|level| runs.dma.at(*level).queue_waits).sum::<u64>() as f64;
    lines.number(
        "figure 7: waits for the queue, true read-ahead relative to the original",
        "none",
        Measure::percent(share),
        Bound::AtMost(0.5),
        "read-ahead never waits for the queue; reads of pointer blocks and of missed pages may",
    );
}

/// The average occupancy of the queue.
fn add_saturation(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    let levels = [1024, 2048, 4096, 8192];
    let plain = at_levels(&in_one_piece(&machines.dma), "true-readahead", levels.into_iter())?;
    let filled = |counters: &Counters| counters.device.queued_ns as f64 / (QUEUE_REQUESTS * counters.drained_ns as f64);
    let least = |of: &Levels| levels.iter().map(|level| filled(of.at(*level))).fold(f64::INFINITY, f64::min);
    let in_one_piece = 100.0 * least(&plain);
    lines.number(
        "figure 7: beyond 512 pages the queue is saturated all the time: average occupancy",
        "saturated",
        Measure::percent(least(&runs.modified)),
        Bound::AtLeast(90.0),
        &format!(
            "the lowest of four levels; a refused request is repeated after 16 pages, which are 8 of 128 requests. The queue \
             becomes empty at each wait for a pointer block: with the file in one piece {in_one_piece:.1} %"
        ),
    );
    Ok(())
}

fn add_few_pages(lines: &mut Lines, runs: &Runs) {
    let ratio = |level: u64| waits(runs.modified.at(level)) as f64 / waits(runs.dma.at(level)) as f64;
    let least = [1, 2, 4].map(ratio).into_iter().fold(f64::INFINITY, f64::min);
    lines.number(
        "figure 7: waits with up to 4 pages, true read-ahead relative to the original",
        "essentially the same",
        Measure::percent(least),
        Bound::Between(95.0, 105.0),
        "the lowest of three levels",
    );
    lines.number(
        "figure 7: waits with 8 and 16 pages, true read-ahead relative to the original",
        "essentially the same",
        Measure::percent(ratio(8).min(ratio(16))),
        Bound::Between(80.0, 105.0),
        "here disk and program are nearly equally fast, so from 8 pages on some groups arrive in time; with a disk that is a \
         tenth slower than the program every group would be late",
    );
}

/// The period of the checks.
fn add_period(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    let levels: Vec<u64> = LEVELS.into_iter().filter(|level| *level >= PERIOD).collect();
    let with_period = |every: fn(u64) -> u64| -> Result<Vec<Counters>, PaperError> {
        let jobs = levels.iter().map(|pages| {
            let name = format!("true-readahead({pages}, {})", every(*pages));
            Job::new(&machines.dma, &name)
        });
        run_all(&jobs.collect::<Result<Vec<_>, _>>()?)
    };
    let (always, rarely) = (with_period(|_| 1)?, with_period(|pages| pages)?);
    let slower = |counters: &Counters, at: usize| counters.elapsed_ns as f64 / always[at].elapsed_ns as f64 - 1.0;
    let most = |shares: &mut dyn Iterator<Item = f64>| shares.fold(f64::NEG_INFINITY, f64::max);
    let sixteen = most(&mut levels.iter().enumerate().map(|(at, pages)| slower(runs.modified.at(*pages), at)));
    let whole = most(&mut rarely.iter().enumerate().map(|(at, counters)| slower(counters, at)));
    lines.number(
        "P = 16 does not fall behind the program: slower than a check at each page by",
        "not behind",
        Measure::percent(sixteen),
        Bound::AtMost(0.5),
        &format!(
            "the maximum of all levels from 16 pages on; a check costs no time here, which favours the check at each page. With one \
             check per group read-ahead does fall behind: by up to {:.1} %",
            100.0 * whole
        ),
    );
    lines.not_shown(
        "footnote 12: the penalty for checking too often is very small",
        "very small",
        "a check without a request takes no processor time in the simulator",
    );
    Ok(())
}
