//! Writes the kernel's read-ahead decisions to a trace while they happen (`bpf/decisions.bpf.c`).

mod calls;
mod event;

use crate::objects::{self, Compiled, bpf_error, map};
use crate::reader::{EventReader, events, read_all};
use crate::source;
use ahead_policy::traces::{Header, TraceError, Trailer, Writer};
use ahead_sys::{Error, Result, machine};
use event::Numbers;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::OwnedFd;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/decisions.bpf.deflate")));

/// Size of the ring buffer, bytes: half a million decisions, because no event may be lost.
const RING_BYTES: u32 = 64 << 20;
/// The reader is woken when this many bytes wait.
const WAKE_BYTES: u64 = 1 << 20;

/// A running observer of decisions.
#[derive(Debug)]
pub struct Decisions {
    object: Object,
    links: Vec<Link>,
    /// Number of missed program runs at the start.
    passed_over: u64,
    reader: EventReader<Output>,
}

impl Decisions {
    /// Starts to observe, and writes the trace to `to`. Needs root, and Linux 6.18 or newer.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`], with what is missing. Then no program stays attached.
    pub fn start(to: File, header: &Header) -> Result<Decisions> {
        if !machine::is_root() {
            return Err(Error::needs_root("observing read-ahead"));
        }
        let writer = Writer::new(BufWriter::new(to), header).map_err(written)?;
        let mut open = objects::open("decisions", &OBJECT)?;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let outcome = match name.as_str() {
                "events" => map.set_max_entries(RING_BYTES),
                _ if name.contains(".rodata") => map.set_initial_value(&settings()),
                _ => Ok(()),
            };
            outcome.map_err(|e| bpf_error(&format!("set up the BPF map {name}"), e))?;
        }
        // A kernel without huge pages lacks this tracepoint.
        let collapses = source::has_tracepoint("mm_khugepaged_collapse_file")?;
        for mut program in open.progs_mut().filter(|program| program.name() == "on_collapsed") {
            program.set_autoload(collapses);
        }
        objects::choose_copies(&mut open);
        let (object, links) = objects::attach_all(open).map_err(|error| Error::Unsupported {
            what: "observing read-ahead".into(),
            why: format!(
                "the kernel lacks a tracepoint (readahead:* are in Linux 6.18 and newer) or refuses a program: {error}"
            ),
        })?;
        let calls = calls::calls().into_iter().map(|(number, call)| (number, call.to_ne_bytes()));
        objects::fill_calls(&object, "calls", calls)?;
        let passed_over = objects::activate(&object)?;
        let events = events(&object, "events")?;
        let reader = EventReader::start("decisions", move |stopped| read(&events, stopped, writer))?;
        Ok(Decisions { object, links, passed_over, reader })
    }

    /// Follows a process that has not executed its program yet, and its descendants.
    pub fn follow(&self, tgid: u32) -> Result<()> {
        map(&self.object, "followed")?
            .update(&tgid.to_ne_bytes(), &1u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error(&format!("follow process {tgid}"), e))
    }

    /// Detaches, writes the remaining events, and returns the trailer.
    pub fn finish(mut self) -> Result<Trailer> {
        let passed_over = objects::lost_since(&self.object, self.passed_over)?;
        self.links.clear();
        let (writer, undecodable) = self.reader.finish()?;
        let lost = objects::number(&self.object, "lost", 0)?;
        let (trailer, file) = writer.finish(lost + passed_over + undecodable).map_err(written)?;
        file.into_inner().map_err(|e| Error::io("write the trace", e.into_error()))?;
        Ok(trailer)
    }
}

fn written(error: TraceError) -> Error {
    match error {
        TraceError::Io(error) => Error::io("write the trace", error),
        other => Error::io("write the trace", std::io::Error::other(other.to_string())),
    }
}

/// `wake_bytes` and `page_shift`.
fn settings() -> Vec<u8> {
    [WAKE_BYTES, machine::page_size().ilog2().into()].map(u64::to_ne_bytes).concat()
}

/// The trace, and the number of events that could not be decoded.
type Output = (Writer<BufWriter<File>>, u64);

fn read(events: &MapHandle, stopped: &OwnedFd, mut writer: Writer<BufWriter<File>>) -> Result<Output> {
    let (mut numbers, mut failed) = (Numbers::default(), None);
    read_all(events, stopped, |bytes| {
        if let (Some(record), None) = (numbers.record(bytes), &failed) {
            failed = writer.add(&record).err();
        }
    })?;
    failed.map_or(Ok((writer, numbers.lost)), |error| Err(written(error)))
}
