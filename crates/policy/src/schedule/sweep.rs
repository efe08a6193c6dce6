//! Items that are ready to be read, by device. Pure.
//!
//! ```text
//!     rotating disk    head ▶  ·  ·   ·  ·      one request after the other, upwards, and again from the bottom
//!     other devices    any number at once       urgent items first, the rest upwards
//! ```
//!
//! On a rotating disk the order decides: between two items of one sweep the platter turns on, or the arm moves by a track, while an item
//! out of turn costs two long moves. So there is no urgent item there, and one worker at a time.

use std::collections::{BTreeMap, BTreeSet};

/// The position of an item's data, for sorting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Key of the device.
    pub device: u64,
    /// An access costs more the farther the head moves.
    pub is_rotating: bool,
    /// Position on the device, or the number of the inode.
    pub position: u64,
}

/// The ready items of one device.
#[derive(Debug, Default)]
struct Sweep {
    /// Positions and indices.
    ready: BTreeSet<(u64, u64)>,
    head: (u64, u64),
}

impl Sweep {
    fn next(&self) -> Option<(u64, u64)> {
        self.ready.range(self.head..).next().or_else(|| self.ready.first()).copied()
    }
}

/// The ready items of all devices.
#[derive(Debug, Default)]
pub struct Sweeps {
    devices: BTreeMap<u64, Sweep>,
    /// Ready items that may go first.
    may_be_urgent: BTreeSet<u64>,
    /// Items that are being read on rotating disks, and their devices: at most one for each device.
    reading: BTreeMap<u64, u64>,
    last_device: u64,
}

impl Sweeps {
    /// Adds an item that is ready.
    pub fn insert(&mut self, place: Place, index: u64) {
        self.devices.entry(place.device).or_default().ready.insert((place.position, index));
        if !place.is_rotating {
            self.may_be_urgent.insert(index);
        }
    }

    /// Takes an item out that is not to be read any more.
    pub fn remove(&mut self, place: Place, index: u64) {
        self.may_be_urgent.remove(&index);
        if let Some(sweep) = self.devices.get_mut(&place.device) {
            sweep.ready.remove(&(place.position, index));
        }
    }

    /// The reading of an item begins.
    pub fn start(&mut self, place: Place, index: u64) {
        self.remove(place, index);
        if place.is_rotating {
            self.reading.insert(index, place.device);
        }
        self.last_device = place.device;
        if let Some(sweep) = self.devices.get_mut(&place.device) {
            sweep.head = (place.position, index);
        }
    }

    /// The reading of an item has ended.
    pub fn end(&mut self, index: u64) {
        self.reading.remove(&index);
    }

    /// The first item before index `end` that may be read out of turn.
    pub fn urgent(&self, end: u64) -> Option<u64> {
        self.may_be_urgent.first().copied().filter(|index| *index < end)
    }

    /// The next item in the order of a device. The devices take turns.
    pub fn next(&self) -> Option<u64> {
        let after = self.devices.range(self.last_device.saturating_add(1)..);
        let free = after.chain(self.devices.range(..=self.last_device));
        free.filter(|(device, _)| !self.is_busy(**device)).find_map(|(_, sweep)| Some(sweep.next()?.1))
    }

    /// Whether an item waits for its turn on a rotating disk, or is being read there.
    pub fn is_rotating(&self) -> bool {
        !self.reading.is_empty()
            || self.devices.values().map(|sweep| sweep.ready.len()).sum::<usize>() > self.may_be_urgent.len()
    }

    fn is_busy(&self, device: u64) -> bool {
        self.reading.values().any(|busy| *busy == device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(device: u64, position: u64) -> Place {
        Place { device, is_rotating: device < 10, position }
    }

    fn start_next(sweeps: &mut Sweeps, places: &[Place]) -> Option<u64> {
        let index = sweeps.next()?;
        sweeps.start(places[index as usize], index);
        Some(index)
    }

    #[test]
    fn rotating_disk_has_one_item_at_a_time_and_sweeps_upwards() {
        let places = [place(1, 50), place(1, 10), place(1, 70), place(1, 20)];
        let mut sweeps = Sweeps::default();
        (0..3).for_each(|index| sweeps.insert(places[index as usize], index));
        assert_eq!((sweeps.urgent(u64::MAX), start_next(&mut sweeps, &places)), (None, Some(1)));
        assert_eq!(start_next(&mut sweeps, &places), None);
        sweeps.end(1);
        assert_eq!(start_next(&mut sweeps, &places), Some(0));
        sweeps.insert(places[3], 3);
        sweeps.end(0);
        assert_eq!(start_next(&mut sweeps, &places), Some(2));
        sweeps.end(2);
        assert_eq!(start_next(&mut sweeps, &places), Some(3));
        assert!(sweeps.is_rotating());
        sweeps.end(3);
        assert!(!sweeps.is_rotating() && sweeps.next().is_none());
    }

    #[test]
    fn devices_take_turns_and_a_busy_disk_holds_up_none() {
        let places = [place(1, 1), place(1, 2), place(20, 2), place(20, 1), place(2, 1)];
        let mut sweeps = Sweeps::default();
        (0..5).for_each(|index| sweeps.insert(places[index as usize], index));
        assert_eq!(sweeps.urgent(u64::MAX), Some(2));
        let order: Vec<u64> = std::iter::from_fn(|| start_next(&mut sweeps, &places)).collect();
        assert_eq!(order, [0, 4, 3, 2]);
        sweeps.end(0);
        assert_eq!(start_next(&mut sweeps, &places), Some(1));
    }

    #[test]
    fn removed_item_is_not_read() {
        let mut sweeps = Sweeps::default();
        sweeps.insert(place(20, 1), 0);
        sweeps.remove(place(20, 1), 0);
        assert_eq!((sweeps.urgent(u64::MAX), sweeps.next()), (None, None));
    }
}
