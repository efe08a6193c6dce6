//! What the consumers of a budget may hold.
//!
//! ```text
//!     budget   ├────────────── bytes ──────────────┤
//!     shares   ├─ reader 1 ─┼─ reader 2 ─┼─ reader 3 ─┤     each may hold bytes / consumers
//!     always   a consumer that holds nothing is granted what it asks for: every reader makes progress
//! ```

/// Accounting unit, bytes: the smallest page of all architectures.
pub const UNIT_BYTES: u64 = 4096;

/// Largest budget of a process, bytes: 64 readers with requests of 1 MiB, or four readers with the largest distance.
pub const BUDGET_BYTES: u64 = 64 << 20;
/// Share of the memory for the budget: a quarter.
pub const MEMORY_SHARE: u64 = 4;

/// A budget and what is used of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Its size, bytes.
    pub bytes: u64,
    /// What the consumers hold.
    pub used_units: u64,
    pub consumers: u64,
}

impl Account {
    /// What each consumer may hold, bytes: the budget divided by the consumers, in whole pages, and at least one page.
    pub fn share_bytes(&self, page_bytes: u64) -> u64 {
        let each = self.bytes / self.consumers.max(1);
        (each - each % page_bytes).max(page_bytes)
    }

    /// Adds these units to those that a consumer holds. `false`: they exceed its share, or others hold too much of the budget. A consumer that
    /// holds nothing is always granted what it asks for.
    pub fn take(&mut self, units: u64, held_units: u64, page_bytes: u64) -> bool {
        let is_in_share = held_units + units <= self.share_bytes(page_bytes) / UNIT_BYTES;
        let is_in_budget = self.used_units + units <= self.bytes / UNIT_BYTES;
        let is_granted = is_in_share && is_in_budget || held_units == 0;
        self.used_units += if is_granted { units } else { 0 };
        is_granted
    }

    /// Takes back units of a consumer.
    pub fn give_back(&mut self, units: u64) {
        self.used_units = self.used_units.saturating_sub(units);
    }
}
