//! Patterns of paths: `*` and `?` within a name, `[a-z]` or `[!a-z]` one byte of it, `**` any number of directories, `\` takes the next
//! byte as it is. A pattern that ends with `/**` matches every file below. Names that begin with a dot are names like all others.
//!
//! ```text
//!     /usr/lib/**/lib*.so.[0-9]
//!     └──┬───┘ └┬┘└─────┬─────┘
//!      base    Any     Name          each directory is listed once: several positions in the pattern are open at a time
//! ```

use ahead_profile::PathBytes;

/// A pattern of absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The path up to the first component with a wildcard; the whole path if there is none.
    base: PathBytes,
    parts: Vec<PatternPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    /// `**`.
    Any,
    Name(NamePattern),
}

/// A pattern of one name. A slash is a byte like all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`.
    One,
    /// `*`.
    Many,
    /// `[a-z_]`: ranges of bytes, both ends included.
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

/// Positions in a pattern that a path has reached: a bit for each part, and one for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions(u128);

/// Maximum number of components with wildcards and behind them: the bits of [`Positions`] but one.
const MAX_PARTS: usize = 127;

impl Pattern {
    /// Parses a pattern.
    ///
    /// Errors: the reason.
    pub fn parse(text: &[u8]) -> Result<Pattern, &'static str> {
        if text.first() != Some(&b'/') {
            return Err("a pattern starts with a slash");
        }
        if text.contains(&0) {
            return Err("a pattern has no NUL byte");
        }
        let mut pattern = Pattern { base: Vec::new(), parts: Vec::new() };
        for component in text.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            match part(component)? {
                PatternPart::Name(name) if pattern.parts.is_empty() && name.0.iter().all(Token::is_literal) => {
                    pattern.base.push(b'/');
                    pattern.base.extend(name.0.iter().map(Token::byte));
                }
                // Twice in succession is the same as once.
                PatternPart::Any if pattern.parts.last() == Some(&PatternPart::Any) => {}
                part => pattern.parts.push(part),
            }
        }
        if pattern.parts.len() > MAX_PARTS {
            return Err("a pattern has at most 127 components after the first wildcard");
        }
        if pattern.base.is_empty() {
            pattern.base.push(b'/');
        }
        Ok(pattern)
    }

    /// As [`Pattern::parse`]; a pattern without a slash at its start may start in any directory, as in `*.db`.
    ///
    /// Errors: the reason.
    pub fn parse_anywhere(text: &[u8]) -> Result<Pattern, &'static str> {
        if text.starts_with(b"/") { Pattern::parse(text) } else { Pattern::parse(&[b"/**/", text].concat()) }
    }

    /// The path up to the first component with a wildcard.
    pub fn base(&self) -> &[u8] {
        &self.base
    }

    /// Whether it is a path without wildcards.
    pub fn is_literal(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether a path matches. Empty components of it, as in `/usr//lib`, do not count.
    pub fn matches(&self, path: &[u8]) -> bool {
        let components = |path: &[u8]| -> Vec<PathBytes> {
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let (names, base) = (components(path), components(&self.base));
        names.starts_with(&base)
            && self.is_match(names[base.len()..].iter().fold(self.start(), |at, name| self.step(at, name)))
    }

    /// The positions at the base.
    pub(super) fn start(&self) -> Positions {
        self.with_empty_matches(Positions(1))
    }

    /// The positions after one more name of the path.
    pub(super) fn step(&self, from: Positions, name: &[u8]) -> Positions {
        let mut reached = Positions(0);
        for (index, part) in self.parts.iter().enumerate().filter(|(index, _)| from.0 >> index & 1 == 1) {
            match part {
                PatternPart::Any => reached.0 |= 1 << index,
                PatternPart::Name(pattern) if pattern.matches(name) => reached.0 |= 1 << (index + 1),
                PatternPart::Name(_) => {}
            }
        }
        self.with_empty_matches(reached)
    }

    /// Whether a path with these positions matches.
    pub(super) fn is_match(&self, at: Positions) -> bool {
        at.0 >> self.parts.len() & 1 == 1
    }

    /// Whether a longer path may match.
    pub(super) fn goes_on(&self, at: Positions) -> bool {
        at.0 & ((1 << self.parts.len()) - 1) != 0
    }

    /// `**` matches no directory, too.
    fn with_empty_matches(&self, mut at: Positions) -> Positions {
        for index in 0..self.parts.len() {
            if self.parts[index] == PatternPart::Any && at.0 >> index & 1 == 1 {
                at.0 |= 1 << (index + 1);
            }
        }
        at
    }
}

fn part(component: &[u8]) -> Result<PatternPart, &'static str> {
    match component {
        b"**" => Ok(PatternPart::Any),
        b".." => Err("a pattern has no component \"..\""),
        _ => NamePattern::parse(component).map(PatternPart::Name),
    }
}

impl NamePattern {
    /// Parses the pattern of a name.
    ///
    /// Errors: the reason.
    pub fn parse(text: &[u8]) -> Result<NamePattern, &'static str> {
        let (mut tokens, mut rest) = (Vec::new(), text);
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            tokens.push(match first {
                b'*' if tokens.last() == Some(&Token::Many) => {
                    return Err("** is a whole component: /**/ or /** at the end");
                }
                b'*' => Token::Many,
                b'?' => Token::One,
                b'[' => {
                    let (class, after) = class(rest)?;
                    rest = after;
                    class
                }
                b'\\' => {
                    let (escaped, after) = rest.split_first().ok_or("a backslash at the end of a component")?;
                    rest = after;
                    Token::Byte(*escaped)
                }
                byte => Token::Byte(*byte),
            });
        }
        Ok(NamePattern(tokens))
    }

    /// Whether a name matches. Only the last `*` is tried again, so that no name takes longer than the product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let (tokens, mut at, mut in_name) = (&self.0, 0, 0);
        let mut last_many: Option<(usize, usize)> = None;
        while in_name < name.len() {
            match tokens.get(at) {
                Some(Token::Many) => {
                    last_many = Some((at, in_name));
                    at += 1;
                }
                Some(token) if token.matches(name[in_name]) => {
                    at += 1;
                    in_name += 1;
                }
                _ => {
                    let Some((many, from)) = last_many else { return false };
                    last_many = Some((many, from + 1));
                    (at, in_name) = (many + 1, from + 1);
                }
            }
        }
        tokens[at..].iter().all(|token| *token == Token::Many)
    }
}

/// The class after an opening bracket, and the text after it.
fn class(text: &[u8]) -> Result<(Token, &[u8]), &'static str> {
    let unclosed = "a bracket without its closing one";
    let (negated, text) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    // A closing bracket in the first place is a byte of the class.
    let end = text.iter().skip(1).position(|byte| *byte == b']').ok_or(unclosed)? + 1;
    let (mut inside, mut ranges) = (&text[..end], Vec::new());
    while let Some((first, rest)) = inside.split_first() {
        match rest {
            [b'-', last, after @ ..] => {
                if first > last {
                    return Err("a range of a class ends before it starts");
                }
                ranges.push((*first, *last));
                inside = after;
            }
            _ => {
                ranges.push((*first, *first));
                inside = rest;
            }
        }
    }
    Ok((Token::Class { negated, ranges }, &text[end + 1..]))
}

impl Token {
    fn is_literal(&self) -> bool {
        matches!(self, Token::Byte(_))
    }

    /// The byte of a literal.
    fn byte(&self) -> u8 {
        match self {
            Token::Byte(byte) => *byte,
            _ => b'?',
        }
    }

    fn matches(&self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => *own == byte,
            Token::One | Token::Many => true,
            Token::Class { negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whether a pattern matches a path.
    fn is_match(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::parse(pattern.as_bytes()).unwrap();
        pattern.matches(path.as_bytes())
    }

    #[test]
    fn wildcards_match_within_a_name_and_two_stars_across() {
        for (pattern, path, expected) in [
            ("/usr/lib/*.so", "/usr/lib/x.so", true),
            ("/usr/lib/*.so", "/usr/lib/.so", true),
            ("/usr/lib/*.so", "/usr/lib/a/x.so", false),
            ("/usr/**", "/usr/lib/a/x.so", true),
            ("/usr/**/x.so", "/usr/x.so", true),
            ("/usr/**/x.so", "/usr/a/b/x.so", true),
            ("/usr/**/x.so", "/usr/a/b/y.so", false),
            ("/**/a/**/b", "/x/a/y/a/b", true),
            ("/**/a/**/b", "/x/b", false),
            ("/a/b?d", "/a/bcd", true),
            ("/a/b?d", "/a/bd", false),
            ("/a/[b-d]x", "/a/cx", true),
            ("/a/[!b-d]x", "/a/cx", false),
            ("/a/[]x]", "/a/]", true),
            ("/a/[a-]", "/a/-", true),
            (r"/a/\*", "/a/*", true),
            (r"/a/\*", "/a/b", false),
            ("/a/*b*c", "/a/xbxbxc", true),
            ("/a/*b*c", "/a/xcxb", false),
            ("/srv/**", "/srv", true),
            ("/srv/**", "/srvx", false),
            ("/srv/*", "/srv", false),
            ("/**/*.db", "/b.db", true),
            ("/**/*.db", "/a/b/c.db", true),
            ("/**/*.db", "/a/b.dbx", false),
            ("/a?c", "/a/c", false),
            ("/[a-c]x[!0-9]", "/ax/", false),
        ] {
            assert_eq!(is_match(pattern, path), expected, "{pattern} {path}");
        }
        let pattern = Pattern::parse(br"/usr/\[x]//lib").unwrap();
        assert_eq!((pattern.base(), pattern.is_literal()), (&b"/usr/[x]/lib"[..], true));
    }

    #[test]
    fn pattern_without_a_slash_at_its_start_may_start_in_any_directory() {
        for (pattern, path, expected) in [
            ("*.db", "/b.db", true),
            ("*.db", "/a/b.db", true),
            ("a/*.db", "/x/a/b.db", true),
            ("**/*.db", "/a/b.db", true),
            ("/*.db", "/a/b.db", false),
        ] {
            let parsed = Pattern::parse_anywhere(pattern.as_bytes()).unwrap();
            assert_eq!(parsed.matches(path.as_bytes()), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn name_is_matched_as_a_whole_and_its_slashes_are_bytes() {
        for (pattern, yes, no) in [
            ("fio", vec!["fio"], vec!["fio2", "xfio", ""]),
            ("postgres*", vec!["postgres", "postgres: io", "postgres: a/b"], vec!["apostgres"]),
            ("a?c", vec!["abc", "a/c"], vec!["ac"]),
            ("a\\*", vec!["a*"], vec!["ab"]),
        ] {
            let pattern = NamePattern::parse(pattern.as_bytes()).unwrap();
            assert!(yes.iter().all(|text| pattern.matches(text.as_bytes())), "{pattern:?}");
            assert!(!no.iter().any(|text| pattern.matches(text.as_bytes())), "{pattern:?}");
        }
    }

    #[test]
    fn hostile_pattern_takes_no_exponential_time() {
        let pattern = NamePattern::parse("*a".repeat(512).as_bytes()).unwrap();
        assert!(!pattern.matches(&[b'a'; 500]));
    }

    #[test]
    fn unusable_patterns_are_refused() {
        for (text, reason) in [
            ("usr/*", "slash"),
            ("/a/[b", "bracket"),
            ("/a/[]", "bracket"),
            ("/a/[z-a]", "before it starts"),
            ("/a/x**", "whole component"),
            ("/a/../*", "\"..\""),
            ("/a/x\\", "backslash"),
            ("/a\0", "NUL"),
        ] {
            let error = Pattern::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(
            Pattern::parse("/*".repeat(128).as_bytes()).is_err() && Pattern::parse("/*".repeat(127).as_bytes()).is_ok()
        );
    }

    /// The definition, by recursion.
    fn by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) if by_definition(rest, name) => true,
            (Some((b'*', _)), Some((_, after))) => by_definition(pattern, after),
            (Some((b'?', rest)), Some((_, after))) => by_definition(rest, after),
            (Some((byte, rest)), Some((first, after))) => byte == first && by_definition(rest, after),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn names_match_by_definition(pattern in "[ab?]{0,3}(\\*[ab?]{1,3}){0,3}\\*?", name in "[ab]{1,8}") {
            let text = format!("/{pattern}");
            let expected = by_definition(pattern.as_bytes(), name.as_bytes());
            // Without a wildcard the whole pattern is the base.
            let path = format!("/{name}");
            let matched = if pattern.is_empty() { false } else { is_match(&text, &path) };
            prop_assert_eq!(matched, expected && !pattern.is_empty());
        }

        #[test]
        fn escaped_name_matches_itself(name in prop::collection::vec(any::<u8>(), 0..40)) {
            let escaped: Vec<u8> = name.iter().flat_map(|byte| [b'\\', *byte]).collect();
            prop_assert!(NamePattern::parse(&escaped).unwrap().matches(&name));
        }

        #[test]
        fn any_bytes_are_a_pattern_or_an_error(text in prop::collection::vec(any::<u8>(), 0..40), name in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(pattern) = Pattern::parse(&[b"/", &text[..]].concat()) {
                let at = pattern.step(pattern.start(), &name);
                let _ = (pattern.is_match(at), pattern.goes_on(at));
            }
        }
    }
}
