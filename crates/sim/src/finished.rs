//! What is told of single calls while a machine runs.

use ahead_policy::{Call, FileId};

/// A call that reads, or a row of pages that was touched, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Who: the number of the program.
    pub program: usize,
    /// Of this file.
    pub file: FileId,
    /// What it asked for.
    pub call: Call,
    /// When it began, nanoseconds.
    pub began_ns: u64,
    /// When it ended, nanoseconds.
    pub ended_ns: u64,
}

/// Is told of every call that has ended.
pub type Watch<'a> = &'a mut dyn FnMut(&Finished);
