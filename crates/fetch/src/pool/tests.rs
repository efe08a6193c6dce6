//! Threads, devices that do not answer, limits.

use super::*;
use crate::before_request::{BeforeRequest, is_paused, set_before_request};
use crate::calls;
use ahead_sys::fork::run_in_child;
use ahead_sys::locks::IgnorePoison;
use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Condvar, Mutex, mpsc};

fn pool(devices: usize, most: usize) -> Arc<WorkerPool> {
    with(devices, most, start)
}

fn with(devices: usize, most: usize, start: Start) -> Arc<WorkerPool> {
    let pool = WorkerPool::with_start(unknown(devices), Instant::now(), 16, most, brake(), start);
    pool.workers.limit(most);
    Arc::new(pool)
}

/// Counts the threads that work at the same time.
#[derive(Default)]
struct Count {
    now: AtomicUsize,
    most: AtomicUsize,
    done: Mutex<Vec<usize>>,
}

impl Count {
    fn work(&self, device: usize) {
        let now = self.now.fetch_add(1, Ordering::AcqRel) + 1;
        self.most.fetch_max(now, Ordering::AcqRel);
        std::thread::yield_now();
        self.done.lock().unwrap().push(device);
        self.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Regression: each device had a thread and 15 helpers.
#[test]
fn there_are_never_more_threads_than_the_limit_and_every_device_has_its_turn() {
    let pool = pool(100, 8);
    let count = work_on(&pool, 100, || false);
    assert!(count.most.load(Ordering::Acquire) <= 8);
    let done: HashSet<usize> = count.done.lock().unwrap().iter().copied().collect();
    assert_eq!(done.len(), 100);
    assert!(!pool.is_incomplete());
}

/// Regression: `std::thread::scope` panics if the system refuses a thread.
#[test]
fn refused_threads_are_fewer_workers_and_without_any_the_calling_one_works() {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    let none: Start = |_, _| Err(io::ErrorKind::WouldBlock.into());
    let every_third: Start = |name, work| match STARTED.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => start(name, work),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    };
    for start in [none, every_third] {
        let (pool, count) = (with(100, 8, start), Arc::new(Count::default()));
        let (own, counted) = (pool.clone(), count.clone());
        let here = std::thread::current().id();
        let work = move |device: usize| {
            assert!(start as usize != none as usize || std::thread::current().id() == here);
            own.help(device, 3, Arc::new(|_| ()));
            counted.work(device);
            own.join(device);
        };
        pool.run(0..100, Arc::new(work), || false);
        let mut done = count.done.lock().unwrap().clone();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
        assert!(!pool.is_incomplete());
    }
}

/// Works on this many devices, with help for each, and counts.
fn work_on(pool: &Arc<WorkerPool>, devices: usize, enough: impl FnMut() -> bool) -> Arc<Count> {
    let (own, count) = (pool.clone(), Arc::new(Count::default()));
    let counted = count.clone();
    let work = move |device: usize| {
        let helped = counted.clone();
        own.help(device, 15, Arc::new(move |device| helped.work(device)));
        counted.work(device);
        own.join(device);
    };
    pool.run(0..devices, Arc::new(work), enough);
    count
}

#[test]
fn limited_process_has_at_most_this_many_workers() {
    for (threads, workers) in [(0, 1), (2, 1), (3, 1), (5, 3), (1000, MOST_THREADS)] {
        let pool = Arc::new(WorkerPool::new(unknown(100), Instant::now(), 16, Some(threads), brake()));
        pool.look_at_limits();
        let count = work_on(&pool, 100, || false);
        assert!(count.most.load(Ordering::Acquire) <= workers, "{threads}");
        let done: HashSet<usize> = count.done.lock().unwrap().iter().copied().collect();
        assert_eq!((done.len(), pool.is_incomplete()), (100, false), "{threads}");
        assert!(pool.most_workers() <= workers, "{threads}");
    }
}

#[test]
fn process_of_two_threads_starts_no_worker() {
    let pool = Arc::new(WorkerPool::new(unknown(3), Instant::now(), 16, Some(2), brake()));
    let here = std::thread::current().id();
    let done = Arc::new(AtomicUsize::new(0));
    let counted = done.clone();
    let work = move |_| {
        assert_eq!(std::thread::current().id(), here);
        counted.fetch_add(1, Ordering::Relaxed);
    };
    pool.run(0..3, Arc::new(work), || false);
    assert_eq!(done.load(Ordering::Relaxed), 3);
}

/// A limited process has no thread in place of the stuck one: all other devices are given up with it.
#[test]
fn limited_process_gives_up_devices_without_a_thread() {
    let (answer, silence) = mpsc::channel::<()>();
    let silence = Mutex::new(silence);
    let pool = Arc::new(WorkerPool::new(unknown(3), Instant::now(), 16, Some(3), brake()));
    let work = move |_| {
        let _ = silence.lock().unwrap().recv();
    };
    let watched = pool.clone();
    pool.run(0..3, Arc::new(work), || {
        watched.give_up(0);
        false
    });
    assert!((0..3).all(|device| pool.is_given_up(device)) && pool.is_incomplete());
    drop(answer);
}

/// A panic on one device must neither prevent the program's start nor the prefetch on other devices.
#[test]
fn a_thread_that_panics_is_known_and_holds_nothing() {
    let (pool, count) = (pool(10, 2), Arc::new(Count::default()));
    let (own, counted) = (pool.clone(), count.clone());
    let work = move |device: usize| {
        // Suppresses the panic message.
        if device == 4 {
            std::panic::resume_unwind(Box::new("a bug"));
        }
        counted.work(device);
        own.release(device);
    };
    pool.run(0..10, Arc::new(work), || false);
    assert!(pool.has_panicked() && !pool.holds());
    assert_eq!(count.done.lock().unwrap().len(), 9);
}

/// Regression: a device that did not answer blocked the threads of all other devices.
#[test]
fn device_that_does_not_answer_holds_neither_the_program_nor_other_devices() {
    let (pool, (answer, silence)) = (pool(6, 4), mpsc::channel::<()>());
    let silence = Mutex::new(silence);
    let done = Arc::new(Mutex::new(Vec::new()));
    let (own, by) = (pool.clone(), done.clone());
    let work = move |device: usize| {
        if device < 3 {
            // Blocks until the test ends.
            let _ = silence.lock().unwrap().recv();
        } else {
            own.release(device);
            by.lock().unwrap().push(device);
        }
    };
    let (watched, others) = (pool.clone(), done.clone());
    let patience = Instant::now() + Duration::from_secs(60);
    pool.run(0..6, Arc::new(work), || {
        assert!(Instant::now() < patience, "the others wait");
        watched.look().into_iter().for_each(|device| watched.give_up(device));
        others.lock().unwrap().len() == 3 && !watched.holds()
    });
    let mut done = done.lock().unwrap().clone();
    done.sort_unstable();
    assert_eq!((done, pool.is_incomplete()), (vec![3, 4, 5], true));
    drop(answer);
}

/// No other test asks for a device with this number.
const PAUSED: DeviceNumber = DeviceNumber::new(0xfff, 7);
const OTHER: DeviceNumber = DeviceNumber::new(0xfff, 8);

/// Others go before the requests to one device until the test ends their turn.
#[derive(Clone, Debug)]
struct Others(Arc<(Mutex<bool>, Condvar)>);

impl BeforeRequest for Others {
    fn wait(&self, device: DeviceNumber) {
        let (are_first, changed) = &*self.0;
        drop(changed.wait_while(are_first.lock().ignore_poison(), |are_first| device == PAUSED && *are_first));
    }

    fn is_paused(&self, device: DeviceNumber) -> bool {
        device == PAUSED && *self.0.0.lock().ignore_poison()
    }
}

#[test]
fn requests_to_one_device_wait_until_others_are_done() {
    let others = Others(Arc::new((Mutex::new(true), Condvar::new())));
    assert!(set_before_request(others.clone()) && !set_before_request(others.clone()));
    assert!(is_paused(PAUSED) && !is_paused(OTHER));
    let file = tempfile::tempfile().unwrap();
    calls::read_ahead(OTHER, &file, &(0..4096)).unwrap();
    // Its child has no thread that could end the turn of others.
    let in_child = || {
        assert!(!is_paused(PAUSED));
        calls::read_ahead(PAUSED, &file, &(0..4096)).unwrap();
    };
    assert_eq!(run_in_child(in_child).unwrap(), 0);
    let pool = Arc::new(WorkerPool::new([PAUSED, OTHER].map(Some), Instant::now(), 1, None, brake()));
    let done = Arc::new(Mutex::new(Vec::new()));
    let (by, asked) = (done.clone(), file.try_clone().unwrap());
    let work = move |device: usize| {
        calls::read_ahead([PAUSED, OTHER][device], &asked, &(0..4096)).unwrap();
        by.lock().unwrap().push(device);
    };
    let (watched, seen) = (pool.clone(), done.clone());
    pool.run(0..2, Arc::new(work), || {
        watched.look();
        if *seen.lock().unwrap() == [1] {
            // The program waits for the other device only.
            watched.release(1);
            if !watched.holds() {
                *others.0.0.lock().unwrap() = false;
                others.0.1.notify_all();
            }
        }
        false
    });
    assert_eq!((done.lock().unwrap().clone(), pool.is_incomplete()), (vec![1, 0], false));
}
