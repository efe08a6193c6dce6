//! `zfetch`: the streams of OpenZFS 2.4. Up to eight per file, whoever reads; the distance grows by an eighth, and only when
//! it was too short.
//!
//! ```text
//!     stream:  position ▲ (next byte expected)      │ asked for up to here
//!                       └──────── distance ─────────┘
//!     a read within 16 MiB of the position belongs to it (readers may come out of order)
//!     distance: doubled by each read up to 4 MiB; from there on + 1/8, when a page had not arrived in time; 64 MiB at most
//! ```
//!
//! A stream that nobody has used for a second makes room for a new one when there are eight; after two it is gone. A new
//! stream reads nothing ahead: its second read does.
//!
//! Source: module/zfs/dmu_zfetch.c of OpenZFS 2.4 and its parameters (`zfetch_max_streams`, `zfetch_min_distance`,
//! `zfetch_max_distance`, `zfetch_max_reorder`, `zfetch_min_sec_reap`, `zfetch_max_sec_reap`). Blocks are pages here. Reads
//! that come early are not waited for, unlike there: whatever lies between position and read counts as read.

use crate::access::PAGE_BYTES;
use crate::{Access, By, Event, FileId, Found, Page, Policy, Request, Requests, View, Wants, WhenFull};
use std::collections::HashMap;

/// `zfetch_max_streams`.
pub const MOST_STREAMS: usize = 8;
/// `zfetch_min_distance`, 4 MiB: up to here the distance doubles.
pub const DOUBLING_PAGES: u64 = (4 << 20) / PAGE_BYTES;
/// `zfetch_max_distance`, 64 MiB.
pub const MOST_PAGES: u64 = (64 << 20) / PAGE_BYTES;
/// `zfetch_max_reorder`, 16 MiB.
pub const REORDER_PAGES: u64 = (16 << 20) / PAGE_BYTES;
/// `zfetch_min_sec_reap`: unused so long it may be replaced, nanoseconds.
pub const REPLACED_AFTER_NS: u64 = 1_000_000_000;
/// `zfetch_max_sec_reap`: unused so long it is forgotten, nanoseconds.
pub const FORGOTTEN_AFTER_NS: u64 = 2_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    position: Page,
    asked: Page,
    distance: u64,
    used_ns: u64,
    /// The reader has waited for it since the last request.
    late: bool,
}

/// ZFS's streams.
#[derive(Clone, Debug, Default)]
pub struct Zfetch {
    files: HashMap<FileId, Vec<Stream>>,
}

impl Policy for Zfetch {
    fn wants(&self) -> Wants {
        Wants { calls: true, faults: true, waits: true, ..Wants::default() }
    }

    fn access(&mut self, access: &Access, view: &dyn View, requests: &mut Requests) {
        let (now_ns, file_pages) = (view.now_ns(), view.file_pages(access.file));
        let (first, end) = (access.page, access.end().min(file_pages));
        if !access.begins && access.by == By::Read {
            // The rest of a call that was looked at when it began.
            if access.found == Found::Absent {
                requests.pages(access.file, first, end.saturating_sub(first));
            }
            return;
        }
        if access.found == Found::Absent {
            requests.pages(access.file, first, end.saturating_sub(first));
        }
        let streams = self.files.entry(access.file).or_default();
        streams.retain(|stream| now_ns.saturating_sub(stream.used_ns) < FORGOTTEN_AFTER_NS);
        // The nearest stream that the read does not lie behind.
        let near = |stream: &&mut Stream| first >= stream.position && first - stream.position <= REORDER_PAGES;
        let Some(stream) = streams.iter_mut().filter(near).max_by_key(|stream| stream.position) else {
            if streams.len() >= MOST_STREAMS {
                let Some(oldest) = (0..streams.len()).min_by_key(|index| streams[*index].used_ns) else { return };
                if now_ns.saturating_sub(streams[oldest].used_ns) < REPLACED_AFTER_NS {
                    return;
                }
                streams.swap_remove(oldest);
            }
            let wanted = end.saturating_sub(first);
            streams.push(Stream { position: end, asked: end, distance: wanted, used_ns: now_ns, late: false });
            return;
        };
        (stream.position, stream.used_ns) = (end, now_ns);
        if stream.distance < DOUBLING_PAGES {
            stream.distance = (2 * stream.distance).clamp(1, DOUBLING_PAGES);
        } else if std::mem::take(&mut stream.late) {
            stream.distance = (stream.distance + stream.distance / 8).min(MOST_PAGES);
        }
        let (from, to) = (stream.asked.max(end), (end + stream.distance).min(file_pages));
        stream.asked = to.max(stream.asked);
        let (pages, when_full) = (to.saturating_sub(from), WhenFull::Wait);
        requests.add(Request { file: access.file, first: from, pages, order: 0, mark: None, when_full });
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
