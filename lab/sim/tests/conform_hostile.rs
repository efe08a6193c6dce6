//! Traces that no kernel has written: truncated, damaged, of other kernels, impossible.

use ahead_policy::traces::{Asked, Cached, Event, FileSeen, Header, RaState, Record, Use, Window, Writer};
use ahead_sim::conform::{ConformError, conform};
use proptest::prelude::*;
use std::path::Path;

fn header(kernel: &str) -> Header {
    Header { kernel: kernel.into(), machine: "x86_64".into(), page_bytes: 4096, command: vec!["true".into()] }
}

fn trace(header: &Header, records: &[Record], lost: u64) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    records.iter().for_each(|record| writer.add(record).unwrap());
    writer.finish(lost).unwrap().1
}

fn record(event: Event) -> Record {
    Record { after_us: 1, task: 7, event }
}

fn seen(file: u32) -> Record {
    record(Event::File(FileSeen { file, device: 8, inode: 2, cached_pages: 0, folio_order: 9, least_order: 0 }))
}

fn by(file: u32) -> Use {
    let state = RaState { window: 32, prev_pos: -1, ..RaState::default() };
    Use { open: 0, file, file_bytes: 1 << 20, disk_window: 32, disk_request: 256, state }
}

fn error(bytes: &[u8]) -> String {
    conform(bytes, None).unwrap_err().to_string()
}

#[test]
fn wrong_window_is_a_mismatch() {
    let asked = Asked { by: by(0), page: 0, wanted: 16 };
    let window = Window { first: 0, size: 32, async_size: 16, order: 0 };
    let records = [seen(0), record(Event::Opened(by(0))), record(Event::Sync(asked)), record(Event::Window(window))];
    let report = conform(&trace(&header("6.18.1"), &records, 0)[..], None).unwrap();
    assert_eq!((report.decisions, report.matched, report.first_mismatch), (1, 1, None));
    let wrong = [&records[..3], &[record(Event::Window(Window { size: 31, ..window }))]].concat();
    let report = conform(&trace(&header("6.18.1"), &wrong, 0)[..], None).unwrap();
    assert_eq!((report.decisions, report.matched), (1, 0));
    assert_eq!(report.first_mismatch.unwrap().record, 2);
}

#[test]
fn error_of_an_unknown_kernel_lists_known_ones() {
    let text = error(&trace(&header("5.10.0-8-amd64"), &[], 0));
    assert!(text.contains("5.10.0-8-amd64") && text.contains("linux-6.12, linux-6.18, linux-7.2"), "{text}");
    let bytes = trace(&header("5.10.0"), &[], 0);
    assert!(conform(&bytes[..], Some("linux-6.18")).is_ok());
    let unknown = conform(&bytes[..], Some("linux-9")).unwrap_err().to_string();
    assert!(unknown.contains("`linux-9`") && unknown.contains("linux-7.2"), "{unknown}");
}

#[test]
fn lost_events_and_other_page_sizes_are_refused() {
    let text = error(&trace(&header("6.18.0"), &[], 3));
    assert!(text.starts_with("3 events were lost"), "{text}");
    let text = error(&trace(&Header { page_bytes: 65536, ..header("6.18.0") }, &[], 0));
    assert!(text.contains("pages of 65536 bytes"), "{text}");
}

#[test]
fn impossible_record_is_refused_with_its_number() {
    let folio = |first, order| Cached { file: 0, first, order, special: true };
    let cases = [
        (vec![seen(1)], "record 0 is impossible"),
        (vec![seen(0), record(Event::Opened(by(3)))], "record 1 is impossible: a file that was never seen"),
        (vec![seen(0), record(Event::Added(folio(1, 1)))], "a folio that is not aligned"),
        (vec![seen(0), record(Event::Added(folio(0, 12)))], "a folio that is too large"),
        (vec![seen(0), record(Event::Removed(folio(u64::MAX, 0)))], "a page beyond the end of any file"),
        (vec![seen(0), record(Event::ReadEnd(i64::MAX))], "a read that is too long"),
        (vec![seen(0), record(Event::Opened(Use { disk_window: u32::MAX, ..by(0) }))], "a window that is too large"),
        (vec![seen(0), record(Event::Around { file: 0, first: 0, last: 1 << 40 })], "too large"),
        // Regression: an overflow.
        (
            vec![seen(0), record(Event::Around { file: 0, first: 0, last: u64::MAX })],
            "a page beyond the end of any file",
        ),
    ];
    for (records, expected) in cases {
        let text = error(&trace(&header("6.18.0"), &records, 0));
        assert!(text.contains(expected), "{text}");
    }
}

fn golden() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/6.18-ext4-0k-mapped.trace")).unwrap()
}

#[test]
fn error_of_a_truncated_trace_has_the_position() {
    let bytes = golden();
    for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        match conform(&bytes[..length], None) {
            Err(ConformError::Trace(error)) => {
                let text = error.to_string();
                let expected = if length < 8 { "not a trace" } else { "truncated at byte" };
                assert!(text.contains(expected), "{length}: {text}");
            }
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn bytes_after_the_trailer_are_an_error() {
    let bytes = [golden(), b"x".to_vec()].concat();
    assert!(error(&bytes).contains("data after the trailer"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_trace_is_an_error(place in any::<prop::sample::Index>(), value in 1..=255u8) {
        let mut bytes = golden();
        let at = place.index(bytes.len());
        bytes[at] ^= value;
        // The checksum covers the kernel's name, too.
        prop_assert!(conform(&bytes[..], None).is_err());
    }

    #[test]
    fn arbitrary_records_cause_no_panic(records in prop::collection::vec(events(), 0..60)) {
        let mut all = vec![seen(0), seen(1)];
        all.extend(records);
        let _ = conform(&trace(&header("6.18.0"), &all, 0)[..], None);
    }
}

/// Usual numbers, and the largest number.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..70u64, 0..5000u64, Just(u64::MAX), Just(1 << 51), any::<u64>()]
}

fn a_use() -> impl Strategy<Value = Use> {
    let state =
        (number(), any::<u32>(), any::<u32>(), 0..5000u32, any::<u16>(), any::<u16>(), any::<i64>(), any::<bool>());
    (0..3u32, 0..3u32, number(), 0..5000u32, 0..5000u32, state).prop_map(
        |(open, file, file_bytes, disk_window, disk_request, state)| {
            let (start, size, async_size, window, order, mmap_miss, prev_pos, random) = state;
            let size = size % 10_000;
            let state = RaState { start, size, async_size, window, order, mmap_miss, prev_pos, random };
            Use { open, file, file_bytes, disk_window, disk_request, state }
        },
    )
}

fn events() -> impl Strategy<Value = Record> {
    let folio = || {
        (0..3u32, number(), 0..12u8, any::<bool>()).prop_map(|(file, first, order, special)| Cached {
            file,
            first: first >> order << order,
            order,
            special,
        })
    };
    let asked = || (a_use(), number(), number()).prop_map(|(by, page, wanted)| Asked { by, page, wanted });
    let mapping = prop::option::of(
        (0..100u64, number(), any::<u32>()).prop_map(|(first, end, flags)| ahead_policy::traces::Mapping {
            first,
            end: end.max(first),
            flags,
        }),
    );
    let event = prop_oneof![
        a_use().prop_map(Event::Opened),
        (a_use(), number(), number(), any::<bool>()).prop_map(|(by, offset_bytes, length_bytes, is_other)| {
            Event::Read { by, offset_bytes, length_bytes, flags: 0, is_other }
        }),
        any::<i64>().prop_map(Event::ReadEnd),
        any::<u64>().prop_map(Event::ReadAt),
        (0..1i64 << 20).prop_map(Event::ReadEnd),
        asked().prop_map(Event::Sync),
        asked().prop_map(Event::Async),
        (a_use(), number(), mapping).prop_map(|(by, page, mapping)| Event::Fault { by, page, mapping }),
        (0..3u32, 0..100u64, 0..100u64).prop_map(|(file, first, more)| Event::Around {
            file,
            first,
            last: first + more
        }),
        folio().prop_map(Event::Added),
        folio().prop_map(Event::Removed),
        folio().prop_map(Event::Dirtied),
        (a_use(), 0..6u32, number(), number()).prop_map(|(by, advice, offset_bytes, length_bytes)| {
            Event::Advice { by, advice, offset_bytes, length_bytes }
        }),
    ];
    (0..3u32, event).prop_map(|(task, event)| Record { after_us: 1, task, event })
}
