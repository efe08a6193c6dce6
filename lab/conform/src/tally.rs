//! What a comparison comes to.

use serde::Serialize;

/// What calls for a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A call that reads, and an absent page.
    #[default]
    Read,
    /// A marked page.
    Mark,
    /// A touched mapping, and an absent page.
    Fault,
    /// Advice that asks for pages.
    Advice,
}

/// All of them.
pub const KINDS: [Kind; 4] = [Kind::Read, Kind::Mark, Kind::Fault, Kind::Advice];

/// A decision that the policy would not have taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The record that it begins with, counted from 0.
    pub record: u64,
    /// What called for it.
    pub kind: Kind,
    /// The thread.
    pub task: u32,
    /// The file's number in the trace.
    pub file: u32,
    /// The page.
    pub page: u64,
    /// Pages that were wanted.
    pub wanted: u64,
    /// What differs.
    pub difference: String,
    /// The state before, as the kernel had it.
    pub state: String,
    /// Another thread's decision on the same file was under way, or its read through the same open file, with whose end the
    /// decision agrees: which came first cannot be told from outside.
    pub is_overlapping: bool,
}

/// How many decisions of a kind there are, and how many agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Decisions.
    pub decisions: u64,
    /// Those that the policy takes, too.
    pub matched: u64,
}

/// What a way of comparing comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Decisions that were compared.
    pub decisions: u64,
    /// Those that the policy takes, too.
    pub matched: u64,
    /// Those that are more than a single page read at random, and more than nothing.
    pub beyond_single_pages: u64,
    /// Mismatches while another thread's decision on the same file was under way.
    pub overlapping: u64,
    /// Decisions whose pages came into the cache as the policy expects, folio by folio.
    pub folios_matched: u64,
    /// Decisions that could not be compared: of files that were partly cached before, of mappings that were not found.
    pub excluded: u64,
    /// How often the state had to be taken from the trace, since the policy's own had come to differ.
    pub resynchronised: u64,
    /// How often what a thread's decision has really brought had to be taken from the trace, since other folios were expected.
    pub corrected: u64,
    /// How often it was taken from there for the first time: open files whose opening is not in the trace.
    pub adopted: u64,
    /// How often the balance of faults that missed and hit was taken from the trace: it depends on page tables and on what has
    /// arrived.
    pub balances_taken: u64,
    /// By what called for them: reads, marks, faults, advice.
    pub reads: Agreement,
    /// Marked pages.
    pub marks: Agreement,
    /// Faults.
    pub faults: Agreement,
    /// Advice.
    pub advice: Agreement,
    /// The first mismatch.
    pub first_mismatch: Option<Mismatch>,
    /// All of them, at most [`MOST_MISMATCHES`].
    #[serde(skip)]
    pub mismatches: Vec<Mismatch>,
}

/// So many mismatches are kept.
pub const MOST_MISMATCHES: usize = 10_000;

impl Tally {
    /// By kind.
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

    /// Whether every decision agrees, but for those that overlap with another thread's.
    pub fn agrees(&self) -> bool {
        self.matched + self.overlapping == self.decisions
    }
}
