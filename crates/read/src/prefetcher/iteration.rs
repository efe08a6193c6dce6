//! The program's side: items are pulled from their source, handed over and yielded.

use crate::prefetcher::workers::Pool;
use crate::prefetcher::{Counters, Item, PrefetcherOptions, Window};
use ahead_policy::schedule::{LARGEST_LOOK_AHEAD, Limits, LookAhead, Pace};
use ahead_sys::reserve;
use std::any::Any;
use std::collections::VecDeque;
use std::iter::FusedIterator;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

/// Yields items, or keys of items, in their order, and reads the files of the next ones into the page cache.
///
/// [`Iterator::next`] never waits for a file, with one exception: on a rotating disk it waits while its item is in the sweep that is under way
/// ([`Self::wait`]). The source is called in the thread of the program, up to 4,096 items ahead. If it panics, the items before the panic are yielded
/// first. Nothing is read ahead before the first item is taken.
///
/// Threads: one prefetcher has one consumer. Fork: the child continues with the items that were not taken at the fork, with its own workers.
/// Drop: returns at once; requests that the kernel has accepted are carried out.
pub struct Prefetcher<T> {
    /// `None` after its end.
    source: Option<Box<dyn Iterator<Item = Pulled<T>> + Send>>,
    /// The panic of the source, until the items before it are taken.
    panic: Option<Box<dyn Any + Send>>,
    buffer: VecDeque<Pulled<T>>,
    item_of: fn(&Pulled<T>) -> Option<&Item>,
    taken: u64,
    /// Items taken before the pool was made.
    taken_before: u64,
    look_ahead: LookAhead,
    options: PrefetcherOptions,
    pace: Pace,
    began: Instant,
    pool: Arc<Pool>,
}

/// A value of the source, and for keys its item: in a box, because most programs have items and no keys.
struct Pulled<T> {
    value: T,
    item: Option<Box<Item>>,
}

impl Prefetcher<Item> {
    /// Reads items ahead with the default options.
    pub fn new<I>(items: I) -> Prefetcher<Item>
    where
        I: IntoIterator,
        I::Item: Into<Item>,
        I::IntoIter: Send + 'static,
    {
        Self::with_options(items, PrefetcherOptions::default())
    }

    /// Reads items ahead.
    pub fn with_options<I>(items: I, options: PrefetcherOptions) -> Prefetcher<Item>
    where
        I: IntoIterator,
        I::Item: Into<Item>,
        I::IntoIter: Send + 'static,
    {
        let source = items.into_iter().map(|item| Pulled { value: item.into(), item: None });
        Prefetcher::of(Box::new(source), |pulled| Some(&pulled.value), options)
    }
}

impl<K: 'static> Prefetcher<K> {
    /// Yields keys, and reads ahead the items that `resolve` gives for them. `None`: there is nothing to read for this key. `resolve` is called once
    /// for each key, in the order of the keys, in the thread of the program.
    pub fn of_keys<I, F>(keys: I, mut resolve: F, options: PrefetcherOptions) -> Prefetcher<K>
    where
        I: IntoIterator<Item = K>,
        I::IntoIter: Send + 'static,
        F: FnMut(&K) -> Option<Item> + Send + 'static,
    {
        let source = keys.into_iter().map(move |key| {
            let item = resolve(&key).map(Box::new);
            Pulled { value: key, item }
        });
        Prefetcher::of(Box::new(source), |pulled| pulled.item.as_deref(), options)
    }
}

impl<T> Prefetcher<T> {
    fn of(
        source: Box<dyn Iterator<Item = Pulled<T>> + Send>,
        item_of: fn(&Pulled<T>) -> Option<&Item>,
        options: PrefetcherOptions,
    ) -> Prefetcher<T> {
        Prefetcher {
            source: Some(source),
            panic: None,
            buffer: VecDeque::new(),
            item_of,
            taken: 0,
            taken_before: 0,
            look_ahead: LookAhead::default(),
            pool: Pool::new(0, options.threads),
            options,
            pace: Pace::default(),
            began: Instant::now(),
        }
    }

    /// What was pulled from the source and not taken yet, in its order.
    pub fn pulled(&self) -> impl Iterator<Item = &T> {
        self.buffer.iter().map(|pulled| &pulled.value)
    }

    /// What became of the items so far.
    pub fn counters(&self) -> Counters {
        if !self.pool.is_of_this_process() {
            return Counters::default();
        }
        let outcomes = self.pool.outcomes();
        Counters {
            items: self.taken - self.taken_before,
            prefetched_items: outcomes.requested,
            prefetched_bytes: outcomes.requested_bytes,
            cached_items: outcomes.cached,
            skipped: outcomes.unreadable,
            late: outcomes.late,
            consumed_before_start: outcomes.not_started,
            unchecked: outcomes.unchecked,
        }
    }

    /// Waits until the next item is requested, if it is in the sweep of a rotating disk that is under way: a read out of turn would interrupt
    /// the sweep twice. Returns at once on other devices, and within a second if the disk does not answer; then it waits for no other item.
    /// [`Iterator::next`] does the same; a program with an interpreter lock calls this first, without the lock, if [`Self::would_wait`].
    pub fn wait(&mut self) {
        if self.would_wait() && self.pool.is_in_sweep(self.taken) {
            // The workers go on with what they have while the program waits.
            self.hand_over();
            self.pool.wait_for(self.taken);
        }
    }

    /// Whether [`Self::wait`] may have to wait. Costs a load from memory.
    pub fn would_wait(&self) -> bool {
        self.pool.has_sweep() && self.pool.is_of_this_process()
    }

    /// A child of fork has none of the threads, and cannot use the locks.
    fn renew_pool(&mut self) {
        let pool = Pool::new(self.taken, self.options.threads);
        std::mem::replace(&mut self.pool, pool).close();
        self.taken_before = self.taken;
    }

    fn limits(&mut self) -> Limits {
        let most = LARGEST_LOOK_AHEAD;
        let of_items = |items: usize| Limits { items: (items as u64).clamp(1, most), bytes: u64::MAX };
        match self.options.window {
            Window::Bytes(bytes) => Limits { items: most, bytes },
            Window::Items(items) => of_items(items),
            Window::Time(horizon) => {
                self.pace.note(self.taken, self.began.elapsed());
                of_items(self.pace.items_within(horizon))
            }
        }
    }

    fn hand_over(&mut self) {
        let limits = self.limits();
        self.look_ahead.begin(limits);
        self.pull();
        // The source may have forked.
        if !self.pool.is_of_this_process() {
            self.renew_pool();
        }
        let (taken, buffer, item_of) = (self.taken, &self.buffer, self.item_of);
        let item_at = |index: u64| buffer.get((index - taken) as usize).and_then(item_of);
        let end = taken + buffer.len() as u64;
        let wanted = self.pool.hand_over(&self.options.budget, limits, end, item_at);
        self.look_ahead.end(wanted);
    }

    /// Fills the buffer. A panic of the source is kept until the items before it are taken.
    fn pull(&mut self) {
        let Some(source) = &mut self.source else { return };
        let (buffer, look_ahead) = (&mut self.buffer, self.look_ahead.items() as usize);
        let has_room = buffer.try_reserve_exact(look_ahead.saturating_sub(buffer.len())).is_ok();
        let count = if has_room { look_ahead } else { buffer.capacity().clamp(1, look_ahead) };
        let filled = catch_unwind(AssertUnwindSafe(|| {
            // With little memory the program gets its items one by one.
            while buffer.len() < count && (buffer.is_empty() || !reserve::is_low()) {
                match source.next() {
                    Some(pulled) => buffer.push_back(pulled),
                    None => return false,
                }
            }
            true
        }));
        match filled {
            Ok(true) => return,
            Ok(false) => {}
            Err(panic) => self.panic = Some(panic),
        }
        self.source = None;
    }
}

impl<T> Iterator for Prefetcher<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if !self.pool.is_of_this_process() {
            self.renew_pool();
        }
        if self.buffer.is_empty() {
            self.pull();
        }
        self.wait();
        let Some(pulled) = self.buffer.pop_front() else {
            self.pool.close();
            if let Some(panic) = self.panic.take() {
                resume_unwind(panic);
            }
            return None;
        };
        self.taken += 1;
        if self.pool.set_taken(self.taken) {
            self.hand_over();
        }
        Some(pulled.value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.source.as_ref().map_or((0, Some(0)), |source| source.size_hint());
        let buffered = self.buffer.len();
        (least.saturating_add(buffered), most.and_then(|most| most.checked_add(buffered)))
    }
}

impl<T> FusedIterator for Prefetcher<T> {}

impl<T> Drop for Prefetcher<T> {
    fn drop(&mut self) {
        self.pool.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_of_fork_continues_with_the_items_that_were_not_taken() {
        let paths: Vec<String> = (0..100).map(|n| format!("/absent/{n}")).collect();
        let mut prefetcher = Prefetcher::new(paths.clone());
        let mut taken: Vec<Item> = prefetcher.by_ref().take(10).collect();
        let parent = std::mem::replace(&mut prefetcher.pool, Pool::of_parent(10));
        assert_eq!(prefetcher.counters(), Counters::default());
        taken.push(prefetcher.next().unwrap());
        assert_eq!(prefetcher.counters().items, 1);
        taken.extend(prefetcher.by_ref());
        assert!(taken.iter().map(|item| item.path.to_str().unwrap()).eq(paths.iter().map(String::as_str)));
        prefetcher.pool = Pool::of_parent(100);
        drop(prefetcher);
        parent.close();
    }

    #[test]
    fn panic_of_the_source_follows_the_items_before_it() {
        let source = (0..100).map(|n| if n == 70 { panic!("item 70") } else { format!("/absent/{n}") });
        let mut prefetcher = Prefetcher::new(source);
        assert_eq!(prefetcher.by_ref().take(70).count(), 70);
        let panic = catch_unwind(AssertUnwindSafe(|| prefetcher.next().is_some())).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "item 70");
        assert!(prefetcher.next().is_none());
    }
}
