//! A trace as a job: the operations of its programs, repeated on files of the same lengths.
//!
//! A trace identifies files by number, not by name, and may come from another machine. For read-ahead only the pattern counts: the order
//! of reads and pauses in each program. So the measurement makes files for the trace; each ends one window after the last byte that a
//! program reads.

use crate::tune::regions::TestRegions;
use crate::tune::replay::Task;
use crate::tune::work::{WorkloadResult, touched_bytes};
use crate::tune::{CANDIDATES_KB, Error, Result};
use ahead_policy::PAGE_BYTES;
use ahead_sim::{Op, Recording};
use std::sync::atomic::AtomicBool;

/// Limit of programs, because each one is a thread.
const MAX_PROGRAMS: usize = 256;
/// Limit of files, because each one is made, and evicted before each run.
const MAX_FILES: usize = 1 << 14;

/// A trace that can be run.
#[derive(Debug)]
pub(crate) struct TraceWorkload<'a> {
    name: &'a str,
    recording: &'a Recording,
    sizes: Vec<u64>,
}

impl<'a> TraceWorkload<'a> {
    /// Errors: the trace reads nothing, or exceeds the limits of a measurement.
    pub fn new(name: &'a str, recording: &'a Recording) -> Result<TraceWorkload<'a>> {
        let refused = |why: String| Error::Workload(format!("{name}: {why}"));
        recording.check().map_err(refused)?;
        let (programs, files) = (recording.programs.len(), recording.file_pages.len());
        if programs > MAX_PROGRAMS || files > MAX_FILES {
            let limits = format!("the limits are {MAX_PROGRAMS} threads and {MAX_FILES} files");
            return Err(refused(format!("the trace has {programs} threads and {files} files; {limits}")));
        }
        let sizes = sizes(recording);
        if sizes.iter().all(|size| *size == 0) {
            return Err(refused("the trace reads nothing".into()));
        }
        Ok(TraceWorkload { name, recording, sizes })
    }

    pub fn name(&self) -> &str {
        self.name
    }

    /// Sizes of the trace's files, bytes.
    pub fn sizes(&self) -> Vec<u64> {
        self.sizes.clone()
    }

    /// Bytes of the pages that the trace uses.
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

    /// Runs the trace once, cold.
    ///
    /// Errors: a read failed; `stop` was set.
    pub fn run(&self, regions: &TestRegions, stop: &AtomicBool) -> Result<WorkloadResult> {
        let task = |program: &'a std::sync::Arc<[Op]>| Task { ops: Box::new(program.iter().copied()), first: 0 };
        let result = regions.replay(self.recording.programs.iter().map(task).collect(), stop)?;
        Ok(WorkloadResult {
            bytes_per_s: result.read_bytes as f64 / result.waited.as_secs_f64().max(1e-9),
            longest_call_s: result.latency_most.as_secs_f64(),
            cached_bytes: regions.cached_bytes_of_all()?,
        })
    }
}

/// For each file the end of its last read plus the largest window, but no more than the length of the recorded file.
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
        Recording { file_pages: vec![1 << 20, 10, 7], programs: vec![ops.into(); programs], used: None }
    }

    #[test]
    fn test_files_end_one_window_after_the_last_read() {
        let recording = recording(2);
        let trace = TraceWorkload::new("x", &recording).unwrap();
        assert_eq!(trace.sizes(), [(1 << 20) + 4096 + (16 << 20), 10 * 4096, 0]);
        // Three pages, with any number of reads.
        assert_eq!(trace.used_bytes(), 3 * 4096);
    }

    #[test]
    fn trace_beyond_the_limits_is_refused() {
        assert!(TraceWorkload::new("x", &recording(0)).unwrap_err().to_string().contains("reads nothing"));
        assert!(TraceWorkload::new("x", &recording(257)).unwrap_err().to_string().contains("257 threads"));
        let mut strange = recording(1);
        strange.file_pages.pop();
        strange.file_pages.pop();
        assert!(TraceWorkload::new("x", &strange).is_err());
    }
}
