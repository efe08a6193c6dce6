//! The report on papers: text, and pages with figures.

mod pages;

pub use pages::{INDEX, pages};

use crate::{Line, Outcome, Paper, Verdict};
use ahead_report::table::Screen;
use std::fmt::Write;

/// A paper and its outcome.
#[derive(Clone, Debug)]
pub struct PaperResult {
    pub paper: &'static Paper,
    pub outcome: Outcome,
}

/// The number of lines by verdict: `40 hold, 2 differ, 3 answered, 1 not shown`.
fn counts(lines: &[Line]) -> String {
    let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
    let [holds, differs] = [Verdict::Holds, Verdict::Differs].map(count);
    let [answered, not_shown] = [Verdict::Answered, Verdict::NotShown].map(count);
    format!("{holds} hold, {differs} differ, {answered} answered, {not_shown} not shown")
}

/// All lines as JSON.
///
/// Errors: none for these types.
pub fn json(results: &[PaperResult]) -> serde_json::Result<String> {
    let lines: Vec<&Line> = results.iter().flat_map(|result| &result.outcome.lines).collect();
    Ok(serde_json::to_string_pretty(&lines)? + "\n")
}

pub fn text(results: &[PaperResult], screen: Screen) -> String {
    let mut text = String::new();
    for PaperResult { paper, outcome } in results {
        let title = format!("{}, \"{}\", {}", paper.authors, paper.title, paper.year);
        let _ = writeln!(text, "{}\n{}\n", screen.heading(&title), counts(&outcome.lines));
        for line in &outcome.lines {
            push_line(&mut text, line, screen);
        }
        let _ = writeln!(text, "\ninputs");
        for input in &outcome.inputs {
            let source = screen.faint(&format!("({})", input.source));
            let _ = writeln!(text, "           {}: {} {source}", input.what, input.value);
        }
        text.push('\n');
    }
    text
}

fn push_line(text: &mut String, line: &Line, screen: Screen) {
    let verdict = format!("{:10}", line.verdict.to_string());
    let verdict = if line.verdict == Verdict::Differs { screen.warning(&verdict) } else { verdict };
    let live = line.live_text().map_or(String::new(), |live| format!("  live: {live}"));
    let ours = if line.ours.is_empty() { "–" } else { &line.ours };
    let _ = writeln!(text, "{verdict} {}", line.claim);
    let _ = writeln!(text, "           quoted: {}  ours: {ours}{live}", line.quoted);
    let _ = writeln!(text, "           {}", screen.faint(&line.tolerance));
}
