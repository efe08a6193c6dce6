//! The solid-state disk that "desires large readahead size even for sequential reads".

use crate::{Axis, Bound, Figure, Lines, Measure, Outcome, PaperError, Plot, in_parallel, policy, scenario, series};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;
use ahead_sim::Scenario;

/// Window (KB) and the two runs (MB/s).
const SWEEP: [(u64, f64, f64); 11] = [
    (4, 123.0, 122.0),
    (16, 153.0, 153.0),
    (32, 161.0, 162.0),
    (64, 167.0, 168.0),
    (128, 197.0, 197.0),
    (256, 217.0, 217.0),
    (512, 238.0, 234.0),
    (1024, 251.0, 248.0),
    (2048, 259.0, 257.0),
    (4096, 269.0, 264.0),
    (8192, 266.0, 266.0),
];
/// Tolerance of a row, as a share.
const TOLERANCE: f64 = 0.1;
/// The input row, however windows are requested: the bus.
const INPUTS: [u64; 1] = [4096];
/// Input rows if the reader waits for each window: the cost of a command besides its transfer, the processor time of a
/// page, the bus.
const INPUTS_WAITED: [u64; 3] = [4, 64, 4096];

const COSTS_FROM: &str = "costs are calculated from the rows of 4k, 64k and 4M";
/// Why the rows of Linux 2.6.23 differ.
const OVERLAPPED: &str = "here the next window is in flight while one is used, so the bus is the limit; the paper names neither its \
                          kernel nor the cause of its lower rates";

fn name_of(window_kb: u64) -> String {
    if window_kb < 1024 { format!("{window_kb}k") } else { format!("{}M", window_kb / 1024) }
}

/// Rates for each window, MB/s; `policy_of` returns the policy for a window of this number of pages.
fn sweep(machine: &Scenario, policy_of: impl Fn(u64) -> String + Sync) -> Result<Vec<f64>, PaperError> {
    let rates = in_parallel(&SWEEP, |(window_kb, ..)| -> Result<f64, PaperError> {
        let mut machine = machine.clone();
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        let choice = policy(&policy_of(machine.disk.window_pages))?;
        Ok(machine.run(&choice)?.throughput_bytes_per_s() / 1e6)
    });
    rates.into_iter().collect()
}

pub(super) fn run(outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let mut machine = scenario("wu/ssd.toml", include_str!("../../wu/ssd.toml"))?;
    machine.disk.model = Model::from_toml(include_str!("../../wu/x25-m.toml")).expect("a test reads it");
    outcome.input("Intel X25-M: bus", "269 MB/s", "Wu's row for 4M (Intel's data sheet says up to 250)");
    outcome.input("Intel X25-M: a command of sequential reads", "8 us", "Wu's row for 4k");
    outcome.input("Wu's processor: copying and caching a page", "9.3 us", "Wu's row for 64k");
    outcome.input(
        "Wu's machine: longest request",
        "64 KB",
        "assumed; it limits the part of a window that can be used early",
    );
    let rates = sweep(&machine, |_| "linux-2.6.23".to_owned())?;
    add_rows(&rates, "SSD", &INPUTS, OVERLAPPED, lines);
    // The case in which nothing is in flight while a window is used, as with a fixed number of pages for each miss.
    let waited = sweep(&machine, |pages| format!("fixed({pages})"))?;
    add_rows(&waited, "SSD, if each window is waited for", &INPUTS_WAITED, COSTS_FROM, lines);
    answer_large_windows(&waited, &rates, lines);
    outcome.figures.push(figure(&rates, &waited));
    Ok(())
}

/// All rows, for one way to request windows.
fn add_rows(rates: &[f64], which: &str, inputs: &[u64], why: &str, lines: &mut Lines) {
    for (rate, (window_kb, first, second)) in rates.iter().zip(SWEEP) {
        let (claim, ours) = (format!("{which}: windows of {}", name_of(window_kb)), Measure::new(*rate, "MB/s", 0));
        let quoted = format!("{first} and {second} MB/s");
        if inputs.contains(&window_kb) {
            lines.input(&claim, &quoted, ours, "a cost is calculated from this row");
        } else {
            let bound = Bound::Within((first + second) / 2.0, TOLERANCE);
            lines.number(&claim, &quoted, ours, bound, why);
        }
    }
    lines.shape(
        &format!("{which}: the longer the window, the faster, up to 4M"),
        "123, 153, 161 … 269 MB/s",
        list(rates),
        rates[..10].windows(2).all(|pair| pair[1] > pair[0]),
        "each window faster than the previous one",
    );
    lines.number(
        &format!("{which}: 8M against 4M"),
        "266 against 269 and 264 MB/s: no further gain",
        Measure::new(rates[10] / rates[9], "times", 3),
        Bound::Within(1.0, 0.02),
        "the paper's two runs of 4M differ by 2 %",
    );
}

fn list(rates: &[f64]) -> String {
    rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ") + " MB/s"
}

/// Why the disk wants large windows "even for sequential reads".
fn answer_large_windows(waited: &[f64], overlapped: &[f64], lines: &mut Lines) {
    let distance = |ours: &[f64]| {
        let apart =
            ours.iter().zip(SWEEP).map(|(rate, (_, first, second))| (2.0 * rate / (first + second) - 1.0).abs());
        100.0 * apart.fold(0.0, f64::max)
    };
    lines.answer(
        "why the SSD desires large windows even for sequential reads",
        "no explanation",
        format!(
            "if the next window is in flight while one is used: {}, up to {:.0} % from the paper's rows; if it starts only when \
             the program waits for it: up to {:.0} %. A longer window is divided into more requests, and the first of them is used \
             while the others arrive",
            list(overlapped),
            distance(overlapped),
            distance(waited)
        ),
        distance(overlapped) > 25.0 && distance(waited) < 100.0 * TOLERANCE,
        "the same machine with linux-2.6.23, and with the same number of pages at each miss; consistent with the paper's rows, of \
         which three are inputs, but not proven",
    );
}

fn figure(rates: &[f64], waited: &[f64]) -> Figure {
    let sizes = || SWEEP.iter().map(|(window_kb, ..)| *window_kb as f64);
    Figure {
        title: "Solid-state disk over the window".into(),
        caption: "One file from front to back on an Intel X25-M; ours and Wu's first run.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("window, KB"),
            y: Axis::linear("MB/s"),
            series: vec![
                series("ours", sizes().zip(rates.iter().copied())),
                series("ours, if each window is waited for", sizes().zip(waited.iter().copied())),
                series("Wu", sizes().zip(SWEEP.iter().map(|(_, first, _)| *first))),
            ],
        },
    }
}
