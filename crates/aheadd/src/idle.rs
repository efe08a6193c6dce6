//! Idle moments: what is started most often is prefetched before it is started, after the boot and when nothing was started for a while.
//!
//! ```text
//!     begin of the service after a boot ─┐
//!     no start for a while ··············┴─▶ survey of the store ─▶ one program after the other, as its user, after all other readers
//! ```

use crate::survey::SurveyedApp;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A service that begins within this time after the boot begins with it.
const BOOT: Duration = Duration::from_secs(600);
/// After the begin of the service: what the boot starts goes first.
const AFTER_BOOT: Duration = Duration::from_secs(20);
/// Without a start for this time, the machine is idle.
const IDLE_FOR: Duration = Duration::from_secs(300);
/// Programs of one idle moment. Further ones are seldom started next.
const MOST_PROGRAMS: usize = 8;
/// Programs that were not started on this number of days of use are not expected next.
const RECENT_DAYS: u32 = 7;

/// When there is an idle moment, and what is prefetched in it.
#[derive(Debug)]
pub struct IdleMoments {
    due: Option<Instant>,
    wanted: VecDeque<SurveyedApp>,
}

impl IdleMoments {
    /// `uptime`: of the machine.
    pub fn new(now: Instant, uptime: Duration) -> IdleMoments {
        let after = if uptime < BOOT { AFTER_BOOT } else { IDLE_FOR };
        IdleMoments { due: Some(now + after), wanted: VecDeque::new() }
    }

    /// Something is started.
    pub fn see_start(&mut self, now: Instant) {
        self.wanted.clear();
        let later = now + IDLE_FOR;
        // What the boot starts does not put off its idle moment.
        self.due = Some(self.due.filter(|due| *due > now && *due < now + AFTER_BOOT).unwrap_or(later));
    }

    /// The next idle moment; `None`: it was used.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the machine is in an idle moment.
    pub fn is_used(&self) -> bool {
        self.due.is_none()
    }

    /// Whether an idle moment begins now. It is used by that.
    pub fn begins(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Chooses from what the store has.
    pub fn choose(&mut self, mut found: Vec<SurveyedApp>, use_day: u32) {
        found.retain(|app| app.last_use_day.saturating_add(RECENT_DAYS) > use_day);
        found.sort_by_key(|app| std::cmp::Reverse(app.starts));
        self.wanted = found.into_iter().take(MOST_PROGRAMS).collect();
    }

    /// The next program to prefetch.
    pub fn next(&mut self) -> Option<SurveyedApp> {
        self.wanted.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_apps::StartKey;

    #[test]
    fn boot_and_silence_are_idle_moments_and_a_start_ends_them() {
        let now = Instant::now();
        let mut after_boot = IdleMoments::new(now, Duration::from_secs(30));
        after_boot.see_start(now + Duration::from_secs(1));
        assert!(!after_boot.begins(now + AFTER_BOOT - Duration::from_secs(1)) && after_boot.begins(now + AFTER_BOOT));
        assert!(!after_boot.begins(now + 2 * IDLE_FOR), "once");
        let app = |starts, last_use_day| SurveyedApp {
            uid: 1,
            gid: 1,
            key: StartKey::of(format!("/bin/p{starts}").as_bytes(), &[], b"/").unwrap().app,
            inode: 1,
            seeks: false,
            starts,
            last_use_day,
        };
        after_boot.choose(vec![app(3, 9), app(90, 1), app(7, 8)], 9);
        assert_eq!(after_boot.next().map(|app| app.starts), Some(7));
        after_boot.see_start(now + AFTER_BOOT);
        assert!(after_boot.next().is_none() && !after_boot.begins(now + IDLE_FOR));
        assert!(after_boot.begins(now + AFTER_BOOT + IDLE_FOR));
    }
}
