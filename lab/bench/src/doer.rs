//! A reader: does on a real file what a stream of the simulator does, under the kernel or through a policy.

use crate::job::{Part, Work};
use crate::look::Looked;
use crate::run::Sample;
use crate::{Error, Result};
use ahead_live::{Engine, Reader};
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

/// Samples of a time line: enough to see its course, few enough to be drawn.
const SAMPLES: u64 = 40;

/// What all readers of a run share.
pub(crate) struct Surroundings<'a> {
    pub files: &'a [HeldFile],
    /// `None`: the kernel reads ahead.
    pub engine: Option<&'a Engine>,
    /// How pages are found is looked at before each call.
    pub looks: bool,
    /// Each call's time is kept.
    pub each: bool,
    pub timeline: bool,
    pub stop: &'a AtomicBool,
}

/// What a reader has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub latency_most_ns: u64,
    pub each_ns: Vec<u64>,
    pub looked: Looked,
    pub timeline: Vec<Sample>,
}

/// An opening of a file.
enum Opened {
    Plain { file: File, mapping: Option<Mapping> },
    Through(Reader),
}

pub(crate) struct Doer<'a> {
    around: &'a Surroundings<'a>,
    opened: HashMap<OpenId, Opened>,
    buffer: Vec<u8>,
    seen: Seen,
    began: Instant,
    next_sample: u64,
}

impl<'a> Doer<'a> {
    /// `calls`: how many times will be kept, if any are.
    pub fn new(around: &'a Surroundings<'a>, calls: usize) -> Doer<'a> {
        let seen = Seen { each_ns: touched_room(if around.each { calls } else { 0 }), ..Seen::default() };
        Doer { around, opened: HashMap::new(), buffer: Vec::new(), seen, began: Instant::now(), next_sample: 0 }
    }

    /// Does all parts, one after the other.
    pub fn run(mut self, parts: &[Part]) -> Result<Seen> {
        self.began = Instant::now();
        for part in parts {
            let file = self.around.files.get(part.file).ok_or_else(|| Error::Job("a file is missing".into()))?;
            for op in part.stream.ops() {
                if self.around.stop.load(Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                self.step(part, file, op).map_err(|error| in_file(error, file.path()))?;
            }
            self.opened.clear();
        }
        self.sample(true);
        Ok(self.seen)
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
                self.note_latency(began);
                self.work(part, (pages * PAGE_BYTES) as usize);
            }
            Op::Write { open, offset_bytes, length_bytes, .. } => self.write(part, open, offset_bytes, length_bytes)?,
            Op::Seek { open, offset_bytes, .. } => {
                // Under the kernel, whose calls here tell their place themselves, there is no position to be set.
                if let Opened::Through(reader) = self.opened(open)? {
                    reader.sought(offset_bytes);
                }
            }
            Op::Sync { .. } => self.sync()?,
            Op::Compute { time_ns } => spin(time_ns),
            Op::Sleep { time_ns } => std::thread::sleep(Duration::from_nanos(time_ns)),
            Op::Advise { .. } => return Err(Error::Job(format!("{op:?} is not done on real files"))),
        }
        Ok(())
    }

    /// Another opening of the file that is held, never of what has its name: another user may own the directory.
    fn open(&mut self, part: &Part, held: &HeldFile, open: OpenId) -> Result<()> {
        let (writes, failed) = (part.stream.pattern.writes(), |e| Error::io("open", e));
        let file = held.open_again(File::options().read(true).write(writes)).map_err(failed)?;
        if part.stream.pattern == Pattern::Write {
            file.set_len(0).map_err(|e| Error::io("make it anew", e))?;
        }
        let opened = match self.around.engine {
            Some(engine) => Opened::Through(engine.take(file, held.path())?),
            None => Opened::Plain { file, mapping: None },
        };
        self.opened.insert(open, opened);
        Ok(())
    }

    fn opened(&mut self, open: OpenId) -> Result<&mut Opened> {
        self.opened.get_mut(&open).ok_or_else(|| Error::Job("a file is used that was not opened".into()))
    }

    fn read(&mut self, part: &Part, open: OpenId, offset: u64, length: u64) -> Result<()> {
        self.look(open, offset, length)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(length as usize, 0);
        let began = Instant::now();
        match self.opened(open)? {
            Opened::Plain { file, .. } => file.read_exact_at(&mut buffer, offset).map_err(|e| Error::io("read", e))?,
            Opened::Through(reader) => {
                let read = reader.read_at(&mut buffer, offset)?;
                if read < buffer.len() {
                    return Err(Error::io("read", std::io::Error::from(std::io::ErrorKind::UnexpectedEof)));
                }
            }
        }
        self.note_latency(began);
        self.buffer = buffer;
        self.seen.read_bytes += length;
        self.work(part, length as usize);
        self.sample(false);
        Ok(())
    }

    /// Copies a mapped page into the bucket. `alone`: the row of touches is this one.
    fn touch(&mut self, open: OpenId, page: u64, alone: bool) -> Result<()> {
        self.look(open, page * PAGE_BYTES, PAGE_BYTES)?;
        let mut bucket = std::mem::take(&mut self.buffer);
        bucket.resize(PAGE_BYTES as usize, 0);
        let began = Instant::now();
        match self.opened(open)? {
            Opened::Through(reader) => drop(reader.copy_mapped(page, &mut bucket)?),
            Opened::Plain { file, mapping } => {
                let mapping = match mapping {
                    Some(mapping) => mapping,
                    None => {
                        let length = file.metadata().map_err(|e| Error::io("look at it", e))?.len();
                        mapping.insert(Mapping::new(&*file, length as usize)?)
                    }
                };
                let copied = mapping.copy((page * PAGE_BYTES) as usize, &mut bucket);
                // A page that is lost does not say why: a read does.
                copied.map_or_else(|| unreadable(file, page), Ok)?;
            }
        }
        if !alone {
            let took = began.elapsed().as_nanos() as u64;
            self.seen.latency_most_ns = self.seen.latency_most_ns.max(took);
        }
        self.buffer = bucket;
        self.seen.read_bytes += PAGE_BYTES;
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
            Opened::Plain { file, .. } => file.write_all_at(&buffer, offset).map_err(|e| Error::io("write", e))?,
            Opened::Through(reader) => reader.write_at(&buffer, offset)?,
        }
        self.note_latency(began);
        self.buffer = buffer;
        self.seen.write_bytes += length;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        for opened in self.opened.values() {
            match opened {
                Opened::Plain { file, .. } => file.sync_data().map_err(|e| Error::io("sync", e))?,
                Opened::Through(reader) => reader.sync()?,
            }
        }
        Ok(())
    }

    fn look(&mut self, open: OpenId, offset: u64, length: u64) -> Result<()> {
        let mut looked = self.seen.looked;
        if self.around.looks
            && let Opened::Plain { file, .. } = self.opened(open)?
        {
            looked.look(file, offset, length)?;
        }
        self.seen.looked = looked;
        Ok(())
    }

    fn note_latency(&mut self, began: Instant) {
        let took = began.elapsed().as_nanos() as u64;
        self.seen.latency_most_ns = self.seen.latency_most_ns.max(took);
        if self.around.each {
            self.seen.each_ns.push(took);
        }
    }

    /// The program's own work on what it got.
    fn work(&mut self, part: &Part, bytes: usize) {
        if part.work == Work::Chars {
            let sum = self.buffer.iter().fold(0_u8, |sum, byte| black_box(sum.wrapping_add(*byte)));
            black_box(sum);
        }
        spin((part.stream.user_per_page_ns * bytes as f64 / PAGE_BYTES as f64) as u64);
    }

    /// Notes how time has gone so far, whenever so much was read; and at the end.
    fn sample(&mut self, last: bool) {
        if self.around.timeline && (last || self.seen.read_bytes >= self.next_sample) {
            let cpu = usage::own_cpu();
            let (at_s, read_bytes) = (self.began.elapsed().as_secs_f64(), self.seen.read_bytes);
            let (user_s, system_s) = (cpu.user.as_secs_f64(), cpu.system.as_secs_f64());
            self.seen.timeline.push(Sample { at_s, user_s, system_s, read_bytes });
            self.next_sample = read_bytes + self.step_bytes();
        }
    }

    fn step_bytes(&self) -> u64 {
        let bytes: u64 = self.around.files.iter().filter_map(|file| file.length_bytes().ok()).sum();
        bytes / SAMPLES
    }
}

/// Why a page cannot be touched: the disk's own error, or the file does not have it.
fn unreadable(file: &File, page: u64) -> Result<usize> {
    let read = file.read_at(&mut [0], page * PAGE_BYTES).map_err(|e| Error::io("read", e))?;
    Err(Error::Job(match read {
        0 => "a page is touched that the file does not have".into(),
        _ => "a page could not be read, and can be now".into(),
    }))
}

/// An error with the file that it came from: those of a failing disk do not name it themselves.
pub fn in_file(error: Error, path: &Path) -> Error {
    let with_path = |what: String, source| Error::Io { what: format!("{what}: {}", path.display()), source };
    match error {
        Error::Io { what, source } => with_path(what, source),
        Error::Live(ahead_live::Error::Io(source)) => with_path("read".into(), source),
        Error::Live(ahead_live::Error::Kernel(ahead_sys::Error::Io { what, source })) => with_path(what, source),
        other => other,
    }
}

/// Room for so many times whose memory was touched already: a fault in it would look like a slow read.
fn touched_room(count: usize) -> Vec<u64> {
    let mut room: Vec<u64> = (1..=count as u64).collect();
    room.clear();
    room
}

/// The program's own work.
fn spin(time_ns: u64) {
    let (began, time) = (Instant::now(), Duration::from_nanos(time_ns));
    while time_ns > 0 && began.elapsed() < time {
        std::hint::spin_loop();
    }
}
