//! The counts of a comparison.

use serde::Serialize;

/// The cause of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A read call at an absent page.
    #[default]
    Read,
    /// A marked page.
    Mark,
    /// A fault at an absent page.
    Fault,
    /// Advice that requests pages.
    Advice,
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Read, Kind::Mark, Kind::Fault, Kind::Advice];

/// A decision with which the policy does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Number of the decision's first record, from 0.
    pub record: u64,
    /// The cause.
    pub kind: Kind,
    /// The thread.
    pub task: u32,
    /// The number of the file in the trace.
    pub file: u32,
    /// The page.
    pub page: u64,
    /// Requested pages.
    pub wanted: u64,
    /// The difference, for people.
    pub difference: String,
    /// The kernel's state before the decision.
    pub state: String,
    /// A decision of another thread on the same file overlapped. Or another thread's read through the same open file did, and the
    /// decision agrees with the end of that read. The trace does not show the order.
    pub is_overlapping: bool,
}

/// The decisions of a kind, and the number of decisions that agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Decisions.
    pub decisions: u64,
    /// Decisions with which the policy agrees.
    pub matched: u64,
}

/// The counts of one method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Compared decisions.
    pub decisions: u64,
    /// Decisions with which the policy agrees.
    pub matched: u64,
    /// Decisions to read more than a single page.
    pub beyond_single_pages: u64,
    /// Mismatches that overlap with another thread's decision on the same file.
    pub overlapping: u64,
    /// Decisions whose folios are those that the policy expects.
    pub folios_matched: u64,
    /// Decisions that could not be compared: on files that were partly cached before the trace, and in mappings that were not found.
    pub excluded: u64,
    /// Number of states that were taken from the trace because the policy's state differed.
    pub resynchronised: u64,
    /// Number of decisions whose folios were taken from the trace because they differed from the expected ones.
    pub corrected: u64,
    /// Number of states that were taken from the trace for a file whose opening the trace does not have.
    pub adopted: u64,
    /// Number of balances of missed and hit faults that were taken from the trace: the balance depends on page tables and on pages in
    /// flight.
    pub balances_taken: u64,
    /// Decisions of read calls.
    pub reads: Agreement,
    /// Decisions at marked pages.
    pub marks: Agreement,
    /// Decisions of faults.
    pub faults: Agreement,
    /// Decisions of advice.
    pub advice: Agreement,
    /// The first mismatch.
    pub first_mismatch: Option<Mismatch>,
    /// All mismatches, at most `MAX_MISMATCHES`.
    #[serde(skip)]
    pub mismatches: Vec<Mismatch>,
}

/// Limit of mismatches in [`Tally::mismatches`].
pub const MAX_MISMATCHES: usize = 10_000;

impl Tally {
    /// The agreement for a kind.
    pub fn of(&self, kind: Kind) -> Agreement {
        match kind {
            Kind::Read => self.reads,
            Kind::Mark => self.marks,
            Kind::Fault => self.faults,
            Kind::Advice => self.advice,
        }
    }

    pub(crate) fn count(&mut self, kind: Kind, is_matched: bool) {
        let agreement = match kind {
            Kind::Read => &mut self.reads,
            Kind::Mark => &mut self.marks,
            Kind::Fault => &mut self.faults,
            Kind::Advice => &mut self.advice,
        };
        agreement.decisions += 1;
        agreement.matched += u64::from(is_matched);
        self.decisions += 1;
        self.matched += u64::from(is_matched);
    }

    /// Whether every decision agrees, except those that overlap with another thread's.
    pub fn agrees(&self) -> bool {
        self.matched + self.overlapping == self.decisions
    }
}
