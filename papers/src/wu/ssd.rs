//! The solid-state disk that "desires large readahead size even for sequential reads".

use crate::{Axis, Bound, Figure, Lines, Measure, Outcome, PaperError, Plot, in_parallel, policy, scenario, series};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;

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
/// What may lie between a row and ours. The drive's own pipeline (ten channels that are filled the better the longer a
/// command is) is one latency here.
const TOLERANCE: f64 = 0.25;

fn name_of(window_kb: u64) -> String {
    if window_kb < 1024 { format!("{window_kb}k") } else { format!("{}M", window_kb / 1024) }
}

pub(super) fn run(outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let mut machine = scenario("wu/ssd.toml", include_str!("../../wu/ssd.toml"))?;
    machine.disk.model = Model::from_toml(include_str!("../../wu/x25-m.toml")).expect("a test reads it");
    outcome.put_in("Intel X25-M", "250 MB/s, 85 us, 10 channels", "Intel's data sheet of 2008");
    outcome.put_in("Intel X25-M: next command of a row", "16 us", "Wu's row for 4k: so that row is no outcome");
    let choice = policy("linux-2.6.23")?;
    let rates: Vec<f64> = in_parallel(&SWEEP, |(window_kb, ..)| {
        let mut machine = machine.clone();
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        machine.run(&choice).map(|counters| counters.throughput_bytes_per_s() / 1e6)
    })
    .into_iter()
    .collect::<Result<_, _>>()?;
    for (rate, (window_kb, first, second)) in rates.iter().zip(SWEEP) {
        lines.number(
            &format!("SSD: windows of {}", name_of(window_kb)),
            &format!("{first} and {second} MB/s"),
            Measure::new(*rate, "MB/s", 0),
            Bound::Within((first + second) / 2.0, TOLERANCE),
            if window_kb == 4 { "put in" } else { "the drive's own pipeline is one latency here" },
        );
    }
    let grows = |rates: &[f64]| rates.windows(2).all(|pair| pair[1] >= pair[0]);
    lines.shape(
        "SSD: the longer the window, the faster, up to 4M",
        "123, 153, 161 … 269 MB/s",
        rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ") + " MB/s",
        grows(&rates[..10]),
        "no window slower than the one before it",
    );
    lines.number(
        "SSD: 8M against 4M",
        "266 against 269 and 264 MB/s: no more to be had",
        Measure::new(rates[10] / rates[9], "times", 3),
        Bound::Within(1.0, 0.02),
        "his two runs of 4M are 2 % apart",
    );
    lines.number(
        "SSD: largest against smallest window",
        "2.2 times (269 / 123)",
        Measure::new(rates[9] / rates[0], "times", 2),
        Bound::Within(269.0 / 123.0, 0.1),
        "the data sheet states 250 MB/s where he measured 269",
    );
    let sizes = || SWEEP.iter().map(|(window_kb, ..)| *window_kb as f64);
    outcome.figures.push(Figure {
        title: "Solid-state disk over the window".into(),
        caption: "One file from front to back on an Intel X25-M; ours and Wu's first run.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("window, KB"),
            y: Axis::linear("MB/s"),
            series: vec![
                series("ours", sizes().zip(rates.iter().copied())),
                series("Wu", sizes().zip(SWEEP.iter().map(|(_, first, _)| *first))),
            ],
        },
    });
    Ok(())
}
