//! Figures of a run as papers state them.

use ahead_sim::Counters;

/// Bytes of a MB in a paper that counts 1024 KB for it.
pub(crate) const MIB: f64 = (1 << 20) as f64;
/// Bytes of a KB in a paper that counts 1024 bytes for it.
pub(crate) const KIB: f64 = 1024.0;

/// The share of the time in which the processor was busy.
pub(crate) fn load(counters: &Counters) -> f64 {
    (counters.user_ns + counters.system_ns) as f64 / counters.elapsed_ns.max(1) as f64
}

/// A time in seconds.
pub(crate) fn seconds(time_ns: u64) -> f64 {
    time_ns as f64 / 1e9
}
