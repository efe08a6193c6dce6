//! Opdenacker 2007, *Readahead: time-travel techniques for desktop and embedded systems*: lists of files to read ahead
//! at boot, their shortcomings, and windows over a recording instead.
//!
//! ```text
//!     Ubuntu Edgy      the files of the boot, whole, by place, beside it       faster
//!     Fedora Core 6    these and many that the boot does not need              slower
//!     embedded         little memory: sections, in time, a window at a time    the author's proposal, not built then
//! ```
//!
//! One machine. The boots' processor and sleeping times are inputs, from the runs without a list, so that the effect of
//! a list is a result. The read pages are those that ten programs were measured to touch. Eight programs are the boot.
//! Two more represent the desktop's applications that Fedora's list also contains.

mod boot;
mod calls;
mod kernel;
mod memory;
mod real;

use crate::{
    Bound, Figure, Input, Lines, Measure, Measured, Outcome, Paper, PaperError, Plot, StackedBar, SystemCalls,
};
use crate::{in_parallel, policy, scenario};
use ahead_device::Model;
use ahead_sim::{Counters, Program, Scenario};
use boot::{Boot, Order, Parts};

/// The name for `ahead papers`.
const NAME: &str = "opdenacker";
/// The boot: every measured program, except the two whose files are mostly archives.
const BOOT: [&str; 8] = ["bash", "vim", "git", "gcc", "perl", "gtk", "python", "gdb"];
/// All programs, with these two: the content of a list that also serves applications.
const WITH_APPLICATIONS: [&str; 10] = ["bash", "vim", "git", "gcc", "perl", "gtk", "python", "gdb", "node", "java"];

/// The source.
pub const PAPER: Paper = Paper {
    name: NAME,
    title: "Readahead: time-travel techniques for desktop and embedded systems",
    authors: "Michael Opdenacker",
    year: 2007,
    story: "Distributions read whole files ahead at boot, by place, which made one boot faster and another slower. A boot of \
            measured programs shows the flaws of this, and the windows that the paper proposes are implemented and tried.",
    run,
};

/// A distribution's boot: seconds to its end and idle seconds, without and with its list, and the changes as printed.
struct Boots {
    name: &'static str,
    seconds: [f64; 2],
    idle: [f64; 2],
    /// The changes of boot and idle time, percent.
    printed: [f64; 2],
}

/// Table 1.
const EDGY: Boots =
    Boots { name: "Ubuntu Edgy", seconds: [48.368, 39.942], idle: [29.070, 22.3], printed: [-17.4, -23.3] };
const FC6: Boots =
    Boots { name: "Fedora Core 6", seconds: [50.422, 59.858], idle: [28.302, 35.446], printed: [18.7, 20.2] };
/// Tolerance of a boot time: the programs and the disk of the paper are not known.
const TOLERANCE: f64 = 0.1;
/// Tolerance of a change, in points.
const POINTS: f64 = 6.0;

fn run(measured: &Measured) -> Result<Outcome, PaperError> {
    let mut machine = scenario("opdenacker/boot.toml", include_str!("../opdenacker/boot.toml"))?;
    machine.disk.model = Model::from_toml(include_str!("../opdenacker/disk.toml")).expect("a test reads it");
    let mut outcome = Outcome {
        inputs: vec![
            Input::new("disk", "7200 rpm, 60 MB/s, 8.5 ms", "assumed: a desktop disk of 2006"),
            Input::new("boots: processor time", "19.3 and 22.1 s", "table 1: boot less idle time, without a list"),
            Input::new(
                "boots: idle time",
                "29.1 and 28.3 s",
                "table 1, without a list; what does not go to the disk is slept",
            ),
            Input::new("boots: what is read", BOOT.join(", "), "measured starts of today (lab/papers/starts.txt)"),
            Input::new(
                "Fedora's list",
                "the boot's files, node's and java's",
                "assumed: applications that it names besides",
            ),
        ],
        ..Outcome::default()
    };
    let mut lines = Lines::new(NAME);
    let seen = measured.live.map(|live| live.system_calls(&machine)).transpose()?;
    kernel::run(&mut lines, seen.as_ref())?;
    let edgy = ubuntu(&machine, &mut outcome, &mut lines)?;
    fedora(&machine, &mut lines)?;
    real::add(measured.boots, &mut outcome, &mut lines);
    shortcomings(&machine, &edgy, seen.as_ref(), &mut lines)?;
    memory::run(&machine, &edgy, &mut outcome, &mut lines)?;
    outcome.lines = lines.finish();
    Ok(outcome)
}

/// Runs a boot, with another program beside it if there is one.
fn boot_with(machine: &Scenario, boot: &Boot, beside: Option<Program>) -> Result<Counters, PaperError> {
    let programs = std::iter::once(boot.program()).chain(beside).collect();
    Ok(machine.machine_for(&policy("linux-2.6")?, &boot.file_pages(), programs)?.run())
}

/// A boot that takes as long as the paper's without a list: its computing and sleeping times are inputs.
fn like(machine: &Scenario, theirs: &Boots) -> Result<Boot, PaperError> {
    let mut boot = Boot::new(&BOOT);
    let bare = boot_with(machine, &boot, None)?;
    let processor_ns = (theirs.seconds[0] - theirs.idle[0]) * 1e9 - (bare.user_ns + bare.system_ns) as f64;
    boot.compute_ns = (processor_ns.max(0.0) / boot.runs() as f64) as u64;
    let awake = boot_with(machine, &boot, None)?;
    let slept_ns = theirs.idle[0] * 1e9 - awake.idle_ns() as f64;
    boot.sleep_ns = (slept_ns.max(0.0) / BOOT.len() as f64) as u64;
    Ok(boot)
}

fn seconds(counters: &Counters) -> f64 {
    counters.elapsed_ns as f64 / 1e9
}

fn idle(counters: &Counters) -> f64 {
    counters.idle_ns() as f64 / 1e9
}

/// One row of table 1: boot and idle time, and the reduction compared with no list.
fn row(theirs: &Boots, with: usize, runs: &[&Counters; 2], lines: &mut Lines) {
    let list = if with == 0 { "without" } else { "with" };
    let times = [
        ("boot", theirs.seconds, seconds as fn(&Counters) -> f64, theirs.printed[0]),
        ("idle", theirs.idle, idle, theirs.printed[1]),
    ];
    for (what, quoted, of, printed) in times {
        let claim = format!("table 1: {}, {what} time {list} readahead", theirs.name);
        let (says, ours) = (format!("{} s", quoted[with]), Measure::new(of(runs[with]), "s", 2));
        if with == 0 {
            lines.input(&claim, &says, ours, "what the boot computes and sleeps");
            continue;
        }
        let unknown = "their programs and disk are not known";
        lines.number(&claim, &says, ours, Bound::Within(quoted[with], TOLERANCE), unknown);
        let percent = |of: [f64; 2]| 100.0 * (of[1] / of[0] - 1.0);
        // The change that follows from the paper's seconds. Except for one slip, it is the printed change.
        let change = percent(quoted);
        let slip = if (change - printed).abs() < 0.1 {
            String::new()
        } else {
            format!(
                "; the printed seconds give {change:+.1} %, the printed change is the difference as a share of the longer time"
            )
        };
        lines.number(
            &format!("table 1: {}, change of {what} time", theirs.name),
            &format!("{printed:+.1} %"),
            Measure::new(percent(runs.map(of)), "%", 1),
            Bound::Between((change - POINTS).round(), (change + POINTS).round()),
            &format!("six points: {unknown}{slip}"),
        );
    }
}

fn ubuntu(machine: &Scenario, outcome: &mut Outcome, lines: &mut Lines) -> Result<Boot, PaperError> {
    let boot = like(machine, &EDGY)?;
    let without = boot_with(machine, &boot, None)?;
    let mut bars = vec![bar("none", &without)];
    let lists = [
        (Parts::Files, Order::Place),
        (Parts::Files, Order::Time),
        (Parts::Sections, Order::Place),
        (Parts::Sections, Order::Time),
    ];
    let runs = in_parallel(&lists, |(parts, order)| {
        boot_with(machine, &boot, Some(boot.reader(boot.list(&BOOT, *parts), *order)))
    });
    let runs: Vec<Counters> = runs.into_iter().collect::<Result<_, _>>()?;
    for with in [0, 1] {
        row(&EDGY, with, &[&without, &runs[0]], lines);
    }
    for ((parts, order), counters) in lists.iter().zip(&runs) {
        bars.push(bar(&format!("{parts:?} by {order:?}").to_lowercase(), counters));
    }
    outcome.figures.push(Figure {
        title: "A boot with lists".into(),
        caption: "The boot like Ubuntu Edgy's: processor, slept, waited for the disk.".into(),
        plot: Plot::Stacked {
            x: "list".into(),
            y: "seconds".into(),
            parts: vec!["processor".into(), "slept and waited".into()],
            bars,
        },
    });
    lines.shape(
        "1.2: reading ahead reduces disk head moves",
        "grouping a greater number of contiguous blocks",
        format!("{} seeks without a list, {} with one by place", without.device.seeks, runs[0].device.seeks),
        runs[0].device.seeks * 3 < without.device.seeks * 2,
        "a third fewer at least, though twice as much is read",
    );
    for what in ["Ubuntu Edgy, with and without readahead", "Fedora Core 6, with and without readahead"] {
        lines.not_shown(
            &format!("table 1: standard deviations, {what}"),
            if what.starts_with('U') {
                "0.153, 1.296; idle 0.281, 0.271 s"
            } else {
                "0.496, 0.552; idle 0.374, 0.312 s"
            },
            "the same boot takes the same time here",
        );
    }
    Ok(boot)
}

fn bar(label: &str, counters: &Counters) -> StackedBar {
    StackedBar { label: label.into(), values: vec![seconds(counters) - idle(counters), idle(counters)] }
}

/// Fedora's list contains more files than the boot needs, and made the boot slower.
fn fedora(machine: &Scenario, lines: &mut Lines) -> Result<(), PaperError> {
    let boot = like(machine, &FC6)?;
    let without = boot_with(machine, &boot, None)?;
    let list = || boot.reader(boot.list(&WITH_APPLICATIONS, Parts::Files), Order::Place);
    let beside = boot_with(machine, &boot, Some(list()))?;
    for with in [0, 1] {
        row(&FC6, with, &[&without, &beside], lines);
    }
    // A case that is as slow as Fedora: the boot waits for a list. The loop finds the necessary length of the list.
    let waited_for = |more_mb: u64| -> Result<Counters, PaperError> {
        let ops = list().ops.chain(boot.surplus(more_mb)).chain(boot.program().ops);
        let mut file_pages = boot.file_pages();
        file_pages.push(more_mb << 8);
        let program = Program { ops: Box::new(ops), user_per_page_ns: 0.0 };
        Ok(machine.machine_for(&policy("linux-2.6")?, &file_pages, vec![program])?.run())
    };
    let sizes: Vec<u64> = (0..=16).map(|step| 50 * step).collect();
    let times: Vec<f64> = in_parallel(&sizes, |more_mb| waited_for(*more_mb).map(|counters| seconds(&counters)))
        .into_iter()
        .collect::<Result<_, _>>()?;
    let listed_mb = boot.list(&WITH_APPLICATIONS, Parts::Files).iter().map(|section| section.pages).sum::<u64>() >> 8;
    let needed = sizes.iter().zip(&times).find(|(_, time)| **time >= FC6.seconds[1]);
    lines.answer(
        "4.3: what makes the boot slower",
        "the list also names files of the desktop's applications",
        format!(
            "not only that: with {listed_mb} MB read beside it the boot takes {:.1} s, because it sleeps and computes meanwhile. If the boot \
             waits until they are read: {:.1} s; it takes Fedora's 59.9 s with {} MB",
            seconds(&beside),
            times[0],
            needed.map_or("more than 1200".into(), |(more_mb, _)| (listed_mb + more_mb).to_string())
        ),
        seconds(&beside) < seconds(&without) && times[0] > seconds(&without) && needed.is_some(),
        "shown for this disk: a list that is waited for costs more than it saves as soon as it is much longer than the boot needs",
    );
    Ok(())
}

/// Section 4.4.
fn shortcomings(
    machine: &Scenario,
    boot: &Boot,
    seen: Option<&SystemCalls>,
    lines: &mut Lines,
) -> Result<(), PaperError> {
    let pages = |parts| boot.list(&BOOT, parts).iter().map(|section| section.pages).sum::<u64>();
    let (whole, used) = (pages(Parts::Files), pages(Parts::Sections));
    let line = lines.shape(
        "4.4.1: preloading entire files is a waste of I/O, time and memory",
        "actual use is much smaller than the size",
        format!(
            "{} of {} MB are used, {:.0} % is waste",
            used >> 8,
            whole >> 8,
            100.0 * (1.0 - used as f64 / whole as f64)
        ),
        2 * used < whole + whole / 10,
        "measured: about half at least is not touched",
    );
    calls::live(line, seen, calls::whole_file);
    calls::demand_paging(lines, seen);
    let list = |order| boot.reader(boot.list(&BOOT, Parts::Files), order);
    // A boot that does not sleep soon overtakes the list.
    let mut awake = boot.clone();
    awake.sleep_ns = 0;
    let [place, time] = [Order::Place, Order::Time].map(|order| boot_with(machine, &awake, Some(list(order))));
    let without = boot_with(machine, &awake, None)?;
    let (place, time) = (place?, time?);
    lines.shape(
        "4.4.2: ordered by place, a file may be accessed before it is preloaded",
        "could happen",
        format!(
            "of {} pages that are missed without a list, {} still are with one by place, {} with one by time",
            without.misses, place.misses, time.misses
        ),
        place.misses > 0 && place.misses < without.misses,
        "some, but fewer than without a list; the boot does not sleep here, so that the list has no head start",
    );
    // Section 5.1: without seeks, the order has no effect.
    let mut flash = machine.clone();
    flash.disk.model = Model::builtin("emmc").expect("built in");
    let times = [Order::Place, Order::Time].map(|order| boot_with(&flash, &awake, Some(list(order))));
    let [by_place, by_time] = times;
    let (by_place, by_time) = (seconds(&by_place?), seconds(&by_time?));
    lines.number(
        "5.1: on flash, ordering files by disk location is futile",
        "futile",
        Measure::percent((by_place / by_time - 1.0).abs()),
        Bound::AtMost(2.0),
        "the difference between a list by place and one by time on an eMMC",
    );
    Ok(())
}
