//! `linux-6.18`: the folio size is remembered with the window.
//!
//! Each window has folios four times as large as the one before, and ends where such a folio ends, so that the next one
//! begins aligned; the first, synchronous window has single pages. Pages of programs are read from the fault to the end
//! of the window instead of around it.
//!
//! 6.18 stands between two kernels whose source is packaged, 6.12 and 7.2; what it has of each was found from its own
//! tracepoints (`readahead:*`, new in it).

use super::on_demand::{OnDemand, Rules};

/// Its rules.
pub const RULES: Rules = Rules {
    order_is_remembered: true,
    no_mark_at_end: false,
    programs_forwards: true,
    misses_balanced: false,
    reads_again: false,
    huge_anywhere: true,
    whole_history: false,
};

/// A kernel of this version.
pub fn policy() -> OnDemand {
    OnDemand::new(RULES)
}
