//! The papers on read-ahead as scenarios: their results beside the simulated ones.
//!
//! In: the five sources, one module each, with scenarios (TOML, beside the module) that model the authors' machines and workloads.
//! Out: a [`Line`] for every number that a source states, and its figures.
//!
//! ```text
//!     papers/NAME/*.toml ──▶ sim::Scenario ──▶ counters ──┬─▶ Line { quoted, ours, tolerance, verdict }
//!                                                         └─▶ Figure ──▶ a picture as in the paper
//! ```
//!
//! This crate must never adapt a scenario to one number at the cost of another of the same machine, or report an input as a
//! reproduced result. An input (a disk's data sheet, a processor's speed) is an [`Input`] with its source; a result is a [`Line`].
//!
//! ```
//! let roudier = ahead_papers::named("roudier").unwrap();
//! let outcome = roudier.run(None).unwrap();
//! for line in &outcome.lines {
//!     println!("{}: {} | {} | {}", line.claim, line.quoted, line.ours, line.verdict);
//! }
//! assert!(outcome.lines.iter().all(|line| line.paper == "roudier"));
//! ```

mod counts;
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

pub use figure::{Axis, Figure, Plot, Series, StackedBar, series};
pub use jobs::{Job, in_parallel, policy, run_all, scenario};
pub use line::{Bound, Line, Lines, Measure, Verdict};
pub use live::{Asked, Filesystem, Live, LiveError, Observed};
pub use on_disk::OnDisk;

/// Something that a scenario rests on and that no run brings out: a data sheet's figure, a processor's speed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What, and of which machine.
    pub what: &'static str,
    /// With its unit.
    pub value: String,
    /// Where it is from: the source's own text, a data sheet, or *assumed*, and why.
    pub source: &'static str,
}

impl Input {
    /// An input.
    pub fn new(what: &'static str, value: impl Into<String>, source: &'static str) -> Input {
        Input { what, value: value.into(), source }
    }
}

/// What comes of running a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The inputs.
    pub inputs: Vec<Input>,
    /// What it says beside what came out.
    pub lines: Vec<Line>,
    /// Its pictures, from our data.
    pub figures: Vec<Figure>,
}

/// Why a source could not be run.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// A scenario is wrong.
    #[error("{name}: {source}")]
    Scenario {
        /// Its file.
        name: &'static str,
        /// What is wrong.
        source: ahead_sim::ScenarioError,
    },
    /// A policy is not there, or not with these arguments.
    #[error("{0}")]
    Policy(#[from] ahead_policy::UnknownPolicy),
    /// The real page cache could not be asked.
    #[error("{0}")]
    Live(#[from] LiveError),
}

/// How a source is run; what it asks of the real page cache it asks of the second argument, if there is one.
type Run = fn(Option<&dyn Live>) -> Result<Outcome, PaperError>;

/// A source.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// As given to `ahead papers`.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Who wrote it.
    pub authors: &'static str,
    /// When.
    pub year: u16,
    /// What it is about and how it is run here, in a few sentences.
    pub story: &'static str,
    run: Run,
}

impl Paper {
    /// Runs its scenarios on all processors: some seconds. The same figures come out each time, but for those that come
    /// from the real page cache.
    ///
    /// Errors: every [`PaperError`].
    pub fn run(&self, live: Option<&dyn Live>) -> Result<Outcome, PaperError> {
        (self.run)(live)
    }
}

/// All of them, the oldest first.
pub const PAPERS: &[Paper] = &[roudier::PAPER, oconnor_tracy::PAPER, opdenacker::PAPER, pelouin::PAPER, wu::PAPER];

/// There is no such source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no paper is called {name:?}; there are {}", PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>().join(", "))]
pub struct UnknownPaper {
    /// What was asked for.
    pub name: String,
}

/// Finds a source.
///
/// Errors: there is none of that name.
pub fn named(name: &str) -> Result<&'static Paper, UnknownPaper> {
    PAPERS.iter().find(|paper| paper.name == name).ok_or_else(|| UnknownPaper { name: name.to_owned() })
}
