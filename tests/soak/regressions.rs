//! Inputs that caused failures of earlier versions.

use crate::{ALWAYS_SEED, Trial, kinds};
use ahead_policy::traces::{Cached, Event, FileSeen, Header, Record, Writer};
use std::path::Path;

/// Whether an input of this kind is accepted. Harm fails the test.
fn is_accepted(kind: &str, input: &[u8]) -> bool {
    Trial::new(ALWAYS_SEED).run(&kinds::named(kind), 0, input).unwrap_or_else(|why| panic!("{why}"))
}

fn trace(events: impl Iterator<Item = Event>) -> Vec<u8> {
    let (kernel, machine) = ("6.18.0".into(), "x86_64".into());
    let header = Header { kernel, machine, page_bytes: 4096, command: vec!["true".into()] };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    events.for_each(|event| writer.add(&Record { after_us: 1, task: 7, event }).unwrap());
    writer.finish(0).unwrap().1
}

/// Regression: each page of a removed folio took memory, 2048 pages for a record of some bytes.
#[test]
fn removed_folios_take_memory_per_folio_and_not_per_page() {
    let seen = FileSeen { file: 0, device: 8, inode: 2, cached_pages: 0, folio_order: 9, least_order: 0 };
    let removed = |number: u64| Event::Removed(Cached { file: 0, first: number << 11, order: 11, special: false });
    let records = (0..30_000).map(removed);
    assert!(is_accepted("traces", &trace([Event::File(seen)].into_iter().chain(records))));
}

/// Regression: inputs that the soak found, each in a file `KIND.what-was-wrong`.
#[test]
fn earlier_harmful_inputs_cause_no_failure() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("soak/inputs");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        // Acceptance does not matter.
        is_accepted(path.file_stem().unwrap().to_str().unwrap(), &std::fs::read(&path).unwrap());
    }
}
