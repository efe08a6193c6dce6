//! `zfetch`: the streams of OpenZFS 2.4. Up to eight per file, whoever reads; the distance grows by an eighth, and only when
//! it was too short.
//!
//! ```text
//!     stream:  position ▲ (next byte expected)      │ asked for up to here
//!                       └──────── distance ─────────┘
//!     a read up to 16 MiB behind the position is one of it that came late, and begins no other
//!     distance: as long as the read, then doubled by each read up to 4 MiB; from there on + 1/8, when a page had not arrived in
//!     time; 64 MiB at most
//! ```
//!
//! A stream that nobody has used for a second makes room for a new one when there are eight; after two it is gone. A new
//! stream reads nothing ahead: its second read does.
//!
//! Source: module/zfs/dmu_zfetch.c of OpenZFS 2.4 and its parameters (`zfetch_max_streams`, `zfetch_min_distance`,
//! `zfetch_max_distance`, `zfetch_max_reorder`, `zfetch_min_sec_reap`, `zfetch_max_sec_reap`). Blocks are pages here. Reads
//! that come early, before those between, are remembered there and count once the holes are filled; here they begin a stream.

use crate::access::PAGE_BYTES;
use crate::{Access, By, Event, FileId, Found, Page, Policy, Requests, View, Wants};
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
        // A stream goes on where it is, or in the page in which the last read ended.
        let goes_on = |stream: &&mut Stream| first == stream.position || first + 1 == stream.position;
        let behind = |stream: &Stream| first < stream.position && stream.position - first <= REORDER_PAGES;
        let Some(stream) = streams.iter_mut().filter(goes_on).max_by_key(|stream| first == stream.position) else {
            if streams.iter().any(behind) {
                return;
            }
            if streams.len() >= MOST_STREAMS {
                let Some(oldest) = (0..streams.len()).min_by_key(|index| streams[*index].used_ns) else { return };
                if now_ns.saturating_sub(streams[oldest].used_ns) < REPLACED_AFTER_NS {
                    return;
                }
                streams.swap_remove(oldest);
            }
            // Until its second read it may be replaced at once.
            let used_ns = now_ns.saturating_sub(REPLACED_AFTER_NS);
            streams.push(Stream { position: end, asked: end, distance: 0, used_ns, late: false });
            return;
        };
        (stream.position, stream.used_ns) = (end, now_ns);
        let (wanted, late) = (end.saturating_sub(first).max(1), std::mem::take(&mut stream.late));
        stream.distance = if stream.distance < wanted {
            wanted
        } else if stream.distance < DOUBLING_PAGES {
            2 * stream.distance
        } else {
            stream.distance + if late { stream.distance / 8 } else { 0 }
        }
        .min(MOST_PAGES);
        let (from, to) = (stream.asked.max(end), (end + stream.distance).min(file_pages));
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
