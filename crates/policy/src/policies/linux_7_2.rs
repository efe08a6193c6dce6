//! `linux-7.2`: no mark on a window that reaches the end of the file, and a fairer balance of misses.
//!
//! A mark near the end of the file caused useless calls. Faults on program text and in sequential mappings no longer count as misses against
//! read-around. The pages that a fault maps around its own count as one hit instead of sixteen: before, random faults never reached the hundred
//! misses that stop read-around.

use super::on_demand::{OnDemand, Rules};

pub const RULES: Rules = Rules {
    order_is_remembered: true,
    no_mark_at_end: true,
    programs_forwards: true,
    misses_balanced: true,
    reads_again: false,
    huge_anywhere: false,
    whole_history: true,
};

/// A kernel of this version.
pub fn policy() -> OnDemand {
    OnDemand::new(RULES)
}
