//! Linux 2.2 with advice: figures 1 to 4. DMA is switched on in the fourth.

use super::{FILE_PAGES, LEVELS, Levels, Machines, Runs, Usage, mb_per_s, rate};
use crate::counts::{MIB, seconds};
use crate::{Bound, Job, Lines, Measure, PaperError, run_all};
use ahead_sim::Counters;

/// Interval at which the paper's parent process kills the reader, seconds.
const STEP_S: u64 = 5;
/// The end of the intervals: longer than any run, seconds.
const LAST_S: u64 = 40;

/// The difference that the paper calls a match: 11 and 13 MB/s, as a share of the latter.
const NTFS_APART: f64 = 2.0 / 13.0;

/// Figures 1 and 2: programmed input.
pub(super) fn advice(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    let results = run_all(&[Job::new(&machines.dma, "linux-2.2")?])?;
    lines.number(
        "Linux 2.2 reads sixteen pages on a miss and nothing on a hit: misses in 25,600 pages",
        "1600",
        Measure::count(results[0].misses),
        Bound::Within(1600.0, 0.0),
        "a rule of the code",
    );
    figure_1(lines, runs);
    let (n, best) = runs.pio.best();
    let close = "the rate of programmed input is assumed except its mode";
    lines.number(
        "figure 2: the throughput peaks at, programmed input",
        "3.2 MB/s",
        rate(best),
        Bound::Within(3.2, 0.05),
        close,
    );
    let near = runs.pio.at(64);
    let part = 100.0 * mb_per_s(near) / best;
    lines.number(
        "figure 2: roughly 64 pages are most efficient: the best is at",
        "64 pages",
        Measure::new(n as f64, "pages", 0),
        Bound::Between(32.0, 128.0),
        &format!("roughly: not beyond the levels next to it; 64 pages give {part:.1} % of the best here"),
    );
    let platter = platter_mb_per_s(machines);
    let from = "the platter's rate";
    lines.input("figure 2: NTFS peaks at around", "13 MB/s", rate(platter), from);
    lines.number(
        "NTFS, with DMA, is faster by a factor of",
        "four",
        Measure::new(platter / best, "", 1),
        Bound::Within(4.0, 0.1),
        "NTFS at the platter's rate, which is an input, relative to ours with programmed input",
    );
    above_256(lines, &runs.pio);
    Ok(())
}

/// The throughput of NTFS, in the paper's unit.
fn platter_mb_per_s(machines: &Machines) -> f64 {
    machines.pio.disk.model.bandwidth_bytes_per_s() / MIB
}

/// The paper shows figure 1 before it switches DMA on: programmed input.
fn figure_1(lines: &mut Lines, runs: &Runs) {
    let most = FILE_PAGES as f64;
    let last = LEVELS.into_iter().filter(|level| *level > 256);
    let (misses, hits) = last
        .map(|level| runs.pio.at(level))
        .fold((0, u64::MAX), |(misses, hits), counters| (counters.misses.max(misses), counters.hits.min(hits)));
    lines.number(
        "figure 1: misses on locked pages, above 256 pages",
        "almost zero",
        Measure::count(misses),
        Bound::AtMost(most / 256.0),
        "one for each group: 50 at 512 pages",
    );
    lines.number(
        "figure 1: hits on unlocked pages, above 256 pages",
        "nearly 25,600",
        Measure::count(hits),
        Bound::AtLeast(0.99 * most),
        "all but one in each group",
    );
    let misses: Vec<u64> = LEVELS.iter().map(|level| runs.pio.at(*level).misses).collect();
    lines.shape(
        "figure 1: misses on locked pages as n grows",
        "decrease",
        format!("{misses:?}"),
        misses.is_sorted_by(|a, b| a >= b),
        "from one level to the next",
    );
    let exact = LEVELS.iter().filter(|level| runs.pio.at(**level).misses == FILE_PAGES.div_ceil(**level)).count();
    lines.shape(
        "N/n misses in a file of N pages",
        "roughly N/n",
        format!("N/n at {exact} of {} levels", LEVELS.len()),
        exact == LEVELS.len(),
        "exact, the last group rounded up",
    );
    let [pio, dma] = [&runs.pio, &runs.dma].map(locked_up_to_a_point);
    let with_dma = if dma.1 { "with DMA it holds" } else { "with DMA it does not hold either" };
    lines.shape(
        "figure 1: hits on locked pages as n grows",
        "increase up to a point; almost none above 256",
        format!("{} at 1, 4, 16, 64, 256, 512 pages", pio.0),
        pio.1,
        &format!(
            "up to the maximum no level has fewer than the previous one, above 256 pages each has less than 1 %; with programmed input \
             the processor moves all arrived data before the program continues; {with_dma}: {}",
            dma.0
        ),
    );
}

/// Hits on locked pages at some of the levels. Also whether they rise to a peak over all levels and almost disappear
/// above 256.
fn locked_up_to_a_point(levels: &Levels) -> (String, bool) {
    let locked = LEVELS.map(|level| levels.at(level).locked);
    let peak = (0..LEVELS.len()).max_by_key(|index| locked[*index]).unwrap_or(0);
    let rises = locked[peak] > locked[0] && locked[..=peak].is_sorted();
    let gone = LEVELS.iter().zip(locked).all(|(level, locked)| *level <= 256 || 100 * locked < FILE_PAGES);
    let shown = [1, 4, 16, 64, 256, 512].map(|level| levels.at(level).locked);
    (format!("{shown:?}"), rises && gone)
}

/// The cases in which the queue is full.
fn above_256(lines: &mut Lines, pio: &Levels) {
    let ratio = mb_per_s(pio.at(FILE_PAGES)) / mb_per_s(pio.at(1));
    lines.number(
        "figure 2: throughput with 25,600 pages over that without read-ahead",
        "almost as bad",
        Measure::new(ratio, "", 2),
        Bound::Between(1.0, 1.25),
        "almost: at most a quarter better",
    );
    let busy = |level: u64| {
        let usage = Usage::of(pio.at(level));
        usage.user_s + usage.system_s
    };
    let smaller = [512, 1024, 4096].iter().all(|level| busy(*level) < 0.7 * busy(64));
    let idle = |level: u64| Usage::of(pio.at(level)).idle_s;
    lines.shape(
        "figure 2: above 256 pages user and system time are small, and idle time grows by more",
        "small; more than enough to negate it",
        format!(
            "user and system {:.1} s at 64, {:.1} s at 1024; idle {:.1} s, {:.1} s",
            busy(64),
            busy(1024),
            idle(64),
            idle(1024)
        ),
        smaller && pio.at(1024).elapsed_ns > pio.at(64).elapsed_ns,
        "at 512, 1024 and 4096 pages less than 70 % of that at 64",
    );
}

/// Cumulated processor times at each moment at which the reader was killed.
pub(super) type Phases = Vec<(u64, Usage)>;

/// Figure 3: 25,600 pages in one request.
pub(super) fn extreme(lines: &mut Lines, machines: &Machines) -> Result<Phases, PaperError> {
    let moments: Vec<u64> = (1..=LAST_S / STEP_S).map(|step| step * STEP_S).collect();
    let killed = |at_s: &u64| {
        let mut job = Job::new(&machines.pio, &format!("advise({FILE_PAGES})"))?;
        job.scenario.settings.end_ns = at_s * 1_000_000_000;
        Ok(job)
    };
    let results = run_all(&moments.iter().map(killed).collect::<Result<Vec<_>, PaperError>>()?)?;
    let phases: Phases = moments.iter().copied().zip(results.iter().map(Usage::of)).collect();
    let end = &results[results.len() - 1];
    let at = |s: u64| {
        phases
            .iter()
            .find(|(moment, _)| *moment == s)
            .map_or(Usage { user_s: 0.0, system_s: 0.0, idle_s: 0.0 }, |(_, usage)| *usage)
    };
    lines.number(
        "figure 3, first phase: from 0 to 5 s system time",
        "nearly all of 5 s",
        Measure::new(at(5).system_s, "s", 2),
        Bound::AtLeast(4.0),
        "not explained: to be charged with 5 s the reader would have to run when the interrupts come, but it sleeps once the \
         queue is full; here it is full within a tenth of a second, and DMA shows that requesting pages costs almost no time",
    );
    let idle = (at(30).idle_s - at(5).idle_s) / 25.0;
    lines.number(
        "figure 3, second phase: from 5 to 30 or 35 s almost all idle",
        "almost all",
        Measure::percent(idle),
        Bound::AtLeast(90.0),
        "5 to 30 s; the reader waits for room in the queue",
    );
    let computes = phases
        .iter()
        .find(|(_, usage)| usage.user_s > 0.1)
        .map_or(f64::NAN, |(moment, usage)| *moment as f64 - usage.user_s);
    lines.number(
        "figure 3: the user phase begins after",
        "35 s",
        Measure::new(computes, "s", 1),
        Bound::Between(25.0, 35.0),
        "seen in steps of 5 s; the caption says both thirty and thirty five",
    );
    let [before, after] = [at(30), Usage::of(end)];
    let user = (after.user_s - before.user_s) / (seconds(end.elapsed_ns) - 30.0);
    lines.number(
        "figure 3, third phase: all user time",
        "all",
        Measure::percent(user),
        Bound::AtLeast(95.0),
        "from 30 s to the end; faults are system time",
    );
    Ok(phases)
}

/// Figure 4: the disk moves the data.
pub(super) fn dma(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    let (_, best) = runs.dma.best();
    lines.number(
        "figure 4: the throughput peaks with DMA above",
        "11 MB/s",
        rate(best),
        Bound::Between(11.0, 12.5),
        "above 11, and below what true read-ahead reached",
    );
    lines.number(
        "figure 4: with DMA it matches NTFS: part of its throughput",
        "matches: above 11 of around 13 MB/s",
        Measure::percent(best / platter_mb_per_s(machines)),
        Bound::Within(100.0, NTFS_APART),
        "as close as the paper's two numbers, 11 and 13 MB/s; the platter's rate is an input",
    );
    let (_, slow) = runs.pio.best();
    lines.number(
        "figure 4: over the best without DMA",
        "nearly four times",
        Measure::new(best / slow, "", 1),
        Bound::Between(3.4, 4.0),
        "11 over 3.2 is 3.4",
    );
    let users: Vec<f64> = LEVELS.iter().map(|level| Usage::of(runs.dma.at(*level)).user_s).collect();
    let spread = users.iter().copied().fold(0.0, f64::max) - users.iter().copied().fold(f64::INFINITY, f64::min);
    lines.input(
        "figure 4: user time is consistent at all levels: spread",
        "consistent",
        Measure::new(spread, "s", 2),
        "the same program, with the same time for each page",
    );
    let idle = LEVELS.map(|level| (Usage::of(runs.pio.at(level)).idle_s, Usage::of(runs.dma.at(level)).idle_s));
    lines.shape(
        "figure 4: idle time decreased but was not eliminated",
        "decreased, not eliminated",
        format!("{:.1} to {:.1} s at 1 page, {:.1} to {:.1} s at 8192", idle[0].0, idle[0].1, idle[13].0, idle[13].1),
        idle.iter().all(|(_, dma)| *dma > 0.0) && idle[0].1 < idle[0].0 && idle[13].1 < idle[13].0,
        "at every level some idle time remains",
    );
    let system = Usage::of(runs.dma.at(64)).system_s / seconds(runs.dma.at(64).elapsed_ns);
    lines.input("figure 4: system time", "negligible", Measure::percent(system), "15 us for a page");
    let four = runs.dma.at(16);
    lines.number(
        "at an advice of four, a miss every",
        "16 pages",
        Measure::new(FILE_PAGES as f64 / four.misses as f64, "pages", 0),
        Bound::Within(16.0, 0.0),
        "a rule of the code: 2 to the fourth",
    );
    faster_drive(lines, runs);
    forced_pio(lines, machines)
}

fn faster_drive(lines: &mut Lines, runs: &Runs) {
    let [slow, fast] = [&runs.pio, &runs.dma].map(|levels| levels.at(FILE_PAGES));
    let idle = |counters: &Counters| Usage::of(counters).idle_s;
    lines.shape(
        "a faster drive shrinks the second phase of figure 3 but cannot eliminate it",
        "shrinks, not eliminated",
        format!("{:.1} s with programmed input, {:.1} s with DMA", idle(slow), idle(fast)),
        idle(fast) < 0.5 * idle(slow) && idle(fast) > 1.0,
        "25,600 pages at once",
    );
}

/// The limit of any read-ahead while the processor moves the data.
fn forced_pio(lines: &mut Lines, machines: &Machines) -> Result<(), PaperError> {
    let best = run_all(&[Job::new(&machines.pio, "true-readahead(64)")?])?;
    let (modified, costs) = (mb_per_s(&best[0]), machines.pio.settings.costs);
    let stream = machines.pio.workloads[0].streams[0];
    let bound =
        1e9 / 256.0 / (costs.pio_per_page_ns + costs.fault_ns + costs.request_per_page_ns + stream.user_per_page_ns);
    lines.input(
        "NTFS drops to the same level if it is forced to programmed input: the limit of any system",
        "the level of Linux: 3.2 MB/s",
        rate(bound),
        &format!("the sum of the processor's times for a page; true read-ahead reaches {modified:.2} MB/s with it"),
    );
    Ok(())
}
