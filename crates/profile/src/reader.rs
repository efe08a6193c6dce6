//! Reads CBOR items from untrusted bytes, with the position of every error.
//!
//! Allocations are bounded by the bytes present: a list that claims a million entries must have the bytes for a million of the
//! smallest entries. Lengths must be definite (no writer here uses others). Nesting is bounded by the format, and by
//! [`MAX_DEPTH`] in unknown values, which are skipped.
//!
//! The program waits while its profile is loaded, so the path without errors is short. The position of an entry is composed
//! only for an error, while it is returned.

use crate::cbor::{FALSE, Head, Kind, NULL, NoHead, TRUE};
use crate::error::DecodeError;
use crate::layout;
use std::fmt::Write;

/// Maximum nesting of a value that is skipped. The format itself has six levels.
const MAX_DEPTH: usize = 16;

/// Maximum length of a map's key.
const MAX_KEY_BYTES: usize = 64;

/// A step towards an entry: `files`, then `[3]`, then `extents`.
#[derive(Clone, Copy, Debug)]
enum ReaderStep {
    Name(&'static str),
    Index(usize),
}

/// An error that is returned through the nested records; each adds its step. Boxed, so that results stay small.
#[derive(Debug)]
pub struct Fault {
    at: usize,
    reason: String,
    /// The innermost step first.
    steps: Vec<ReaderStep>,
}

pub type Result<T> = std::result::Result<T, Box<Fault>>;

impl From<Box<Fault>> for DecodeError {
    fn from(fault: Box<Fault>) -> Self {
        let mut place = String::new();
        for step in fault.steps.iter().rev() {
            let written = match step {
                ReaderStep::Name(name) if place.is_empty() => write!(place, "{name}"),
                ReaderStep::Name(name) => write!(place, ".{name}"),
                ReaderStep::Index(index) => write!(place, "[{index}]"),
            };
            written.expect("a string takes every character");
        }
        if place.is_empty() {
            place.push_str("body");
        }
        DecodeError::Malformed { offset: (layout::LENGTH + fault.at) as u64, place, reason: fault.reason }
    }
}

/// Adds a step to the position of an error.
fn within<T>(result: Result<T>, step: ReaderStep) -> Result<T> {
    result.map_err(|mut fault| {
        fault.steps.push(step);
        fault
    })
}

/// Reads the body of a profile.
pub struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Reader { body, at: 0 }
    }

    /// Offset of the next item.
    pub fn position(&self) -> usize {
        self.at
    }

    /// An error about the item at offset `at`.
    #[cold]
    pub fn fault<T>(at: usize, reason: impl Into<String>) -> Result<T> {
        Err(Box::new(Fault { at, reason: reason.into(), steps: Vec::new() }))
    }

    /// Reads an entry with a name, which is added to the position of errors.
    pub fn named<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        within(read(self), ReaderStep::Name(name))
    }

    // Inlined, with its errors elsewhere: four fifths of a profile are numbers.
    #[inline]
    fn head(&mut self) -> Result<Head> {
        match Head::read(&self.body[self.at..]) {
            Ok(head) => {
                self.at += head.length;
                Ok(head)
            }
            Err(error) => Self::no_head(self.at, error),
        }
    }

    #[cold]
    #[inline(never)]
    fn no_head(at: usize, error: NoHead) -> Result<Head> {
        let reason = match error {
            NoHead::End => "the body ends here, in the middle of an item",
            NoHead::UnknownLength => "an item of unknown length",
            NoHead::Reserved => "this is not CBOR",
        };
        Self::fault(at, reason)
    }

    /// Reads an item that `pick` accepts.
    fn expect<T>(&mut self, what: &str, pick: impl FnOnce(Head) -> Option<T>) -> Result<T> {
        let start = self.at;
        let head = self.head()?;
        match pick(head) {
            Some(value) => Ok(value),
            None => Self::unexpected(start, what, head),
        }
    }

    #[cold]
    #[inline(never)]
    fn unexpected<T>(start: usize, what: &str, found: Head) -> Result<T> {
        Self::fault(start, format!("expected {what}, found {}", found.name()))
    }

    pub fn number(&mut self) -> Result<u64> {
        self.expect("a number", |head| (head.kind == Kind::Number).then_some(head.value))
    }

    /// Reads a number that `meaning` accepts; `what` describes such numbers.
    pub fn number_as<T>(&mut self, what: &str, meaning: impl FnOnce(u64) -> Option<T>) -> Result<T> {
        let start = self.at;
        let value = self.number()?;
        match meaning(value) {
            Some(meant) => Ok(meant),
            None => Self::fault(start, format!("expected {what}, found {value}")),
        }
    }

    pub fn number_u32(&mut self) -> Result<u32> {
        self.number_as("a number below 2^32", |value| u32::try_from(value).ok())
    }

    pub fn signed(&mut self) -> Result<i64> {
        self.expect("a number between -2^63 and 2^63", |head| match head.kind {
            Kind::Number => i64::try_from(head.value).ok(),
            Kind::Negative => i64::try_from(head.value).ok().map(|value| !value),
            _ => None,
        })
    }

    pub fn flag(&mut self) -> Result<bool> {
        self.expect("true or false", |head| {
            (head.is_simple(TRUE) || head.is_simple(FALSE)).then(|| head.is_simple(TRUE))
        })
    }

    /// Reads at most `limit` bytes.
    pub fn bytes(&mut self, limit: usize) -> Result<&'a [u8]> {
        let start = self.at;
        let length = self.expect("bytes", |head| (head.kind == Kind::Bytes).then_some(head.value))?;
        self.payload(start, length, limit)
    }

    /// Reads text of at most `limit` bytes.
    pub fn text(&mut self, limit: usize) -> Result<&'a str> {
        let start = self.at;
        let length = self.expect("text", |head| (head.kind == Kind::Text).then_some(head.value))?;
        let bytes = self.payload(start, length, limit)?;
        str::from_utf8(bytes).or_else(|_| Self::fault(start, "this text is not UTF-8"))
    }

    /// The bytes of a string whose head started at `start`.
    fn payload(&mut self, start: usize, length: u64, limit: usize) -> Result<&'a [u8]> {
        if length > limit as u64 {
            return Self::fault(start, format!("{length} bytes, more than the {limit} allowed"));
        }
        let body = self.body;
        match body[self.at..].get(..length as usize) {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => Self::fault(start, format!("the body ends before these {length} bytes end")),
        }
    }

    /// Reads null, or what `read` reads.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        let start = self.at;
        if self.head()?.is_simple(NULL) {
            return Ok(None);
        }
        self.at = start;
        read(self).map(Some)
    }

    /// Reads a list of at most `limit` entries, each of at least `smallest` bytes.
    pub fn list<T>(
        &mut self,
        limit: usize,
        smallest: usize,
        mut read: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let start = self.at;
        let count = self.array()?;
        if count > limit as u64 {
            return Self::fault(start, format!("{count} entries, more than the {limit} allowed"));
        }
        let left = self.body.len() - self.at;
        if count > (left / smallest) as u64 {
            return Self::fault(start, format!("{count} entries cannot fit into the {left} bytes left"));
        }
        let mut items = Vec::with_capacity(count as usize);
        for index in 0..count as usize {
            items.push(within(read(self), ReaderStep::Index(index))?);
        }
        Ok(items)
    }

    /// Reads a record of at least `fields` fields. Fields that a newer version added at its end are skipped.
    pub fn record<T>(&mut self, fields: u64, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.record_with_optional(fields, read, |reader, _, _| reader.skip())
    }

    /// As [`Reader::record`], with more fields that may be missing, which `optional` reads: it gets the number of each, from 0.
    pub fn record_with_optional<T>(
        &mut self,
        fields: u64,
        read: impl FnOnce(&mut Self) -> Result<T>,
        mut optional: impl FnMut(&mut Self, &mut T, u64) -> Result<()>,
    ) -> Result<T> {
        let start = self.at;
        let count = self.array()?;
        if count < fields {
            return Self::fault(start, format!("{count} fields instead of {fields}"));
        }
        let mut value = read(self)?;
        for number in 0..count - fields {
            optional(self, &mut value, number)?;
        }
        Ok(value)
    }

    fn array(&mut self) -> Result<u64> {
        self.expect("an array", |head| (head.kind == Kind::Array).then_some(head.value))
    }

    /// Reads a map with these keys, each at most once, in any order; the first `required` must be there. Unknown keys, which a newer version added,
    /// are skipped. `read` gets the index of the key in `keys`.
    pub fn map_with_optional(
        &mut self,
        keys: &[&'static str],
        required: usize,
        mut read: impl FnMut(&mut Self, usize) -> Result<()>,
    ) -> Result<()> {
        let start = self.at;
        let count = self.expect("a map", |head| (head.kind == Kind::Map).then_some(head.value))?;
        let mut seen = vec![false; keys.len()];
        for _ in 0..count {
            let key_at = self.at;
            let key = self.text(MAX_KEY_BYTES)?;
            let Some(index) = keys.iter().position(|known| *known == key) else {
                self.skip()?;
                continue;
            };
            if std::mem::replace(&mut seen[index], true) {
                return Self::fault(key_at, format!("duplicate key {key}"));
            }
            self.named(keys[index], |reader| read(reader, index))?;
        }
        match seen[..required].iter().position(|seen| !seen) {
            Some(missing) => Self::fault(start, format!("{} is missing", keys[missing])),
            None => Ok(()),
        }
    }

    /// Skips one value of any kind.
    pub fn skip(&mut self) -> Result<()> {
        // Number of remaining items on each level. This stack cannot overflow, unlike recursion.
        let mut pending = vec![1u64];
        while let Some(left) = pending.last_mut() {
            if *left == 0 {
                pending.pop();
                continue;
            }
            *left -= 1;
            let start = self.at;
            let head = self.head()?;
            let inside = match head.kind {
                Kind::Number | Kind::Negative | Kind::Simple => 0,
                Kind::Bytes | Kind::Text => {
                    self.payload(start, head.value, usize::MAX)?;
                    0
                }
                Kind::Array => head.value,
                Kind::Map => head.value.saturating_mul(2),
                Kind::Tag => 1,
            };
            if inside > 0 {
                if pending.len() == MAX_DEPTH {
                    return Self::fault(start, format!("nested deeper than {MAX_DEPTH} levels"));
                }
                pending.push(inside);
            }
        }
        Ok(())
    }

    /// Checks that no bytes follow.
    pub fn end(&self) -> Result<()> {
        match self.body.len() - self.at {
            0 => Ok(()),
            extra => Self::fault(self.at, format!("{extra} bytes follow the last item")),
        }
    }
}
