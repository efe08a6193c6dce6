//! The head of a CBOR item (RFC 8949, section 3): its kind, and a number. Strings and containers follow their heads; a profile
//! consists only of heads and the bytes of strings.
//!
//! ```text
//!     ┌─────────┬───────────┬──────────────────────┐
//!     │ kind: 3 │ detail: 5 │ 0, 1, 2, 4 or 8 bytes│   detail below 24: the number itself; 24..=27: the number follows, big-endian;
//!     └─────────┴───────────┴──────────────────────┘   31: unknown length, ended by a mark; profiles do not use it
//! ```

/// The kind of an item, with the value in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Number = 0,
    /// The number is -1 minus the one in the head.
    Negative = 1,
    Bytes = 2,
    Text = 3,
    Array = 4,
    Map = 5,
    Tag = 6,
    /// True, false, null, floating-point numbers.
    Simple = 7,
}

/// Simple values.
pub const FALSE: u64 = 20;
pub const TRUE: u64 = 21;
pub const NULL: u64 = 22;

/// The head of one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: Kind,
    /// The number, length, or bits of a floating-point number.
    pub value: u64,
    /// Length of the head, bytes; for a simple value 1, unless it is a floating-point number.
    pub length: usize,
}

/// Why a head cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHead {
    /// The bytes end within the head.
    End,
    /// The item has no known length, or is the mark that ends such an item.
    UnknownLength,
    /// A reserved encoding.
    Reserved,
}

impl Head {
    /// Reads the head at the start of these bytes.
    pub fn read(bytes: &[u8]) -> Result<Head, NoHead> {
        let (first, rest) = bytes.split_first().ok_or(NoHead::End)?;
        let kind = match first >> 5 {
            0 => Kind::Number,
            1 => Kind::Negative,
            2 => Kind::Bytes,
            3 => Kind::Text,
            4 => Kind::Array,
            5 => Kind::Map,
            6 => Kind::Tag,
            _ => Kind::Simple,
        };
        let (value, more) = match first & 0x1f {
            detail @ 0..=23 => (u64::from(detail), 0),
            24 => (u64::from(following::<1>(rest)?[0]), 1),
            25 => (u64::from(u16::from_be_bytes(following(rest)?)), 2),
            26 => (u64::from(u32::from_be_bytes(following(rest)?)), 4),
            27 => (u64::from_be_bytes(following(rest)?), 8),
            31 => return Err(NoHead::UnknownLength),
            _ => return Err(NoHead::Reserved),
        };
        Ok(Head { kind, value, length: 1 + more })
    }

    /// Appends the shortest head to these bytes.
    pub fn write(kind: Kind, value: u64, out: &mut Vec<u8>) {
        let first = (kind as u8) << 5;
        match value {
            0..=23 => out.push(first | value as u8),
            24..=0xff => out.extend([first | 24, value as u8]),
            0x100..=0xffff => {
                out.push(first | 25);
                out.extend((value as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                out.push(first | 26);
                out.extend((value as u32).to_be_bytes());
            }
            _ => {
                out.push(first | 27);
                out.extend(value.to_be_bytes());
            }
        }
    }

    /// Whether it is this simple value.
    pub fn is_simple(self, value: u64) -> bool {
        (self.kind, self.value, self.length) == (Kind::Simple, value, 1)
    }

    /// The name of the kind, for messages.
    pub fn name(self) -> &'static str {
        match self.kind {
            Kind::Number => "a number",
            Kind::Negative => "a negative number",
            Kind::Bytes => "bytes",
            Kind::Text => "text",
            Kind::Array => "an array",
            Kind::Map => "a map",
            Kind::Tag => "a tag",
            Kind::Simple if self.length > 2 => "a floating-point number",
            Kind::Simple if self.is_simple(TRUE) || self.is_simple(FALSE) => "a truth value",
            Kind::Simple if self.is_simple(NULL) => "null",
            Kind::Simple => "a simple value",
        }
    }
}

fn following<const N: usize>(rest: &[u8]) -> Result<[u8; N], NoHead> {
    rest.first_chunk().copied().ok_or(NoHead::End)
}
