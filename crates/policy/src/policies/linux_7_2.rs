//! `linux-7.2`: no mark on a window that reaches the end of the file, and a fairer balance of misses.
//!
//! A mark near the end called the kernel for nothing. Faults of programs and of sequential mappings are no misses that
//! speak against read-around any more, and pages that a fault maps beside its own count as one hit and not as sixteen:
//! with the old count random faults never came to the hundred misses that stop it.

use super::on_demand::{OnDemand, Rules};

/// Its rules.
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
