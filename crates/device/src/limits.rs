//! What a model from outside may contain: every field, its range, and errors that name the line.

use toml::de::{DeTable, DeValue};

/// Largest accepted model file: a model is a page of text; anything larger is a mistake or an attack.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Longest accepted name or description.
const MAX_NAME_CHARS: usize = 200;

/// Why a model was not accepted. The message is one line that names the line of the file, the field and what is
/// accepted there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The text is larger than a model can be.
    #[error("a disk model may have at most {MAX_TEXT_BYTES} bytes; this one has {0}")]
    TooLarge(usize),
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

/// One field of a model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub name: &'static str,
    pub accepts: Accepts,
    pub required: bool,
}

/// What a field accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Accepts {
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
    pub(crate) const fn required(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts, required: true }
    }

    pub(crate) const fn optional(name: &'static str, accepts: Accepts) -> Field {
        Field { name, accepts, required: false }
    }
}

/// The fields of every kind of model. The schedulers are those that Linux has.
pub(crate) const COMMON: [Field; 5] = [
    Field::optional("name", Accepts::Text),
    Field::optional("description", Accepts::Text),
    Field::optional("scheduler", Accepts::Word(&["none", "mq-deadline", "bfq", "kyber"])),
    Field::optional("nr_requests", Accepts::Whole(4, 65_536)),
    Field::optional("max_request_kb", Accepts::Whole(4, 65_536)),
];

/// The kinds of models, as they are written.
pub(crate) const KINDS: &[&str] = &["hdd", "flash", "cloud"];

/// Parses `text` and checks every field against `fields_of(kind)`. The table that is returned has only known fields
/// with values in their range, and all that are required.
pub(crate) fn checked_table(text: &str, fields_of: fn(&str) -> &'static [Field]) -> Result<toml::Table, ModelError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(ModelError::TooLarge(text.len()));
    }
    let syntax = |error: toml::de::Error| ModelError::Syntax {
        line: line_at(text, error.span().map_or(0, |span| span.start)),
        message: error.message().lines().collect::<Vec<_>>().join(" "),
    };
    let parsed = DeTable::parse(text).map_err(syntax)?;
    let table = parsed.get_ref();
    let kind_line = table.get("kind").map_or(1, |value| line_at(text, value.span().start));
    let kind = table.get("kind").and_then(|value| value.get_ref().as_str()).filter(|kind| KINDS.contains(kind));
    let Some(kind) = kind else {
        let message = format!("kind must be one of {}", KINDS.join(", "));
        return Err(ModelError::Field { line: kind_line, message });
    };
    let fields = || COMMON.iter().chain(fields_of(kind));
    for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != "kind") {
        let line = line_at(text, key.span().start);
        let name = key.get_ref();
        let Some(field) = fields().find(|field| field.name == name) else {
            let known: Vec<&str> = fields().map(|field| field.name).collect();
            let message = format!("unknown field {name:?}; the fields of kind {kind} are {}", known.join(", "));
            return Err(ModelError::Field { line, message });
        };
        check(field, value.get_ref()).map_err(|message| ModelError::Field { line, message })?;
    }
    if let Some(missing) = fields().find(|field| field.required && !table.contains_key(field.name)) {
        let message = format!("{} is missing; it must be {}", missing.name, accepted(missing.accepts));
        return Err(ModelError::Field { line: kind_line, message });
    }
    text.parse().map_err(syntax)
}

/// The line of `text`, a table that was parsed before, on which `field` is set; 1 if it is not.
pub(crate) fn line_of(text: &str, field: &str) -> usize {
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
