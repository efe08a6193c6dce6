//! Whether this boot is recorded.

use super::Circumstances;
use super::state::{BootState, KEPT_BOOTS};

/// The longest interval between recorded boots, in boots, because programs change what they read without a new version.
const EVERY_BOOTS: u32 = 10;

/// Why a boot is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `ahead boot record`, or `ahead=record` on the kernel's command line.
    Requested,
    /// There are fewer recordings than are kept.
    FewRecordings,
    /// Packages were changed since the last recording.
    PackagesChanged,
    /// The share of the profile that was stale at the last replay, percent.
    Stale(u32),
    /// The last recording is many boots old.
    Old,
}

impl Reason {
    pub fn text(self) -> String {
        match self {
            Reason::Requested => "a recording was requested".into(),
            Reason::FewRecordings => format!("fewer than {KEPT_BOOTS} boots are recorded"),
            Reason::PackagesChanged => "packages were changed".into(),
            Reason::Stale(percent) => format!("{percent} % of the profile were stale at the last replay"),
            Reason::Old => format!("the last recording is {EVERY_BOOTS} boots old"),
        }
    }
}

/// Why the boot is recorded; `None`: it is not. `recordings`: those that are kept for this root and kernel.
pub fn reason_to_record(circumstances: &Circumstances, state: &BootState, recordings: usize) -> Option<Reason> {
    if state.requested || circumstances.asks_for_recording() {
        Some(Reason::Requested)
    } else if state.packages_changed {
        Some(Reason::PackagesChanged)
    } else if recordings < KEPT_BOOTS {
        Some(Reason::FewRecordings)
    } else if state.stale_percent > state.stale_limit_percent() {
        Some(Reason::Stale(state.stale_percent))
    } else {
        (state.boots_since_recording + 1 >= EVERY_BOOTS).then_some(Reason::Old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(state: BootState, recordings: usize) -> Option<Reason> {
        reason_to_record(&Circumstances::default(), &state, recordings)
    }

    #[test]
    fn settled_boot_is_not_recorded() {
        assert_eq!(reason(BootState::default(), KEPT_BOOTS), None);
        assert_eq!(reason(BootState { stale_percent: 10, ..BootState::default() }, KEPT_BOOTS), None);
    }

    #[test]
    fn first_stale_changed_and_old_boots_are_recorded() {
        assert_eq!(reason(BootState::default(), KEPT_BOOTS - 1), Some(Reason::FewRecordings));
        assert_eq!(reason(BootState { stale_percent: 11, ..BootState::default() }, 5), Some(Reason::Stale(11)));
        let tolerant = BootState { stale_percent: 11, stale_limit_percent: Some(11), ..BootState::default() };
        assert_eq!(reason(tolerant, KEPT_BOOTS), None);
        for recordings in [1, KEPT_BOOTS] {
            let changed = BootState { packages_changed: true, ..BootState::default() };
            assert_eq!(reason(changed, recordings), Some(Reason::PackagesChanged));
        }
        assert_eq!(reason(BootState { boots_since_recording: 9, ..BootState::default() }, 5), Some(Reason::Old));
        assert_eq!(reason(BootState { requested: true, ..BootState::default() }, 0), Some(Reason::Requested));
    }
}
