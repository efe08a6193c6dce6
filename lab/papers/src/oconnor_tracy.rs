//! Kevin O'Connor and Greg Tracy, "Addressing Large Sequential Read Performance in Linux's Ext2 Filesystem" (2000).
//!
//! ```text
//!     advise(n)           miss ─▶ n pages ─▶ wait ─▶ compute n pages ─▶ miss …   the queue full: wait in the loop, too
//!     true-readahead(n)   every 16th page, hit or miss ─▶ this group and the next; the queue full: later
//! ```
//!
//! One machine for all numbers, in two settings as in the paper. Either the processor moves the data
//! (`mmapit-pio.toml`, figures 1 to 3), or the disk does (`mmapit.toml`, figures 4 to 7). The disk model differs only
//! in the output of its buffer.
//!
//! [`Usage`] converts the simulator's counters to the view of the paper's own instruments: the kernel charges clock
//! ticks to the process that programmed input has interrupted.

mod modified;
mod original;
mod pictures;
mod questions;

use crate::counts::{MIB, seconds};
use crate::{Input, Job, Lines, Measure, Measured, Outcome, Paper, PaperError, run_all, scenario};
use ahead_sim::{Counters, Scenario};

/// The name for `ahead papers`.
const NAME: &str = "oconnor-tracy";

/// The paper.
pub(crate) const PAPER: Paper = Paper {
    name: NAME,
    title: "Addressing Large Sequential Read Performance in Linux's Ext2 Filesystem",
    authors: "Kevin O'Connor and Greg Tracy",
    year: 2000,
    story: "A program that maps a file of 100 MB and copies each byte runs on Linux 2.2 at a quarter of the speed of another \
            system. The authors let it advise how much is read ahead on a miss, find that large amounts are bad, and \
            write a read-ahead that also checks on hits and never waits for the queue. Their machine runs here with both, with \
            every amount, and answers their open questions.",
    run,
};

/// Pages of the file.
const FILE_PAGES: u64 = 25_600;
/// The advice levels of the figures: powers of two, as the paper's kernel requires.
const LEVELS: [u64; 14] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192];

/// Times as `getrusage` and a stopwatch report them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Usage {
    /// User time, seconds.
    user_s: f64,
    /// System time, seconds.
    system_s: f64,
    /// The rest of the elapsed time, seconds.
    idle_s: f64,
}

impl Usage {
    fn of(counters: &Counters) -> Usage {
        let moved = counters.moved;
        let user_s = seconds(counters.user_ns + moved.from_user_ns);
        let system_s = seconds(counters.system_ns - moved.from_user_ns - moved.from_idle_ns);
        Usage { user_s, system_s, idle_s: (seconds(counters.elapsed_ns) - user_s - system_s).max(0.0) }
    }
}

/// One policy at every level.
struct Levels(Vec<(u64, Counters)>);

impl Levels {
    /// The counters at this level.
    fn at(&self, pages: u64) -> &Counters {
        let found = self.0.iter().find(|(level, _)| *level == pages);
        &found.expect("it is asked for levels that were run").1
    }

    /// The largest throughput, and its level.
    fn best(&self) -> (u64, f64) {
        let rates = self.0.iter().map(|(level, counters)| (*level, mb_per_s(counters)));
        rates.fold((0, 0.0), |best, now| if now.1 > best.1 { now } else { best })
    }
}

/// A MB has 1024 KB in the paper: its file of 100 MB has 25,600 pages.
fn mb_per_s(counters: &Counters) -> f64 {
    counters.throughput_bytes_per_s() / MIB
}

fn rate(value: f64) -> Measure {
    Measure::new(value, "MB/s", 2)
}

/// Waits of the program: for missed pages, for pages in flight, and for room in the queue.
fn waits(counters: &Counters) -> u64 {
    counters.misses + counters.locked + counters.queue_waits
}

/// The machine in its two settings.
struct Machines {
    /// The processor moves the data.
    pio: Scenario,
    /// The disk moves the data.
    dma: Scenario,
}

impl Machines {
    fn load() -> Result<Machines, PaperError> {
        Ok(Machines {
            pio: scenario("oconnor_tracy/mmapit-pio.toml", include_str!("../oconnor_tracy/mmapit-pio.toml"))?,
            dma: scenario("oconnor_tracy/mmapit.toml", include_str!("../oconnor_tracy/mmapit.toml"))?,
        })
    }
}

/// Runs a policy with one argument at each of these levels.
fn at_levels(
    scenario: &Scenario,
    policy: &str,
    levels: impl Iterator<Item = u64> + Clone,
) -> Result<Levels, PaperError> {
    let jobs = levels.clone().map(|pages| Job::new(scenario, &format!("{policy}({pages})")));
    let results = run_all(&jobs.collect::<Result<Vec<_>, _>>()?)?;
    Ok(Levels(levels.zip(results).collect()))
}

/// The runs behind the figures.
struct Runs {
    pio: Levels,
    dma: Levels,
    modified: Levels,
}

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let live = measured.live;
    let machines = Machines::load()?;
    let levels = || LEVELS.into_iter().chain([FILE_PAGES]);
    let runs = Runs {
        pio: at_levels(&machines.pio, "advise", levels())?,
        dma: at_levels(&machines.dma, "advise", levels())?,
        modified: at_levels(&machines.dma, "true-readahead", levels())?,
    };
    let mut lines = Lines::new(NAME);
    original::advice(&mut lines, &machines, &runs)?;
    let phases = original::extreme(&mut lines, &machines)?;
    original::dma(&mut lines, &machines, &runs)?;
    modified::add(&mut lines, &machines, &runs)?;
    let mut figures = pictures::of_the_paper(&runs, &phases);
    figures.extend(questions::add(&mut lines, &machines, &runs, live)?);
    Ok(Outcome { inputs: inputs(), lines: lines.finish(), figures })
}

fn inputs() -> Vec<Input> {
    vec![
        Input::new("memory", "128 MB", "stated"),
        Input::new("queue", "128 requests", "stated; the code of 2.2 (NR_REQUEST)"),
        Input::new("a request", "at most 8 KiB", "the paper's 260 pages in 128 requests; see there"),
        Input::new(
            "the program, a page",
            "276 us",
            "figure 5: 100 MB at 12.5 MB/s less half a second idle, less fault and request",
        ),
        Input::new("a fault; a request, each page", "5 us; 10 us", "assumed; the paper calls system time negligible"),
        Input::new("the disk's platter", "13 MB/s, 7200 rpm", "figure 2: NTFS peaks at around 13 MB/s"),
        Input::new("the disk's interface", "33 MB/s", "assumed: Ultra DMA mode 2"),
        Input::new(
            "a command",
            "380 us",
            "assumed; from 350 to 380 us no verdict changes, beyond that commands are slower than the platter",
        ),
        Input::new(
            "programmed input, a page",
            "944 us",
            "2048 words of 383 ns (ATA, mode 1: of the standard's modes the one that 3.2 MB/s leave) and 8 interrupts of \
             20 us, assumed",
        ),
        Input::new("the file", "ext2 of 4 KiB blocks, in one piece except its pointer blocks", "assumed"),
        Input::new(
            "the sort, a group of 64 pages",
            "14.9 ms",
            "assumed: 2621 records of 100 bytes, 500 ns a comparison",
        ),
    ]
}
