//! Statements of a source beside our results, with their tolerances.

use serde::Serialize;
use std::fmt;

/// The verdict on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Our value is within the tolerance.
    Holds,
    /// Our value is outside the tolerance.
    Differs,
    /// Neither simulation nor real run can show the statement, or the figure was an input.
    NotShown,
    /// The source gives no figure: an answer to a question that it leaves open.
    Answered,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs",
            Verdict::NotShown => "not shown",
            Verdict::Answered => "answered",
        })
    }
}

/// One statement of a source beside our result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the source, as given to `ahead papers`.
    pub paper: &'static str,
    /// The claim, and its place: section, figure or table.
    pub claim: String,
    /// The value in the source, with its unit.
    pub quoted: String,
    /// The result of the simulator.
    pub ours: String,
    /// The result with the real page cache or of real boots; `None`: not requested, or not meaningful there.
    pub live: Option<String>,
    /// The tolerance, and its reason.
    pub tolerance: String,
    /// The verdict on `ours`.
    pub verdict: Verdict,
    /// The verdict on `live`, within the same tolerance. `None`: there is no `live`, or the comparison is not with a
    /// number.
    pub live_verdict: Option<Verdict>,
}

impl Line {
    /// The live result with its verdict.
    pub fn live_text(&self) -> Option<String> {
        let verdict = self.live_verdict.map_or(String::new(), |verdict| format!(" ({verdict})"));
        self.live.as_ref().map(|live| live.clone() + &verdict)
    }
}

impl Verdict {
    pub(crate) fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Differs }
    }
}

/// The accepted values of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    /// The first number, with the second as the tolerance relative to the first.
    Within(f64, f64),
    AtLeast(f64),
    AtMost(f64),
    /// From the first number to the second.
    Between(f64, f64),
}

impl Bound {
    /// Whether a number is within the bound; a NaN is not.
    pub(crate) fn holds(&self, value: f64) -> bool {
        match *self {
            Bound::Within(of, share) => (value - of).abs() <= (of * share).abs() + f64::EPSILON * of.abs(),
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
            Bound::Between(least, most) => (least..=most).contains(&value),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bound::Within(_, 0.0) => f.write_str("exact"),
            Bound::Within(_, share) => write!(f, "within {} %", (share * 1e4).round() / 1e2),
            Bound::AtLeast(least) => write!(f, "at least {least}"),
            Bound::AtMost(most) => write!(f, "at most {most}"),
            Bound::Between(least, most) => write!(f, "from {least} to {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_include_their_ends_only() {
        for (bound, inside, outside) in [
            (Bound::Within(3.2, 0.1), [3.52, 2.88], [3.53, 2.87]),
            (Bound::Within(-2.0, 0.5), [-1.0, -3.0], [-0.9, f64::NAN]),
            (Bound::Within(7.0, 0.0), [7.0, 7.0], [7.01, 6.99]),
            (Bound::AtLeast(11.0), [11.0, 1e9], [10.99, f64::NAN]),
            (Bound::AtMost(0.5), [0.5, -1.0], [0.51, f64::NAN]),
            (Bound::Between(64.0, 128.0), [64.0, 128.0], [63.0, 129.0]),
        ] {
            assert!(inside.iter().all(|value| bound.holds(*value)), "{bound:?}");
            assert!(outside.iter().all(|value| !bound.holds(*value)), "{bound:?}");
        }
        assert_eq!(Bound::Within(1.0, 0.125).to_string(), "within 12.5 %");
        assert_eq!(Bound::Within(1.0, 0.0).to_string(), "exact");
    }
}
