//! The papers on read-ahead as scenarios: their results beside the simulated ones.
//!
//! In: for each source its claims and the scenarios that model the authors' machines and workloads, as TOML (`roudier/claims.toml`).
//! Out: a [`Line`] for every number that a source states, and its figures.
//!
//! ```text
//!     NAME/*.toml ──▶ sim::Scenario ──▶ counters ─┬─▶ Line { quoted, ours, tolerance, verdict }
//!     NAME/claims.toml ──▶ expressions ───────────┴─▶ Figure ──▶ a picture as in the paper
//! ```
//!
//! This crate must never adapt a scenario to one number at the cost of another of the same machine. This crate must never
//! report an input as a reproduced result. An input (a disk's data sheet, a processor's speed) is an [`Input`] with its source; a result is a [`Line`].
//!
//! ```
//! let roudier = ahead_papers::named("roudier").unwrap();
//! let outcome = roudier.run(&ahead_papers::Measured::default()).unwrap();
//! for line in &outcome.lines {
//!     println!("{}: {} | {} | {}", line.claim, line.quoted, line.ours, line.verdict);
//! }
//! assert!(outcome.lines.iter().all(|line| line.paper == "roudier"));
//! ```

mod boot;
mod boots;
mod claims;
mod figure;
mod jobs;
mod line;
mod live;
mod oconnor_tracy;
mod on_disk;
mod opdenacker;
mod pelouin;
pub mod report;
mod roudier;
mod starts;
mod wu;

pub use boots::{BootsError, RealBoots};
pub use figure::{Axis, Figure, Plot, Series, StackedBar};
use jobs::in_parallel;
use line::Bound;
pub use line::{Line, Verdict};
pub use live::{Asked, CallTime, Filesystem, Live, LiveError, Loaded, Observed, SystemCalls};
pub use on_disk::OnDisk;

/// A value on which a scenario is based and which no run produces: a data sheet's figure, a processor's speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The quantity, and the machine.
    pub what: String,
    /// The value with its unit.
    pub value: String,
    /// The origin: the source's own text, a data sheet, or *assumed*, with the reason.
    pub source: String,
}

/// The outcome of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub inputs: Vec<Input>,
    /// The statements of the source beside the results.
    pub lines: Vec<Line>,
    /// The figures, drawn from the results.
    pub figures: Vec<Figure>,
}

/// The reason why a source could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// A document of claims is wrong.
    #[error("{0}")]
    Claim(String),
    /// An argument or a value in a document of claims is wrong; its place is added later.
    #[error("{0}")]
    Fault(String),
    /// The catalogue does not have the policy, or not with these arguments.
    #[error("{0}")]
    Policy(#[from] ahead_policy::UnknownPolicy),
    /// The run against the real page cache failed.
    #[error("{0}")]
    Live(#[from] LiveError),
}

/// What real machines have to say about a source, besides the simulator.
#[derive(Clone, Copy, Default)]
pub struct Measured<'a> {
    /// Access to the real page cache.
    pub live: Option<&'a dyn Live>,
    /// Boots of real systems.
    pub boots: Option<&'a RealBoots>,
}

/// The run of a source.
type PaperRun = fn(&Measured) -> Result<Outcome, PaperError>;

/// A source.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The name for `ahead papers`.
    pub name: &'static str,
    pub title: &'static str,
    pub authors: &'static str,
    /// The year of publication.
    pub year: u16,
    /// The content of the source and its run here, in a few sentences.
    pub story: &'static str,
    run: PaperRun,
}

impl Paper {
    /// Runs the scenarios of the source on all processors: some seconds. The figures are the same each time, except
    /// those from the real page cache.
    ///
    /// Errors: every [`PaperError`].
    pub fn run(&self, measured: &Measured) -> Result<Outcome, PaperError> {
        (self.run)(measured)
    }
}

/// All sources, the oldest first.
pub const PAPERS: &[Paper] = &[roudier::PAPER, oconnor_tracy::PAPER, opdenacker::PAPER, pelouin::PAPER, wu::PAPER];

/// No source has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no paper is called {name:?}; there are {}", PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPaper {
    /// The requested name.
    pub name: String,
}

/// Finds a source by name.
///
/// Errors: no source has this name.
pub fn named(name: &str) -> Result<&'static Paper, UnknownPaper> {
    PAPERS.iter().find(|paper| paper.name == name).ok_or_else(|| UnknownPaper { name: name.to_owned() })
}
