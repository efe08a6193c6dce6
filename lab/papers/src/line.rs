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
    /// Adds the result with the real page cache, if there is one, and its bound.
    pub fn live(&mut self, seen: Option<Measure>, bound: Bound) -> &mut Line {
        self.live = seen.map(|seen| seen.to_string());
        self.live_verdict = seen.map(|seen| Verdict::of(bound.holds(seen.value)));
        self
    }

    /// The same for a result that is more than a number; `holds`: whether the result agrees with the source.
    pub fn live_shape(&mut self, seen: Option<(String, bool)>) -> &mut Line {
        (self.live, self.live_verdict) = seen.map(|(live, holds)| (live, Verdict::of(holds))).unzip();
        self
    }

    /// The live result with its verdict.
    pub fn live_text(&self) -> Option<String> {
        let verdict = self.live_verdict.map_or(String::new(), |verdict| format!(" ({verdict})"));
        self.live.as_ref().map(|live| live.clone() + &verdict)
    }
}

impl Verdict {
    fn of(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Differs }
    }
}

/// A number with its unit, as printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The number.
    pub value: f64,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// Printed decimals.
    pub decimals: usize,
}

impl Measure {
    /// A number.
    pub fn new(value: f64, unit: &'static str, decimals: usize) -> Measure {
        Measure { value, unit, decimals }
    }

    /// A count.
    pub fn count(value: u64) -> Measure {
        Measure::new(value as f64, "", 0)
    }

    /// A share (0.67) in percent.
    pub fn percent(share: f64) -> Measure {
        Measure::new(100.0 * share, "%", 1)
    }

    /// A time in seconds, from nanoseconds.
    pub fn seconds(time_ns: u64) -> Measure {
        Measure::new(time_ns as f64 / 1e9, "s", 2)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", self.decimals, self.value)?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// The accepted values of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The first number, with the second as the tolerance relative to the first.
    Within(f64, f64),
    /// At least this number.
    AtLeast(f64),
    /// At most this number.
    AtMost(f64),
    /// From the first number to the second.
    Between(f64, f64),
}

impl Bound {
    /// Whether a number is within the bound; a NaN is not.
    pub fn holds(&self, value: f64) -> bool {
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

/// The lines of a source.
#[derive(Clone, Debug)]
pub struct Lines {
    paper: &'static str,
    list: Vec<Line>,
}

impl Lines {
    /// A list without lines.
    pub fn new(paper: &'static str) -> Lines {
        Lines { paper, list: Vec::new() }
    }

    /// Adds a number that the source states; `why` gives the reason of the tolerance.
    pub fn number(&mut self, claim: &str, quoted: &str, ours: Measure, bound: Bound, why: &str) -> &mut Line {
        self.add(claim, quoted, ours.to_string(), format!("{bound}: {why}"), Verdict::of(bound.holds(ours.value)))
    }

    /// Adds a statement without a number, or with several; `holds`: whether the result agrees with the statement.
    pub fn shape(&mut self, claim: &str, quoted: &str, ours: String, holds: bool, tolerance: &str) -> &mut Line {
        self.add(claim, quoted, ours, tolerance.to_owned(), Verdict::of(holds))
    }

    /// Adds a question that the source leaves open, with the source's text and our answer. `holds`: whether the
    /// observations behind the answer were made.
    pub fn answer(&mut self, question: &str, quoted: &str, ours: String, holds: bool, how: &str) -> &mut Line {
        let verdict = if holds { Verdict::Answered } else { Verdict::Differs };
        self.add(question, quoted, ours, how.to_owned(), verdict)
    }

    /// Adds a statement that this project cannot show, and the reason.
    pub fn not_shown(&mut self, claim: &str, quoted: &str, why: &str) -> &mut Line {
        self.add(claim, quoted, String::new(), why.to_owned(), Verdict::NotShown)
    }

    /// Adds a number that is an input, so that its result shows nothing; `from` names the derived value.
    pub fn input(&mut self, claim: &str, quoted: &str, ours: Measure, from: &str) -> &mut Line {
        self.add(claim, quoted, ours.to_string(), format!("input: {from}"), Verdict::NotShown)
    }

    fn add(&mut self, claim: &str, quoted: &str, ours: String, tolerance: String, verdict: Verdict) -> &mut Line {
        let (claim, quoted) = (claim.to_owned(), quoted.to_owned());
        let line = Line { paper: self.paper, claim, quoted, ours, live: None, tolerance, verdict, live_verdict: None };
        self.list.push(line);
        let last = self.list.len() - 1;
        &mut self.list[last]
    }

    /// All lines.
    pub fn finish(self) -> Vec<Line> {
        self.list
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

    #[test]
    fn line_has_the_verdict_of_its_value() {
        let mut lines = Lines::new("wu");
        lines.number("a", "3.2 MB/s", Measure::new(3.31, "MB/s", 1), Bound::Within(3.2, 0.05), "because");
        lines.number("b", "7000", Measure::count(6999), Bound::AtLeast(7000.0), "because");
        lines.answer("c", "no explanation", "so".into(), true, "shown");
        lines.not_shown("d", "10 W", "no power here").live = Some("9 W".into());
        lines.input("e", "4 MB/s", Measure::new(4.0, "MB/s", 0), "the disk");
        let lines = lines.finish();
        assert_eq!((&lines[4].ours[..], &lines[4].tolerance[..]), ("4 MB/s", "input: the disk"));
        let verdicts: Vec<Verdict> = lines.iter().map(|line| line.verdict).collect();
        let not_shown = Verdict::NotShown;
        assert_eq!(verdicts, [Verdict::Holds, Verdict::Differs, Verdict::Answered, not_shown, not_shown]);
        assert_eq!((&lines[0].ours[..], &lines[0].tolerance[..]), ("3.3 MB/s", "within 5 %: because"));
        assert_eq!(lines[1].ours, "6999");
        assert_eq!(lines[3].live.as_deref(), Some("9 W"));
        assert_eq!(serde_json::to_value(Verdict::NotShown).unwrap(), "not-shown");
    }
}
