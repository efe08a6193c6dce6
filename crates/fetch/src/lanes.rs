//! Bounded queues of work, one for each device. Pure.
//!
//! ```text
//!     device 8:0    ├ waiting, at most 32 ┤ ─▶ at most 2 running        a device that hangs holds its own two places,
//!     device 7:1    ├ waiting             ┤ ─▶ 1 running: it rotates    and no place of another device
//! ```
//!
//! The device with the least work running is served first; of equal ones, each in turn.

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
struct Lane<J, K> {
    device: K,
    /// Each with the number of pieces of work, itself included, up to which it may run.
    waiting: VecDeque<(usize, J)>,
    running: usize,
}

impl<J, K> Lane<J, K> {
    fn ready(&self) -> usize {
        let places = self.waiting.iter().enumerate().take_while(|(index, (most, _))| self.running + index < *most);
        places.count()
    }
}

/// The queues of all devices. `K`: what a device is known by.
#[derive(Debug)]
pub struct Lanes<J, K = DeviceNumber> {
    lanes: Vec<Lane<J, K>>,
    /// The lane that is served next.
    next: usize,
    /// Work that has ended.
    ended: u64,
}

impl<J, K> Default for Lanes<J, K> {
    fn default() -> Lanes<J, K> {
        Lanes { lanes: Vec::new(), next: 0, ended: 0 }
    }
}

impl<J, K: Copy + Eq> Lanes<J, K> {
    fn index(&self, device: K) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.device == device)
    }

    /// The devices for which work runs.
    pub fn at_work(&self) -> impl Iterator<Item = K> + '_ {
        self.lanes.iter().filter(|lane| lane.running > 0).map(|lane| lane.device)
    }

    /// The devices for which work waits and none runs.
    pub fn idle(&self) -> impl Iterator<Item = K> + '_ {
        self.lanes.iter().filter(|lane| lane.running == 0).map(|lane| lane.device)
    }

    /// Whether `count` pieces of work fit into the queue of a device. An empty queue takes any number.
    pub fn has_room(&self, device: K, count: usize) -> bool {
        let waiting = self.waiting(device, |_| true);
        waiting == 0 || waiting + count <= WAITING
    }

    /// Queues work, whether or not there is room. It begins when less than `most_running` runs for the device.
    pub fn push(&mut self, device: K, most_running: usize, job: J) {
        let index = self.index(device).unwrap_or_else(|| {
            self.lanes.push(Lane { device, waiting: VecDeque::new(), running: 0 });
            self.lanes.len() - 1
        });
        self.lanes[index].waiting.push_back((most_running, job));
    }

    /// Work of this kind that waits for a device.
    pub fn waiting(&self, device: K, counts: impl Fn(&J) -> bool) -> usize {
        self.index(device).map_or(0, |index| self.lanes[index].waiting.iter().filter(|(_, job)| counts(job)).count())
    }

    /// Work that could run now, of all devices.
    pub fn ready(&self) -> usize {
        self.lanes.iter().map(Lane::ready).sum()
    }

    /// Work that runs, of all devices.
    pub fn running(&self) -> usize {
        self.lanes.iter().map(|lane| lane.running).sum()
    }

    /// Work that runs for a device.
    pub fn running_of(&self, device: K) -> usize {
        self.index(device).map_or(0, |index| self.lanes[index].running)
    }

    /// Work that has ended so far.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Takes the work back that was queued last for a device.
    pub fn take_back(&mut self, device: K) -> Option<J> {
        let index = self.index(device)?;
        let job = self.lanes[index].waiting.pop_back();
        self.retain(|_, _| true);
        job.map(|(_, job)| job)
    }

    /// Whether no work waits, of any device.
    pub fn are_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.is_empty())
    }

    /// Drops the work that waits and is not kept.
    pub fn retain(&mut self, keeps: impl Fn(K, &J) -> bool) {
        self.lanes.iter_mut().for_each(|lane| lane.waiting.retain(|(_, job)| keeps(lane.device, job)));
        self.lanes.retain(|lane| lane.running > 0 || !lane.waiting.is_empty());
    }

    /// The next work of a device that may run more: it is running now.
    pub fn take(&mut self) -> Option<(K, J)> {
        let count = self.lanes.len();
        let in_turn = (0..count).map(|step| (self.next + step) % count).filter(|index| self.lanes[*index].ready() > 0);
        let index = in_turn.min_by_key(|index| self.lanes[*index].running)?;
        let lane = &mut self.lanes[index];
        let (_, job) = lane.waiting.pop_front()?;
        lane.running += 1;
        self.next = (index + 1) % count;
        Some((lane.device, job))
    }

    /// Work of a device has ended.
    pub fn done(&mut self, device: K) {
        self.ended += 1;
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
    fn device_without_running_work_is_served_first() {
        let mut lanes = Lanes::default();
        (0..3).for_each(|job| lanes.push(ONE, 3, job));
        lanes.push(OTHER, 1, 9);
        lanes.push(OTHER, 1, 10);
        let taken: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
        assert_eq!(taken, [(ONE, 0), (OTHER, 9), (ONE, 1), (ONE, 2)]);
        assert_eq!((lanes.ready(), lanes.running()), (0, 4));
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
