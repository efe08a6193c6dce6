//! The format of a trace: the reads of programs, the decisions of the kernel's read-ahead, and all inputs of these
//! decisions.
//!
//! ```text
//!     observer ──▶ Record … ──▶ Writer ──▶ trace file ──▶ Reader ──▶ Record … ──▶ Validator ──▶ comparison, replay
//! ```
//!
//! Records go in and a file comes out, or the reverse. A trace is untrusted until it is parsed: [`Reader`] limits the length of
//! every block and verifies its checksum, [`Validator`] rejects records that no kernel can produce.
//!
//! This crate must never interpret a record (that is the task of `conform` and of the simulator), and never accept a truncated
//! trace as complete.

mod file;
mod record;

pub use file::{MAGIC, MOST_BLOCK_BYTES, Reader, TraceError, Writer};
pub use record::{
    Asked, Cached, Event, Exact, FileSeen, Header, MOST_READ, Mapping, RaState, Record, SPANNING, Trailer, Use,
    VM_EXEC, VM_RAND_READ, VM_SEQ_READ, Validator, Window,
};
