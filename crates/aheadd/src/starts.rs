//! The starts that are followed: from exec until the last process of a start has ended, or its window is over.
//!
//! ```text
//!     exec ─▶ own start ······································▶ end ─┬─▶ finished: waits and times of itself and of what it covers
//!               │ prefetched, recorded or left alone                  │
//!               ╰─ exec within it ─▶ covered start ─────▶ end ────────╯  also later than the end of the own start: `exec` of a script
//! ```
//!
//! Only values: clocks and the kernel's tables are the caller's.

use crate::prefetching::PrefetchOutcome;
use ahead_apps::{AppKey, AppStart, AppVersion, StartKey, Treatment};
use ahead_observe::{ProgramFile, StartAccount, StartId};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A start is followed for this time: until then even a large program shows its window, and what it reads later is its work.
pub const START_WINDOW: Duration = Duration::from_secs(10);
/// Starts that are followed at the same time; as many as the kernel's table has by default.
const MOST_STARTS: usize = 1 << 12;

/// Who starts what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenStart {
    pub id: StartId,
    pub uid: u32,
    pub gid: u32,
    /// The executed file; for a script its interpreter.
    pub program: ProgramFile,
    pub start: StartKey,
    pub version: AppVersion,
}

/// The work of a prefetch for a start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum StartWork {
    /// None was needed, or it failed.
    #[default]
    None,
    /// A worker is at it.
    Runs,
    /// It is done.
    Done(PrefetchOutcome),
}

/// A start with its own history.
#[derive(Clone, Debug)]
pub struct OwnStart {
    pub seen: SeenStart,
    /// `None`: nothing is known of its user.
    pub key: Option<AppKey>,
    pub treatment: Treatment,
    pub work: StartWork,
    /// Covered starts that run.
    covered: u32,
    waited: Duration,
    elapsed: Duration,
    has_ended: bool,
}

/// What the end of a start, or of its work, has brought about.
#[derive(Debug)]
pub enum StartEnd {
    /// Something of it runs, or it is not followed.
    Nothing,
    /// All is known of it.
    Finished(Box<OwnStart>),
    /// Only its work runs, which is not needed any more.
    OnlyWork(StartId),
}

#[derive(Debug)]
enum FollowedStart {
    Own(Box<OwnStart>),
    CoveredBy(StartId),
}

/// The table.
#[derive(Debug, Default)]
pub struct FollowedStarts {
    starts: HashMap<StartId, FollowedStart>,
    /// In the order of their begins.
    windows: VecDeque<StartId>,
}

impl OwnStart {
    /// A start that begins.
    pub fn new(seen: SeenStart, key: Option<AppKey>, treatment: Treatment, work: StartWork) -> OwnStart {
        let (waited, elapsed) = (Duration::ZERO, Duration::ZERO);
        OwnStart { seen, key, treatment, work, covered: 0, waited, elapsed, has_ended: false }
    }

    /// What it has shown. `unix_s`: now.
    pub fn measured(&self, unix_s: u64) -> AppStart {
        let outcome = match self.work {
            StartWork::Done(outcome) => outcome,
            StartWork::None | StartWork::Runs => PrefetchOutcome::default(),
        };
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        AppStart {
            treatment: self.treatment,
            unix_s,
            absent_percent: outcome.absent_percent,
            // Covered starts may have waited side by side.
            waited_us: us(self.waited.min(self.elapsed)),
            elapsed_us: us(self.elapsed),
            issued_bytes: outcome.issued_bytes,
            useful_bytes: outcome.issued_bytes.saturating_sub(outcome.wasted_bytes),
            wasted_bytes: outcome.wasted_bytes,
            stale_percent: outcome.stale_percent,
        }
    }

    fn add(&mut self, began_ns: u64, account: &StartAccount) {
        self.waited += account.waited;
        let later = Duration::from_nanos(began_ns.saturating_sub(self.seen.id.began_ns));
        // What execve itself waits for is before the begin.
        self.elapsed = self.elapsed.max((later + account.elapsed).min(START_WINDOW) + account.waited_in_exec);
    }

    fn has_ended(&self) -> bool {
        self.has_ended && self.covered == 0
    }

    /// Whether starts within it are parts of it. `is_recorded`: it is recorded now.
    fn covers(&self, is_recorded: bool) -> bool {
        is_recorded || matches!(self.treatment, Treatment::Prefetched | Treatment::LeftAlone)
    }
}

impl FollowedStarts {
    /// Whether nothing is followed.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether there is no room for another one.
    pub fn is_full(&self) -> bool {
        self.windows.len() >= MOST_STARTS
    }

    /// The start that covers those within this one.
    pub fn cover(&self, outer: StartId, is_recorded: impl Fn(StartId) -> bool) -> Option<StartId> {
        match self.starts.get(&outer)? {
            FollowedStart::CoveredBy(cover) => Some(*cover),
            FollowedStart::Own(own) => own.covers(is_recorded(outer)).then_some(outer),
        }
    }

    /// Follows a start.
    pub fn begin(&mut self, own: OwnStart) {
        self.windows.push_back(own.seen.id);
        self.starts.insert(own.seen.id, FollowedStart::Own(Box::new(own)));
    }

    /// Follows a start as a part of another one.
    pub fn begin_covered(&mut self, id: StartId, cover: StartId) {
        self.windows.push_back(id);
        self.starts.insert(id, FollowedStart::CoveredBy(cover));
        if let Some(own) = self.own(cover) {
            own.covered += 1;
        }
    }

    /// A start with a history.
    pub fn own(&mut self, id: StartId) -> Option<&mut OwnStart> {
        match self.starts.get_mut(&id)? {
            FollowedStart::Own(own) => Some(own),
            FollowedStart::CoveredBy(_) => None,
        }
    }

    /// The last process of a start has ended, or its window is over.
    pub fn end(&mut self, id: StartId, account: &StartAccount) -> StartEnd {
        let cover = match self.starts.get_mut(&id) {
            None => return StartEnd::Nothing,
            Some(FollowedStart::Own(own)) => {
                own.add(id.began_ns, account);
                own.has_ended = true;
                id
            }
            Some(FollowedStart::CoveredBy(cover)) => {
                let cover = *cover;
                self.starts.remove(&id);
                if let Some(own) = self.own(cover) {
                    own.add(id.began_ns, account);
                    own.covered = own.covered.saturating_sub(1);
                }
                cover
            }
        };
        self.take_finished(cover)
    }

    /// The work for a start is done.
    pub fn done(&mut self, id: StartId, work: StartWork) -> StartEnd {
        let Some(own) = self.own(id) else { return StartEnd::Nothing };
        own.work = work;
        self.take_finished(id)
    }

    fn take_finished(&mut self, id: StartId) -> StartEnd {
        match self.own(id) {
            Some(own) if own.has_ended() && own.work == StartWork::Runs => return StartEnd::OnlyWork(id),
            Some(own) if own.has_ended() => {}
            _ => return StartEnd::Nothing,
        }
        match self.starts.remove(&id) {
            Some(FollowedStart::Own(own)) => StartEnd::Finished(own),
            _ => StartEnd::Nothing,
        }
    }

    /// When the first window is over, on CLOCK_MONOTONIC.
    pub fn next_over_ns(&self) -> Option<u64> {
        self.windows.front().map(|id| id.began_ns.saturating_add(START_WINDOW.as_nanos() as u64))
    }

    /// A start whose window is over. Also those that have ended are returned; [`Self::over`] does nothing for them.
    pub fn pop_over(&mut self, now_ns: u64) -> Option<StartId> {
        self.next_over_ns().filter(|over| *over <= now_ns)?;
        self.windows.pop_front()
    }

    /// The window of a start is over. `account`: takes the account of a start, which the kernel follows no longer; `None`: it has ended, and the
    /// message of that is lost.
    pub fn over(&mut self, id: StartId, mut account: impl FnMut(StartId) -> Option<StartAccount>) -> StartEnd {
        if !self.starts.contains_key(&id) {
            return StartEnd::Nothing;
        }
        let of_covered = |(other, start): (&StartId, &FollowedStart)| match start {
            FollowedStart::CoveredBy(cover) => (*cover == id).then_some(*other),
            FollowedStart::Own(_) => None,
        };
        let covered: Vec<StartId> = self.starts.iter().filter_map(of_covered).collect();
        let ends: Vec<StartEnd> =
            covered.iter().map(|other| self.end(*other, &account(*other).unwrap_or_default())).collect();
        if self.own(id).is_none_or(|own| own.has_ended) {
            return ends.into_iter().last().unwrap_or_else(|| self.take_finished(id));
        }
        match account(id) {
            Some(account) => self.end(id, &account),
            None => {
                // Nothing is known of what it waited for.
                self.starts.remove(&id);
                StartEnd::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_model::DeviceNumber;

    fn id(pid: u32, began_ms: u64) -> StartId {
        StartId { pid, began_ns: began_ms * 1_000_000 }
    }

    fn own(id: StartId, treatment: Treatment, work: StartWork) -> OwnStart {
        let program = ProgramFile { device: DeviceNumber::new(8, 1), inode: 1 };
        let start = StartKey::of(b"/bin/a", &[], b"/").unwrap();
        let seen = SeenStart { id, uid: 0, gid: 0, program, start, version: AppVersion::default() };
        OwnStart::new(seen, None, treatment, work)
    }

    fn finished(end: StartEnd) -> AppStart {
        let StartEnd::Finished(own) = end else { panic!("{end:?}") };
        own.measured(7)
    }

    fn account(elapsed_ms: u64, waited_ms: u64) -> StartAccount {
        let (elapsed, waited) = (Duration::from_millis(elapsed_ms), Duration::from_millis(waited_ms));
        StartAccount { elapsed, waited, ..StartAccount::default() }
    }

    /// A script that executes its program: the start of the script ends at once.
    #[test]
    fn start_lasts_as_long_as_what_it_covers() {
        let mut starts = FollowedStarts::default();
        let (script, program, other) = (id(1, 100), id(1, 105), id(2, 0));
        starts.begin(own(other, Treatment::Plain, StartWork::None));
        starts.begin(own(script, Treatment::Prefetched, StartWork::Runs));
        assert_eq!(starts.cover(script, |_| false), Some(script));
        assert_eq!((starts.cover(other, |_| false), starts.cover(other, |_| true)), (None, Some(other)));
        starts.begin_covered(program, script);
        assert!(matches!(starts.end(script, &account(5, 2)), StartEnd::Nothing));
        assert!(matches!(starts.end(program, &account(60, 20)), StartEnd::OnlyWork(id) if id == script));
        let outcome = PrefetchOutcome { issued_bytes: 9, wasted_bytes: 2, ..PrefetchOutcome::default() };
        let measured = finished(starts.done(script, StartWork::Done(outcome)));
        assert_eq!((measured.waited_us, measured.elapsed_us), (22_000, 65_000));
        assert_eq!((measured.issued_bytes, measured.useful_bytes, measured.unix_s), (9, 7, 7));
        assert_eq!(finished(starts.end(other, &account(1, 1))).elapsed_us, 1000);
        assert!(starts.is_empty());
    }

    #[test]
    fn window_ends_a_start_with_what_it_covers() {
        let mut starts = FollowedStarts::default();
        let (first, inner, lost) = (id(1, 0), id(2, 4000), id(3, 5000));
        starts.begin(own(first, Treatment::LeftAlone, StartWork::None));
        starts.begin_covered(inner, first);
        starts.begin(own(lost, Treatment::Plain, StartWork::None));
        assert_eq!((starts.pop_over(9_999_000_000), starts.next_over_ns()), (None, Some(10_000_000_000)));
        assert_eq!(starts.pop_over(10_000_000_000), Some(first));
        let end = starts.over(first, |id| Some(account(if id == inner { 6000 } else { 10_000 }, 3000)));
        let measured = finished(end);
        assert_eq!((measured.waited_us, measured.elapsed_us), (6_000_000, 10_000_000));
        // It has ended before; and one whose end was not reported.
        assert_eq!(starts.pop_over(u64::MAX), Some(inner));
        assert!(matches!(starts.over(inner, |_| None), StartEnd::Nothing));
        assert_eq!(starts.pop_over(u64::MAX), Some(lost));
        assert!(matches!(starts.over(lost, |_| None), StartEnd::Nothing));
        assert!(starts.is_empty() && starts.pop_over(u64::MAX).is_none());
    }
}
