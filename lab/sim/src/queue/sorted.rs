//! Waiting requests of one kind: by age, by start, by end.

use super::Waiting;
use ahead_policy::FileId;
use std::collections::BTreeMap;

/// Reads, or writes. Numbers of requests are in the order of age.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    waiting: BTreeMap<u64, Waiting>,
    by_place: BTreeMap<(u64, u64), u64>,
    by_end: BTreeMap<(u64, u64), u64>,
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The number of the oldest request, and the start of its wait.
    pub(super) fn oldest(&self) -> Option<(u64, u64)> {
        self.waiting.first_key_value().map(|(id, request)| (*id, request.since_ns))
    }

    /// The first request from a place on: its start and its number.
    pub(super) fn upwards(&self, from_bytes: u64) -> Option<(u64, u64)> {
        self.by_place.range((from_bytes, 0)..).next().map(|((place, _), id)| (*place, *id))
    }

    /// The request with the lowest place.
    pub(super) fn first(&self) -> Option<(u64, u64)> {
        self.upwards(0)
    }

    /// The processes that wait, those with the oldest requests first.
    pub(super) fn askers(&self) -> Vec<FileId> {
        let mut askers = Vec::new();
        for asker in self.waiting.values().map(Waiting::asker) {
            if !askers.contains(&asker) {
                askers.push(asker);
            }
        }
        askers
    }

    /// The first request of `asker` from a place on, or else its lowest one.
    pub(super) fn next_of(&self, asker: FileId, from_bytes: u64) -> Option<u64> {
        let is_of = |id: &&u64| self.waiting.get(*id).is_some_and(|request| request.asker() == asker);
        let upwards = self.by_place.range((from_bytes, 0)..).map(|(_, id)| id).find(is_of);
        upwards.or_else(|| self.by_place.values().find(is_of)).copied()
    }

    /// Merges a request with an adjacent waiting one. Returns the request if none fits.
    pub(super) fn merged(&mut self, request: Waiting, longest_bytes: u64) -> Option<Waiting> {
        let fits = |other: &Waiting| other.length_bytes + request.length_bytes <= longest_bytes;
        let before = self.by_end.range((request.offset_bytes, 0)..=(request.offset_bytes, u64::MAX)).next();
        if let Some(id) = before.map(|(_, id)| *id)
            && self.waiting.get(&id).is_some_and(fits)
        {
            let mut other = self.remove(id)?;
            other.length_bytes += request.length_bytes;
            other.ranges.extend(request.ranges);
            self.insert(id, other);
            return None;
        }
        let end = request.end_bytes();
        let after = self.by_place.range((end, 0)..=(end, u64::MAX)).next();
        if let Some(id) = after.map(|(_, id)| *id)
            && self.waiting.get(&id).is_some_and(fits)
        {
            let mut other = self.remove(id)?;
            other.offset_bytes = request.offset_bytes;
            other.length_bytes += request.length_bytes;
            other.ranges.splice(0..0, request.ranges);
            self.insert(id, other);
            return None;
        }
        Some(request)
    }

    pub(super) fn insert(&mut self, id: u64, request: Waiting) {
        self.by_place.insert((request.offset_bytes, id), id);
        self.by_end.insert((request.end_bytes(), id), id);
        self.waiting.insert(id, request);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Waiting> {
        let request = self.waiting.remove(&id)?;
        self.by_place.remove(&(request.offset_bytes, id));
        self.by_end.remove(&(request.end_bytes(), id));
        Some(request)
    }
}
