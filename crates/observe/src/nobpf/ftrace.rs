//! Recording by ftrace: an instance, a filter for the observed processes, and a thread that collects the events.
//!
//! ```text
//!     Ftrace::start ─▶ instance, filter ─▶ tracing on ─▶ …program… ─▶ finish: tracing off, buffers drained, instance removed
//!                                                                          └─▶ Unresolved::resolve: paths of the inodes
//! ```
//!
//! `set_event_pid` with `event-fork` follows threads and processes from their first instruction on. Workers of io_uring raise no
//! fork event, so their accesses are missing.

use crate::nobpf::collect::{Collected, Collector, Own, threads_of};
use crate::nobpf::event::{ACCESSES, ADDED, Schema};
use crate::nobpf::format::{Format, PageLayout};
use crate::nobpf::instance::{Instance, format_error};
use crate::nobpf::page::read_page;
use crate::nobpf::paths;
use crate::reader::{EventReader, raise_priority};
use ahead_process::family;
use ahead_profile::learn::{AccessKind, Counters, Observation};
use ahead_sys::{Error, Result, machine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

/// The observed processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A held child that has not executed its program yet, and all that it starts.
    Held(u32),
    /// Running processes with their descendants, and all that these start from now on.
    Running(Vec<u32>),
    /// Every process except our own.
    Everything,
}

/// Options of a recording by ftrace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The observed processes.
    pub scope: Scope,
    /// Whether file pages added to the cache are recorded. Those of block devices always are.
    pub added: bool,
}

/// Maximum size of all buffers, bytes: a million accesses.
const BUFFERS_MOST_BYTES: u64 = 64 << 20;
/// The buffers take at most this fraction of memory, because they are locked.
const BUFFERS_SHARE: u64 = 64;
/// Minimum for a processor, KiB. The reader is woken many times before it is full.
const BUFFER_LEAST_KB: u64 = 64;
/// Maximum for a processor, KiB.
const BUFFER_MOST_KB: u64 = 8 << 10;
/// The reader is woken when a buffer is filled to this part, percent.
const WAKE_PERCENT: &str = "25";
/// The reader looks at the buffers at this interval, too. Kernels before 6.9 miss wake-ups of readers that wait for a part of a
/// buffer, and directories of a process can be read only while it runs.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Pages read from a buffer before the next one has its turn: a quarter of the smallest buffer.
const PAGES_IN_TURN: usize = 4;

/// A running recording.
#[derive(Debug)]
pub struct Ftrace {
    /// Before the instance, which cannot be removed while its buffers are open.
    reader: EventReader<Collector>,
    instance: Instance,
    sees_accesses: bool,
    added: bool,
}

/// The events of a recording that has ended; the paths of their inodes are unknown.
#[derive(Debug)]
pub struct Unresolved {
    collected: Collected,
    lost_events: u64,
    sees_accesses: bool,
    added: bool,
}

impl Ftrace {
    /// Creates an instance of tracefs and starts to collect. Needs root.
    ///
    /// # Errors
    /// [`Error::Unsupported`], [`Error::NotPermitted`]: no tracefs here. Then nothing stays changed.
    pub fn start(options: &Options) -> Result<Ftrace> {
        if !machine::is_root() {
            return Err(Error::needs_root("recording by ftrace"));
        }
        let mut instance = Instance::create()?;
        let sees_accesses = ACCESSES.iter().all(|(name, _)| instance.has_event(&format!("filemap/{name}")));
        let (schema, layout) = (schema(&instance, sees_accesses)?, layout(&instance)?);
        set_up(&instance, options, sees_accesses)?;
        let buffers = instance.open_buffers()?;
        let held = match options.scope {
            Scope::Held(pid) => Some(pid),
            _ => None,
        };
        let collector = Collector::new(schema, Own::new(held));
        let reader = EventReader::start("observer", move |stopped| {
            raise_priority();
            Reader { buffers, layout, collector }.run(stopped)
        })?;
        instance.switch_on()?;
        Ok(Ftrace { reader, instance, sees_accesses, added: options.added })
    }

    /// Whether accesses to cached pages are seen, and not only pages added to the cache.
    pub fn sees_hits(&self) -> bool {
        self.sees_accesses
    }

    /// Stops, removes the instance, and returns the events.
    ///
    /// # Errors
    /// The buffers cannot be read.
    pub fn finish(mut self) -> Result<Unresolved> {
        self.instance.switch_off()?;
        let collected = self.reader.finish()?.finish();
        let lost_events = self.instance.lost_events()?;
        Ok(Unresolved { collected, lost_events, sees_accesses: self.sees_accesses, added: self.added })
    }
}

impl Unresolved {
    /// Finds the paths of the inodes. May read many directories.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn resolve(self) -> Result<Observation> {
        let Unresolved { collected, lost_events, sees_accesses, added } = self;
        let counters = Counters { ring_full: lost_events, unkept: collected.unkept, ..Counters::default() };
        let source = match sees_accesses {
            true => "ftrace mm_filemap_get_pages+mm_filemap_fault+mm_filemap_map_pages",
            false => "ftrace mm_filemap_add_to_page_cache",
        };
        let keeps_added = added || !sees_accesses;
        let resolved = paths::resolve(collected, keeps_added)?;
        Ok(Observation { counters, source: source.into(), sees_hits: sees_accesses, ..resolved })
    }
}

/// The enabled events, by their directory below `events`.
fn events(sees_accesses: bool) -> Vec<String> {
    let accesses = ACCESSES.iter().map(|(name, _)| *name).filter(|_| sees_accesses);
    let pages = accesses.chain([ADDED]).map(|name| format!("filemap/{name}"));
    pages.chain(["sched/sched_process_fork".into(), "sched/sched_process_exec".into()]).collect()
}

fn format(instance: &Instance, event: &str) -> Result<Format> {
    let file = format!("events/{event}/format");
    Format::parse(&instance.read(&file)?).map_err(|error| format_error(&file, &error))
}

fn schema(instance: &Instance, sees_accesses: bool) -> Result<Schema> {
    let accesses = ACCESSES.into_iter().filter(|_| sees_accesses).chain([(ADDED, AccessKind::Added)]);
    let pages = accesses.map(|(name, kind)| Ok((kind, format(instance, &format!("filemap/{name}"))?)));
    let pages: Vec<(AccessKind, Format)> = pages.collect::<Result<_>>()?;
    let (fork, exec) = (format(instance, "sched/sched_process_fork")?, format(instance, "sched/sched_process_exec")?);
    Schema::new(&fork, &exec, &pages).map_err(|error| format_error("events", &error))
}

fn layout(instance: &Instance) -> Result<PageLayout> {
    // Instances of older kernels lack the file; it is the same for all.
    let own = "events/header_page";
    let file = if instance.path(own).exists() { own } else { "../../events/header_page" };
    PageLayout::parse(&instance.read(file)?).map_err(|error| format_error(file, &error))
}

fn set_up(instance: &Instance, options: &Options, sees_accesses: bool) -> Result<()> {
    // CLOCK_MONOTONIC, as all times of a recording.
    instance.write("trace_clock", "mono")?;
    // A full buffer drops the newest events: the first uses count most.
    instance.write("options/overwrite", "0")?;
    let buffer_kb = buffer_kb(machine::meminfo_bytes("MemTotal")?, instance.processors()?.len() as u64);
    instance.write("buffer_size_kb", &buffer_kb.to_string())?;
    if let Err(error) = instance.write("buffer_percent", WAKE_PERCENT) {
        tracing::debug!("the reader is woken for each event: {error}");
    }
    follow(instance, &options.scope)?;
    events(sees_accesses).iter().try_for_each(|event| instance.write(&format!("events/{event}/enable"), "1"))
}

/// The size of the buffer of each processor of the machine, KiB.
fn buffer_kb(memory_bytes: u64, processors: u64) -> u64 {
    let all_kb = (memory_bytes / BUFFERS_SHARE).min(BUFFERS_MOST_BYTES) / 1024;
    (all_kb / processors.max(1)).clamp(BUFFER_LEAST_KB, BUFFER_MOST_KB)
}

/// Limits the events to the observed threads, and all that they start.
fn follow(instance: &Instance, scope: &Scope) -> Result<()> {
    let roots = match scope {
        Scope::Held(pid) => vec![*pid],
        Scope::Running(pids) => pids.clone(),
        Scope::Everything => return Ok(()),
    };
    // Before the first thread is followed: a thread that it starts now is followed by the kernel.
    instance.write("options/event-fork", "1")?;
    let mut known = BTreeSet::new();
    loop {
        let mut found = BTreeSet::new();
        for root in &roots {
            let family = family::descendants(*root)?.into_iter().map(|process| process.pid);
            found.extend(family.chain([*root]).flat_map(threads_of));
        }
        let new: Vec<u32> = found.difference(&known).copied().collect();
        if new.is_empty() {
            break;
        }
        add_to_filter(instance, &new)?;
        known.extend(new);
    }
    if known.is_empty() {
        let numbers: Vec<String> = roots.iter().map(u32::to_string).collect();
        let source = std::io::Error::from_raw_os_error(libc::ESRCH);
        return Err(Error::io(format!("follow process {}", numbers.join(", ")), source));
    }
    Ok(())
}

/// Opened for appending: otherwise the kernel clears the filter first.
fn add_to_filter(instance: &Instance, threads: &[u32]) -> Result<()> {
    let path = instance.path("set_event_pid");
    let failed = |e| Error::io(format!("write {}", path.display()), e);
    let mut file = File::options().append(true).open(&path).map_err(failed)?;
    threads.iter().try_for_each(|thread| file.write_all(format!("{thread}\n").as_bytes()).map_err(failed))
}

/// The thread that reads the buffers.
struct Reader {
    buffers: Vec<File>,
    layout: PageLayout,
    collector: Collector,
}

impl Reader {
    /// Collects events until the other end of `stopped` is closed and the buffers are empty.
    fn run(mut self, stopped: &OwnedFd) -> Result<Collector> {
        let mut page = vec![0; self.layout.bytes];
        loop {
            let is_last = self.wait(stopped)?;
            self.collector.own.refresh();
            while self.read_all(&mut page)? {}
            if is_last {
                return Ok(self.collector);
            }
        }
    }

    /// Reads some pages of each buffer in turn. Returns whether there were any.
    fn read_all(&mut self, page: &mut [u8]) -> Result<bool> {
        let mut found = false;
        for index in 0..self.buffers.len() {
            for _ in 0..PAGES_IN_TURN {
                if !self.read_one(index, page)? {
                    break;
                }
                found = true;
            }
        }
        Ok(found)
    }

    /// Waits for events. Returns whether the recording has ended.
    fn wait(&self, stopped: &OwnedFd) -> Result<bool> {
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(stopped, PollFlags::IN)];
        fds.extend(self.buffers.iter().map(|buffer| PollFd::new(buffer, PollFlags::IN)));
        match poll(&mut fds, Some(&LOOK_INTERVAL)) {
            Ok(_) | Err(Errno::INTR) => Ok(!fds[0].revents().is_empty()),
            Err(error) => Err(Error::io("wait for events", error)),
        }
    }

    /// Reads one page. Returns whether there was one.
    fn read_one(&mut self, index: usize, page: &mut [u8]) -> Result<bool> {
        let bytes = match self.buffers[index].read(page) {
            Ok(0) => return Ok(false),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(Error::io("read a buffer of ftrace", error)),
        };
        let collector = &mut self.collector;
        if let Err(error) = read_page(&page[..bytes], &self.layout, |time, event| collector.take(time, event)) {
            self.collector.count_malformed(&error);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_buffers_together_are_limited() {
        assert_eq!((buffer_kb(24 << 30, 2), buffer_kb(24 << 30, 128)), (8 << 10, 512));
        assert_eq!((buffer_kb(256 << 20, 4), buffer_kb(64 << 20, 8), buffer_kb(1 << 30, 0)), (1024, 128, 8 << 10));
        assert_eq!(buffer_kb(1 << 40, 4096), 64);
    }
}
