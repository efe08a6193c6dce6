//! The items from the taken one on: those without a path take no room.

use super::sweep::Place;
use std::collections::VecDeque;

/// What is known of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    LookingUp,
    Sized,
    Ready,
    Reading,
    Done,
}

/// An item with its path.
#[derive(Debug)]
pub struct Slot<P> {
    pub index: u64,
    pub path: Option<P>,
    pub stage: Stage,
    pub bytes: u64,
    pub place: Place,
    /// Reserved for this item.
    pub held_bytes: u64,
}

impl<P> Slot<P> {
    fn new(index: u64, path: Option<P>) -> Slot<P> {
        let stage = if path.is_some() { Stage::Waiting } else { Stage::Done };
        Slot { index, path, stage, bytes: 0, place: Place::default(), held_bytes: 0 }
    }
}

/// Items in the order of their indices.
#[derive(Debug)]
pub struct Slots<P> {
    slots: VecDeque<Slot<P>>,
    end: u64,
}

impl<P> Slots<P> {
    /// No items; the first one has index `end`.
    pub fn new(end: u64) -> Slots<P> {
        Slots { slots: VecDeque::new(), end }
    }

    /// The index of the next item to add.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Makes room for this number of items, and no more. `false`: there is no memory.
    pub fn reserve(&mut self, count: u64) -> bool {
        self.slots.try_reserve_exact(count as usize).is_ok()
    }

    /// Adds the next item; `None`: it has no file.
    pub fn push(&mut self, path: Option<P>) {
        self.slots.push_back(Slot::new(self.end, path));
        self.end += 1;
    }

    /// Leaves out the items before index `end`: their paths follow, if they are needed.
    pub fn skip_to(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Adds the items from index `from` on that were left out. `false`: there is no memory, and nothing has changed.
    pub fn fill(&mut self, from: u64, path_of: impl Fn(u64) -> Option<P>) -> bool {
        let mut slots = VecDeque::new();
        let missing = self.end.saturating_sub(from) as usize;
        if slots.try_reserve_exact(self.slots.len() + missing).is_err() {
            return false;
        }
        let mut known = std::mem::take(&mut self.slots).into_iter().peekable();
        slots.extend(std::iter::from_fn(|| known.next_if(|slot| slot.index < from)));
        for index in from..self.end {
            match known.next_if(|slot| slot.index == index) {
                Some(slot) => slots.push_back(slot),
                None => slots.push_back(Slot::new(index, path_of(index))),
            }
        }
        self.slots = slots;
        true
    }

    /// The item with this index, if it is there.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut Slot<P>> {
        let at = self.position(index);
        self.slots.get_mut(at).filter(|slot| slot.index == index)
    }

    /// As [`Self::get_mut`].
    pub fn get(&self, index: u64) -> Option<&Slot<P>> {
        self.slots.get(self.position(index)).filter(|slot| slot.index == index)
    }

    /// The index of the first item from this index on; without one, the end.
    pub fn next_from(&self, index: u64) -> u64 {
        self.slots.get(self.position(index)).map_or(self.end, |slot| slot.index)
    }

    /// Takes the first item out if its index is below `index`.
    pub fn pop_below(&mut self, index: u64) -> Option<Slot<P>> {
        if self.slots.front()?.index < index { self.slots.pop_front() } else { None }
    }

    /// The place of an index: at once where no item was left out.
    fn position(&self, index: u64) -> usize {
        let Some(first) = self.slots.front() else { return 0 };
        let guess = index.saturating_sub(first.index) as usize;
        match self.slots.get(guess) {
            Some(slot) if slot.index == index => guess,
            _ => self.slots.partition_point(|slot| slot.index < index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_were_left_out_are_added_in_their_places() {
        let mut slots = Slots::new(5);
        slots.push(Some(5));
        slots.skip_to(8);
        slots.push(None);
        slots.skip_to(10);
        assert_eq!((slots.end(), slots.next_from(6), slots.next_from(9)), (10, 8, 10));
        assert!(slots.get(7).is_none() && slots.get(5).is_some());
        assert!(slots.fill(6, Some));
        let stages: Vec<(u64, Option<u64>)> = slots.slots.iter().map(|slot| (slot.index, slot.path)).collect();
        assert_eq!(stages, [(5, Some(5)), (6, Some(6)), (7, Some(7)), (8, None), (9, Some(9))]);
        assert_eq!(slots.pop_below(6).map(|slot| slot.index), Some(5));
        assert!(slots.pop_below(6).is_none() && slots.get_mut(8).is_some_and(|slot| slot.stage == Stage::Done));
    }
}
