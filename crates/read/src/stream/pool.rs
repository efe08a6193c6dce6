//! Threads for calls that may block on a device: at most eight in a process, and none while there is nothing to do.

use crate::stream::device_queues::DeviceQueues;
use ahead_model::DeviceNumber;
use ahead_sys::background;
use ahead_sys::fork_count::PerProcess;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads of a process: two for each of four devices at work.
const THREADS: usize = 8;

/// How long a thread waits for work before it ends. Readers pause for less while a program computes.
const IDLE: Duration = Duration::from_secs(5);

/// Work for a device.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

struct State {
    queues: DeviceQueues<Job>,
    threads: usize,
    idle: usize,
}

/// The threads of a process.
pub(crate) struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

impl Pool {
    pub fn new() -> Pool {
        let state = State { queues: DeviceQueues::new(), threads: 0, idle: 0 };
        Pool { state: Mutex::new(state), work: Condvar::new() }
    }

    /// The pool of this process.
    pub fn global() -> &'static Arc<Pool> {
        static GLOBAL: PerProcess<Arc<Pool>> = PerProcess::new();
        GLOBAL.get(|| Arc::new(Pool::new()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this many jobs can be queued for a device.
    pub fn has_room(&self, device: DeviceNumber, count: usize) -> bool {
        self.lock().queues.has_room(device, count)
    }

    /// Queues a job for a device; `is_rotating`: one after the other. If no thread can be started, and none exists, the caller's thread runs it.
    pub fn run(self: &Arc<Pool>, device: DeviceNumber, is_rotating: bool, job: Job) {
        let mut state = self.lock();
        // Threads that were woken and have not taken their job yet still count as idle.
        if state.idle <= state.queues.waiting() && state.threads < THREADS {
            state.threads += 1;
            drop(state);
            let started = self.start();
            state = self.lock();
            if let Err(error) = started {
                tracing::debug!("no thread for read-ahead: {error}");
                state.threads -= 1;
                if state.threads == 0 {
                    drop(state);
                    return job();
                }
            }
        }
        state.queues.push(device, is_rotating, job);
        drop(state);
        self.work.notify_one();
    }

    fn start(self: &Arc<Pool>) -> io::Result<()> {
        let pool = self.clone();
        background::spawn("ahead-io", move || pool.serve())
    }

    fn serve(&self) {
        let (mut state, mut has_waited) = (self.lock(), false);
        loop {
            if let Some((device, job)) = state.queues.take() {
                drop(state);
                job();
                state = self.lock();
                state.queues.done(device);
                has_waited = false;
            } else if has_waited {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                let (next, waited) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
                (state, has_waited) = (next, waited.timed_out());
                state.idle -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn each_job_runs_once_beside_a_device_that_hangs() {
        let pool = Arc::new(Pool::new());
        let (release, hung) = mpsc::channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        for _ in 0..10 {
            let hung = hung.clone();
            pool.run(DeviceNumber::new(1, 1), false, Box::new(move || assert!(hung.lock().unwrap().recv().is_err())));
        }
        let (sender, receiver) = mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            pool.run(DeviceNumber::new(2, 2), false, Box::new(move || sender.send(number).unwrap()));
        }
        let mut numbers: Vec<i32> = (0..100).map(|_| receiver.recv().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert!(pool.lock().threads <= THREADS);
        drop(release);
    }
}
