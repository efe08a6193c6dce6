//! The text of rules: TOML, with the position of each mistake.

use super::{Limits, Rule, Rules, RulesError};
use ahead_files::lists::{NamePattern, Pattern};
use ahead_model::quantity::parse_size_with_unit;
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

/// Largest number of rules of one kind: each is compared with each process and file.
const MAX_RULES: usize = 256;

/// Longest pattern, bytes: the time of a match grows with pattern times text, and a path has at most 4096 bytes.
const LONGEST_PATTERN: usize = 1024;

/// The largest window that a rule may allow: the kernel counts windows in pages with 32 bits; more than 1 GiB helps no disk. Unit: bytes.
const MAX_WINDOW_BYTES: u64 = 1 << 30;

/// The smallest window: decisions of the kernel stay visible with one page. Unit: bytes.
const MIN_WINDOW_BYTES: u64 = 4 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    limits: LimitsText,
    #[serde(default)]
    include: Vec<Spanned<RuleText>>,
    #[serde(default)]
    exclude: Vec<Spanned<RuleText>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsText {
    max_window: Option<Spanned<String>>,
    min_window: Option<Spanned<String>>,
    memory_share: Option<Spanned<f64>>,
    max_acts_per_second: Option<Spanned<i64>>,
    max_files: Option<Spanned<i64>>,
    fetch: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    command: Option<Spanned<String>>,
    path: Option<Spanned<String>>,
    mount: Option<Spanned<String>>,
    cgroup: Option<Spanned<String>>,
}

/// A mistake at a place of the text.
struct Mistake(Range<usize>, String);

/// Parses and checks the text.
pub(super) fn rules(text: &str) -> Result<Rules, RulesError> {
    let failed = |Mistake(at, message): Mistake| {
        let (line, column) = position(text, at.start);
        RulesError::Text { line, column, message }
    };
    let parsed: Text = toml::from_str(text).map_err(|error: toml::de::Error| {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        failed(Mistake(error.span().unwrap_or(0..0), message))
    })?;
    let limits = limits(parsed.limits).map_err(failed)?;
    let list = |rules: Vec<Spanned<RuleText>>| {
        if let Some(first_beyond) = rules.get(MAX_RULES) {
            return Err(Mistake(first_beyond.span(), format!("there are at most {MAX_RULES} rules of a kind")));
        }
        rules.into_iter().map(|rule| self::rule(text, rule)).collect()
    };
    let (include, exclude) = (list(parsed.include).map_err(failed)?, list(parsed.exclude).map_err(failed)?);
    Ok(Rules { limits, include, exclude })
}

/// Line and column of a byte, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    (line, 1 + String::from_utf8_lossy(&before[line_start..]).chars().count())
}

fn limits(text: LimitsText) -> Result<Limits, Mistake> {
    let usual = Limits::default();
    let window = |value: Option<Spanned<String>>, usual| value.map_or(Ok(usual), |value| window_bytes(&value));
    let (max_place, min_place) =
        (text.max_window.as_ref().map(Spanned::span), text.min_window.as_ref().map(Spanned::span));
    let (max_window_bytes, min_window_bytes) =
        (window(text.max_window, usual.max_window_bytes)?, window(text.min_window, usual.min_window_bytes)?);
    if min_window_bytes > max_window_bytes {
        let place = min_place.or(max_place).unwrap_or(0..0);
        return Err(Mistake(place, "min_window is larger than max_window".into()));
    }
    let memory_share = text.memory_share.map_or(Ok(usual.memory_share), |share| match *share.get_ref() {
        // A NaN is in no range.
        value if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(Mistake(share.span(), "memory_share must be a number from 0 to 1".into())),
    })?;
    Ok(Limits {
        max_window_bytes,
        min_window_bytes,
        memory_share,
        max_acts_per_second: whole(
            text.max_acts_per_second,
            "max_acts_per_second",
            1_000_000,
            usual.max_acts_per_second,
        )?,
        max_files: whole(text.max_files, "max_files", 1 << 16, usual.max_files)?,
        fetch: text.fetch.unwrap_or(usual.fetch),
    })
}

fn window_bytes(text: &Spanned<String>) -> Result<u64, Mistake> {
    let bytes = parse_size_with_unit(text.get_ref()).map_err(|message| Mistake(text.span(), message))?;
    if !(MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&bytes) {
        return Err(Mistake(text.span(), "a window is from 4K to 1G".into()));
    }
    Ok(bytes)
}

/// A number from 1 to `most`.
fn whole<T: TryFrom<i64>>(value: Option<Spanned<i64>>, name: &str, most: i64, usual: T) -> Result<T, Mistake> {
    let Some(value) = value else { return Ok(usual) };
    let number = Some(*value.get_ref()).filter(|number| (1..=most).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| Mistake(value.span(), format!("{name} must be a whole number from 1 to {most}")))
}

fn pattern<T>(
    text: Option<Spanned<String>>,
    parse: fn(&[u8]) -> Result<T, &'static str>,
) -> Result<Option<T>, Mistake> {
    let Some(text) = text else { return Ok(None) };
    let parsed = match text.get_ref().len() {
        1..=LONGEST_PATTERN => parse(text.get_ref().as_bytes()).map_err(ToOwned::to_owned),
        _ => Err(format!("a pattern has from 1 to {LONGEST_PATTERN} bytes")),
    };
    parsed.map(Some).map_err(|why| Mistake(text.span(), why))
}

fn rule(text: &str, rule: Spanned<RuleText>) -> Result<Rule, Mistake> {
    let span = rule.span();
    let (line, _) = position(text, span.start);
    let RuleText { command, path, mount, cgroup } = rule.into_inner();
    let (path, mount, cgroup) = (
        pattern(path, Pattern::parse_anywhere)?,
        pattern(mount, Pattern::parse_anywhere)?,
        pattern(cgroup, Pattern::parse_anywhere)?,
    );
    let rule = Rule { line, command: pattern(command, NamePattern::parse)?, path, mount, cgroup };
    if rule.command.is_none() && rule.path.is_none() && rule.mount.is_none() && rule.cgroup.is_none() {
        return Err(Mistake(span, "a rule needs command, path, mount or cgroup".into()));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mistakes_are_named_by_line_and_column() {
        for (text, message) in [
            ("[limits]\nmax_windows = '1M'\n", "line 2, column 1: unknown field `max_windows`"),
            ("[limits]\n  max_window = '2G'\n", "line 2, column 16: a window is from 4K to 1G"),
            ("[limits]\nmax_window = '128'\n", "line 2, column 14: \"128\" has no unit"),
            ("[limits]\nmax_window = 128\n", "line 2, column 14: invalid type"),
            ("[limits]\nmax_window = '8K'\nmin_window = '16K'\n", "line 3, column 14: min_window is larger"),
            ("[limits]\nmemory_share = nan\n", "line 2, column 16: memory_share must be"),
            ("[limits]\nmemory_share = -1\n", "line 2, column 16: memory_share must be"),
            ("[limits]\nmax_files = 0\n", "line 2, column 13: max_files must be"),
            ("[[exclude]]\ncomand = 'x'\n", "line 2, column 1: unknown field `comand`"),
            ("[[include]]\n", "line 1, column 1: a rule needs"),
            ("[[include]]\ncommand = '[a'\n", "line 2, column 11: a bracket without its closing one"),
            ("[[include]]\ncommand = ''\n", "line 2, column 11: a pattern has from 1 to 1024 bytes"),
            ("[[include]]\npath = '/srv/x**'\n", "line 2, column 8: ** is a whole component"),
            ("[[include]\n", "line 1, column 11"),
            ("x = 1\n", "line 1, column 1: unknown field `x`"),
        ] {
            let error = rules(text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn limits_are_read() {
        let text = "[limits]\nmax_window = '4M'\nmin_window = '8K'\nmemory_share = 1\nmax_acts_per_second = 5\n\
            max_files = 10\nfetch = false\n";
        let expected = Limits {
            max_window_bytes: 4 << 20,
            min_window_bytes: 8 << 10,
            memory_share: 1.0,
            max_acts_per_second: 5,
            max_files: 10,
            fetch: false,
        };
        assert_eq!(rules(text).unwrap().limits, expected);
        assert_eq!(rules("").unwrap(), Rules::default());
    }

    #[test]
    fn number_of_rules_is_limited() {
        let text = "[[include]]\ncommand = 'x'\n".repeat(MAX_RULES + 1);
        assert!(rules(&text).unwrap_err().to_string().contains("at most 256"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(?s).{0,200}|(\\[\\[include\\]\\]\n|\\[limits\\]\n|(path|max_window|fetch) = [-'a-z0-9.\\[*]{0,9}\n){0,6}") {
            let _ = rules(&text);
        }
    }
}
