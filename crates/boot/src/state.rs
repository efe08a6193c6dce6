//! What is known about the last boots: decides whether the next one is recorded.

use serde::{Deserialize, Serialize};

/// Boots whose recordings are kept, and merged: a page's support is how many of them used it. The first five boots are recorded.
pub const KEPT_BOOTS: usize = 5;

/// A boot is recorded again when more than this share of the profile was stale at the last replay, percent. An upgrade of some packages
/// changes a few percent; a new release of a distribution nearly everything.
pub const DEFAULT_STALE_PERCENT: u32 = 10;

/// What is known about the last boots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootState {
    /// Whether the next boot is to be recorded, in place of all earlier recordings.
    pub requested: bool,
    /// Whether packages were changed since the last recording.
    pub packages_changed: bool,
    /// Boots since the last recording.
    pub boots_since_recording: u32,
    /// Share of the profile that was stale at the last replay, percent.
    pub stale_percent: u32,
    /// A boot is recorded when more than this share was stale, percent; `None`: [`DEFAULT_STALE_PERCENT`].
    pub stale_limit_percent: Option<u32>,
    /// Transactions of the package manager so far: one that happens while a boot is observed is noticed by it.
    pub transactions: u64,
    /// The packages' profiles that a recorded boot includes: names, with digests.
    pub known_packages: Vec<(String, u32)>,
}

impl BootState {
    /// The share that may be stale, percent.
    pub fn stale_limit_percent(&self) -> u32 {
        self.stale_limit_percent.unwrap_or(DEFAULT_STALE_PERCENT)
    }

    /// The state after a boot was recorded that began in the state `before`. `packages`: the packages' profiles that are installed now.
    pub(super) fn after_recording(&self, before: &BootState, packages: Vec<(String, u32)>) -> BootState {
        // What was noted during the observation concerns the next boot.
        let packages_changed = self.transactions != before.transactions;
        BootState {
            requested: self.requested && !before.requested,
            packages_changed,
            stale_limit_percent: self.stale_limit_percent,
            transactions: self.transactions,
            known_packages: if packages_changed { before.known_packages.clone() } else { packages },
            ..BootState::default()
        }
    }
}
