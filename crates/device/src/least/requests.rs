//! The least time of a disk without a head: a combination of its limits.
//!
//! A flash disk and a network volume have two limits each: bytes per second, and requests per second or at the same time. A schedule can
//! save requests by reading a gap, and bytes by not reading it. Each [`Price`] weighs both limits. Its bound is the cost of
//! the cheapest requests for the extents at this price:
//!
//! ```text
//!        extent a      gap      extent b              extent c
//!      |##########|............|#######|            |##########|
//!        run: per_run_ns  + min(per_run_ns, gap · per_byte_ns)  + min(...)  + bytes · per_byte_ns + further requests of long extents
//! ```
//!
//! A run is a range that is read without a gap. Every schedule pays at least this: between two extents it reads the gap, or begins another run.

use crate::time::{BYTES_PER_MB, NS_PER_S};
use crate::{Cloud, Flash};
use std::ops::Range;

/// Steps of the weights.
const STEPS: u32 = 16;

/// A weight of the limits. Times in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Price {
    fixed_ns: f64,
    per_run_ns: f64,
    /// Cost of each further request in a run.
    per_request_ns: f64,
    /// Each further request reads this many bytes at most.
    request_bytes: f64,
    /// Whether a part of a further request counts as a whole one.
    whole_requests: bool,
    per_byte_ns: f64,
}

impl Price {
    /// Cost of an extent of this length, without its run.
    fn extent_ns(&self, bytes: u64) -> f64 {
        let requests = bytes as f64 / self.request_bytes;
        let requests = if self.whole_requests { requests.ceil() } else { requests };
        (requests - 1.0).max(0.0) * self.per_request_ns + bytes as f64 * self.per_byte_ns
    }

    fn between_ns(&self, before: &Range<u64>, after: &Range<u64>) -> f64 {
        let gap_bytes = after.start.saturating_sub(before.end);
        self.per_run_ns.min(gap_bytes as f64 * self.per_byte_ns)
    }
}

/// The channels and the bus of a flash disk.
///
/// Let `I` be the time in which the bus waits before the transfer of a request, `t` the transfer, `l` the latency, and `n` the channels.
/// A request gets its channel when the `n`th request before it has ended, so the `I` of the last `n` requests and the
/// `t` of the `n - 1` before it sum to at least `l`. Summed over all requests:
///
/// ```text
///   n · sum(I) >= sum(l - (n - 1) · min(t, l)),     and     I >= l for the first request
/// ```
///
/// The time is at least `sum(t)` plus each weighted mean of the two. A run begins with a request that continues no other one. Its
/// further requests cost the lower latency. A transfer longer than a latency covers one latency only, so
/// long requests count as several.
pub(super) fn flash_ns(flash: &Flash, max_request_bytes: u64, extents: &[Range<u64>]) -> u64 {
    let channels = f64::from(flash.channels);
    let (read_ns, sequential_ns) = flash.read_latencies_ns();
    let byte_ns = NS_PER_S / BYTES_PER_MB / flash.read_mb_per_s;
    let longest_ns = read_ns.max(sequential_ns) as f64;
    let price = |weight: f64, request_bytes, whole_requests| Price {
        fixed_ns: (1.0 - weight) * read_ns as f64,
        per_run_ns: weight / channels * read_ns as f64,
        per_request_ns: weight / channels * read_ns.min(sequential_ns) as f64,
        request_bytes,
        whole_requests,
        per_byte_ns: byte_ns * (1.0 - weight * (channels - 1.0) / channels),
    };
    let mut prices: Vec<Price> = weights().map(|weight| price(weight, max_request_bytes as f64, true)).collect();
    let covering_bytes = longest_ns / byte_ns;
    if flash.channels > 1 && covering_bytes > 0.0 && covering_bytes < max_request_bytes as f64 {
        prices.extend(weights().map(|weight| price(weight, covering_bytes, false)));
    }
    best_ns(prices, extents)
}

/// The two token buckets and the slots of a network volume.
///
/// The last request waits until each bucket has refilled by all tokens but its burst, and then takes the latency. A request occupies a
/// slot for the latency.
pub(super) fn cloud_ns(cloud: &Cloud, max_request_bytes: u64, extents: &[Range<u64>]) -> u64 {
    let limits = cloud.limits();
    let price = |by_requests: f64, fixed_ns: f64, request_ns: f64, request_bytes: u64| Price {
        fixed_ns: by_requests * fixed_ns + (1.0 - by_requests) * (limits.latency_ns - limits.burst_bytes_ns),
        per_run_ns: by_requests * request_ns,
        per_request_ns: by_requests * request_ns,
        request_bytes: request_bytes as f64,
        whole_requests: true,
        per_byte_ns: (1.0 - by_requests) * limits.byte_ns,
    };
    let unit_bytes = limits.unit_bytes.min(max_request_bytes);
    let latency_only = Price { per_run_ns: 0.0, ..price(1.0, limits.latency_ns, 0.0, unit_bytes) };
    let by_tokens =
        weights().map(|weight| price(weight, limits.latency_ns - limits.burst_ios_ns, limits.io_ns, unit_bytes));
    let by_slots = weights().map(|weight| price(weight, 0.0, limits.slot_ns, max_request_bytes));
    best_ns(by_tokens.chain(by_slots).chain([latency_only]), extents)
}

/// The cost of the extents at the best price.
fn best_ns(prices: impl IntoIterator<Item = Price>, extents: &[Range<u64>]) -> u64 {
    let cost_ns = |price: Price| {
        let gaps_ns: f64 = extents.windows(2).map(|pair| price.between_ns(&pair[0], &pair[1])).sum();
        let reads_ns: f64 = extents.iter().map(|extent| price.extent_ns(extent.end - extent.start)).sum();
        price.fixed_ns + price.per_run_ns + gaps_ns + reads_ns
    };
    let best_ns = prices.into_iter().map(cost_ns).fold(0.0, f64::max);
    // Sums of a hundred thousand costs are exact to far better than this.
    (best_ns * (1.0 - 1e-9) - 1.0).max(0.0) as u64
}

fn weights() -> impl Iterator<Item = f64> {
    (0..=STEPS).map(|step| f64::from(step) / f64::from(STEPS))
}
