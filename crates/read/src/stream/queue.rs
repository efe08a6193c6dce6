//! A bounded queue from one thread to another, which waits, or is woken as a task.
//!
//! ```text
//!     producer ── push ──▶ ├ at most N items ┤ ──▶ pop, poll_pop ── consumer
//!                 waits while full                  wait while empty; `None` when the producer has closed it
//! ```
//!
//! Each side closes the queue when it ends: a push then returns the item, and a pop what is left.

use crate::stream::sync::{Condvar, Mutex};
use ahead_sys::locks::IgnorePoison;
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

#[derive(Debug)]
struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
    waker: Option<Waker>,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        let state = State { items: VecDeque::new(), is_closed: false, waker: None };
        Queue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Appends an item, and waits while there are `limit` items, at least one. The item comes back if the consumer has closed the queue.
    pub fn push(&self, item: T, limit: usize) -> Result<(), T> {
        let mut state = self.state.lock().ignore_poison();
        while !state.is_closed && state.items.len() >= limit.max(1) {
            state = self.changed.wait(state).ignore_poison();
        }
        if state.is_closed {
            return Err(item);
        }
        state.items.push_back(item);
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// The next item; waits for it. `None`: the queue is closed and empty.
    pub fn pop(&self) -> Option<T> {
        let mut state = self.state.lock().ignore_poison();
        while !state.is_closed && state.items.is_empty() {
            state = self.changed.wait(state).ignore_poison();
        }
        let item = state.items.pop_front();
        drop(state);
        self.changed.notify_all();
        item
    }

    /// As [`Queue::pop`], but the task of the context is woken instead.
    pub fn poll_pop(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock().ignore_poison();
        if !state.is_closed && state.items.is_empty() {
            state.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let item = state.items.pop_front();
        drop(state);
        self.changed.notify_all();
        Poll::Ready(item)
    }

    /// No item is added any more.
    pub fn close(&self) {
        let mut state = self.state.lock().ignore_poison();
        state.is_closed = true;
        let waker = state.waker.take();
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn items_arrive_once_and_in_order_from_a_busy_producer() {
        for limit in [0, 1, 3] {
            let queue = Arc::new(Queue::new());
            let producer = queue.clone();
            let thread = thread::spawn(move || {
                (0..20_000).for_each(|item| producer.push(item, limit).unwrap());
                producer.close();
            });
            let items: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(items, (0..20_000).collect::<Vec<_>>());
            thread.join().unwrap();
        }
    }

    #[test]
    fn closed_queue_returns_items_and_delivers_what_is_left() {
        let queue = Queue::new();
        queue.push(1, 2).unwrap();
        queue.close();
        assert_eq!((queue.push(2, 2), queue.pop(), queue.pop()), (Err(2), Some(1), None));
    }
}

/// Run with `cargo test -p ahead-read --features shuttle`.
#[cfg(all(test, feature = "shuttle"))]
mod schedules {
    use super::*;
    use shuttle::sync::Arc;
    use shuttle::{future, thread};
    use std::future::poll_fn;

    const SCHEDULES: usize = 2000;

    #[test]
    fn every_item_arrives_once_under_each_schedule() {
        let run = || {
            let queue = Arc::new(Queue::new());
            let producer = queue.clone();
            let thread = thread::spawn(move || {
                (0..4).for_each(|item| producer.push(item, 2).unwrap());
                producer.close();
            });
            let items: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
            assert_eq!(items, [0, 1, 2, 3]);
            thread.join().unwrap();
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES, 3);
    }

    #[test]
    fn tasks_are_woken_under_each_schedule() {
        let run = || {
            let queue = Arc::new(Queue::new());
            let producer = queue.clone();
            let thread = thread::spawn(move || {
                (0..4).for_each(|item| producer.push(item, 1).unwrap());
                producer.close();
            });
            let items = future::block_on(async {
                let mut items = Vec::new();
                while let Some(item) = poll_fn(|context| queue.poll_pop(context)).await {
                    items.push(item);
                }
                items
            });
            assert_eq!(items, [0, 1, 2, 3]);
            thread.join().unwrap();
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES, 3);
    }

    #[test]
    fn producer_ends_when_the_consumer_closes() {
        let run = || {
            let queue = Arc::new(Queue::new());
            let producer = queue.clone();
            let thread = thread::spawn(move || (0..4).take_while(|item| producer.push(*item, 1).is_ok()).count());
            let first = queue.pop();
            queue.close();
            assert_eq!(first, Some(0));
            assert!(thread.join().unwrap() >= 1);
        };
        shuttle::check_random(run, SCHEDULES);
        shuttle::check_pct(run, SCHEDULES, 3);
    }
}
