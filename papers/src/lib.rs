//! The papers that read-ahead comes from, as scenarios: what they say beside what comes out here.
//!
//! In: the five sources, one module each, with the scenarios (TOML, beside the module) that stand for the machine and the
//! workload of their authors. Out: a [`Line`] for every figure and number that a source states, and the pictures that it draws.
//!
//! ```text
//!     papers/NAME/*.toml ──▶ sim::Scenario ──▶ counters ──┬─▶ Line { quoted, ours, tolerance, verdict }
//!                                                         └─▶ Figure ──▶ a picture as in the paper
//! ```
//!
//! What it must never do: adapt a scenario to one number at the cost of another of the same machine; call a number reproduced that
//! was put in. What was put in (a disk's data sheet, a processor's speed) and what comes out of it is said with each line.

use serde::Serialize;

/// What a line comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Ours is within the tolerance.
    Holds,
    /// It is not.
    Differs,
    /// Cannot be told by a simulation, nor here.
    NotShown,
    /// No figure was quoted: an answer to a question that the source left open.
    Answered,
}

/// One statement of a source beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the source, as given to `ahead papers`.
    pub paper: &'static str,
    /// What is claimed, and where: section, figure or table.
    pub claim: String,
    /// What the source says, with its unit.
    pub quoted: String,
    /// What comes out in the simulator.
    pub ours: String,
    /// What came out against the real page cache; `None`: not asked for, or it makes no sense there.
    pub live: Option<String>,
    /// How far apart they may be, and why.
    pub tolerance: String,
    /// What it comes to.
    pub verdict: Verdict,
}
