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
    /// Advice that asks for pages.
    Advice,
}

/// All kinds.
pub const KINDS: [Kind; 4] = [Kind::Read, Kind::Mark, Kind::Fault, Kind::Advice];

/// A decision with which the policy does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Its first record, counted from 0.
    pub record: u64,
    /// The cause.
    pub kind: Kind,
    /// The thread.
    pub task: u32,
    /// The file's number in the trace.
    pub file: u32,
    /// The page.
    pub page: u64,
    /// Requested pages.
    pub wanted: u64,
    /// The difference, for people.
    pub difference: String,
    /// The kernel's state before.
    pub state: String,
    /// A decision of another thread on the same file overlapped, or its read through the same open file, with whose end the decision
    /// agrees: the trace does not show which came first.
    pub is_overlapping: bool,
}

/// The decisions of a kind, and how many of them agree.
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
    /// Decisions that could not be compared: on files that were partly cached before, and in mappings that were not found.
    pub excluded: u64,
    /// How often the state was taken from the trace because that of the policy differed.
    pub resynchronised: u64,
    /// How often the folios of a decision were taken from the trace because others were expected.
    pub corrected: u64,
    /// How often the state was taken for a file whose opening is not in the trace.
    pub adopted: u64,
    /// How often the balance of faults that missed and hit was taken from the trace: it depends on page tables and on pages in flight.
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
    /// All mismatches, at most [`MAX_MISMATCHES`].
    #[serde(skip)]
    pub mismatches: Vec<Mismatch>,
}

/// Limit of kept mismatches.
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
