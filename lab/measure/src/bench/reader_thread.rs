//! A reader thread: runs the operations of a simulated stream on a real file, under the kernel or through a policy.

use crate::bench::cache_probe::LookupCounts;
use crate::bench::job::{Part, Work};
use crate::bench::live::{Engine, Reader};
use crate::bench::observed::Sample;
use crate::bench::{Error, Result};
use ahead_policy::{OpenId, PAGE_BYTES};
use ahead_sim::{Op, Pattern};
use ahead_sys::directory::HeldFile;
use ahead_sys::mapping::Mapping;
use ahead_sys::usage;
use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Samples of a timeline: enough for a curve.
const SAMPLES: u64 = 40;

/// The context that all readers of a run share.
pub(crate) struct ReaderContext<'a> {
    pub files: &'a [HeldFile],
    /// `None`: the kernel reads ahead.
    pub engine: Option<&'a Engine>,
    /// Probe the cache before each call.
    pub probes_cache: bool,
    /// Keep the time of each call.
    pub each: bool,
    pub timeline: bool,
    pub stop: &'a AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct ReaderResult {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub latency_most_ns: u64,
    pub each_ns: Vec<u64>,
    pub lookups: LookupCounts,
    pub timeline: Vec<Sample>,
}

enum OpenedFile {
    Plain { file: File, mapping: Option<Mapping> },
    Through(Reader),
}

/// Runs the parts of one reader.
pub(crate) struct ReaderThread<'a> {
    context: &'a ReaderContext<'a>,
    opened: HashMap<OpenId, OpenedFile>,
    buffer: Vec<u8>,
    result: ReaderResult,
    began: Instant,
    next_sample: u64,
}

impl<'a> ReaderThread<'a> {
    /// `calls`: number of calls whose times are kept.
    pub fn new(context: &'a ReaderContext<'a>, calls: usize) -> ReaderThread<'a> {
        let result =
            ReaderResult { each_ns: faulted_buffer(if context.each { calls } else { 0 }), ..ReaderResult::default() };
        ReaderThread {
            context,
            opened: HashMap::new(),
            buffer: Vec::new(),
            result,
            began: Instant::now(),
            next_sample: 0,
        }
    }

    /// Runs all parts in sequence.
    pub fn run(mut self, parts: &[Part]) -> Result<ReaderResult> {
        self.began = Instant::now();
        for part in parts {
            let file = self.context.files.get(part.file).ok_or_else(|| Error::Job("a file is missing".into()))?;
            for op in part.stream.ops() {
                if self.context.stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                self.step(part, file, op).map_err(|error| in_file(error, file.path()))?;
            }
            self.opened.clear();
        }
        self.sample(true);
        Ok(self.result)
    }

    fn step(&mut self, part: &Part, file: &HeldFile, op: Op) -> Result<()> {
        match op {
            Op::Open { open, .. } => self.open(part, file, open)?,
            Op::Close { open } => drop(self.opened.remove(&open)),
            Op::Read { open, offset_bytes, length_bytes, .. } => self.read(part, open, offset_bytes, length_bytes)?,
            Op::Touch { open, first, pages, .. } => {
                let began = Instant::now();
                for page in first..first + pages {
                    self.touch(open, page, pages == 1)?;
                }
                self.count_latency(began);
                self.work(part, (pages * PAGE_BYTES) as usize);
            }
            Op::Write { open, offset_bytes, length_bytes, .. } => self.write(part, open, offset_bytes, length_bytes)?,
            Op::Seek { open, offset_bytes, .. } => {
                // Under the kernel every call has its own offset, and a seek has no effect.
                if let OpenedFile::Through(reader) = self.opened(open)? {
                    reader.sought(offset_bytes);
                }
            }
            Op::Sync { .. } => self.sync()?,
            Op::Compute { time_ns } => spin(time_ns),
            Op::Sleep { time_ns } => std::thread::sleep(Duration::from_nanos(time_ns)),
            Op::Advise { .. } | Op::Prefetch(_) => {
                return Err(Error::Job(format!("{op:?} is not supported on real files")));
            }
        }
        Ok(())
    }

    /// Opens the held file again, never its path: another user may own the directory.
    fn open(&mut self, part: &Part, held: &HeldFile, open: OpenId) -> Result<()> {
        let (writes, failed) = (part.stream.pattern.writes(), |e| Error::io("open", e));
        let file = held.open_again(File::options().read(true).write(writes)).map_err(failed)?;
        if part.stream.pattern == Pattern::Write {
            file.set_len(0).map_err(|e| Error::io("truncate", e))?;
        }
        let opened = match self.context.engine {
            Some(engine) => OpenedFile::Through(engine.take(file, held.path())?),
            None => OpenedFile::Plain { file, mapping: None },
        };
        self.opened.insert(open, opened);
        Ok(())
    }

    fn opened(&mut self, open: OpenId) -> Result<&mut OpenedFile> {
        self.opened.get_mut(&open).ok_or_else(|| Error::Job("a file is used before it is opened".into()))
    }

    fn read(&mut self, part: &Part, open: OpenId, offset: u64, length: u64) -> Result<()> {
        self.probe_cache(open, offset, length)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length as usize, 0);
        let began = Instant::now();
        match self.opened(open)? {
            OpenedFile::Plain { file, .. } => {
                file.read_exact_at(&mut buffer, offset).map_err(|e| Error::io("read", e))?
            }
            OpenedFile::Through(reader) => {
                let read = reader.read_at(&mut buffer, offset)?;
                if read < buffer.len() {
                    return Err(Error::io("read", std::io::Error::from(std::io::ErrorKind::UnexpectedEof)));
                }
            }
        }
        self.count_latency(began);
        self.buffer = buffer;
        self.result.read_bytes += length;
        self.work(part, length as usize);
        self.sample(false);
        Ok(())
    }

    /// Copies a mapped page into the buffer. `alone`: the operation accesses only this page.
    fn touch(&mut self, open: OpenId, page: u64, alone: bool) -> Result<()> {
        self.probe_cache(open, page * PAGE_BYTES, PAGE_BYTES)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PAGE_BYTES as usize, 0);
        let began = Instant::now();
        match self.opened(open)? {
            OpenedFile::Through(reader) => drop(reader.copy_mapped(page, &mut buffer)?),
            OpenedFile::Plain { file, mapping } => {
                let mapping = match mapping {
                    Some(mapping) => mapping,
                    None => {
                        let length = file.metadata().map_err(|e| Error::io("fstat", e))?.len();
                        mapping.insert(Mapping::new(&*file, length as usize)?)
                    }
                };
                let copied = mapping.copy((page * PAGE_BYTES) as usize, &mut buffer);
                // SIGBUS has no reason; the error of a read has one.
                copied.map_or_else(|| unreadable(file, page), Ok)?;
            }
        }
        if !alone {
            let took = began.elapsed().as_nanos() as u64;
            self.result.latency_most_ns = self.result.latency_most_ns.max(took);
        }
        self.buffer = buffer;
        self.result.read_bytes += PAGE_BYTES;
        self.sample(false);
        Ok(())
    }

    fn write(&mut self, part: &Part, open: OpenId, offset: u64, length: u64) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length as usize, 0);
        if part.work == Work::Chars {
            for (index, byte) in buffer.iter_mut().enumerate() {
                *byte = black_box(index as u8);
            }
        }
        let began = Instant::now();
        match self.opened(open)? {
            OpenedFile::Plain { file, .. } => file.write_all_at(&buffer, offset).map_err(|e| Error::io("write", e))?,
            OpenedFile::Through(reader) => reader.write_at(&buffer, offset)?,
        }
        self.count_latency(began);
        self.buffer = buffer;
        self.result.write_bytes += length;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        for opened in self.opened.values() {
            match opened {
                OpenedFile::Plain { file, .. } => file.sync_data().map_err(|e| Error::io("sync", e))?,
                OpenedFile::Through(reader) => reader.sync()?,
            }
        }
        Ok(())
    }

    fn probe_cache(&mut self, open: OpenId, offset: u64, length: u64) -> Result<()> {
        let mut lookups = self.result.lookups;
        if self.context.probes_cache
            && let OpenedFile::Plain { file, .. } = self.opened(open)?
        {
            lookups.probe(file, offset, length)?;
        }
        self.result.lookups = lookups;
        Ok(())
    }

    fn count_latency(&mut self, began: Instant) {
        let took = began.elapsed().as_nanos() as u64;
        self.result.latency_most_ns = self.result.latency_most_ns.max(took);
        if self.context.each {
            self.result.each_ns.push(took);
        }
    }

    /// The program's computing on the bytes.
    fn work(&mut self, part: &Part, bytes: usize) {
        if part.work == Work::Chars {
            let sum = self.buffer.iter().fold(0_u8, |sum, byte| black_box(sum.wrapping_add(*byte)));
            black_box(sum);
        }
        spin((part.stream.user_per_page_ns * bytes as f64 / PAGE_BYTES as f64) as u64);
    }

    /// Adds a sample of the times so far, at equal distances in bytes, and at the end.
    fn sample(&mut self, last: bool) {
        if self.context.timeline && (last || self.result.read_bytes >= self.next_sample) {
            let cpu = usage::own_cpu();
            let (at_s, read_bytes) = (self.began.elapsed().as_secs_f64(), self.result.read_bytes);
            let (user_s, system_s) = (cpu.user.as_secs_f64(), cpu.system.as_secs_f64());
            self.result.timeline.push(Sample { at_s, user_s, system_s, read_bytes });
            self.next_sample = read_bytes + self.step_bytes();
        }
    }

    fn step_bytes(&self) -> u64 {
        let bytes: u64 = self.context.files.iter().filter_map(|file| file.length_bytes().ok()).sum();
        bytes / SAMPLES
    }
}

/// Why a page cannot be accessed: an error of the disk, or the end of the file.
fn unreadable(file: &File, page: u64) -> Result<usize> {
    let read = file.read_at(&mut [0], page * PAGE_BYTES).map_err(|e| Error::io("read", e))?;
    Err(Error::Job(match read {
        0 => "a page beyond the end of the file was touched".into(),
        _ => "a page could not be read at first".into(),
    }))
}

/// Adds the path of the file to an error: errors of a failing disk do not name the file.
pub fn in_file(error: Error, path: &Path) -> Error {
    let with_path = |what: String, source| Error::Io { what: format!("{what}: {}", path.display()), source };
    match error {
        Error::Io { what, source } => with_path(what, source),
        Error::Live(crate::bench::live::Error::Io(source)) => with_path("read".into(), source),
        Error::Live(crate::bench::live::Error::Kernel(ahead_sys::Error::Io { what, source })) => {
            with_path(what, source)
        }
        other => other,
    }
}

/// A buffer for `count` times whose memory was accessed before. A page fault in the buffer would look like a slow read.
fn faulted_buffer(count: usize) -> Vec<u64> {
    let mut room: Vec<u64> = (1..=count as u64).collect();
    room.clear();
    room
}

/// Computes for the given time.
fn spin(time_ns: u64) {
    let (began, time) = (Instant::now(), Duration::from_nanos(time_ns));
    while time_ns > 0 && began.elapsed() < time {
        std::hint::spin_loop();
    }
}
