//! Raw traces (`ahead sim trace`) as workloads: one process for each thread.
//!
//! Each does what the thread did, in its order. How long a thread was busy between two calls, with whatever, is told by the end
//! of the one and the beginning of the other: so long the process sleeps. A fault has no end in a trace, so what comes after it
//! comes at once. Reads whose pages the arguments do not tell (sendfile, splice), writes and readahead calls are left out.

use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Mapped, Op, Recording};
use ahead_sys::directory::HeldFile;
use ahead_traces::{Event, Mapping, Reader, Use};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use std::path::Path;

/// Most operations: they are kept in memory, 40 bytes each. Threads and files count, too.
const MOST_OPS: usize = 1 << 24;

/// Reads a trace.
///
/// Errors: it is no regular file, no whole trace, or one that is too long.
pub fn load(path: &Path) -> Result<Recording, String> {
    // A device or FIFO is not even opened.
    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("not a regular file".into());
    }
    let file = HeldFile::open(path).map_err(|error| error.to_string())?.into_file();
    let reader = Reader::new(BufReader::new(file)).map_err(|error| error.to_string())?;
    recording(reader)
}

/// A thread, as far as the trace was read.
#[derive(Default)]
struct Thread {
    ops: Vec<Op>,
    /// From then on it does not wait for the kernel; `None`: not known.
    free_us: Option<u64>,
}

#[derive(Default)]
struct Threads {
    by_task: BTreeMap<u32, Thread>,
    opened: BTreeSet<u32>,
    file_bytes: Vec<u64>,
    ops: usize,
}

fn recording<R: Read>(reader: Reader<R>) -> Result<Recording, String> {
    recording_of(reader, MOST_OPS)
}

fn recording_of<R: Read>(mut reader: Reader<R>, most_ops: usize) -> Result<Recording, String> {
    if u64::from(reader.header().page_bytes) != PAGE_BYTES {
        return Err(format!("recorded with pages of {} bytes; here they have 4096", reader.header().page_bytes));
    }
    let mut threads = Threads::default();
    let mut now_us = 0_u64;
    while let Some(record) = reader.next_record().map_err(|error| error.to_string())? {
        now_us = now_us.saturating_add(record.after_us);
        threads.take(record.task, now_us, &record.event);
        if threads.ops + threads.by_task.len() + threads.file_bytes.len() > most_ops {
            return Err(format!("a trace of more than {most_ops} operations, threads and files is too long"));
        }
    }
    if let Some(lost) = reader.trailer().map(|trailer| trailer.lost).filter(|lost| *lost > 0) {
        return Err(format!("{lost} events were lost while it was recorded"));
    }
    let file_pages = threads.file_bytes.iter().map(|bytes| bytes.div_ceil(PAGE_BYTES)).collect();
    Ok(Recording { file_pages, programs: threads.by_task.into_values().map(|thread| thread.ops.into()).collect() })
}

impl Threads {
    fn take(&mut self, task: u32, now_us: u64, event: &Event) {
        match event {
            Event::File(_) => self.file_bytes.push(0),
            Event::Opened(by) => self.does(task, now_us, by, Some(now_us), None),
            Event::Read { by, offset_bytes, length_bytes, is_other: false, .. } => {
                let (open, file) = names(by);
                let length_bytes = *length_bytes.min(&by.file_bytes.saturating_sub(*offset_bytes));
                let read = Op::Read { open, file, offset_bytes: *offset_bytes, length_bytes };
                self.does(task, now_us, by, None, Some(read));
            }
            Event::Fault { by, page, mapping } => {
                let (open, file) = names(by);
                let mapped = mapping.as_ref().map_or(Mapped::default(), said_of);
                self.does(task, now_us, by, None, Some(Op::Touch { open, file, first: *page, pages: 1, mapped }));
                self.reaches(by.file, page.saturating_add(1).saturating_mul(PAGE_BYTES));
            }
            Event::Advice { by, advice, .. } => {
                let (open, file) = names(by);
                let advise = advice_of(*advice).map(|advice| Op::Advise { open, file, advice });
                self.does(task, now_us, by, Some(now_us), advise);
            }
            Event::ReadAt(offset) => self.moves(task, *offset),
            Event::ReadEnd(_) => self.by_task.entry(task).or_default().free_us = Some(now_us),
            _ => {}
        }
    }

    /// A thread does something, after the time that it needed for itself; from `free_us` on it is busy with its own again.
    fn does(&mut self, task: u32, now_us: u64, by: &Use, free_us: Option<u64>, op: Option<Op>) {
        self.reaches(by.file, by.file_bytes);
        let (open, file) = names(by);
        let first_use = self.opened.insert(by.open);
        // A thread that is new begins when it is first seen.
        let thread = self.by_task.entry(task).or_insert(Thread { free_us: Some(0), ..Thread::default() });
        let before = thread.ops.len();
        if let Some(busy_us) = thread.free_us.and_then(|free_us| now_us.checked_sub(free_us)).filter(|us| *us > 0) {
            thread.ops.push(Op::Sleep { time_ns: busy_us.saturating_mul(1000) });
        }
        if first_use {
            thread.ops.push(Op::Open { open, file });
        }
        thread.ops.extend(op);
        thread.free_us = free_us;
        self.ops += thread.ops.len() - before;
    }

    /// The call that a thread is in begins elsewhere.
    fn moves(&mut self, task: u32, offset: u64) {
        let last = self.by_task.get_mut(&task).and_then(|thread| thread.ops.last_mut());
        if let Some(Op::Read { file, offset_bytes, length_bytes, .. }) = last {
            let file_bytes = self.file_bytes.get(file.0 as usize).copied().unwrap_or(0);
            *offset_bytes = offset;
            *length_bytes = (*length_bytes).min(file_bytes.saturating_sub(offset));
        }
    }

    /// A file is so long at least.
    fn reaches(&mut self, file: u32, bytes: u64) {
        if let Some(known) = self.file_bytes.get_mut(file as usize) {
            *known = bytes.max(*known);
        }
    }
}

fn said_of(mapping: &Mapping) -> Mapped {
    Mapped { advice: mapping.advice(), huge: mapping.is_huge(), executable: mapping.is_executable() }
}

fn names(by: &Use) -> (OpenId, FileId) {
    (OpenId(by.open), FileId(by.file))
}

/// What `posix_fadvise` was told of the whole file.
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
    use ahead_traces::{FileSeen, Header, Record, Writer};

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
    fn each_thread_does_what_it_did_and_pauses_as_it_did() {
        let records = [
            (0, 7, seen(0)),
            (100, 7, Event::Opened(by(0, 0))),
            (20, 7, read(0, 4096, false)),
            // The other thread comes 10 us later, and uses an open file that was not seen to be opened.
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
            // How long the fault took is not known, so no pause.
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
    fn what_is_not_whole_is_refused() {
        assert!(trace(PAGES_OF_4096, 3, &[]).unwrap_err().contains("3 events were lost"));
        assert!(trace(65_536, 0, &[]).unwrap_err().contains("pages of 65536 bytes"));
    }

    /// Regression: operations were counted, and threads and files, of which a trace may name any number, were not.
    #[test]
    fn threads_and_files_without_number_are_refused() {
        let of_threads: Vec<_> = (0..100).map(|task| (1, task, Event::ReadEnd(0))).collect();
        let of_files: Vec<_> = (0..100).map(|file| (1, 1, seen(file))).collect();
        for records in [of_threads, of_files] {
            let bytes = bytes(PAGES_OF_4096, 0, &records);
            let read = |most| recording_of(Reader::new(bytes.as_slice()).unwrap(), most);
            assert!(read(200).is_ok() && read(99).unwrap_err().contains("is too long"));
        }
    }
}
