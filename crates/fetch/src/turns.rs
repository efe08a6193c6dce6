//! Turns of readers on a device that seeks.
//!
//! ```text
//!     head ▶   reader 2   reader 7   reader 1         this round, upwards: 1 MiB each
//!              reader 3   reader 4                    next round: those that miss a page meanwhile
//! ```
//!
//! Without turns, the requests of 64 readers are in the queue of the device at the same time. The scheduler's deadline (`read_expire` of
//! mq-deadline, 500 ms) then passes for most of them, and it serves them in the order of their arrival: the parts of one reader's request, which the
//! block layer has split, are no longer next to each other, and each part costs a seek.
//!
//! In a round each reader has one turn, in the order of their positions: the head moves to a neighbour, and no reader that continues where
//! the head is keeps the others waiting (N-step-SCAN; Teorey and Pinkerton 1972).

use ahead_sys::locks::IgnorePoison;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Thread};

/// Readers that have their turn at the same time: while one of them copies what it has read, the device serves the other.
const AT_ONCE: usize = 2;

/// The turns of one device.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    rounds: Mutex<Rounds>,
    /// Held while a request is submitted: the parts into which the kernel splits it stay together.
    submission: Mutex<()>,
}

#[derive(Debug, Default)]
struct Rounds {
    taken: usize,
    /// By position and number.
    this: BTreeMap<(u64, u64), Arc<Waiter>>,
    next: BTreeMap<(u64, u64), Arc<Waiter>>,
    /// Waiters so far: those at the same position are different.
    waiters: u64,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    is_called: AtomicBool,
}

/// A reader's turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    /// Others had their turns at that time: the head has moved.
    pub has_waited: bool,
}

impl Turns {
    /// Waits for a turn at this position of the device, bytes.
    pub fn take(turns: &Arc<Turns>, position: u64) -> Turn {
        let mut rounds = turns.lock();
        if rounds.taken < AT_ONCE {
            rounds.taken += 1;
            return Turn { turns: turns.clone(), has_waited: false };
        }
        let waiter = Arc::new(Waiter { thread: thread::current(), is_called: AtomicBool::new(false) });
        rounds.waiters += 1;
        let number = rounds.waiters;
        rounds.next.insert((position, number), waiter.clone());
        drop(rounds);
        while !waiter.is_called.load(Ordering::Acquire) {
            thread::park();
        }
        Turn { turns: turns.clone(), has_waited: true }
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().ignore_poison()
    }
}

impl Turn {
    /// Until the result is dropped, the other reader that has its turn submits nothing.
    pub fn submission(&self) -> MutexGuard<'_, ()> {
        self.turns.submission.lock().ignore_poison()
    }
}

impl Rounds {
    /// The next reader has the turn of one that has ended.
    fn pass_on(&mut self) {
        if self.this.is_empty() {
            std::mem::swap(&mut self.this, &mut self.next);
        }
        match self.this.pop_first() {
            None => self.taken -= 1,
            Some((_, waiter)) => {
                waiter.is_called.store(true, Ordering::Release);
                waiter.thread.unpark();
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().pass_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn two_readers_at_once_have_a_turn_and_all_get_one() {
        let (turns, inside, most) = (Arc::new(Turns::default()), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for position in 0..100 {
                        let turn = Turns::take(&turns, position);
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(turn);
                    }
                });
            }
        });
        assert!((1..=AT_ONCE).contains(&most.into_inner()));
        assert_eq!(turns.lock().taken, 0);
    }

    #[test]
    fn waiting_readers_have_their_turns_by_position_and_later_ones_in_the_next_round() {
        let (turns, order) = (Arc::new(Turns::default()), Mutex::new(Vec::new()));
        let mut held: Vec<Turn> = (0..AT_ONCE).map(|_| Turns::take(&turns, 0)).collect();
        let wait_for = |waiting: usize| {
            let has_fewer = |rounds: &Rounds| rounds.this.len() + rounds.next.len() < waiting;
            while has_fewer(&turns.lock()) {
                thread::yield_now();
            }
        };
        thread::scope(|scope| {
            let wait = |position| {
                let turn = Turns::take(&turns, position);
                assert!(turn.has_waited);
                order.lock().unwrap().push(position);
                turn
            };
            let first = [30, 10, 20].map(|position| scope.spawn(move || wait(position)));
            wait_for(3);
            held.pop();
            let mut first: Vec<_> = first.into_iter().map(Some).collect();
            let ten = first[1].take().unwrap().join().unwrap();
            // The round has begun: 5 is before 20 and 30, and waits for the next one.
            let later = scope.spawn(move || drop(wait(5)));
            wait_for(3);
            drop(ten);
            drop(first[2].take().unwrap().join().unwrap());
            drop(first[0].take().unwrap().join().unwrap());
            later.join().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), [10, 20, 30, 5]);
    }
}
