//! Makes the program's own timeline from the threads' clocks: when each event would have come without waits for the disk.
//!
//! ```text
//!     thread 0   12 ms of its clock · starts thread 1 ······ waits for a page ······ 3 ms more · is woken by thread 1 (at 40 ms)
//!     warm time  12 ms                                                              15 ms       40 ms: the later of the two
//! ```
//!
//! A thread's warm time advances with its processor time. A thread that was woken continues no earlier than the thread that woke it. A
//! sleep that ended without another thread of the program (a timer, another program) stays as long as it was (the observer
//! has subtracted the time in which other threads of the program waited for I/O). Waits for I/O add nothing. That threads compete for processors is left out.
//!
//! A thread that sleeps again and again, until another one wakes or joins it, would sleep less often if nothing waited for the disk (the
//! periodic threads of a JVM). So sleeps after which it used nothing are forgotten when another thread wakes it, and a thread that waits for
//! one that has slept several times waits for its last sleep only.

use crate::check::{MAX_THREADS, MAX_WAKEUPS};
use crate::learn::observation::{Access, Observation, ThreadChange, ThreadSeen};
use crate::learn::run::Run;
use crate::{Thread, Timeline, TimelineSource, Wakeup, WarmUse};
use std::collections::HashMap;

/// The warm times of an observation's events, each list in the order of the observation's. All are `None` without a timeline.
#[derive(Debug)]
pub(crate) struct WarmTimes {
    pub(crate) timeline: Option<Box<Timeline>>,
    accesses: Vec<Option<WarmUse>>,
    lookups: Vec<Option<WarmUse>>,
    execs: Vec<Option<WarmUse>>,
}

/// Computes them. The observation is sorted.
pub(crate) fn warm_times(observed: &Observation, run: &Run) -> WarmTimes {
    let none = WarmTimes { timeline: None, accesses: Vec::new(), lookups: Vec::new(), execs: Vec::new() };
    let is_complete = !observed.threads.is_empty() && observed.counters.timeline == 0;
    // The first program's thread: the recorder started it.
    let Some(first) = observed.execs.first().filter(|_| is_complete) else { return none };
    let mut clocks = Clocks::new(first.tgid);
    let Some(mut times) = clocks.follow(observed, run.ended_ns) else { return none };
    if run.cold && run.read_ahead_off {
        times.timeline.iter_mut().for_each(|timeline| timeline.reading_ns = reading_ns(&observed.accesses));
    }
    times
}

/// The processor time of reading one page: the upper quartile of the processor times from an access that waited for its page to the thread's next
/// access. Besides the call, a wait costs what the processor forgets meanwhile; most of these intervals have little computing, and short ones have
/// none of that cost. Seven programs of bench/coldstart on two emulated disks, Linux 6.18: (timeline - fastest warm run) / pages is
/// 0.8 to 1.5 times this (`ahead show --timeline --json`: `warm_us`, `reading_ns`; warm runs by `ahead compare --json`).
fn reading_ns(accesses: &[Access]) -> u64 {
    let mut last: HashMap<u32, &Access> = HashMap::new();
    let mut all: Vec<u64> = Vec::new();
    for access in accesses.iter().filter(|access| access.pages.end - access.pages.start == 1) {
        let Some(before) = last.insert(access.tid, access) else { continue };
        let computed_ns = access.cpu_ns.saturating_sub(before.cpu_ns);
        if (access.time_ns - before.time_ns).saturating_sub(computed_ns) >= LEAST_WAIT_NS {
            all.push(computed_ns);
        }
    }
    if all.len() < LEAST_WAITS {
        return 0;
    }
    let quartile = all.len() * 3 / 4;
    *all.select_nth_unstable(quartile).1
}

/// An interval without the processor that is long enough for a read: flash answers after some 60 us, and a switch between threads takes 5.
const LEAST_WAIT_NS: u64 = 30_000;

/// Waits that make a quartile.
const LEAST_WAITS: usize = 100;

impl WarmTimes {
    pub(crate) fn of_access(&self, index: usize) -> Option<WarmUse> {
        *self.accesses.get(index)?
    }

    pub(crate) fn of_lookup(&self, index: usize) -> Option<u64> {
        self.lookups.get(index)?.map(|warm_use| warm_use.time_us)
    }

    pub(crate) fn of_exec(&self, index: usize) -> Option<u64> {
        self.execs.get(index)?.map(|warm_use| warm_use.time_us)
    }
}

/// A repeated wake-up of the same thread is kept if the waker has used pages meanwhile, or computed for this time. Nanoseconds: the
/// resolution of merged times in a profile.
const REPEATED_AFTER_NS: u64 = 1_000_000;

#[derive(Debug, Default)]
struct Clock {
    parent: Option<u32>,
    parent_cpu_ns: u64,
    cpu_ns: u64,
    warm_ns: u64,
    /// Warm time without the sleeps since its start, its last use, or the last time that another thread woke it.
    awake_ns: u64,
    /// The number of these sleeps, and the length of the last one.
    sleeps: u32,
    last_sleep_ns: u64,
    /// Grows with each use, by this thread or by one that it had to wait for.
    uses: u64,
}

impl Clock {
    fn keep_sleeps(&mut self) {
        (self.awake_ns, self.sleeps) = (self.warm_ns, 0);
    }
}

struct Clocks {
    threads: Vec<Clock>,
    /// The latest thread of each number: numbers are reused.
    by_number: HashMap<u32, u32>,
    wakeups: Vec<Wakeup>,
    /// Uses and processor time of the waker at the last kept wake-up from one thread to another.
    kept: HashMap<(u32, u32), (u64, u64)>,
}

impl Clocks {
    fn new(first: u32) -> Clocks {
        let by_number = HashMap::from([(first, 0)]);
        Clocks { threads: vec![Clock::default()], by_number, wakeups: Vec::new(), kept: HashMap::new() }
    }

    /// `None`: there are too many threads for a profile.
    fn follow(&mut self, observed: &Observation, ended_ns: u64) -> Option<WarmTimes> {
        let mut changes = observed.threads.iter().peekable();
        let (mut lookups, mut execs) = (Vec::new(), Vec::new());
        let mut accesses = Vec::with_capacity(observed.accesses.len());
        let (mut lookup_at, mut exec_at) = (0, 0);
        let mut catch_up = |clocks: &mut Self, time_ns: u64| {
            // In the order of time; accesses come last, as most of what happens at one time is before them.
            loop {
                let change_ns = changes.peek().map_or(u64::MAX, |change| change.time_ns);
                let lookup_ns = observed.lookups.get(lookup_at).map_or(u64::MAX, |lookup| lookup.time_ns);
                let exec_ns = observed.execs.get(exec_at).map_or(u64::MAX, |exec| exec.time_ns);
                let next_ns = change_ns.min(lookup_ns).min(exec_ns);
                if next_ns > time_ns || next_ns == u64::MAX {
                    return;
                }
                if next_ns == change_ns {
                    changes.next().into_iter().for_each(|change| clocks.change(change));
                } else if next_ns == exec_ns {
                    let exec = &observed.execs[exec_at];
                    execs.push(clocks.use_at(exec.tgid, exec.cpu_ns, false));
                    exec_at += 1;
                } else {
                    let lookup = &observed.lookups[lookup_at];
                    lookups.push(clocks.use_at(lookup.tid, lookup.cpu_ns, false));
                    lookup_at += 1;
                }
            }
        };
        for access in observed.accesses.iter().take_while(|access| access.time_ns <= ended_ns) {
            catch_up(self, access.time_ns);
            accesses.push(self.use_at(access.tid, access.cpu_ns, true));
        }
        catch_up(self, ended_ns);
        let timeline = self.timeline()?;
        Some(WarmTimes { timeline: Some(Box::new(timeline)), accesses, lookups, execs })
    }

    /// The thread advances to this processor time.
    fn advance(&mut self, thread: u32, cpu_ns: u64) -> &mut Clock {
        let clock = &mut self.threads[thread as usize];
        let computed_ns = cpu_ns.saturating_sub(clock.cpu_ns);
        clock.warm_ns += computed_ns;
        clock.awake_ns += computed_ns;
        clock.cpu_ns = clock.cpu_ns.max(cpu_ns);
        clock
    }

    fn change(&mut self, seen: &ThreadSeen) {
        let thread = self.by_number.get(&seen.tid).copied();
        match seen.change {
            ThreadChange::Started { by, by_cpu_ns } => {
                let parent = self.by_number.get(&by).copied();
                let (warm_ns, uses) = parent.map_or((0, 0), |parent| {
                    let parent = self.advance(parent, by_cpu_ns);
                    (parent.warm_ns, parent.uses)
                });
                self.by_number.insert(seen.tid, self.threads.len() as u32);
                let clock =
                    Clock { parent, parent_cpu_ns: by_cpu_ns, warm_ns, awake_ns: warm_ns, uses, ..Clock::default() };
                self.threads.push(clock);
            }
            ThreadChange::Ended => {
                thread.map(|thread| self.advance(thread, seen.cpu_ns));
            }
            ThreadChange::Woken { by, by_cpu_ns, slept_ns } => {
                let Some(thread) = thread else { return };
                let by = by.map(|by| self.by_number.get(&by).copied());
                let clock = self.advance(thread, seen.cpu_ns);
                match by {
                    None => {
                        clock.warm_ns += slept_ns;
                        clock.sleeps += 1;
                        clock.last_sleep_ns = slept_ns;
                    }
                    Some(Some(by)) => self.wake(by, by_cpu_ns, thread),
                    // A thread without a clock (an io_uring worker): how long it takes without I/O is unknown.
                    Some(None) => (),
                }
            }
        }
    }

    fn wake(&mut self, by: u32, by_cpu_ns: u64, woken: u32) {
        let &mut Clock { mut warm_ns, awake_ns, sleeps, last_sleep_ns, uses, cpu_ns, .. } = self.advance(by, by_cpu_ns);
        let clock = &mut self.threads[woken as usize];
        if sleeps > 1 {
            warm_ns = warm_ns.min(awake_ns.max(clock.warm_ns) + last_sleep_ns);
        }
        clock.warm_ns = clock.awake_ns.max(warm_ns);
        clock.keep_sleeps();
        let woken_cpu_us = clock.cpu_ns / 1000;
        let last = self.kept.get(&(by, woken));
        let is_new =
            |(last_uses, last_cpu_ns): &(u64, u64)| uses > *last_uses || cpu_ns >= last_cpu_ns + REPEATED_AFTER_NS;
        if last.is_none_or(is_new) && self.wakeups.len() < MAX_WAKEUPS {
            clock.uses += 1;
            self.kept.insert((by, woken), (uses, cpu_ns));
            self.wakeups.push(Wakeup { by, by_cpu_us: by_cpu_ns / 1000, woken, woken_cpu_us });
        }
    }

    /// The place of an event of a thread on the timeline; `None`: the thread has no clock. `counts`: it is a use of pages.
    fn use_at(&mut self, tid: u32, cpu_ns: u64, counts: bool) -> Option<WarmUse> {
        let thread = self.by_number.get(&tid).copied()?;
        let clock = self.advance(thread, cpu_ns);
        if counts {
            clock.uses += 1;
            clock.keep_sleeps();
        }
        Some(WarmUse { time_us: clock.warm_ns / 1000, thread, cpu_us: clock.cpu_ns / 1000 })
    }

    fn timeline(&self) -> Option<Timeline> {
        if self.threads.len() > MAX_THREADS {
            return None;
        }
        let threads = self.threads.iter().map(|clock| Thread {
            parent: clock.parent,
            parent_cpu_us: clock.parent_cpu_ns / 1000,
            cpu_us: clock.cpu_ns / 1000,
        });
        let (source, warm_ns) = (TimelineSource::ProcessorClocks, self.threads[0].warm_ns);
        let (threads, wakeups) = (threads.collect(), self.wakeups.clone());
        Some(Timeline { source, warm_us: warm_ns / 1000, reading_ns: 0, threads, wakeups })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::observation::{AccessKind, ExecSeen};
    use std::time::{Duration, SystemTime};

    const MS: u64 = 1_000_000;

    fn run() -> Run {
        Run {
            command: Vec::new(),
            directory: Vec::new(),
            started_ns: 1000 * MS,
            ended_ns: 9000 * MS,
            ready_ns: None,
            started: SystemTime::UNIX_EPOCH,
            cpu: Duration::ZERO,
            cold: true,
            precise: true,
            read_ahead_off: true,
            mapped_folio_pages: 512,
            single_faults: true,
        }
    }

    /// At this time after the start, the thread with this processor time (ms).
    fn change(ms: u64, tid: u32, cpu: u64, change: ThreadChange) -> ThreadSeen {
        ThreadSeen { time_ns: (1000 + ms) * MS, tid, cpu_ns: cpu * MS, change }
    }

    fn access(ms: u64, tid: u32, cpu: u64) -> Access {
        let pages = ms..ms + 1;
        Access { time_ns: (1000 + ms) * MS, tgid: 7, tid, file: 1, pages, kind: AccessKind::Read, cpu_ns: cpu * MS }
    }

    /// Thread 7 reads (waits 100 ms for the disk), starts thread 8, which reads for 200 ms, computes 30 ms and wakes 7; then 7 sleeps
    /// 50 ms by a timer, and ends.
    fn observation() -> Observation {
        let exec = ExecSeen {
            time_ns: 1001 * MS,
            tgid: 7,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 0,
            name: Vec::new(),
            cpu_ns: MS,
        };
        let woken = |by: Option<u32>, slept| ThreadChange::Woken { by, by_cpu_ns: 31 * MS, slept_ns: slept * MS };
        let mut observation = Observation {
            execs: vec![exec],
            accesses: vec![access(2, 7, 2), access(111, 8, 1), access(420, 7, 7)],
            threads: vec![
                change(110, 8, 0, ThreadChange::Started { by: 7, by_cpu_ns: 5 * MS }),
                change(350, 7, 6, woken(Some(8), 200)),
                change(400, 7, 6, woken(None, 50)),
                change(430, 8, 32, ThreadChange::Ended),
                change(440, 7, 10, ThreadChange::Ended),
            ],
            ..Observation::default()
        };
        observation.sort();
        observation
    }

    #[test]
    fn waits_for_the_disk_are_left_out_and_sleeps_and_other_threads_are_not() {
        let times = warm_times(&observation(), &run());
        let of = |index| times.of_access(index).map(|warm_use| (warm_use.time_us, warm_use.thread, warm_use.cpu_us));
        assert_eq!((of(0), of(1)), (Some((2000, 0, 2000)), Some((6000, 1, 1000))));
        // Thread 8 wakes it after 5 + 31 ms; it sleeps 50 ms and computes 1 ms.
        assert_eq!(of(2), Some((87_000, 0, 7000)));
        let timeline = times.timeline.unwrap();
        assert_eq!((timeline.warm_us, timeline.threads.len()), (90_000, 2));
        assert_eq!(timeline.threads[1], Thread { parent: Some(0), parent_cpu_us: 5000, cpu_us: 32_000 });
        assert_eq!(timeline.wakeups, [Wakeup { by: 1, by_cpu_us: 31_000, woken: 0, woken_cpu_us: 6000 }]);
        assert_eq!(times.execs, [Some(WarmUse { time_us: 1000, thread: 0, cpu_us: 1000 })]);
    }

    #[test]
    fn lost_changes_and_an_observer_without_clocks_leave_no_timeline() {
        let mut lossy = observation();
        lossy.counters.timeline = 1;
        let without = Observation { threads: Vec::new(), ..observation() };
        for observation in [lossy, without] {
            let times = warm_times(&observation, &run());
            assert!(times.timeline.is_none() && times.of_access(0).is_none());
        }
    }

    /// Regression: a thread that looks around every 250 ms, and that the program joins at its end, made the timeline of a JVM five times
    /// too long.
    #[test]
    fn periodic_sleeps_are_not_the_programs_time() {
        let by_timer = ThreadChange::Woken { by: None, by_cpu_ns: 0, slept_ns: 250 * MS };
        let by = |tid, cpu| ThreadChange::Woken { by: Some(tid), by_cpu_ns: cpu * MS, slept_ns: 100 * MS };
        let threads = |last: [ThreadSeen; 2]| {
            let mut threads = vec![change(10, 8, 0, ThreadChange::Started { by: 7, by_cpu_ns: 5 * MS })];
            threads.extend((1..=20).map(|round| change(10 + 250 * round, 8, round, by_timer)));
            threads.extend(last);
            threads.push(change(5300, 7, 50, ThreadChange::Ended));
            threads
        };
        let warm_us = |last| {
            let mut observation = Observation { threads: threads(last), ..observation() };
            observation.sort();
            warm_times(&observation, &run()).timeline.unwrap().warm_us
        };
        // The first thread wakes it at 40 ms and then waits for it: 1 ms.
        assert_eq!(warm_us([change(5100, 8, 20, by(7, 40)), change(5110, 7, 41, by(8, 21))]), 50_000);
        // It ends after its next sleep.
        assert_eq!(warm_us([change(5200, 8, 21, by_timer), change(5210, 7, 41, by(8, 22))]), 300_000);
    }

    #[test]
    fn wakeups_without_new_uses_are_kept_once() {
        let mut observation = observation();
        let woken = |at| {
            let (by, by_cpu_ns, slept_ns) = (Some(8), 31 * MS + at, 1);
            ThreadSeen { time_ns: 1351 * MS + at, ..change(0, 7, 6, ThreadChange::Woken { by, by_cpu_ns, slept_ns }) }
        };
        observation.threads.extend((0..1000).map(woken));
        observation.sort();
        assert_eq!(warm_times(&observation, &run()).timeline.unwrap().wakeups.len(), 1);
    }

    /// Every tenth access computes for 5 ms; the others compute for 40 us and wait 1 ms, but each third one finds its page cached.
    #[test]
    fn time_of_reading_is_that_after_waits() {
        let (mut time_ns, mut cpu_ns) = (1000 * MS, 0);
        let mut observation = observation();
        observation.accesses = Vec::new();
        for page in 0..600 {
            let computed_ns = if page % 10 == 0 {
                5 * MS
            } else if page % 3 == 0 {
                2000
            } else {
                40_000
            };
            cpu_ns += computed_ns;
            time_ns += computed_ns + if page % 3 == 0 { 0 } else { MS };
            observation.accesses.push(Access { time_ns, cpu_ns, pages: page..page + 1, ..access(0, 7, 0) });
        }
        let measured = |run: &Run| warm_times(&observation, run).timeline.unwrap().reading_ns;
        assert_eq!(measured(&run()), 40_000);
        assert_eq!(measured(&Run { read_ahead_off: false, ..run() }), 0);
        assert_eq!(reading_ns(&observation.accesses[..99]), 0);
    }

    /// A process number that is used again is another thread.
    #[test]
    fn reused_numbers_are_other_threads() {
        let mut observation = observation();
        observation.threads.push(change(431, 8, 0, ThreadChange::Started { by: 7, by_cpu_ns: 8 * MS }));
        observation.accesses.push(access(432, 8, 1));
        observation.sort();
        let times = warm_times(&observation, &run());
        assert_eq!(times.of_access(3).map(|warm_use| (warm_use.thread, warm_use.cpu_us)), Some((2, 1000)));
    }
}
