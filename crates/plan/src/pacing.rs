//! The pace of a plan's execution: number of threads, and queued device time. The real prefetch and the simulated one share it.

use ahead_model::DeviceDescription;

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
}
