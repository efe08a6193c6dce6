//! What was written and is not on the platter yet.
//!
//! ```text
//!     write ──▶ cache ──▶ done           room is made first, if there is none: the head goes and writes what is oldest
//!                 │
//!                 └─ nothing asked for a turn ──▶ the head writes, until something is
//! ```
//!
//! Data goes to the platter in the order in which it came, what continues it at once. So a drive that is written to
//! alone writes at the platter's rate; one that is read from as well is busy going to and fro as soon as the cache is
//! full. Drives order what they write by place, which is not modelled.

use std::collections::VecDeque;

use super::HddState;
use crate::time::{later, transfer_ns};

/// The write cache of a drive.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    limit_bytes: u64,
    bytes: u64,
    /// What is in it, `(start, end)`, the oldest first.
    extents: VecDeque<(u64, u64)>,
    /// The head is writing the first of them.
    writing: bool,
    /// Until then the head was or is busy.
    head_free_ns: u64,
}

impl WriteCache {
    pub(super) fn new(limit_bytes: u64) -> WriteCache {
        WriteCache { limit_bytes, bytes: 0, extents: VecDeque::new(), writing: false, head_free_ns: 0 }
    }

    /// Whether all of this is in it.
    pub(super) fn holds(&self, offset: u64, end: u64) -> bool {
        self.extents.iter().any(|&(from, to)| from <= offset && end <= to)
    }

    /// The head was taken away for something else until this time.
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

    /// The first extent is on the platter up to here.
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
    /// Into the cache, when there is room. When that is done, and whether the head had to go elsewhere for it.
    pub(super) fn write(&mut self, offset: u64, length_bytes: u64, start_ns: u64) -> (u64, bool) {
        let ready_ns = later(start_ns, self.overhead_ns);
        let handed_over_ns = later(ready_ns, transfer_ns(length_bytes, self.interface_mb_per_s));
        if length_bytes == 0 {
            return (handed_over_ns, false);
        }
        self.write_while_idle(start_ns);
        if self.write_cache.extents.is_empty() {
            // It goes on to the platter as it comes.
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

    /// Until then nothing was asked of the drive: it writes, if that was for long enough.
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

    /// The head goes to where the first extent belongs, unless it is there; whether it had to go.
    fn begin_writing(&mut self, start: u64, end: u64, from_ns: u64) -> bool {
        let goes = !self.write_cache.writing;
        if goes {
            let way = self.by_seek(start, start, from_ns, from_ns);
            self.leave_stream(from_ns);
            self.stream = super::Stream { start, shift_ns: way.shift_ns, limit: end };
            self.write_cache.writing = true;
        }
        self.stream.limit = end;
        goes
    }
}
