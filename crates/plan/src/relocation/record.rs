//! The record of a relocation: what was to be exchanged, and where both sides lay before.
//!
//! It is complete and durable before the first exchange, and is not changed afterwards. Which exchanges have been made is found by
//! comparing the places of now with it, so that no moment of a crash leaves a record that is wrong.

use super::placement::Move;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Maximum size of a record, bytes: about 400,000 moves.
pub const MAX_RECORD_BYTES: u64 = 64 << 20;

/// The format.
const VERSION: u32 = 1;

/// A file of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackedFile {
    /// Its path when packed.
    #[serde(with = "as_text")]
    pub path: Vec<u8>,
    pub inode: u64,
    /// Generation of the inode: another file with the same number has another one.
    pub generation: u32,
    /// Size when packed, bytes.
    pub size_bytes: u64,
    /// Modification time when packed, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// What one relocation was to exchange in one file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of the format.
    version: u32,
    /// The profile, as an absolute path.
    #[serde(with = "as_text")]
    pub profile: Vec<u8>,
    /// When it was planned, seconds since 1970.
    pub created_unix_s: u64,
    /// Size of a block of the file system, bytes.
    pub block_bytes: u64,
    pub donor_inode: u64,
    pub files: Vec<PackedFile>,
    /// The exchanges, in the order on the disk.
    pub moves: Vec<Move>,
}

/// A record that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON of this form.
    #[error("not a record of a relocation: {0}")]
    Format(String),
    /// Another version.
    #[error("its version is {0}; this program reads version {VERSION}")]
    Version(u32),
    /// A value that no relocation writes.
    #[error("move {0}: {1}")]
    Move(usize, &'static str),
}

impl Record {
    /// A record of these moves; `Move::file` is an index into `files`.
    pub fn new(profile: Vec<u8>, created_unix_s: u64, block_bytes: u64, donor_inode: u64) -> Record {
        Record {
            version: VERSION,
            profile,
            created_unix_s,
            block_bytes,
            donor_inode,
            files: Vec::new(),
            moves: Vec::new(),
        }
    }

    /// Adds the moves of [`super::place`], whose files are indices in the profile. `file` gives the entry of each.
    pub fn add(&mut self, moves: Vec<Move>, mut file: impl FnMut(usize) -> PackedFile) {
        let mut known: HashMap<usize, usize> = HashMap::new();
        for one in moves {
            let index = *known.entry(one.file).or_insert_with(|| {
                self.files.push(file(one.file));
                self.files.len() - 1
            });
            self.moves.push(Move { file: index, ..one });
        }
    }

    /// Bytes of all exchanges.
    pub fn bytes(&self) -> u64 {
        self.moves.iter().map(|one| one.length_bytes).sum()
    }

    /// The text of the record.
    pub fn encode(&self) -> String {
        serde_json::to_string(self).expect("a record has only numbers and text") + "\n"
    }

    /// Reads and checks a record.
    ///
    /// # Errors
    /// Another format or version; a move of a file that is not listed, of no whole blocks, or of a byte of the donor or of a file that
    /// another move has.
    pub fn decode(text: &[u8]) -> Result<Record, RecordError> {
        let record: Record = serde_json::from_slice(text).map_err(|error| RecordError::Format(error.to_string()))?;
        if record.version != VERSION {
            return Err(RecordError::Version(record.version));
        }
        record.check().map_err(|(index, why)| RecordError::Move(index, why))?;
        Ok(record)
    }

    fn check(&self) -> Result<(), (usize, &'static str)> {
        let mut ranges = Vec::with_capacity(2 * self.moves.len());
        for (index, one) in self.moves.iter().enumerate() {
            let Move { file, offset_bytes, donor_bytes, length_bytes, old_physical_bytes, new_physical_bytes } = *one;
            let starts = [offset_bytes, donor_bytes, old_physical_bytes, new_physical_bytes];
            if file >= self.files.len() {
                return Err((index, "its file is not in the list"));
            }
            if starts.iter().any(|start| start.checked_add(length_bytes).is_none_or(|end| end > i64::MAX as u64)) {
                return Err((index, "it lies beyond the end of every file"));
            }
            let is_aligned = |bytes: &u64| self.block_bytes > 0 && bytes.is_multiple_of(self.block_bytes);
            if length_bytes == 0 || !starts.iter().chain([&length_bytes]).all(is_aligned) {
                return Err((index, "it has no whole blocks"));
            }
            ranges.push((Some(file), offset_bytes, length_bytes, index));
            ranges.push((None, donor_bytes, length_bytes, index));
        }
        ranges.sort_unstable();
        let twice = ranges.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 + pair[0].2 > pair[1].1);
        twice.map_or(Ok(()), |pair| Err((pair[1].3, "another move has the same bytes")))
    }
}

/// Paths as text: bytes that are not printable ASCII, and `%`, are written as `%XX`.
mod as_text {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Write;

    pub fn serialize<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(path.len());
        for byte in path {
            match byte {
                b' '..=b'~' if *byte != b'%' => text.push(*byte as char),
                _ => write!(text, "%{byte:02X}").expect("a string takes any text"),
            }
        }
        serializer.serialize_str(&text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut path = Vec::with_capacity(text.len());
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            let mut digit = || bytes.next().and_then(|digit| (digit as char).to_digit(16));
            path.push(match byte {
                b'%' => match (digit(), digit()) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(D::Error::custom("% without two digits in a path")),
                },
                other => other,
            });
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(path: &[u8]) -> PackedFile {
        PackedFile { path: path.into(), inode: 12, generation: 7, size_bytes: 9000, mtime_ns: -5 }
    }

    fn one(file: usize, offset_bytes: u64, donor_bytes: u64) -> Move {
        Move {
            file,
            offset_bytes,
            donor_bytes,
            length_bytes: 4096,
            old_physical_bytes: 8192,
            new_physical_bytes: 12_288,
        }
    }

    fn record(moves: Vec<Move>) -> Record {
        let mut record = Record::new(b"/p.ahead".to_vec(), 1, 4096, 5);
        record.add(moves, |_| file(b"/a%b\xff\n"));
        record
    }

    #[test]
    fn record_is_read_as_it_was_written() {
        let record = record(vec![one(7, 0, 0), one(3, 4096, 4096), one(7, 4096, 8192)]);
        assert_eq!((record.files.len(), record.moves[2].file), (2, 0));
        assert_eq!(Record::decode(record.encode().as_bytes()).unwrap(), record);
    }

    #[test]
    fn impossible_moves_are_refused() {
        let refused = |record: Record| Record::decode(record.encode().as_bytes()).unwrap_err().to_string();
        assert!(refused(record(vec![one(0, 0, 0), one(0, 0, 4096)])).contains("same bytes"));
        assert!(refused(record(vec![one(0, 0, 0), one(1, 0, 0)])).contains("same bytes"));
        assert!(refused(record(vec![one(0, 100, 0)])).contains("whole blocks"));
        let beyond = Move { offset_bytes: u64::MAX - 4095, ..one(0, 0, 0) };
        assert!(refused(record(vec![beyond])).contains("beyond"));
        let mut other = record(vec![one(0, 0, 0)]);
        other.moves[0].file = 1;
        assert!(refused(other).contains("not in the list"));
        assert!(refused(Record { version: 2, ..record(vec![]) }).contains("version is 2"));
    }

    proptest! {
        #[test]
        fn hostile_text_is_an_error(text in "\\PC{0,200}") {
            prop_assert!(Record::decode(text.as_bytes()).is_err());
        }

        #[test]
        fn any_path_is_read_as_it_was_written(path in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut record = Record::new(path, 1, 4096, 5);
            record.add(vec![one(0, 0, 0)], |_| file(b"/x"));
            prop_assert_eq!(Record::decode(record.encode().as_bytes()).unwrap(), record);
        }
    }
}
