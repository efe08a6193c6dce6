//! Little memory (section 5): whole lists at once against windows over a recording.

use super::boot::{Boot, Events, Order, Parts};
use super::{BOOT, boot_with, seconds};
use crate::{Axis, Figure, Lines, Outcome, PaperError, Plot, in_parallel, series};
use ahead_sim::{Counters, Scenario};

/// Memory of an embedded system of 2007, MB.
const LITTLE_MB: u64 = 32;
/// The paper's window: "corresponding to 1 MB of recorded disk access".
const WINDOW_PAGES: u64 = 256;
/// Limit of the queue: room for all requests of a window, so that the boot does not wait for room.
const ROOM: u32 = 8192;

fn windowed(machine: &Scenario, boot: &Boot, memory_mb: u64, pages: u64, events: Events) -> Counters {
    let mut machine = machine.clone();
    machine.memory_pages = memory_mb << 8;
    machine.disk.nr_requests = Some(ROOM);
    machine.machine_with(Box::new(boot.windows(pages, events)), &boot.file_pages(), vec![boot.program()]).run()
}

fn listed(machine: &Scenario, boot: &Boot, memory_mb: u64, parts: Option<Parts>) -> Result<Counters, PaperError> {
    let mut machine = machine.clone();
    machine.memory_pages = memory_mb << 8;
    boot_with(&machine, boot, parts.map(|parts| boot.reader(boot.list(&BOOT, parts), Order::Place)))
}

pub(super) fn run(machine: &Scenario, boot: &Boot, outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let none = listed(machine, boot, LITTLE_MB, None)?;
    let list = listed(machine, boot, LITTLE_MB, Some(Parts::Files))?;
    let mb = |counters: &Counters| counters.issued_pages >> 8;
    lines.shape(
        "abstract, 5.1: with little memory, pages that a list read ahead are reclaimed before they are used",
        "no longer appropriate",
        format!(
            "in {LITTLE_MB} MB: {} pages missed and {} MB read with a list, {} and {} MB without",
            list.misses,
            mb(&list),
            none.misses,
            mb(&none)
        ),
        list.misses > none.misses && list.issued_pages > 2 * none.issued_pages,
        "more pages are missed than without it, and twice as much is read",
    );
    let window = windowed(machine, boot, LITTLE_MB, WINDOW_PAGES, Events::Files);
    lines.shape(
        "5.1, 5.3.4: sections, in the order of time, a window of 1 MB at a time",
        "a way that meets the requirements of embedded systems",
        format!(
            "in {LITTLE_MB} MB: boot {:.2} s, {} MB read; {:.2} s with a list of whole files, {:.2} s without a list",
            seconds(&window),
            mb(&window),
            seconds(&list),
            seconds(&none)
        ),
        seconds(&window) < seconds(&list) && seconds(&window) < seconds(&none) && mb(&window) <= mb(&none),
        "faster than either, and no more read than without",
    );
    merging(machine, boot, lines);
    sizes(machine, boot, outcome, lines)
}

/// "Remove any duplicate read operations, as well as merge consecutive ones into single larger ones."
fn merging(machine: &Scenario, boot: &Boot, lines: &mut Lines) {
    let (recorded, small, large) =
        (boot.runs(), boot.merged_within(WINDOW_PAGES), boot.merged_within(16 * WINDOW_PAGES));
    let window = windowed(machine, boot, 1024, WINDOW_PAGES, Events::Files);
    lines.answer(
        "5.3.4: the effect of merging within a window",
        "remove duplicates, merge consecutive reads into larger ones",
        format!(
            "{recorded} recorded reads become {small} in windows of 1 MB, {large} in windows of 16 MB; the disk gets {} requests with \
             the former, the kernel's own included",
            window.device.requests
        ),
        (large as u64) < small as u64 && (small as u64) < recorded,
        "counted: the longer the window, the more there is to merge",
    );
}

/// Events only at starts, and the window that extends beyond the next event.
fn sizes(machine: &Scenario, boot: &Boot, outcome: &mut Outcome, lines: &mut Lines) -> Result<(), PaperError> {
    let windows: Vec<u64> = (0..8).map(|power| WINDOW_PAGES << power).collect();
    let run = |events| in_parallel(&windows, |pages| windowed(machine, boot, 1024, *pages, events));
    let (starts, files) = (run(Events::Starts), run(Events::Files));
    let all = listed(machine, boot, 1024, None)?.misses;
    let share = |counters: &Counters| 100.0 * (1.0 - counters.misses as f64 / all as f64);
    let reaches = windows.iter().zip(&starts).find(|(_, counters)| counters.misses == 0);
    lines.answer(
        "5.3.4: with events at program starts alone, is a window of 1 MB large enough?",
        "this assumes that the window size is large enough to extend beyond the next event",
        format!(
            "no: it saves {:.0} % of the misses; with an event at each first use of a file {:.0} %. All of them are saved from \
             {} MB on, the longest start here",
            share(&starts[0]),
            share(&files[0]),
            reaches.map_or(0, |(pages, _)| pages >> 8)
        ),
        share(&starts[0]) < 10.0 && share(&files[0]) > share(&starts[0]) && reaches.is_some(),
        "the proposed growth of the window to the next event is needed, or more events",
    );
    let megabytes = || windows.iter().map(|pages| (pages >> 8) as f64);
    outcome.figures.push(Figure {
        title: "Windows over what was recorded".into(),
        caption: "The boot over the size of the window, with events at starts and at first uses of files.".into(),
        plot: Plot::Lines {
            x: Axis::logarithmic("window, MB"),
            y: Axis::linear("boot, s"),
            series: vec![
                series("events: starts", megabytes().zip(starts.iter().map(seconds))),
                series("events: first uses of files", megabytes().zip(files.iter().map(seconds))),
            ],
        },
    });
    Ok(())
}
