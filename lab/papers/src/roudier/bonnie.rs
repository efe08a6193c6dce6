//! His Bonnie rows: 200 MB on a P90 with 24 MB.

use crate::counts::{KIB, load};
use crate::{Bound, Job, Lines, Measure, PaperError, run_all, scenario};
use ahead_device::Model;
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Counters, Scenario};

/// What a row says.
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
    say_per_char(lines, &results[..2]);
    say_block(lines, &results[2..4]);
    say_rewrite(lines, &results[4..6], &results[6..8], &results[8..10]);
    say_write(lines, &results[10..12]);
    lines.not_shown("random seeks", "left out", "he left them out, too");
    Ok(())
}

/// How far apart his two rows of block output are, as a share: speed and load. No read-ahead has a part in them, so
/// that is what two runs of his differ by, and nothing closer can be asked of ours. A gain is the ratio of two such
/// rows.
fn repeats() -> (f64, f64) {
    let [first, second] = &WRITE;
    (second.kb_per_s / first.kb_per_s - 1.0, second.load_percent / first.load_percent - 1.0)
}

const REPEATS: &str = "his two rows of block output, in which nothing is read ahead, are apart";

/// The speed of one of his rows beside ours.
fn say_speed(lines: &mut Lines, claim: &str, row: &Row, ours: Measure, besides: &str) {
    let bound = Bound::Within(row.kb_per_s, repeats().0);
    lines.number(claim, &format!("{} KB/s", row.kb_per_s), ours, bound, &format!("as far as {REPEATS}{besides}"));
}

/// Its load beside ours.
fn say_load(lines: &mut Lines, claim: &str, row: &Row, counters: &Counters, besides: &str) {
    let (bound, ours) = (Bound::Within(row.load_percent, repeats().1), Measure::percent(load(counters)));
    lines.number(claim, &format!("{} %", row.load_percent), ours, bound, &format!("as far as {REPEATS}{besides}"));
}

/// To a digit after the point, as percents are shown.
fn tenths(percent: f64) -> f64 {
    (10.0 * percent).round() / 10.0
}

/// A gain as it is printed, beside ours; the bound is around what his rows give.
fn say_gain(lines: &mut Lines, claim: &str, printed: &str, rows: &[Row; 2], pair: &[Counters], besides: &str) {
    let ratio = rows[1].kb_per_s / rows[0].kb_per_s;
    let (gained, off) = (100.0 * (ratio - 1.0), 100.0 * ratio * repeats().0);
    let bound = Bound::Between(tenths(gained - off), tenths(gained + off));
    let why = format!("around the {gained:.1} % of his rows as far as {REPEATS}{besides}");
    lines.number(claim, printed, gain(pair), bound, &why);
}

fn say_per_char(lines: &mut Lines, pair: &[Counters]) {
    let [slow, fast] = &PER_CHAR;
    let command = "; a command's time is assumed";
    say_speed(lines, "Bonnie, input per character, synchronous: speed", slow, kb_per_s(&pair[0]), command);
    lines.put_in(
        "Bonnie, input per character, synchronous: load",
        &format!("{} %", slow.load_percent),
        Measure::percent(load(&pair[0])),
        "the program's time is this row's load over its speed, so that the load is off as far as the speed",
    );
    let no_others = "; he says himself that 100 % is not to be had, but about 90 %: here the wait for pointer blocks is all that is missing";
    say_speed(lines, "Bonnie, input per character, asynchronous: speed", fast, kb_per_s(&pair[1]), no_others);
    say_load(lines, "Bonnie, input per character, asynchronous: load", fast, &pair[1], no_others);
    lines.number(
        "Bonnie, input per character, asynchronous: a load greater than 90 %, as expected",
        &format!("greater than 90 %: {} %", fast.load_percent),
        Measure::percent(load(&pair[1])),
        Bound::AtLeast(90.0),
        "as stated",
    );
    let others = "; nothing here takes what others took of the processor";
    say_gain(lines, "Bonnie, input per character: gain", "36 %", &PER_CHAR, pair, others);
}

/// The disk's rate and the kernel's time for a page are put in from the synchronous row, and are the bound of both.
fn say_block(lines: &mut Lines, pair: &[Counters]) {
    for (kernel, row, counters) in [("synchronous", &BLOCK[0], &pair[0]), ("asynchronous", &BLOCK[1], &pair[1])] {
        let claim = |what: &str| format!("Bonnie, block input, {kernel}: {what}");
        let (speed, busy) = (format!("{} KB/s", row.kb_per_s), format!("{} %", row.load_percent));
        lines.put_in(&claim("speed"), &speed, kb_per_s(counters), "the disk's rate, of the synchronous row");
        let work = "what the kernel takes for a page, of the synchronous row; his patch's own work is not in it";
        lines.put_in(&claim("load"), &busy, Measure::percent(load(counters)), work);
    }
    let quoted = format!("{:+.1} %", 100.0 * (BLOCK[1].kb_per_s / BLOCK[0].kb_per_s - 1.0));
    let half = tenths(50.0 * repeats().0);
    let small = "half of what his two rows of block output are apart, in which nothing is read ahead";
    lines.number("Bonnie, block input: quite identical", &quoted, gain(pair), Bound::Between(-half, half), small);
}

/// How much faster the second is than the first.
fn gain(pair: &[Counters]) -> Measure {
    Measure::new(100.0 * (pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0), "%", 1)
}

/// A file is rewritten once; the row counts its bytes once.
fn file_kb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.read_bytes as f64 / KIB * 1e9 / counters.elapsed_ns as f64, "KB/s", 0)
}

/// The same drive, which takes nothing before the platter has it.
fn without_write_cache(rewrite: &Scenario) -> Model {
    let text = rewrite.disk.model.to_toml().replace("write_cache_kb = 128", "write_cache_kb = 0");
    Model::from_toml(&text).expect("the model with another number")
}

/// What the processor takes for a page, microseconds.
fn per_page_us(kb_per_s: f64, load_percent: f64) -> f64 {
    load_percent / 100.0 * 1e6 * PAGE_BYTES as f64 / KIB / kb_per_s
}

fn say_rewrite(lines: &mut Lines, pair: &[Counters], plugged: &[Counters], unbuffered: &[Counters]) {
    let [first, second] = [0, 1].map(|index| file_kb_per_s(&unbuffered[index]));
    let drive = format!(
        "; what the drive takes before the platter has it (128 KB) is assumed: with none it is {first} with synchronous, {second} with \
         asynchronous read-ahead"
    );
    for (kernel, row, counters) in [("synchronous", &REWRITE[0], &pair[0]), ("asynchronous", &REWRITE[1], &pair[1])] {
        let claim = |what: &str| format!("Bonnie, rewrite, {kernel}: {what}");
        let speed = file_kb_per_s(counters);
        say_speed(lines, &claim("speed"), row, speed, &drive);
        let [ours, his] = [(speed.value, 100.0 * load(counters)), (row.kb_per_s, row.load_percent)]
            .map(|(speed, load)| per_page_us(speed, load));
        let work = format!("; a page takes {ours:.0} us of the processor here, {his:.0} in his row");
        say_load(lines, &claim("load"), row, counters, &work);
    }
    let better = gain(pair);
    say_gain(lines, "Bonnie, rewrite: gain", "26 %", &REWRITE, pair, "; the model is kind to both kernels' writes");
    lines.answer(
        "rewrite is 26 % better: \"have you some idea about this?\"",
        "a question",
        format!(
            "{} pages missed before, {} after; {better} faster. If all of a chunk came as one request: {}",
            pair[0].misses,
            pair[1].misses,
            gain(plugged)
        ),
        pair[1].misses < pair[0].misses / 100 && gain(plugged).value < better.value,
        "rewrite seeks back before each write, and lseek clears the flag (f_reada) that the old kernel goes by: it reads \
         ahead within a call alone and waits in each. The patch does not believe the flag (his comment) but goes by where it \
         read last: the last page of a chunk is on its way still when it is reached, one more is asked for, the next chunk \
         begins within that, and all that follows is read ahead while it computes",
    );
}

/// Output. No policy is asked in it, so that both kernels cannot but come to the same here: it is judged once.
fn say_write(lines: &mut Lines, pair: &[Counters]) {
    let kind = "; the disk's rate is put in from block input; what the drive takes before the platter has it (128 KB) is assumed";
    let claim = |kernel: &str, what: &str| format!("Bonnie, block output, {kernel}: {what}");
    say_speed(lines, &claim("synchronous", "speed"), &WRITE[0], kb_per_s(&pair[0]), kind);
    let again = "the synchronous row's run once more, for no policy is asked when something is written";
    let speed = format!("{} KB/s", WRITE[1].kb_per_s);
    lines.not_shown(&claim("asynchronous", "speed"), &speed, again);
    for (kernel, row, counters) in [("synchronous", &WRITE[0], &pair[0]), ("asynchronous", &WRITE[1], &pair[1])] {
        let busy = format!("{} %", row.load_percent);
        let work = "what the kernel takes to write a page, of the synchronous row";
        lines.put_in(&claim(kernel, "load"), &busy, Measure::percent(load(counters)), work);
    }
    let alone = "putc's own time would have to be put in, and nothing else of this row has to do with reading ahead";
    for (kernel, row) in [("synchronous", &WRITE_PER_CHAR[0]), ("asynchronous", &WRITE_PER_CHAR[1])] {
        let quoted = format!("{} KB/s, {} %", row.kb_per_s, row.load_percent);
        lines.not_shown(&format!("Bonnie, output per character, {kernel}: speed and load"), &quoted, alone);
    }
    let none = "no policy is asked when something is written: here both kernels cannot differ";
    for (what, rows) in [("block", &WRITE), ("per character", &WRITE_PER_CHAR)] {
        let quoted = format!("{:+.1} %", 100.0 * (rows[1].kb_per_s / rows[0].kb_per_s - 1.0));
        lines.not_shown(&format!("Bonnie, sequential output, {what}: quite identical"), &quoted, none);
    }
}
