//! Converts events of `bpf/decisions.bpf.c` (`struct event`, `struct long_event`) to records of a trace.

use crate::fields::Fields;
use ahead_policy::traces::{Asked, Cached, Event, Exact, FileSeen, Mapping, RaState, Record, Use, Window};
use std::collections::HashMap;

/// `struct event`.
const EVENT_BYTES: usize = 56;
/// `struct long_event`.
const LONG_EVENT_BYTES: usize = 128;

// `enum kind`.
const FILE_SEEN: u8 = 1;
const OPENED: u8 = 2;
const READ: u8 = 3;
const READ_END: u8 = 4;
const SYNC: u8 = 5;
const ASYNC: u8 = 6;
const WINDOW: u8 = 7;
const EXACT: u8 = 8;
const FAULT: u8 = 9;
const AROUND: u8 = 10;
const ADDED: u8 = 11;
const REMOVED: u8 = 12;
const ADVICE: u8 = 13;
const DIRTIED: u8 = 14;
const READ_AT: u8 = 15;

// `EVENT_…`.
const RANDOM: u8 = 1;
const UNMAPPED: u8 = 2;
const RECLAIMED: u8 = 4;
const OTHER: u8 = 8;
const OWN: u8 = 16;

/// Assigns numbers to kernel addresses, and converts times to differences.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// By address: the identity of the inode (number; device and generation), and the file's number.
    files: HashMap<u64, ((u64, u64), u32)>,
    next_file: u32,
    /// By address: the open file's number, and its file's.
    opens: HashMap<u64, (u32, u32)>,
    next_open: u32,
    last_us: u64,
    /// Events that could not be decoded.
    pub(super) lost: u64,
}

/// What both kinds of events have, at the same places.
impl Fields<'_> {
    fn inode(&self) -> u64 {
        self.u64(8)
    }

    fn open(&self) -> u64 {
        self.u64(16)
    }

    fn kind(&self) -> u8 {
        self.u8(28)
    }

    fn has(&self, flag: u8) -> bool {
        self.u8(29) & flag != 0
    }

    fn order(&self) -> u16 {
        self.u16(30)
    }

    fn page(&self) -> u64 {
        self.u64(32)
    }

    fn count(&self) -> u64 {
        self.u64(40)
    }

    fn extra(&self) -> u64 {
        self.u64(48)
    }
}

impl Numbers {
    /// The record of an event. `None`: a repeated announcement of a file, or an event that counts as lost because of its size
    /// or kind, or because its file was not announced.
    pub(super) fn record(&mut self, bytes: &[u8]) -> Option<Record> {
        let fields = Fields(bytes);
        let event = match bytes.len() {
            LONG_EVENT_BYTES if self.is_known(&fields) => return None,
            LONG_EVENT_BYTES => self.long_event(&fields),
            EVENT_BYTES => self.event(&fields),
            _ => None,
        };
        let Some(event) = event else {
            self.lost += 1;
            return None;
        };
        let now_us = fields.u64(0) / 1000;
        let after_us = if self.last_us == 0 { 0 } else { now_us.saturating_sub(self.last_us) };
        self.last_us = now_us.max(self.last_us);
        Some(Record { after_us, task: fields.u32(24), event })
    }

    fn file(&self, fields: &Fields<'_>) -> Option<u32> {
        self.files.get(&fields.inode()).map(|(_, file)| *file)
    }

    /// Whether this announces a known file: two threads saw it at the same time.
    fn is_known(&self, fields: &Fields<'_>) -> bool {
        let identity = (fields.page(), fields.count());
        fields.kind() == FILE_SEEN && self.files.get(&fields.inode()).is_some_and(|(known, _)| *known == identity)
    }

    fn event(&self, fields: &Fields<'_>) -> Option<Event> {
        let (first, order) = (fields.page(), fields.order());
        let cached = |flag| {
            let file = self.file(fields)?;
            Some(Cached { file, first, order: order.min(31) as u8, special: fields.has(flag) })
        };
        Some(match fields.kind() {
            READ_END => Event::ReadEnd(fields.count() as i64),
            READ_AT => Event::ReadAt(fields.page()),
            WINDOW => Event::Window(Window { first, size: fields.count(), async_size: fields.extra(), order }),
            EXACT => Event::Exact(Exact { first, pages: fields.count(), look_ahead: fields.extra() }),
            AROUND => Event::Around { file: self.file(fields)?, first, last: fields.count() },
            ADDED => Event::Added(cached(OWN)?),
            REMOVED => Event::Removed(cached(RECLAIMED)?),
            DIRTIED => Event::Dirtied(cached(0)?),
            _ => return None,
        })
    }

    fn long_event(&mut self, fields: &Fields<'_>) -> Option<Event> {
        if fields.kind() == FILE_SEEN {
            return Some(Event::File(self.see(fields)));
        }
        let by = self.by(fields)?;
        let asked = Asked { by, page: fields.page(), wanted: fields.count() };
        Some(match fields.kind() {
            OPENED => Event::Opened(by),
            READ => Event::Read {
                by,
                offset_bytes: fields.page(),
                length_bytes: fields.count(),
                flags: fields.extra() as u32,
                is_other: fields.has(OTHER),
            },
            SYNC => Event::Sync(asked),
            ASYNC => Event::Async(asked),
            FAULT => Event::Fault { by, page: fields.page(), mapping: mapping(fields) },
            ADVICE => Event::Advice {
                by,
                advice: fields.extra() as u32,
                offset_bytes: fields.page(),
                length_bytes: fields.count(),
            },
            _ => return None,
        })
    }

    fn see(&mut self, fields: &Fields<'_>) -> FileSeen {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(fields.inode(), ((fields.page(), fields.count()), file));
        FileSeen {
            file,
            device: (fields.count() >> 32) as u32,
            inode: fields.page(),
            cached_pages: fields.extra(),
            folio_order: fields.order() as u8,
            least_order: (fields.order() >> 8) as u8,
        }
    }

    fn by(&mut self, fields: &Fields<'_>) -> Option<Use> {
        let file = self.file(fields)?;
        // The address of an open file is reused after it is closed, and some openings have no event (exec's, for example).
        let known = self.opens.get(&fields.open()).filter(|(_, known)| fields.kind() != OPENED && *known == file);
        let open = known.map_or(self.next_open, |(open, _)| *open);
        if open == self.next_open {
            self.next_open += 1;
            self.opens.insert(fields.open(), (open, file));
        }
        let state = RaState {
            start: fields.u64(56),
            prev_pos: fields.u64(64) as i64,
            size: fields.u32(72),
            async_size: fields.u32(76),
            window: fields.u32(80),
            order: fields.u16(84),
            mmap_miss: fields.u16(86),
            random: fields.has(RANDOM),
        };
        let (disk_window, disk_request) = (fields.u32(116), fields.u32(120));
        Some(Use { open, file, file_bytes: fields.u64(88), disk_window, disk_request, state })
    }
}

fn mapping(fields: &Fields<'_>) -> Option<Mapping> {
    let mapping = Mapping { first: fields.u64(96), end: fields.u64(104), flags: fields.u32(112) };
    (!fields.has(UNMAPPED)).then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    /// Each member has another value, so that none can be taken for another.
    const STATE: RaState = RaState {
        start: 21,
        prev_pos: -22,
        size: 23,
        async_size: 24,
        window: 25,
        order: 26,
        mmap_miss: 27,
        random: false,
    };
    const USE: Use = Use { open: 0, file: 0, file_bytes: 28, disk_window: 29, disk_request: 30, state: STATE };
    const MAPPING: Mapping = Mapping { first: 31, end: 32, flags: 33 };

    /// An event about the file at address 1, as the BPF program writes it; the members of its head are given without `head.`.
    fn bytes(structure: &str, kind: &str, flag: Option<&str>, members: &[(&str, u64)]) -> Vec<u8> {
        let layout = Layout::of("layout_decisions");
        let kind = layout.value("kind", kind);
        let flags = flag.map_or(0, |flag| layout.value("event_flag", flag));
        let head = [("time_ns", 5000), ("inode", 1), ("task", 3), ("kind", kind), ("flags", flags)];
        let prefix = if structure == "event" { "" } else { "head." };
        let head: Vec<_> =
            head.iter().chain(members).map(|(name, value)| (format!("{prefix}{name}"), *value)).collect();
        let mut all: Vec<(&str, u64)> = head.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        if structure == "long_event" {
            all.extend([
                ("head.open", 2),
                ("state.start", STATE.start),
                ("state.prev_pos", STATE.prev_pos as u64),
                ("state.size", STATE.size.into()),
                ("state.async_size", STATE.async_size.into()),
                ("state.window", STATE.window.into()),
                ("state.order", STATE.order.into()),
                ("state.mmap_miss", STATE.mmap_miss.into()),
                ("file_bytes", USE.file_bytes),
                ("disk_window", USE.disk_window.into()),
                ("disk_request", USE.disk_request.into()),
                ("mapping_first", MAPPING.first),
                ("mapping_end", MAPPING.end),
                ("mapping_flags", MAPPING.flags.into()),
            ]);
        }
        layout.bytes(structure, &all)
    }

    const MEMBERS: [(&str, u64); 4] = [("page", 11), ("count", 12 << 32 | 13), ("extra", 14), ("order", 2 << 8 | 9)];

    /// Announces the file, and decodes the event.
    fn decoded(bytes: &[u8]) -> Option<Record> {
        let mut numbers = Numbers::default();
        let file = FileSeen { file: 0, device: 12, inode: 11, cached_pages: 14, folio_order: 9, least_order: 2 };
        let announced = numbers.record(&self::bytes("long_event", "FILE_SEEN", None, &MEMBERS));
        assert_eq!(announced, Some(Record { after_us: 0, task: 3, event: Event::File(file) }));
        numbers.record(bytes)
    }

    fn assert_event(structure: &str, kind: &str, flag: Option<&str>, expected: Event) {
        let record = decoded(&bytes(structure, kind, flag, &MEMBERS));
        assert_eq!(record, Some(Record { after_us: 0, task: 3, event: expected }), "{kind}");
    }

    #[test]
    fn short_events_have_the_layout_of_the_structure() {
        let count = 12 << 32 | 13;
        let order = 2 << 8 | 9;
        let cached = |special| Cached { file: 0, first: 11, order: 31, special };
        for (kind, flag, expected) in [
            ("READ_END", None, Event::ReadEnd(count as i64)),
            ("READ_AT", None, Event::ReadAt(11)),
            ("WINDOW", None, Event::Window(Window { first: 11, size: count, async_size: 14, order })),
            ("EXACT", None, Event::Exact(Exact { first: 11, pages: count, look_ahead: 14 })),
            ("AROUND", None, Event::Around { file: 0, first: 11, last: count }),
            ("ADDED", Some("EVENT_OWN"), Event::Added(cached(true))),
            ("REMOVED", Some("EVENT_RECLAIMED"), Event::Removed(cached(true))),
            ("DIRTIED", None, Event::Dirtied(cached(false))),
        ] {
            assert_event("event", kind, flag, expected);
        }
    }

    #[test]
    fn long_events_have_the_layout_of_the_structure() {
        let (wanted, by) = (12 << 32 | 13, USE);
        let random = Use { state: RaState { random: true, ..STATE }, ..USE };
        let read = Event::Read { by, offset_bytes: 11, length_bytes: wanted, flags: 14, is_other: true };
        let advice = Event::Advice { by, advice: 14, offset_bytes: 11, length_bytes: wanted };
        for (kind, flag, expected) in [
            ("OPENED", Some("EVENT_RANDOM"), Event::Opened(random)),
            ("READ", Some("EVENT_OTHER"), read),
            ("SYNC", None, Event::Sync(Asked { by, page: 11, wanted })),
            ("ASYNC", None, Event::Async(Asked { by, page: 11, wanted })),
            ("FAULT", None, Event::Fault { by, page: 11, mapping: Some(MAPPING) }),
            ("FAULT", Some("EVENT_UNMAPPED"), Event::Fault { by, page: 11, mapping: None }),
            ("ADVICE", None, advice),
        ] {
            assert_event("long_event", kind, flag, expected);
        }
    }

    #[test]
    fn event_of_another_size_is_lost() {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.record(&[0; EVENT_BYTES + 8]), None);
        assert_eq!(numbers.lost, 1);
    }
}
