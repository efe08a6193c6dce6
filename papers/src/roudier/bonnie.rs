//! His Bonnie rows: 200 MB on a P90 with 24 MB.

use crate::counts::{KIB, load};
use crate::{Bound, Job, Lines, Measure, PaperError, run_all, scenario};
use ahead_sim::Counters;

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
    let mut jobs = Vec::new();
    for scenario in [&per_char, &block, &rewrite, &plugged, &write] {
        jobs.extend([Job::new(scenario, "linux-1.3")?, Job::new(scenario, "roudier")?]);
    }
    let results = run_all(&jobs)?;
    say_per_char(lines, &results[..2]);
    say_block(lines, &results[2..4]);
    say_rewrite(lines, &results[4..6], &results[6..8]);
    say_write(lines, &results[8..10]);
    lines.not_shown("random seeks", "left out", "he left them out, too");
    Ok(())
}

fn say_per_char(lines: &mut Lines, pair: &[Counters]) {
    let command = "the command's time is assumed";
    let no_others = "he says himself that 100 % is not to be had, but about 90 %: here the wait for pointer blocks is all that is missing";
    let [slow, fast] = [&PER_CHAR[0], &PER_CHAR[1]];
    let quoted = |row: &Row| (format!("{} KB/s", row.kb_per_s), format!("{} %", row.load_percent));
    let (speed, busy) = quoted(slow);
    lines.number(
        "Bonnie, input per character, synchronous: speed",
        &speed,
        kb_per_s(&pair[0]),
        Bound::Within(slow.kb_per_s, 0.06),
        command,
    );
    lines.number(
        "Bonnie, input per character, synchronous: load",
        &busy,
        Measure::percent(load(&pair[0])),
        Bound::Within(slow.load_percent, 0.06),
        command,
    );
    let (speed, busy) = quoted(fast);
    lines.number(
        "Bonnie, input per character, asynchronous: speed",
        &speed,
        kb_per_s(&pair[1]),
        Bound::Within(fast.kb_per_s, 0.15),
        no_others,
    );
    let at_least = "greater than 90 %, as he expected";
    lines.number(
        "Bonnie, input per character, asynchronous: load",
        &busy,
        Measure::percent(load(&pair[1])),
        Bound::AtLeast(90.0),
        at_least,
    );
    let quarter = "a quarter of it, as for rewrite; nothing here takes what others took of the processor";
    lines.number("Bonnie, input per character: gain", "36 %", gain(pair), Bound::Within(36.0, 0.25), quarter);
}

fn say_block(lines: &mut Lines, pair: &[Counters]) {
    let [slow, fast] = [&BLOCK[0], &BLOCK[1]];
    let claim = |kernel: &str, what: &str| format!("Bonnie, block input, {kernel}: {what}");
    let (speed, busy) = (claim("synchronous", "speed"), claim("synchronous", "load"));
    lines.put_in(&speed, "3952 KB/s", kb_per_s(&pair[0]), "the disk's rate");
    lines.put_in(&busy, "28 %", Measure::percent(load(&pair[0])), "what the kernel takes for a page");
    let (speed, busy) = (claim("asynchronous", "speed"), claim("asynchronous", "load"));
    let same = "the disk is the bound of both";
    lines.number(&speed, "3960 KB/s", kb_per_s(&pair[1]), Bound::Within(fast.kb_per_s, 0.02), same);
    let work = "his patch took a little more of the processor, here both take the same";
    let bound = Bound::Within(fast.load_percent, 0.12);
    lines.number(&busy, "31.2 %", Measure::percent(load(&pair[1])), bound, work);
    let quoted = format!("{:+.1} %", 100.0 * (fast.kb_per_s / slow.kb_per_s - 1.0));
    let small = "1 % either way is the same";
    lines.number("Bonnie, block input: quite identical", &quoted, gain(pair), Bound::Between(-1.0, 1.0), small);
}

/// How much faster the second is than the first.
fn gain(pair: &[Counters]) -> Measure {
    Measure::new(100.0 * (pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0), "%", 1)
}

/// A file is rewritten once; the row counts its bytes once.
fn file_kb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.read_bytes as f64 / KIB * 1e9 / counters.elapsed_ns as f64, "KB/s", 0)
}

fn say_rewrite(lines: &mut Lines, pair: &[Counters], plugged: &[Counters]) {
    let kind = "what the drive takes before the platter has it (128 KB) is assumed; with none it is 312 and 329 KB/s";
    for (kernel, row, counters) in [("synchronous", &REWRITE[0], &pair[0]), ("asynchronous", &REWRITE[1], &pair[1])] {
        let claim = |what: &str| format!("Bonnie, rewrite, {kernel}: {what}");
        let (speed, busy) = (format!("{} KB/s", row.kb_per_s), format!("{} %", row.load_percent));
        lines.number(&claim("speed"), &speed, file_kb_per_s(counters), Bound::Within(row.kb_per_s, 0.15), kind);
        let bound = Bound::Within(row.load_percent, 0.15);
        lines.number(&claim("load"), &busy, Measure::percent(load(counters)), bound, "follows from the speed");
    }
    let better = gain(pair);
    let quarter = "a quarter of it, as for input per character; the model is kind to both kernels' writes";
    lines.number("Bonnie, rewrite: gain", "26 %", better, Bound::Within(26.0, 0.25), quarter);
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

/// Output. No policy is asked in it, so that both kernels cannot but come to the same here.
fn say_write(lines: &mut Lines, pair: &[Counters]) {
    let kind = "the disk's rate is put in from block input; what the drive takes before the platter has it (128 KB) is assumed";
    for (index, (kernel, row)) in [("synchronous", &WRITE[0]), ("asynchronous", &WRITE[1])].into_iter().enumerate() {
        let claim = |what: &str| format!("Bonnie, block output, {kernel}: {what}");
        let (speed, busy) = (format!("{} KB/s", row.kb_per_s), format!("{} %", row.load_percent));
        lines.number(&claim("speed"), &speed, kb_per_s(&pair[index]), Bound::Within(row.kb_per_s, 0.1), kind);
        let ours = Measure::percent(load(&pair[index]));
        match index {
            0 => lines.put_in(&claim("load"), &busy, ours, "what the kernel takes to write a page"),
            _ => lines.number(
                &claim("load"),
                &busy,
                ours,
                Bound::Within(row.load_percent, 0.1),
                "follows from the speed",
            ),
        };
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
