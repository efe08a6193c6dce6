//! What has to happen before a use of a page, in every order in which the program's threads may run.
//!
//! ```text
//!     thread 0   a ─── b ─┬─── c ───────────┬─ f ─── end      f: after a, b, c (its own thread), d and e (thread 1 wakes it)
//!     thread 1            └─ d ───── e ─────┘                 d: after a, b (thread 0 starts it), and not after c
//! ```
//!
//! The order is that of a recorded timeline: the threads' own order, what they start, and what they wake. Where two events have the same
//! processor time, the one that makes fewer uses precede others counts as first: a set of predecessors may be too small, never too large.
//!
//! A timeline and its uses come in; for each thread, in its order, the uses that precede go out. Hostile timelines may contradict
//! themselves: then the order is unknown.

use ahead_profile::{Timeline, WarmUse};

/// Why the order of the uses is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownOrder {
    /// A thread waits for something that comes after it.
    Contradictory,
    /// More threads and wake-ups than are examined.
    TooLarge,
}

/// Receives what precedes the uses of a thread.
pub trait Visitor {
    /// A thread begins: nothing precedes its first use yet.
    fn begin_thread(&mut self);
    /// This use (an index) precedes all further uses of the thread, or is the one that is visited next. Each comes once in a thread.
    fn add(&mut self, index: usize);
    /// The thread is at this use, which was the last one added. `remaining_us`: the processor time that the thread needs afterwards for
    /// what the program's end has to wait for; `None`: the program's end does not wait for the thread.
    fn at_use(&mut self, index: usize, remaining_us: Option<u64>);
}

/// Threads whose order is examined: Chromium starts 300.
const MAX_THREADS: usize = 1024;

/// Limits the memory for the counts that wake-ups carry: 4 bytes for each thread and wake-up, 256 MiB.
const MAX_COUNTS: usize = 64 << 20;

/// An event on a thread's own clock. The order of the variants is the order at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// It starts or wakes another thread: the edge with this index begins.
    Out(usize),
    /// It uses pages: the use with this index.
    Use(usize),
    /// It was woken: the edge with this index ends.
    In(usize),
}

/// One thread waits for another one.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    from_cpu_us: u64,
    to: usize,
    to_cpu_us: u64,
}

/// The uses of each thread that precede a point of time: how many of the first ones.
type Counts = Vec<u32>;

/// Visits every use of every thread.
///
/// # Errors
/// The order is unknown: nothing was visited, or not all.
pub fn visit(timeline: &Timeline, uses: &[WarmUse], visitor: &mut impl Visitor) -> Result<(), UnknownOrder> {
    let threads = timeline.threads.len();
    let edges = edges_of(timeline);
    if threads > MAX_THREADS || threads * edges.len() > MAX_COUNTS {
        return Err(UnknownOrder::TooLarge);
    }
    let events = events_of(threads, uses, &edges);
    let carried = carry(&events, &edges)?;
    let needed_us = needed_until(timeline, &edges);
    let by_thread: Vec<Vec<usize>> = events.iter().map(|events| events.iter().filter_map(use_of).collect()).collect();
    for (thread, events) in events.iter().enumerate() {
        if by_thread[thread].is_empty() {
            continue;
        }
        visitor.begin_thread();
        let mut known = vec![0u32; threads];
        for (_, event) in events {
            match *event {
                Event::Out(_) => (),
                Event::In(edge) => {
                    for (other, count) in carried[edge].iter().enumerate().filter(|(other, _)| *other != thread) {
                        let from = known[other] as usize;
                        known[other] = known[other].max(*count);
                        by_thread[other][from..known[other] as usize].iter().for_each(|index| visitor.add(*index));
                    }
                }
                Event::Use(index) => {
                    visitor.add(index);
                    let remaining_us = needed_us[thread].and_then(|until| until.checked_sub(uses[index].cpu_us));
                    visitor.at_use(index, remaining_us);
                }
            }
        }
    }
    Ok(())
}

fn use_of((_, event): &(u64, Event)) -> Option<usize> {
    match event {
        Event::Use(index) => Some(*index),
        _ => None,
    }
}

fn edges_of(timeline: &Timeline) -> Vec<Edge> {
    let started = timeline.threads.iter().enumerate().filter_map(|(to, thread)| {
        let from = thread.parent? as usize;
        Some(Edge { from, from_cpu_us: thread.parent_cpu_us, to, to_cpu_us: 0 })
    });
    let woken = timeline.wakeups.iter().map(|wakeup| Edge {
        from: wakeup.by as usize,
        from_cpu_us: wakeup.by_cpu_us,
        to: wakeup.woken as usize,
        to_cpu_us: wakeup.woken_cpu_us,
    });
    started.chain(woken).filter(|edge| edge.from != edge.to).collect()
}

/// The events of each thread, in its order.
fn events_of(threads: usize, uses: &[WarmUse], edges: &[Edge]) -> Vec<Vec<(u64, Event)>> {
    let mut events: Vec<Vec<(u64, Event)>> = vec![Vec::new(); threads];
    for (index, at) in uses.iter().enumerate() {
        events[at.thread as usize].push((at.cpu_us, Event::Use(index)));
    }
    for (index, edge) in edges.iter().enumerate() {
        events[edge.from].push((edge.from_cpu_us, Event::Out(index)));
        events[edge.to].push((edge.to_cpu_us, Event::In(index)));
    }
    events.iter_mut().for_each(|events| events.sort_unstable());
    events
}

/// What each edge carries: the uses that precede its beginning.
fn carry(events: &[Vec<(u64, Event)>], edges: &[Edge]) -> Result<Vec<Counts>, UnknownOrder> {
    let threads = events.len();
    let mut known: Vec<Counts> = vec![vec![0; threads]; threads];
    let mut carried: Vec<Option<Counts>> = vec![None; edges.len()];
    let mut next = vec![0; threads];
    let mut runnable: Vec<usize> = (0..threads).collect();
    // Threads that stand at the end of an edge that has not begun.
    let mut waits_for: Vec<Option<usize>> = vec![None; edges.len()];
    while let Some(thread) = runnable.pop() {
        while let Some((_, event)) = events[thread].get(next[thread]) {
            match *event {
                Event::Use(_) => known[thread][thread] += 1,
                Event::Out(edge) => {
                    carried[edge] = Some(known[thread].clone());
                    runnable.extend(waits_for[edge].take());
                }
                Event::In(edge) => match &carried[edge] {
                    Some(counts) => known[thread].iter_mut().zip(counts).for_each(|(own, new)| *own = (*own).max(*new)),
                    None => {
                        waits_for[edge] = Some(thread);
                        break;
                    }
                },
            }
            next[thread] += 1;
        }
    }
    carried.into_iter().collect::<Option<Vec<Counts>>>().ok_or(UnknownOrder::Contradictory)
}

/// Until which processor time of each thread the program's end has to wait for it. The end is that of the first thread.
fn needed_until(timeline: &Timeline, edges: &[Edge]) -> Vec<Option<u64>> {
    let mut needed_us: Vec<Option<u64>> = vec![None; timeline.threads.len()];
    let Some(first) = timeline.threads.first() else { return needed_us };
    needed_us[0] = Some(first.cpu_us);
    // Late edges first: most of what is needed is found in one pass. Each pass but the last adds to a thread, so it ends.
    let mut latest_first: Vec<&Edge> = edges.iter().collect();
    latest_first.reverse();
    for _ in 0..timeline.threads.len() {
        let mut has_changed = false;
        for edge in &latest_first {
            let is_needed = needed_us[edge.to].is_some_and(|until| until >= edge.to_cpu_us);
            if is_needed && needed_us[edge.from].is_none_or(|until| until < edge.from_cpu_us) {
                needed_us[edge.from] = Some(edge.from_cpu_us);
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    needed_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::{Thread, Wakeup};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The uses that precede each use, and what remains after it.
    #[derive(Default)]
    struct Seen {
        now: BTreeSet<usize>,
        before: Vec<(usize, BTreeSet<usize>, Option<u64>)>,
    }

    impl Visitor for Seen {
        fn begin_thread(&mut self) {
            self.now.clear();
        }
        fn add(&mut self, index: usize) {
            assert!(self.now.insert(index), "{index} comes twice");
        }
        fn at_use(&mut self, index: usize, remaining_us: Option<u64>) {
            let others = self.now.iter().copied().filter(|other| *other != index).collect();
            self.before.push((index, others, remaining_us));
        }
    }

    fn at(thread: u32, cpu_us: u64) -> WarmUse {
        WarmUse { time_us: 0, thread, cpu_us }
    }

    fn thread(parent: Option<(u32, u64)>, cpu_us: u64) -> Thread {
        let (parent, parent_cpu_us) = parent.map_or((None, 0), |(parent, cpu_us)| (Some(parent), cpu_us));
        Thread { parent, parent_cpu_us, cpu_us }
    }

    fn wakeup(by: u32, by_cpu_us: u64, woken: u32, woken_cpu_us: u64) -> Wakeup {
        Wakeup { by, by_cpu_us, woken, woken_cpu_us }
    }

    fn timeline(threads: Vec<Thread>, wakeups: Vec<Wakeup>) -> Timeline {
        Timeline { threads, wakeups, ..Timeline::default() }
    }

    fn seen(timeline: &Timeline, uses: &[WarmUse]) -> Vec<(usize, Vec<usize>, Option<u64>)> {
        let mut seen = Seen::default();
        visit(timeline, uses, &mut seen).unwrap();
        let mut before: Vec<_> =
            seen.before.into_iter().map(|(index, set, us)| (index, set.into_iter().collect(), us)).collect();
        before.sort();
        before
    }

    /// The picture at the top: a b c f in thread 0, d e in thread 1.
    #[test]
    fn starts_and_wakeups_make_uses_precede_others() {
        let timeline = timeline(vec![thread(None, 100), thread(Some((0, 30)), 50)], vec![wakeup(1, 40, 0, 60)]);
        let uses = [at(0, 10), at(0, 20), at(0, 50), at(1, 5), at(1, 30), at(0, 70)];
        let expected = [
            (0, vec![], Some(90)),
            (1, vec![0], Some(80)),
            (2, vec![0, 1], Some(50)),
            (3, vec![0, 1], Some(35)),
            (4, vec![0, 1, 3], Some(10)),
            (5, vec![0, 1, 2, 3, 4], Some(30)),
        ];
        assert_eq!(seen(&timeline, &uses), expected);
    }

    #[test]
    fn the_end_does_not_wait_for_a_thread_that_wakes_no_other() {
        let timeline = timeline(vec![thread(None, 100), thread(Some((0, 30)), 5000)], Vec::new());
        assert_eq!(seen(&timeline, &[at(1, 10)]), [(0, vec![], None)]);
    }

    #[test]
    fn events_at_the_same_time_make_fewer_uses_precede() {
        let timeline = timeline(vec![thread(None, 9), thread(Some((0, 5)), 9)], vec![wakeup(1, 3, 0, 7)]);
        // The start at 5 is before the use at 5; the wake-up at 3 is before the use at 3; woken at 7, after the use at 7.
        let uses = [at(0, 5), at(1, 3), at(0, 7), at(0, 8)];
        let before: Vec<Vec<usize>> = seen(&timeline, &uses).into_iter().map(|(_, before, _)| before).collect();
        assert_eq!(before, [vec![], vec![], vec![0], vec![0, 2]]);
    }

    #[test]
    fn threads_that_wait_for_each_other_contradict_themselves() {
        let timeline = timeline(vec![thread(None, 9), thread(None, 9)], vec![wakeup(0, 5, 1, 3), wakeup(1, 5, 0, 3)]);
        assert_eq!(visit(&timeline, &[at(0, 1)], &mut Seen::default()), Err(UnknownOrder::Contradictory));
    }

    #[test]
    fn too_many_threads_are_refused() {
        let threads = (0..5000).map(|_| thread(None, 1)).collect();
        assert_eq!(visit(&timeline(threads, Vec::new()), &[], &mut Seen::default()), Err(UnknownOrder::TooLarge));
    }

    proptest! {
        /// Any timeline is visited or refused; a use precedes later ones of its thread, and nothing precedes itself.
        #[test]
        fn any_timeline_is_visited_or_refused(
            ends in prop::collection::vec((prop::option::of(0..4u32), 0..50u64, 0..50u64), 1..5),
            edges in prop::collection::vec((0..4u32, 0..50u64, 0..4u32, 0..50u64), 0..8),
            at in prop::collection::vec((0..4u32, 0..50u64), 0..12),
        ) {
            let count = ends.len() as u32;
            let threads = ends.into_iter().enumerate().map(|(index, (parent, parent_cpu, cpu))| {
                thread(parent.filter(|parent| (*parent as usize) < index).map(|parent| (parent, parent_cpu)), cpu)
            });
            let wakeups = edges.into_iter().map(|(by, by_cpu, to, to_cpu)| wakeup(by % count, by_cpu, to % count, to_cpu));
            let timeline = timeline(threads.collect(), wakeups.collect());
            let uses: Vec<WarmUse> = at.into_iter().map(|(thread, cpu_us)| super::tests::at(thread % count, cpu_us)).collect();
            let mut seen = Seen::default();
            if visit(&timeline, &uses, &mut seen).is_ok() {
                prop_assert_eq!(seen.before.len(), uses.len());
                for (index, before, _) in &seen.before {
                    let own = uses[*index];
                    let is_earlier = |other: &WarmUse| other.thread == own.thread && other.cpu_us < own.cpu_us;
                    let earlier = (0..uses.len()).filter(|other| is_earlier(&uses[*other]));
                    prop_assert!(earlier.into_iter().all(|other| before.contains(&other)));
                }
                // If one use precedes another, the other does not precede it.
                for (one, before, _) in &seen.before {
                    for (other, of_other, _) in &seen.before {
                        prop_assert!(!(before.contains(other) && of_other.contains(one)));
                    }
                }
            }
        }
    }
}
