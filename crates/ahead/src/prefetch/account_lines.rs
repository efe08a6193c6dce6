//! The account of `ahead-replay` as text that a shell reads without other programs: one name and one value per line.
//!
//! ```text
//!     requests 178
//!     issued_bytes 10171187
//!     skipped_missing_bytes 237568
//! ```
//!
//! Names and units are those of the JSON of `ahead replay`. Figures that are 0 are left out, except the first ones. `ahead boot` reads the
//! account of a replay that began before PID 1.

use super::account::{Account, Reason};
use std::fmt::Write;

/// The name of the figure that a replay has only at its end.
const END: &str = "submitted_us";

/// Figures that are written even if they are 0.
const ALWAYS: [&str; 3] = ["requests", "issued_bytes", "already_resident_bytes"];

/// The figures that have a line, in order; those after them are skipped bytes, the end, the arrival and the failure.
fn figures(account: &mut Account) -> [(&'static str, &mut u64); 13] {
    [
        ("requests", &mut account.requests),
        ("issued_bytes", &mut account.issued_bytes),
        ("already_resident_bytes", &mut account.already_resident_bytes),
        ("metadata_bytes", &mut account.metadata_bytes),
        ("bridged_bytes", &mut account.bridged_bytes),
        ("large_folio_bytes", &mut account.large_folio_bytes),
        ("holes_bytes", &mut account.holes_bytes),
        ("residency_unknown_bytes", &mut account.residency_unknown_bytes),
        ("lookups", &mut account.lookups),
        ("stale_files", &mut account.stale_files),
        ("stale_bytes", &mut account.stale_bytes),
        ("failed_bytes", &mut account.failed_bytes),
        ("unreadable_bytes", &mut account.unreadable_bytes),
    ]
}

/// The account of a replay as text.
pub fn lines(account: &Account) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name} {value}").expect("a string takes every character");
    };
    for (name, value) in figures(&mut account.clone()) {
        if *value > 0 || ALWAYS.contains(&name) {
            line(name, value);
        }
    }
    for (reason, skipped) in &account.skipped {
        line(&format!("skipped_{}_bytes", reason.key()), &skipped.bytes);
    }
    line(END, &account.submitted_us);
    if let Some(arrived_us) = account.arrived_us {
        line("arrived_us", &arrived_us);
    }
    if let Some(failure) = &account.first_failure {
        line("first_failure", &failure.escape_debug());
    }
    text
}

/// The account in such a text, without what it does not have (devices, numbers of spans). Unknown lines are ignored. `None`: the replay has
/// not ended.
pub fn from_lines(text: &str) -> Option<Account> {
    let mut account = Account::default();
    let mut has_ended = false;
    for (name, text) in text.lines().filter_map(|line| line.split_once(' ')) {
        if name == "first_failure" {
            account.first_failure = Some(text.to_owned());
            continue;
        }
        let Ok(value) = text.parse::<u64>() else { continue };
        if let Some((_, figure)) = figures(&mut account).into_iter().find(|(own, _)| *own == name) {
            *figure = value;
        } else if name == END {
            (account.submitted_us, has_ended) = (value, true);
        } else if name == "arrived_us" {
            account.arrived_us = Some(value);
        } else if let Some(reason) = skipped(name) {
            account.skipped.entry(reason).or_default().bytes = value;
        }
    }
    has_ended.then_some(account)
}

/// The reason in `skipped_REASON_bytes`.
fn skipped(name: &str) -> Option<Reason> {
    let key = name.strip_prefix("skipped_")?.strip_suffix("_bytes")?;
    serde_json::from_value(key.into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefetch::Skipped;

    #[test]
    fn text_is_read_back() {
        let account = Account {
            requests: 1,
            issued_bytes: 2,
            already_resident_bytes: 3,
            metadata_bytes: 4,
            bridged_bytes: 5,
            large_folio_bytes: 15,
            holes_bytes: 16,
            residency_unknown_bytes: 6,
            lookups: 7,
            stale_files: 8,
            stale_bytes: 9,
            failed_bytes: 10,
            unreadable_bytes: 11,
            submitted_us: 12,
            arrived_us: Some(13),
            first_failure: Some("open /x: no".into()),
            skipped: [(Reason::NotAnswering, Skipped { spans: 0, bytes: 14 })].into(),
            ..Account::default()
        };
        assert_eq!(from_lines(&lines(&account)), Some(account));
    }

    #[test]
    fn text_of_a_replay_that_has_not_ended_is_no_account() {
        for text in
            ["", "requests 5\n", "ahead-replay: /x: no such file\n", "submitted_us -1\n", "\0\n \nsubmitted_us\n"]
        {
            assert_eq!(from_lines(text), None, "{text}");
        }
        let text = "requests 18446744073709551616\nskipped_x_bytes 5\nnew 7\nsubmitted_us 3\n";
        assert_eq!(from_lines(text), Some(Account { submitted_us: 3, ..Account::default() }));
    }

    #[test]
    fn each_figure_has_a_line_and_zeros_have_none() {
        let account = Account { requests: 2, issued_bytes: 8192, submitted_us: 70, ..Account::default() };
        assert_eq!(lines(&account), "requests 2\nissued_bytes 8192\nalready_resident_bytes 0\nsubmitted_us 70\n");
        let skipped = [Reason::Missing, Reason::NotAnswering].map(|reason| (reason, Skipped { spans: 1, bytes: 5 }));
        let account = Account {
            lookups: 3,
            skipped: skipped.into(),
            arrived_us: Some(80),
            first_failure: Some("open:\nno".into()),
            ..account
        };
        assert_eq!(
            lines(&account),
            "requests 2\nissued_bytes 8192\nalready_resident_bytes 0\nlookups 3\nskipped_missing_bytes 5\n\
             skipped_not_answering_bytes 5\nsubmitted_us 70\narrived_us 80\nfirst_failure open:\\nno\n"
        );
    }
}
