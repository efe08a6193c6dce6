//! The account of a prefetch, for people.

use ahead::Account;
use ahead::prefetch::{DescriptionSource, Following, Order, Reason, UsedDevice};
use ahead_report::number::{count, size, time};
use ahead_report::text::one_line;

/// In several lines: `ahead replay`.
pub fn lines(account: &Account, waited: bool) -> String {
    let mut lines = Vec::new();
    lines.push(format!(
        "prefetched        {:>10}  in {}",
        size(account.prefetched_bytes()),
        count(account.requests, "request", "requests")
    ));
    let rows = [
        ("  metadata", account.metadata_bytes),
        ("  unreadable", account.unreadable_bytes),
        ("bridged", account.bridged_bytes),
        ("already resident", account.already_resident_bytes),
        ("holes", account.holes_bytes),
        ("stale", account.stale_bytes),
        ("failed", account.failed_bytes),
    ];
    for (what, bytes) in rows.into_iter().filter(|(_, bytes)| *bytes > 0) {
        lines.push(format!("{what:<17} {:>10}", size(bytes)));
    }
    for (reason, skipped) in &account.skipped {
        // Files of a list whose size is unknown.
        let files =
            if skipped.bytes == 0 { format!(": {}", count(skipped.spans, "file", "files")) } else { String::new() };
        lines.push(format!("{:<17} {:>10}  skipped{files}", reason.name(), size(skipped.bytes)));
    }
    if account.lookups > 0 {
        lines.push(format!("lookups           {:>10}", account.lookups));
    }
    if let Some(failure) = &account.first_failure {
        lines.push(format!("first failure: {failure}"));
    }
    lines.extend(account.window.as_ref().map(|window| format!("window {}", self::window(window))));
    let described = account.devices.iter().filter(|device| device.description_file.is_some());
    lines.extend(described.map(|device| format!("device {}", self::device(device))));
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
        size(account.prefetched_bytes()),
        count(account.requests, "request", "requests")
    )];
    let amounts = [
        ("including metadata", account.metadata_bytes),
        ("bridged", account.bridged_bytes),
        ("already resident", account.already_resident_bytes),
        ("residency unknown", account.residency_unknown_bytes),
        ("holes", account.holes_bytes),
        ("stale", account.stale_bytes),
        ("failed", account.failed_bytes),
    ];
    parts
        .extend(amounts.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!("{what} {}", size(*bytes))));
    let skipped = account.skipped.iter().filter(|(_, skipped)| skipped.bytes > 0);
    parts.extend(skipped.map(|(reason, skipped)| format!("skipped {} ({})", size(skipped.bytes), why(*reason))));
    if account.lookups > 0 {
        parts.push(count(account.lookups, "lookup", "lookups"));
    }
    if let Some(failure) = &account.first_failure {
        parts.push(format!("first failure: {}", one_line(failure)));
    }
    parts.extend(account.window.as_ref().map(|window| format!("window {}", self::window(window))));
    let devices: Vec<String> = account.devices.iter().map(|used| format!("; device {}", device(used))).collect();
    format!("{}; the program waited {}{}", parts.join(", "), time(account.head_start_us), devices.concat())
}

/// Why bytes were not prefetched, for a line that has no other explanation.
fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Cancelled => "the program had ended",
        other => other.name(),
    }
}

/// What the window did.
fn window(window: &Following) -> String {
    let sizes = format!("{} to {}", size(window.smallest_bytes), size(window.largest_bytes));
    let seen = format!("{} of {} milestones", window.milestones_seen, window.milestones_expected);
    let amounts = [("evicted unread", window.evicted_unread_bytes), ("refetched", window.refetched_bytes)];
    let amounts =
        amounts.iter().filter(|(_, bytes)| *bytes > 0).map(|(what, bytes)| format!(", {what} {}", size(*bytes)));
    let sources: Vec<&str> = window.progress.iter().map(|source| source.name()).collect();
    format!("{sizes} followed {seen} by {}{}", sources.join(", then "), amounts.collect::<String>())
}

/// What a device was taken for, and where that comes from.
fn device(used: &UsedDevice) -> String {
    let number = used.device.as_deref().unwrap_or("unknown");
    let order = match used.order {
        Order::ByPosition => "by position",
        Order::ByFirstUse => "by first use",
    };
    let source = match (used.source, &used.description_file, &used.discarded) {
        (DescriptionSource::Given | DescriptionSource::Saved, Some(file), None) => {
            format!("description {}", one_line(file))
        }
        (source, Some(file), Some(why)) => {
            format!("description {} discarded: {}; {}", one_line(file), one_line(why), source.name())
        }
        (source, _, _) => source.name().to_owned(),
    };
    format!("{} read {order} ({source})", one_line(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead::prefetch::DeviceDescription;

    #[test]
    fn line_names_only_what_there_is() {
        let mut account = Account::default();
        (account.requests, account.issued_bytes, account.head_start_us) = (1, 12 << 20, 900);
        assert_eq!(line(&account), "prefetched 12.0 MiB in 1 request; the program waited 900 µs");
        (account.stale_bytes, account.lookups) = (5 << 10, 3);
        assert_eq!(
            line(&account),
            "prefetched 12.0 MiB in 1 request, stale 5.0 KiB, 3 lookups; the program waited 900 µs"
        );
    }

    /// Regression: "skipped 15.1 MiB" had no reason.
    #[test]
    fn line_names_the_reason_of_every_skipped_byte() {
        let mut account = Account::default();
        account.head_start_us = 900;
        account.skip(Reason::Missing, 734 << 10);
        account.skip(Reason::Cancelled, 12 << 20);
        account.skip(Reason::Deleted, 0);
        assert_eq!(
            line(&account),
            "prefetched 0 B in 0 requests, skipped 734.0 KiB (missing), skipped 12.0 MiB (the program had ended); the program \
             waited 900 µs"
        );
    }

    #[test]
    fn devices_are_named_with_the_description_that_was_used_or_discarded() {
        let mut used = UsedDevice::new(&DeviceDescription::FLASH, DescriptionSource::Saved);
        (used.device, used.description_file) = (Some("8:1".into()), Some("/x/d.toml".into()));
        assert_eq!(device(&used), "8:1 read by first use (description /x/d.toml)");
        used.discarded = Some("the first 7 reads took 9.00 times as long as it says (median)".into());
        used.source = DescriptionSource::Recording;
        assert_eq!(
            device(&used),
            "8:1 read by first use (description /x/d.toml discarded: the first 7 reads took 9.00 times as long as it says \
             (median); from the recording)"
        );
        let mut account = Account::default();
        account.devices.push(used);
        assert!(line(&account).contains("; device 8:1 read") && lines(&account, false).contains("\ndevice 8:1 read"));
    }
}
