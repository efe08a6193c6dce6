//! Compares the decisions of a policy with those of a kernel.
//!
//! Input: a trace ([`ahead_policy::traces::Reader`]) and the rules of a kernel. The trace has the reads of programs, the decisions of the
//! kernel's read-ahead and the state before each decision. Output: the number of decisions that agree, and the decisions that do not
//! ([`Report`]).
//!
//! ```text
//!     programs ─▶ tracepoints ─▶ trace file ──▶ records ──┬─▶ StepByStep    the state comes from the trace       ─┬─▶ Report
//!                 (`observe`)    (`traces`)               └─▶ FreeRunning   the state follows from the accesses  ─┘
//! ```
//!
//! `pages` models the page cache, `judge` compares one decision, `ledger` keeps the decisions of all threads, `step` and `free` are the two
//! methods.
//!
//! This crate must never use a decision of the trace in place of the policy's, or leave out a decision without counting it. It must never
//! accept a trace with lost events, or trust a trace.

mod free;
mod judge;
mod ledger;
mod pages;
mod position;
pub mod report;
mod step;
mod tally;

pub use free::FreeRunning;
pub use step::StepByStep;
pub use tally::{Agreement, KINDS, Kind, Mismatch, Tally};

use ahead_policy::policies::{linux_6_12, linux_6_18, linux_7_2, on_demand::Rules};
use ahead_policy::traces::{Reader, TraceError, Trailer, Validator};
use serde::Serialize;
use std::io::Read;

/// The policies that can be compared, with their names in the catalogue.
pub const POLICIES: [(&str, Rules); 3] =
    [("linux-6.12", linux_6_12::RULES), ("linux-6.18", linux_6_18::RULES), ("linux-7.2", linux_7_2::RULES)];

/// Why a trace cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// The trace cannot be read.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// There is no policy for this kernel.
    #[error(
        "the trace was recorded on Linux {kernel}, and there is no policy for its read-ahead; choose one with --policy: {}",
        names()
    )]
    Kernel {
        /// The release of the kernel.
        kernel: String,
    },
    /// There is no such policy.
    #[error("no policy `{name}` for a comparison; known ones: {}", names())]
    Policy {
        /// The name.
        name: String,
    },
    /// The machine has another page size.
    #[error("the trace was recorded with pages of {0} bytes; the policies have pages of 4096")]
    PageSize(u32),
    /// Events were lost.
    #[error("{0} events were lost during the recording, and the trace proves nothing; record less at a time")]
    Lost(u64),
    /// An impossible record.
    #[error("record {record} is impossible: {what}")]
    Impossible {
        /// Number of the record, from 0.
        record: u64,
        /// The error.
        what: &'static str,
    },
}

fn names() -> String {
    POLICIES.map(|(name, _)| name).join(", ")
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The release of the observed kernel.
    pub kernel: String,
    /// The policy.
    pub policy: &'static str,
    /// Decisions compared step by step.
    pub decisions: u64,
    /// Decisions with which the policy agrees.
    pub matched: u64,
    /// The first mismatch, step by step, or free running if all steps agree; `None` if [`Report::agrees`] and no decisions overlap.
    pub first_mismatch: Option<Mismatch>,
    /// Records in the trace.
    pub records: u64,
    /// The comparison with the state of the trace.
    pub step: Tally,
    /// The comparison with a free running state.
    pub free_running: Tally,
}

impl Report {
    /// Whether every decision agrees with both methods, except those that overlap with another thread's.
    pub fn agrees(&self) -> bool {
        self.step.agrees() && self.free_running.agrees()
    }
}

/// The policy for a kernel release: linux-6.18 for `6.18.44-arch1`.
pub fn policy_of(release: &str) -> Option<&'static str> {
    let version: Vec<&str> = release.split(['.', '-']).collect();
    let wanted = format!("linux-{}.{}", version.first()?, version.get(1)?);
    POLICIES.iter().find(|(name, _)| *name == wanted).map(|(name, _)| *name)
}

/// Compares a trace with a policy; `None`: with the policy of the recorded kernel.
///
/// Errors: see [`ConformError`].
pub fn conform(from: impl Read, policy: Option<&str>) -> Result<Report, ConformError> {
    let mut reader = Reader::new(from)?;
    let header = reader.header().clone();
    if u64::from(header.page_bytes) != ahead_policy::PAGE_BYTES {
        return Err(ConformError::PageSize(header.page_bytes));
    }
    let (policy, rules) = match policy {
        Some(name) => POLICIES.into_iter().find(|(known, _)| *known == name),
        None => policy_of(&header.kernel).and_then(|name| POLICIES.into_iter().find(|(known, _)| *known == name)),
    }
    .ok_or_else(|| match policy {
        Some(name) => ConformError::Policy { name: name.into() },
        None => ConformError::Kernel { kernel: header.kernel.clone() },
    })?;
    let (mut step, mut free, mut validator) = (StepByStep::new(rules), FreeRunning::new(rules), Validator::default());
    let mut records = 0;
    while let Some(record) = reader.next_record()? {
        validator.check(&record).map_err(|what| ConformError::Impossible { record: records, what })?;
        step.process(&record);
        free.process(&record);
        records += 1;
    }
    match reader.trailer() {
        Some(Trailer { lost: 0, .. }) => {}
        trailer => return Err(ConformError::Lost(trailer.map_or(0, |trailer| trailer.lost))),
    }
    let (step, free_running) = (step.finish(), free.finish());
    let (decisions, matched) = (step.decisions, step.matched);
    let first_mismatch = step.first_mismatch.clone().or_else(|| free_running.first_mismatch.clone());
    let kernel = header.kernel;
    Ok(Report { kernel, policy, decisions, matched, first_mismatch, records, step, free_running })
}
