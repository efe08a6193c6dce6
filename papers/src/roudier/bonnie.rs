//! His Bonnie rows: 200 MB on a P90 with 24 MB.

use crate::counts::{KIB, load};
use crate::{Bound, Figure, Job, Lines, Measure, PaperError, run_all, scenario};
use ahead_sim::Counters;

/// What a row says.
struct Row {
    kb_per_s: f64,
    load_percent: f64,
}

const PER_CHAR: [Row; 2] = [Row { kb_per_s: 2162.0, load_percent: 65.0 }, Row { kb_per_s: 2946.0, load_percent: 91.9 }];
const BLOCK: [Row; 2] = [Row { kb_per_s: 3952.0, load_percent: 28.0 }, Row { kb_per_s: 3960.0, load_percent: 31.2 }];

fn kb_per_s(counters: &Counters) -> Measure {
    Measure::new(counters.throughput_bytes_per_s() / KIB, "KB/s", 0)
}

pub(super) fn add(lines: &mut Lines) -> Result<Vec<Figure>, PaperError> {
    let per_char = scenario("roudier/per-char.toml", include_str!("../../roudier/per-char.toml"))?;
    let block = scenario("roudier/block.toml", include_str!("../../roudier/block.toml"))?;
    let mut jobs = Vec::new();
    for scenario in [&per_char, &block] {
        jobs.extend([Job::new(scenario, "linux-1.3")?, Job::new(scenario, "roudier")?]);
    }
    let results = run_all(&jobs)?;
    say_per_char(lines, &results[..2]);
    say_block(lines, &results[2..]);
    lines.not_shown("random seeks", "left out", "he left them out, too");
    Ok(Vec::new())
}

fn say_per_char(lines: &mut Lines, pair: &[Counters]) {
    let command = "the command's time is assumed; a file system's own blocks are not modelled here";
    let no_others =
        "he says himself that 100 % is not to be had, but about 90 %: nothing here takes the tenth that others took";
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
    let gain = 100.0 * (pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0);
    let both = "the errors of both rows: 6 % below, 15 % above";
    lines.number(
        "Bonnie, input per character: gain",
        "36 %",
        Measure::new(gain, "%", 0),
        Bound::Between(36.0 - 21.0, 36.0 + 21.0),
        both,
    );
}

fn say_block(lines: &mut Lines, pair: &[Counters]) {
    let put_in = "the disk's rate and the kernel's time are put in from the synchronous row; that the other is the same comes out";
    let rows = [("synchronous", &BLOCK[0], &pair[0]), ("asynchronous", &BLOCK[1], &pair[1])];
    for (kernel, row, counters) in rows {
        let (speed, busy) =
            (format!("Bonnie, block input, {kernel}: speed"), format!("Bonnie, block input, {kernel}: load"));
        lines.number(
            &speed,
            &format!("{} KB/s", row.kb_per_s),
            kb_per_s(counters),
            Bound::Within(row.kb_per_s, 0.02),
            put_in,
        );
        let work =
            "put in from the synchronous row; his patch took a little more of the processor, here both take the same";
        lines.number(
            &busy,
            &format!("{} %", row.load_percent),
            Measure::percent(load(counters)),
            Bound::Within(row.load_percent, 0.12),
            work,
        );
    }
    let change = 100.0 * (pair[0].elapsed_ns as f64 / pair[1].elapsed_ns as f64 - 1.0);
    lines.number(
        "Bonnie, block input: quite identical",
        "+0.2 %",
        Measure::new(change, "%", 1),
        Bound::Between(-1.0, 1.0),
        "1 % either way is the same",
    );
}
