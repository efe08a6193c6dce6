//! Times at which reads completed, from the block layer (`bpf/arrivals.bpf.c`).

use crate::collect::memory_limit;
use crate::fields::Fields;
use crate::objects::{Compiled, attach_all, number, open, passed_over};
use crate::reader::{EventReader, events, read_all};
use ahead_model::DeviceNumber;
use ahead_model::sorting;
use ahead_sys::Result;
use libbpf_rs::{Link, MapHandle, Object};
use std::os::fd::OwnedFd;

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
    reader: EventReader<Kept>,
}

impl Arrivals {
    /// Starts to observe. Needs root, BTF and the tracepoint `block_rq_complete`.
    pub fn start() -> Result<Arrivals> {
        let (object, links) = attach_all(open("arrivals", &OBJECT)?)?;
        let events = events(&object, "arrivals")?;
        let reader = EventReader::start("arrivals", move |stopped| read(&events, stopped))?;
        Ok(Arrivals { object, links, reader })
    }

    /// Detaches, and returns all reads.
    pub fn finish(mut self) -> Result<Arrived> {
        self.links.clear();
        let (mut reads, unkept) = self.reader.finish()?;
        sorting::sort_by_key(&mut reads, |read| read.time_ns);
        let lost_events = number(&self.object, "lost", 0)? + unkept + passed_over(&self.object)?;
        Ok(Arrived { reads, lost_events })
    }
}

/// Completed reads, and the number of those beyond the memory limit.
type Kept = (Vec<Arrival>, u64);

fn read(events: &MapHandle, stopped: &OwnedFd) -> Result<Kept> {
    let (mut reads, mut limit) = (Vec::new(), memory_limit());
    read_all(events, stopped, |bytes| reads.extend(decode(bytes).filter(|_| limit.take::<Arrival>(1, 0))))?;
    Ok((reads, limit.refused()))
}

/// Decodes `struct arrival`; `None`: wrong size.
fn decode(bytes: &[u8]) -> Option<Arrival> {
    let fields = Fields::of::<EVENT_BYTES>(bytes)?;
    Some(Arrival {
        time_ns: fields.u64(0),
        offset_bytes: fields.u64(8).saturating_mul(SECTOR_BYTES),
        length_bytes: fields.u32(16).into(),
        device: DeviceNumber::new(fields.u32(20), fields.u32(24)),
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
