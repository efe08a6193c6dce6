//! Figures 1 to 7 from our data.

use super::original::Phases;
use super::{LEVELS, Levels, Runs, Usage, waits};
use crate::{Axis, Figure, Plot, StackedBar, series};
use ahead_sim::Counters;

const PAGES: &str = "read-ahead, pages";

pub(super) fn of_the_paper(runs: &Runs, phases: &Phases) -> Vec<Figure> {
    vec![
        cache("Figure 1, programmed input", &runs.pio),
        cache("Figure 1, DMA", &runs.dma),
        usage("Figure 2", "The original read-ahead with programmed input, as getrusage saw it.", &runs.pio),
        three_phases(phases),
        usage("Figure 4", "The original read-ahead with DMA.", &runs.dma),
        usage("Figure 5", "True read-ahead with DMA.", &runs.modified),
        idle(runs),
        all_waits(runs),
    ]
}

fn points(levels: &Levels, value: impl Fn(&Counters) -> f64) -> Vec<(f64, f64)> {
    LEVELS.iter().map(|level| (*level as f64, value(levels.at(*level)))).collect()
}

fn lines(title: &str, caption: &str, y: &str, list: Vec<crate::Series>) -> Figure {
    let plot = Plot::Lines { x: Axis::logarithmic(PAGES), y: Axis::linear(y), series: list };
    Figure { title: title.into(), caption: caption.into(), plot }
}

fn cache(title: &str, levels: &Levels) -> Figure {
    let list = vec![
        series("misses (then locked)", points(levels, |counters| counters.misses as f64)),
        series("hits on locked pages", points(levels, |counters| counters.locked as f64)),
        series("hits on unlocked pages", points(levels, |counters| counters.hits as f64)),
    ];
    lines(title, "How the program found its 25,600 pages, with the original read-ahead.", "pages", list)
}

fn parts(usage: Usage) -> Vec<f64> {
    vec![usage.user_s, usage.system_s, usage.idle_s]
}

fn stacked(title: &str, caption: &str, x: &str, bars: Vec<StackedBar>) -> Figure {
    let parts = ["user", "system", "idle"].map(String::from).to_vec();
    let plot = Plot::Stacked { x: x.into(), y: "time, s".into(), parts, bars };
    Figure { title: title.into(), caption: caption.into(), plot }
}

fn usage(title: &str, caption: &str, levels: &Levels) -> Figure {
    let bar = |level: &u64| StackedBar { label: level.to_string(), values: parts(Usage::of(levels.at(*level))) };
    stacked(title, caption, PAGES, LEVELS.iter().map(bar).collect())
}

fn three_phases(phases: &Phases) -> Figure {
    let bar = |(moment, usage): &(u64, Usage)| StackedBar { label: moment.to_string(), values: parts(*usage) };
    let caption = "25,600 pages at once, with programmed input; what had been used up to each moment.";
    stacked("Figure 3", caption, "lifetime, s", phases.iter().map(bar).collect())
}

fn idle(runs: &Runs) -> Figure {
    let of = |counters: &Counters| Usage::of(counters).idle_s;
    let list = vec![series("original", points(&runs.dma, of)), series("true read-ahead", points(&runs.modified, of))];
    lines("Figure 6", "Idle time with DMA.", "idle time, s", list)
}

fn all_waits(runs: &Runs) -> Figure {
    let of = |counters: &Counters| waits(counters) as f64;
    let list = vec![series("original", points(&runs.dma, of)), series("true read-ahead", points(&runs.modified, of))];
    lines("Figure 7", "Waits for pages and for room in the queue, with DMA.", "waits", list)
}
