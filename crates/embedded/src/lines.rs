//! The account as text that a shell reads without other programs: one name and one value per line.
//!
//! ```text
//!     {
//!       "requests": 178,                  requests 178
//!       "first_failure": null,
//!       "skipped": {
//!         "missing": {             ──▶
//!           "bytes": 237568               skipped_missing_bytes 237568
//! ```
//!
//! It is made from the JSON, so that both have the same figures with the same names. Lists and what is null are left out.

/// The lines of a JSON object, with a newline behind each. `json`: as serde_json prints it in several lines.
pub fn of(json: &str) -> String {
    let (mut text, mut names, mut lists) = (String::new(), Vec::new(), 0);
    for line in json.split('\n') {
        let line = line.trim_start_matches(' ');
        let line = line.strip_suffix(',').unwrap_or(line);
        let (name, value) = line.split_once(':').unwrap_or(("", line));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match value {
            "{" => names.push(unquoted(name)),
            "}" => drop(names.pop()),
            "[" => lists += 1,
            "]" => lists -= 1,
            "null" | "{}" | "[]" => {}
            _ if lists > 0 => {}
            _ => {
                // The first object has no name.
                for outer in &names[1..] {
                    text.extend([outer, "_"]);
                }
                text.extend([unquoted(name), " ", unquoted(value), "\n"]);
            }
        }
    }
    text
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead::Account;
    use ahead::prefetch::Reason;

    fn lines(account: &Account) -> String {
        of(&serde_json::to_string_pretty(account).unwrap())
    }

    #[test]
    fn each_figure_has_a_line_and_what_is_unknown_has_none() {
        let mut account = Account::default();
        (account.requests, account.submitted_us) = (2, 70);
        assert_eq!(
            lines(&account),
            "requests 2\nissued_bytes 0\nmetadata_bytes 0\nbridged_bytes 0\nlarge_folio_bytes 0\nalready_resident_bytes 0\n\
             holes_bytes 0\nresidency_unknown_bytes 0\nlookups 0\nstale_files 0\nstale_bytes 0\nfailed_bytes 0\n\
             unreadable_bytes 0\nlooked_warm false\nhead_start_us 0\nsubmitted_us 70\n"
        );
    }

    #[test]
    fn names_of_skipped_bytes_have_their_reason() {
        let mut account = Account::default();
        account.skip(Reason::Missing, 5);
        account.skip(Reason::NotAnswering, 7);
        account.arrived_us = Some(80);
        let expected = "\nskipped_missing_spans 1\nskipped_missing_bytes 5\nskipped_not_answering_spans 1\n\
                        skipped_not_answering_bytes 7\nlooked_warm false\n";
        let lines = lines(&account);
        assert!(lines.contains(expected) && lines.ends_with("\narrived_us 80\n"), "{lines}");
    }

    #[test]
    fn lists_are_left_out_with_all_that_is_in_them() {
        assert_eq!(
            of("{\n  \"a\": [\n    {\n      \"b\": [\n        1\n      ],\n      \"c\": 2\n    }\n  ],\n  \"d\": 3\n}"),
            "d 3\n"
        );
    }

    #[test]
    fn failure_is_one_line_whatever_is_in_it() {
        for (failure, expected) in [
            ("open /x: no", "open /x: no"),
            ("a: \"b\",\nc\x1b[2J", "a: \\\"b\\\",\\nc\\u001b[2J"),
            ("{", "{"),
            ("\"", "\\\""),
            ("null,", "null,"),
        ] {
            let mut account = Account::default();
            account.fail(0, failure);
            let lines = lines(&account);
            assert!(lines.contains(&format!("\nfirst_failure {expected}\nlooked_warm ")), "{lines}");
        }
    }
}
