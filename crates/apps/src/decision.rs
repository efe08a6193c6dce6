//! What is done at a start: nothing, a recording, a prefetch, or nothing for comparison.
//!
//! ```text
//!     first start ──waited for the disk──▶ observed ──▶ prefetched, and recorded once more ──▶ prefetched ······▶ prefetched
//!                                                                                            │ 1 cold start in 4, 8, 16, 32
//!                                                                                            ▼
//!                          no gain after eight cold starts ──▶ not any more, until an update   left alone
//! ```
//!
//! Counters decide, not chance: the same history has the same decision.

use crate::history::{History, StartGain, Treatment};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A prefetch that saves less than this share of a start, percent, or less than this time, is switched off: less than starts differ by
/// themselves, and no user sees it.
const LEAST_GAIN_PERCENT: u64 = 3;
const LEAST_GAIN_US: u64 = 5_000;
/// Cold starts that are compared before a program counts as one without gain.
const COMPARED_STARTS: u32 = 8;
/// At first one cold start in this number is left alone; the number doubles after each two, up to the second.
const FIRST_INTERVAL: u32 = 4;
const LAST_INTERVAL: u32 = 32;
/// While the gain is less than twice the least one, more starts are left alone: one in this number.
const UNCERTAIN_INTERVAL: u32 = 8;
/// Recordings before a profile counts as settled: what the first one missed is in the second.
const SETTLED_RECORDINGS: usize = 2;
/// A start is recorded again after this number: programs read other files without a new version.
const RECORD_EVERY: u32 = 32;
/// A profile is recorded again when more than this share of it was stale, percent (as that of a boot).
const STALE_PERCENT: u8 = 10;
/// Starts between two recordings that waits cause: waits may have another reason.
const LEAST_BETWEEN: u32 = 4;

/// What counts as waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitLimits {
    /// A start that waits for more than this share of its time is recorded next time, percent.
    pub share_percent: u8,
    /// And for at least this time, microseconds.
    pub least_us: u64,
}

impl Default for WaitLimits {
    /// A tenth, and twice the least gain: half of it can be saved at best.
    fn default() -> WaitLimits {
        WaitLimits { share_percent: 10, least_us: 2 * LEAST_GAIN_US }
    }
}

impl WaitLimits {
    /// Whether a start waited for the disk.
    pub fn is_wait(&self, waited_us: u64, elapsed_us: u64) -> bool {
        let (waited, elapsed) = (u128::from(waited_us), u128::from(elapsed_us));
        waited_us >= self.least_us && waited * 100 > elapsed * u128::from(self.share_percent)
    }
}

/// What its user wants for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserChoice {
    /// The service decides.
    #[default]
    None,
    /// Always prefetched, with the profile as it is.
    Pinned,
    /// Left alone altogether.
    Excluded,
}

/// What is known at exec, besides the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartSituation {
    /// Nothing is prefetched or recorded now: the service is off, the machine saves power, memory is scarce, a game runs.
    pub is_off: bool,
    /// A start around this one is recorded, prefetched or left alone.
    pub is_covered: bool,
    /// Recordings in the profile; 0: there is no profile.
    pub recordings: usize,
    /// The share of the profile that is absent now, percent; `None`: unknown.
    pub absent_percent: Option<u8>,
    /// No recording of this variant was compared with the profile yet.
    pub is_new_variant: bool,
}

/// What to do at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartDecision {
    /// What to do.
    pub treatment: Treatment,
    /// Whether the start is recorded, beside a prefetch too.
    pub is_recorded: bool,
    /// Why.
    pub reason: DecisionReason,
}

/// Why a start is treated so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionReason {
    /// The service is off, or pauses.
    Off,
    /// The user has excluded the program.
    Excluded,
    /// A start around it is treated.
    Covered,
    /// Nothing is known of it.
    FirstStart,
    /// It does not wait for the disk.
    FewWaits,
    /// The last start waited for the disk.
    Waited,
    /// It has a profile.
    Known,
    /// Its user has pinned the profile.
    Pinned,
    /// It has too few recordings.
    FewRecordings,
    /// Its arguments may matter.
    NewVariant,
    /// The program was replaced.
    Updated,
    /// Much of the profile is stale.
    Stale,
    /// Prefetched starts wait again.
    WaitsAgain,
    /// The last recording is old.
    Old,
    /// One start in this number is left alone.
    Comparison(u32),
    /// A prefetch brings too little.
    NoGain(StartGain),
}

impl fmt::Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecisionReason::Off => "off",
            DecisionReason::Excluded => "excluded by its user",
            DecisionReason::Covered => "part of another start",
            DecisionReason::FirstStart => "first start",
            DecisionReason::FewWaits => "does not wait for the disk",
            DecisionReason::Waited => "waits for the disk: recorded at the next start",
            DecisionReason::Known => "prefetched",
            DecisionReason::Pinned => "prefetched: pinned",
            DecisionReason::FewRecordings => "prefetched and recorded: few recordings",
            DecisionReason::NewVariant => "prefetched and recorded: new arguments",
            DecisionReason::Updated => "prefetched and recorded: the program was updated",
            DecisionReason::Stale => "prefetched and recorded: files have changed",
            DecisionReason::WaitsAgain => "prefetched and recorded: it waits again",
            DecisionReason::Old => "prefetched and recorded: the last recording is old",
            DecisionReason::Comparison(every) => {
                return write!(f, "left alone for comparison, 1 cold start in {every}");
            }
            DecisionReason::NoGain(gain) => {
                let ms = gain.saved_us as f64 / 1000.0;
                return write!(f, "no gain: {ms:.1} ms of a cold start, measured");
            }
        })
    }
}

/// Decides about the next start of a program.
pub fn decide(history: &History, choice: UserChoice, situation: &StartSituation, limits: &WaitLimits) -> StartDecision {
    let decision = |treatment, reason| StartDecision { treatment, is_recorded: false, reason };
    let plain = |reason| decision(Treatment::Plain, reason);
    if choice == UserChoice::Excluded {
        return plain(DecisionReason::Excluded);
    }
    if situation.is_off {
        return plain(DecisionReason::Off);
    }
    if situation.is_covered {
        return decision(Treatment::Covered, DecisionReason::Covered);
    }
    if situation.recordings == 0 {
        return without_profile(history, limits);
    }
    let is_pinned = choice == UserChoice::Pinned;
    if !is_pinned && let Some(gain) = too_little_gain(history) {
        return plain(DecisionReason::NoGain(gain));
    }
    let (every, is_cold) = (interval(history), situation.absent_percent.is_some_and(|it| it > crate::COLD_PERCENT));
    if is_cold && history.cold_since_alone.saturating_add(1) >= every {
        return decision(Treatment::LeftAlone, DecisionReason::Comparison(every));
    }
    if is_pinned {
        return decision(Treatment::Prefetched, DecisionReason::Pinned);
    }
    let reason = reason_to_record(history, situation, limits);
    StartDecision {
        treatment: Treatment::Prefetched,
        is_recorded: reason.is_some(),
        reason: reason.unwrap_or(DecisionReason::Known),
    }
}

fn without_profile(history: &History, limits: &WaitLimits) -> StartDecision {
    let decision = |treatment, is_recorded, reason| StartDecision { treatment, is_recorded, reason };
    // What was covered was not measured by itself.
    let measured = history.recent.iter().rev().find(|start| start.treatment != Treatment::Covered);
    match measured {
        None => decision(Treatment::Plain, false, DecisionReason::FirstStart),
        Some(last) if limits.is_wait(last.waited_us, last.elapsed_us) => {
            decision(Treatment::Observed, true, DecisionReason::Waited)
        }
        Some(_) => decision(Treatment::Plain, false, DecisionReason::FewWaits),
    }
}

/// The gain of a program that was compared often enough, if it is too little.
pub fn too_little_gain(history: &History) -> Option<StartGain> {
    let gain = history.gain().filter(|gain| gain.is_measured && history.compared >= COMPARED_STARTS)?;
    (gain.saved_us < i64::try_from(least_gain_us(gain)).unwrap_or(i64::MAX)).then_some(gain)
}

fn least_gain_us(gain: StartGain) -> u64 {
    LEAST_GAIN_US.max(gain.start_us / 100 * LEAST_GAIN_PERCENT)
}

/// One cold start in this number is left alone.
fn interval(history: &History) -> u32 {
    let doubled = (FIRST_INTERVAL << (history.left_alone / 2).min(8)).min(LAST_INTERVAL);
    let is_certain = history
        .gain()
        .is_some_and(|gain| gain.saved_us >= i64::try_from(least_gain_us(gain).saturating_mul(2)).unwrap_or(i64::MAX));
    if is_certain { doubled } else { doubled.min(UNCERTAIN_INTERVAL) }
}

fn reason_to_record(history: &History, situation: &StartSituation, limits: &WaitLimits) -> Option<DecisionReason> {
    let since = history.starts_since_recording;
    let last_prefetched = history.recent.iter().rev().find(|start| start.treatment == Treatment::Prefetched);
    if situation.recordings < SETTLED_RECORDINGS {
        Some(DecisionReason::FewRecordings)
    } else if situation.is_new_variant {
        Some(DecisionReason::NewVariant)
    } else if history.was_updated {
        Some(DecisionReason::Updated)
    } else if since >= LEAST_BETWEEN && last_prefetched.is_some_and(|start| start.stale_percent > STALE_PERCENT) {
        Some(DecisionReason::Stale)
    } else if since >= LEAST_BETWEEN && waits_again(history, limits) {
        Some(DecisionReason::WaitsAgain)
    } else {
        (since >= RECORD_EVERY).then_some(DecisionReason::Old)
    }
}

/// Whether the last two cold prefetched starts waited for more than half as long as those without a prefetch.
fn waits_again(history: &History, limits: &WaitLimits) -> bool {
    let Some((without, _)) = history.without() else { return false };
    let last: Vec<_> = history.prefetched.iter().rev().take(2).collect();
    last.len() == 2
        && last
            .iter()
            .all(|start| start.waited_us > without.waited_us / 2 && limits.is_wait(start.waited_us, start.elapsed_us))
}

#[cfg(test)]
mod tests;
