//! Evaluates the claims of a paper: TOML beside its scenarios.
//!
//! ```text
//!     claims.toml ─▶ runs (all that need no other run at the same time) ─▶ counters ─▶ expressions ─▶ Line, Figure
//! ```
//!
//! A document is part of this program, and a test evaluates each. An author who adds a claim sees its errors: they name the line.

mod document;
mod expression;
pub(crate) mod runs;
#[cfg(test)]
mod tests;
pub(crate) mod value;

use crate::{
    Axis, Bound, Figure, Input, Line, Live, Measured, Outcome, PaperError, Plot, Series, StackedBar, Verdict,
    in_parallel,
};
use document::{ClaimText, Document, Each, FigureText, Formula, Formulas, RunText, Section, Shown};
use expression::Scope;
use runs::{Experiment, Files, Setup};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use value::{Evaluated, Fault, List, Value, wrong};

/// The limit on definitions that refer to definitions.
const MOST_DEPTH: usize = 64;

/// The claims of a paper.
pub(crate) struct Claims {
    /// The name of the paper.
    pub paper: &'static str,
    /// The document, and the scenarios and models of disks that it names.
    pub text: &'static str,
    pub files: Files,
    /// Models in Rust, by name.
    pub experiments: &'static [(&'static str, Experiment)],
}

impl Claims {
    /// Evaluates all claims.
    ///
    /// Errors: the document, or a scenario, is wrong; a real run fails.
    pub(crate) fn run(&self, measured: &Measured) -> Result<Outcome, PaperError> {
        let document: Document = toml::from_str(self.text).map_err(|error| {
            let message = error.message().trim_end().replace('\n', "; ");
            self.error(error.span().map_or(0, |span| span.start), &message)
        })?;
        let mut evaluation = Evaluation {
            claims: self,
            functions: functions(&document.definitions).map_err(|(at, message)| self.error(at, &message))?,
            results: BTreeMap::new(),
            known: RefCell::default(),
            depth: Cell::new(0),
            document: &document,
        };
        evaluation.simulate()?;
        if let Some(live) = measured.live {
            evaluation.run_live(live)?;
        }
        evaluation.outcome(measured.live.is_some())
    }

    /// An error at this byte of the document.
    fn error(&self, at: usize, message: &str) -> PaperError {
        let line = 1 + self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        PaperError::Claim(format!("claims of {}, line {line}: {message}", self.paper))
    }
}

/// Defined functions: `"gain(slow, fast)"`.
type Functions<'a> = BTreeMap<&'a str, (Vec<&'a str>, &'a Formula)>;

fn functions(definitions: &Formulas) -> Result<Functions<'_>, (usize, String)> {
    let mut functions = Functions::new();
    for (key, formula) in definitions {
        let Some((name, parameters)) = key.split_once('(') else { continue };
        let Some(parameters) = parameters.strip_suffix(')') else {
            return Err((formula.at, format!("{key:?} has no \")\"")));
        };
        functions.insert(name, (parameters.split(',').map(str::trim).collect(), formula));
    }
    Ok(functions)
}

struct Evaluation<'a> {
    claims: &'a Claims,
    document: &'a Document,
    functions: Functions<'a>,
    /// Finished runs.
    results: BTreeMap<&'a str, Value>,
    /// Definitions that were evaluated.
    known: RefCell<BTreeMap<String, Value>>,
    depth: Cell<usize>,
}

/// What names mean in an expression: a row or arguments first, then the section's definitions, then those of the document.
struct Names<'a> {
    evaluation: &'a Evaluation<'a>,
    locals: BTreeMap<String, Value>,
    definitions: Option<&'a Formulas>,
}

impl Scope for Names<'_> {
    fn value(&self, name: &str) -> Evaluated {
        if let Some(value) = self.locals.get(name) {
            return Ok(value.clone());
        }
        match self.definitions.and_then(|definitions| definitions.get(name)) {
            Some(formula) => self.evaluation.deeper(name, || formula.expression.evaluate(self)),
            None => self.evaluation.value(name),
        }
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Option<Evaluated> {
        let (parameters, formula) = self.evaluation.functions.get(name)?;
        if parameters.len() != arguments.len() {
            return Some(wrong(format!("{name} has {} arguments, not {}", parameters.len(), arguments.len())));
        }
        let locals = parameters.iter().map(|name| (*name).to_owned()).zip(arguments.iter().cloned()).collect();
        let names = Names { locals, ..self.evaluation.names() };
        Some(self.evaluation.deeper(name, || formula.expression.evaluate(&names)))
    }
}

impl<'a> Evaluation<'a> {
    fn names(&self) -> Names<'_> {
        Names { evaluation: self, locals: BTreeMap::new(), definitions: None }
    }

    fn deeper(&self, name: &str, evaluate: impl FnOnce() -> Evaluated) -> Evaluated {
        if self.depth.get() >= MOST_DEPTH {
            return wrong(format!("{name} refers to itself"));
        }
        self.depth.set(self.depth.get() + 1);
        let value = evaluate();
        self.depth.set(self.depth.get() - 1);
        value
    }

    /// A run, a table, or a definition of the document.
    fn value(&self, name: &str) -> Evaluated {
        let document = self.document;
        if let Some(value) = self.results.get(name).or(document.table.get(name)) {
            return Ok(value.clone());
        }
        if let Some(value) = self.known.borrow().get(name) {
            return Ok(value.clone());
        }
        if let Some((name, formula)) = document.definitions.get_key_value(name) {
            let value = self.deeper(name, || formula.expression.evaluate(&self.names()))?;
            self.known.borrow_mut().insert(name.clone(), value.clone());
            return Ok(value);
        }
        match document.run.contains_key(name) || document.live.contains_key(name) {
            true => Err(Fault::Pending),
            false => wrong(format!("unknown name {name:?}")),
        }
    }

    fn error(&self, at: usize, fault: Fault) -> PaperError {
        match fault {
            Fault::Wrong(message) => self.claims.error(at, &message),
            Fault::Pending => self.claims.error(at, "a run that has no result here"),
        }
    }

    /// The value of a formula, read as a number, a list or another kind.
    fn get<T>(&self, formula: &Formula, names: &Names, read: fn(&Value) -> Result<T, Fault>) -> Result<T, PaperError> {
        let value = formula.expression.evaluate(names).and_then(|value| read(&value));
        value.map_err(|fault| self.error(formula.at, fault))
    }

    fn truth(&self, formula: &Formula, names: &Names) -> Result<bool, PaperError> {
        self.get(formula, names, Value::truth)
    }

    fn text(&self, shown: &Shown, names: &Names) -> Result<String, PaperError> {
        Ok(self.shown(shown, names)?.0)
    }

    fn shown(&self, shown: &Shown, names: &Names) -> Result<(String, Option<Value>), PaperError> {
        shown.template.show(names).map_err(|fault| self.error(shown.at, fault))
    }

    /// The names of each row of a table; without a table, once without a row.
    fn rows(&self, each: &Each) -> Result<Vec<Names<'_>>, PaperError> {
        let Each(Some((name, formula))) = each else { return Ok(vec![self.names()]) };
        let rows = self.get(formula, &self.names(), Value::items)?;
        let names = |row: &Value| Names { locals: [(name.clone(), row.clone())].into(), ..self.names() };
        Ok(rows.iter().map(names).collect())
    }
}

/// One run, and the row that it is for.
struct ClaimsJob {
    setup: Setup,
    experiment: Option<Experiment>,
    row: BTreeMap<String, Value>,
}

impl ClaimsJob {
    /// The result, with the row: under its name, and as the key of [`value::call`]'s `at`.
    fn labelled(&self, result: Value) -> Value {
        let labels = self.row.iter().flat_map(|(name, row)| [(name.as_str(), row), ("key", row)]);
        labels.fold(result, |result, (name, row)| result.with(name, row.clone()))
    }
}

impl<'a> Evaluation<'a> {
    /// Runs everything in the simulator: in each round, all that need no result of another run.
    fn simulate(&mut self) -> Result<(), PaperError> {
        loop {
            let waiting = self.document.run.iter().filter(|(name, _)| !self.results.contains_key(name.as_str()));
            let (mut ready, mut left) = (Vec::new(), None);
            for (name, run) in waiting {
                match self.jobs(run) {
                    Ok(jobs) => ready.push((name.as_str(), run, jobs)),
                    Err((_, Fault::Pending)) => left = Some(run),
                    Err((at, fault)) => return Err(self.error(at, fault)),
                }
            }
            if ready.is_empty() {
                return left.map_or(Ok(()), |run| Err(self.error(place(run), Fault::Pending)));
            }
            let all: Vec<(&RunText, &ClaimsJob)> =
                ready.iter().flat_map(|(_, run, jobs)| jobs.iter().map(move |job| (*run, job))).collect();
            let results = in_parallel(&all, |(_, job)| match job.experiment {
                None => job.setup.run(),
                Some(Experiment::Simulated(run)) => run(&job.setup),
                Some(Experiment::Real(_)) => Err(Fault::Wrong("a model for real runs alone".into()).into()),
            });
            let mut results = all.iter().zip(results).map(|((run, job), result)| {
                result.map(|result| job.labelled(result)).map_err(|error| self.located(run, error))
            });
            let done = ready.iter().map(|(name, run, jobs)| {
                let results: Vec<Value> = results.by_ref().take(jobs.len()).collect::<Result<_, PaperError>>()?;
                Ok((*name, single_or_list(run, results)))
            });
            let done: Vec<_> = done.collect::<Result<_, PaperError>>()?;
            self.results.extend(done);
        }
    }

    /// Runs everything on the real page cache. The last row has the largest files, so that one disk serves all rows.
    fn run_live(&mut self, live: &dyn Live) -> Result<(), PaperError> {
        let document = self.document;
        for (name, run) in &document.live {
            let jobs = self.jobs(run).map_err(|(at, fault)| self.error(at, fault))?;
            let result = |job: &ClaimsJob| {
                let result = match (job.experiment, &run.filesystem) {
                    (Some(Experiment::Real(experiment)), _) => experiment(&job.setup, live),
                    (None, Some(filesystem)) => job.setup.run_live(live, filesystem, run.calls),
                    _ => Err(Fault::Wrong("a real run has a file system or a model for real runs".into()).into()),
                };
                result.map(|result| job.labelled(result)).map_err(|error| self.located(run, error))
            };
            let mut results: Vec<Value> = jobs.iter().rev().map(result).collect::<Result<_, _>>()?;
            results.reverse();
            self.results.insert(name, single_or_list(run, results));
        }
        Ok(())
    }

    /// An error of a run, at its place in the document.
    fn located(&self, run: &RunText, error: PaperError) -> PaperError {
        match error {
            PaperError::Live(_) => error,
            error => self.claims.error(place(run), &error.to_string()),
        }
    }

    /// The runs of each row. Errors: a place in the document, and the error there.
    fn jobs(&self, run: &RunText) -> Result<Vec<ClaimsJob>, (usize, Fault)> {
        let evaluate =
            |formula: &Formula, names: &Names| formula.expression.evaluate(names).map_err(|fault| (formula.at, fault));
        let rows = match &run.each {
            Each(None) => vec![BTreeMap::new()],
            Each(Some((name, formula))) => {
                let rows = evaluate(formula, &self.names())?.items().map_err(|fault| (formula.at, fault))?;
                rows.into_iter().map(|row| BTreeMap::from([(name.clone(), row)])).collect()
            }
        };
        let experiment = run.model.as_ref().map(|model| {
            let found = self.claims.experiments.iter().find(|(name, _)| name == model.get_ref());
            let unknown = || (model.span().start, Fault::Wrong(format!("unknown model {:?}", model.get_ref())));
            found.map(|(_, experiment)| *experiment).ok_or_else(unknown)
        });
        let experiment = experiment.transpose()?;
        let job = |row: BTreeMap<String, Value>| {
            let names = Names { locals: row.clone(), ..self.names() };
            let all = |formulas: &Formulas| -> Result<BTreeMap<String, Value>, (usize, Fault)> {
                formulas.iter().map(|(name, formula)| Ok((name.clone(), evaluate(formula, &names)?))).collect()
            };
            let policy =
                run.policy.as_ref().map(|shown| shown.template.show(&names).map_err(|fault| (shown.at, fault)));
            let policy = policy.transpose()?.map_or(String::new(), |(text, _)| text);
            let scenario = runs::scenario(self.claims.files, run.scenario.get_ref(), &all(&run.set)?)
                .map_err(|error| (place(run), Fault::Wrong(error.to_string())))?;
            Ok(ClaimsJob { setup: Setup { scenario, policy, arguments: all(&run.with)? }, experiment, row })
        };
        rows.into_iter().map(job).collect()
    }
}

fn place(run: &RunText) -> usize {
    run.scenario.span().start
}

/// The result of a single run, or the list of all rows' results.
fn single_or_list(run: &RunText, mut results: Vec<Value>) -> Value {
    if matches!(run.each, Each(None)) { results.remove(0) } else { List(results) }
}

impl<'a> Evaluation<'a> {
    fn outcome(&self, is_live: bool) -> Result<Outcome, PaperError> {
        let input = |input: &document::InputText| {
            Ok(Input {
                what: input.what.clone(),
                value: self.text(&input.value, &self.names())?,
                source: input.source.clone(),
            })
        };
        let lines = self.document.section.iter().map(|section| self.lines(section, is_live));
        let figures = self.document.figure.iter().map(|figure| self.figures(figure));
        Ok(Outcome {
            inputs: self.document.input.iter().map(input).collect::<Result<_, PaperError>>()?,
            lines: lines.collect::<Result<Vec<_>, _>>()?.concat(),
            figures: figures.collect::<Result<Vec<_>, _>>()?.concat(),
        })
    }

    fn lines(&self, section: &Section, is_live: bool) -> Result<Vec<Line>, PaperError> {
        let mut lines = Vec::new();
        for row in self.rows(&section.each)? {
            let names = Names { definitions: Some(&section.definitions), ..row };
            for claim in &section.claim {
                if claim.when.as_ref().map_or(Ok(true), |when| self.truth(when, &names))? {
                    lines.push(self.line(claim, &names, is_live)?);
                }
            }
        }
        Ok(lines)
    }

    fn line(&self, claim: &ClaimText, names: &Names, is_live: bool) -> Result<Line, PaperError> {
        let (ours, number) = claim.ours.as_ref().map_or(Ok(Default::default()), |shown| self.shown(shown, names))?;
        let bound = self.bound(claim, names)?;
        let (verdict, tolerance) = self.verdict(claim, names, bound, number)?;
        let live = claim.live.as_ref().filter(|_| is_live).map(|shown| self.shown(shown, names)).transpose()?;
        let live_verdict = match (&live, &claim.live_holds, bound) {
            (Some(_), Some(holds), _) => Some(Verdict::of(self.truth(holds, names)?)),
            (Some((_, number)), None, Some(bound)) => Some(self.compared(claim, bound, number.as_ref())?),
            _ => None,
        };
        Ok(Line {
            paper: self.claims.paper,
            claim: self.text(&claim.claim, names)?,
            quoted: self.text(&claim.quoted, names)?,
            ours,
            live: live.map(|(text, _)| text),
            tolerance,
            verdict,
            live_verdict,
        })
    }

    /// The verdict on `ours`, and the tolerance as text. `number`: the value of the first expression of `ours`.
    fn verdict(
        &self,
        claim: &ClaimText,
        names: &Names,
        bound: Option<Bound>,
        number: Option<Value>,
    ) -> Result<(Verdict, String), PaperError> {
        let why = claim.why.as_ref().map_or(Ok(String::new()), |shown| self.text(shown, names))?;
        let is_input = claim.input_if.as_ref().map_or(Ok(true), |formula| self.truth(formula, names))?;
        Ok(match (claim, bound) {
            (ClaimText { not_shown: Some(why), .. }, _) => (Verdict::NotShown, self.text(why, names)?),
            (ClaimText { input: Some(from), .. }, _) if is_input => {
                (Verdict::NotShown, format!("input: {}", self.text(from, names)?))
            }
            (ClaimText { answered: Some(made), .. }, _) => match self.truth(made, names)? {
                true => (Verdict::Answered, why),
                false => (Verdict::Differs, why),
            },
            (ClaimText { holds: Some(holds), .. }, _) => (Verdict::of(self.truth(holds, names)?), why),
            (_, Some(bound)) => (self.compared(claim, bound, number.as_ref())?, format!("{bound}: {why}")),
            (_, None) => return Err(self.claims.error(claim.claim.at, "nothing says when the claim holds")),
        })
    }

    fn compared(&self, claim: &ClaimText, bound: Bound, number: Option<&Value>) -> Result<Verdict, PaperError> {
        let number = number.map_or_else(|| wrong("the result has no number for the bound"), Value::number);
        number.map(|number| Verdict::of(bound.holds(number))).map_err(|fault| self.error(claim.claim.at, fault))
    }

    fn bound(&self, claim: &ClaimText, names: &Names) -> Result<Option<Bound>, PaperError> {
        let number = |formula: &Formula| self.get(formula, names, Value::number);
        Ok(match (&claim.within, &claim.between, &claim.at_least, &claim.at_most) {
            (None, None, None, None) => None,
            (Some([of, share]), None, None, None) => Some(Bound::Within(number(of)?, number(share)?)),
            (None, Some([least, most]), None, None) => Some(Bound::Between(number(least)?, number(most)?)),
            (None, None, Some(least), None) => Some(Bound::AtLeast(number(least)?)),
            (None, None, None, Some(most)) => Some(Bound::AtMost(number(most)?)),
            _ => return Err(self.claims.error(claim.claim.at, "a claim has one bound")),
        })
    }

    fn figures(&self, figure: &FigureText) -> Result<Vec<Figure>, PaperError> {
        self.rows(&figure.each)?.iter().map(|names| self.figure(figure, names)).collect()
    }

    fn figure(&self, figure: &FigureText, names: &Names) -> Result<Figure, PaperError> {
        let axis = |name: &str, label: &str| Axis {
            label: label.to_owned(),
            is_logarithmic: figure.logarithmic.iter().any(|axis| axis == name),
        };
        let plot = match (&figure.bars, &figure.values) {
            (Some(labels), Some(values)) => {
                let labels = self.get(labels, names, Value::items)?;
                let rows = |parts: &Value| parts.list()?.iter().map(Value::floats).collect::<Result<Vec<_>, _>>();
                let parts = self.get(values, names, rows)?;
                let bar = |(at, label): (usize, &Value)| StackedBar {
                    label: label.show(Default::default()),
                    values: parts.iter().filter_map(|values| values.get(at).copied()).collect(),
                };
                let bars = labels.iter().enumerate().map(bar).collect();
                Plot::Stacked { x: figure.x.clone(), y: figure.y.clone(), parts: figure.parts.clone(), bars }
            }
            _ => {
                let floats = |formula: &Formula| self.get(formula, names, Value::floats);
                let curves = figure.series.iter().map(|one| {
                    let points = floats(&one.x)?.into_iter().zip(floats(&one.y)?).collect();
                    Ok(Series { name: self.text(&one.name, names)?, points })
                });
                let (x, y) = (axis("x", &figure.x), axis("y", &figure.y));
                Plot::Lines { x, y, series: curves.collect::<Result<_, PaperError>>()? }
            }
        };
        Ok(Figure { title: self.text(&figure.title, names)?, caption: figure.caption.clone(), plot })
    }
}
