//! A flash disk: a latency per request, parallel channels, one bus that all channels share.
//!
//! ```text
//!   request ->  [channel 1: latency]  \
//!   request ->  [channel 2: latency]   >--  bus (read_mb_per_s)  -->  done
//!   request ->  waits for a channel   /
//! ```
//!
//! A request occupies a channel during its latency and until its bytes are transferred. The bus serves in order of
//! arrival, so the sum never exceeds the bandwidth. The drive stripes long requests over the flash, so they cost one
//! latency. A read that continues an earlier one finds the drive prepared (`sequential_read_us`). Not modelled: garbage
//! collection, and writes that exceed the drive's cache.

use ahead_model::checked_toml::{Accepts, Field};
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::slots::Slots;
use crate::time::{later, transfer_ns};
use crate::{Op, Request, Served};

/// Number of sequential streams that a drive follows. Drives do follow several; this number is our choice.
const STREAMS: usize = 8;

/// The figures of a flash disk. Fields: `channels` (requests served at the same time), `read_us` and `write_us`
/// (latency of a request outside any stream; `write_us` defaults to `read_us`), `sequential_read_us` (latency of a read
/// that continues another; default `read_us`), `read_mb_per_s` and `write_mb_per_s` (the bus; writing defaults to
/// reading).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flash {
    #[serde(flatten)]
    pub(crate) common: Common,
    pub(crate) channels: u32,
    read_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequential_read_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_us: Option<f64>,
    pub(crate) read_mb_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_mb_per_s: Option<f64>,
}

impl Flash {
    /// Ranges: from the slowest card to a little beyond the fastest disk on sale.
    pub(crate) const FIELDS: [Field; 6] = [
        Field::required("channels", Accepts::Whole(1, 1024)),
        Field::required("read_us", Accepts::Number(1.0, 1e6)),
        Field::optional("sequential_read_us", Accepts::Number(1.0, 1e6)),
        Field::optional("write_us", Accepts::Number(1.0, 1e6)),
        Field::required("read_mb_per_s", Accepts::Number(0.01, 1e5)),
        Field::optional("write_mb_per_s", Accepts::Number(0.01, 1e5)),
    ];

    fn sequential_read_us(&self) -> f64 {
        self.sequential_read_us.unwrap_or(self.read_us)
    }

    /// Latencies of a read that continues no other one, and of one that does, nanoseconds.
    pub(crate) fn read_latencies_ns(&self) -> (u64, u64) {
        (us(self.read_us), us(self.sequential_read_us()))
    }

    pub(crate) fn fastest_ns(&self, length_bytes: u64) -> u64 {
        us(self.read_us.min(self.sequential_read_us())) + transfer_ns(length_bytes, self.read_mb_per_s)
    }
}

fn us(us: f64) -> u64 {
    (us * 1e3) as u64
}

/// The state of a flash disk.
#[derive(Clone, Debug)]
pub(crate) struct FlashState {
    read_ns: u64,
    sequential_read_ns: u64,
    write_ns: u64,
    read_mb_per_s: f64,
    write_mb_per_s: f64,
    slots: Slots,
    bus_free_ns: u64,
    /// The ends of the reads that a next read may continue; the oldest is replaced.
    stream_ends: [u64; STREAMS],
    oldest: usize,
}

impl FlashState {
    pub(crate) fn new(flash: &Flash) -> FlashState {
        FlashState {
            read_ns: us(flash.read_us),
            sequential_read_ns: us(flash.sequential_read_us()),
            write_ns: us(flash.write_us.unwrap_or(flash.read_us)),
            read_mb_per_s: flash.read_mb_per_s,
            write_mb_per_s: flash.write_mb_per_s.unwrap_or(flash.read_mb_per_s),
            slots: Slots::new(flash.channels),
            bus_free_ns: 0,
            stream_ends: [u64::MAX; STREAMS],
            oldest: 0,
        }
    }

    pub(crate) fn serve(&mut self, request: &Request, now_ns: u64) -> Served {
        let start_ns = self.slots.take(now_ns);
        let (latency_ns, mb_per_s) = match request.op {
            Op::Read if self.continues_stream(request) => (self.sequential_read_ns, self.read_mb_per_s),
            Op::Read => (self.read_ns, self.read_mb_per_s),
            Op::Write => (self.write_ns, self.write_mb_per_s),
        };
        let on_bus_ns = later(start_ns, latency_ns).max(self.bus_free_ns);
        let end_ns = later(on_bus_ns, transfer_ns(request.length_bytes, mb_per_s));
        self.bus_free_ns = end_ns;
        self.slots.hold(end_ns);
        Served { start_ns, end_ns, seeked: false, busy_ns: end_ns - start_ns }
    }

    /// Whether a read continues one of the streams; stores its end.
    fn continues_stream(&mut self, request: &Request) -> bool {
        let end = request.offset_bytes + request.length_bytes;
        if let Some(stream) = self.stream_ends.iter_mut().find(|stream| **stream == request.offset_bytes) {
            *stream = end;
            return true;
        }
        self.stream_ends[self.oldest] = end;
        self.oldest = (self.oldest + 1) % STREAMS;
        false
    }
}
