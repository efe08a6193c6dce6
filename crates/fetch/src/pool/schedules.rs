//! Run with `cargo test -p ahead-fetch --features shuttle`.

use super::*;
use shuttle::sync::mpsc::channel;
use shuttle::sync::{Arc as Shared, Mutex};

const SCHEDULES: usize = 2000;

fn start(_name: &'static str, work: Job) -> io::Result<()> {
    shuttle::thread::spawn(work);
    Ok(())
}

/// Two devices with a helper each, and a third one that does not answer and is given up. `run` returns, all that was queued for the others is
/// done once, and the threads end: otherwise the checker reports a deadlock.
fn run_beside_a_silent_device() {
    let pool = Arc::new(WorkerPool::with_start(unknown(3), Instant::now(), 2, 4, brake(), start));
    let (answer, silent) = channel::<()>();
    let (silent, done) = (Mutex::new(silent), Shared::new(Mutex::new(Vec::new())));
    let (own, by) = (pool.clone(), done.clone());
    let work = move |device: usize| {
        if device == 0 {
            own.give_up(device);
            assert!(silent.lock().unwrap().recv().is_err());
            return;
        }
        let helped = by.clone();
        let taken = Shared::new(Mutex::new(0));
        let take = move |device: usize| {
            while std::mem::replace(&mut *taken.lock().unwrap(), 1) == 0 {
                helped.lock().unwrap().push(device);
            }
        };
        let take: Work = Arc::new(take);
        own.help(device, 1, take.clone());
        take(device);
        own.join(device);
    };
    pool.run(0..3, Arc::new(work), || false);
    let mut devices = done.lock().unwrap().clone();
    devices.sort_unstable();
    assert_eq!((devices, pool.is_incomplete()), (vec![1, 2], true));
    drop(answer);
    pool.workers.end(|_| true);
}

#[test]
fn silent_device_ends_no_run_late_under_each_schedule() {
    shuttle::check_random(run_beside_a_silent_device, SCHEDULES);
    shuttle::check_pct(run_beside_a_silent_device, SCHEDULES, 3);
}
