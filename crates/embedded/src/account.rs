//! The account as text that a shell reads without other programs: one name and one value per line.
//!
//! ```text
//!     requests 178
//!     issued_bytes 10171187
//!     skipped_missing_bytes 237568
//! ```
//!
//! Names and units are those of the JSON of `ahead replay`. Figures that are 0 are left out, except the first ones.

use ahead::Account;
use std::fmt::Write;

/// The account of a replay.
pub fn lines(account: &Account) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "{name} {value}").expect("a string takes every character");
    };
    line("requests", &account.requests);
    line("issued_bytes", &account.issued_bytes);
    line("already_resident_bytes", &account.already_resident_bytes);
    let others = [
        ("metadata_bytes", account.metadata_bytes),
        ("bridged_bytes", account.bridged_bytes),
        ("residency_unknown_bytes", account.residency_unknown_bytes),
        ("lookups", account.lookups),
        ("stale_files", account.stale_files),
        ("stale_bytes", account.stale_bytes),
        ("failed_bytes", account.failed_bytes),
        ("unreadable_bytes", account.unreadable_bytes),
    ];
    others.iter().filter(|(_, value)| *value > 0).for_each(|(name, value)| line(name, value));
    for (reason, skipped) in &account.skipped {
        line(&format!("skipped_{}_bytes", reason.key()), &skipped.bytes);
    }
    line("submitted_us", &account.submitted_us);
    if let Some(arrived_us) = account.arrived_us {
        line("arrived_us", &arrived_us);
    }
    if let Some(failure) = &account.first_failure {
        line("first_failure", &failure.escape_debug());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead::prefetch::{Reason, Skipped};

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
