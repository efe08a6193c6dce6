//! Converts what `bpf/counters.bpf.c` writes: records of open files, counts of the machine, events.

use super::types::{AccessCounts, DecidedPage, LAST_PAGES, MachineCounters, OpenCounters};
use crate::fields::Fields;
use ahead_model::DeviceNumber;
use ahead_policy::Advice;
use ahead_policy::steering::{Decision, Kind, Mapped, Readahead, Target};

/// `struct counter_event`.
const EVENT_BYTES: usize = 200;
/// `struct open_record`.
const RECORD_BYTES: usize = 248;

// `enum counter`.
const HITS: usize = 0;
const LOCKED: usize = 1;
const MISSES: usize = 2;
const MARKERS: usize = 3;
const FAULTS: usize = 4;
const WAITS: usize = 5;
const WAIT_NS: usize = 6;
const ISSUED: usize = 7;
const USED: usize = 8;
const WASTED: usize = 9;
const THRASHED: usize = 10;
const READS: usize = 11;
pub(super) const LOST_EVENTS: usize = 12;
const LOST_ENTRIES: usize = 13;
/// Number of counts of the machine.
pub(super) const COUNTERS: usize = 14;

// `enum counter_flag`.
const IS_RANDOM: u8 = 1;
const IS_THRASHED: u8 = 2;
const IS_MAPPED: u8 = 4;
const IS_OPEN: u8 = 8;
const IS_DEVICE: u8 = 16;

/// The counts that open files and the machine have. `is_exact`: accesses are observed.
fn access_counts(count: impl Fn(usize) -> u64, is_exact: bool) -> AccessCounts {
    AccessCounts {
        hits: is_exact.then(|| count(HITS)),
        locked: count(LOCKED),
        misses: count(MISSES),
        markers: count(MARKERS),
        faults: count(FAULTS),
        wait_ns: count(WAIT_NS),
        waits: count(WAITS),
        issued_pages: count(ISSUED),
        used_pages: is_exact.then(|| count(USED)),
        wasted_pages: count(WASTED),
        thrashed_pages: count(THRASHED),
    }
}

/// The counts of an open file.
pub(super) fn open_counters(open: u64, record: &[u8], is_exact: bool) -> Option<OpenCounters> {
    let fields = Fields::of::<RECORD_BYTES>(record)?;
    let decisions = fields.u64(168);
    let known = decisions.min(LAST_PAGES as u64);
    let decided = |number: u64| {
        let place = fields.u64(104 + 8 * (number % LAST_PAGES as u64) as usize);
        DecidedPage { page: place >> 1, is_fault: place & 1 != 0 }
    };
    Some(OpenCounters {
        open,
        inode: fields.u64(0),
        pid: fields.u32(176),
        counts: access_counts(|which| fields.u64(8 + 8 * which), is_exact),
        last_pages: (decisions - known..decisions).map(decided).collect(),
        last_ns: fields.u64(96),
    })
}

/// The counts of the machine.
pub(super) fn machine_counters(counts: &[u64; COUNTERS], is_exact: bool) -> MachineCounters {
    let unread = || counts[ISSUED].saturating_sub(counts[USED]).saturating_sub(counts[WASTED]);
    MachineCounters {
        reads: is_exact.then_some(counts[READS]),
        counts: access_counts(|which| counts[which], is_exact),
        unread_pages: is_exact.then(unread),
        lost_events: counts[LOST_EVENTS] + counts[LOST_ENTRIES],
    }
}

/// An event. `None`: another size, or an unknown kind.
pub(super) fn event(bytes: &[u8]) -> Option<Decision> {
    let fields = Fields::of::<EVENT_BYTES>(bytes)?;
    let flags = fields.u8(179);
    let kind = match fields.u8(178) {
        0 => Kind::Miss,
        1 => Kind::Marker,
        2 => Kind::Fault,
        _ => return None,
    };
    let advice = match fields.u8(180) {
        1 => Advice::Sequential,
        2 => Advice::Random,
        _ => Advice::Normal,
    };
    let mapping = Mapped { first_page: fields.u64(80), end_page: fields.u64(88), address: fields.u64(96), advice };
    Some(Decision {
        at_ns: fields.u64(0),
        target: Target {
            pid: fields.u32(144),
            tid: fields.u32(148),
            descriptor: (flags & IS_OPEN != 0).then(|| fields.u32(156)),
            open: fields.u64(8),
            inode: fields.u64(16),
            inode_number: fields.u64(24),
            device: DeviceNumber::from_kernel(fields.u32(152)),
            is_block_device: flags & IS_DEVICE != 0,
            mapping: (flags & IS_MAPPED != 0).then_some(mapping),
        },
        kind,
        page: fields.u64(32),
        wanted: fields.u64(40),
        before: Readahead {
            start: fields.u64(48),
            size: fields.u32(160).into(),
            async_size: fields.u32(164).into(),
            window_pages: fields.u32(168).into(),
            prev_pos: fields.u64(56).cast_signed(),
            mmap_miss: fields.u16(176),
            is_random: flags & IS_RANDOM != 0,
        },
        file_pages: fields.u64(64),
        cached_pages: fields.u64(72),
        disk_window_pages: fields.u32(172).into(),
        is_thrashed: flags & IS_THRASHED != 0,
        misses: fields.u64(104),
        waits: fields.u64(112),
        wait_ns: fields.u64(120),
        issued_pages: fields.u64(128),
        wasted_pages: fields.u64(136),
        comm: fields.array(184),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn events_have_the_layout_of_the_structure() {
        let layout = Layout::of("layout_counters");
        let flag = |name: &str| layout.value("counter_flag", name);
        let mut members = vec![
            ("time_ns", 1),
            ("open", 2),
            ("inode", 3),
            ("inode_number", 4),
            ("page", 5),
            ("wanted", 6),
            ("start", 7),
            ("prev_pos", u64::MAX),
            ("file_pages", 9),
            ("cached_pages", 10),
            ("mapping_first", 11),
            ("mapping_end", 12),
            ("mapping_address", 13),
            ("misses", 14),
            ("waits", 15),
            ("wait_ns", 16),
            ("issued", 17),
            ("wasted", 18),
            ("pid", 19),
            ("tid", 20),
            ("device", 8 << 20 | 21),
            ("descriptor", 22),
            ("size", 23),
            ("async_size", 24),
            ("window", 25),
            ("disk_window", 26),
            ("mmap_miss", 27),
            ("kind", layout.value("decision_kind", "DECIDED_FAULT")),
            (
                "flags",
                ["RANDOM", "MAPPED", "OPEN", "DEVICE"].map(|name| flag(&format!("EVENT_IS_{name}"))).iter().sum(),
            ),
            ("advice", layout.value("mapping_advice", "ADVICE_RANDOM")),
        ];
        let mut bytes = layout.bytes("counter_event", &members);
        let name = layout.offset("counter_event", "name");
        bytes[name..name + 4].copy_from_slice(b"grep");
        let before = Readahead {
            start: 7,
            size: 23,
            async_size: 24,
            window_pages: 25,
            prev_pos: -1,
            mmap_miss: 27,
            is_random: true,
        };
        let mapping = Mapped { first_page: 11, end_page: 12, address: 13, advice: Advice::Random };
        let target = Target {
            pid: 19,
            tid: 20,
            descriptor: Some(22),
            open: 2,
            inode: 3,
            inode_number: 4,
            device: DeviceNumber::new(8, 21),
            is_block_device: true,
            mapping: Some(mapping),
        };
        let expected = Decision {
            at_ns: 1,
            target,
            kind: Kind::Fault,
            page: 5,
            wanted: 6,
            before,
            file_pages: 9,
            cached_pages: 10,
            disk_window_pages: 26,
            is_thrashed: false,
            misses: 14,
            waits: 15,
            wait_ns: 16,
            issued_pages: 17,
            wasted_pages: 18,
            comm: *b"grep\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        assert_eq!(event(&bytes), Some(expected));
        members.retain(|(name, _)| !matches!(*name, "flags" | "kind" | "advice"));
        members.push(("flags", flag("EVENT_IS_THRASHED")));
        members.push(("kind", layout.value("decision_kind", "DECIDED_MARKER")));
        let other = event(&layout.bytes("counter_event", &members)).unwrap();
        assert_eq!((other.kind, other.target.descriptor, other.target.mapping), (Kind::Marker, None, None));
        assert!(other.is_thrashed && !other.before.is_random && !other.target.is_block_device);
    }

    #[test]
    fn event_of_another_size_or_kind_is_refused() {
        assert_eq!(event(&[0; EVENT_BYTES - 8]), None);
        let mut bytes = [0; EVENT_BYTES];
        assert_eq!(event(&bytes).unwrap().kind, Kind::Miss);
        bytes[178] = 3;
        assert_eq!(event(&bytes), None);
    }

    #[test]
    fn records_have_the_layout_of_the_structure() {
        let layout = Layout::of("layout_counters");
        let members = [("inode", 5), ("last_ns", 6), ("decisions", 9), ("pid", 7)];
        let mut bytes = layout.bytes("open_record", &members);
        assert_eq!(bytes.len(), RECORD_BYTES);
        let counts = layout.offset("open_record", "counts");
        let names = [
            ("COUNT_HITS", HITS),
            ("COUNT_LOCKED", LOCKED),
            ("COUNT_MISSES", MISSES),
            ("COUNT_MARKERS", MARKERS),
            ("COUNT_FAULTS", FAULTS),
            ("COUNT_WAITS", WAITS),
            ("COUNT_WAIT_NS", WAIT_NS),
            ("COUNT_ISSUED", ISSUED),
            ("COUNT_USED", USED),
            ("COUNT_WASTED", WASTED),
            ("COUNT_THRASHED", THRASHED),
        ];
        for (name, place) in names {
            assert_eq!(layout.value("counter", name), place as u64, "{name}");
            bytes[counts + 8 * place] = 100 + place as u8;
        }
        assert_eq!(layout.value("counter", "OPEN_COUNTERS"), names.len() as u64);
        let pages = layout.offset("open_record", "last_pages");
        for place in 0..LAST_PAGES {
            // Page 50 + place, by a fault if that is odd. The ninth decision is at place 0.
            bytes[pages + 8 * place] = (50 + place as u8) << 1 | place as u8 & 1;
        }
        let counters = open_counters(4, &bytes, true).unwrap();
        let last_pages = [1, 2, 3, 4, 5, 6, 7, 0].map(|n| DecidedPage { page: 50 + n, is_fault: n % 2 == 1 });
        let expected = OpenCounters {
            open: 4,
            inode: 5,
            pid: 7,
            counts: AccessCounts {
                hits: Some(100),
                locked: 101,
                misses: 102,
                markers: 103,
                faults: 104,
                waits: 105,
                wait_ns: 106,
                issued_pages: 107,
                used_pages: Some(108),
                wasted_pages: 109,
                thrashed_pages: 110,
            },
            last_pages: last_pages.to_vec(),
            last_ns: 6,
        };
        assert_eq!(counters, expected);
        let counters = open_counters(4, &bytes, false).unwrap();
        assert_eq!((counters.counts.hits, counters.counts.used_pages), (None, None));
        assert_eq!(open_counters(4, &bytes[8..], false), None);
    }

    #[test]
    fn counts_of_the_machine_have_the_places_of_the_enum() {
        let layout = Layout::of("layout_counters");
        for (name, place) in [
            ("COUNT_READS", READS),
            ("COUNT_LOST_EVENTS", LOST_EVENTS),
            ("COUNT_LOST_ENTRIES", LOST_ENTRIES),
            ("COUNTERS", COUNTERS),
        ] {
            assert_eq!(layout.value("counter", name), place as u64, "{name}");
        }
        let counts: [u64; COUNTERS] = std::array::from_fn(|place| 1 << place);
        let machine = machine_counters(&counts, true);
        assert_eq!((machine.reads, machine.counts.hits), (Some(1 << READS), Some(1 << HITS)));
        assert_eq!(machine.lost_events, 1 << LOST_EVENTS | 1 << LOST_ENTRIES);
        // More was used and wasted than issued: pages were issued before the observation.
        assert_eq!(machine.unread_pages, Some(0));
        assert_eq!(machine_counters(&counts, false).unread_pages, None);
    }
}
