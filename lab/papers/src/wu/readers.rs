//! Vivek Goyal's benchmarks: 1 to 16 sequential readers on two arrays, windows of 128 against 512 KB.
//!
//! ```text
//!     one reader     window ▓▓ window ▓▓ window      ▓ cost of a request in the array: long windows have fewer requests
//!     several        window ▓▓░window ▓▓░window      ░ the next request comes when the previous one is done
//! ```
//!
//! Inputs from the two rows of one reader: the cost of a request and the array's rate. Input from the row of two
//! readers with the short window: the time between two requests. The other rows are results.

use crate::{Asked, Axis, Bound, Figure, Filesystem, Line, Lines, Live, Measure, Observed, Outcome, PaperError, Plot};
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
/// Tolerance of bandwidth and gain, as a share of the measured effect of the longer window.
const EFFECT_SHARE: f64 = 0.5;
/// Tolerance for the worst of thousands of calls in a quarter of a minute, over three runs: half to twice.
const LATENCY_FACTOR: f64 = 2.0;

const HALF: &str = "half of the measured gain of the longer window: so no row passes for that of the other window, and a gain of \
                    zero is outside";

/// An array and the measurements on it.
struct Array {
    name: &'static str,
    model: &'static str,
    /// From the end of a request to the arrival of the next one while other readers wait, nanoseconds.
    turnaround_ns: u64,
    rows: &'static [Row; 5],
    /// Access time of a neighbouring file, milliseconds, where it can have an effect.
    near_ms: Option<f64>,
}

const ARRAYS: [Array; 2] = [
    Array {
        name: "HP EVA",
        model: include_str!("../../wu/eva.toml"),
        turnaround_ns: 20_000,
        rows: &EVA,
        near_ms: None,
    },
    Array {
        name: "striped SATA",
        model: include_str!("../../wu/sata.toml"),
        turnaround_ns: 84_000,
        rows: &SATA,
        // Half a turn of the platter.
        near_ms: Some(5.0),
    },
];

impl Array {
    /// The machine with this array.
    fn attached_to(&self, machine: &Scenario) -> Scenario {
        let mut machine = machine.clone();
        machine.disk.model = Model::from_toml(self.model).expect("a test reads it");
        machine.disk.turnaround_ns = self.turnaround_ns;
        machine
    }

    /// The reason of the tolerance of a bandwidth, with the effect of the access time of another file.
    fn reason(&self, machine: &Scenario) -> Result<String, PaperError> {
        let Some(near_ms) = self.near_ms else { return Ok(HALF.to_owned()) };
        let mut near = self.attached_to(machine);
        let model = self.model.replace("access_ms = 8", &format!("access_ms = {near_ms}"));
        near.disk.model = Model::from_toml(&model).expect("a test reads it with another access time");
        let runs = measure(&near, self)?;
        let off = self.rows.iter().zip(&runs).flat_map(|(row, pair)| {
            [(row.1, &pair[0]), (row.3, &pair[1])].map(|(theirs, ours)| 100.0 * (kb_per_s(ours) / theirs - 1.0).abs())
        });
        Ok(format!(
            "{HALF}; the access time of another file is 8 ms here, Wu's figure for any two places: with {near_ms} ms, as between \
             neighbouring files, no row differs by more than {:.1} %",
            off.fold(0.0, f64::max)
        ))
    }

    /// The machine with this array if a request costs only its transfer.
    fn without_request_cost(&self, machine: &Scenario) -> Scenario {
        let mut machine = self.attached_to(machine);
        let model = self.model.replace("\noverhead_us", "\n# overhead_us");
        machine.disk.model = Model::from_toml(&model).expect("a test reads it with its cost");
        machine.disk.turnaround_ns = 0;
        machine
    }
}

/// Results of each row, with 128 and with 512 KB.
type Runs = Vec<[Counters; 2]>;

/// Runs every row.
fn measure(machine: &Scenario, array: &Array) -> Result<Runs, PaperError> {
    let choice = policy("linux-2.6.23")?;
    let run = |readers: usize, window_kb: u64| {
        let mut machine = machine.clone();
        machine.disk.window_pages = window_kb * 1024 / PAGE_BYTES;
        let stream = machine.workloads[0].streams[0];
        machine.workloads[0].streams = vec![stream; readers];
        machine.run(&choice)
    };
    let rows = in_parallel(array.rows, |row| Ok([run(row.0, WINDOWS_KB[0])?, run(row.0, WINDOWS_KB[1])?]));
    rows.into_iter().collect()
}

/// The same against the real page cache, with smaller files. The row with most readers is first, so that one disk
/// serves all rows.
fn measure_live(machine: &Scenario, array: &Array, live: &dyn Live) -> Result<Vec<[Observed; 2]>, PaperError> {
    let mut machine = array.attached_to(machine);
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
    outcome.input("HP EVA", "226.9 MB/s and 308 us per request", "the two rows of one reader");
    outcome.input("HP EVA: time between two requests while others wait", "20 us", "two readers with 128 KB");
    outcome.input("HP EVA: access time of another file", "5.4 ms", "assumed: disks of 15,000 rpm");
    outcome.input("striped SATA", "172 MB/s and 92 us per request", "the two rows of one reader");
    outcome.input("striped SATA: time between two requests while others wait", "84 us", "two readers with 128 KB");
    outcome.input("striped SATA: access time of another file", "8 ms", "Wu's figure for a disk of that year");
    outcome.input("both arrays: the file system", "blocks laid out as by ext2", "ext3, stated");
    outcome.input("CFQ", "slices of 100 ms, 8 ms idle, 300 ms target", "block/cfq-iosched.c of 2.6.33");
    for array in &ARRAYS {
        let runs = measure(&array.attached_to(&machine), array)?;
        let seen = live.map(|live| measure_live(&machine, array, live)).transpose()?;
        let reason = array.reason(&machine)?;
        for (index, (row, pair)) in array.rows.iter().zip(&runs).enumerate() {
            add_row(array, &reason, row, pair, seen.as_ref().map(|rows| &rows[index]), lines);
        }
        outcome.figures.push(figure(array, &runs));
        answer_gain(array, &runs, &measure(&array.without_request_cost(&machine), array)?, lines);
    }
    Ok(())
}

fn name_of(array: &Array, readers: usize) -> String {
    let noun = if readers == 1 { "reader" } else { "readers" };
    format!("{}, {readers} {noun}", array.name)
}

/// A gain and its bound.
fn gain_of(row: &Row) -> (f64, Bound) {
    let gain = row.3 / row.1;
    let off = EFFECT_SHARE * (gain - 1.0);
    (gain, Bound::Between(round(gain - off), round(gain + off)))
}

/// Rounded to three decimals, as printed.
fn round(times: f64) -> f64 {
    (1e3 * times).round() / 1e3
}

/// The bound of a bandwidth.
fn bandwidth_bound(row: &Row, bandwidth: f64) -> Bound {
    Bound::Within(bandwidth, EFFECT_SHARE * (row.3 / row.1 - 1.0))
}

fn add_row(
    array: &Array,
    reason: &str,
    row: &Row,
    pair: &[Counters; 2],
    seen: Option<&[Observed; 2]>,
    lines: &mut Lines,
) {
    let live_kb_per_s = |seen: &Observed| seen.throughput_bytes_per_s() / 1024.0;
    let (readers, bandwidth, latency, bandwidth_512, latency_512) = *row;
    let claim = |what: &str| format!("{}: {what}", name_of(array, readers));
    let quoted = [(bandwidth, latency), (bandwidth_512, latency_512)];
    for (index, ((counters, window_kb), (bandwidth, latency_us))) in pair.iter().zip(WINDOWS_KB).zip(quoted).enumerate()
    {
        let seen = seen.map(|pair| &pair[index]);
        let number = Quoted {
            claim: claim(&format!("bandwidth with windows of {window_kb} KB")),
            quoted: format!("{bandwidth} KB/s"),
            bound: bandwidth_bound(row, bandwidth),
            why: reason,
        };
        let is_input = readers == 1 || (readers, window_kb) == (2, WINDOWS_KB[0]);
        let line = number.compare(Measure::new(kb_per_s(counters), "KB/s", 0), is_input, lines);
        line.live(seen.map(|seen| Measure::new(live_kb_per_s(seen), "KB/s", 0)), number.bound);
        let bound =
            Bound::Between((latency_us / 1e3 / LATENCY_FACTOR).round(), (latency_us / 1e3 * LATENCY_FACTOR).round());
        let line = lines.number(
            &claim(&format!("worst latency with windows of {window_kb} KB")),
            &format!("{:.1} ms", latency_us / 1e3),
            Measure::new(counters.latency_most_ns as f64 / 1e6, "ms", 1),
            bound,
            "half to twice: the worst call of a run; here no other process uses the disk",
        );
        let worst_ms = |seen: &Observed| seen.each_ns.iter().max().map_or(0.0, |ns| *ns as f64 / 1e6);
        line.live(seen.map(|seen| Measure::new(worst_ms(seen), "ms", 1)), bound);
    }
    let (gain, bound) = gain_of(row);
    let number =
        Quoted { claim: claim("gain of 512 KB over 128 KB"), quoted: format!("{gain:.3} times"), bound, why: HALF };
    let line = number.compare(Measure::new(kb_per_s(&pair[1]) / kb_per_s(&pair[0]), "times", 3), readers == 1, lines);
    let gained = |pair: &[Observed; 2]| live_kb_per_s(&pair[1]) / live_kb_per_s(&pair[0]);
    line.live(seen.map(|pair| Measure::new(gained(pair), "times", 3)), bound);
}

/// A number of a row.
struct Quoted<'a> {
    claim: String,
    quoted: String,
    bound: Bound,
    why: &'a str,
}

impl Quoted<'_> {
    /// Adds the line: an input, or a comparison with ours.
    fn compare<'a>(&self, ours: Measure, is_input: bool, lines: &'a mut Lines) -> &'a mut Line {
        if is_input {
            lines.input(&self.claim, &self.quoted, ours, "rate and costs of a request are calculated from this row")
        } else {
            lines.number(&self.claim, &self.quoted, ours, self.bound, self.why)
        }
    }
}

fn figure(array: &Array, runs: &Runs) -> Figure {
    let readers = || array.rows.iter().map(|row| row.0 as f64);
    let of = |index: usize| readers().zip(runs.iter().map(|pair| kb_per_s(&pair[index]) / 1e3)).collect::<Vec<_>>();
    let theirs = |of: fn(&Row) -> f64| readers().zip(array.rows.iter().map(move |row| of(row) / 1e3));
    Figure {
        title: format!("Sequential readers: {}", array.name),
        caption: "Bandwidth with windows of 128 and 512 KB; ours and Vivek Goyal's.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("readers"),
            y: Axis::linear("1000 KB/s"),
            series: vec![
                series("128 KB, ours", of(0)),
                series("128 KB, measured", theirs(|row| row.1)),
                series("512 KB, ours", of(1)),
                series("512 KB, measured", theirs(|row| row.3)),
            ],
        },
    }
}

/// The cause of the gain.
fn answer_gain(array: &Array, runs: &Runs, free: &Runs, lines: &mut Lines) {
    let gains = |runs: &Runs| -> Vec<f64> { runs.iter().map(|pair| kb_per_s(&pair[1]) / kb_per_s(&pair[0])).collect() };
    let show = |gains: &[f64]| gains.iter().map(|gain| format!("{gain:.2}")).collect::<Vec<_>>().join(", ");
    let (with, without) = (gains(runs), gains(free));
    lines.answer(
        &format!("{}: the cause of the gain", array.name),
        "more I/O throughput",
        format!(
            "gain for 1 to 16 readers {}; if a request cost only its transfer {}: a longer window reduces this cost, not that of \
             the arm, because the next window is already in flight and CFQ's slices limit the arm's cost",
            show(&with),
            show(&without)
        ),
        without[0] < 1.02 && with.iter().zip(&without).all(|(with, without)| with > without),
        "the same machine with and without the cost of a request in the array",
    );
}
