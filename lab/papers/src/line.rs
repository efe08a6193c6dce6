//! Statements of a source beside ours, and what may lie between them.

use serde::Serialize;
use std::fmt;

/// What a line comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Ours is within the tolerance.
    Holds,
    /// It is not.
    Differs,
    /// Neither simulation nor real run can show it; or the figure was an input.
    NotShown,
    /// No figure was quoted: an answer to a question that the source left open.
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

/// One statement of a source beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the source, as given to `ahead papers`.
    pub paper: &'static str,
    /// What is claimed, and where: section, figure or table.
    pub claim: String,
    /// What the source says, with its unit.
    pub quoted: String,
    /// What comes out in the simulator.
    pub ours: String,
    /// What came out against the real page cache; `None`: not asked for, or it makes no sense there.
    pub live: Option<String>,
    /// How far apart they may be, and why.
    pub tolerance: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// What `live` comes to, within the same tolerance; `None`: there is none, or what it is to be compared with is no
    /// number.
    pub live_verdict: Option<Verdict>,
}

impl Line {
    /// What came out against the real page cache, if it was asked, and what it may be.
    pub fn live(&mut self, seen: Option<Measure>, bound: Bound) -> &mut Line {
        self.live = seen.map(|seen| seen.to_string());
        self.live_verdict = seen.map(|seen| Verdict::of(bound.holds(seen.value)));
        self
    }

    /// The same for what is more than a number; `holds` is what was found.
    pub fn live_shape(&mut self, seen: Option<(String, bool)>) -> &mut Line {
        (self.live, self.live_verdict) = seen.map(|(live, holds)| (live, Verdict::of(holds))).unzip();
        self
    }

    /// What came out live, with what it comes to.
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

/// A number with its unit, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// The number.
    pub value: f64,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// Decimals that are shown.
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

    /// A share (0.67) as percent.
    pub fn percent(share: f64) -> Measure {
        Measure::new(100.0 * share, "%", 1)
    }

    /// Seconds, of nanoseconds.
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

/// What a number may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// As far from the first number as the second says, as a share of the first.
    Within(f64, f64),
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
    /// From the first number to the second.
    Between(f64, f64),
}

impl Bound {
    /// Whether a number keeps to it; a NaN does not.
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
    /// None yet.
    pub fn new(paper: &'static str) -> Lines {
        Lines { paper, list: Vec::new() }
    }

    /// A number that the source states; `why` says where the tolerance comes from.
    pub fn number(&mut self, claim: &str, quoted: &str, ours: Measure, bound: Bound, why: &str) -> &mut Line {
        self.add(claim, quoted, ours.to_string(), format!("{bound}: {why}"), Verdict::of(bound.holds(ours.value)))
    }

    /// Something that it says without a number, or with several; `holds` is what was found.
    pub fn shape(&mut self, claim: &str, quoted: &str, ours: String, holds: bool, tolerance: &str) -> &mut Line {
        self.add(claim, quoted, ours, tolerance.to_owned(), Verdict::of(holds))
    }

    /// A question that it left open, what it says about it, and what comes out here; `holds`: what the answer rests on
    /// was found.
    pub fn answer(&mut self, question: &str, quoted: &str, ours: String, holds: bool, how: &str) -> &mut Line {
        let verdict = if holds { Verdict::Answered } else { Verdict::Differs };
        self.add(question, quoted, ours, how.to_owned(), verdict)
    }

    /// Something that cannot be shown here, and why.
    pub fn not_shown(&mut self, claim: &str, quoted: &str, why: &str) -> &mut Line {
        self.add(claim, quoted, String::new(), why.to_owned(), Verdict::NotShown)
    }

    /// A number that is an input, so that its result shows nothing; `from` names what is derived from it.
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

    /// All of them.
    pub fn finish(self) -> Vec<Line> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_their_ends_and_not_beyond() {
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
    fn a_line_says_what_it_came_to() {
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
