//! An answer: a value with its unit, confidence and method, or the reason why there is no value.

use crate::probe::statistics::{median, quantile};
use serde::Serialize;

/// Method of an answer that was not requested.
pub(crate) const NOT_ASKED: &str = "not asked for";

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Counted: the value is exact or wrong.
    Whole(u64),
    /// Measured.
    Real(f64),
}

impl Value {
    /// The value as a floating point number.
    pub fn number(self) -> f64 {
        match self {
            Value::Whole(whole) => whole as f64,
            Value::Real(real) => real,
        }
    }
}

/// A result of the probe, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The value; `None`: not determined.
    pub value: Option<Value>,
    /// `bytes`, `us`, `bytes_per_s`, `requests`, `blocks`.
    pub unit: &'static str,
    /// The confidence, 0 to 1. For a counted value: the rule of succession over the agreeing and differing observations ([`agreement`]).
    /// For a measured value: that of the interval [`Answer::range`].
    pub confidence: Option<f64>,
    /// The method, or the reason why there is no value.
    pub method: String,
    /// The interval of a measured value: the true value is inside with that confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

impl Answer {
    /// An answer without a value, with the reason.
    pub fn none(unit: &'static str, why: impl Into<String>) -> Answer {
        Answer { value: None, unit, confidence: None, method: why.into(), range: None }
    }

    /// Whether it was requested.
    pub fn is_asked(&self) -> bool {
        self.value.is_some() || self.method != NOT_ASKED
    }

    /// A counted value, seen in `agree` of `all` observations.
    pub fn counted(value: u64, unit: &'static str, (agree, all): (u64, u64), method: impl Into<String>) -> Answer {
        let confidence = Some(agreement(agree, all));
        Answer { value: Some(Value::Whole(value)), unit, confidence, method: method.into(), range: None }
    }

    /// A measured value: the middle of the observations, and its interval of 95 %.
    pub fn measured(value: f64, unit: &'static str, range: [f64; 2], method: impl Into<String>) -> Answer {
        let value = Some(Value::Real(value));
        Answer { value, unit, confidence: Some(0.95), method: method.into(), range: Some(range) }
    }

    /// The median of some measurements, with their minimum and maximum. With probability 2^(1-n) all measurements are on one side of the
    /// true median; otherwise the true median is between minimum and maximum.
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

/// Confidence and method of a list, or the reason why it is empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct How {
    /// The confidence, as in an [`Answer`]; `None`: not determined.
    pub confidence: Option<f64>,
    /// The method, or the reason why there is no value.
    pub method: String,
}

impl How {
    /// An answer without a value, with the reason.
    pub fn none(why: impl Into<String>) -> How {
        How { confidence: None, method: why.into() }
    }
}

/// Probability that the next observation agrees, when `agree` of `all` agreed: (agree + 1) / (all + 2), Laplace's rule of succession.
/// Three of three give 0.8, twelve of twelve 0.93; the result is never 1.
pub fn agreement(agree: u64, all: u64) -> f64 {
    (agree + 1) as f64 / (all + 2) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_grows_with_observations_and_is_below_1() {
        assert_eq!(agreement(3, 3), 0.8);
        assert!(agreement(12, 12) > agreement(3, 3) && agreement(12, 12) < 1.0);
        assert!(agreement(2, 3) < agreement(3, 3));
    }
}
