//! A queue of answers, sent when they are due.
//!
//! ```text
//!     reader threads ──push──▶ [ due 17 | due 23 | due 24 | … ]  earliest first
//!                                   │
//!     answer thread:  sleeps until 17 (or until an earlier answer is pushed) ──▶ sends all answers that are due
//! ```
//!
//! A wake-up takes time: tens of microseconds on a virtual machine with an idle processor. So the thread wakes up earlier than due, by
//! the recent duration of wake-ups, and spins for the rest. Without timer slack and with real-time priority, where permitted, the rest is
//! short. While reads arrive, the daemon keeps idle processors awake, because the other threads of a read have to wake up, too.

use super::engine::{Engine, Schedule};
use crate::{Error, Result};
use ahead_sys::daemon::{Awake, Softirqs, now_ns, set_exact_timers, set_fifo, set_nice};
use ahead_sys::locks::IgnorePoison;
use fuser::{Errno, ReplyData};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Buffers that are kept for reuse: the default queue depth. Others are allocated and freed.
const SPARE_BUFFERS: usize = 128;

/// Time from the last read until processors may sleep again: pauses of programs between reads are shorter.
const AWAKE_TIME: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct Answer {
    /// Due time and fault.
    pub schedule: Schedule,
    /// Time at which the data was ready.
    pub ready_ns: u64,
    /// Time of the read of the image, nanoseconds.
    pub image_ns: u64,
    /// The data, or the error to return.
    pub result: std::result::Result<Vec<u8>, Errno>,
    /// The FUSE reply.
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
    /// The earliest answer is the greatest: [`BinaryHeap`] returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.schedule.due_ns.cmp(&self.schedule.due_ns)
    }
}

/// Duration of a wake-up of this thread: a slowly decreasing maximum, so that most sleeps end before the due time.
#[derive(Clone, Copy, Debug, Default)]
struct WakeUpTime {
    expected_ns: u64,
}

/// Limit of a wake-up, nanoseconds: a longer delay comes from a stolen or busy processor, and spinning does not help.
const MAX_WAKE_UP_NS: u64 = 150_000;

impl WakeUpTime {
    fn update(&mut self, late_ns: u64) {
        let late_ns = late_ns.min(MAX_WAKE_UP_NS);
        if late_ns > self.expected_ns {
            self.expected_ns += (late_ns - self.expected_ns) / 4;
        } else {
            self.expected_ns -= (self.expected_ns - late_ns) / 32;
        }
    }
}

/// The answers that wait for their due time.
#[derive(Debug)]
pub struct AnswerQueue {
    waiting: Mutex<BinaryHeap<Answer>>,
    earlier: Condvar,
    /// The earliest due time that was pushed while the thread spins.
    pushed: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
    softirqs: Softirqs,
    engine: Arc<Engine>,
}

impl AnswerQueue {
    /// An empty queue; starts the thread that sends answers.
    pub fn start(engine: Arc<Engine>) -> Result<Arc<AnswerQueue>> {
        let answers = Arc::new(AnswerQueue {
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

    /// A buffer of this length. Its content is arbitrary.
    pub fn buffer(&self, length: usize) -> Vec<u8> {
        let mut buffer = lock(&self.spare).pop().unwrap_or_default();
        buffer.resize(length, 0);
        buffer
    }

    /// Sends an answer at its due time, or at once if that has passed.
    pub fn send_when_due(&self, answer: Answer) {
        if answer.schedule.due_ns <= now_ns() {
            return self.send(answer);
        }
        let due_ns = answer.schedule.due_ns;
        let mut waiting = lock(&self.waiting);
        let is_earliest = waiting.peek().is_none_or(|first| due_ns < first.schedule.due_ns);
        waiting.push(answer);
        drop(waiting);
        if is_earliest {
            self.pushed.fetch_min(due_ns, Relaxed);
            self.earlier.notify_one();
        }
    }

    fn run(&self) {
        prioritize_answers();
        let mut wake_up = WakeUpTime::default();
        let mut awake: Option<Awake> = None;
        let mut waiting = lock(&self.waiting);
        loop {
            let now = now_ns();
            match waiting.peek().map(|answer| answer.schedule.due_ns) {
                None if awake.is_some() => {
                    let (again, woken) = self.earlier.wait_timeout(waiting, AWAKE_TIME).ignore_poison();
                    waiting = again;
                    if woken.timed_out() {
                        awake = None;
                    }
                }
                None => {
                    waiting = self.earlier.wait(waiting).ignore_poison();
                    awake = Awake::keep().inspect_err(|e| tracing::debug!("times may be less exact: {e}")).ok();
                }
                Some(due_ns) if due_ns > now + wake_up.expected_ns => {
                    let until_ns = due_ns - wake_up.expected_ns;
                    let (again, woken) =
                        self.earlier.wait_timeout(waiting, Duration::from_nanos(until_ns - now)).ignore_poison();
                    waiting = again;
                    if woken.timed_out() {
                        wake_up.update(now_ns().saturating_sub(until_ns));
                    }
                }
                Some(due_ns) if due_ns > now => {
                    // Reset under the lock: spin_until sees every later push.
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

    /// Spins until the due time, or until an earlier answer is pushed.
    fn spin_until(&self, due_ns: u64) {
        while now_ns() < due_ns.min(self.pushed.load(Relaxed)) {
            std::hint::spin_loop();
        }
    }

    fn send(&self, answer: Answer) {
        let Answer { schedule, ready_ns, image_ns, result, reply } = answer;
        let failed = result.is_err();
        // Counted before sending: a program that requests the counters after a read finds the read in them.
        self.engine.answered(schedule, ready_ns, now_ns(), image_ns, failed);
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

/// Sets the timer slack and the priority of the answer thread, as far as the kernel permits.
fn prioritize_answers() {
    for attempt in [set_exact_timers(), set_fifo()] {
        if let Err(error) = attempt {
            tracing::info!("times may be less exact: {error}");
        }
    }
}

/// Raises the priority of a thread that receives requests. No real-time priority: the scheduler would wake the thread on another
/// processor than that of the request. This costs 40 µs each time, and a third of the requests per second.
pub fn prioritize_reader() {
    if let Err(error) = set_nice() {
        tracing::info!("times may be less exact: {error}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_up_time_rises_fast_and_falls_slowly() {
        let mut wake_up = WakeUpTime::default();
        for _ in 0..20 {
            wake_up.update(40_000);
        }
        assert!((39_000..=40_000).contains(&wake_up.expected_ns), "{wake_up:?}");
        wake_up.update(1_000);
        assert!(wake_up.expected_ns > 38_000, "{wake_up:?}");
        for _ in 0..300 {
            wake_up.update(1_000);
        }
        assert!(wake_up.expected_ns < 1_100, "{wake_up:?}");
    }

    #[test]
    fn stolen_processor_does_not_raise_the_wake_up_time() {
        let mut wake_up = WakeUpTime::default();
        for _ in 0..100 {
            wake_up.update(50_000_000);
        }
        assert!(wake_up.expected_ns <= MAX_WAKE_UP_NS);
    }
}
