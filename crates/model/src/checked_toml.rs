//! A table of TOML from outside: every field, its range, and errors that name the line.
//!
//! ```text
//!     text ──▶ size ──▶ syntax ──▶ known fields, each in its range, none missing ──▶ toml::Table
//! ```
//!
//! The text is hostile until it is checked: its size is capped, and nothing that comes out has an unknown field or a value out of range.

use toml::de::{DeTable, DeValue};

/// Largest accepted text: a table is a page of text; anything larger is a mistake or an attack.
pub const MAX_TEXT_BYTES: usize = 64 << 10;

/// Longest accepted name or description.
const MAX_NAME_CHARS: usize = 200;

/// Why a text was not accepted. The message is one line that names the line of the file, the field and what is accepted there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is larger than such a text can be.
    #[error("{what} may have at most {MAX_TEXT_BYTES} bytes; this one has {bytes}")]
    TooLarge {
        /// What it should be: "a disk model".
        what: &'static str,
        /// Its size.
        bytes: usize,
    },
    /// The text is not TOML.
    #[error("line {line}: not TOML: {message}")]
    Syntax {
        /// Line in the text, from 1.
        line: usize,
        /// What the TOML parser says.
        message: String,
    },
    /// A field is unknown, missing or out of range.
    #[error("line {line}: {message}")]
    Field {
        /// Line in the text, from 1 (1 for a field that is missing).
        line: usize,
        /// The field and what is accepted.
        message: String,
    },
}

/// One field of a table.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its key.
    pub name: &'static str,
    /// Its values.
    pub accepts: Accepts,
    /// Whether it must be there.
    pub required: bool,
}

/// What a field accepts.
#[derive(Clone, Copy, Debug)]
pub enum Accepts {
    /// A number from the first to the second.
    Number(f64, f64),
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// Any short text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Field {
    /// One that must be there.
    pub const fn required(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts, required: true }
    }

    /// One that may be left out.
    pub const fn optional(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts, required: false }
    }
}

/// The schema of a table: which fields it has may depend on the value of one of them.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// What it describes, for messages: "a disk model".
    pub what: &'static str,
    /// The field that selects, and its words; none: `fields` is called with an empty word.
    pub kind: Option<(&'static str, &'static [&'static str])>,
    /// The fields for that word, the selecting field not among them.
    pub fields: fn(&str) -> Vec<Field>,
}

/// Parses `text` and checks every field. The table that is returned has only known fields with values in their range, and all that are
/// required.
///
/// Errors: the first mistake, with its line.
pub fn checked_table(text: &str, schema: &Schema) -> Result<toml::Table, TextError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(TextError::TooLarge { what: schema.what, bytes: text.len() });
    }
    let syntax = |error: toml::de::Error| TextError::Syntax {
        line: line_at(text, error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join(" "),
    };
    let parsed = DeTable::parse(text).map_err(syntax)?;
    let table = parsed.get_ref();
    let (kind, kind_line) = kind_of(text, table, schema)?;
    let fields = (schema.fields)(kind);
    let kind_key = schema.kind.map(|(key, _)| key);
    for (key, value) in table.iter().filter(|(key, _)| Some(key.get_ref().as_ref()) != kind_key) {
        let line = line_at(text, key.span().start);
        let name = key.get_ref();
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
            let of = kind_key.map_or(schema.what.to_owned(), |key| format!("{key} {kind}"));
            let message = format!("unknown field {name:?}; the fields of {of} are {}", known.join(", "));
            return Err(TextError::Field { line, message });
        };
        check(field, value.get_ref()).map_err(|message| TextError::Field { line, message })?;
    }
    if let Some(missing) = fields.iter().find(|field| field.required && !table.contains_key(field.name)) {
        let message = format!("{} is missing; it must be {}", missing.name, accepted(missing.accepts));
        return Err(TextError::Field { line: kind_line, message });
    }
    text.parse().map_err(syntax)
}

/// The word that selects the fields, and its line.
fn kind_of<'a>(text: &str, table: &'a DeTable<'_>, schema: &Schema) -> Result<(&'a str, usize), TextError> {
    let Some((key, words)) = schema.kind else { return Ok(("", 1)) };
    let value = table.get(key);
    let line = value.map_or(1, |value| line_at(text, value.span().start));
    let word = value.and_then(|value| value.get_ref().as_str()).filter(|word| words.contains(word));
    let message = || format!("{key} must be one of {}", words.join(", "));
    word.map(|word| (word, line)).ok_or_else(|| TextError::Field { line, message: message() })
}

/// The line of `text`, a table that was parsed before, on which `field` is set; 1 if it is not.
pub fn line_of(text: &str, field: &str) -> usize {
    let parsed = DeTable::parse(text).ok();
    let key = parsed.as_ref().and_then(|table| table.get_ref().get_key_value(field));
    key.map_or(1, |(key, _)| line_at(text, key.span().start))
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

fn check(field: &Field, value: &DeValue<'_>) -> Result<(), String> {
    let whole = value.as_integer().and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
    let number = match value.as_float() {
        Some(float) => float.as_str().parse().ok(),
        None => whole.map(|whole| whole as f64),
    };
    let text = value.as_str();
    let fits = match field.accepts {
        // A NaN is in no range.
        Accepts::Number(min, max) => number.is_some_and(|number: f64| (min..=max).contains(&number)),
        Accepts::Whole(min, max) => whole.is_some_and(|whole| (min..=max).contains(&whole)),
        Accepts::Text => text.is_some_and(|text| text.chars().count() <= MAX_NAME_CHARS && !text.contains('\n')),
        Accepts::Word(words) => text.is_some_and(|text| words.contains(&text)),
    };
    if fits { Ok(()) } else { Err(format!("{} must be {}", field.name, accepted(field.accepts))) }
}

fn accepted(accepts: Accepts) -> String {
    match accepts {
        Accepts::Number(min, max) => format!("a number from {min} to {max}"),
        Accepts::Whole(min, max) => format!("a whole number from {min} to {max}"),
        Accepts::Text => format!("one line of text of at most {MAX_NAME_CHARS} characters"),
        Accepts::Word(words) => format!("one of {}", words.join(", ")),
    }
}
