//! `zfetch`: the streams of OpenZFS 2.4. Up to eight per file, whoever reads; the distance grows by an eighth, and only
//! when it was too short.
//!
//! ```text
//!     stream:  position ▲ (next page expected)      │ asked for up to here
//!                       └──────── distance ─────────┘
//!     distance: as long as the read, then doubled by each read up to 4 MiB; from there on + 1/8, when a page had not
//!     arrived in time; 64 MiB at most
//! ```
//!
//! Reads may come out of order, up to 16 MiB from the position:
//!
//! ```text
//!     behind it    nothing: it was passed already
//!     across it    goes on from the position
//!     before it    ▲ · · ■■ · ■■■    remembered; the position moves there as soon as no more than a quarter of the way
//!                                    are holes
//! ```
//!
//! A stream that nobody has used for a second makes room for a new one when there are as many as may be (eight; fewer
//! in a file shorter than eight times 64 MiB); after two it is gone. A new stream reads nothing ahead: its second read
//! does.
//!
//! Source: module/zfs/dmu_zfetch.c of OpenZFS 2.4 and its parameters. Blocks are pages here. Uncertain: that nine
//! ranges are remembered (`ZFETCH_RANGES`, from memory of the header). Not modelled: that the distance stays where it
//! is when a sixteenth of the cache is being prefetched.

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
/// `zfetch_hole_shift`: so much of the way may be holes, one part in four.
pub const HOLE_SHARE: u64 = 1 << 2;
/// Ranges before the position that are remembered (`ZFETCH_RANGES`).
pub const MOST_RANGES: usize = 9;
/// `zfetch_min_sec_reap`: unused so long it may be replaced, nanoseconds.
pub const REPLACED_AFTER_NS: u64 = 1_000_000_000;
/// `zfetch_max_sec_reap`: unused so long it is forgotten, nanoseconds.
pub const FORGOTTEN_AFTER_NS: u64 = 2_000_000_000;

#[derive(Clone, Debug, Default)]
struct Stream {
    position: Page,
    /// What was read before its turn: first page and end of each range, ascending, none touching another.
    early: Vec<(Page, Page)>,
    asked: Page,
    distance: u64,
    used_ns: u64,
    /// A read of it was not wholly cached (`zs_missed`): only then anything is fetched.
    missed: bool,
    /// The reader has waited for it since the last request (`zs_more`).
    late: bool,
}

impl Stream {
    /// Goes on by so many pages, and by what was read early right behind them; gives how many (`dmu_zfetch_hit`).
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

    /// Remembers a read before its turn; gives how far the stream goes on, if few enough holes are left
    /// (`dmu_zfetch_future`).
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

    /// Takes a read for its own; `None`: it is another's. Otherwise how many pages the stream went on by.
    fn take(&mut self, first: Page, end: Page) -> Option<u64> {
        if first > self.position {
            (end <= self.position + REORDER_PAGES).then(|| self.early(first, end))
        } else if end >= self.position {
            Some(self.hit(end - self.position))
        } else {
            (end + REORDER_PAGES > self.position).then_some(0)
        }
    }

    /// How far it looks ahead after a read of so many pages.
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
    /// Of each file, the newest first.
    files: HashMap<FileId, Vec<Stream>>,
}

impl Zfetch {
    /// A new stream that expects its next read there, if there may be one (`dmu_zfetch_stream_create`).
    fn begin(streams: &mut Vec<Stream>, position: Page, file_pages: u64, now_ns: u64) {
        let unused_ns = |stream: &Stream| now_ns.saturating_sub(stream.used_ns);
        streams.retain(|stream| unused_ns(stream) < FORGOTTEN_AFTER_NS);
        // So few that they need not overlap.
        let most = MOST_STREAMS.min((file_pages / MOST_PAGES) as usize).max(1);
        if streams.len() >= most {
            let Some(oldest) = (0..streams.len()).min_by_key(|index| streams[*index].used_ns) else { return };
            if unused_ns(&streams[oldest]) < REPLACED_AFTER_NS {
                return;
            }
            streams.remove(oldest);
        }
        // Until its second read it may be replaced at once.
        let used_ns = now_ns.saturating_sub(REPLACED_AFTER_NS);
        streams.insert(0, Stream { position, asked: position, used_ns, ..Stream::default() });
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
        // The rest of a call was looked at when it began.
        if (!access.begins && access.by == By::Read) || end <= first {
            return;
        }
        let streams = self.files.entry(access.file).or_default();
        // The stream that expects it, or one that ended within its first page; else one that it is near to.
        let expects = |stream: &Stream| first == stream.position || first + 1 == stream.position;
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
    fn reads_before_their_turn_are_remembered_until_few_holes_are_left() {
        let mut stream = Stream { position: 100, ..Stream::default() };
        // A hole of eight pages, then eight of sixteen: not yet.
        assert_eq!(stream.take(108, 116), Some(0));
        assert_eq!((stream.position, &stream.early[..]), (100, &[(108, 116)][..]));
        // Two touching ranges become one; eight pages of 32 are a quarter.
        assert_eq!(stream.take(116, 132), Some(32));
        assert_eq!((stream.position, stream.early.len()), (132, 0));
        // What came late is passed; what crosses the position goes on from there.
        assert_eq!(stream.take(100, 108), Some(0));
        assert_eq!(stream.take(130, 140), Some(8));
        assert_eq!(stream.position, 140);
        // Too far before it, or behind.
        assert_eq!(stream.take(140 + REORDER_PAGES, 141 + REORDER_PAGES), None);
        let mut far = Stream { position: 3 * REORDER_PAGES, ..Stream::default() };
        assert_eq!(far.take(0, REORDER_PAGES), None);
    }

    #[test]
    fn the_hole_is_filled_and_the_stream_goes_on_to_the_end_of_what_was_early() {
        let mut stream = Stream { position: 0, ..Stream::default() };
        assert_eq!(stream.take(20, 24), Some(0));
        assert_eq!(stream.take(10, 14), Some(0));
        assert_eq!(stream.hit(10), 14);
        assert_eq!((stream.position, &stream.early[..]), (14, &[(20, 24)][..]));
        // No more ranges than are remembered.
        for index in 0..2 * MOST_RANGES as u64 {
            stream.take(100 + 1000 * (index + 1), 101 + 1000 * (index + 1));
        }
        assert!(stream.early.len() <= MOST_RANGES);
    }
}
