//! `linux-6.12`: on-demand read-ahead with large folios, as in the long-term kernel of 2024 and nearly all between 6.9
//! and 6.15.
//!
//! The mark of a first window is in its middle (Jan Kara, 2024); before it was at the end. At the mark of a folio, the folios of the next window
//! become four times as large. Their size is not stored: after a window of single pages (a partly cached or unaligned one) it starts again.

use super::on_demand::{OnDemand, Rules};

pub const RULES: Rules = Rules {
    order_is_remembered: false,
    no_mark_at_end: false,
    programs_forwards: false,
    misses_balanced: false,
    reads_again: true,
    huge_anywhere: true,
    whole_history: false,
};

/// A kernel of this version.
pub fn policy() -> OnDemand {
    OnDemand::new(RULES)
}
