//! What was seen and done, for the summary and the metrics.

use crate::log::{LoggedAct, Outcome};
use std::collections::BTreeMap;

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Decisions of the kernel.
    pub events: u64,
    /// Decisions that the observer had no room for.
    pub lost_events: u64,
    /// Open files of which a decision was seen.
    pub files: u64,
    /// Acts by kind and outcome.
    pub acts: BTreeMap<(LoggedAct, Outcome), u64>,
    /// Open files and processes that are left alone, and acts that were not done, by reason.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Acts that were undone because they did not help.
    pub undone: u64,
    /// Windows that were put back.
    pub windows_restored: u64,
    /// Pages whose fetch was started.
    pub fetched_pages: u64,
}

/// Why something is left alone or not done: the labels of the metrics.
pub(crate) mod reason {
    pub(crate) const RULES: &str = "excluded by the rules";
    pub(crate) const KERNEL_THREAD: &str = "a thread of the kernel";
    pub(crate) const FORBIDDEN: &str = "access to the process is not permitted";
    pub(crate) const GONE: &str = "the open file is gone";
    pub(crate) const ADVISED: &str = "the program has set its own advice";
    pub(crate) const OFF: &str = "read-ahead is off on the disk";
    pub(crate) const ACT_LIMIT: &str = "too many acts";
    pub(crate) const QUEUE: &str = "too many requests to the disk";
    pub(crate) const TABLE: &str = "too many open files";
    pub(crate) const FAILED: &str = "a system call failed";
    pub(crate) const NO_SETTING: &str = "the file system has no window";
    pub(crate) const WRITTEN: &str = "open for writing on a file system that acts on close";
    pub(crate) const NOT_OPENED: &str = "the file system refused to open the file";
    pub(crate) const NO_DESCRIPTOR: &str = "no descriptor, only a mapping";
    pub(crate) const DIRECT: &str = "reads bypass the page cache";
    pub(crate) const FETCH_OFF: &str = "fetching is switched off";

    /// All of them.
    pub(crate) const ALL: [&str; 16] = [
        RULES,
        KERNEL_THREAD,
        FORBIDDEN,
        GONE,
        ADVISED,
        OFF,
        ACT_LIMIT,
        QUEUE,
        TABLE,
        FAILED,
        NO_SETTING,
        WRITTEN,
        NOT_OPENED,
        NO_DESCRIPTOR,
        FETCH_OFF,
        DIRECT,
    ];
}

impl Counts {
    pub(crate) fn act(&mut self, act: LoggedAct, outcome: Outcome) {
        *self.acts.entry((act, outcome)).or_default() += 1;
    }

    pub(crate) fn refusal(&mut self, why: &'static str) {
        *self.refusals.entry(why).or_default() += 1;
    }

    pub(crate) fn done(&self, act: LoggedAct) -> u64 {
        self.acts.get(&(act, Outcome::Done)).copied().unwrap_or(0)
    }
}

/// Limits the number of acts per second.
#[derive(Debug)]
pub(crate) struct RateLimit {
    per_second: u64,
    second: u64,
    used: u64,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32) -> RateLimit {
        RateLimit { per_second: u64::from(per_second), second: 0, used: 0 }
    }

    /// Whether one more act is permitted now.
    pub(crate) fn take(&mut self, now_ns: u64) -> bool {
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.used) = (second, 0);
        }
        self.used += 1;
        self.used <= self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_of_a_second_are_limited() {
        let mut limit = RateLimit::new(2);
        assert_eq!([1, 2, 3, 1_000_000_000].map(|now| limit.take(now)), [true, true, false, true]);
    }

    #[test]
    fn reasons_are_distinct() {
        let mut all = reason::ALL.to_vec();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), reason::ALL.len());
    }
}
