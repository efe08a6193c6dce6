//! Recorded operations of programs for a later run: the seam for recorded workloads.
//!
//! This crate reads no recordings. The caller that loads a scenario passes [`Recordings`], which reads a file. The
//! result is the operations of each program, in order, with files and openings numbered from 0, and the length of each
//! file.

use crate::planned::UsedRanges;
use crate::workload::{Mapped, Op};
use ahead_policy::{FileId, OpenId, PAGE_BYTES};
use std::path::Path;
use std::sync::Arc;

/// The limit on openings of a recording: the machine keeps a table of them.
const MOST_OPENS: u32 = 1 << 20;

/// The kinds of recordings that a scenario can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingKind {
    /// A profile of `ahead record`: the pages that a program's start used, in order.
    Profile,
    /// A raw trace: every access.
    Trace,
}

/// Reads recordings.
pub trait Recordings {
    /// Reads the file at `path`.
    ///
    /// Errors: the reason, in one line.
    fn load(&self, kind: RecordingKind, path: &Path) -> Result<Recording, String>;
}

/// Reads no recording: for scenarios whose workloads are all patterns.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecordings;

impl Recordings for NoRecordings {
    fn load(&self, _kind: RecordingKind, _path: &Path) -> Result<Recording, String> {
        Err("recordings cannot be read here; ahead sim run and ahead sim sweep can".into())
    }
}

/// The recorded operations of programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The length of each file, pages. The files are on the disk in this order.
    pub file_pages: Vec<u64>,
    /// The operations of each program.
    pub programs: Vec<Arc<[Op]>>,
    /// What a prefetch of the recording reads; `None`: it is no profile.
    pub used: Option<Arc<UsedRanges>>,
}

/// The way in which a recording is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Whether pages are touched through a mapping instead of read by calls.
    pub mapped: bool,
    /// The limit on the length of a call, bytes.
    pub call_bytes: u64,
}

impl Recording {
    /// Checks that the operations name existing files and openings, and that the files fit on a disk.
    ///
    /// Errors: the first mismatch.
    pub fn check(&self) -> Result<(), String> {
        let most_pages = ahead_device::MAX_CAPACITY_BYTES / PAGE_BYTES;
        if self.file_pages.iter().fold(0, |sum: u64, pages| sum.saturating_add(*pages)) > most_pages {
            return Err(format!("its files have more than the {} GiB of the largest disk", most_pages >> 18));
        }
        for op in self.programs.iter().flat_map(|program| program.iter()) {
            let (open, file) = op.names();
            if file.is_some_and(|file| file.0 as usize >= self.file_pages.len()) {
                return Err(format!("an operation names a file that there is not: {op:?}"));
            }
            if open.is_some_and(|open| open.0 >= MOST_OPENS) {
                return Err(format!("an opening has a number from 0 to {}: {op:?}", MOST_OPENS - 1));
            }
        }
        Ok(())
    }

    /// The number of openings, counted up to the highest number.
    pub fn opens(&self) -> u32 {
        let opens = self.programs.iter().flat_map(|program| program.iter()).filter_map(|op| op.names().0);
        opens.map(|open| open.0 + 1).max().unwrap_or(0)
    }

    /// The limit on steps: accesses to pages, calls, slices of computing.
    pub fn steps(&self, slice_ns: u64) -> u64 {
        let steps = |op: &Op| match *op {
            Op::Read { length_bytes, .. } | Op::Write { length_bytes, .. } => 2 + length_bytes / PAGE_BYTES,
            Op::Touch { pages, .. } => 1 + pages,
            Op::Compute { time_ns } => 1 + time_ns / slice_ns.max(1),
            _ => 1,
        };
        let ops = self.programs.iter().flat_map(|program| program.iter());
        ops.fold(0, |sum: u64, op| sum.saturating_add(steps(op)))
    }

    /// The same recording in this manner: reads are cut into calls, or become touches of their pages.
    pub fn done(&self, manner: Manner) -> Recording {
        let done = |op: &Op| -> Vec<Op> {
            let Op::Read { open, file, offset_bytes, length_bytes } = *op else { return vec![*op] };
            let end = offset_bytes.saturating_add(length_bytes);
            if manner.mapped {
                let first = offset_bytes / PAGE_BYTES;
                let pages = end.div_ceil(PAGE_BYTES) - first;
                return vec![Op::Touch { open, file, first, pages, mapped: Mapped::default() }];
            }
            let call_bytes = manner.call_bytes.max(1);
            let starts = (offset_bytes..end).step_by(usize::try_from(call_bytes).unwrap_or(usize::MAX));
            let call = |at: u64| Op::Read { open, file, offset_bytes: at, length_bytes: call_bytes.min(end - at) };
            starts.map(call).collect()
        };
        let programs = self.programs.iter().map(|program| program.iter().flat_map(done).collect()).collect();
        Recording { file_pages: self.file_pages.clone(), programs, used: self.used.clone() }
    }
}

impl Op {
    /// The opening and the file that the operation names.
    pub fn names(&self) -> (Option<OpenId>, Option<FileId>) {
        match *self {
            Op::Open { open, file }
            | Op::Advise { open, file, .. }
            | Op::Read { open, file, .. }
            | Op::Write { open, file, .. }
            | Op::Seek { open, file, .. }
            | Op::Touch { open, file, .. } => (Some(open), Some(file)),
            Op::Close { open } => (Some(open), None),
            Op::Sync { file } => (None, Some(file)),
            Op::Compute { .. } | Op::Sleep { .. } | Op::Prefetch(_) => (None, None),
        }
    }

    /// The same operation with file and opening numbers increased by these amounts.
    pub(crate) fn shifted(mut self, files: u32, opens: u32) -> Op {
        match &mut self {
            Op::Open { open, file }
            | Op::Advise { open, file, .. }
            | Op::Read { open, file, .. }
            | Op::Write { open, file, .. }
            | Op::Seek { open, file, .. }
            | Op::Touch { open, file, .. } => (open.0, file.0) = (open.0 + opens, file.0 + files),
            Op::Close { open } => open.0 += opens,
            Op::Sync { file } => file.0 += files,
            Op::Compute { .. } | Op::Sleep { .. } | Op::Prefetch(_) => {}
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Op = Op::Read { open: OpenId(0), file: FileId(0), offset_bytes: 6000, length_bytes: 9000 };

    fn recording(ops: &[Op]) -> Recording {
        Recording { file_pages: vec![10], programs: vec![ops.into()], used: None }
    }

    #[test]
    fn reads_are_cut_or_become_touches() {
        let done = |mapped, call_bytes| recording(&[READ]).done(Manner { mapped, call_bytes }).programs[0].to_vec();
        let lengths: Vec<u64> = done(false, 4096)
            .iter()
            .map(|op| if let Op::Read { length_bytes, .. } = op { *length_bytes } else { 0 })
            .collect();
        assert_eq!(lengths, [4096, 4096, 808]);
        let touch = Op::Touch { open: OpenId(0), file: FileId(0), first: 1, pages: 3, mapped: Mapped::default() };
        assert_eq!(done(true, 4096), [touch]);
    }

    #[test]
    fn unknown_files_and_openings_are_refused() {
        assert!(recording(&[READ]).check().is_ok());
        let shifted = recording(&[READ.shifted(1, 0)]);
        assert!(shifted.check().unwrap_err().contains("a file that there is not"));
        assert!(recording(&[READ.shifted(0, 1 << 20)]).check().unwrap_err().contains("from 0 to 1048575"));
        assert_eq!((recording(&[READ.shifted(0, 6)]).opens(), recording(&[]).opens()), (7, 0));
    }
}
