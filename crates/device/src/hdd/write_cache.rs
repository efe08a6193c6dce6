//! Written data that is not on the platter yet.
//!
//! ```text
//!     write ──▶ cache ──▶ done           if the cache is full, the head first moves and writes the oldest data
//!                 │
//!                 └─ no request for a turn ──▶ the head writes until the next request
//! ```
//!
//! Data is written to the platter in the order of arrival, together with data that continues it. So a drive that
//! receives only writes writes at the platter's rate. With reads in between, the head moves back and forth as soon as
//! the cache is full. Real drives sort writes by position; this is not modelled.

use std::collections::VecDeque;

use super::HddState;
use crate::time::{later, transfer_ns};

/// The write cache of a drive.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    limit_bytes: u64,
    bytes: u64,
    /// Its content, `(start, end)`, the oldest first.
    extents: VecDeque<(u64, u64)>,
    /// The head is writing the first extent.
    writing: bool,
    /// The head is busy until this time.
    head_free_ns: u64,
}

impl WriteCache {
    pub(super) fn new(limit_bytes: u64) -> WriteCache {
        WriteCache { limit_bytes, bytes: 0, extents: VecDeque::new(), writing: false, head_free_ns: 0 }
    }

    /// Whether the cache holds the whole range.
    pub(super) fn holds(&self, offset: u64, end: u64) -> bool {
        self.extents.iter().any(|&(from, to)| from <= offset && end <= to)
    }

    /// The head serves another request until this time.
    pub(super) fn interrupt(&mut self, until_ns: u64) {
        self.writing = false;
        self.head_free_ns = until_ns;
    }

    fn add(&mut self, start: u64, end: u64) {
        self.bytes += end - start;
        match self.extents.back_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.extents.push_back((start, end)),
        }
    }

    /// The first extent is on the platter up to this position.
    fn written(&mut self, to: u64, at_ns: u64) {
        if let Some((start, end)) = self.extents.front_mut() {
            self.bytes -= to - *start;
            *start = to;
            if to == *end {
                self.extents.pop_front();
                self.writing = false;
            }
        }
        self.head_free_ns = at_ns;
    }
}

impl HddState {
    /// Writes to the cache when there is room. Returns the time of completion, and whether the head had to move for it.
    pub(super) fn write(&mut self, offset: u64, length_bytes: u64, start_ns: u64) -> (u64, bool) {
        let ready_ns = later(start_ns, self.overhead_ns);
        let handed_over_ns = later(ready_ns, transfer_ns(length_bytes, self.interface_mb_per_s));
        if length_bytes == 0 {
            return (handed_over_ns, false);
        }
        self.write_while_idle(start_ns);
        if self.write_cache.extents.is_empty() {
            // The cache was empty: the drive writes the data to the platter as it arrives.
            self.write_cache.head_free_ns = self.write_cache.head_free_ns.max(ready_ns);
        }
        self.write_cache.add(offset, offset + length_bytes);
        let (mut room_ns, mut seeked) = (ready_ns, false);
        while let Some((start, end)) = self.write_cache.extents.front().copied()
            && let Some(too_many) = self.write_cache.bytes.checked_sub(self.write_cache.limit_bytes + 1)
        {
            seeked |= self.begin_writing(start, end, self.write_cache.head_free_ns.max(start_ns));
            let to = end.min(start.saturating_add(too_many + 1));
            room_ns = room_ns.max(self.passed_ns(to, self.stream.shift_ns));
            self.write_cache.written(to, room_ns);
        }
        (room_ns.max(handed_over_ns), seeked)
    }

    /// No request arrived until then: the drive writes, if the pause was long enough.
    pub(super) fn write_while_idle(&mut self, until_ns: u64) {
        while let Some((start, end)) = self.write_cache.extents.front().copied() {
            let mut from_ns = self.write_cache.head_free_ns;
            if !self.write_cache.writing {
                from_ns = later(from_ns, self.geometry.turn_ns());
            }
            if from_ns >= until_ns {
                return;
            }
            self.begin_writing(start, end, from_ns);
            let ends_ns = self.passed_ns(end, self.stream.shift_ns);
            if ends_ns > until_ns {
                let to = self.head_at(until_ns).clamp(start, end);
                return self.write_cache.written(to, until_ns);
            }
            self.write_cache.written(end, ends_ns);
        }
    }

    /// Moves the head to the first extent, unless it is there; returns whether it moved.
    fn begin_writing(&mut self, start: u64, end: u64, from_ns: u64) -> bool {
        let goes = !self.write_cache.writing;
        if goes {
            let way = self.by_seek(start, start, from_ns, from_ns);
            self.leave_stream(from_ns);
            self.stream = super::HddStream { start, shift_ns: way.shift_ns, limit: end };
            self.write_cache.writing = true;
        }
        self.stream.limit = end;
        goes
    }
}
