//! Runs a source and compares the verdicts of its lines with the expected ones.

use ahead_papers::{Measured, Outcome, Verdict, named};
use std::collections::BTreeSet;

/// Checks that every line of the source holds or is answered, except `others`. Each exception is identified by a part
/// of its claim and its verdict. Real runs do not change them. Returns the outcome.
pub fn check(name: &str, measured: &Measured, lines: usize, others: &[(&str, &str)]) -> Outcome {
    let outcome = named(name).unwrap().run(measured).unwrap();
    assert_eq!(outcome.lines.len(), lines);
    assert!(!outcome.inputs.is_empty() && !outcome.figures.is_empty());
    let claims: BTreeSet<&str> = outcome.lines.iter().map(|line| line.claim.as_str()).collect();
    assert_eq!(claims.len(), lines, "each claim once");
    let mut found = Vec::new();
    for line in &outcome.lines {
        assert!(line.paper == name && !line.quoted.is_empty() && !line.tolerance.is_empty(), "{line:?}");
        if !matches!(line.verdict, Verdict::Holds | Verdict::Answered) {
            found.push((line.claim.as_str(), serde_json::to_value(line.verdict).unwrap()));
        }
    }
    let is = |(claim, verdict): &(&str, serde_json::Value), (part, word): &(&str, &str)| {
        claim.contains(part) && verdict == word
    };
    let fits = found.len() == others.len() && found.iter().zip(others).all(|(found, other)| is(found, other));
    assert!(fits, "{found:#?}\nare not the ones that are expected: {others:#?}");
    outcome
}
