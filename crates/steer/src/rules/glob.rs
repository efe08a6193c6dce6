//! Patterns of commands and paths: `*`, `**`, `?`, `[a-z]`.

/// Longest pattern, bytes: the time of a match grows with pattern times text, and a path has at most 4096 bytes.
pub(super) const LONGEST_BYTES: usize = 1024;

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// This byte.
    Byte(u8),
    /// One byte other than `/`.
    Any,
    /// One byte within (or outside of) these ranges.
    Class { is_negated: bool, ranges: Vec<(u8, u8)> },
    /// Any number of bytes other than `/`.
    Star,
    /// Any number of bytes.
    Everything,
}

impl Glob {
    /// Errors: empty, too long, or a `[` without `]`: a sentence for the user.
    pub(super) fn new(pattern: &str) -> Result<Glob, String> {
        if pattern.is_empty() || pattern.len() > LONGEST_BYTES {
            return Err(format!("a pattern has from 1 to {LONGEST_BYTES} bytes"));
        }
        let (mut parts, mut rest) = (Vec::new(), pattern.as_bytes());
        while let [first, tail @ ..] = rest {
            let (part, length) = match (first, tail) {
                (b'*', [b'*', ..]) => (Part::Everything, 2),
                (b'*', _) => (Part::Star, 1),
                (b'?', _) => (Part::Any, 1),
                (b'[', _) => class(rest).ok_or_else(|| format!("[ without ] in {pattern:?}"))?,
                (b'\\', [escaped, ..]) => (Part::Byte(*escaped), 2),
                (byte, _) => (Part::Byte(*byte), 1),
            };
            parts.push(part);
            rest = &rest[length..];
        }
        Ok(Glob { parts })
    }

    /// Whether the whole text has this pattern. Time: at most the product of both lengths, for any pattern.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        // reached[n]: the parts so far match the first n bytes.
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            let mut next = vec![false; text.len() + 1];
            let repeats = matches!(part, Part::Star | Part::Everything);
            for at in 0..=text.len() {
                next[at] = match at.checked_sub(1) {
                    None => repeats && reached[0],
                    Some(before) if repeats => reached[at] || next[before] && part.accepts(text[before]),
                    Some(before) => reached[before] && part.accepts(text[before]),
                };
            }
            reached = next;
        }
        reached[text.len()]
    }
}

impl Part {
    fn accepts(&self, byte: u8) -> bool {
        match self {
            Part::Byte(wanted) => byte == *wanted,
            Part::Any | Part::Star => byte != b'/',
            Part::Class { is_negated, ranges } => {
                byte != b'/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte)) != *is_negated
            }
            Part::Everything => true,
        }
    }
}

/// The class at the beginning, `[!a-z_]`, and its length. `]` as the first character is a member. `None`: it does not end.
fn class(text: &[u8]) -> Option<(Part, usize)> {
    let is_negated = matches!(text.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(is_negated);
    let end = first + 1 + text.get(first + 1..)?.iter().position(|byte| *byte == b']')?;
    let (mut ranges, mut members) = (Vec::new(), &text[first..end]);
    while let [low, tail @ ..] = members {
        match tail {
            [b'-', high, tail @ ..] => {
                ranges.push((*low, *high));
                members = tail;
            }
            _ => {
                ranges.push((*low, *low));
                members = tail;
            }
        }
    }
    Some((Part::Class { is_negated, ranges }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).unwrap().matches(text.as_bytes())
    }

    #[test]
    fn star_stays_within_a_name_and_two_stars_do_not() {
        for (pattern, yes, no) in [
            ("fio", vec!["fio"], vec!["fio2", "xfio", ""]),
            ("postgres*", vec!["postgres", "postgres: io"], vec!["apostgres"]),
            ("/srv/*", vec!["/srv/a", "/srv/"], vec!["/srv", "/srv/a/b"]),
            ("/srv/**", vec!["/srv/a", "/srv/a/b"], vec!["/srv", "/srvx"]),
            ("/**/*.db", vec!["/a/b.db", "/a/b/c.db"], vec!["/a/b.dbx"]),
            ("a?c", vec!["abc"], vec!["ac", "a/c"]),
            ("[a-c]x[!0-9]", vec!["axz", "cxz"], vec!["dxz", "ax1", "ax/"]),
            ("[]x]", vec!["]", "x"], vec!["a"]),
            ("a\\*", vec!["a*"], vec!["ab"]),
        ] {
            assert!(yes.iter().all(|text| matches(pattern, text)), "{pattern}");
            assert!(!no.iter().any(|text| matches(pattern, text)), "{pattern}");
        }
    }

    #[test]
    fn unfinished_and_endless_patterns_are_refused() {
        for pattern in ["", "[a", "[", "[]", &"a".repeat(LONGEST_BYTES + 1)] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn hostile_pattern_takes_no_exponential_time() {
        let pattern = "*a".repeat(LONGEST_BYTES / 2);
        assert!(!matches(&pattern, &"a".repeat(500)));
    }

    proptest! {
        #[test]
        fn every_pattern_is_a_glob_or_an_error_and_text_matches_itself(pattern in ".{0,40}", text in ".{0,40}") {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(text.as_bytes());
            }
            let escaped: String = text.chars().flat_map(|c| if c.is_ascii() { vec!['\\', c] } else { vec![c] }).collect();
            prop_assert!(text.is_empty() || matches(&escaped, &text));
        }
    }
}
