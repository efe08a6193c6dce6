//! The paper's Bonnie rows: 200 MB on a P90 with 24 MB.

use crate::counts::{KIB, load};
use crate::{Bound, Job, Lines, Measure, PaperError, run_all, scenario};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Scenario};

/// A row of the paper.
struct Row {
    kb_per_s: f64,
    load_percent: f64,
}

const PER_CHAR: [Row; 2] = [Row { kb_per_s: 2162.0, load_percent: 65.0 }, Row { kb_per_s: 2946.0, load_percent: 91.9 }];
const REWRITE: [Row; 2] = [Row { kb_per_s: 1266.0, load_percent: 26.0 }, Row { kb_per_s: 1595.0, load_percent: 32.6 }];
const BLOCK: [Row; 2] = [Row { kb_per_s: 3952.0, load_percent: 28.0 }, Row { kb_per_s: 3960.0, load_percent: 31.2 }];
const WRITE: [Row; 2] = [Row { kb_per_s: 3492.0, load_percent: 37.5 }, Row { kb_per_s: 3563.0, load_percent: 38.1 }];
const WRITE_PER_CHAR: [Row; 2] =
    [Row { kb_per_s: 3118.0, load_percent: 90.7 }, Row { kb_per_s: 3099.0, load_percent: 90.6 }];

fn kb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.throughput_bytes_per_s() / KIB, "KB/s", 0)
}

pub(super) fn add(lines: &mut Lines) -> Result<(), PaperError> {
    let per_char = scenario("roudier/per-char.toml", include_str!("../../roudier/per-char.toml"))?;
    let block = scenario("roudier/block.toml", include_str!("../../roudier/block.toml"))?;
    let rewrite = scenario("roudier/rewrite.toml", include_str!("../../roudier/rewrite.toml"))?;
    let write = scenario("roudier/write.toml", include_str!("../../roudier/write.toml"))?;
    let mut plugged = rewrite.clone();
    plugged.disk.longest_bytes = None;
    let mut unbuffered = rewrite.clone();
    unbuffered.disk.model = without_write_cache(&rewrite);
    let mut jobs = Vec::new();
    for scenario in [&per_char, &block, &rewrite, &plugged, &unbuffered, &write] {
        jobs.extend([Job::new(scenario, "linux-1.3")?, Job::new(scenario, "roudier")?]);
    }
    let results = run_all(&jobs)?;
    add_per_char(lines, &results[..2]);
    add_block(lines, &results[2..4]);
    add_rewrite(lines, &results[4..6], &results[6..8], &results[8..10]);
    add_write(lines, &results[10..12]);
    lines.not_shown("random seeks", "left out", "the paper leaves them out too");
    Ok(())
}

/// Difference of the paper's two rows of block output, as a share: speed and load. Read-ahead does not affect these
/// rows, so the difference is that of two equal runs, and the tolerance here. A gain is the ratio of two such rows.
fn repeatability() -> (f64, f64) {
    let [first, second] = &WRITE;
    (second.kb_per_s / first.kb_per_s - 1.0, second.load_percent / first.load_percent - 1.0)
}

const REPEATABILITY: &str = "the difference of the paper's two rows of block output, where nothing is read ahead";

/// Compares the speed of a row; `remark` follows the reason of the tolerance.
fn add_speed(lines: &mut Lines, claim: &str, row: &Row, ours: Measure, remark: &str) {
    let bound = Bound::Within(row.kb_per_s, repeatability().0);
    lines.number(claim, &format!("{} KB/s", row.kb_per_s), ours, bound, &format!("{REPEATABILITY}{remark}"));
}

/// Compares the load of a row.
fn add_load(lines: &mut Lines, claim: &str, row: &Row, counters: &Counters, remark: &str) {
    let (bound, ours) = (Bound::Within(row.load_percent, repeatability().1), Measure::percent(load(counters)));
    lines.number(claim, &format!("{} %", row.load_percent), ours, bound, &format!("{REPEATABILITY}{remark}"));
}

/// Rounds to one decimal, as percentages are printed.
fn tenths(percent: f64) -> f64 {
    (10.0 * percent).round() / 10.0
}

/// Compares a printed gain; the bound is around the gain of the paper's rows.
fn add_gain(lines: &mut Lines, claim: &str, printed: &str, rows: &[Row; 2], pair: &[Counters], remark: &str) {
    let ratio = rows[1].kb_per_s / rows[0].kb_per_s;
    let (gained, off) = (100.0 * (ratio - 1.0), 100.0 * ratio * repeatability().0);
    let bound = Bound::Between(tenths(gained - off), tenths(gained + off));
    let why = format!("{gained:.1} % in the paper's rows, plus or minus {REPEATABILITY}{remark}");
    lines.number(claim, printed, gain(pair), bound, &why);
}

fn add_per_char(lines: &mut Lines, pair: &[Counters]) {
    let [slow, fast] = &PER_CHAR;
    let command = "; a command's time is assumed";
    add_speed(lines, "Bonnie, input per character, synchronous: speed", slow, kb_per_s(&pair[0]), command);
    lines.input(
        "Bonnie, input per character, synchronous: load",
        &format!("{} %", slow.load_percent),
        Measure::percent(load(&pair[0])),
        "the program's time is load over speed of this row, so the load has the same error as the speed",
    );
    let no_others =
        "; the paper says that about 90 % is possible, not 100 %: here only the waits for pointer blocks reduce it";
    add_speed(lines, "Bonnie, input per character, asynchronous: speed", fast, kb_per_s(&pair[1]), no_others);
    add_load(lines, "Bonnie, input per character, asynchronous: load", fast, &pair[1], no_others);
    lines.number(
        "Bonnie, input per character, asynchronous: a load greater than 90 %, as expected",
        &format!("greater than 90 %: {} %", fast.load_percent),
        Measure::percent(load(&pair[1])),
        Bound::AtLeast(90.0),
        "as stated",
    );
    let others = "; here no other process uses the processor";
    add_gain(lines, "Bonnie, input per character: gain", "36 %", &PER_CHAR, pair, others);
}

/// The disk's rate and the kernel's time for a page are inputs from the synchronous row. They limit both kernels.
fn add_block(lines: &mut Lines, pair: &[Counters]) {
    for (kernel, row, counters) in [("synchronous", &BLOCK[0], &pair[0]), ("asynchronous", &BLOCK[1], &pair[1])] {
        let claim = |what: &str| format!("Bonnie, block input, {kernel}: {what}");
        let (speed, busy) = (format!("{} KB/s", row.kb_per_s), format!("{} %", row.load_percent));
        lines.input(&claim("speed"), &speed, kb_per_s(counters), "the disk's rate, from the synchronous row");
        let work =
            "the kernel's time for a page, from the synchronous row; the processor time of the patch is not included";
        lines.input(&claim("load"), &busy, Measure::percent(load(counters)), work);
    }
    let quoted = format!("{:+.1} %", 100.0 * (BLOCK[1].kb_per_s / BLOCK[0].kb_per_s - 1.0));
    let half = tenths(50.0 * repeatability().0);
    let small = format!("half of {REPEATABILITY}");
    lines.number("Bonnie, block input: quite identical", &quoted, gain(pair), Bound::Between(-half, half), &small);
}

/// The gain in speed of the second run over the first.
fn gain(pair: &[Counters]) -> Measure {
    Measure::new(100.0 * (pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0), "%", 1)
}

/// Speed of rewrite: the paper's row counts each byte once, although it is read and written.
fn file_kb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.read_bytes as f64 / KIB * 1e9 / counters.elapsed_ns as f64, "KB/s", 0)
}

/// The same drive without a write cache.
fn without_write_cache(rewrite: &Scenario) -> Model {
    let text = rewrite.disk.model.to_toml().replace("write_cache_kb = 128", "write_cache_kb = 0");
    Model::from_toml(&text).expect("the model is valid without a write cache")
}

/// Processor time for a page, microseconds.
fn per_page_us(kb_per_s: f64, load_percent: f64) -> f64 {
    load_percent / 100.0 * 1e6 * PAGE_BYTES as f64 / KIB / kb_per_s
}

fn add_rewrite(lines: &mut Lines, pair: &[Counters], plugged: &[Counters], unbuffered: &[Counters]) {
    let [first, second] = [0, 1].map(|index| file_kb_per_s(&unbuffered[index]));
    let drive = format!(
        "; the drive's write cache (128 KB) is assumed: without it {first} with synchronous, {second} with asynchronous \
         read-ahead"
    );
    for (kernel, row, counters) in [("synchronous", &REWRITE[0], &pair[0]), ("asynchronous", &REWRITE[1], &pair[1])] {
        let claim = |what: &str| format!("Bonnie, rewrite, {kernel}: {what}");
        let speed = file_kb_per_s(counters);
        add_speed(lines, &claim("speed"), row, speed, &drive);
        let [ours, theirs] = [(speed.value, 100.0 * load(counters)), (row.kb_per_s, row.load_percent)]
            .map(|(speed, load)| per_page_us(speed, load));
        let work = format!("; a page takes {ours:.0} us of processor time here, {theirs:.0} in the paper's row");
        add_load(lines, &claim("load"), row, counters, &work);
    }
    let better = gain(pair);
    add_gain(lines, "Bonnie, rewrite: gain", "26 %", &REWRITE, pair, "; the model favours the writes of both kernels");
    lines.answer(
        "rewrite is 26 % better: \"have you some idea about this?\"",
        "a question",
        format!(
            "{} misses before, {} after; {better} faster. With each chunk as one request: {}",
            pair[0].misses,
            pair[1].misses,
            gain(plugged)
        ),
        pair[1].misses < pair[0].misses / 100 && gain(plugged).value < better.value,
        "rewrite seeks back before each write, and lseek clears the flag (f_reada) that the old kernel checks: that kernel \
         reads ahead only within a call, and waits in each. The patch ignores the flag (as its comment says) and checks the place \
         of the last read: the last page of a chunk is still in flight when the program reaches it, so the patch requests one \
         more page; the next chunk begins within it, and all later pages are read ahead while the program computes",
    );
}

/// Output. Writes involve no policy, so both kernels share one run here, with one verdict.
fn add_write(lines: &mut Lines, pair: &[Counters]) {
    let kind = "; the disk's rate is an input, from block input; the drive's write cache (128 KB) is assumed";
    let claim = |kernel: &str, what: &str| format!("Bonnie, block output, {kernel}: {what}");
    add_speed(lines, &claim("synchronous", "speed"), &WRITE[0], kb_per_s(&pair[0]), kind);
    let again = "the same run as the synchronous row: writes involve no policy";
    let speed = format!("{} KB/s", WRITE[1].kb_per_s);
    lines.not_shown(&claim("asynchronous", "speed"), &speed, again);
    for (kernel, row, counters) in [("synchronous", &WRITE[0], &pair[0]), ("asynchronous", &WRITE[1], &pair[1])] {
        let busy = format!("{} %", row.load_percent);
        let work = "the kernel's time to write a page, from the synchronous row";
        lines.input(&claim(kernel, "load"), &busy, Measure::percent(load(counters)), work);
    }
    let alone = "the time of putc would be an input, and nothing else in this row depends on read-ahead";
    for (kernel, row) in [("synchronous", &WRITE_PER_CHAR[0]), ("asynchronous", &WRITE_PER_CHAR[1])] {
        let quoted = format!("{} KB/s, {} %", row.kb_per_s, row.load_percent);
        lines.not_shown(&format!("Bonnie, output per character, {kernel}: speed and load"), &quoted, alone);
    }
    let none = "writes involve no policy: both kernels are one run here";
    for (what, rows) in [("block", &WRITE), ("per character", &WRITE_PER_CHAR)] {
        let quoted = format!("{:+.1} %", 100.0 * (rows[1].kb_per_s / rows[0].kb_per_s - 1.0));
        lines.not_shown(&format!("Bonnie, sequential output, {what}: quite identical"), &quoted, none);
    }
}
