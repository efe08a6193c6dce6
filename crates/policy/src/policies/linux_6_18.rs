//! `linux-6.18`: the folio size is stored with the window.
//!
//! The folios of each window are four times as large as before. The window ends at the end of such a folio, so the next
//! one starts aligned. The first, synchronous window has single pages. For program text the kernel reads from the fault
//! to the end of the window instead of around the fault.
//!
//! 6.18 is between 6.12 and 7.2, two kernels whose source is packaged. Its tracepoints (`readahead:*`, new in 6.18)
//! showed which behaviour of each it has.

use super::on_demand::{OnDemand, Rules};

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
