//! What programs do, done on parts of files or of a device, under the kernel's own read-ahead.
//!
//! Reads and faults only: whatever is read this way, nothing is written. Each program is a thread, and opens for itself what it
//! reads, so that its streams have their own read-ahead; programs do not wait for one another. A pause is made as it was, but no
//! longer than any window takes to arrive: the rest of it would change nothing.

use crate::{Error, Result};
use ahead_bench::Gate;
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

/// A disk brings the windows that are tried in less, but for the largest on the slowest.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A call reads no more, bytes: it needs a buffer.
const MOST_CALL_BYTES: u64 = 16 << 20;

/// Stack of a reader's thread, bytes: what threads have that nobody says anything of.
const STACK_BYTES: usize = 2 << 20;

/// Where a file of a workload lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// In this file or device,
    pub file: &'a HeldFile,
    /// from here on, bytes (whole pages),
    pub offset_bytes: u64,
    /// so much.
    pub length_bytes: u64,
}

impl Place<'_> {
    /// How messages name it.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Another opening.
    pub fn open(&self) -> Result<File> {
        let opened = self.file.open_again(File::options().read(true));
        opened.map_err(|e| Error::io(format!("open {}", self.path().display()), e))
    }
}

/// One program: what it does, and which place is its file 0.
pub(crate) struct Task<'a> {
    pub ops: Box<dyn Iterator<Item = Op> + Send + 'a>,
    pub first: usize,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// From the first program's beginning to the last one's end.
    pub elapsed: Duration,
    /// What all programs together have spent in calls and faults.
    pub waited: Duration,
    /// Bytes that they got.
    pub read_bytes: u64,
    /// Longest call.
    pub latency_most: Duration,
    /// Each of them, if they were to be kept, nanoseconds.
    pub each_ns: Vec<u64>,
}

/// Does what the tasks say, all at the same time. `each`: the time of each call is kept.
///
/// Errors: reading failed; it was asked to stop.
pub(crate) fn replay(tasks: Vec<Task>, places: &[Place], each: bool, stop: &AtomicBool) -> Result<Replayed> {
    replay_in(tasks, places, each, stop, STACK_BYTES)
}

/// `stack_bytes`: of each thread.
fn replay_in(
    tasks: Vec<Task>,
    places: &[Place],
    each: bool,
    stop: &AtomicBool,
    stack_bytes: usize,
) -> Result<Replayed> {
    let (gate, count) = (&Gate::default(), tasks.len());
    let seen: Vec<Result<(Instant, Replayed)>> = std::thread::scope(|scope| {
        let start = |Task { ops, first }| {
            let doer =
                Doer { places, first, each, opened: HashMap::new(), buffer: Vec::new(), seen: Replayed::default() };
            let work = move || {
                if !gate.wait() {
                    return Err(ahead_bench::Error::Stopped.into());
                }
                // Its own clock: who waits for the threads may wake up when the first of them has ended.
                let began = Instant::now();
                let seen = doer.run(ops, stop)?;
                Ok((began, Replayed { elapsed: began.elapsed(), ..seen }))
            };
            Builder::new().stack_size(stack_bytes).spawn_scoped(scope, work)
        };
        // Of those that the system refuses: the others are not left waiting for them.
        let refused = |e| Error::io("start a thread for a reader (ulimit -u, pids.max)", e);
        let threads: std::io::Result<Vec<_>> = tasks.into_iter().map(start).collect();
        let threads = threads.map_err(refused).inspect_err(|_| gate.call_off())?;
        gate.open(count, || ());
        let panicked = || Err(ahead_bench::Error::Job("a reader has panicked".into()).into());
        Ok::<_, Error>(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect())
    })?;
    let seen = seen.into_iter().collect::<Result<Vec<_>>>()?;
    let first = seen.iter().map(|(began, _)| *began).min();
    let mut whole = Replayed::default();
    for (began, seen) in seen {
        let end = began + seen.elapsed;
        whole.elapsed = whole.elapsed.max(first.map_or(Duration::ZERO, |first| end - first));
        whole.waited += seen.waited;
        whole.read_bytes += seen.read_bytes;
        whole.latency_most = whole.latency_most.max(seen.latency_most);
        whole.each_ns.extend(seen.each_ns);
    }
    Ok(whole)
}

/// An open file, and its mapping once it is touched.
struct Opened {
    file: File,
    mapping: Option<(Mapping, Mapped)>,
}

impl Opened {
    /// Its mapping, of which this is said. That it holds a program cannot be said afterwards, and huge pages would be another test.
    fn mapping(&mut self, place: &Place<'_>, said: Mapped) -> Result<&Mapping> {
        if self.mapping.as_ref().is_none_or(|(_, before)| *before != said) {
            let length = place.offset_bytes + place.length_bytes;
            let mapping = match self.mapping.take() {
                Some((mapping, _)) => mapping,
                None => Mapping::new(&self.file, length as usize)?,
            };
            mapping.advise(match said.advice {
                Advice::Normal => rustix::mm::Advice::Normal,
                Advice::Random => rustix::mm::Advice::Random,
                Advice::Sequential => rustix::mm::Advice::Sequential,
            })?;
            self.mapping = Some((mapping, said));
        }
        Ok(self.mapping.as_ref().map(|(mapping, _)| mapping).expect("it was made above"))
    }
}

struct Doer<'a> {
    places: &'a [Place<'a>],
    first: usize,
    each: bool,
    opened: HashMap<OpenId, Opened>,
    buffer: Vec<u8>,
    seen: Replayed,
}

impl<'a> Doer<'a> {
    fn run(mut self, ops: Box<dyn Iterator<Item = Op> + Send + '_>, stop: &AtomicBool) -> Result<Replayed> {
        for op in ops {
            if stop.load(Ordering::Relaxed) {
                return Err(ahead_bench::Error::Stopped.into());
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
                // Opened when it is used; a read says itself where it begins; what is written is no affair of read-ahead.
                Op::Open { .. } | Op::Seek { .. } | Op::Write { .. } | Op::Sync { .. } => {}
            }
        }
        Ok(self.seen)
    }

    fn place(&self, file: FileId) -> Result<&'a Place<'a>> {
        let missing = || ahead_bench::Error::Job("a file is missing".into());
        Ok(self.places.get(self.first + file.0 as usize).ok_or_else(missing)?)
    }

    fn opened(&mut self, open: OpenId, place: &Place) -> Result<&mut Opened> {
        Ok(match self.opened.entry(open) {
            Entry::Occupied(opened) => opened.into_mut(),
            Entry::Vacant(empty) => empty.insert(Opened { file: place.open()?, mapping: None }),
        })
    }

    fn read(&mut self, open: OpenId, file: FileId, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        let place = self.place(file)?;
        let end = offset_bytes.saturating_add(length_bytes).min(place.length_bytes);
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = offset_bytes;
        while at < end {
            let now = (end - at).min(MOST_CALL_BYTES) as usize;
            buffer.resize(buffer.len().max(now), 0);
            let opened = self.opened(open, place)?;
            let began = Instant::now();
            let got = opened.file.read_at(&mut buffer[..now], place.offset_bytes + at);
            let got = got.map_err(|e| Error::io(format!("read {}", place.path().display()), e))?;
            self.note(began, got as u64);
            // It is shorter than it was.
            if got == 0 {
                break;
            }
            at += got as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn touch(&mut self, open: OpenId, file: FileId, pages: Range<u64>, said: Mapped) -> Result<()> {
        let place = self.place(file)?;
        let mut bucket = [0; PAGE_BYTES as usize];
        for page in pages.start..pages.end.min(place.length_bytes.div_ceil(PAGE_BYTES)) {
            let mapping = self.opened(open, place)?.mapping(place, said)?;
            let began = Instant::now();
            let copied = mapping.copy((place.offset_bytes + page * PAGE_BYTES) as usize, &mut bucket);
            let lost = || std::io::Error::other("a page of a mapping cannot be read");
            let copied = copied.ok_or_else(|| Error::io(format!("read {}", place.path().display()), lost()))?;
            self.note(began, copied as u64);
        }
        Ok(())
    }

    fn advise(&mut self, open: OpenId, file: FileId, advice: Advice) -> Result<()> {
        let place = self.place(file)?;
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
        };
        let file = &self.opened(open, place)?.file;
        fadvise(file, place.offset_bytes, NonZeroU64::new(place.length_bytes), advice)
            .map_err(|e| Error::io(format!("advise on {}", place.path().display()), e))
    }

    fn note(&mut self, began: Instant, bytes: u64) {
        let took = began.elapsed();
        self.seen.waited += took;
        self.seen.latency_most = self.seen.latency_most.max(took);
        self.seen.read_bytes += bytes;
        if self.each {
            self.seen.each_ns.push(took.as_nanos() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn does(ops: &[Op], place: &Place, stop: bool) -> Result<Replayed> {
        let task = Task { ops: Box::new(ops.iter().copied()), first: 0 };
        replay(vec![task], std::slice::from_ref(place), true, &AtomicBool::new(stop))
    }

    #[test]
    fn calls_and_touches_stay_within_their_place() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 5 * 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let place = Place { file: &held, offset_bytes: 4096, length_bytes: 2 * 4096 };
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
        let seen = does(&ops, &place, false).unwrap();
        assert_eq!((seen.read_bytes, seen.each_ns.len()), (2 * 4096, 2));
        assert!(seen.waited <= seen.elapsed && seen.latency_most <= seen.waited);
        assert!(matches!(does(&ops, &place, true), Err(Error::Bench(ahead_bench::Error::Stopped))));
    }

    /// Regression: readers that had got a thread waited for ever for those whose threads the system refused.
    #[test]
    fn who_gets_too_few_threads_is_told() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let place = Place { file: &held, offset_bytes: 0, length_bytes: 4096 };
        let tasks = (0..2).map(|_| Task { ops: Box::new(std::iter::empty()), first: 0 }).collect();
        // A stack for which there is no address space.
        let refused = replay_in(tasks, &[place], false, &AtomicBool::new(false), 1 << 46).unwrap_err();
        assert!(refused.to_string().contains("start a thread for a reader"), "{refused}");
    }

    #[test]
    fn what_is_lost_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        let place = Place { file: &held, offset_bytes: 0, length_bytes: 2 * 4096 };
        let mapped = Mapped { advice: Advice::Random, ..Mapped::default() };
        let touch = Op::Touch { open: OpenId(0), file: FileId(0), first: 1, pages: 1, mapped };
        assert!(does(&[touch], &place, false).unwrap_err().to_string().contains("cannot be read"));
        let missing = Op::Touch { open: OpenId(0), file: FileId(1), first: 1, pages: 1, mapped };
        assert!(does(&[missing], &place, false).is_err());
    }
}
