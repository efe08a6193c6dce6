//! Times of transfers, in nanoseconds.

pub(crate) const NS_PER_S: f64 = 1e9;

/// Bytes in a megabyte, as in data sheets.
pub(crate) const BYTES_PER_MB: f64 = 1e6;

/// Latest simulated time, 146 years: a longer request ends then. Leaves room to add without overflow.
const FOREVER_NS: u64 = 1 << 62;

/// `time_ns` plus `more_ns`, at most [`FOREVER_NS`].
pub(crate) fn later(time_ns: u64, more_ns: u64) -> u64 {
    time_ns.saturating_add(more_ns).min(FOREVER_NS)
}

/// Nanoseconds that `bytes` take at `mb_per_s`, rounded up: never faster than the rate.
pub(crate) fn transfer_ns(bytes: u64, mb_per_s: f64) -> u64 {
    (bytes as f64 * (NS_PER_S / BYTES_PER_MB) / mb_per_s).ceil() as u64
}
