//! Does a policy decide as a kernel did?
//!
//! In: a trace of what programs read, what the kernel's read-ahead decided, and all that it decided by ([`ahead_traces::Reader`]); the rules of
//! a kernel. Out: how many decisions agree, and which do not ([`Report`]).
//!
//! ```text
//!     programs ─▶ kernel's tracepoints ─▶ trace file ──▶ records ──┬─▶ Step   the state comes from the trace   ─┬─▶ Report
//!                 (crate `trace`)         (crate `traces`)         └─▶ Free   the state evolves by itself      ─┘
//! ```
//!
//! `pages` tells what is cached, `judge` compares one decision, `ledger`
//! keeps those of all threads apart, `step` and `free` are the two ways of comparing.
//!
//! What it must never do: take a decision from the trace that the policy should take; leave one out without counting it; call a
//! trace with losses good; believe what a trace says of itself.

mod free;
mod judge;
mod ledger;
mod pages;
mod position;
mod step;
mod tally;

pub use free::Free;
pub use step::Step;
pub use tally::{Agreement, KINDS, Kind, Mismatch, Tally};

use ahead_policy::policies::{linux_6_12, linux_6_18, linux_7_2, on_demand::Rules};
use ahead_traces::{Reader, TraceError, Trailer, Validator};
use serde::Serialize;
use std::io::Read;

/// The policies that can be compared, by their names in the catalogue.
pub const POLICIES: [(&str, Rules); 3] =
    [("linux-6.12", linux_6_12::RULES), ("linux-6.18", linux_6_18::RULES), ("linux-7.2", linux_7_2::RULES)];

/// Why a trace cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    /// It cannot be read.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// There is no policy of this kernel.
    #[error(
        "recorded on Linux {kernel}, whose read-ahead is not among the policies; --policy compares with one of: {}",
        names()
    )]
    Kernel {
        /// Its release.
        kernel: String,
    },
    /// There is no such policy.
    #[error("no policy `{name}` that can be compared; there are: {}", names())]
    Policy {
        /// What was asked for.
        name: String,
    },
    /// It is of a machine with other pages.
    #[error("recorded with pages of {0} bytes; the policies count pages of 4096")]
    PageSize(u32),
    /// Events were lost.
    #[error("{0} events were lost while it was recorded, so that it proves nothing; record less at a time")]
    Lost(u64),
    /// A record that cannot be.
    #[error("record {record} cannot be: {what}")]
    Impossible {
        /// Its number, from 0.
        record: u64,
        /// What is wrong.
        what: &'static str,
    },
}

fn names() -> String {
    POLICIES.map(|(name, _)| name).join(", ")
}

/// What a comparison comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kernel that was observed.
    pub kernel: String,
    /// The policy that it was compared with.
    pub policy: &'static str,
    /// Decisions that were compared step by step.
    pub decisions: u64,
    /// Those that the policy takes, too.
    pub matched: u64,
    /// The first that it does not, step by step or, if all of these agree, running free; none if [`Report::agrees`] and nothing
    /// overlaps.
    pub first_mismatch: Option<Mismatch>,
    /// Records in the trace.
    pub records: u64,
    /// With the state of the trace.
    pub step: Tally,
    /// With a state of its own.
    pub free_running: Tally,
}

impl Report {
    /// Whether every decision agrees in both ways, but for those that overlap with another thread's.
    pub fn agrees(&self) -> bool {
        self.step.agrees() && self.free_running.agrees()
    }
}

/// The policy of a kernel: of the release `6.18.44-arch1`, that of 6.18.
pub fn policy_of(release: &str) -> Option<&'static str> {
    let version: Vec<&str> = release.split(['.', '-']).collect();
    let wanted = format!("linux-{}.{}", version.first()?, version.get(1)?);
    POLICIES.iter().find(|(name, _)| *name == wanted).map(|(name, _)| *name)
}

/// Compares a trace with a policy; `None`: with that of the kernel that it was recorded on.
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
    let (mut step, mut free, mut validator) = (Step::new(rules), Free::new(rules), Validator::default());
    let mut records = 0;
    while let Some(record) = reader.next_record()? {
        validator.check(&record).map_err(|what| ConformError::Impossible { record: records, what })?;
        step.take(&record);
        free.take(&record);
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
