//! Answers that wait for their time.
//!
//! ```text
//!     reader threads ──push──▶ [ due 17 | due 23 | due 24 | … ]  earliest first
//!                                   │
//!     answer thread:  sleeps until 17 (or until something earlier is pushed) ──▶ sends all that is due
//! ```
//!
//! Waking up takes time: on a virtual machine whose processor has gone idle, tens of microseconds. So the thread sleeps
//! until a little earlier than due, by what waking took lately, and spins for the rest. Without timer slack and with
//! real-time priority, where that is permitted, that rest is short. And while reads come, idle processors are kept from
//! sleeping: what lies before and behind us has to wake up, too.

use super::engine::{Engine, Verdict};
use crate::{Error, Result};
use ahead_sys::daemon::{Awake, Softirqs, now_ns, set_exact_timers, set_fifo, set_nice};
use fuser::{Errno, ReplyData};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Buffers kept for reuse. As many as a queue is deep by default; more are allocated and freed.
const SPARE_BUFFERS: usize = 128;

/// How long after the last read processors may sleep again: programs pause between reads for less.
const AWAKE_TIME: Duration = Duration::from_millis(500);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// When and how.
    pub verdict: Verdict,
    /// When its data was there.
    pub ready_ns: u64,
    /// How long reading the image took, nanoseconds.
    pub image_ns: u64,
    /// The data, or the error to give.
    pub result: std::result::Result<Vec<u8>, Errno>,
    /// Whom to answer.
    pub reply: ReplyData,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    /// The earliest is the greatest: [`BinaryHeap`] gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.verdict.due_ns.cmp(&self.verdict.due_ns)
    }
}

/// What it takes this thread to wake up: a slowly sinking maximum, so that most sleeps end before they are due.
#[derive(Clone, Copy, Debug, Default)]
struct Waking {
    takes_ns: u64,
}

/// More than this is no waking up but a stolen or busy processor, which spinning cannot cure. Nanoseconds.
const WAKING_MAX_NS: u64 = 150_000;

impl Waking {
    fn took(&mut self, late_ns: u64) {
        let late_ns = late_ns.min(WAKING_MAX_NS);
        if late_ns > self.takes_ns {
            self.takes_ns += (late_ns - self.takes_ns) / 4;
        } else {
            self.takes_ns -= (self.takes_ns - late_ns) / 32;
        }
    }
}

/// The answers that wait.
#[derive(Debug)]
pub struct Answers {
    waiting: Mutex<BinaryHeap<Answer>>,
    earlier: Condvar,
    /// The earliest that was pushed in front of the one which the thread spins for.
    pushed: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
    softirqs: Softirqs,
    engine: Arc<Engine>,
}

impl Answers {
    /// None yet; starts the thread that sends them.
    pub fn start(engine: Arc<Engine>) -> Result<Arc<Answers>> {
        let answers = Arc::new(Answers {
            waiting: Mutex::default(),
            earlier: Condvar::new(),
            pushed: AtomicU64::new(u64::MAX),
            spare: Mutex::default(),
            softirqs: Softirqs::new()?,
            engine,
        });
        let own = answers.clone();
        std::thread::Builder::new()
            .name("answer".into())
            .spawn(move || own.run())
            .map_err(|e| Error::io("start a thread", e))?;
        Ok(answers)
    }

    /// A buffer of this length, its content arbitrary.
    pub fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = lock(&self.spare).pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    /// Sends an answer when it is due, at once if that is now.
    pub fn send_when_due(&self, answer: Answer) {
        if answer.verdict.due_ns <= now_ns() {
            return self.send(answer);
        }
        let due_ns = answer.verdict.due_ns;
        let mut waiting = lock(&self.waiting);
        let is_earliest = waiting.peek().is_none_or(|first| due_ns < first.verdict.due_ns);
        waiting.push(answer);
        drop(waiting);
        if is_earliest {
            self.pushed.fetch_min(due_ns, Relaxed);
            self.earlier.notify_one();
        }
    }

    fn run(&self) {
        prefer_answers();
        let mut waking = Waking::default();
        let mut awake: Option<Awake> = None;
        let mut waiting = lock(&self.waiting);
        loop {
            let now = now_ns();
            match waiting.peek().map(|answer| answer.verdict.due_ns) {
                None if awake.is_some() => {
                    let (again, woken) =
                        self.earlier.wait_timeout(waiting, AWAKE_TIME).unwrap_or_else(PoisonError::into_inner);
                    waiting = again;
                    if woken.timed_out() {
                        awake = None;
                    }
                }
                None => {
                    waiting = self.earlier.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                    awake = Awake::keep().inspect_err(|e| tracing::debug!("times may be less exact: {e}")).ok();
                }
                Some(due_ns) if due_ns > now + waking.takes_ns => {
                    let until_ns = due_ns - waking.takes_ns;
                    let (again, woken) = self
                        .earlier
                        .wait_timeout(waiting, Duration::from_nanos(until_ns - now))
                        .unwrap_or_else(PoisonError::into_inner);
                    waiting = again;
                    if woken.timed_out() {
                        waking.took(now_ns().saturating_sub(until_ns));
                    }
                }
                Some(due_ns) if due_ns > now => {
                    // Under the lock: what is pushed from here on is seen by the spinning.
                    self.pushed.store(u64::MAX, Relaxed);
                    drop(waiting);
                    self.spin_until(due_ns);
                    waiting = lock(&self.waiting);
                }
                Some(_) => {
                    let answer = waiting.pop();
                    drop(waiting);
                    answer.into_iter().for_each(|answer| self.send(answer));
                    waiting = lock(&self.waiting);
                }
            }
        }
    }

    /// Burns the time until then, or until something earlier was pushed.
    fn spin_until(&self, due_ns: u64) {
        while now_ns() < due_ns.min(self.pushed.load(Relaxed)) {
            std::hint::spin_loop();
        }
    }

    fn send(&self, answer: Answer) {
        let Answer { verdict, ready_ns, image_ns, result, reply } = answer;
        let failed = result.is_err();
        // Counted before it is sent: whoever asks for the counters after a read finds that read in them.
        self.engine.answered(verdict, ready_ns, now_ns(), image_ns, failed);
        match result {
            Ok(data) => {
                reply.data(&data);
                let mut spare = lock(&self.spare);
                if spare.len() < SPARE_BUFFERS {
                    spare.push(data);
                }
            }
            Err(error) => reply.error(error),
        }
        self.softirqs.run();
    }
}

/// Makes the answer thread as punctual as the kernel permits.
fn prefer_answers() {
    for attempt in [set_exact_timers(), set_fifo()] {
        if let Err(error) = attempt {
            tracing::info!("times may be less exact: {error}");
        }
    }
}

/// Prefers a thread that takes requests in. Not with real-time priority: the scheduler would wake it on another processor
/// than the one that just made the request, which costs 40 µs each time and a third of all requests per second.
pub fn prefer_reader() {
    if let Err(error) = set_nice() {
        tracing::info!("times may be less exact: {error}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waking_is_learned_fast_and_forgotten_slowly() {
        let mut waking = Waking::default();
        for _ in 0..20 {
            waking.took(40_000);
        }
        assert!((39_000..=40_000).contains(&waking.takes_ns), "{waking:?}");
        waking.took(1_000);
        assert!(waking.takes_ns > 38_000, "{waking:?}");
        for _ in 0..300 {
            waking.took(1_000);
        }
        assert!(waking.takes_ns < 1_100, "{waking:?}");
    }

    #[test]
    fn a_stolen_processor_is_not_spun_for() {
        let mut waking = Waking::default();
        for _ in 0..100 {
            waking.took(50_000_000);
        }
        assert!(waking.takes_ns <= WAKING_MAX_NS);
    }
}
