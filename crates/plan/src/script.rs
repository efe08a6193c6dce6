//! The program's timeline as flat lists of events, for the simulator.
//!
//! ```text
//!     thread 0   use 3 · use 4 · start thread 1 · use 9 · wait for signal 0 · use 2 · end
//!     thread 1                                  · use 5 · use 6 · signal 0 · end
//! ```
//!
//! The time of an event is the processor time of the event's thread.

use crate::candidates::NEAR_BYTES;
use crate::event::{Event, Script, What};
use crate::{LookUp, Piece};
use ahead_model::PAGE_BYTES;
use ahead_profile::{Timeline, TimelineSource};

/// What is known of the program that waits for the prefetch.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Its own timeline; `None`: unknown.
    pub timeline: Option<&'a Timeline>,
    /// Its processor time without that of reading, microseconds; `None`: unknown. Used where there is no timeline.
    pub compute_us: Option<f64>,
    /// The processor time of reading one page that the clocks of the timeline include, microseconds: the recording read page by page.
    pub reading_us: f64,
    /// The processors that its threads share.
    pub processors: u32,
}

impl Program<'_> {
    /// Nothing is known of it.
    pub const UNKNOWN: Program<'static> = Program { timeline: None, compute_us: None, reading_us: 0.0, processors: 1 };
}

/// Without a timeline: this share of the uses comes within [`EARLY_COMPUTING`] of the computing. The median of six measured programs.
const EARLY_USES: f64 = 0.75;

/// See [`EARLY_USES`].
const EARLY_COMPUTING: f64 = 0.2;

/// If fewer uses have a place on the timeline than this share, there is no timeline.
const ENOUGH: f64 = 0.5;

impl Script {
    /// The events of a program that uses these pieces (those that are not late) and lookups. Pieces have the numbers 0.., lookups the
    /// numbers after them. Pieces are in any order.
    pub fn new(program: &Program<'_>, pieces: &[Piece], lookups: &[LookUp]) -> Script {
        let timeline = program.timeline.filter(|timeline| is_usable(timeline, pieces, lookups));
        let mut script = match timeline {
            Some(timeline) => recorded(program, timeline, pieces, lookups),
            None => assumed(program, pieces, lookups),
        };
        leave_out_neighbours(&mut script, pieces);
        script
    }
}

fn is_usable(timeline: &Timeline, pieces: &[Piece], lookups: &[LookUp]) -> bool {
    let usual = pieces.iter().filter(|piece| !piece.late);
    let placed = usual.clone().filter(|piece| piece.warm_use.is_some()).count()
        + lookups.iter().filter(|lookup| lookup.warm_use_us.is_some()).count();
    let all = usual.count() + lookups.len();
    !timeline.threads.is_empty() && placed as f64 >= ENOUGH * all as f64
}

/// One thread. Most programs need most of their pages early.
fn assumed(program: &Program<'_>, pieces: &[Piece], lookups: &[LookUp]) -> Script {
    let compute_us = program.compute_us.unwrap_or(0.0);
    let usual = pieces.iter().enumerate().filter(|(_, piece)| !piece.late);
    let mut uses: Vec<(u64, u32)> = usual.map(|(id, piece)| (piece.first_use_us, id as u32)).collect();
    uses.extend(lookups.iter().enumerate().map(|(id, l)| (l.first_use_us, (pieces.len() + id) as u32)));
    uses.sort_unstable();
    let count = uses.len() as f64;
    let at_us = |index: usize| {
        let share = index as f64 / count;
        let done = if share < EARLY_USES {
            share / EARLY_USES * EARLY_COMPUTING
        } else {
            EARLY_COMPUTING + (share - EARLY_USES) / (1.0 - EARLY_USES) * (1.0 - EARLY_COMPUTING)
        };
        done * compute_us
    };
    let event = |at_us, what| Event { at_us, what };
    let mut events: Vec<Event> =
        uses.iter().enumerate().map(|(index, (_, id))| event(at_us(index), What::Use(*id))).collect();
    events.push(event(compute_us, What::End));
    Script::of_threads(vec![events], vec![0], 0, false)
}

fn recorded(program: &Program<'_>, timeline: &Timeline, pieces: &[Piece], lookups: &[LookUp]) -> Script {
    let mut threads: Vec<Vec<Event>> = timeline.threads.iter().map(|_| Vec::new()).collect();
    let mut roots = vec![0];
    let mut add = |thread: u32, at_us: u64, what| {
        if let Some(events) = threads.get_mut(thread as usize) {
            events.push(Event { at_us: at_us as f64, what });
        }
    };
    // The recorded time of each use, by number.
    let mut times_us: Vec<f64> = vec![0.0; pieces.len() + lookups.len()];
    let mut by_time: Vec<(u64, u32, u64)> = Vec::new();
    for (id, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.late) {
        if let Some(warm) = piece.warm_use {
            add(warm.thread, warm.cpu_us, What::Use(id as u32));
            times_us[id] = warm.time_us as f64;
            by_time.push((warm.time_us, warm.thread, warm.cpu_us));
        }
    }
    by_time.sort_unstable();
    for (id, lookup) in lookups.iter().enumerate() {
        let Some(warm_us) = lookup.warm_use_us else { continue };
        // The thread of a lookup is not recorded: that of the use of a page before it.
        let before = by_time.partition_point(|(time_us, _, _)| *time_us <= warm_us);
        let (time_us, thread, cpu_us) = before.checked_sub(1).map_or((0, 0, 0), |index| by_time[index]);
        add(thread, cpu_us.saturating_add(warm_us - time_us), What::Use((pieces.len() + id) as u32));
        times_us[pieces.len() + id] = warm_us as f64;
    }
    for (signal, wakeup) in timeline.wakeups.iter().enumerate() {
        add(wakeup.by, wakeup.by_cpu_us, What::Signal(signal as u32));
        add(wakeup.woken, wakeup.woken_cpu_us, What::Await(signal as u32));
    }
    for (thread, of) in timeline.threads.iter().enumerate() {
        match of.parent.filter(|parent| (*parent as usize) < thread) {
            Some(parent) => add(parent, of.parent_cpu_us, What::Start(thread as u32)),
            None if thread > 0 => roots.push(thread as u32),
            None => {}
        }
    }
    for (thread, of) in timeline.threads.iter().enumerate() {
        let last_us = threads[thread].iter().map(|event| event.at_us).fold(of.cpu_us as f64, f64::max);
        threads[thread].push(Event { at_us: last_us, what: What::End });
    }
    let mut script = Script::of_threads(threads, roots, timeline.wakeups.len(), true);
    let processors = match timeline.source {
        // Times from clocks are those of threads that do not compete for processors.
        TimelineSource::ProcessorClocks => f64::INFINITY,
        TimelineSource::WarmRun => f64::from(program.processors.max(1)),
    };
    crate::simulator::insert_sleeps(&mut script, &times_us, processors);
    if timeline.source == TimelineSource::ProcessorClocks {
        without_reading(&mut script, pieces, program.reading_us);
    }
    script
}

/// A use of a page near one (in the same part of [`NEAR_BYTES`] of the file) that the same thread used within this time before is left out, microseconds: less than an access of the slowest
/// disks, so that both pages are in one request of every sensible plan.
const SOON_US: f64 = 2000.0;

/// Leaves out uses that cannot change the result much, so that a run takes less time.
fn leave_out_neighbours(script: &mut Script, pieces: &[Piece]) {
    let mut blocks: Vec<u32> = Vec::with_capacity(pieces.len());
    for (index, piece) in pieces.iter().enumerate() {
        let is_same = index.checked_sub(1).is_some_and(|before| {
            let before = &pieces[before];
            before.source == piece.source && before.range.start / NEAR_BYTES == piece.range.start / NEAR_BYTES
        });
        let last = blocks.last().copied().unwrap_or(0);
        blocks.push(if is_same { last } else { index as u32 });
    }
    // The thread that used a block last, and when.
    let mut last_use: Vec<(u32, f64)> = vec![(u32::MAX, 0.0); pieces.len()];
    let mut kept = Vec::with_capacity(script.events.len());
    for thread in 0..script.first.len() - 1 {
        let of = script.of(thread);
        script.first[thread] = kept.len() as u32;
        for event in &script.events[of] {
            if let What::Use(id) = event.what
                && let Some(block) = blocks.get(id as usize)
            {
                let (user, at_us) = last_use[*block as usize];
                if user == thread as u32 && event.at_us - at_us < SOON_US {
                    continue;
                }
                last_use[*block as usize] = (thread as u32, event.at_us);
            }
            kept.push(*event);
        }
    }
    *script.first.last_mut().expect("the number of events") = kept.len() as u32;
    script.events = kept;
}

/// Subtracts the processor time of reading the pages from the clocks of the threads that read them.
fn without_reading(script: &mut Script, pieces: &[Piece], reading_us: f64) {
    for thread in 0..script.first.len() - 1 {
        let (mut was_us, mut now_us, mut owed_us) = (0.0, 0.0, 0.0);
        for index in script.of(thread) {
            let event = &mut script.events[index];
            let own_us = event.at_us - was_us;
            was_us = event.at_us;
            let taken_us = own_us.min(owed_us);
            owed_us -= taken_us;
            now_us += own_us - taken_us;
            event.at_us = now_us;
            if let What::Use(id) = event.what
                && let Some(piece) = pieces.get(id as usize)
            {
                owed_us += reading_us * piece.bytes().div_ceil(PAGE_BYTES) as f64;
            }
        }
    }
}
