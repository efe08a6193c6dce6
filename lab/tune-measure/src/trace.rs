//! A trace as a job: what programs did, again, on files of the same lengths.
//!
//! A trace knows files by number, not by name, and it may come from another machine. What counts for read-ahead is the pattern: who
//! reads where, in what order, with which pauses. So files are made for it, no longer than its reads reach and a window beyond.

use crate::ground::Ground;
use crate::replay::Task;
use crate::work::{Ran, touched_bytes};
use crate::{CANDIDATES_KB, Error, Result};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Op, Recording};
use std::sync::atomic::AtomicBool;

/// Each program is a thread.
const MOST_PROGRAMS: usize = 256;
/// Each file is made, and evicted before each run.
const MOST_FILES: usize = 1 << 14;

/// A trace that can be run.
#[derive(Debug)]
pub(crate) struct Trace<'a> {
    name: &'a str,
    recording: &'a Recording,
    sizes: Vec<u64>,
}

impl<'a> Trace<'a> {
    /// Errors: it reads nothing, or more than can be done again.
    pub fn new(name: &'a str, recording: &'a Recording) -> Result<Trace<'a>> {
        let refused = |why: String| Error::Workload(format!("{name}: {why}"));
        recording.check().map_err(refused)?;
        let (programs, files) = (recording.programs.len(), recording.file_pages.len());
        if programs > MOST_PROGRAMS || files > MOST_FILES {
            let most = format!("at most {MOST_PROGRAMS} and {MOST_FILES} can be measured with");
            return Err(refused(format!("it has {programs} threads and {files} files; {most}")));
        }
        let sizes = sizes(recording);
        if sizes.iter().all(|size| *size == 0) {
            return Err(refused("nothing is read in it".into()));
        }
        Ok(Trace { name, recording, sizes })
    }

    pub fn name(&self) -> &str {
        self.name
    }

    /// How long its files have to be, bytes.
    pub fn sizes(&self) -> Vec<u64> {
        self.sizes.clone()
    }

    /// Bytes of the pages that it uses.
    pub fn used_bytes(&self) -> u64 {
        let read = |op: &Op| match *op {
            Op::Read { file, offset_bytes, length_bytes, .. } => Some((file, offset_bytes, length_bytes)),
            Op::Touch { file, first, pages, .. } => {
                Some((file, first.saturating_mul(PAGE_BYTES), pages.saturating_mul(PAGE_BYTES)))
            }
            _ => None,
        };
        let reads = self.recording.programs.iter().flat_map(|program| program.iter()).filter_map(read);
        touched_bytes(reads.map(|(file, offset, length)| {
            let end = self.sizes[file.0 as usize];
            (file.0 as usize, offset.min(end)..offset.saturating_add(length).min(end))
        }))
    }

    /// Runs it once, cold.
    ///
    /// Errors: reading failed; it was asked to stop.
    pub fn run(&self, ground: &Ground, stop: &AtomicBool) -> Result<Ran> {
        let task = |program: &'a std::sync::Arc<[Op]>| Task { ops: Box::new(program.iter().copied()), first: 0 };
        let seen = ground.replay(self.recording.programs.iter().map(task).collect(), stop)?;
        Ok(Ran {
            bytes_per_s: seen.read_bytes as f64 / seen.waited.as_secs_f64().max(1e-9),
            longest_call_s: seen.latency_most.as_secs_f64(),
            cached_bytes: ground.cached_bytes_of_all()?,
        })
    }
}

/// How far the reads of each file reach, and the largest window beyond that; no file is longer than it was.
fn sizes(recording: &Recording) -> Vec<u64> {
    let mut ends = vec![0; recording.file_pages.len()];
    for op in recording.programs.iter().flat_map(|program| program.iter()) {
        let (file, end) = match *op {
            Op::Read { file, offset_bytes, length_bytes, .. } => (file, offset_bytes.saturating_add(length_bytes)),
            Op::Touch { file, first, pages, .. } => (file, first.saturating_add(pages).saturating_mul(PAGE_BYTES)),
            _ => continue,
        };
        let known: &mut u64 = &mut ends[file.0 as usize];
        *known = end.max(*known);
    }
    let window_bytes = CANDIDATES_KB.last().map_or(0, |kb| kb << 10);
    let size = |(end, pages): (&u64, &u64)| match end {
        0 => 0,
        end => end.saturating_add(window_bytes).min(pages * PAGE_BYTES),
    };
    ends.iter().zip(&recording.file_pages).map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_policy::{FileId, OpenId};
    use ahead_sim::Mapped;

    fn recording(programs: usize) -> Recording {
        let read =
            |file, offset_bytes| Op::Read { open: OpenId(file), file: FileId(file), offset_bytes, length_bytes: 4096 };
        let touch = Op::Touch { open: OpenId(1), file: FileId(1), first: 1, pages: 1, mapped: Mapped::default() };
        let ops = [read(0, 1 << 20), touch, read(0, 0)];
        Recording { file_pages: vec![1 << 20, 10, 7], programs: vec![ops.into(); programs] }
    }

    #[test]
    fn files_are_as_long_as_the_reads_need() {
        let recording = recording(2);
        let trace = Trace::new("x", &recording).unwrap();
        assert_eq!(trace.sizes(), [(1 << 20) + 4096 + (16 << 20), 10 * 4096, 0]);
        // Three pages, whoever reads them how often.
        assert_eq!(trace.used_bytes(), 3 * 4096);
    }

    #[test]
    fn what_cannot_be_done_again_is_refused() {
        assert!(Trace::new("x", &recording(0)).unwrap_err().to_string().contains("nothing is read"));
        assert!(Trace::new("x", &recording(257)).unwrap_err().to_string().contains("257 threads"));
        let mut strange = recording(1);
        strange.file_pages.pop();
        strange.file_pages.pop();
        assert!(Trace::new("x", &strange).is_err());
    }
}
