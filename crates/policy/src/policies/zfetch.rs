//! `zfetch`: the streams of OpenZFS 2.4. A file has up to eight streams, for all readers; the distance grows by an eighth, and only when it was
//! too short.
//!
//! ```text
//!     stream:  position ▲ (next page expected)      │ end of the requested pages
//!                       └──────── distance ─────────┘
//!     distance: the length of the read, then doubled by each read up to 4 MiB; beyond that + 1/8 when a page was late; at most
//!     64 MiB
//! ```
//!
//! Reads may come out of order, up to 16 MiB from the position:
//!
//! ```text
//!     before the position    nothing: the stream has passed it
//!     across the position    continues from the position
//!     after the position     ▲ · · ■■ · ■■■    stored; the position moves there when at most a quarter of the distance are holes
//! ```
//!
//! When a file has its maximum of streams (eight; fewer in a file shorter than eight times 64 MiB), a new stream replaces one that was unused
//! for a second. After two seconds an unused stream is removed. A new stream reads ahead from its second read on.
//!
//! Source: module/zfs/dmu_zfetch.c of OpenZFS 2.4 and its parameters. Blocks are pages here. Uncertain: nine ranges are stored
//! (`ZFETCH_RANGES`, from memory of the header). Not modelled: the distance does not grow while a sixteenth of the cache is being prefetched.

use crate::access::PAGE_BYTES;
use crate::{Access, By, Event, FileId, Found, Page, Policy, Requests, View, Wants};
use std::collections::HashMap;

/// `zfetch_max_streams`.
pub const MOST_STREAMS: usize = 8;
/// `zfetch_min_distance`, 4 MiB: up to here the distance doubles.
pub const DOUBLING_PAGES: u64 = (4 << 20) / PAGE_BYTES;
/// `zfetch_max_distance`, 64 MiB.
pub const MOST_PAGES: u64 = (64 << 20) / PAGE_BYTES;
/// `zfetch_max_reorder`, 16 MiB, and a block.
pub const REORDER_PAGES: u64 = (16 << 20) / PAGE_BYTES + 1;
/// `zfetch_hole_shift`: the share of holes, one part in four.
pub const HOLE_SHARE: u64 = 1 << 2;
/// Stored ranges after the position (`ZFETCH_RANGES`).
pub const MOST_RANGES: usize = 9;
/// `zfetch_min_sec_reap`: a stream that is unused for this time may be replaced, nanoseconds.
pub const REPLACED_AFTER_NS: u64 = 1_000_000_000;
/// `zfetch_max_sec_reap`: a stream that is unused for this time is removed, nanoseconds.
pub const FORGOTTEN_AFTER_NS: u64 = 2_000_000_000;

#[derive(Clone, Debug, Default)]
struct ZfetchStream {
    position: Page,
    /// Ranges that were read out of order: first page and end of each, ascending, not adjacent.
    early: Vec<(Page, Page)>,
    asked: Page,
    distance: u64,
    used_ns: u64,
    /// A read of the stream was not completely cached (`zs_missed`): only then pages are requested.
    missed: bool,
    /// The reader has waited since the last request (`zs_more`).
    late: bool,
}

impl ZfetchStream {
    /// Moves on by this many pages, and by adjacent stored ranges; returns the number of pages (`dmu_zfetch_hit`).
    fn hit(&mut self, pages: u64) -> u64 {
        let mut end = self.position + pages;
        let touched = self.early.iter().take_while(|(first, _)| *first <= end).count();
        if let Some((_, last)) = self.early.drain(..touched).next_back() {
            end = end.max(last);
        }
        let moved = end - self.position;
        self.position = end;
        moved
    }

    /// Stores a read out of order; returns how far the stream moves on if few holes are left (`dmu_zfetch_future`).
    fn early(&mut self, first: Page, end: Page) -> u64 {
        let from = self.early.partition_point(|(_, before)| *before < first);
        let to = self.early.partition_point(|(after, _)| *after <= end);
        if from < to {
            let joined = (self.early[from].0.min(first), self.early[to - 1].1.max(end));
            self.early.splice(from..to, [joined]);
        } else if self.early.len() < MOST_RANGES {
            self.early.insert(from, (first, end));
        } else {
            return 0;
        }
        let (mut holes, mut at, mut reach) = (0, self.position, 0);
        for (first, end) in &self.early {
            holes += first - at;
            at = *end;
            if holes <= (end - self.position) / HOLE_SHARE {
                reach = end - self.position;
            }
        }
        if reach > 0 { self.hit(reach) } else { 0 }
    }

    /// Adds a read to the stream; returns the pages by which the stream moved on. `None`: the read belongs to another stream.
    fn take(&mut self, first: Page, end: Page) -> Option<u64> {
        if first > self.position {
            (end <= self.position + REORDER_PAGES).then(|| self.early(first, end))
        } else if end >= self.position {
            Some(self.hit(end - self.position))
        } else {
            (end + REORDER_PAGES > self.position).then_some(0)
        }
    }

    /// The distance after a read of this many pages.
    fn lengthen(&mut self, pages: u64) {
        self.distance = if self.distance < pages {
            pages
        } else if self.distance < DOUBLING_PAGES {
            2 * self.distance
        } else {
            self.distance + if self.late { self.distance / 8 } else { 0 }
        }
        .min(MOST_PAGES);
        self.late = false;
    }
}

/// ZFS's streams.
#[derive(Clone, Debug, Default)]
pub struct Zfetch {
    /// The streams of each file, the newest first.
    files: HashMap<FileId, Vec<ZfetchStream>>,
}

impl Zfetch {
    /// Adds a stream that expects its next read there, if the limit permits (`dmu_zfetch_stream_create`).
    fn begin(streams: &mut Vec<ZfetchStream>, position: Page, file_pages: u64, now_ns: u64) {
        let unused_ns = |stream: &ZfetchStream| now_ns.saturating_sub(stream.used_ns);
        streams.retain(|stream| unused_ns(stream) < FORGOTTEN_AFTER_NS);
        // Few enough that they do not overlap.
        let most = MOST_STREAMS.min((file_pages / MOST_PAGES) as usize).max(1);
        if streams.len() >= most {
            let Some(oldest) = (0..streams.len()).min_by_key(|index| streams[*index].used_ns) else { return };
            if unused_ns(&streams[oldest]) < REPLACED_AFTER_NS {
                return;
            }
            streams.remove(oldest);
        }
        // Before its second read the stream may be replaced at once.
        let used_ns = now_ns.saturating_sub(REPLACED_AFTER_NS);
        streams.insert(0, ZfetchStream { position, asked: position, used_ns, ..ZfetchStream::default() });
    }
}

impl Policy for Zfetch {
    fn wants(&self) -> Wants {
        Wants { calls: true, faults: true, waits: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (now_ns, file_pages) = (view.now_ns(), view.file_pages(access.file));
        let (first, end) = (access.page, access.end().min(file_pages));
        let cached = access.found != Found::Absent
            && !access.found.is_locked()
            && view.next_absent(access.file, first, end.saturating_sub(first)).is_none();
        if access.found == Found::Absent {
            requests.pages(access.file, first, end.saturating_sub(first));
        }
        // The start of the call has handled the rest.
        if (!access.begins && access.by == By::Read) || end <= first {
            return;
        }
        let streams = self.files.entry(access.file).or_default();
        // The stream that expects this page, or one that ended within its first page; otherwise a near one.
        let expects = |stream: &ZfetchStream| first == stream.position || first + 1 == stream.position;
        let mut found = streams.iter().position(expects).map(|index| (index, streams[index].position));
        let mut moved = 0;
        if let Some((index, position)) = found {
            moved = streams[index].hit(end.saturating_sub(position));
        } else {
            for (index, stream) in streams.iter_mut().enumerate() {
                let position = stream.position;
                if let Some(pages) = stream.take(first, end) {
                    (found, moved) = (Some((index, position)), pages);
                    break;
                }
            }
        }
        let Some((index, _)) = found else {
            if end < file_pages {
                Self::begin(streams, end, file_pages, now_ns);
            }
            return;
        };
        let stream = &mut streams[index];
        stream.used_ns = now_ns;
        stream.missed |= !cached;
        if moved == 0 {
            return;
        }
        if stream.position >= file_pages {
            streams.remove(index);
            return;
        }
        stream.lengthen(moved);
        if !stream.missed {
            return;
        }
        let to = (stream.position + stream.distance).min(file_pages);
        let from = stream.asked.max(stream.position);
        stream.asked = to.max(stream.asked);
        requests.pages(access.file, from, to.saturating_sub(from));
    }

    fn event(&mut self, event: &Event, _view: &dyn View, _requests: &mut Requests) {
        let Event::Waited { file, page, .. } = *event else { return };
        let Some(streams) = self.files.get_mut(&file) else { return };
        for stream in
            streams.iter_mut().filter(|stream| page < stream.asked && page + stream.distance >= stream.position)
        {
            stream.late = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_order_reads_are_stored_until_few_holes_remain() {
        let mut stream = ZfetchStream { position: 100, ..ZfetchStream::default() };
        // A hole of eight pages, then eight of sixteen: not yet.
        assert_eq!(stream.take(108, 116), Some(0));
        assert_eq!((stream.position, &stream.early[..]), (100, &[(108, 116)][..]));
        // Two touching ranges become one; eight pages of 32 are a quarter.
        assert_eq!(stream.take(116, 132), Some(32));
        assert_eq!((stream.position, stream.early.len()), (132, 0));
        // A late read was passed; a read across the position continues from there.
        assert_eq!(stream.take(100, 108), Some(0));
        assert_eq!(stream.take(130, 140), Some(8));
        assert_eq!(stream.position, 140);
        // Too far after the position, or before it.
        assert_eq!(stream.take(140 + REORDER_PAGES, 141 + REORDER_PAGES), None);
        let mut far = ZfetchStream { position: 3 * REORDER_PAGES, ..ZfetchStream::default() };
        assert_eq!(far.take(0, REORDER_PAGES), None);
    }

    #[test]
    fn filled_hole_moves_the_stream_past_stored_ranges() {
        let mut stream = ZfetchStream { position: 0, ..ZfetchStream::default() };
        assert_eq!(stream.take(20, 24), Some(0));
        assert_eq!(stream.take(10, 14), Some(0));
        assert_eq!(stream.hit(10), 14);
        assert_eq!((stream.position, &stream.early[..]), (14, &[(20, 24)][..]));
        // At most the number of stored ranges.
        for index in 0..2 * MOST_RANGES as u64 {
            stream.take(100 + 1000 * (index + 1), 101 + 1000 * (index + 1));
        }
        assert!(stream.early.len() <= MOST_RANGES);
    }
}
