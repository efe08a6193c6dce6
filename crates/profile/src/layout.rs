//! The layout of the fixed header before the body.
//!
//! ```text
//!     byte  0        8      10     12       16           24        28
//!           ┌────────┬──────┬──────┬────────┬────────────┬─────────┬──────────────────────────┐
//!           │ magic  │major │minor │flags=0 │body length │ CRC-32  │ body: one CBOR map       │
//!           └────────┴──────┴──────┴────────┴────────────┴─────────┴──────────────────────────┘
//!                     little-endian numbers               of bytes 0..24 and of the body
//! ```

/// The first bytes of a profile: a byte that no text contains, the name, and a line end that a text-mode transfer changes.
pub const MAGIC: [u8; 8] = *b"\x89AHEAD\r\n";
/// Incremented when an older reader would misinterpret the format.
pub const MAJOR: u16 = 1;
/// Incremented when keys or trailing fields are added, which an older reader skips.
pub const MINOR: u16 = 0;
/// Offset of the checksum.
pub const CHECKSUM_AT: usize = 24;
/// Length of the header, bytes.
pub const LENGTH: usize = 28;
/// Maximum size of a profile, header included. A million extents take about 20 MB; recordings so far take less than
/// 2 MB.
pub const MAX_FILE_BYTES: u64 = 256 << 20;
