//! A network volume: a fixed latency, and two token buckets that hold it to its I/Os and bytes per second.
//!
//! ```text
//!   request -> slot (outstanding) -> tokens: I/Os (one per started io_unit_kb) and bytes -> latency -> done
//! ```
//!
//! A request starts when both buckets hold all its tokens. The buckets fill at the volume's rates and hold at most the
//! burst. So in any window at most burst + rate × window is completed. A request larger than the burst waits for its
//! remaining tokens. Not modelled: the jitter of the network, and credits that last for minutes.

use ahead_model::checked_toml::{Accepts, Field};
use serde::{Deserialize, Serialize};

use crate::common::Common;
use crate::slots::Slots;
use crate::time::{BYTES_PER_MB, NS_PER_S, later, transfer_ns};
use crate::{Request, Served};

/// The figures of a network volume. Fields: `latency_us`, `iops`, `mb_per_s`, `io_unit_kb` (each started unit counts as
/// an I/O; default 256), `burst_ios` (default 1), `burst_kb` (default 256), `outstanding` (requests in service at the
/// same time; default 128).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cloud {
    #[serde(flatten)]
    pub(crate) common: Common,
    latency_us: f64,
    iops: f64,
    mb_per_s: f64,
    #[serde(default = "default_io_unit_kb")]
    io_unit_kb: u32,
    #[serde(default = "default_burst_ios")]
    pub(crate) burst_ios: u32,
    #[serde(default = "default_burst_kb")]
    pub(crate) burst_kb: u32,
    #[serde(default = "default_outstanding")]
    pub(crate) outstanding: u32,
}

fn default_io_unit_kb() -> u32 {
    256
}

fn default_burst_ios() -> u32 {
    1
}

fn default_burst_kb() -> u32 {
    256
}

fn default_outstanding() -> u32 {
    128
}

impl Cloud {
    /// Ranges: from a throttled test volume to beyond the largest volumes on sale.
    pub(crate) const FIELDS: [Field; 7] = [
        Field::required("latency_us", Accepts::Number(1.0, 1e7)),
        Field::required("iops", Accepts::Number(1.0, 1e7)),
        Field::required("mb_per_s", Accepts::Number(0.01, 1e5)),
        Field::optional("io_unit_kb", Accepts::Whole(1, 65_536)),
        Field::optional("burst_ios", Accepts::Whole(1, 1_000_000)),
        Field::optional("burst_kb", Accepts::Whole(4, 1 << 30)),
        Field::optional("outstanding", Accepts::Whole(1, 4096)),
    ];

    /// The rate of long reads that both buckets permit.
    pub(crate) fn sustained_mb_per_s(&self) -> f64 {
        let by_ios = self.iops * f64::from(self.io_unit_kb) * 1024.0 / 1e6;
        self.mb_per_s.min(by_ios)
    }

    fn units(&self, length_bytes: u64) -> u64 {
        length_bytes.div_ceil(u64::from(self.io_unit_kb) << 10).max(1)
    }

    fn ios_ns(&self, ios: u64) -> u64 {
        (ios as f64 * NS_PER_S / self.iops).ceil() as u64
    }

    fn latency_ns(&self) -> u64 {
        (self.latency_us * 1e3) as u64
    }

    fn buckets(&self) -> (Bucket, Bucket) {
        let ios = Bucket { burst_ns: self.ios_ns(u64::from(self.burst_ios)), owed_until_ns: 0 };
        let bytes = Bucket { burst_ns: transfer_ns(u64::from(self.burst_kb) << 10, self.mb_per_s), owed_until_ns: 0 };
        (ios, bytes)
    }

    /// The limits, as times.
    pub(crate) fn limits(&self) -> Limits {
        let (ios, bytes) = self.buckets();
        let latency_ns = self.latency_ns() as f64;
        Limits {
            latency_ns,
            slot_ns: latency_ns / f64::from(self.outstanding),
            io_ns: NS_PER_S / self.iops,
            byte_ns: NS_PER_S / BYTES_PER_MB / self.mb_per_s,
            unit_bytes: u64::from(self.io_unit_kb) << 10,
            burst_ios_ns: ios.burst_ns as f64,
            burst_bytes_ns: bytes.burst_ns as f64,
        }
    }

    pub(crate) fn fastest_ns(&self, length_bytes: u64) -> u64 {
        let (mut ios, mut bytes) = self.buckets();
        let let_in_ns = ios
            .take(self.ios_ns(self.units(length_bytes)), 0)
            .max(bytes.take(transfer_ns(length_bytes, self.mb_per_s), 0));
        let_in_ns + self.latency_ns()
    }
}

/// The limits of a network volume, in nanoseconds.
pub(crate) struct Limits {
    pub latency_ns: f64,
    /// Latency of a request, shared by all slots.
    pub slot_ns: f64,
    /// An I/O at the sustained rate.
    pub io_ns: f64,
    /// A byte at the sustained rate.
    pub byte_ns: f64,
    /// The bytes that an I/O counts for.
    pub unit_bytes: u64,
    /// What the full buckets hold.
    pub burst_ios_ns: f64,
    pub burst_bytes_ns: f64,
}

/// A token bucket in units of time: a request takes the time in which the bucket refills by the request's tokens.
#[derive(Clone, Debug)]
struct Bucket {
    /// Capacity of the bucket, as time.
    burst_ns: u64,
    /// The time at which the bucket is full again.
    owed_until_ns: u64,
}

impl Bucket {
    /// Takes `cost_ns` at `now_ns`, or as soon as the bucket holds it; returns the time.
    fn take(&mut self, cost_ns: u64, now_ns: u64) -> u64 {
        self.owed_until_ns = later(self.owed_until_ns.max(now_ns), cost_ns);
        self.owed_until_ns.saturating_sub(self.burst_ns).max(now_ns)
    }
}

/// The state of a network volume.
#[derive(Clone, Debug)]
pub(crate) struct CloudState {
    cloud: Cloud,
    ios: Bucket,
    bytes: Bucket,
    slots: Slots,
}

impl CloudState {
    pub(crate) fn new(cloud: &Cloud) -> CloudState {
        let (ios, bytes) = cloud.buckets();
        CloudState { cloud: cloud.clone(), ios, bytes, slots: Slots::new(cloud.outstanding) }
    }

    pub(crate) fn serve(&mut self, request: &Request, now_ns: u64) -> Served {
        let start_ns = self.slots.take(now_ns);
        let ios_ns = self.cloud.ios_ns(self.cloud.units(request.length_bytes));
        let bytes_ns = transfer_ns(request.length_bytes, self.cloud.mb_per_s);
        let let_in_ns = self.ios.take(ios_ns, start_ns).max(self.bytes.take(bytes_ns, start_ns));
        let end_ns = later(let_in_ns, self.cloud.latency_ns());
        self.slots.hold(end_ns);
        Served { start_ns, end_ns, seeked: false, busy_ns: end_ns - start_ns }
    }
}
