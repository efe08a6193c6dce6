//! Relocation: where the recorded blocks of files go, so that a replay reads them in one sweep. Pure, without system calls and clock.
//!
//! ```text
//!     used ranges ──segments──▶ few, with small gaps ──order of first use──▶ not in place yet? ──▶ Layout
//!                                                                                                 │
//!     donor file with contiguous blocks: its runs, ascending ──────────────── place ◀─────────────┘
//!                                                                               │
//!     Timing: a replay with the old and the new places ◀── overlay ◀────────── Moves ──▶ Record (JSON, checked when read)
//! ```
//!
//! The blocks of a file and those of a donor file are exchanged, range by range. So the donor then has the old blocks, and the same
//! exchange undoes it. The [`Record`] says which ranges were to be exchanged, and where both sides lay before: what has been done
//! is found by comparing the places of now with it.
//!
//! Used ranges of files and where they lie come in; moves, expected times and the text of a record come out. This module must never
//! plan to move a byte twice, or one that has no block.

mod layout;
mod pending;
mod placement;
mod record;
mod runs;
mod segments;
mod timing;

pub use layout::{Candidate, Layout, Segment, lay_out};
pub use pending::{Direction, moved_bytes, pending};
pub use placement::{Move, NoRoom, allowed_runs, donor_bytes, place};
pub use record::{MAX_RECORD_BYTES, PackedFile, Record, RecordError};
pub use runs::{Run, Used, fragments, overlay, parts, runs_of};
pub use segments::{MAX_ADDED_FRAGMENTS, TooFragmented};
pub use timing::{Timing, Where, replay_seconds};
