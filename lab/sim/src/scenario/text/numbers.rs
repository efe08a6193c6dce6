//! Numbers of a scenario: an error names the accepted values.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole<const LEAST: u64, const MOST: u64>(pub(super) u64);

impl<const LEAST: u64, const MOST: u64> Default for Whole<LEAST, MOST> {
    fn default() -> Self {
        Whole(LEAST)
    }
}

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Whole<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor(LEAST, MOST)).map(Whole)
    }
}

struct WholeVisitor(u64, u64);

impl Visitor<'_> for WholeVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "a whole number from {} to {}", self.0, self.1)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let wrong = || E::custom(format!("{number} is not a whole number from {} to {}", self.0, self.1));
        u64::try_from(number).ok().filter(|number| (self.0..=self.1).contains(number)).ok_or_else(wrong)
    }
}

/// A number from 0 to `MOST`; 0 unless stated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount<const MOST: u64>(pub(super) f64);

impl<'de, const MOST: u64> Deserialize<'de> for Amount<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor(0.0, MOST as f64)).map(Amount)
    }
}

/// The time slice of a process, milliseconds. No processor switches more often than every microsecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slice(pub(super) f64);

impl<'de> Deserialize<'de> for Slice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor(0.001, 10_000.0)).map(Slice)
    }
}

/// A number in readable form: very large and very small ones with an exponent.
fn short(number: f64) -> String {
    let is_plain = number == 0.0 || !number.is_finite() || (1e-5..1e16).contains(&number.abs());
    if is_plain { number.to_string() } else { format!("{number:e}") }
}

struct AmountVisitor(f64, f64);

impl Visitor<'_> for AmountVisitor {
    type Value = f64;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "a number from {} to {}", self.0, self.1)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        let wrong = || E::custom(format!("{} is not a number from {} to {}", short(number), self.0, self.1));
        (self.0..=self.1).contains(&number).then_some(number).ok_or_else(wrong)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        self.visit_f64(number as f64)
    }
}
