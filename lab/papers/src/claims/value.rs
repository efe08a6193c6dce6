//! Values of expressions: numbers, lists of them, and records of counters.

use crate::PaperError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value. The field of a list is the list of its elements' fields, and an operator works on each element.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Truth(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Record(BTreeMap<String, Value>),
}

pub(crate) use Value::{List, Number, Record, Text, Truth};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The expression is wrong.
    Wrong(String),
    /// A run has no result yet.
    Pending,
}

impl From<Fault> for PaperError {
    fn from(fault: Fault) -> PaperError {
        PaperError::Fault(match fault {
            Fault::Wrong(message) => message,
            Fault::Pending => "a run has no result yet".into(),
        })
    }
}

pub(crate) type Evaluated = Result<Value, Fault>;

/// The error with this message.
pub(crate) fn wrong<T>(message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Wrong(message.into()))
}

impl Value {
    /// The fields of a structure, such as a run's counters. Every number in it is finite.
    pub(crate) fn of(fields: &impl Serialize) -> Value {
        serde_json::to_value(fields).and_then(serde_json::from_value).expect("structures of numbers and lists")
    }

    /// A list of numbers.
    pub(crate) fn numbers(values: impl IntoIterator<Item = f64>) -> Value {
        List(values.into_iter().map(Number).collect())
    }

    /// A record of these fields.
    pub(crate) fn record<const N: usize>(fields: [(&str, Value); N]) -> Value {
        Record(fields.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// A record with one more field.
    pub(crate) fn with(self, name: &str, value: Value) -> Value {
        let Record(mut fields) = self else { return self };
        fields.insert(name.to_owned(), value);
        Record(fields)
    }

    pub(crate) fn number(&self) -> Result<f64, Fault> {
        match self {
            Number(number) => Ok(*number),
            other => wrong(format!("a number is needed, not {}", other.kind())),
        }
    }

    /// A number as a count of things, such as pages.
    pub(crate) fn whole(&self) -> Result<u64, Fault> {
        match self.number()? {
            number if number >= 0.0 && number.fract() == 0.0 => Ok(number as u64),
            number => wrong(format!("a whole number is needed, not {number}")),
        }
    }

    pub(crate) fn truth(&self) -> Result<bool, Fault> {
        match self {
            Truth(truth) => Ok(*truth),
            other => wrong(format!("true or false is needed, not {}", other.kind())),
        }
    }

    pub(crate) fn list(&self) -> Result<&[Value], Fault> {
        match self {
            List(list) => Ok(list),
            other => wrong(format!("a list is needed, not {}", other.kind())),
        }
    }

    /// The elements of a list.
    pub(crate) fn items(&self) -> Result<Vec<Value>, Fault> {
        Ok(self.list()?.to_vec())
    }

    /// The numbers of a list.
    pub(crate) fn floats(&self) -> Result<Vec<f64>, Fault> {
        self.list()?.iter().map(Value::number).collect()
    }

    fn kind(&self) -> &'static str {
        match self {
            Truth(_) => "true or false",
            Number(_) => "a number",
            Text(_) => "a text",
            List(_) => "a list",
            Record(_) => "a record",
        }
    }

    /// The field of a record, or of each record of a list.
    pub(crate) fn field(&self, name: &str) -> Evaluated {
        match self {
            List(list) => of_each(list, |value| value.field(name)),
            Record(fields) => fields.get(name).cloned().ok_or_else(|| {
                let names = fields.keys().cloned().collect::<Vec<_>>().join(", ");
                Fault::Wrong(format!("unknown counter {name:?}; there are {names}"))
            }),
            other => wrong(format!("{} has no counter {name:?}", other.kind())),
        }
    }

    /// The element with this number, from 0, or the elements with these numbers.
    pub(crate) fn element(&self, index: &Value) -> Evaluated {
        if let List(indexes) = index {
            return of_each(indexes, |index| self.element(index));
        }
        let (list, index) = (self.list()?, index.whole()?);
        let missing = || Fault::Wrong(format!("a list of {} has no element {index}", list.len()));
        list.get(index as usize).cloned().ok_or_else(missing)
    }

    /// The value as text: a number with these decimals, the elements of a list with commas between them.
    pub(crate) fn show(&self, format: Format) -> String {
        match self {
            Truth(truth) => truth.to_string(),
            Text(text) => text.clone(),
            Number(number) => match format {
                Format { decimals: None, .. } => number.to_string(),
                Format { decimals: Some(decimals), sign: false } => format!("{number:.decimals$}"),
                Format { decimals: Some(decimals), sign: true } => format!("{number:+.decimals$}"),
            },
            List(list) => list.iter().map(|value| value.show(format)).collect::<Vec<_>>().join(", "),
            Record(_) => self.kind().to_owned(),
        }
    }
}

fn of_each(list: &[Value], value: impl Fn(&Value) -> Evaluated) -> Evaluated {
    Ok(List(list.iter().map(value).collect::<Result<_, _>>()?))
}

/// How a number is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    /// `None`: as many decimals as the number has.
    pub decimals: Option<usize>,
    /// Whether a positive number has a sign.
    pub sign: bool,
}

/// Calls `operation` for two values, or for each pair of elements; a single value goes with each element of a list.
pub(crate) fn pairwise(left: &Value, right: &Value, operation: &dyn Fn(&Value, &Value) -> Evaluated) -> Evaluated {
    match (left, right) {
        (List(left), List(right)) if left.len() != right.len() => {
            wrong(format!("lists of {} and {} do not go together", left.len(), right.len()))
        }
        (List(left), List(right)) => {
            let pairs = left.iter().zip(right).map(|(left, right)| pairwise(left, right, operation));
            Ok(List(pairs.collect::<Result<_, _>>()?))
        }
        (List(left), right) => of_each(left, |left| pairwise(left, right, operation)),
        (left, List(right)) => of_each(right, |right| pairwise(left, right, operation)),
        (left, right) => operation(left, right),
    }
}

/// The functions of expressions. `None`: there is none of this name.
pub(crate) fn call(name: &str, arguments: &[Value]) -> Option<Evaluated> {
    let numbers = || arguments.iter().map(flat).collect::<Result<Vec<_>, _>>().map(|lists| lists.concat());
    let each = |of: fn(f64) -> f64| pairwise(&arguments[0], &Truth(true), &|value, _| Ok(Number(of(value.number()?))));
    Some(match (name, arguments) {
        ("abs", [_]) => each(f64::abs),
        ("round", [_]) => each(f64::round),
        ("floor", [_]) => each(f64::floor),
        ("ceil", [_]) => each(f64::ceil),
        ("larger", [left, right]) => larger(left, right),
        ("fixed", [value, decimals]) => fixed(value, decimals),
        ("flat", [list]) => list.list().map(|parts| List(parts.iter().flat_map(elements).collect())),
        ("count", [list]) => list.list().map(|list| Number(list.len() as f64)),
        ("sum", _) => numbers().map(|numbers| Number(numbers.iter().sum())),
        ("min", _) => numbers().and_then(|numbers| extreme(numbers, f64::min)),
        ("max", _) => numbers().and_then(|numbers| extreme(numbers, f64::max)),
        ("median", _) => numbers().and_then(median),
        ("all", [list]) => truths(list).map(|truths| Truth(truths.into_iter().all(|truth| truth))),
        ("first", [list]) => list.element(&Number(0.0)),
        ("last", [list]) => list.list().and_then(|items| list.element(&Number(items.len().max(1) as f64 - 1.0))),
        ("slice", [list, from, to]) => slice(list, from, to),
        ("where", [list, mask]) => keep(list, mask),
        ("at", [runs, key]) => at(runs, key),
        ("same", [left, right]) => Ok(Truth(left == right)),
        ("contains", [list, value]) => list.list().map(|list| Truth(list.contains(value))),
        ("without", [list, others]) => without(list, others),
        ("steps", [list]) => {
            list.floats().map(|numbers| Value::numbers(numbers.windows(2).map(|pair| pair[1] - pair[0])))
        }
        ("range", [from, to, step]) => range(from, to, step),
        ("join", [list, between]) => list.list().map(|list| {
            let texts: Vec<String> = list.iter().map(|value| value.show(Format::default())).collect();
            Text(texts.join(&between.show(Format::default())))
        }),
        _ => return None,
    })
}

/// The larger one of each pair.
fn larger(left: &Value, right: &Value) -> Evaluated {
    pairwise(left, right, &|left, right| Ok(Number(left.number()?.max(right.number()?))))
}

/// Numbers as texts with these decimals.
fn fixed(value: &Value, decimals: &Value) -> Evaluated {
    let format = Format { decimals: Some(decimals.whole()? as usize), sign: false };
    pairwise(value, &Truth(true), &|value, _| Ok(Text(value.show(format))))
}

/// The elements of a list, or the value itself.
fn elements(value: &Value) -> Vec<Value> {
    match value {
        List(list) => list.clone(),
        value => vec![value.clone()],
    }
}

fn flat(value: &Value) -> Result<Vec<f64>, Fault> {
    elements(value).iter().map(Value::number).collect()
}

fn extreme(numbers: Vec<f64>, choose: fn(f64, f64) -> f64) -> Evaluated {
    let empty = || Fault::Wrong("an empty list has no minimum and no maximum".into());
    numbers.into_iter().reduce(choose).map(Number).ok_or_else(empty)
}

fn median(mut numbers: Vec<f64>) -> Evaluated {
    numbers.sort_unstable_by(f64::total_cmp);
    let empty = || Fault::Wrong("an empty list has no median".into());
    numbers.get(numbers.len() / 2).copied().map(Number).ok_or_else(empty)
}

fn truths(list: &Value) -> Result<Vec<bool>, Fault> {
    list.list()?.iter().map(Value::truth).collect()
}

fn slice(list: &Value, from: &Value, to: &Value) -> Evaluated {
    let (items, from, to) = (list.list()?, from.whole()? as usize, to.whole()? as usize);
    let missing = || Fault::Wrong(format!("a list of {} has no elements {from} to {to}", items.len()));
    items.get(from..to).map(|part| List(part.to_vec())).ok_or_else(missing)
}

fn keep(list: &Value, mask: &Value) -> Evaluated {
    let (items, mask) = (list.list()?, truths(mask)?);
    if items.len() != mask.len() {
        return wrong(format!("lists of {} and {} do not go together", items.len(), mask.len()));
    }
    Ok(List(items.iter().zip(mask).filter(|(_, keep)| *keep).map(|(item, _)| item.clone()).collect()))
}

/// The run of a sweep with this key, or the runs with these keys.
fn at(runs: &Value, key: &Value) -> Evaluated {
    if let List(keys) = key {
        return of_each(keys, |key| at(runs, key));
    }
    let is_wanted = |run: &&Value| matches!(run, Record(fields) if fields.get("key") == Some(key));
    let missing = || Fault::Wrong(format!("no run at {}", key.show(Format::default())));
    runs.list()?.iter().find(is_wanted).cloned().ok_or_else(missing)
}

fn without(list: &Value, others: &Value) -> Evaluated {
    let others = others.list()?;
    Ok(List(list.list()?.iter().filter(|item| !others.contains(item)).cloned().collect()))
}

/// From the first number to the second in these steps; both ends are included.
fn range(from: &Value, to: &Value, step: &Value) -> Evaluated {
    let (from, to, step) = (from.number()?, to.number()?, step.number()?);
    if step <= 0.0 || (to - from) / step > 1e6 {
        return wrong("a range has at most a million steps, each above 0");
    }
    let count = if to < from { 0 } else { ((to - from) / step + 1e-9) as u64 + 1 };
    Ok(Value::numbers((0..count).map(|index| from + step * index as f64)))
}
