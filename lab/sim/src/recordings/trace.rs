//! Raw traces (`ahead sim trace`) as workloads: one process for each thread.
//!
//! Each process repeats the operations of its thread in their order. Between two calls it sleeps for the time from the end of the first to the
//! start of the second. A fault has no end in a trace, so the next operation follows at once. Reads whose pages the trace does not record
//! (sendfile, splice), writes and readahead calls are left out.

use crate::{Mapped, Op, Recording};
use ahead_policy::traces::{Event, Mapping, Reader, Use};
use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES};
use ahead_sys::directory::HeldFile;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use std::path::Path;

/// Limit of operations, which are kept in memory, 40 bytes each. Threads and files count, too.
const MAX_OPS: usize = 1 << 24;

/// Reads a trace.
///
/// Errors: not a regular file, not a complete trace, or too long.
pub fn load(path: &Path) -> Result<Recording, String> {
    // A device or FIFO is not opened.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("not a regular file".into());
    }
    let file = HeldFile::open(path).map_err(|error| error.to_string())?.into_file();
    let reader = Reader::new(BufReader::new(file)).map_err(|error| error.to_string())?;
    recording(reader)
}

/// The operations of a thread so far.
#[derive(Default)]
struct Thread {
    ops: Vec<Op>,
    /// The end of its last call; `None`: unknown.
    idle_since_us: Option<u64>,
}

#[derive(Default)]
struct Threads {
    by_task: BTreeMap<u32, Thread>,
    opened: BTreeSet<u32>,
    file_bytes: Vec<u64>,
    ops: usize,
}

fn recording<R: Read>(reader: Reader<R>) -> Result<Recording, String> {
    recording_of(reader, MAX_OPS)
}

fn recording_of<R: Read>(mut reader: Reader<R>, max_ops: usize) -> Result<Recording, String> {
    if u64::from(reader.header().page_bytes) != PAGE_BYTES {
        return Err(format!(
            "the trace was recorded with pages of {} bytes; the simulator has pages of 4096",
            reader.header().page_bytes
        ));
    }
    let mut threads = Threads::default();
    let mut now_us = 0_u64;
    while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
        now_us = now_us.saturating_add(record.after_us);
        threads.add(record.task, now_us, &record.event);
        if threads.ops + threads.by_task.len() + threads.file_bytes.len() > max_ops {
            return Err(format!("the trace is too long: it has more than {max_ops} operations, threads and files"));
        }
    }
    if let Some(lost) = reader.trailer().map(|trailer| trailer.lost).filter(|lost| *lost > 0) {
        return Err(format!("{lost} events were lost during the recording"));
    }
    let file_pages = threads.file_bytes.iter().map(|bytes| bytes.div_ceil(PAGE_BYTES)).collect();
    let programs = threads.by_task.into_values().map(|thread| thread.ops.into()).collect();
    Ok(Recording { file_pages, programs, used: None })
}

impl Threads {
    fn add(&mut self, task: u32, now_us: u64, event: &Event) {
        match event {
            Event::File(_) => self.file_bytes.push(0),
            Event::Opened(by) => self.add_op(task, now_us, by, Some(now_us), None),
            Event::Read { by, offset_bytes, length_bytes, is_other: false, .. } => {
                let (open, file) = names(by);
                let length_bytes = *length_bytes.min(&by.file_bytes.saturating_sub(*offset_bytes));
                let read = Op::Read { open, file, offset_bytes: *offset_bytes, length_bytes };
                self.add_op(task, now_us, by, None, Some(read));
            }
            Event::Fault { by, page, mapping } => {
                let (open, file) = names(by);
                let mapped = mapping.as_ref().map_or(Mapped::default(), mapped_of);
                self.add_op(task, now_us, by, None, Some(Op::Touch { open, file, first: *page, pages: 1, mapped }));
                self.extend_file(by.file, page.saturating_add(1).saturating_mul(PAGE_BYTES));
            }
            Event::Advice { by, advice, .. } => {
                let (open, file) = names(by);
                let advise = advice_of(*advice).map(|advice| Op::Advise { open, file, advice });
                self.add_op(task, now_us, by, Some(now_us), advise);
            }
            Event::ReadAt(offset) => self.move_read(task, *offset),
            Event::ReadEnd(_) => self.by_task.entry(task).or_default().idle_since_us = Some(now_us),
            _ => {}
        }
    }

    /// Adds an operation of a thread, after a sleep since the end of the last one. `idle_since_us`: the end of this one.
    fn add_op(&mut self, task: u32, now_us: u64, by: &Use, idle_since_us: Option<u64>, op: Option<Op>) {
        self.extend_file(by.file, by.file_bytes);
        let (open, file) = names(by);
        let first_use = self.opened.insert(by.open);
        // A new thread starts at time 0.
        let thread = self.by_task.entry(task).or_insert(Thread { idle_since_us: Some(0), ..Thread::default() });
        let before = thread.ops.len();
        if let Some(busy_us) =
            thread.idle_since_us.and_then(|idle_since_us| now_us.checked_sub(idle_since_us)).filter(|us| *us > 0)
        {
            thread.ops.push(Op::Sleep { time_ns: busy_us.saturating_mul(1000) });
        }
        if first_use {
            thread.ops.push(Op::Open { open, file });
        }
        thread.ops.extend(op);
        thread.idle_since_us = idle_since_us;
        self.ops += thread.ops.len() - before;
    }

    /// Changes the offset of a thread's current read.
    fn move_read(&mut self, task: u32, offset: u64) {
        let last = self.by_task.get_mut(&task).and_then(|thread| thread.ops.last_mut());
        if let Some(Op::Read { file, offset_bytes, length_bytes, .. }) = last {
            let file_bytes = self.file_bytes.get(file.0 as usize).copied().unwrap_or(0);
            *offset_bytes = offset;
            *length_bytes = (*length_bytes).min(file_bytes.saturating_sub(offset));
        }
    }

    /// Extends a file to this length.
    fn extend_file(&mut self, file: u32, bytes: u64) {
        if let Some(known) = self.file_bytes.get_mut(file as usize) {
            *known = bytes.max(*known);
        }
    }
}

fn mapped_of(mapping: &Mapping) -> Mapped {
    Mapped { advice: mapping.advice(), huge: mapping.is_huge(), executable: mapping.is_executable() }
}

fn names(by: &Use) -> (OpenId, FileId) {
    (OpenId(by.open), FileId(by.file))
}

/// The advice of `posix_fadvise` for the whole file.
fn advice_of(advice: u32) -> Option<Advice> {
    match advice {
        0 => Some(Advice::Normal),
        1 => Some(Advice::Random),
        2 => Some(Advice::Sequential),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_policy::traces::{FileSeen, Header, Record, Writer};

    const PAGES_OF_4096: u32 = 4096;

    fn trace(page_bytes: u32, lost: u64, records: &[(u64, u32, Event)]) -> Result<Recording, String> {
        recording(Reader::new(bytes(page_bytes, lost, records).as_slice()).unwrap())
    }

    fn bytes(page_bytes: u32, lost: u64, records: &[(u64, u32, Event)]) -> Vec<u8> {
        let header = Header { kernel: "6.18".into(), machine: "x86_64".into(), page_bytes, command: vec!["x".into()] };
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for (after_us, task, event) in records {
            writer.add(&Record { after_us: *after_us, task: *task, event: event.clone() }).unwrap();
        }
        writer.finish(lost).unwrap().1
    }

    fn by(open: u32, file: u32) -> Use {
        Use { open, file, file_bytes: 10_000, ..Use::default() }
    }

    fn seen(file: u32) -> Event {
        Event::File(FileSeen { file, device: 1, inode: 2, cached_pages: 0, folio_order: 0, least_order: 0 })
    }

    fn read(open: u32, offset_bytes: u64, is_other: bool) -> Event {
        Event::Read { by: by(open, 0), offset_bytes, length_bytes: 1 << 40, flags: 0, is_other }
    }

    #[test]
    fn each_thread_repeats_its_operations_and_pauses() {
        let records = [
            (0, 7, seen(0)),
            (100, 7, Event::Opened(by(0, 0))),
            (20, 7, read(0, 4096, false)),
            // The other thread starts 10 µs later, with an open file whose opening is not in the trace.
            (10, 8, read(1, 0, false)),
            (500, 7, Event::ReadEnd(5904)),
            (30, 7, Event::Fault { by: by(0, 0), page: 4, mapping: None }),
            (40, 7, Event::Advice { by: by(0, 0), advice: 1, offset_bytes: 0, length_bytes: 0 }),
            (5, 7, read(0, 0, true)),
        ];
        let recording = trace(PAGES_OF_4096, 0, &records).unwrap();
        let (open, file) = (OpenId(0), FileId(0));
        let sleep = |us: u64| Op::Sleep { time_ns: us * 1000 };
        let first = [
            sleep(100),
            Op::Open { open, file },
            sleep(20),
            Op::Read { open, file, offset_bytes: 4096, length_bytes: 5904 },
            sleep(30),
            Op::Touch { open, file, first: 4, pages: 1, mapped: Mapped::default() },
            // The end of the fault is unknown: no pause.
            Op::Advise { open, file, advice: Advice::Random },
        ];
        assert_eq!(*recording.programs[0], first);
        let other = OpenId(1);
        let read = Op::Read { open: other, file, offset_bytes: 0, length_bytes: 10_000 };
        assert_eq!(*recording.programs[1], [sleep(130), Op::Open { open: other, file }, read]);
        // The fault was on the fifth page.
        assert_eq!(recording.file_pages, [5]);
        assert!(recording.check().is_ok());
    }

    #[test]
    fn lost_events_and_other_page_sizes_are_refused() {
        assert!(trace(PAGES_OF_4096, 3, &[]).unwrap_err().contains("3 events were lost"));
        assert!(trace(65_536, 0, &[]).unwrap_err().contains("pages of 65536 bytes"));
    }

    /// Regression: only operations had a limit; a trace may name any number of threads and files.
    #[test]
    fn too_many_threads_or_files_are_refused() {
        let of_threads: Vec<_> = (0..100).map(|task| (1, task, Event::ReadEnd(0))).collect();
        let of_files: Vec<_> = (0..100).map(|file| (1, 1, seen(file))).collect();
        for records in [of_threads, of_files] {
            let bytes = bytes(PAGES_OF_4096, 0, &records);
            let read = |most| recording_of(Reader::new(bytes.as_slice()).unwrap(), most);
            assert!(read(200).is_ok() && read(99).unwrap_err().contains("is too long"));
        }
    }
}
