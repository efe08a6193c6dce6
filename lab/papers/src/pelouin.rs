//! Pelouin 2009, *Investigating ext2 optimizations in Linux*: timed reads that show the layout of a file system, and
//! the questions that they leave open.
//!
//! ```text
//!     reads of 16 bytes, no read-ahead            drops each 4096 bytes: the block
//!     reads of 512 bytes, 248 sectors ahead       drops where windows begin: 8 K, 24 K, 56 K, 120 K, then every 124 K
//!     blocks 0, 0-1, 0-2 … no read-ahead          the time of the first block
//!     reads of 2048 bytes, no read-ahead          dips where a pointer block is read
//! ```
//!
//! Every test runs on one machine. Rates are derived as in the paper, over 16 runs that begin at 16 places of a turn of
//! the platter. One rule finds the drops, not visual judgement.

mod processor;
mod rates;

use crate::{Axis, Bound, Figure, Input, Lines, Live, Measure, Measured, Outcome, Paper, PaperError, Plot};
use crate::{in_parallel, policy, scenario, series};
use ahead_device::Model;
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Op, Program, Scenario, Scheme};
use processor::ProcessorCache;
use rates::{Rates, Steps};

/// The name for `ahead papers`.
const NAME: &str = "pelouin";
/// A rate below this share of the median is a large drop: the read took ten times as long as most reads.
const LARGE_DROP: f64 = 0.2;
/// A rate below this share of the median is a dip: the time is between those of one and of two disk accesses.
const DIP: f64 = 0.75;
/// The paper's drops (section 3.2): "122880, 249856, 376832, ..." and a fourth one at the same distance.
const DROPS: [u64; 4] = [122_880, 249_856, 376_832, 503_808];
/// Starts of windows. The first window's mark is in its second page, at 4096.
const WINDOWS: [u64; 8] = [4096, 8192, 24_576, 57_344, 122_880, 249_856, 376_832, 503_808];
/// The unit of BLKRAGET, bytes.
const SECTOR_BYTES: u64 = 512;
/// The paper's distance between drops, bytes.
const PERIOD: u64 = 126_976;
/// End of figure 3, blocks: beyond both of its steps (175 and 241), at a megabyte and a quarter.
const FIGURE_3_BLOCKS: usize = 320;
/// End of figure 4, blocks: 5 MB. The curve is linear from 4 MB on.
const CACHING_BLOCKS: u64 = 1280;
/// A block whose read takes longer came from the drive, nanoseconds. The command alone takes 100 us.
const MEMORY_NS: u64 = 100_000;
/// Approximate end of figure 2, bytes.
const FIGURE_2_END: u64 = 600 << 10;

/// The source.
pub const PAPER: Paper = Paper {
    name: NAME,
    title: "Investigating ext2 optimizations in Linux",
    authors: "Markus Pelouin",
    year: 2009,
    story: "A file is read in small steps, each timed: block size, read-ahead and the layout of ext2 show as drops of the \
            rate. The paper leaves some drops unexplained; this simulation looks for their causes.",
    run,
};

fn machine() -> Result<Scenario, PaperError> {
    let mut machine = scenario("pelouin/machine.toml", include_str!("../pelouin/machine.toml"))?;
    machine.disk.model = Model::from_toml(include_str!("../pelouin/disk.toml")).expect("a test reads it");
    Ok(machine)
}

/// The same machine without read-ahead.
fn without_read_ahead(machine: &Scenario) -> Scenario {
    let mut machine = machine.clone();
    machine.disk.window_pages = 0;
    machine
}

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let live = measured.live;
    let machine = machine()?;
    let mut outcome = Outcome {
        inputs: vec![
            Input::new("read-ahead", "248 sectors, 31 pages", "the paper: BLKRAGET"),
            Input::new("file system", "ext2, blocks of 4 KiB", "the paper: the superblock"),
            Input::new("disk", "8 MB of cache", "the paper"),
            Input::new("disk", "7200 rpm, 60 MB/s, 8.5 ms, 100 us per command", "assumed: a desktop disk of that time"),
            Input::new("processor", "0.5 us per call", "assumed; no line depends on it"),
        ],
        ..Outcome::default()
    };
    let mut lines = Lines::new(NAME);
    add_block_size(&machine, &mut outcome, &mut lines)?;
    add_read_ahead(&machine, &mut outcome, &mut lines, live)?;
    add_caching(&machine, &mut outcome, &mut lines)?;
    add_layout(&machine, &mut outcome, &mut lines, live)?;
    outcome.lines = lines.finish();
    Ok(outcome)
}

fn list(positions: &[u64]) -> String {
    positions.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn figure(title: &str, caption: &str, rates: &Rates) -> Figure {
    Figure {
        title: title.into(),
        caption: caption.into(),
        plot: Plot::Lines {
            x: Axis::linear("position in the file, KB"),
            y: Axis::linear("rate, MB/s"),
            series: vec![series("simulated, average of 16 runs", rates.points())],
        },
    }
}

/// Section 3.1.
fn add_block_size(machine: &Scenario, outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let steps = Steps { policy: "linux-2.6.23", step_bytes: 16, end_bytes: 40 << 10, keeps_times: false };
    let rates = steps.rates(&without_read_ahead(machine))?;
    let drops = rates.drops(LARGE_DROP);
    let holds = drops.iter().zip(1..).all(|(drop, block)| *drop == block * 4096) && drops.len() == 9;
    lines.shape(
        "3.1, figure 1: reads of 16 bytes without read-ahead drop at intervals of the block",
        "4096 bytes",
        format!("drops at {}", list(&drops)),
        holds,
        "exact: every multiple of 4096 up to 36864, and nothing else",
    );
    outcome.figures.push(figure("Figure 1", "Reads of 16 bytes, without read-ahead.", &rates));
    // "It reveals little": the whole file, in reads of each size.
    let sizes = [512, 1024, 2048, 4096, 8192];
    let whole = |step_bytes: &u64| -> Result<f64, PaperError> {
        let (open, file, step_bytes) = (OpenId(0), FileId(0), *step_bytes);
        let read = move |index| Op::Read { open, file, offset_bytes: index * step_bytes, length_bytes: step_bytes };
        let ops = Box::new((0..(16 << 20) / step_bytes).map(read));
        let program = Program { ops, user_per_page_ns: 0.0 };
        let machine = machine.machine_for(&policy("linux-2.6.23")?, &[(16 << 20) / PAGE_BYTES], vec![program])?;
        Ok(machine.run().elapsed_ns as f64 / 1e9)
    };
    let times: Vec<f64> = in_parallel(&sizes, whole).into_iter().collect::<Result<_, _>>()?;
    let spread = times.iter().copied().fold(0.0, f64::max) / times.iter().copied().fold(f64::MAX, f64::min) - 1.0;
    lines.number(
        "2.1: a large file in reads of 512 to 8192 bytes reveals little of the block size",
        "little information",
        Measure::percent(spread),
        Bound::AtMost(5.0),
        "slowest relative to fastest; the disk is the limit, and calls take less time than the disk",
    );
    Ok(())
}

/// Section 3.2.
fn add_read_ahead(
    machine: &Scenario,
    outcome: &mut Outcome,
    lines: &mut Lines,
    live: Option<&dyn Live>,
) -> Result<(), PaperError> {
    let policies = ["linux-2.6", "linux-2.6.23"];
    let rates: Vec<Rates> = in_parallel(&policies, |policy| {
        Steps { policy, step_bytes: 512, end_bytes: FIGURE_2_END, keeps_times: false }.rates(machine)
    })
    .into_iter()
    .collect::<Result<_, _>>()?;
    let steps = Steps { policy: policies[1], step_bytes: 512, end_bytes: FIGURE_2_END, keeps_times: false };
    let seen = live.map(|live| steps.live_rates(machine, live)).transpose()?.map(|rates| rates.drops(LARGE_DROP));
    for (policy, rates) in policies.iter().zip(&rates) {
        add_window_drops(policy, &rates.drops(LARGE_DROP), seen.as_deref(), lines);
    }
    lines.input(
        "4: BLKRAGET reports the read-ahead",
        "248 sectors",
        Measure::new((machine.disk.window_pages * PAGE_BYTES / SECTOR_BYTES) as f64, "sectors", 0),
        "the window of the scenario; that the drops have its distance is a result",
    );
    outcome.figures.push(figure("Figure 2", "Reads of 512 bytes, 248 sectors read ahead.", &rates[1]));
    answer_drops_of_times(machine, &steps, seen.as_deref(), lines)?;
    add_hidden_properties(machine, lines)
}

/// The large drops are at the starts of windows.
fn add_window_drops(policy: &str, drops: &[u64], seen: Option<&[u64]>, lines: &mut Lines) {
    let (early, late): (Vec<u64>, Vec<u64>) = drops.iter().partition(|drop| **drop < DROPS[0]);
    let claim = |what: &str| format!("3.2, figure 2: {what} ({policy})");
    lines
        .shape(
            &claim("four large drops in reads of 512 bytes, the first at 122880"),
            &list(&DROPS),
            list(&late),
            late == DROPS,
            "exact",
        )
        .live_shape(seen.map(|drops| {
            let is_late = |drop: &&u64| **drop >= DROPS[0];
            (list(drops), drops.iter().filter(is_late).eq(&DROPS))
        }));
    let periods: Vec<u64> = late.windows(2).map(|pair| pair[1] - pair[0]).collect();
    lines.shape(
        &claim("distance between them"),
        "126976 bytes, 248 sectors, 124 kB, 31 blocks",
        format!("{} bytes", list(&periods)),
        periods == [PERIOD; 3],
        "exact",
    );
    lines.answer(
        &claim("why there are drops near the beginning, and why the first large one is not at 126976"),
        "it may be that read-ahead works differently at the beginning",
        format!("drops at {}; windows of 2, 4, 8 and 16 pages are 122880 bytes", list(&early)),
        early == [8192, 24_576, 49_152, 57_344],
        "shown: the first window has 2 pages (a read of one page, a limit of 31), each window is twice the previous one, up to 31; \
         at 49152 the third window is two requests, because the indirect block is read between them",
    );
}

/// The abstract: read-ahead hides the block size and the layout.
fn add_hidden_properties(machine: &Scenario, lines: &mut Lines) -> Result<(), PaperError> {
    let steps = Steps { policy: "linux-2.6.23", step_bytes: 2048, end_bytes: FIGURE_2_END, keeps_times: false };
    let drops = steps.rates(machine)?.drops(DIP);
    let shown = format!("reads of 2048 bytes drop at {}", list(&drops));
    lines.shape(
        "abstract: read-ahead hides the block size",
        "no effect is noticeable",
        shown.clone(),
        drops.len() < 10 && DROPS.iter().all(|drop| drops.contains(drop)),
        "drops where windows begin, not at each of 150 blocks",
    );
    lines.shape(
        "abstract: read-ahead hides the layout",
        "no effect is noticeable",
        shown,
        !drops.contains(&49_152),
        "no drop at 12 blocks. In the paper's figure 2 it would be one of \"all the drops near the beginning\"",
    );
    Ok(())
}

/// The drops at exactly 256 and 512 kB: page faults in the program's memory.
fn answer_drops_of_times(
    machine: &Scenario,
    steps: &Steps,
    seen: Option<&[u64]>,
    lines: &mut Lines,
) -> Result<(), PaperError> {
    let [without, with] = [false, true].map(|keeps_times| Steps { keeps_times, ..*steps }.rates(machine));
    let (without, with) = (without?, with?);
    let middle = [256 << 10, 512 << 10];
    let shares = |rates: &Rates| middle.map(|at| format!("{:.2}", rates.share_at(at))).join(" and ");
    let new = with.drops(DIP).into_iter().filter(|drop| !without.drops(DIP).contains(drop)).collect::<Vec<_>>();
    lines.answer(
        "3.2: the less significant drops at exactly 256 kB and 512 kB",
        "the reason is unknown",
        format!(
            "a program that stores 8-byte times (rdtsc) has 512 of them in a page, and 512 reads of 512 bytes are 256 kB: its memory \
             faults there. With such times there are new drops at {}, to {} of the median; without them {}",
            list(&new),
            shares(&with),
            shares(&without)
        ),
        new == middle && middle.iter().all(|at| with.share_at(*at) > LARGE_DROP),
        "shown: exactly these two drops, smaller than those of the windows. That the paper's program stored its times this way is \
         inferred. A piece of the file that ends there has the same effect: the driver of the current kernel lays a file out in \
         pieces that end at 64, 256 and 512 kB",
    )
    .live_shape(seen.map(|drops| {
        let others: Vec<u64> = drops.iter().copied().filter(|drop| !WINDOWS.contains(drop)).collect();
        let holds = middle.iter().all(|at| others.contains(at));
        (format!("drops that no window explains: {}", list(&others)), holds)
    }));
    Ok(())
}

/// A figure of section 3.3: the time of the first block, up to `blocks` blocks of the file.
fn first_block_figure(title: &str, first_ns: &[u64], blocks: usize) -> Figure {
    let points = first_ns.iter().take(blocks).zip(2_u64..);
    Figure {
        title: title.into(),
        caption: "Time to read the first block, by the part of the file that was read before. Simulated: the page cache alone."
            .into(),
        plot: Plot::Lines {
            x: Axis::linear("blocks of 4 KB"),
            y: Axis::linear("time, ns"),
            series: vec![series("simulated", points.map(|(time_ns, block)| (block as f64, *time_ns as f64)))],
        },
    }
}

/// The times of the first block, nanoseconds, in the paper's order (0, 0-1, 0-2 …), without its very first read. Also
/// the number of reads that missed the page cache.
fn first_block_ns(machine: &Scenario) -> Result<(Vec<u64>, u64), PaperError> {
    let (open, file) = (OpenId(0), FileId(0));
    let passes = (1..=CACHING_BLOCKS).flat_map(move |pass| {
        (0..pass).map(move |block| Op::Read { open, file, offset_bytes: block * PAGE_BYTES, length_bytes: PAGE_BYTES })
    });
    let ops = Box::new(std::iter::once(Op::Open { open, file }).chain(passes));
    let program = Program { ops, user_per_page_ns: 0.0 };
    let machine = machine.machine_for(&policy("linux-2.6.23")?, &[CACHING_BLOCKS], vec![program])?;
    let (counters, calls) = machine.run_with_calls();
    let first = calls.iter().filter(|call| call.offset_bytes == 0).map(|call| call.ended_ns - call.began_ns);
    Ok((first.skip(1).collect(), counters.misses))
}

/// Section 3.3.
fn add_caching(machine: &Scenario, outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let machine = without_read_ahead(machine);
    let (first, _) = first_block_ns(&machine)?;
    outcome.figures.push(first_block_figure("Figure 3", &first, FIGURE_3_BLOCKS));
    outcome.figures.push(first_block_figure("Figure 4", &first, first.len()));
    answer_page_cache(&machine, lines)?;
    answer_processor_cache(lines);
    lines.not_shown(
        "3.3, figure 4: the graph continues linearly after 4 MB",
        "linear",
        "no time in this model depends on the number of pages that a processor has translated or touched before",
    );
    Ok(())
}

/// Whether the page cache evicts the first block if the file does not fit into memory.
fn answer_page_cache(machine: &Scenario, lines: &mut Lines) -> Result<(), PaperError> {
    let little = Scenario { memory_pages: CACHING_BLOCKS / 2, ..machine.clone() };
    let (first, misses) = first_block_ns(&little)?;
    let again = first.iter().filter(|time_ns| **time_ns > MEMORY_NS).count();
    lines.answer(
        "3.3, figures 3 and 4: are the steps at 700 and 964 kB the page cache, which evicts the first block?",
        "the cache size is less than a megabyte",
        format!(
            "with memory for half of the file, {misses} reads miss in a file of {CACHING_BLOCKS} blocks, but {again} of {} reads of \
             the first block",
            first.len()
        ),
        misses > 2 * CACHING_BLOCKS && again == 0,
        "pages that are read again are on the active list, and each pass reads the first block. A slight step has another cause: \
         here each hit takes the same time",
    );
    Ok(())
}

fn answer_processor_cache(lines: &mut Lines) {
    let sizes = [512 << 10, 1 << 20, 2 << 20];
    let gone = sizes.map(|bytes| ProcessorCache { bytes, ways: 8 }.blocks_until_gone());
    let apart = |(mean, deviation): (f64, f64), block: f64| (block - mean).abs() / deviation;
    let shown: Vec<String> = sizes
        .iter()
        .zip(gone)
        .map(|(bytes, (mean, deviation))| format!("{} KB: {mean:.0} ± {deviation:.0}", bytes >> 10))
        .collect();
    lines.answer(
        "3.3: can the steps be the processor's cache? Blocks until it has evicted the first one, by its size",
        "steps at 175 and 241 blocks",
        shown.join(", "),
        [175.0, 241.0].iter().all(|block| apart(gone[1], *block) < 1.0)
            && apart(gone[0], 241.0) > 1.0
            && apart(gone[2], 241.0) > 1.0,
        "consistent, not proven: both steps lie within one deviation for 1 MB (8 ways, random page frames), 241 for no other size",
    );
}

/// Section 3.4.
fn add_layout(
    machine: &Scenario,
    outcome: &mut Outcome,
    lines: &mut Lines,
    live: Option<&dyn Live>,
) -> Result<(), PaperError> {
    let steps = Steps { policy: "linux-2.6.23", step_bytes: 2048, end_bytes: 100 << 10, keeps_times: false };
    let machine = without_read_ahead(machine);
    let rates = steps.rates(&machine)?;
    let dips = rates.drops(DIP);
    let seen = live.map(|live| steps.live_rates(&machine, live)).transpose()?.map(|rates| rates.drops(DIP));
    lines
        .shape(
            "3.4, figure 5: the main dip in reads of 2048 bytes without read-ahead",
            "49152 bytes, 12 blocks",
            list(&dips),
            dips == [49_152],
            "exact, and no other dip",
        )
        .live_shape(seen.as_deref().map(|dips| (list(dips), dips == [49_152])));
    lines.number(
        "2.4: block D + 1 should take twice as long as block D",
        "twice",
        Measure::new(1.0 / rates.share_at(49_152), "times", 2),
        Bound::Within(2.0, 0.1),
        "the indirect block lies directly before the data, and both come from the drive's buffer",
    );
    outcome.figures.push(figure("Figure 5", "Reads of 2048 bytes, without read-ahead.", &rates));
    answer_block_15(&machine, &steps, seen.as_deref(), lines)
}

/// The dip that "was consistently present" at block 15. Twelve blocks, their indirect block and three more are 64 KiB
/// of disk.
fn answer_block_15(
    machine: &Scenario,
    steps: &Steps,
    seen: Option<&[u64]>,
    lines: &mut Lines,
) -> Result<(), PaperError> {
    let text = include_str!("../pelouin/disk.toml").replace("read_on_kb = 256", "read_on_kb = 60\nhit_read_on_kb = 0");
    let mut ext2 = machine.clone();
    ext2.disk.model = Model::from_toml(&text).expect("a test reads it");
    let mut extents = ext2.clone();
    extents.disk.layout = Scheme::Extents;
    let [ext2, extents] = [ext2, extents].map(|machine| steps.rates(&machine).map(|rates| rates.drops(DIP)));
    let (ext2, extents) = (ext2?, extents?);
    let (with, without) = (ext2.contains(&(15 * 4096)), extents.first() == Some(&(16 * 4096)));
    lines.answer(
        "3.4: the second dip, around block 15",
        "possibly the result of some filesystem optimization",
        format!(
            "with a drive that reads 64 KiB from the platter at a time, and no more until a read goes beyond them: dips at {}; the \
             same drive with a file in one piece: {}",
            list(&ext2),
            list(&extents)
        ),
        with && without,
        "shown for such a drive: 12 blocks, the indirect block and 3 blocks are 64 contiguous KiB. Not proven: here this dip is \
         deeper than the dip at 12 blocks, in the paper it is not; the last dip is a track switch",
    )
    .live_shape(seen.map(|dips| (list(dips), dips.contains(&(15 * 4096)))));
    Ok(())
}
