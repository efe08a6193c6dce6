//! `linux-6.12`: on-demand read-ahead with large folios, as in the long-term kernel of 2024 and nearly all between 6.9
//! and 6.15.
//!
//! A first window is half read when its mark comes (Jan Kara, 2024), where it was read to its end before; and a mark on
//! a folio asks for folios four times as large. How large they became is not remembered: a window that began with
//! single pages again (a partly cached one, an unaligned one) starts over.

use super::on_demand::{OnDemand, Rules};

/// Its rules.
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
