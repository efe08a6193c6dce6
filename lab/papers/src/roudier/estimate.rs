//! The paper's estimate, and the rule that follows from it.

use crate::counts::{load, seconds};
use crate::{
    Asked, Axis, Bound, Figure, Filesystem, Job, Lines, Live, Measure, Observed, PaperError, Plot, StackedBar, policy,
    run_all, scenario, series,
};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Scenario};

/// Rate of the disk, bytes per second.
const DISK_BYTES_PER_S: f64 = 4e6;
/// Rate of the disk's cache, bytes per second.
const CACHE_BYTES_PER_S: f64 = 8e6;
/// Speeds of programs for the curve, as their load (percent) at the full speed of the disk.
const LOADS: std::ops::RangeInclusive<u64> = 1..=40;
const LOAD_STEP: f64 = 0.05;
/// A smaller gain counts as none: it comes from one page more or less at the end of the file.
const NO_GAIN: f64 = 0.002;

/// A program that computes for `load` seconds on the data that the disk transfers in a second.
fn program(base: &Scenario, load: f64) -> Scenario {
    let mut scenario = base.clone();
    let per_page_ns = load * PAGE_BYTES as f64 / DISK_BYTES_PER_S * 1e9;
    scenario.workloads.iter_mut().flat_map(|workload| &mut workload.streams).for_each(|stream| {
        stream.user_per_page_ns = per_page_ns;
    });
    scenario
}

fn mb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.throughput_bytes_per_s() / 1e6, "MB/s", 2)
}

pub(super) fn add(lines: &mut Lines, live: Option<&dyn Live>) -> Result<Vec<Figure>, PaperError> {
    let base = scenario("roudier/estimate.toml", include_str!("../../roudier/estimate.toml"))?;
    let fast = program(&base, 0.5);
    let mut jobs = vec![Job::new(&base, "linux-1.3")?, Job::new(&base, "roudier")?];
    jobs.extend([Job::new(&fast, "linux-1.3")?, Job::new(&fast, "roudier")?]);
    for step in LOADS {
        let swept = program(&base, LOAD_STEP * step as f64);
        jobs.extend([Job::new(&swept, "linux-1.3")?, Job::new(&swept, "roudier")?]);
    }
    let results = run_all(&jobs)?;
    let (four, rest) = results.split_at(4);
    add_cases(lines, four, live, &base)?;
    let gains: Vec<(f64, f64)> =
        LOADS.zip(rest.chunks(2)).map(|(step, pair)| (step, gain(pair))).map(percents).collect();
    add_rule(lines, &gains);
    Ok(vec![machine_time(four), curve(gains)])
}

fn gain(pair: &[Counters]) -> f64 {
    pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0
}

fn percents((step, gain): (u64, f64)) -> (f64, f64) {
    (100.0 * LOAD_STEP * step as f64, 100.0 * gain)
}

fn add_cases(lines: &mut Lines, four: &[Counters], live: Option<&dyn Live>, base: &Scenario) -> Result<(), PaperError> {
    let [slow, fast, slow_8, fast_8] = [&four[0], &four[1], &four[2], &four[3]];
    let exact = "the estimate in steps of nine pages; the first access moves the arm";
    let idle = slow.idle_ns() as f64 / slow.elapsed_ns as f64;
    lines.number(
        "synchronous: time that the program waits for the disk",
        "about 33 % of the time",
        Measure::percent(idle),
        Bound::Within(100.0 / 3.0, 0.01),
        exact,
    );
    lines.number("synchronous: speed", "2.67 MB/s", mb_per_s(slow), Bound::Within(2.67, 0.01), exact);
    lines.number("synchronous: load", "67 %", Measure::percent(load(slow)), Bound::Within(67.0, 0.01), exact);
    let seen = live.map(|live| live.run(&live_job(base)?.asked()).map_err(PaperError::from)).transpose()?;
    let bound = Bound::Within(4.0, 0.01);
    let speed = lines.number("asynchronous: speed", "4 MB/s", mb_per_s(fast), bound, exact);
    speed.live(seen.as_ref().map(|seen| Measure::new(seen.throughput_bytes_per_s() / 1e6, "MB/s", 2)), bound);
    let bound = Bound::Within(100.0, 0.01);
    let busy = lines.number("asynchronous: load", "100 % (theoretically)", Measure::percent(load(fast)), bound, exact);
    let share = |seen: &Observed| (seen.user_ns + seen.system_ns) as f64 / seen.elapsed_ns.max(1) as f64;
    busy.live(seen.as_ref().map(|seen| Measure::percent(share(seen))), bound);
    lines.number(
        "a program of 8 MB/s, synchronous: speed",
        "4 MB/s",
        mb_per_s(slow_8),
        Bound::Within(4.0, 0.01),
        exact,
    );
    lines.number(
        "a program of 8 MB/s, synchronous: load",
        "50 %",
        Measure::percent(load(slow_8)),
        Bound::Within(50.0, 0.01),
        exact,
    );
    lines.number(
        "a program of 8 MB/s gains nothing",
        "full speed either way",
        Measure::new(100.0 * gain(&[slow_8.clone(), fast_8.clone()]), "%", 1),
        Bound::Between(-0.5, 0.5),
        exact,
    );
    Ok(())
}

/// The estimate as a job for the running kernel.
struct LiveJob(Scenario);

impl LiveJob {
    fn asked(&self) -> Asked<'_> {
        Asked { scenario: &self.0, filesystem: Filesystem { name: "ext4", block_bytes: PAGE_BYTES }, each: false }
    }
}

fn live_job(base: &Scenario) -> Result<LiveJob, PaperError> {
    Ok(LiveJob(Scenario { policies: vec![policy("linux-6.18")?], ..base.clone() }))
}

fn add_rule(lines: &mut Lines, gains: &[(f64, f64)]) {
    let begins = gains.iter().find(|(_, gain)| *gain > 100.0 * NO_GAIN).map_or(f64::NAN, |(load, _)| *load);
    let last_without = begins - 100.0 * LOAD_STEP;
    lines.number(
        "the gain begins above a processor load, at the disk's full speed, of",
        "50 %",
        Measure::new(last_without, "%", 0),
        Bound::Within(50.0, 0.0),
        "the last load in steps of 5 % at which the patch gains nothing",
    );
    let best = gains.iter().copied().fold((0.0, 0.0), |best, now| if now.1 > best.1 { now } else { best });
    lines.answer(
        "largest gain, and at which load",
        "not stated",
        format!("{:.0} % at a load of {:.0} %", best.1, best.0),
        (best.0 - 100.0).abs() < 1.0,
        "the same curve; above 100 % the processor is the limit, and the disk's share of the time decreases",
    );
}

fn machine_time(four: &[Counters]) -> Figure {
    let names = ["4 MB/s, synchronous", "4 MB/s, asynchronous", "8 MB/s, synchronous", "8 MB/s, asynchronous"];
    let bar = |(name, counters): (&str, &Counters)| StackedBar {
        label: name.to_owned(),
        values: vec![seconds(counters.user_ns), seconds(counters.idle_ns())],
    };
    Figure {
        title: "The estimate".into(),
        caption: "Programs of 4 and of 8 MB/s read 40 MiB from a disk of 4 MB/s whose cache gives 8 MB/s.".into(),
        plot: Plot::Stacked {
            x: "program and kernel".into(),
            y: "time, s".into(),
            parts: vec!["user".into(), "idle".into()],
            bars: names.into_iter().zip(four).map(bar).collect(),
        },
    }
}

fn curve(gains: Vec<(f64, f64)>) -> Figure {
    // Times for a byte: the program, the disk, the cache.
    let estimated = |load: f64| {
        let (program, disk, cache) = (load / DISK_BYTES_PER_S, 1.0 / DISK_BYTES_PER_S, 1.0 / CACHE_BYTES_PER_S);
        100.0 * ((program + cache).max(disk) / program.max(disk) - 1.0)
    };
    let theirs: Vec<(f64, f64)> = gains.iter().map(|(load, _)| (*load, estimated(load / 100.0))).collect();
    Figure {
        title: "Gain of reading ahead while the program computes".into(),
        caption: "Roudier's rule: no gain below 50 %. The estimated curve is his arithmetic for every load.".into(),
        plot: Plot::Lines {
            x: Axis::linear("load at the full speed of the disk, %"),
            y: Axis::linear("gain in speed, %"),
            series: vec![series("ours", gains), series("estimated", theirs)],
        },
    }
}
