//! The account of a fetch, for people.

use ahead::Account;
use ahead_report::number::{count, size, time};
use ahead_report::text::one_line;

/// In several lines: `ahead replay`.
pub fn lines(account: &Account, waited: bool) -> String {
    let mut lines = Vec::new();
    let fetched = account.issued_bytes - account.bridged_bytes;
    lines.push(format!(
        "fetched           {:>10}  in {}",
        size(fetched),
        count(account.requests, "request", "requests")
    ));
    let rows = [
        ("  metadata", account.metadata_bytes),
        ("  unreadable", account.unreadable_bytes),
        ("bridged", account.bridged_bytes),
        ("already there", account.already_resident_bytes),
        ("changed since", account.stale_bytes),
        ("failed", account.failed_bytes),
    ];
    for (what, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
        lines.push(format!("{what:<17} {:>10}", size(bytes)));
    }
    for (reason, skipped) in &account.skipped {
        lines.push(format!("{:<17} {:>10}  skipped", reason.name(), size(skipped.bytes)));
    }
    if account.lookups > 0 {
        lines.push(format!("looked up         {:>10}  paths", account.lookups));
    }
    if let Some(failure) = &account.first_failure {
        lines.push(format!("first failure: {failure}"));
    }
    lines.push(match account.arrived_us {
        Some(arrived_us) => format!("arrived after {}", time(arrived_us)),
        None if waited => format!("submitted after {}; not all has arrived", time(account.submitted_us)),
        None => format!("submitted after {}", time(account.submitted_us)),
    });
    lines.join("\n") + "\n"
}

/// In one line: `ahead run -v`.
pub fn line(account: &Account) -> String {
    let mut parts = vec![format!(
        "prefetched {} in {}",
        size(account.issued_bytes - account.bridged_bytes),
        count(account.requests, "request", "requests")
    )];
    let amounts = [
        ("of it metadata", account.metadata_bytes),
        ("bridged", account.bridged_bytes),
        ("already resident", account.already_resident_bytes),
        ("residency unknown", account.residency_unknown_bytes),
        ("stale", account.stale_bytes),
        ("failed", account.failed_bytes),
        ("skipped", account.skipped.values().fold(0, |sum, skipped| skipped.bytes.saturating_add(sum))),
    ];
    parts
        .extend(amounts.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!("{what} {}", size(*bytes))));
    if account.lookups > 0 {
        parts.push(count(account.lookups, "lookup", "lookups"));
    }
    if let Some(failure) = &account.first_failure {
        parts.push(format!("first failure: {}", one_line(failure)));
    }
    format!("{}; the program waited {}", parts.join(", "), time(account.head_start_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_only_what_there_is() {
        let account = Account { requests: 1, issued_bytes: 12 << 20, head_start_us: 900, ..Account::default() };
        assert_eq!(line(&account), "prefetched 12.0 MiB in 1 request; the program waited 900 µs");
        let account = Account { stale_bytes: 5 << 10, lookups: 3, ..account };
        assert_eq!(
            line(&account),
            "prefetched 12.0 MiB in 1 request, stale 5.0 KiB, 3 lookups; the program waited 900 µs"
        );
    }
}
