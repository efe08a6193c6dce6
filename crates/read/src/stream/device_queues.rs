//! Bounded queues of work, one for each device, served in turn. Pure.
//!
//! ```text
//!     device 8:0    ├ waiting, at most 32 ┤ ─▶ at most 2 running        a device that hangs holds its own two places,
//!     device 7:1    ├ waiting             ┤ ─▶ 1 running: it rotates    and no place of another device
//! ```

use ahead_model::DeviceNumber;
use std::collections::VecDeque;

/// Work that waits for one device. A full queue means that the device is far behind its readers; they ask again later.
const WAITING: usize = 32;

/// Work that runs for one device at the same time. A request to read ahead ends when it is submitted, so two keep a device busy.
const RUNNING: usize = 2;

/// As [`RUNNING`], for a disk that rotates: two threads could submit in the other order, and the head would move back and forth.
const RUNNING_ROTATING: usize = 1;

#[derive(Debug)]
struct Device<J> {
    number: DeviceNumber,
    is_rotating: bool,
    waiting: VecDeque<J>,
    running: usize,
}

/// The queues of all devices.
#[derive(Debug)]
pub(crate) struct DeviceQueues<J> {
    devices: Vec<Device<J>>,
    /// The device that is served next.
    next: usize,
}

impl<J> DeviceQueues<J> {
    pub const fn new() -> DeviceQueues<J> {
        DeviceQueues { devices: Vec::new(), next: 0 }
    }

    /// Whether `count` pieces of work fit into the queue of a device. An empty queue takes any number.
    pub fn has_room(&self, number: DeviceNumber, count: usize) -> bool {
        let device = self.devices.iter().find(|device| device.number == number);
        device.is_none_or(|device| device.waiting.is_empty() || device.waiting.len() + count <= WAITING)
    }

    /// Queues work, whether or not there is room.
    pub fn push(&mut self, number: DeviceNumber, is_rotating: bool, job: J) {
        let index = self.devices.iter().position(|device| device.number == number).unwrap_or_else(|| {
            self.devices.push(Device { number, is_rotating, waiting: VecDeque::new(), running: 0 });
            self.devices.len() - 1
        });
        self.devices[index].waiting.push_back(job);
    }

    /// Work that waits, of all devices.
    pub fn waiting(&self) -> usize {
        self.devices.iter().map(|device| device.waiting.len()).sum()
    }

    /// The next work of a device that may run more: it is running now.
    pub fn take(&mut self) -> Option<(DeviceNumber, J)> {
        let count = self.devices.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let device = &mut self.devices[index];
            let most = if device.is_rotating { RUNNING_ROTATING } else { RUNNING };
            if device.running < most
                && let Some(job) = device.waiting.pop_front()
            {
                device.running += 1;
                let number = device.number;
                self.next = (index + 1) % count;
                return Some((number, job));
            }
        }
        None
    }

    /// Work of a device has ended.
    pub fn done(&mut self, number: DeviceNumber) {
        if let Some(index) = self.devices.iter().position(|device| device.number == number) {
            let device = &mut self.devices[index];
            device.running -= 1;
            if device.running == 0 && device.waiting.is_empty() {
                self.devices.swap_remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: DeviceNumber = DeviceNumber::new(8, 0);
    const OTHER: DeviceNumber = DeviceNumber::new(7, 1);

    #[test]
    fn device_that_hangs_does_not_hold_up_another() {
        let mut queues = DeviceQueues::new();
        (0..40).for_each(|job| queues.push(ONE, false, job));
        queues.push(OTHER, false, 99);
        let mut taken: Vec<_> = std::iter::from_fn(|| queues.take()).collect();
        taken.sort();
        assert_eq!(taken, [(OTHER, 99), (ONE, 0), (ONE, 1)]);
        queues.done(OTHER);
        assert_eq!(queues.take(), None);
        queues.done(ONE);
        assert_eq!(queues.take(), Some((ONE, 2)));
    }

    #[test]
    fn disk_that_rotates_gets_one_request_after_the_other() {
        let mut queues = DeviceQueues::new();
        (0..2).for_each(|job| queues.push(ONE, true, job));
        assert_eq!((queues.take(), queues.take()), (Some((ONE, 0)), None));
        queues.done(ONE);
        assert_eq!(queues.take(), Some((ONE, 1)));
    }

    #[test]
    fn queue_is_bounded_but_takes_one_long_request() {
        let mut queues = DeviceQueues::new();
        assert!(queues.has_room(ONE, 1000));
        (0..31).for_each(|job| queues.push(ONE, false, job));
        assert!(queues.has_room(ONE, 1) && !queues.has_room(ONE, 2) && queues.has_room(OTHER, 33));
    }

    #[test]
    fn idle_devices_are_forgotten() {
        let mut queues = DeviceQueues::new();
        queues.push(ONE, false, 1);
        assert_eq!(queues.take(), Some((ONE, 1)));
        queues.done(ONE);
        assert!(queues.devices.is_empty());
    }
}
