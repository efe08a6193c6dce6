//! Repeats the operations of programs on regions of files or of a device, under the kernel's read-ahead.
//!
//! The replay repeats only reads and faults, and writes nothing. Each program is a thread and opens its files, so that each of its
//! streams has separate read-ahead. Programs do not wait for one another. A pause has its recorded length, but at most the time in which
//! any window arrives: a longer pause has no further effect.

use crate::bench::Gate;
use crate::tune::{Error, Result};
use ahead_policy::{Advice, FileId, OpenId, PAGE_BYTES};
use ahead_sim::{Mapped, Op};
use ahead_sys::directory::HeldFile;
use ahead_sys::mapping::Mapping;
use rustix::fs::fadvise;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// A disk reads every candidate window in less time, except the largest on the slowest disks.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// Limit of a read call, bytes: the buffer has this size.
const MAX_CALL_BYTES: u64 = 16 << 20;

/// Stack of a reader's thread, bytes: the default of Rust's threads.
const STACK_BYTES: usize = 2 << 20;

/// The region of a file or device that replaces one file of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenRegion<'a> {
    /// The file or device.
    pub file: &'a HeldFile,
    /// First byte; whole pages.
    pub offset_bytes: u64,
    pub length_bytes: u64,
}

impl OpenRegion<'_> {
    /// The path for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Opens the file or device again.
    pub fn open(&self) -> Result<File> {
        let opened = self.file.open_again(File::options().read(true));
        opened.map_err(|e| Error::io(format!("open {}", self.path().display()), e))
    }
}

/// A program: its operations, and the index of the region for its file 0.
pub(crate) struct Task<'a> {
    pub ops: Box<dyn Iterator<Item = Op> + Send + 'a>,
    pub first: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ReplayResult {
    /// From the start of the first program to the end of the last.
    pub elapsed: Duration,
    /// Sum of the time in calls and faults, over all programs.
    pub waited: Duration,
    pub read_bytes: u64,
    /// Longest call.
    pub latency_most: Duration,
    /// Time of each call, nanoseconds; empty unless the caller wants the times.
    pub each_ns: Vec<u64>,
}

/// Runs all tasks at the same time. `each`: keep the time of each call.
///
/// Errors: a read failed; `stop` was set.
pub(crate) fn replay(tasks: Vec<Task>, regions: &[OpenRegion], each: bool, stop: &AtomicBool) -> Result<ReplayResult> {
    replay_in(tasks, regions, each, stop, STACK_BYTES)
}

/// As [`replay`], with a stack of `stack_bytes` for each thread.
fn replay_in(
    tasks: Vec<Task>,
    regions: &[OpenRegion],
    each: bool,
    stop: &AtomicBool,
    stack_bytes: usize,
) -> Result<ReplayResult> {
    let (gate, count) = (&Gate::default(), tasks.len());
    let result: Vec<Result<(Instant, ReplayResult)>> = std::thread::scope(|scope| {
        let start = |Task { ops, first }| {
            let runner = TaskRunner {
                regions,
                first,
                each,
                opened: HashMap::new(),
                buffer: Vec::new(),
                result: ReplayResult::default(),
            };
            let work = move || {
                if !gate.wait() {
                    return Err(crate::bench::Error::Stopped.into());
                }
                // Each thread measures its time: the thread that waits may wake up after the first one has ended.
                let began = Instant::now();
                let result = runner.run(ops, stop)?;
                Ok((began, ReplayResult { elapsed: began.elapsed(), ..result }))
            };
            Builder::new().stack_size(stack_bytes).spawn_scoped(scope, work)
        };
        // If the kernel refuses a thread, the other threads must not wait for that thread.
        let refused = |e| Error::io("start a thread for a reader (ulimit -u, pids.max)", e);
        let threads: std::io::Result<Vec<_>> = tasks.into_iter().map(start).collect();
        let threads = threads.map_err(refused).inspect_err(|_| gate.cancel())?;
        gate.open(count, || ());
        let panicked = || Err(crate::bench::Error::Job("a reader panicked".into()).into());
        Ok::<_, Error>(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect())
    })?;
    let result = result.into_iter().collect::<Result<Vec<_>>>()?;
    let first = result.iter().map(|(began, _)| *began).min();
    let mut whole = ReplayResult::default();
    for (began, result) in result {
        let end = began + result.elapsed;
        whole.elapsed = whole.elapsed.max(first.map_or(Duration::ZERO, |first| end - first));
        whole.waited += result.waited;
        whole.read_bytes += result.read_bytes;
        whole.latency_most = whole.latency_most.max(result.latency_most);
        whole.each_ns.extend(result.each_ns);
    }
    Ok(whole)
}

/// An open file, and its mapping after the first access.
struct ReplayOpened {
    file: File,
    mapping: Option<(Mapping, Mapped)>,
}

impl ReplayOpened {
    /// The mapping with these properties. Not included: VM_EXEC, which cannot be set later, and huge pages, which would change the test.
    fn mapping(&mut self, region: &OpenRegion<'_>, properties: Mapped) -> Result<&Mapping> {
        if self.mapping.as_ref().is_none_or(|(_, before)| *before != properties) {
            let length = region.offset_bytes + region.length_bytes;
            let mapping = match self.mapping.take() {
                Some((mapping, _)) => mapping,
                None => Mapping::new(&self.file, length as usize)?,
            };
            mapping.advise(match properties.advice {
                Advice::Normal => rustix::mm::Advice::Normal,
                Advice::Random => rustix::mm::Advice::Random,
                Advice::Sequential => rustix::mm::Advice::Sequential,
            })?;
            self.mapping = Some((mapping, properties));
        }
        Ok(self.mapping.as_ref().map(|(mapping, _)| mapping).expect("it was made above"))
    }
}

struct TaskRunner<'a> {
    regions: &'a [OpenRegion<'a>],
    first: usize,
    each: bool,
    opened: HashMap<OpenId, ReplayOpened>,
    buffer: Vec<u8>,
    result: ReplayResult,
}

impl<'a> TaskRunner<'a> {
    fn run(mut self, ops: Box<dyn Iterator<Item = Op> + Send + '_>, stop: &AtomicBool) -> Result<ReplayResult> {
        for op in ops {
            if stop.load(Ordering::Relaxed) {
                return Err(crate::bench::Error::Stopped.into());
            }
            match op {
                Op::Close { open } => drop(self.opened.remove(&open)),
                Op::Read { open, file, offset_bytes, length_bytes } => {
                    self.read(open, file, offset_bytes, length_bytes)?;
                }
                Op::Touch { open, file, first, pages, mapped } => {
                    self.touch(open, file, first..first.saturating_add(pages), mapped)?
                }
                Op::Advise { open, file, advice } => self.advise(open, file, advice)?,
                Op::Compute { time_ns } | Op::Sleep { time_ns } => {
                    std::thread::sleep(Duration::from_nanos(time_ns).min(LONGEST_PAUSE));
                }
                // Files are opened at first use; a read has an offset; writes have no effect on read-ahead.
                Op::Open { .. } | Op::Seek { .. } | Op::Write { .. } | Op::Sync { .. } | Op::Prefetch(_) => {}
            }
        }
        Ok(self.result)
    }

    fn region(&self, file: FileId) -> Result<&'a OpenRegion<'a>> {
        let missing = || crate::bench::Error::Job("a file is missing".into());
        Ok(self.regions.get(self.first + file.0 as usize).ok_or_else(missing)?)
    }

    fn opened(&mut self, open: OpenId, region: &OpenRegion) -> Result<&mut ReplayOpened> {
        Ok(match self.opened.entry(open) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(empty) => empty.insert(ReplayOpened { file: region.open()?, mapping: None }),
        })
    }

    fn read(&mut self, open: OpenId, file: FileId, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let region = self.region(file)?;
        let end = offset_bytes.saturating_add(length_bytes).min(region.length_bytes);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = offset_bytes;
        while at < end {
            let now = (end - at).min(MAX_CALL_BYTES) as usize;
            buffer.resize(buffer.len().max(now), 0);
            let opened = self.opened(open, region)?;
            let began = Instant::now();
            let got = opened.file.read_at(&mut buffer[..now], region.offset_bytes + at);
            let got = got.map_err(|e| Error::io(format!("read {}", region.path().display()), e))?;
            self.count_call(began, got as u64);
            // Another process has truncated the file.
            if got == 0 {
                break;
            }
            at += got as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn touch(&mut self, open: OpenId, file: FileId, pages: Range<u64>, properties: Mapped) -> Result<()> {
        let region = self.region(file)?;
        let mut bucket = [0; PAGE_BYTES as usize];
        for page in pages.start..pages.end.min(region.length_bytes.div_ceil(PAGE_BYTES)) {
            let mapping = self.opened(open, region)?.mapping(region, properties)?;
            let began = Instant::now();
            let copied = mapping.copy((region.offset_bytes + page * PAGE_BYTES) as usize, &mut bucket);
            let lost = || std::io::Error::other("a page of a mapping cannot be read");
            let copied = copied.ok_or_else(|| Error::io(format!("read {}", region.path().display()), lost()))?;
            self.count_call(began, copied as u64);
        }
        Ok(())
    }

    fn advise(&mut self, open: OpenId, file: FileId, advice: Advice) -> Result<()> {
        let region = self.region(file)?;
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
        };
        let file = &self.opened(open, region)?.file;
        fadvise(file, region.offset_bytes, NonZeroU64::new(region.length_bytes), advice)
            .map_err(|e| Error::io(format!("advise on {}", region.path().display()), e))
    }

    fn count_call(&mut self, began: Instant, bytes: u64) {
        let took = began.elapsed();
        self.result.waited += took;
        self.result.latency_most = self.result.latency_most.max(took);
        self.result.read_bytes += bytes;
        if self.each {
            self.result.each_ns.push(took.as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ops: &[Op], region: &OpenRegion, stop: bool) -> Result<ReplayResult> {
        let task = Task { ops: Box::new(ops.iter().copied()), first: 0 };
        replay(vec![task], std::slice::from_ref(region), true, &AtomicBool::new(stop))
    }

    #[test]
    fn calls_and_touches_stay_within_their_region() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 5 * 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let region = OpenRegion { file: &held, offset_bytes: 4096, length_bytes: 2 * 4096 };
        let (open, file, mapped) = (OpenId(3), FileId(0), Mapped::default());
        let ops = [
            Op::Open { open, file },
            Op::Read { open, file, offset_bytes: 4096, length_bytes: u64::MAX },
            Op::Advise { open, file, advice: Advice::Random },
            Op::Touch { open, file, first: 1, pages: u64::MAX, mapped },
            Op::Read { open, file, offset_bytes: u64::MAX, length_bytes: 1 },
            Op::Close { open },
            Op::Sleep { time_ns: 1000 },
        ];
        let result = run(&ops, &region, false).unwrap();
        assert_eq!((result.read_bytes, result.each_ns.len()), (2 * 4096, 2));
        assert!(result.waited <= result.elapsed && result.latency_most <= result.waited);
        assert!(matches!(run(&ops, &region, true), Err(Error::Bench(crate::bench::Error::Stopped))));
    }

    /// Regression: readers waited without end for others whose threads the kernel had refused.
    #[test]
    fn refused_thread_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let region = OpenRegion { file: &held, offset_bytes: 0, length_bytes: 4096 };
        let tasks = (0..2).map(|_| Task { ops: Box::new(std::iter::empty()), first: 0 }).collect();
        // A stack that exceeds the address space.
        let refused = replay_in(tasks, &[region], false, &AtomicBool::new(false), 1 << 46).unwrap_err();
        assert!(refused.to_string().contains("start a thread for a reader"), "{refused}");
    }

    #[test]
    fn page_beyond_the_end_of_the_file_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let region = OpenRegion { file: &held, offset_bytes: 0, length_bytes: 2 * 4096 };
        let mapped = Mapped { advice: Advice::Random, ..Mapped::default() };
        let touch = Op::Touch { open: OpenId(0), file: FileId(0), first: 1, pages: 1, mapped };
        assert!(run(&[touch], &region, false).unwrap_err().to_string().contains("cannot be read"));
        let missing = Op::Touch { open: OpenId(0), file: FileId(1), first: 1, pages: 1, mapped };
        assert!(run(&[missing], &region, false).is_err());
    }
}
