//! The claims of a paper as TOML.
//!
//! ```text
//!     [[input]]              what a scenario is based on, and where it is from
//!     [table]                the rows of the paper's tables
//!     [let]                  names and functions of expressions
//!     [run.NAME]             a scenario with a policy, and changes; with `each` one run for each element of a list
//!     [live.NAME]            the same on the real page cache
//!     [[section.claim]]      what the paper says, what a run shows, and whether that agrees
//!     [[figure]]             a picture from the results
//! ```
//!
//! Where an expression is expected, a number, a list or a table is itself; a text is parsed.

use super::expression::{Expression, Template};
use super::value::Value;
use serde::{Deserialize, Deserializer, de::Error};
use std::collections::BTreeMap;

/// An expression and its place in the document.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    pub expression: Expression,
    pub at: usize,
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Formula, D::Error> {
        let spanned = toml::Spanned::<Value>::deserialize(deserializer)?;
        let at = spanned.span().start;
        let expression = match spanned.into_inner() {
            Value::Text(text) => Expression::parse(&text).map_err(D::Error::custom)?,
            value => Expression::Constant(value),
        };
        Ok(Formula { expression, at })
    }
}

/// A text with expressions, and its place in the document.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub template: Template,
    pub at: usize,
}

impl<'de> Deserialize<'de> for Shown {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shown, D::Error> {
        let spanned = toml::Spanned::<String>::deserialize(deserializer)?;
        let template = Template::parse(spanned.get_ref()).map_err(D::Error::custom)?;
        Ok(Shown { template, at: spanned.span().start })
    }
}

pub(super) type Formulas = BTreeMap<String, Formula>;

/// The name of a row, and the list of rows.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Formulas")]
pub(super) struct Each(pub Option<(String, Formula)>);

impl TryFrom<Formulas> for Each {
    type Error = &'static str;

    fn try_from(formulas: Formulas) -> Result<Each, &'static str> {
        if formulas.len() > 1 { Err("each has one name") } else { Ok(Each(formulas.into_iter().next())) }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    #[serde(default)]
    pub input: Vec<InputText>,
    #[serde(default)]
    pub table: BTreeMap<String, Value>,
    #[serde(default, rename = "let")]
    pub definitions: Formulas,
    #[serde(default)]
    pub run: BTreeMap<String, RunText>,
    #[serde(default)]
    pub live: BTreeMap<String, RunText>,
    pub section: Vec<Section>,
    #[serde(default)]
    pub figure: Vec<FigureText>,
}

/// A value on which a scenario is based.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputText {
    pub what: String,
    pub value: Shown,
    pub source: String,
}

/// A run of the simulator, or one for each element of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunText {
    /// The file of the scenario, beside the document.
    pub scenario: toml::Spanned<String>,
    /// The policy: `linux-2.2`, `advise({pages})`.
    pub policy: Option<Shown>,
    /// The name of the element, and the list.
    #[serde(default)]
    pub each: Each,
    /// Fields of the scenario (`disk.read_ahead_kb`) and of the disk's model (`model.read_on_kb`) with other values.
    #[serde(default)]
    pub set: Formulas,
    /// The name of a model in Rust that takes the place of the scenario's workload.
    pub model: Option<toml::Spanned<String>>,
    /// The arguments of this model.
    #[serde(default)]
    pub with: Formulas,
    /// The file system of a real run.
    pub filesystem: Option<String>,
    /// Whether the time of each call of a real run is needed.
    #[serde(default)]
    pub calls: bool,
}

/// Claims of a section, or of each row of a table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    /// The name of the row, and the table.
    #[serde(default)]
    pub each: Each,
    /// Names for this section alone.
    #[serde(default, rename = "let")]
    pub definitions: Formulas,
    pub claim: Vec<ClaimText>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimText {
    /// What the paper claims, and where.
    pub claim: Shown,
    /// Its value, as printed.
    pub quoted: Shown,
    /// The result. The first expression is the number that is compared.
    pub ours: Option<Shown>,
    /// The number, and the tolerance as a share of it.
    pub within: Option<[Formula; 2]>,
    pub between: Option<[Formula; 2]>,
    pub at_least: Option<Formula>,
    pub at_most: Option<Formula>,
    /// Instead of a bound: whether the result agrees with the claim.
    pub holds: Option<Formula>,
    /// For a question that the paper leaves open: whether the observations behind the answer were made.
    pub answered: Option<Formula>,
    /// The number is an input; from where.
    pub input: Option<Shown>,
    /// Where some rows are inputs only: which.
    pub input_if: Option<Formula>,
    /// Why this project cannot show the claim.
    pub not_shown: Option<Shown>,
    /// Why the tolerance is what it is; how a question was answered.
    pub why: Option<Shown>,
    /// The rows that have this claim; all, if it is missing.
    pub when: Option<Formula>,
    /// The result on the real page cache; the same bound.
    pub live: Option<Shown>,
    /// Instead of the bound.
    pub live_holds: Option<Formula>,
}

/// A picture of lines or of stacked bars.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureText {
    #[serde(default)]
    pub each: Each,
    pub title: Shown,
    pub caption: String,
    /// The labels of the axes.
    pub x: String,
    pub y: String,
    /// The axes on which equal distances are equal factors.
    #[serde(default)]
    pub logarithmic: Vec<String>,
    /// The lines: a name, and the lists of coordinates.
    #[serde(default)]
    pub series: Vec<SeriesText>,
    /// The names of a bar's parts.
    #[serde(default)]
    pub parts: Vec<String>,
    /// The labels of the bars.
    pub bars: Option<Formula>,
    /// A list for each part: its values in all bars.
    pub values: Option<Formula>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SeriesText {
    pub name: Shown,
    pub x: Formula,
    pub y: Formula,
}
