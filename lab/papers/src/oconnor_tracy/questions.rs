//! The questions that the paper leaves open.

use super::{FILE_PAGES, LEVELS, Levels, Machines, Runs, Usage, at_levels, mb_per_s, waits};
use crate::counts::{MIB, seconds};
use crate::{
    Asked, Axis, Figure, Filesystem, Job, Lines, Live, Observed, PaperError, Plot, policy, run_all, scenario, series,
};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Disk, Scenario, Scheme};

/// End of the continuous range of n. Every second n up to this limit is run.
const RANGE_END: u64 = 320;
/// Fractions of a group after which read-ahead starts.
const FRACTIONS: [f64; 7] = [1.0 / 16.0, 1.0 / 8.0, 0.25, 0.375, 0.5, 0.75, 1.0];
/// Group sizes that are run with these fractions, pages.
const GROUPS: [u64; 3] = [64, 256, 1024];

pub(super) fn add(
    lines: &mut Lines,
    machines: &Machines,
    runs: &Runs,
    live: Option<&dyn Live>,
) -> Result<Vec<Figure>, PaperError> {
    answer_user_time(lines, runs);
    answer_queue(lines, machines)?;
    let mut figures = vec![answer_peak(lines, machines)?];
    answer_long_waits(lines, machines, runs)?;
    answer_upfront(lines, machines)?;
    figures.push(answer_fraction(lines, machines)?);
    answer_adaptive(lines, machines, runs, live)?;
    answer_sort(lines)?;
    Ok(figures)
}

fn idle_s(counters: &Counters) -> f64 {
    Usage::of(counters).idle_s
}

fn answer_user_time(lines: &mut Lines, runs: &Runs) {
    let charged = |level: u64| Usage::of(runs.pio.at(level)).user_s;
    let own: Vec<u64> = runs.pio.0.iter().map(|(_, counters)| counters.user_ns).collect();
    let same = own.iter().all(|time_ns| time_ns.abs_diff(own[0]) < own[0] / 1000);
    let varies = charged(64) > 2.0 * charged(1) && charged(64) > 2.0 * charged(FILE_PAGES);
    lines.answer(
        "why does user time vary with programmed input, where it should be constant?",
        "no good explanation",
        format!(
            "the program itself takes {:.1} s at every level; charged are {:.1} s at 1 page, {:.1} s at 64, {:.1} s at 1024, {:.1} s at 25,600",
            seconds(own[0]), charged(1), charged(64), charged(1024), charged(FILE_PAGES)
        ),
        same && varies,
        "the disk interrupt of 2.2 moves the data with interrupts disabled (SA_INTERRUPT in ide-probe.c); the clock tick comes \
         when it ends and is charged to the interrupted process: the program if disk and program overlap, no process if the \
         program waits",
    );
}

/// The smallest n that waits for the queue.
fn first_wait(machines: &Machines, request_kib: u64) -> Result<Option<u64>, PaperError> {
    let mut scenario = machines.dma.clone();
    scenario.disk.longest_bytes = Some(request_kib << 10);
    let pages = request_kib * 1024 / PAGE_BYTES;
    let near = 128 * pages;
    let levels = at_levels(&scenario, "advise", (near - 8..near + 16).chain([near + near / 4]))?;
    Ok(levels.0.iter().find(|(_, counters)| counters.queue_waits > 0).map(|(level, _)| *level))
}

fn answer_queue(lines: &mut Lines, machines: &Machines) -> Result<(), PaperError> {
    let [one, two, merged] = [first_wait(machines, 4)?, first_wait(machines, 8)?, first_wait(machines, 122 / 4 * 4)?];
    let text = |first: Option<u64>| first.map_or("none".to_owned(), |first| first.to_string());
    lines.answer(
        "why does the queue of 128 requests seem to hold 260?",
        "more like 260; no explanation",
        format!(
            "smallest n that waits: {} if a request is one page, {} if it is two, {} if it is 30",
            text(one),
            text(two),
            text(merged)
        ),
        two.is_some_and(|first| (250..=270).contains(&first)) && one.is_some_and(|first| first < 140) && merged.is_none_or(|first| first > 3000),
        "the paper counts pages. make_request of 2.2 adds a block to a request that it continues on the disk, up to 244 \
         sectors; 260 pages in 128 requests are two pages each, which also gives the paper's 7000 waits. ext2 preallocates \
         pieces of 8 KiB for a growing file with blocks of 1 KiB; that the paper's file had this layout is inferred",
    );
    Ok(())
}

/// The same scenario with every file in one piece.
pub(super) fn in_one_piece(scenario: &Scenario) -> Scenario {
    laid_out(scenario, Scheme::Extents)
}

fn laid_out(scenario: &Scenario, layout: Scheme) -> Scenario {
    Scenario { disk: Disk { layout, ..scenario.disk.clone() }, ..scenario.clone() }
}

fn answer_peak(lines: &mut Lines, machines: &Machines) -> Result<Figure, PaperError> {
    let range = || (2..=RANGE_END).step_by(2);
    let old = at_levels(&machines.dma, "advise", range())?;
    let new = at_levels(&machines.dma, "true-readahead", range())?;
    let plain = at_levels(&in_one_piece(&machines.dma), "advise", [64, 128, 240].into_iter())?;
    let small = at_levels(&laid_out(&machines.dma, Scheme::Ext2Kib), "advise", LEVELS.into_iter())?;
    let small_waits = small.0.iter().map(|(_, counters)| counters.queue_waits).max().unwrap_or(0);
    let (best_at, best) = old.best();
    let part = |level: u64| mb_per_s(old.at(level)) / best;
    let lost = [64, 128, 240].map(|level| idle_s(old.at(level)) - idle_s(plain.at(level)));
    lines.answer(
        "why does throughput peak around 64 to 128 pages? (with a continuous range)",
        "future work",
        format!(
            "relative to the best (n = {best_at}): {}; loss by pointer blocks: {:.2} s at 64, {:.2} s at 128, {:.2} s at 240. \
             With blocks of 1 KiB the best is n = {}, with at most {small_waits} waits for the queue",
            [16, 32, 64, 100, 128, 200, 256, 300].map(|level| format!("{:.0} % at {level}", 100.0 * part(level))).join(", "),
            lost[0],
            lost[1],
            lost[2],
            small.best().0
        ),
        (64..=128).contains(&best_at) && part(16) < 0.93 && part(64) > 0.97 && part(128) > 0.98 && part(300) < 0.95 && lost[2] > 0.1 && lost[0] < 0.1,
        "three costs: the waits for N/n misses, which fall with n; at each of ext2's pointer blocks a wait for everything \
         requested before, which rises with n (little for divisors of 1024: their groups meet it after 12 pages); the full queue \
         from 257 pages on. Between 64 and 256 all three are small for powers of two, the only n that the authors could try; so \
         here is no peak at 64 to 128, but a plateau that ends at 256. With blocks of 1 KiB there is a peak: an indirect block \
         names 64 pages. But a larger n waits for the next indirect block, so the queue never fills, and the authors counted \
         7000 waits for it",
    );
    Ok(range_figure(&old, &new))
}

fn range_figure(old: &Levels, new: &Levels) -> Figure {
    let points = |levels: &Levels| {
        levels.0.iter().map(|(level, counters)| (*level as f64, mb_per_s(counters))).collect::<Vec<_>>()
    };
    Figure {
        title: "Every second n up to 320".into(),
        caption: "Throughput with DMA. The dips of the original between powers of two are pointer blocks; its fall from 257 on is the queue.".into(),
        plot: Plot::Lines {
            x: Axis::linear("read-ahead, pages"),
            y: Axis::linear("throughput, MB/s"),
            series: vec![series("original", points(old)), series("true read-ahead", points(new))],
        },
    }
}

fn answer_long_waits(lines: &mut Lines, machines: &Machines, runs: &Runs) -> Result<(), PaperError> {
    let plain = at_levels(&in_one_piece(&machines.dma), "true-readahead", [64, 4096].into_iter())?;
    let [few, many] = [64, 4096].map(|level| runs.modified.at(level));
    let [few_plain, many_plain] = [64, 4096].map(|level| plain.at(level));
    lines.answer(
        "why is 512 and more not the fastest, with the fewest waits? (do they last longer?)",
        "speculation: an efficiency in queuing 64 requests",
        format!(
            "idle {:.2} s with {} waits at 64, {:.2} s with {} at 4096; in one piece {:.2} and {:.2} s",
            idle_s(few), waits(few), idle_s(many), waits(many), idle_s(few_plain), idle_s(many_plain)
        ),
        waits(many) < waits(few) && idle_s(many) > idle_s(few) + 0.3 && idle_s(many_plain) < idle_s(few_plain) + 0.1,
        "the waits do last longer, and none is for a page: at each of 25 pointer blocks read-ahead waits until the block is \
         read, behind everything in the queue, and the program waits with it. With the file in one piece (extents) the \
         difference disappears",
    );
    Ok(())
}

fn answer_upfront(lines: &mut Lines, machines: &Machines) -> Result<(), PaperError> {
    let mut whole = Job::new(&machines.dma, "true-readahead(64)")?;
    let mut first = whole.clone();
    first.scenario.settings.end_ns = 1_000_000_000;
    whole.scenario.settings.end_ns = u64::MAX;
    let results = run_all(&[first, whole])?;
    let [first, whole] = [idle_s(&results[0]), idle_s(&results[1])];
    lines.answer(
        "does all of the idle time at 64 pages occur up front?",
        "speculation: it does",
        format!("{first:.2} s of {whole:.2} s in the first second of eight"),
        first < 0.4 * whole,
        "no: platter and program are nearly equally fast, and the program catches up with the disk during the whole run",
    );
    Ok(())
}

fn answer_fraction(lines: &mut Lines, machines: &Machines) -> Result<Figure, PaperError> {
    let period = |group: u64, fraction: f64| ((group as f64 * fraction) as u64).max(1);
    let cases: Vec<(u64, f64)> = GROUPS.iter().flat_map(|group| FRACTIONS.map(|fraction| (*group, fraction))).collect();
    let jobs = cases.iter().map(|(group, fraction)| {
        Job::new(&machines.dma, &format!("true-readahead({group}, {})", period(*group, *fraction)))
    });
    let results = run_all(&jobs.collect::<Result<Vec<_>, _>>()?)?;
    let of = |group: u64| -> Vec<(f64, f64)> {
        let chosen = cases.iter().zip(&results).filter(|((of, _), _)| *of == group);
        chosen.map(|((_, fraction), counters)| (*fraction, idle_s(counters))).collect()
    };
    let [small, middle, large] = GROUPS.map(of);
    let spread =
        |points: &[(f64, f64)]| points.iter().fold(0.0_f64, |most, point| most.max((point.1 - points[0].1).abs()));
    let (quarter, half) = (large[2].1 - large[0].1, large[4].1 - large[0].1);
    lines.answer(
        "what is gained if read-ahead starts after a fraction of the group? (footnote 12)",
        "smarter, not tried",
        format!(
            "idle time, all fractions: within {:.2} s at 64 pages, {:.2} s at 256; at 1024 {quarter:+.2} s after a quarter, {half:+.2} s after half",
            spread(&small), spread(&middle)
        ),
        spread(&small) < 0.1 && spread(&middle) < 0.5 && quarter < 0.2 && half > 1.0,
        "no time, only fewer triggers; where two groups do not fit into the queue (256 pages), dropped requests must be \
         repeated before the queue is empty: a quarter of 1024 is in time, a half is not",
    );
    Ok(fraction_figure([small, middle, large]))
}

fn fraction_figure(points: [Vec<(f64, f64)>; 3]) -> Figure {
    let list = GROUPS.iter().zip(points).map(|(group, points)| series(&format!("{group} pages"), points));
    Figure {
        title: "Read-ahead that starts after a fraction of the group".into(),
        caption: "Idle time of true read-ahead with DMA, over the fraction of a group between two checks.".into(),
        plot: Plot::Lines {
            x: Axis::linear("fraction of the group"),
            y: Axis::linear("idle time, s"),
            series: list.collect(),
        },
    }
}

fn answer_adaptive(
    lines: &mut Lines,
    machines: &Machines,
    runs: &Runs,
    live: Option<&dyn Live>,
) -> Result<(), PaperError> {
    let names = ["true-readahead(64, adaptive)", "true-readahead(1024, adaptive)", "ahead", "linux-6.18"];
    let jobs = names.map(|name| Job::new(&machines.dma, name)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let results = run_all(&jobs)?;
    let [small, large] = [(64, &results[0]), (1024, &results[1])]
        .map(|(group, counters)| mb_per_s(counters) / mb_per_s(runs.modified.at(group)) - 1.0);
    lines.answer(
        "could P be determined adaptively?",
        "in principle",
        format!("{:+.1} % at 64 pages, {:+.1} % at 1024, against P = 16", 100.0 * small, 100.0 * large),
        small > -0.06 && large.abs() < 0.01,
        "yes: P doubles when a trigger finds nothing to request, and halves when the program waits. It gains nothing: P grows \
         until the program waits, which read-ahead should avoid; checking too often costs less",
    );
    let best = mb_per_s(runs.modified.at(64));
    let [ours, linux] = [&results[2], &results[3]].map(|counters| 100.0 * mb_per_s(counters) / best);
    let seen = live.map(|live| run_live(live, &machines.dma)).transpose()?;
    let line = lines.answer(
        "could the amount of read-ahead adapt, without magic numbers?",
        "future work",
        format!(
            "relative to true read-ahead with 64 pages: Linux 6.18 at 128 KiB {linux:.1} %, `ahead` without parameters {ours:.1} %"
        ),
        linux.max(ours) > 98.0 && linux.min(ours) > 90.0,
        "windows that double up to a limit need no advice. `ahead` requests more only after the program has waited; disk and \
         program are nearly equally fast here, so each step costs a wait",
    );
    line.live_shape(seen.map(|seen| {
        let rate = seen.throughput_bytes_per_s() / MIB;
        (format!("{rate:.1} MB/s on the running kernel"), rate > 0.98 * best)
    }));
    Ok(())
}

/// Runs the program and the disk of the paper on the running kernel with its default window.
fn run_live(live: &dyn Live, machine: &Scenario) -> Result<Observed, PaperError> {
    let scenario = Scenario { policies: vec![policy("linux-6.18")?], ..machine.clone() };
    let filesystem = Filesystem { name: "ext2", block_bytes: PAGE_BYTES };
    Ok(live.run(&Asked { scenario: &scenario, filesystem, each: false })?)
}

fn answer_sort(lines: &mut Lines) -> Result<(), PaperError> {
    let sort = scenario("oconnor_tracy/sort.toml", include_str!("../../oconnor_tracy/sort.toml"))?;
    let names = ["linux-2.2", "advise(64)", "true-readahead(64)"];
    let results = run_all(&names.map(|name| Job::new(&sort, name)).into_iter().collect::<Result<Vec<_>, _>>()?)?;
    let [stock, advised, modified] = [0, 1, 2].map(|index| seconds(results[index].elapsed_ns));
    lines.answer(
        "how would an external sort benefit? (first pass, groups of 64 pages)",
        "greatly; not tried",
        format!("{stock:.1} s on Linux 2.2, {advised:.1} s with advice, {modified:.1} s with true read-ahead"),
        modified < 0.75 * advised && advised < stock,
        "while one group is sorted the next one is read: the pass takes the time of the slower of disk and sort, not their sum",
    );
    Ok(())
}
