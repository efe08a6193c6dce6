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

/// Work that runs for one device at the same time. A request to read ahead ends when it is submitted, so two keep a device busy, and one that opens
/// a file slowly does not delay the other.
pub const RUNNING: usize = 2;

/// As [`RUNNING`], for a disk that rotates: two threads could submit in the other order, and the head would move back and forth.
pub const RUNNING_ROTATING: usize = 1;

#[derive(Debug)]
struct Lane<J> {
    device: DeviceNumber,
    most_running: usize,
    waiting: VecDeque<J>,
    running: usize,
}

/// The queues of all devices.
#[derive(Debug)]
pub struct Lanes<J> {
    lanes: Vec<Lane<J>>,
    /// The lane that is served next.
    next: usize,
}

impl<J> Default for Lanes<J> {
    fn default() -> Lanes<J> {
        Lanes { lanes: Vec::new(), next: 0 }
    }
}

impl<J> Lanes<J> {
    fn index(&self, device: DeviceNumber) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.device == device)
    }

    /// Whether `count` pieces of work fit into the queue of a device. An empty queue takes any number.
    pub fn has_room(&self, device: DeviceNumber, count: usize) -> bool {
        let waiting = self.waiting(device, |_| true);
        waiting == 0 || waiting + count <= WAITING
    }

    /// Queues work, whether or not there is room. `most_running`: of this device, set by the first work that waits for it.
    pub fn push(&mut self, device: DeviceNumber, most_running: usize, job: J) {
        let index = self.index(device).unwrap_or_else(|| {
            self.lanes.push(Lane { device, most_running, waiting: VecDeque::new(), running: 0 });
            self.lanes.len() - 1
        });
        self.lanes[index].waiting.push_back(job);
    }

    /// Work of this kind that waits for a device.
    pub fn waiting(&self, device: DeviceNumber, counts: impl Fn(&J) -> bool) -> usize {
        self.index(device).map_or(0, |index| self.lanes[index].waiting.iter().filter(|job| counts(job)).count())
    }

    /// Work that could run now, of all devices.
    pub fn ready(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting.len().min(lane.most_running - lane.running)).sum()
    }

    /// Work that runs, of all devices.
    pub fn running(&self) -> usize {
        self.lanes.iter().map(|lane| lane.running).sum()
    }

    /// Takes the work back that was queued last for a device.
    pub fn take_back(&mut self, device: DeviceNumber) -> Option<J> {
        let index = self.index(device)?;
        let job = self.lanes[index].waiting.pop_back();
        self.retain(|_| true);
        job
    }

    /// Whether no work waits, of any device.
    pub fn are_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.is_empty())
    }

    /// Drops the work that waits and is not kept.
    pub fn retain(&mut self, keeps: impl Fn(&J) -> bool) {
        self.lanes.iter_mut().for_each(|lane| lane.waiting.retain(&keeps));
        self.lanes.retain(|lane| lane.running > 0 || !lane.waiting.is_empty());
    }

    /// The next work of a device that may run more: it is running now.
    pub fn take(&mut self) -> Option<(DeviceNumber, J)> {
        let count = self.lanes.len();
        for step in 0..count {
            let index = (self.next + step) % count;
            let lane = &mut self.lanes[index];
            if lane.running < lane.most_running
                && let Some(job) = lane.waiting.pop_front()
            {
                lane.running += 1;
                self.next = (index + 1) % count;
                return Some((lane.device, job));
            }
        }
        None
    }

    /// Work of a device has ended.
    pub fn done(&mut self, device: DeviceNumber) {
        if let Some(index) = self.index(device) {
            let lane = &mut self.lanes[index];
            lane.running -= 1;
            if lane.running == 0 && lane.waiting.is_empty() {
                self.lanes.swap_remove(index);
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
        let mut lanes = Lanes::default();
        (0..40).for_each(|job| lanes.push(ONE, RUNNING, job));
        lanes.push(OTHER, RUNNING, 99);
        let mut taken: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
        taken.sort();
        assert_eq!(taken, [(OTHER, 99), (ONE, 0), (ONE, 1)]);
        lanes.done(OTHER);
        assert_eq!(lanes.take(), None);
        lanes.done(ONE);
        assert_eq!(lanes.take(), Some((ONE, 2)));
    }

    #[test]
    fn disk_that_rotates_gets_one_request_after_the_other() {
        let mut lanes = Lanes::default();
        (0..2).for_each(|job| lanes.push(ONE, RUNNING_ROTATING, job));
        assert_eq!((lanes.take(), lanes.take()), (Some((ONE, 0)), None));
        lanes.done(ONE);
        assert_eq!(lanes.take(), Some((ONE, 1)));
    }

    #[test]
    fn queue_is_bounded_but_takes_one_long_request() {
        let mut lanes = Lanes::default();
        assert!(lanes.has_room(ONE, 1000));
        (0..31).for_each(|job| lanes.push(ONE, RUNNING, job));
        assert!(lanes.has_room(ONE, 1) && !lanes.has_room(ONE, 2) && lanes.has_room(OTHER, 33));
    }

    #[test]
    fn idle_devices_are_forgotten() {
        let mut lanes = Lanes::default();
        lanes.push(ONE, RUNNING, 1);
        assert_eq!(lanes.take(), Some((ONE, 1)));
        lanes.done(ONE);
        assert!(lanes.lanes.is_empty());
    }
}
