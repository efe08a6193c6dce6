//! The pace of a plan's execution: number of threads, and queued device time. The real prefetch and the simulated one share it.

use ahead_model::DeviceDescription;
use std::collections::VecDeque;

/// Maximum number of threads of one device: the queue depth during lookups.
pub const MOST_WORKERS: usize = 16;

/// Threads in the order of first use if metadata is read without lookups: open(2) may wait for a block in flight, and the other
/// threads continue meanwhile.
const WORKERS: usize = 4;

/// Threads for lookups on a rotating disk in the background: each has one read in flight, and a read of another program waits for
/// all of them.
const BACKGROUND_WORKERS: usize = 2;

/// Maximum device time in the queue in the order of first use, microseconds: the longest wait of a page that is not in the
/// plan. Measured on a modelled network volume and a modelled solid-state disk: from 4 to 16 ms nothing
/// changes; without a limit, `git status` on the volume took a fifth longer, because a few late requests waited for 60 ms.
const QUEUE_US: f64 = 8000.0;

/// The same on a rotating disk in the background, microseconds: two requests with an average access each, one in service and one
/// waiting, so that the disk is never idle.
const BACKGROUND_QUEUE_US: f64 = 24_000.0;

/// Maximum number of requests in flight of a worker: each holds a file open. With four workers, this is twice the queue depth of
/// a flash disk.
pub const MOST_WAITING: usize = 32;

/// Number of timed reads that check a description. An odd number has a median. On a rotating disk, waiting for each of them
/// costs at most half a turn of the platter more per read than a queue: 30 ms in all.
pub const TIMED_READS: usize = 7;

/// The pace of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Threads for all steps of a device that does not seek; for the metadata of a device that seeks.
    pub workers: usize,
    /// Maximum device time of the requests that a worker has queued, microseconds.
    pub queue_us: f64,
}

impl Pacing {
    /// The pace for a device. `looks_up`: the plan has lookups; `is_background`: other programs have priority, so that the queue must
    /// be short; `most_workers`: the threads that there are, [`MOST_WORKERS`] or fewer.
    pub fn new(device: &DeviceDescription, looks_up: bool, is_background: bool, most_workers: usize) -> Pacing {
        let workers = match device.seeks() {
            false if !looks_up => WORKERS,
            true if !looks_up => 1,
            true if is_background => BACKGROUND_WORKERS,
            _ => MOST_WORKERS,
        };
        let workers = workers.min(most_workers);
        let queue_us = match (device.seeks(), is_background) {
            (false, _) => QUEUE_US / workers as f64,
            (true, true) => BACKGROUND_QUEUE_US,
            // With a longer queue, the disk's scheduler sorts better.
            (true, false) => f64::INFINITY,
        };
        Pacing { workers, queue_us }
    }

    /// The same with a worker for each block in flight ([`blocks_in_flight`]). The queue of the others stays as long.
    pub fn with_blocks(self, blocks_in_flight: usize) -> Pacing {
        let workers = self.workers.max(blocks_in_flight);
        Pacing { workers, queue_us: self.queue_us * self.workers as f64 / workers as f64 }
    }
}

/// The requests of a worker that have not arrived yet, the oldest first.
///
/// The kernel's queue is first in, first out, and grows with our requests. A page that the program needs and that is not requested yet waits
/// behind all of them. So each worker waits for its oldest requests before it continues.
#[derive(Debug)]
pub struct Queued<T> {
    waiting: VecDeque<(T, f64)>,
    queued_us: f64,
    most_us: f64,
}

impl<T> Queued<T> {
    /// An empty queue. `most_us`: maximum device time of its requests, microseconds; infinite: no request is awaited.
    pub fn new(most_us: f64) -> Queued<T> {
        Queued { waiting: VecDeque::new(), queued_us: 0.0, most_us }
    }

    /// Drops all requests without waiting.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.queued_us = 0.0;
    }

    /// A request was made. `takes_us`: its device time, microseconds.
    pub fn push(&mut self, request: T, takes_us: f64) {
        if self.most_us.is_finite() {
            self.waiting.push_back((request, takes_us));
            self.queued_us += takes_us;
        }
    }

    /// The oldest request, if it must arrive before the worker continues: until the others are short enough, and `most` or fewer.
    pub fn overdue(&self, most: usize) -> Option<&T> {
        let is_long = self.queued_us > self.most_us || self.waiting.len() > most;
        self.waiting.front().filter(|_| is_long && self.waiting.len() > 1).map(|(request, _)| request)
    }

    /// Takes the oldest request out: it has arrived.
    pub fn pop(&mut self) -> Option<T> {
        let (request, takes_us) = self.waiting.pop_front()?;
        self.queued_us -= takes_us;
        Some(request)
    }
}

/// Maximum device time of blocks in flight, microseconds. A worker that has its block waits for a processor before it reads the next, and the
/// device must not be idle meanwhile. Measured on a modelled solid-state disk with four busy programs on two processors (`ways` in bench/folios):
/// 512 MiB take 1.3 s with 8 ms in flight, 1.05 s with 16, and 1.0 to 1.1 s with 32, as with `FADV_WILLNEED`.
const BLOCKS_US: f64 = 32_000.0;

/// Minimum number of blocks in flight. So a block takes at most 8 ms, as long as the queue of other ranges.
const LEAST_BLOCKS: usize = 4;

/// The number of blocks of this size that `workers` read at the same time, as one large folio each. 0: blocks are read as other ranges,
/// because there are fewer workers, or the device is slow: there it takes a hundred times as long as the processor saves. On a device that
/// seeks, one worker keeps the order.
pub fn blocks_in_flight(device: &DeviceDescription, block_bytes: u64, workers: usize) -> usize {
    let most = (BLOCKS_US / device.transfer_us(block_bytes).max(1.0)) as usize;
    let in_flight = most.min(workers);
    if device.seeks() || in_flight < LEAST_BLOCKS { 0 } else { in_flight }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_leaves_a_rotating_disk_room_and_flash_as_it_is() {
        let pacing = |device, looks_up, is_background| Pacing::new(&device, looks_up, is_background, MOST_WORKERS);
        let (rotating, flash) = (DeviceDescription::ROTATING, DeviceDescription::FLASH);
        assert_eq!(pacing(rotating, false, false), Pacing { workers: 1, queue_us: f64::INFINITY });
        assert_eq!(pacing(rotating, true, true), Pacing { workers: 2, queue_us: 24_000.0 });
        assert_eq!(pacing(flash, false, true), pacing(flash, false, false));
    }

    #[test]
    fn few_workers_share_the_queue() {
        let pacing = |device, most_workers| Pacing::new(&device, true, false, most_workers);
        assert_eq!(pacing(DeviceDescription::FLASH, 1), Pacing { workers: 1, queue_us: 8000.0 });
        assert_eq!(pacing(DeviceDescription::FLASH, 2), Pacing { workers: 2, queue_us: 4000.0 });
        assert_eq!(pacing(DeviceDescription::ROTATING, 1), Pacing { workers: 1, queue_us: f64::INFINITY });
    }

    #[test]
    fn oldest_request_is_awaited_while_the_others_are_too_long_or_too_many() {
        let mut queued = Queued::new(10.0);
        queued.push('a', 50.0);
        assert_eq!(queued.overdue(MOST_WAITING), None);
        queued.push('b', 4.0);
        assert_eq!(queued.overdue(MOST_WAITING), Some(&'a'));
        assert_eq!((queued.pop(), queued.overdue(MOST_WAITING)), (Some('a'), None));
        queued.push('c', 4.0);
        assert_eq!((queued.overdue(2), queued.overdue(1)), (None, Some(&'b')));
        let mut unlimited = Queued::new(f64::INFINITY);
        unlimited.push('a', 1.0);
        assert_eq!(unlimited.pop(), None);
    }

    #[test]
    fn blocks_are_in_flight_where_each_takes_at_most_8_ms() {
        let blocks = |bandwidth_bytes_per_s, workers| {
            let device = DeviceDescription { bandwidth_bytes_per_s, ..DeviceDescription::FLASH };
            blocks_in_flight(&device, 2 << 20, workers)
        };
        assert_eq!([125e6, 250e6, 270e6, 500e6, 3e9].map(|bandwidth| blocks(bandwidth, 16)), [0, 0, 4, 7, 16]);
        assert_eq!((blocks(3.4e9, 4), blocks(3.4e9, 3)), (4, 0));
        let pacing = Pacing { workers: 4, queue_us: 2000.0 };
        assert_eq!((pacing.with_blocks(2), pacing.with_blocks(16).queue_us), (pacing, 500.0));
        assert_eq!((blocks(3e9, 1), blocks_in_flight(&DeviceDescription::ROTATING, 1 << 12, 4)), (0, 0));
    }
}
