//! The output of [`super::Steering`]: acts with their reasons.

use super::reason::Reason;
use crate::Page;
use std::ops::Range;

/// An act of the steering.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Sets the largest window of an open file.
    SetWindow {
        /// The open file.
        open: u64,
        /// The window, pages; at least 1.
        pages: u64,
        /// The reason.
        reason: Reason,
    },
    /// Reads pages into the cache.
    Fetch {
        /// The open file whose reader needs them.
        open: u64,
        /// The file.
        file: u64,
        /// The pages, in the order of their expected use. Each range is within the file.
        ranges: Vec<Range<Page>>,
        /// The reason.
        reason: Reason,
    },
    /// Ends all acts on an open file: its window is set back to the value before the first act, if that was changed.
    Restore {
        /// The open file.
        open: u64,
        /// The reason.
        reason: Reason,
    },
    /// Whether the observer may keep the decisions of this open file to itself, except unusual ones.
    Quiet {
        /// The open file.
        open: u64,
        /// True: only jumps and thrashing need to be reported.
        quiet: bool,
    },
}

impl Act {
    /// The open file.
    pub fn open(&self) -> u64 {
        match *self {
            Act::SetWindow { open, .. }
            | Act::Fetch { open, .. }
            | Act::Restore { open, .. }
            | Act::Quiet { open, .. } => open,
        }
    }

    /// The new window, or the number of pages to fetch.
    pub fn pages(&self) -> Option<u64> {
        match self {
            Act::SetWindow { pages, .. } => Some(*pages),
            Act::Fetch { ranges, .. } => Some(ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum()),
            Act::Restore { .. } | Act::Quiet { .. } => None,
        }
    }

    /// The reason; a change of what the observer reports has none.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Act::SetWindow { reason, .. } | Act::Fetch { reason, .. } | Act::Restore { reason, .. } => Some(reason),
            Act::Quiet { .. } => None,
        }
    }
}

/// Why an act could not be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The process or the open file no longer exists.
    Gone,
    /// The system refused the act: no further acts on this open file.
    Refused,
    /// It may succeed later.
    Busy,
    /// Acts are only printed.
    DryRun,
}
