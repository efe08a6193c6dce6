//! Times at which reads completed, from the block layer (`bpf/arrivals.bpf.c`).

use crate::collect::memory_limit;
use crate::objects::{Compiled, attach_all, bpf_error, map, open, passed_over};
use ahead_model::DeviceNumber;
use ahead_model::sorting;
use ahead_sys::{Error, Result};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/arrivals.bpf.deflate")));

/// The block layer counts in sectors of 512 bytes, for every device.
const SECTOR_BYTES: u64 = 512;

/// `struct arrival`: two u64, four u32.
const EVENT_BYTES: usize = 32;

/// A completed read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The disk, not its partition.
    pub device: DeviceNumber,
    /// Offset on that disk, bytes.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

/// All reads that completed during an observation, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    pub reads: Vec<Arrival>,
    /// Events that did not fit into the ring buffer or our memory limit, or that no BPF program saw.
    pub lost_events: u64,
}

/// A running observer of all block devices.
#[derive(Debug)]
pub struct Arrivals {
    object: Object,
    links: Vec<Link>,
    stop: OwnedFd,
    reader: JoinHandle<Result<Kept>>,
}

impl Arrivals {
    /// Starts to observe. Needs root, BTF and the tracepoint `block_rq_complete`.
    pub fn start() -> Result<Arrivals> {
        let (object, links) = attach_all(open("arrivals", &OBJECT)?)?;
        let events =
            MapHandle::try_from(&map(&object, "arrivals")?).map_err(|e| bpf_error("open the ring buffer", e))?;
        let (stopped, stop) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e))?;
        let reader = std::thread::Builder::new()
            .name("arrivals".into())
            .spawn(move || read(&events, &stopped))
            .map_err(|e| Error::io("start a thread", e))?;
        Ok(Arrivals { object, links, stop, reader })
    }

    /// Detaches, and returns all reads.
    pub fn finish(mut self) -> Result<Arrived> {
        self.links.clear();
        drop(self.stop);
        let (mut reads, unkept) = self
            .reader
            .join()
            .map_err(|_| Error::io("observe", std::io::Error::other("the reader thread panicked")))??;
        sorting::sort_by_key(&mut reads, |read| read.time_ns);
        let lost = map(&self.object, "lost")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error("read counters", e))?;
        let lost_events = lost.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))).unwrap_or(0);
        let lost_events = lost_events + unkept + passed_over(&self.object)?;
        Ok(Arrived { reads, lost_events })
    }
}

/// Completed reads, and the number of those beyond the memory limit.
type Kept = (Vec<Arrival>, u64);

fn read(events: &MapHandle, stopped: &OwnedFd) -> Result<Kept> {
    let kept = std::cell::RefCell::new((Vec::new(), memory_limit()));
    let mut builder = RingBufferBuilder::new();
    let take = |bytes: &[u8]| {
        let (reads, limit) = &mut *kept.borrow_mut();
        reads.extend(decode(bytes).filter(|_| limit.take::<Arrival>(1, 0)));
        0
    };
    builder.add(events, take).map_err(|e| bpf_error("open the ring buffer", e))?;
    let ring = builder.build().map_err(|e| bpf_error("open the ring buffer", e))?;
    loop {
        let mut ready = [PollFd::from_borrowed_fd(events.as_fd(), PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("poll", e)),
        }
        let is_over = !ready[1].revents().is_empty();
        ring.consume().map_err(|e| bpf_error("read the ring buffer", e))?;
        if is_over {
            break;
        }
    }
    drop(ring);
    let (reads, limit) = kept.into_inner();
    Ok((reads, limit.refused()))
}

/// Decodes `struct arrival`; `None`: wrong size.
fn decode(bytes: &[u8]) -> Option<Arrival> {
    let bytes: &[u8; EVENT_BYTES] = bytes.try_into().ok()?;
    let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let short = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Some(Arrival {
        time_ns: long(0),
        offset_bytes: long(8).saturating_mul(SECTOR_BYTES),
        length_bytes: short(16).into(),
        device: DeviceNumber::new(short(20), short(24)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn event_is_decoded_and_a_truncated_one_is_refused() {
        let bytes = Layout::of("layout_events")
            .bytes("arrival", &[("time_ns", 7), ("sector", 8), ("bytes", 4096), ("major", 7), ("minor", 3)]);
        let expected = Arrival { time_ns: 7, offset_bytes: 4096, length_bytes: 4096, device: DeviceNumber::new(7, 3) };
        assert_eq!(decode(&bytes), Some(expected));
        assert_eq!(decode(&bytes[1..]), None);
    }
}
