//! Just enough of the SQLite file format to know the page of each row: <https://sqlite.org/fileformat2.html>.
//!
//! ```text
//!     schema (page 1) ──▶ root of the index ─▶ interior pages ─▶ leaf pages: (column, rowid) in the order of the column
//!                    └──▶ root of the table ─▶ interior pages: (last rowid, child) ... ─▶ leaf pages: rows
//! ```
//!
//! Whole pages are passed in, and nothing is read here. Not supported, with an error: rows that continue on overflow pages, and tables
//! WITHOUT ROWID. A write-ahead log beside the database is not read.

use anyhow::{Context, Result, bail, ensure};

/// Length of the header of the file, bytes. The b-tree header of page 1 follows it.
pub const HEADER_BYTES: usize = 100;

/// The figures of a database's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Size of a page, bytes.
    pub page_bytes: usize,
    /// Bytes at the end of each page that belong to extensions.
    reserved_bytes: usize,
}

impl Header {
    /// Parses the first [`HEADER_BYTES`] of the file.
    pub fn parse(bytes: &[u8]) -> Result<Header> {
        ensure!(bytes.len() >= HEADER_BYTES && bytes.starts_with(b"SQLite format 3\0"), "not an SQLite database");
        let page_bytes = match big_endian(bytes, 16, 2)? {
            1 => 65_536,
            size if size.is_power_of_two() && size >= 512 => size as usize,
            size => bail!("the page size is {size}"),
        };
        Ok(Header { page_bytes, reserved_bytes: bytes[20].into() })
    }

    fn usable_bytes(&self) -> usize {
        self.page_bytes - self.reserved_bytes
    }
}

/// An entry of a b-tree page, in the page's order.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A page of the next level. In a table: with the last rowid below it (`i64::MAX` for the last child).
    Child {
        /// Its number; the first page of the file is 1.
        page: u32,
        /// The last rowid below it.
        last_rowid: i64,
    },
    /// A row of a table: its rowid and its record.
    Row(i64, Vec<u8>),
    /// A record of an index; its last value is the rowid.
    Key(Vec<u8>),
}

/// A value of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text or a blob.
    Bytes(&'a [u8]),
}

/// The entries of a b-tree page. `number`: of the page; page 1 begins with the file's header.
pub fn entries(header: &Header, number: u32, page: &[u8]) -> Result<Vec<Entry>> {
    let start = if number == 1 { HEADER_BYTES } else { 0 };
    let kind = *page.get(start).context("the page is empty")?;
    let count = big_endian(page, start + 3, 2)? as usize;
    let is_interior = matches!(kind, 2 | 5);
    let pointers = start + if is_interior { 12 } else { 8 };
    let mut found = Vec::with_capacity(count + 1);
    for index in 0..count {
        let at = big_endian(page, pointers + 2 * index, 2)? as usize;
        read_cell(header, kind, page, at, &mut found).with_context(|| format!("page {number}, cell {index}"))?;
    }
    if is_interior {
        found.push(Entry::Child { page: big_endian(page, start + 8, 4)? as u32, last_rowid: i64::MAX });
    }
    Ok(found)
}

fn read_cell(header: &Header, kind: u8, page: &[u8], at: usize, found: &mut Vec<Entry>) -> Result<()> {
    let usable = header.usable_bytes();
    let largest_in_index = (usable - 12) * 64 / 255 - 23;
    match kind {
        5 => {
            let child = big_endian(page, at, 4)? as u32;
            let (rowid, _) = varint(page, at + 4)?;
            found.push(Entry::Child { page: child, last_rowid: rowid });
        }
        13 => {
            let (length, next) = varint(page, at)?;
            let (rowid, next) = varint(page, next)?;
            found.push(Entry::Row(rowid, payload(page, next, length, usable - 35)?.to_vec()));
        }
        2 => {
            let child = big_endian(page, at, 4)? as u32;
            let (length, next) = varint(page, at + 4)?;
            found.push(Entry::Child { page: child, last_rowid: i64::MAX });
            found.push(Entry::Key(payload(page, next, length, largest_in_index)?.to_vec()));
        }
        10 => {
            let (length, next) = varint(page, at)?;
            found.push(Entry::Key(payload(page, next, length, largest_in_index)?.to_vec()));
        }
        _ => bail!("it is no page of a b-tree (type {kind})"),
    }
    Ok(())
}

fn payload(page: &[u8], at: usize, length: i64, largest: usize) -> Result<&[u8]> {
    let length = usize::try_from(length).context("a length is negative")?;
    ensure!(length <= largest, "a record of {length} bytes has overflow pages, which are not supported");
    page.get(at..at + length).context("a record ends behind its page")
}

/// The values of a record.
pub fn values(record: &[u8]) -> Result<Vec<Value<'_>>> {
    let (header_length, mut at) = varint(record, 0)?;
    let mut body = usize::try_from(header_length).context("a record's header has a negative length")?;
    let types_end = body;
    let mut found = Vec::new();
    while at < types_end {
        let (kind, next) = varint(record, at)?;
        let length = length_of(kind)?;
        let bytes = record.get(body..body + length).context("a value ends behind its record")?;
        found.push(match kind {
            0 => Value::Null,
            1..=6 => Value::Integer(signed(bytes)),
            7 => Value::Real(f64::from_bits(signed(bytes) as u64)),
            8 | 9 => Value::Integer(kind - 8),
            _ => Value::Bytes(bytes),
        });
        (at, body) = (next, body + length);
    }
    Ok(found)
}

/// Length of a value by its serial type, bytes.
fn length_of(kind: i64) -> Result<usize> {
    Ok(match kind {
        0 | 8 | 9 => 0,
        1..=4 => kind as usize,
        5 => 6,
        6 | 7 => 8,
        12.. => ((kind - 12) / 2) as usize,
        _ => bail!("unknown type {kind} of a value"),
    })
}

/// A big-endian two's complement number of at most eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let first = bytes.first().map_or(0, |byte| i64::from(*byte as i8));
    bytes.iter().skip(1).fold(first, |number, byte| number << 8 | i64::from(*byte))
}

fn big_endian(bytes: &[u8], at: usize, length: usize) -> Result<u64> {
    let bytes = bytes.get(at..at + length).context("the page is too short")?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A number of one to nine bytes, and the position behind it.
fn varint(bytes: &[u8], at: usize) -> Result<(i64, usize)> {
    let mut number = 0i64;
    for index in 0..9 {
        let byte = *bytes.get(at + index).context("a number ends behind its page")?;
        if index == 8 {
            return Ok((number << 8 | i64::from(byte), at + 9));
        }
        number = number << 7 | i64::from(byte & 0x7f);
        if byte < 0x80 {
            return Ok((number, at + index + 1));
        }
    }
    bail!("a number has more than nine bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_two_and_nine_bytes() {
        assert_eq!(varint(&[0x7f], 0).unwrap(), (127, 1));
        assert_eq!(varint(&[0x81, 0x00], 0).unwrap(), (128, 2));
        assert_eq!(varint(&[0xff; 9], 0).unwrap(), (-1, 9));
        assert!(varint(&[0x80], 0).is_err());
    }

    #[test]
    fn values_have_their_types() {
        // Header of five bytes: NULL, one byte, the constant 1, a text of two bytes.
        let record = [5, 0, 1, 9, 17, 0xfe, b'a', b'b'];
        let expected = [Value::Null, Value::Integer(-2), Value::Integer(1), Value::Bytes(b"ab")];
        assert_eq!(values(&record).unwrap(), expected);
        assert!(values(&record[..7]).is_err());
    }

    #[test]
    fn damaged_pages_are_errors() {
        let header = Header { page_bytes: 512, reserved_bytes: 0 };
        assert!(entries(&header, 2, &[]).is_err());
        assert!(entries(&header, 2, &[13, 0, 0, 0xff, 0xff, 0, 0, 0]).is_err());
        assert!(entries(&header, 2, &[7; 512]).is_err());
    }
}
