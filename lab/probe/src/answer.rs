//! An answer: a value with its unit, how sure it is and how it was found, or why there is none.

use crate::statistics::{median, quantile};
use serde::Serialize;

/// Method of an answer that the caller did not ask for.
pub(crate) const NOT_ASKED: &str = "not asked for";

/// A number that was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Counted: exact, or wrong.
    Whole(u64),
    /// Measured.
    Real(f64),
}

impl Value {
    /// As a number.
    pub fn number(self) -> f64 {
        match self {
            Value::Whole(whole) => whole as f64,
            Value::Real(real) => real,
        }
    }
}

/// What was found, or why nothing was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The value; none: not determined.
    pub value: Option<Value>,
    /// `bytes`, `us`, `bytes_per_s`, `requests`, `blocks`.
    pub unit: &'static str,
    /// How sure it is, 0 to 1. Of what is counted: the rule of succession over the observations that agree and those that
    /// don't ([`agreement`]). Of what is measured: that of the interval [`Answer::range`].
    pub confidence: Option<f64>,
    /// How it was found, or why it was not.
    pub method: String,
    /// Between these the value lies with that confidence, for what is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

impl Answer {
    /// Not determined, and why.
    pub fn none(unit: &'static str, why: impl Into<String>) -> Answer {
        Answer { value: None, unit, confidence: None, method: why.into(), range: None }
    }

    /// Whether it was asked for at all.
    pub fn is_asked(&self) -> bool {
        self.value.is_some() || self.method != NOT_ASKED
    }

    /// A counted value, seen in `agree` of `all` observations.
    pub fn counted(value: u64, unit: &'static str, (agree, all): (u64, u64), method: impl Into<String>) -> Answer {
        let confidence = Some(agreement(agree, all));
        Answer { value: Some(Value::Whole(value)), unit, confidence, method: method.into(), range: None }
    }

    /// Something measured: the middle of the observations and the interval in which it lies with 95 %.
    pub fn measured(value: f64, unit: &'static str, range: [f64; 2], method: impl Into<String>) -> Answer {
        let value = Some(Value::Real(value));
        Answer { value, unit, confidence: Some(0.95), method: method.into(), range: Some(range) }
    }

    /// The middle of some measurements, and the least and the most of them: the true median lies between these unless all fell on
    /// one side of it, which happens once in 2^(n-1).
    pub fn middle_of(values: &[f64], unit: &'static str, method: impl Into<String>) -> Answer {
        let range = [quantile(values, 0.0), quantile(values, 1.0)];
        let confidence = Some(1.0 - 0.5_f64.powi(values.len() as i32 - 1));
        Answer { confidence, ..Answer::measured(median(values), unit, range, method) }
    }

    /// The value as a whole number, if it was counted.
    pub fn whole(&self) -> Option<u64> {
        match self.value {
            Some(Value::Whole(whole)) => Some(whole),
            _ => None,
        }
    }
}

/// How sure a list is and how it was found, or why it is empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct How {
    /// As of an [`Answer`]; none: not determined.
    pub confidence: Option<f64>,
    /// How it was found, or why it was not.
    pub method: String,
}

impl How {
    /// Not determined, and why.
    pub fn none(why: impl Into<String>) -> How {
        How { confidence: None, method: why.into() }
    }
}

/// Probability that the next observation agrees, too, when `agree` of `all` agreed: (agree + 1) / (all + 2), Laplace's rule of
/// succession. Three of three give 0.8, twelve of twelve 0.93; the result is never 1.
pub fn agreement(agree: u64, all: u64) -> f64 {
    (agree + 1) as f64 / (all + 2) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_that_agree_are_surer_and_none_is_certain() {
        assert_eq!(agreement(3, 3), 0.8);
        assert!(agreement(12, 12) > agreement(3, 3) && agreement(12, 12) < 1.0);
        assert!(agreement(2, 3) < agreement(3, 3));
    }
}
