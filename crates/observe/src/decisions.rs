//! Writes the kernel's read-ahead decisions to a trace while they happen (`bpf/decisions.bpf.c`).

mod calls;
mod event;

use crate::objects::{self, Compiled, bpf_error, map};
use crate::source;
use ahead_policy::traces::{Header, TraceError, Trailer, Writer};
use ahead_sys::{Error, Result, machine};
use event::Numbers;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

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
    stop: OwnedFd,
    reader: JoinHandle<std::result::Result<Output, TraceError>>,
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
        fill_calls(&object)?;
        let passed_over = objects::activate(&object)?;
        let events = MapHandle::try_from(&map(&object, "events")?).map_err(|e| bpf_error("open the ring buffer", e))?;
        let (stopped, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e))?;
        let reader = std::thread::Builder::new()
            .name("decisions".into())
            .spawn(move || read(&events, &stopped, writer))
            .map_err(|e| Error::io("start a thread", e))?;
        Ok(Decisions { object, links, passed_over, stop, reader })
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
        drop(self.stop);
        let joined = self.reader.join();
        let writer = joined.map_err(|_| Error::io("observe", std::io::Error::other("the reader thread panicked")))?;
        let lost = map(&self.object, "lost")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("read counters", e))?;
        let lost = lost.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))).unwrap_or(0);
        let (writer, undecodable) = writer.map_err(written)?;
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

fn fill_calls(object: &Object) -> Result<()> {
    let table = map(object, "calls")?;
    for (number, call) in calls::calls() {
        table
            .update(&number.to_ne_bytes(), &call.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("set up the table of system calls", e))?;
    }
    Ok(())
}

/// The trace, and the number of events that could not be decoded.
type Output = (Writer<BufWriter<File>>, u64);

fn read(
    events: &MapHandle,
    stopped: &OwnedFd,
    writer: Writer<BufWriter<File>>,
) -> std::result::Result<Output, TraceError> {
    let state = std::cell::RefCell::new((Numbers::default(), writer, None));
    let take = |bytes: &[u8]| {
        let (numbers, writer, failed) = &mut *state.borrow_mut();
        if let (Some(record), None) = (numbers.record(bytes), &failed) {
            *failed = writer.add(&record).err();
        }
        0
    };
    let mut builder = RingBufferBuilder::new();
    let broken = |e: libbpf_rs::Error| TraceError::Io(std::io::Error::other(e.to_string()));
    builder.add(events, take).map_err(broken)?;
    let ring = builder.build().map_err(broken)?;
    loop {
        let mut ready = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(TraceError::Io(e.into())),
        }
        let is_over = !ready[1].revents().is_empty();
        ring.consume().map_err(broken)?;
        if is_over {
            break;
        }
    }
    drop(ring);
    let (numbers, writer, failed) = state.into_inner();
    failed.map_or(Ok((writer, numbers.lost)), Err)
}
