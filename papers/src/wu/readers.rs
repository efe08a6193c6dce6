//! Vivek Goyal's benchmarks: 1 to 16 sequential readers on two arrays, windows of 128 against 512 KB.

use crate::{Asked, Axis, Bound, Figure, Filesystem, Lines, Live, Measure, Observed, Outcome, PaperError, Plot};
use crate::{in_parallel, policy, scenario, series};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Scenario};

/// Readers, then bandwidth (KB/s) and worst latency (us) with 128 and with 512 KB.
type Row = (usize, f64, f64, f64, f64);
const EVA: [Row; 5] = [
    (1, 141_768.0, 130_965.0, 190_302.0, 97_937.3),
    (2, 131_979.0, 135_402.0, 185_636.0, 223_286.0),
    (4, 132_351.0, 420_733.0, 185_986.0, 363_658.0),
    (8, 133_152.0, 455_434.0, 184_352.0, 428_478.0),
    (16, 130_316.0, 674_499.0, 185_646.0, 594_311.0),
];
const SATA: [Row; 5] = [
    (1, 147_569.0, 14_369.7, 160_191.0, 22_752.0),
    (2, 124_716.0, 243_932.0, 149_343.0, 184_698.0),
    (4, 123_451.0, 327_665.0, 147_183.0, 430_875.0),
    (8, 122_486.0, 455_102.0, 144_568.0, 484_045.0),
    (16, 117_645.0, 1_039_570.0, 137_485.0, 1_062_570.0),
];
const WINDOWS_KB: [u64; 2] = [128, 512];
/// Length of the files against the real page cache, 16 MB: a gigabyte would take minutes.
const LIVE_FILE_PAGES: u64 = (16 << 20) / PAGE_BYTES;
/// Part of the measured effect of the longer window by which bandwidth and gain may be off: with half, no row can be taken for
/// the one of the other window, and no gain at all is outside.
const EFFECT_PART: f64 = 0.5;
/// The worst of thousands of calls in a quarter of a minute, over three runs: half to twice.
const LATENCY_FACTOR: f64 = 2.0;

/// An array and what was measured on it.
struct Array {
    name: &'static str,
    model: &'static str,
    rows: &'static [Row; 5],
}

const ARRAYS: [Array; 2] = [
    Array { name: "HP EVA", model: include_str!("../../wu/eva.toml"), rows: &EVA },
    Array { name: "striped SATA", model: include_str!("../../wu/sata.toml"), rows: &SATA },
];

/// What came out: for each row, with 128 and with 512 KB.
type Runs = Vec<[Counters; 2]>;

/// Runs every row; `policy_of` names the policy for a window of so many pages.
fn measure(machine: &Scenario, array: &Array, policy_of: impl Fn(u64) -> String + Sync) -> Result<Runs, PaperError> {
    let mut machine = machine.clone();
    machine.disk.model = Model::from_toml(array.model).expect("a test reads it");
    let run = |readers: usize, window_kb: u64| -> Result<Counters, PaperError> {
        let mut machine = machine.clone();
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        let stream = machine.workloads[0].streams[0];
        machine.workloads[0].streams = vec![stream; readers];
        Ok(machine.run(&policy(&policy_of(machine.disk.window_pages))?)?)
    };
    let rows = in_parallel(array.rows, |row| Ok([run(row.0, WINDOWS_KB[0])?, run(row.0, WINDOWS_KB[1])?]));
    rows.into_iter().collect()
}

/// The same against the real page cache, with smaller files; the largest number of readers first, so that one disk does for all.
fn measure_live(machine: &Scenario, array: &Array, live: &dyn Live) -> Result<Vec<[Observed; 2]>, PaperError> {
    let mut machine = machine.clone();
    machine.disk.model = Model::from_toml(array.model).expect("a test reads it");
    let mut run = |readers: usize, window_kb: u64| -> Result<Observed, PaperError> {
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        let mut stream = machine.workloads[0].streams[0];
        stream.file_pages = LIVE_FILE_PAGES;
        machine.workloads[0].streams = vec![stream; readers];
        let filesystem = Filesystem { name: "ext4", block_bytes: PAGE_BYTES };
        Ok(live.run(&Asked { scenario: &machine, filesystem, each: true })?)
    };
    let rows = array.rows.iter().rev().map(|row| Ok([run(row.0, WINDOWS_KB[0])?, run(row.0, WINDOWS_KB[1])?]));
    let mut rows: Vec<[Observed; 2]> = rows.collect::<Result<_, PaperError>>()?;
    rows.reverse();
    Ok(rows)
}

fn kb_per_s(counters: &Counters) -> f64 {
    counters.throughput_bytes_per_s() / 1024.0
}

pub(super) fn run(outcome: &mut Outcome, lines: &mut Lines, live: Option<&dyn Live>) -> Result<(), PaperError> {
    let machine = scenario("wu/readers.toml", include_str!("../../wu/readers.toml"))?;
    outcome.put_in("HP EVA", "225 MB/s and 304 us per request", "the two rows of one reader");
    outcome.put_in("HP EVA: another file", "5.4 ms", "assumed: disks of 15,000 rpm");
    outcome.put_in("striped SATA", "171.6 MB/s and 86 us per request", "the two rows of one reader");
    outcome.put_in("striped SATA: another file", "8 ms", "Wu's own figure for a disk of that year");
    outcome.put_in("CFQ", "slices of 100 ms, 8 ms idle, 300 ms target", "block/cfq-iosched.c of 2.6.33");
    for array in &ARRAYS {
        let runs = measure(&machine, array, |_| "linux-2.6.23".to_owned())?;
        let seen = live.map(|live| measure_live(&machine, array, live)).transpose()?;
        for (index, (row, pair)) in array.rows.iter().zip(&runs).enumerate() {
            compare(array, row, pair, seen.as_ref().map(|rows| &rows[index]), lines);
        }
        // As on the solid-state disk: the next window starts when it is waited for.
        let waited = measure(&machine, array, |pages| format!("fixed({pages})"))?;
        for (row, pair) in array.rows.iter().zip(&waited) {
            compare_waited(array, row, pair, lines);
        }
        outcome.figures.push(figure(array, &runs, &waited));
        why(array, &runs, &waited, lines);
    }
    Ok(())
}

fn name_of(array: &Array, readers: usize) -> String {
    let many = if readers == 1 { "reader" } else { "readers" };
    format!("{}, {readers} {many}", array.name)
}

/// A gain, and what it may be.
fn gain_of(row: &Row) -> (f64, Bound) {
    let gain = row.3 / row.1;
    let off = EFFECT_PART * (gain - 1.0);
    (gain, Bound::Between(round(gain - off), round(gain + off)))
}

/// To three digits after the point, as it is shown.
fn round(times: f64) -> f64 {
    (1e3 * times).round() / 1e3
}

/// What a bandwidth may be.
fn bandwidth_bound(row: &Row, bandwidth: f64) -> Bound {
    Bound::Within(bandwidth, EFFECT_PART * (row.3 / row.1 - 1.0))
}

const HALF: &str = "half of what the longer window gained him";

/// The same if each window is waited for. The array's rate and its cost of a request are from the row of one reader.
fn compare_waited(array: &Array, row: &Row, pair: &[Counters; 2], lines: &mut Lines) {
    let claim = |what: &str| format!("{}, if each window is waited for: {what}", name_of(array, row.0));
    let from = "rate and cost of a request were reckoned from this row";
    let mut add = |claim: &str, quoted: &str, ours: Measure, bound: Bound| {
        match row.0 {
            1 => lines.put_in(claim, quoted, ours, from),
            _ => lines.number(claim, quoted, ours, bound, HALF),
        };
    };
    for ((counters, window_kb), bandwidth) in pair.iter().zip(WINDOWS_KB).zip([row.1, row.3]) {
        add(
            &claim(&format!("bandwidth with windows of {window_kb} KB")),
            &format!("{bandwidth} KB/s"),
            Measure::new(kb_per_s(counters), "KB/s", 0),
            bandwidth_bound(row, bandwidth),
        );
    }
    let (gain, bound) = gain_of(row);
    let ours = Measure::new(kb_per_s(&pair[1]) / kb_per_s(&pair[0]), "times", 3);
    add(&claim("gain of 512 KB over 128 KB"), &format!("{gain:.3} times"), ours, bound);
}

fn compare(array: &Array, row: &Row, pair: &[Counters; 2], seen: Option<&[Observed; 2]>, lines: &mut Lines) {
    let live_kb_per_s = |seen: &Observed| seen.throughput_bytes_per_s() / 1024.0;
    let (readers, bandwidth, latency, bandwidth_512, latency_512) = *row;
    let claim = |what: &str| format!("{}: {what}", name_of(array, readers));
    let quoted = [(bandwidth, latency), (bandwidth_512, latency_512)];
    for (index, ((counters, window_kb), (bandwidth, latency_us))) in pair.iter().zip(WINDOWS_KB).zip(quoted).enumerate()
    {
        let seen = seen.map(|pair| &pair[index]);
        let line = lines.number(
            &claim(&format!("bandwidth with windows of {window_kb} KB")),
            &format!("{bandwidth} KB/s"),
            Measure::new(kb_per_s(counters), "KB/s", 0),
            bandwidth_bound(row, bandwidth),
            HALF,
        );
        line.live = seen.map(|seen| format!("{:.0} KB/s", live_kb_per_s(seen)));
        let line = lines.number(
            &claim(&format!("worst latency with windows of {window_kb} KB")),
            &format!("{:.1} ms", latency_us / 1e3),
            Measure::new(counters.latency_most_ns as f64 / 1e6, "ms", 1),
            Bound::Between((latency_us / 1e3 / LATENCY_FACTOR).round(), (latency_us / 1e3 * LATENCY_FACTOR).round()),
            "half to twice: the worst call of a run, in which here nothing else uses the disk",
        );
        line.live = seen.map(|seen| format!("{:.1} ms", seen.each_ns.iter().max().map_or(0.0, |ns| *ns as f64 / 1e6)));
    }
    let (gain, bound) = gain_of(row);
    let line = lines.number(
        &claim("gain of 512 KB over 128 KB"),
        &format!("{gain:.3} times"),
        Measure::new(kb_per_s(&pair[1]) / kb_per_s(&pair[0]), "times", 3),
        bound,
        HALF,
    );
    line.live = seen.map(|pair| format!("{:.3} times", live_kb_per_s(&pair[1]) / live_kb_per_s(&pair[0])));
}

fn figure(array: &Array, runs: &Runs, waited: &Runs) -> Figure {
    let readers = || array.rows.iter().map(|row| row.0 as f64);
    let of = |index: usize, runs: &Runs| {
        readers().zip(runs.iter().map(|pair| kb_per_s(&pair[index]) / 1e3)).collect::<Vec<_>>()
    };
    let theirs = |of: fn(&Row) -> f64| readers().zip(array.rows.iter().map(move |row| of(row) / 1e3));
    Figure {
        title: format!("Sequential readers: {}", array.name),
        caption: "Bandwidth with windows of 128 and 512 KB; ours and Vivek Goyal's.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("readers"),
            y: Axis::linear("1000 KB/s"),
            series: vec![
                series("128 KB, ours", of(0, runs)),
                series("128 KB, ours, each waited for", of(0, waited)),
                series("128 KB, measured", theirs(|row| row.1)),
                series("512 KB, ours", of(1, runs)),
                series("512 KB, ours, each waited for", of(1, waited)),
                series("512 KB, measured", theirs(|row| row.3)),
            ],
        },
    }
}

/// Where the gain comes from.
fn why(array: &Array, overlapped: &Runs, waited: &Runs, lines: &mut Lines) {
    let gains = |runs: &Runs| -> Vec<f64> { runs.iter().map(|pair| kb_per_s(&pair[1]) / kb_per_s(&pair[0])).collect() };
    let show = |gains: &[f64]| gains.iter().map(|gain| format!("{gain:.2}")).collect::<Vec<_>>().join(", ");
    let (with, without) = (gains(overlapped), gains(waited));
    lines.answer(
        &format!("{}: where the gain comes from", array.name),
        "more I/O throughput",
        format!(
            "gain for 1 to 16 readers {} where each window is waited for, {} where the next one is under way meanwhile: it is the \
             cost of a request, not of the arm, that a longer window shares out; CFQ's slices see to the arm",
            show(&without),
            show(&with)
        ),
        with[0] < 1.02 && without.iter().zip(&with).all(|(without, with)| without > with),
        "the same machine with as many pages for each miss and with linux-2.6.23; rate and cost are from the rows of one reader",
    );
}
