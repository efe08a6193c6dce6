//! The file format of a trace: a header, blocks of records with checksums, a trailer.
//!
//! ```text
//!     "AHDTRACE" version  │ length crc header │ length crc records … │ length crc records │ 0 │ length crc trailer
//! ```
//!
//! Lengths, checksums (CRC-32) and the version have four bytes, little endian. Header, records and trailer are encoded by
//! postcard (varints) and deflated block by block: most records are consecutive pages and take one or two bytes. A trace is
//! untrusted until it is parsed: no block is longer than [`MOST_BLOCK_BYTES`], deflated or not, and a truncated trace is
//! distinguished from a complete one.

use crate::traces::record::{Header, Record, Trailer};
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};

/// The first bytes of a trace.
pub const MAGIC: &[u8; 8] = b"AHDTRACE";
/// The format version. Only this one is read.
const VERSION: u32 = 2;
/// A block of at least this size is written. Unit: bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// Compression level, of at most ten: low, so that the recording is not delayed.
const DEFLATE_LEVEL: u8 = 3;
/// Maximum length of a block: [`BLOCK_BYTES`] and the longest record. Unit: bytes.
pub const MOST_BLOCK_BYTES: usize = 128 << 10;

/// An error in reading or writing a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not a trace.
    #[error("not a trace of `ahead sim trace` (it does not begin with AHDTRACE)")]
    NotATrace,
    /// Another version of the format.
    #[error("the trace has format version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// The file ends too early.
    #[error("the trace is truncated at byte {at}, within {within}")]
    CutShort {
        /// Length of the file, bytes.
        at: u64,
        /// The part that was being read.
        within: &'static str,
    },
    /// The content is damaged.
    #[error("the trace is damaged: {what} at byte {at}")]
    Damaged {
        /// Position, bytes.
        at: u64,
        /// The problem.
        what: String,
    },
    /// A record cannot be encoded.
    #[error("cannot encode a record: {0}")]
    Encode(postcard::Error),
}

/// Writes a trace.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    block: Vec<u8>,
    records: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    ///
    /// Errors: writing failed.
    pub fn new(mut to: W, header: &Header) -> Result<Writer<W>, TraceError> {
        to.write_all(MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        write_block(&mut to, &encode(header)?)?;
        Ok(Writer { to, block: Vec::with_capacity(MOST_BLOCK_BYTES), records: 0 })
    }

    /// Adds a record.
    ///
    /// Errors: writing failed.
    pub fn add(&mut self, record: &Record) -> Result<(), TraceError> {
        self.block = postcard::to_extend(record, std::mem::take(&mut self.block)).map_err(TraceError::Encode)?;
        self.records += 1;
        if self.block.len() >= BLOCK_BYTES {
            write_block(&mut self.to, &self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Writes the trailer, and returns it and the writer.
    ///
    /// Errors: writing failed.
    pub fn finish(mut self, lost: u64) -> Result<(Trailer, W), TraceError> {
        if !self.block.is_empty() {
            write_block(&mut self.to, &self.block)?;
        }
        let trailer = Trailer { records: self.records, lost };
        self.to.write_all(&0u32.to_le_bytes())?;
        write_block(&mut self.to, &encode(&trailer)?)?;
        self.to.flush()?;
        Ok((trailer, self.to))
    }
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TraceError> {
    postcard::to_stdvec(value).map_err(TraceError::Encode)
}

fn write_block(to: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    let bytes = &compress_to_vec(bytes, DEFLATE_LEVEL)[..];
    to.write_all(&(bytes.len() as u32).to_le_bytes())?;
    to.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
    to.write_all(bytes)
}

/// Reads a trace, record by record.
#[derive(Debug)]
pub struct Reader<R: Read> {
    from: R,
    at: u64,
    header: Header,
    block: Vec<u8>,
    /// Bytes of the block that have been decoded.
    used: usize,
    block_at: u64,
    records: u64,
    trailer: Option<Trailer>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// Errors: not a trace, another version, truncated or damaged.
    pub fn new(from: R) -> Result<Reader<R>, TraceError> {
        let header = Header { kernel: String::new(), machine: String::new(), page_bytes: 0, command: Vec::new() };
        let (block, trailer) = (Vec::new(), None);
        let mut reader = Reader { from, at: 0, header, block, used: 0, block_at: 0, records: 0, trailer };
        let mut magic = [0; MAGIC.len()];
        match reader.fill(&mut magic, "the header") {
            Ok(()) if &magic == MAGIC => {}
            Ok(()) | Err(TraceError::CutShort { .. }) => return Err(TraceError::NotATrace),
            Err(error) => return Err(error),
        }
        match reader.number("the header")? {
            VERSION => {}
            other => return Err(TraceError::Version(other)),
        }
        let length = reader.number("the header")?;
        let bytes = reader.block(length, "the header")?;
        reader.header = reader.decode(&bytes)?;
        Ok(reader)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The trailer, after the last record was read.
    pub fn trailer(&self) -> Option<Trailer> {
        self.trailer
    }

    /// The next record. `None`: the trace is complete.
    ///
    /// Errors: truncated or damaged.
    pub fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while self.used == self.block.len() {
            if self.trailer.is_some() {
                return Ok(None);
            }
            let length = self.number("the records")?;
            if length == 0 {
                self.end()?;
                return Ok(None);
            }
            self.block_at = self.at;
            self.block = self.block(length, "the records")?;
            self.used = 0;
        }
        let rest = &self.block[self.used..];
        let (record, after) = postcard::take_from_bytes::<Record>(rest).map_err(|error| TraceError::Damaged {
            at: self.block_at + self.used as u64,
            what: format!("an invalid record ({error})"),
        })?;
        self.used = self.block.len() - after.len();
        self.records += 1;
        Ok(Some(record))
    }

    fn end(&mut self) -> Result<(), TraceError> {
        let length = self.number("the trailer")?;
        let bytes = self.block(length, "the trailer")?;
        let trailer: Trailer = self.decode(&bytes)?;
        if trailer.records != self.records {
            let what = format!("{} records instead of {}", self.records, trailer.records);
            return Err(TraceError::Damaged { at: self.at, what });
        }
        if self.from.read(&mut [0])? > 0 {
            return Err(TraceError::Damaged { at: self.at, what: "data after the trailer".into() });
        }
        self.trailer = Some(trailer);
        Ok(())
    }

    fn decode<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, TraceError> {
        let damaged = |error| TraceError::Damaged { at: self.at, what: format!("unreadable ({error})") };
        postcard::from_bytes(bytes).map_err(damaged)
    }

    fn number(&mut self, within: &'static str) -> Result<u32, TraceError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes, within)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn block(&mut self, length: u32, within: &'static str) -> Result<Vec<u8>, TraceError> {
        let at = self.at;
        if length as usize > MOST_BLOCK_BYTES {
            return Err(TraceError::Damaged { at, what: format!("a block of {length} bytes") });
        }
        let checksum = self.number(within)?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes, within)?;
        if crc32fast::hash(&bytes) != checksum {
            return Err(TraceError::Damaged { at, what: format!("wrong checksum of {within}") });
        }
        decompress_to_vec_with_limit(&bytes, MOST_BLOCK_BYTES).map_err(|error| TraceError::Damaged {
            at,
            what: format!("{within} cannot be inflated ({:?})", error.status),
        })
    }

    fn fill(&mut self, bytes: &mut [u8], within: &'static str) -> Result<(), TraceError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.from.read(&mut bytes[filled..]) {
                Ok(0) => return Err(TraceError::CutShort { at: self.at, within }),
                Ok(count) => (filled, self.at) = (filled + count, self.at + count as u64),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
