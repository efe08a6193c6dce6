//! How fast a plan is carried out: by how many threads, and with how much queued at the device. Shared by the real prefetch and the
//! simulated one.

use ahead_model::DeviceDescription;

/// Threads of one device at most, and so the depth of its queue while paths are looked up.
pub const MOST_WORKERS: usize = 16;

/// Threads where first use is the order and metadata is read by itself: an opening may wait for a block on its way, and
/// the others go on meanwhile.
const WORKERS: usize = 4;

/// Threads where paths are looked up on a rotating disk in the background: each has one read under way, and another program's
/// read waits for all of these.
const BACKGROUND_WORKERS: usize = 2;

/// Device time that may be queued if the order is that of first use, microseconds: the longest wait of a page that the
/// plan does not have. Measured on a modelled network volume and a modelled solid-state disk: from 4 to 16 ms nothing
/// changes; without a limit, `git status` on the volume took a fifth longer, because a few late requests waited for 60 ms.
const QUEUE_US: f64 = 8000.0;

/// The same of a rotating disk in the background, microseconds: two requests with an average access each. The one is read
/// while the other waits, and so the disk always has something to do.
const BACKGROUND_QUEUE_US: f64 = 24_000.0;

/// Requests that a worker has under way at most: each holds a file open. With four workers twice what a queue of flash
/// takes at a time.
pub const MOST_WAITING: usize = 32;

/// Reads that are timed to see whether a device is as described. An odd number has a median; as many hops of a rotating disk, waited for
/// one by one, cost at most as many half turns of the platter more than in a queue: 30 ms.
pub const TIMED_READS: usize = 7;

/// The pace of one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pacing {
    /// Threads where order does not matter, or not yet: for all steps of a device that does not seek, else for its metadata.
    pub workers: usize,
    /// How much of the device's time each worker has queued at most, microseconds.
    pub queue_us: f64,
}

impl Pacing {
    /// Of a device like this. `looks_up`: paths are looked up on it; `is_background`: other programs come first.
    pub fn new(device: &DeviceDescription, looks_up: bool, is_background: bool) -> Pacing {
        let workers = match device.seeks() {
            false if !looks_up => WORKERS,
            true if !looks_up => 1,
            true if is_background => BACKGROUND_WORKERS,
            _ => MOST_WORKERS,
        };
        Pacing::of_workers(workers, device, is_background)
    }

    /// With one thread for everything: a program that has all it needs is not to be disturbed.
    pub fn alone(device: &DeviceDescription, is_background: bool) -> Pacing {
        Pacing::of_workers(1, device, is_background)
    }

    fn of_workers(workers: usize, device: &DeviceDescription, is_background: bool) -> Pacing {
        let queue_us = match (device.seeks(), is_background) {
            (false, _) => QUEUE_US / workers as f64,
            (true, true) => BACKGROUND_QUEUE_US,
            // The more is queued, the better the disk's scheduler sorts.
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
        let pacing = |device, looks_up, is_background| Pacing::new(&device, looks_up, is_background);
        let (rotating, flash) = (DeviceDescription::ROTATING, DeviceDescription::FLASH);
        assert_eq!(pacing(rotating, false, false), Pacing { workers: 1, queue_us: f64::INFINITY });
        assert_eq!(pacing(rotating, true, true), Pacing { workers: 2, queue_us: 24_000.0 });
        assert_eq!(pacing(flash, false, true), pacing(flash, false, false));
        assert_eq!(Pacing::alone(&flash, false), Pacing { workers: 1, queue_us: 8000.0 });
    }
}
