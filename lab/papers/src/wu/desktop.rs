//! Hit ratio and footprint of a desktop: programs that start through mappings, and the additional pages of read-around.

use crate::starts::Starts;
use crate::{Axis, Bound, Figure, Lines, Measure, Outcome, PaperError, Plot, in_parallel, policy, scenario, series};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Counters, Mapped, Op, Program, Scenario};

/// The programs of a terminal session.
const CONSOLE: [&str; 5] = ["bash", "vim", "git", "gcc", "perl"];
/// The programs of a desktop session: in addition, programs with a toolkit, with hundreds of modules, with a virtual
/// machine.
const DESKTOP: [&str; 10] = ["bash", "vim", "git", "gcc", "perl", "gtk", "python", "gdb", "node", "java"];
/// Windows (KB), hit ratio (%), used and read amount (MB), as printed.
type Quoted = (u64, f64, f64, f64);
const UNDER_X: [Quoted; 3] = [(128, 62.0, 143.0, 230.0), (512, 55.0, 138.0, 248.0), (1024, 51.0, 130.0, 253.0)];
const ON_CONSOLE: [Quoted; 2] = [(128, 53.0, 30.0, 56.0), (1024, 51.0, 30.0, 59.0)];
/// The tolerance of the ratio, as a share of Wu's. Wu's own two desktops have 62 and 53 %.
const TOLERANCE: f64 = 0.2;
/// The tolerance of the growth in read amount with a longer window, in points relative to Wu's.
const GROWTH_POINTS: f64 = 10.0;

/// The programs one after the other, each with separate openings.
fn program(starts: &Starts, names: &[&str]) -> Program {
    let mut ops = Vec::new();
    for (start, number) in starts.named(names).zip(0..) {
        let open = |file: usize| OpenId((number * starts.files.len() + file) as u32);
        for run in &start.runs {
            let (open, file) = (open(run.file), FileId(run.file as u32));
            ops.push(match starts.files[run.file].is_mapped {
                true => Op::Touch { open, file, first: run.first, pages: run.pages, mapped: Mapped::default() },
                false => {
                    let (offset_bytes, length_bytes) = (run.first * PAGE_BYTES, run.pages * PAGE_BYTES);
                    Op::Read { open, file, offset_bytes, length_bytes }
                }
            });
        }
    }
    Program { ops: Box::new(ops.into_iter()), user_per_page_ns: 0.0 }
}

fn measure(machine: &Scenario, starts: &Starts, names: &[&str], windows: &[u64]) -> Result<Vec<Counters>, PaperError> {
    let file_pages: Vec<u64> = starts.files.iter().map(|file| file.pages).collect();
    let choice = policy("linux-2.6.23")?;
    let run = |window_kb: &u64| {
        let mut machine = machine.clone();
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        machine.machine_for(&choice, &file_pages, vec![program(starts, names)]).map(|machine| machine.run())
    };
    Ok(in_parallel(windows, run).into_iter().collect::<Result<_, _>>()?)
}

fn hit_ratio(counters: &Counters) -> f64 {
    counters.used_pages as f64 / counters.issued_pages as f64
}

fn mb(pages: u64) -> f64 {
    (pages * PAGE_BYTES) as f64 / (1 << 20) as f64
}

pub(super) fn run(outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let machine = scenario("wu/desktop.toml", include_str!("../../wu/desktop.toml"))?;
    let starts = Starts::measured();
    outcome.input(
        "desktop and console",
        format!("{} and {} programs: {}; {}", DESKTOP.len(), CONSOLE.len(), DESKTOP.join(", "), CONSOLE.join(", ")),
        "measured: the pages that they touch when they start today (lab/papers/starts.txt); chosen before the first simulation",
    );
    for (what, names, quoted) in [("under X", &DESKTOP[..], &UNDER_X[..]), ("console", &CONSOLE[..], &ON_CONSOLE[..])] {
        let windows: Vec<u64> = quoted.iter().map(|row| row.0).collect();
        let runs = measure(&machine, &starts, names, &windows)?;
        ratios(what, quoted, &runs, lines);
    }
    let sizes: Vec<u64> = (2..=11).map(|power| 1 << power).collect();
    let runs = measure(&machine, &starts, &DESKTOP, &sizes)?;
    let percent = runs.iter().map(|counters| 100.0 * hit_ratio(counters));
    outcome.figures.push(Figure {
        title: "Hit ratio and footprint of a desktop".into(),
        caption: "Ten programs start one after the other: the amount read, and the used share of it.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("window, KB"),
            y: Axis::linear("percent, and MB"),
            series: vec![
                series("used share of the read pages, %", sizes.iter().map(|kb| *kb as f64).zip(percent)),
                series("read, MB", sizes.iter().map(|kb| *kb as f64).zip(runs.iter().map(|run| mb(run.issued_pages)))),
            ],
        },
    });
    Ok(())
}

fn ratios(what: &str, quoted: &[Quoted], runs: &[Counters], lines: &mut Lines) {
    for (counters, (window_kb, ratio, used_mb, read_mb)) in runs.iter().zip(quoted) {
        lines
            .number(
                &format!("{what}: read-ahead hit ratio with windows of {window_kb} KB"),
                &format!("{ratio} % ({used_mb} of {read_mb} MB)"),
                Measure::percent(hit_ratio(counters)),
                Bound::Within(*ratio, TOLERANCE),
                "other programs of another year: current programs touch most of what they map when they start; the paper's two sessions \
                 are 62 and 53 %",
            )
            .ours += &format!(" ({:.0} of {:.0} MB)", mb(counters.used_pages), mb(counters.issued_pages));
    }
    let shown = runs.iter().map(|run| format!("{:.1} %", 100.0 * hit_ratio(run))).collect::<Vec<_>>().join(", ");
    let falls = runs.windows(2).all(|pair| hit_ratio(&pair[1]) < hit_ratio(&pair[0]));
    let theirs = quoted.iter().map(|row| format!("{} %", row.1)).collect::<Vec<_>>().join(", ");
    let claim = format!("{what}: the longer the window, the lower the hit ratio");
    lines.shape(&claim, &theirs, shown, falls, "each lower than the one before it");
    let (first, last) = (&quoted[0], &quoted[quoted.len() - 1]);
    let growth = |first: f64, last: f64| 100.0 * (last / first - 1.0);
    let theirs = growth(first.3, last.3).round();
    let ours = growth(runs[0].issued_pages as f64, runs[runs.len() - 1].issued_pages as f64);
    lines.number(
        &format!("{what}: memory footprint with windows of {} KB against {} KB", last.0, first.0),
        &format!("{theirs:+} % ({} against {} MB): acceptable", last.3, first.3),
        Measure::new(ours, "%", 1),
        Bound::Between(theirs - GROWTH_POINTS, theirs + GROWTH_POINTS),
        "ten points: other programs of another year",
    );
}
