//! Writes and checks the fixed header before the body.

use crate::error::DecodeError;
use crate::layout::{CHECKSUM_AT, LENGTH, MAGIC, MAJOR, MAX_FILE_BYTES, MINOR};

/// Adds the header to a body.
pub fn wrap(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&MAJOR.to_le_bytes());
    bytes.extend_from_slice(&MINOR.to_le_bytes());
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&checksum(&bytes, body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Checks the header and the checksum, and returns the body.
pub fn unwrap(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let have = bytes.len() as u64;
    if have > MAX_FILE_BYTES {
        return Err(DecodeError::TooLarge { bytes: have, limit: MAX_FILE_BYTES });
    }
    // A short file that begins like a profile is a truncated profile, anything else is not one.
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if magic.is_empty() || !MAGIC.starts_with(magic) {
        return Err(DecodeError::NotAProfile);
    }
    let Some((header, body)) = bytes.split_first_chunk::<LENGTH>() else {
        return Err(DecodeError::Truncated { have, want: LENGTH as u64 });
    };
    let major = u16::from_le_bytes([header[8], header[9]]);
    let minor = u16::from_le_bytes([header[10], header[11]]);
    if major > MAJOR {
        return Err(DecodeError::Newer { major, minor });
    }
    if major < MAJOR {
        return Err(DecodeError::Header { offset: 8, reason: format!("unknown format version {major}") });
    }
    if header[12..16] != [0; 4] {
        return Err(DecodeError::Header { offset: 12, reason: "unknown flags".into() });
    }
    let length = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
    let want = length.saturating_add(LENGTH as u64);
    if want > MAX_FILE_BYTES {
        return Err(DecodeError::Header { offset: 16, reason: format!("a body of {length} bytes is too large") });
    }
    if have < want {
        return Err(DecodeError::Truncated { have, want });
    }
    if have > want {
        return Err(DecodeError::Trailing { offset: want, extra: have - want });
    }
    let stored = u32::from_le_bytes(header[CHECKSUM_AT..].try_into().expect("four bytes"));
    let computed = checksum(&header[..CHECKSUM_AT], body);
    if stored != computed {
        return Err(DecodeError::Checksum { end: have, stored, computed });
    }
    Ok(body)
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(body);
    hasher.finalize()
}
