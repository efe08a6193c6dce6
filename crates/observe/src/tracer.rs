//! Loads and attaches the BPF programs, and collects their events.

use crate::awaited::{self, AwaitedStart};
use crate::collect::Collector;
use crate::objects::{self, Compiled, bpf_error, map};
use crate::program_file::ProgramFile;
use crate::reader::{EventReader, consumer, events, raise_priority};
use crate::source::{Abilities, Source, abilities};
use crate::syscalls;
use ahead_profile::learn::{Counters, Observation};
use ahead_sys::{Error, Result, machine, mounts, process_id};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, OpenObject};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

static OBJECT: Compiled = Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/ahead.bpf.deflate")));

/// The observed processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The processes given to [`Tracer::follow`], and their descendants.
    #[default]
    Processes,
    /// This process, its running descendants, and all that these start from now on.
    Family(u32),
    /// Every process in this directory of the cgroup v2 file system, and below it.
    Cgroup(PathBuf),
    /// The first process that executes one of these programs, once, and its descendants. It is followed from its exec on, which waits
    /// for nothing.
    FirstStart(Vec<ProgramFile>),
    /// Every process except our own.
    Everything,
}

/// Options of an observation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The observed processes.
    pub scope: Scope,
    /// Whether lookups of paths are recorded. Slows down every system call of every program.
    pub lookups: bool,
    /// Whether file pages added to the cache are recorded ([`crate::AccessKind::Added`]). Those of block devices always are.
    pub added: bool,
    /// Whether the processor clocks of the followed threads are kept, for the program's timeline. Slows down every switch between
    /// threads. Only for [`Scope::Processes`].
    pub timeline: bool,
    /// Use only this source, instead of the best that works.
    pub source: Option<Source>,
    /// The most memory of the kernel's ring buffer and tables. `None`: a share of the machine's memory, up to 100 MB.
    pub memory_bytes: Option<u64>,
}

/// A running observer.
#[derive(Debug)]
pub struct Tracer {
    object: Object,
    links: Vec<Link>,
    /// Number of missed program runs at the start.
    passed_over: u64,
    source: Source,
    reader: EventReader<Collector>,
    awaited: Option<AwaitedStart>,
}

/// Maximum size of the ring buffer, bytes: a million accesses.
const RING_MOST_BYTES: u64 = 64 << 20;
/// The ring buffer takes at most this fraction of memory, because it is locked.
const RING_SHARE: u64 = 64;
const RING_LEAST_BYTES: u64 = 1 << 20;
/// The reader is woken when this fraction of the ring buffer is full.
const WAKE_SHARE: u64 = 16;
/// Size of `struct thread_clock` in `bpf/maps.h`, bytes.
const CLOCK_BYTES: usize = 48;
/// Maximum number of entries in the table of pages, 64 pages each, for 4 GiB of memory or more; an entry takes about 100 bytes.
const WORDS_MOST: u64 = 1 << 18;
/// Maximum number of entries in the table of files.
const FILES_MOST: u64 = 1 << 16;
/// Kernel memory of an entry of these two tables, bytes: key, value and 48 bytes of the table (`struct htab_elem`).
const ENTRY_BYTES: u64 = 112;
/// Enough for the start of a small program.
const ENTRIES_LEAST: u64 = 1 << 10;

/// Refuses a process that cannot observe: neither root nor with CAP_BPF or CAP_SYS_ADMIN. Loads nothing.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn check_privileges() -> Result<()> {
    let sufficient = CapabilitySet::SYS_ADMIN | CapabilitySet::BPF;
    let has_capability = capabilities(None).is_ok_and(|own| own.effective.intersects(sufficient));
    if machine::is_root() || has_capability { Ok(()) } else { Err(Error::needs_root("observing programs")) }
}

/// As [`check_privileges`], where processes are looked up by the numbers that BPF programs report.
pub(crate) fn check_host() -> Result<()> {
    check_privileges()?;
    if process_id::has_kernel_numbers() {
        return Ok(());
    }
    let why = "in this PID namespace processes have other numbers; run it outside of the container, or with --pid=host";
    Err(Error::Unsupported { what: "observing open files".into(), why: why.into() })
}

/// Refuses a directory that is not a cgroup of version 2.
///
/// # Errors
/// [`Error::Unsupported`]; there is no such directory.
pub fn check_cgroup(directory: &Path) -> Result<()> {
    cgroup_of(directory).map(drop)
}

impl Tracer {
    /// Loads and attaches the best source that works here, and starts to collect. Needs root.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Unsupported`], with what is missing. Then no program stays attached.
    pub fn start(options: &Options) -> Result<Tracer> {
        let abilities = abilities()?;
        let wanted: Vec<Source> = match options.source {
            Some(source) => vec![source],
            None => abilities.sources.clone(),
        };
        if let Scope::Cgroup(directory) = &options.scope {
            // An error here affects every source, so it is reported once.
            cgroup_of(directory)?;
        }
        let (mut refused, mut all_denied) = (Vec::new(), true);
        for source in wanted {
            match attach(options, source, &abilities) {
                Ok(attached) => return Self::collect(attached, options, source),
                Err(error) if is_denied(&error) && !machine::is_root() => {
                    return Err(Error::needs_root("observing programs"));
                }
                Err(error) => {
                    tracing::debug!("{}: {error}", source.describe());
                    all_denied &= is_denied(&error);
                    refused.push(format!("{}: {error}", source.describe()));
                }
            }
        }
        let what = "observing programs".into();
        if all_denied {
            let remedy = "give root CAP_BPF and CAP_PERFMON (in a container they may be missing), and check that the kernel's \
                          lockdown mode permits BPF";
            return Err(Error::NotPermitted { what, remedy: remedy.into() });
        }
        Err(Error::Unsupported { what, why: refused.join("; ") })
    }

    fn collect(attached: Attached, options: &Options, source: Source) -> Result<Tracer> {
        let Attached { object, links, passed_over, listing } = attached;
        let events = events(&object, "events")?;
        let namespace = mounts::namespace(None)?;
        let (awaited, announcer) = match &options.scope {
            Scope::FirstStart(_) => awaited::pair().map(|(awaited, announcer)| (Some(awaited), Some(announcer)))?,
            _ => (None, None),
        };
        let reader = EventReader::start("observer", move |stopped| {
            raise_priority();
            read_events(&events, stopped, Collector::new(namespace, announcer))
        })?;
        let tracer = Tracer { object, links, passed_over, source, reader, awaited };
        if let (Scope::Family(pid), Some(listing)) = (&options.scope, &listing) {
            tracer.follow_family(*pid, listing)?;
        }
        Ok(tracer)
    }

    /// The source of the events.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The start of [`Scope::FirstStart`]; `None` for any other scope.
    pub fn awaited(&self) -> Option<&AwaitedStart> {
        self.awaited.as_ref()
    }

    /// Follows a process, and all that it starts from now on. `before_exec`: it is a fork of this process that has not executed
    /// its program yet; its accesses to our files do not count.
    pub fn follow(&self, tgid: u32, before_exec: bool) -> Result<()> {
        // Its first thread: the others are found when they are started.
        map(&self.object, "clocks")?
            .update(&tgid.to_ne_bytes(), &[0; CLOCK_BYTES], MapFlags::ANY)
            .map_err(|e| bpf_error(&format!("keep the clock of process {tgid}"), e))?;
        map(&self.object, "followed")?
            .update(&tgid.to_ne_bytes(), &u32::from(before_exec).to_ne_bytes(), MapFlags::ANY)
            .map_err(|e| bpf_error(&format!("follow process {tgid}"), e))
    }

    fn follow_family(&self, tgid: u32, listing: &Link) -> Result<()> {
        self.follow(tgid, false)?;
        let failed = |e| Error::io(format!("list descendants of process {tgid}"), e);
        // Process numbers are reused: a child may have a lower number than its parent, and is then found in the next pass.
        loop {
            let mut pass = Iter::new(listing).map_err(|e| bpf_error("list processes", e))?;
            let mut found = Vec::new();
            if pass.read_to_end(&mut found).map_err(failed)? == 0 {
                return Ok(());
            }
        }
    }

    /// Detaches, and returns the observation.
    pub fn finish(mut self) -> Result<Observation> {
        let passed_over = objects::lost_since(&self.object, self.passed_over)?;
        self.links.clear();
        let collector = self.reader.finish()?;
        let counters = counters(&self.object, passed_over)?;
        Ok(collector.finish(self.source, counters))
    }
}

fn counters(object: &Object, passed_over: u64) -> Result<Counters> {
    let map = map(object, "counters")?;
    let total = |which: u32| -> Result<u64> {
        let values =
            map.lookup_percpu(&which.to_ne_bytes(), MapFlags::ANY).map_err(|e| bpf_error("read counters", e))?;
        let values = values.unwrap_or_default();
        Ok(values.iter().filter_map(|bytes| Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?))).sum())
    };
    Ok(Counters {
        ring_full: total(0)?,
        table_full: total(1)?,
        busy: total(2)?,
        unreadable: total(3)?,
        repeated: total(4)?,
        unkept: 0,
        timeline: total(5)?,
        passed_over,
    })
}

fn is_denied(error: &Error) -> bool {
    error.raw_os_error() == Some(libc::EPERM) || error.raw_os_error() == Some(libc::EACCES)
}

struct Attached {
    object: Object,
    links: Vec<Link>,
    passed_over: u64,
    /// Reading it runs `on_listed`.
    listing: Option<Link>,
}

fn attach(options: &Options, source: Source, abilities: &Abilities) -> Result<Attached> {
    let mut open = objects::open("ahead", &OBJECT)?;
    choose_programs(&mut open, options, source, abilities);
    objects::choose_copies(&mut open);
    size_maps(&mut open, options, source)?;
    let object = open.load().map_err(|e| bpf_error("load BPF programs", e))?;
    if options.lookups {
        let calls = syscalls::calls().into_iter().map(|(number, shape)| (number, shape.encode()));
        objects::fill_calls(&object, "calls", calls)?;
    }
    if let Scope::FirstStart(programs) = &options.scope {
        let wanted = map(&object, "wanted")?;
        let add = |program: &ProgramFile| wanted.update(&program.key(), &[0; 4], MapFlags::ANY);
        programs.iter().try_for_each(add).map_err(|e| bpf_error("wait for a program", e))?;
    }
    let (mut links, mut listing) = (Vec::new(), None);
    for program in object.progs_mut().filter(|program| program.autoload()) {
        let what = format!("attach {}", program.name().to_string_lossy());
        let link = program.attach().map_err(|e| bpf_error(&what, e))?;
        match program.name() == LISTING {
            true => listing = Some(link),
            false => links.push(link),
        }
    }
    let passed_over = objects::activate(&object)?;
    Ok(Attached { object, links, passed_over, listing })
}

const LISTING: &str = "on_listed";
const ALWAYS: [&str; 4] = ["on_added", "on_fork", "on_exec", "on_exit"];

fn choose_programs(open: &mut OpenObject, options: &Options, source: Source, abilities: &Abilities) {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let wanted = match name.as_str() {
            "on_syscall_end" => options.lookups,
            "on_switch" | "on_waking" => keeps_clocks(options),
            LISTING => matches!(options.scope, Scope::Family(_)),
            "enter_splice" | "probe_splice" => abilities.has_splice && source.programs().contains(&name.as_str()),
            other => ALWAYS.contains(&other) || source.programs().contains(&other),
        };
        program.set_autoload(wanted);
    }
}

/// Whether threads have clocks: only where every followed process is known by its number.
fn keeps_clocks(options: &Options) -> bool {
    options.timeline && options.scope == Scope::Processes
}

fn size_maps(open: &mut OpenObject, options: &Options, source: Source) -> Result<()> {
    let memory = machine::meminfo_bytes("MemTotal")?;
    let TableSizes { ring, words, files } = TableSizes::of(memory, options.memory_bytes);
    let programs = match &options.scope {
        Scope::FirstStart(programs) => programs.len(),
        _ => 0,
    };
    let settings = settings(options, source, ring)?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let outcome = match name.as_str() {
            "events" => map.set_max_entries(ring as u32),
            "words" => map.set_max_entries(words as u32),
            "files" => map.set_max_entries(files as u32),
            "wanted" => map.set_max_entries(programs.max(1) as u32),
            _ if name.contains(".rodata") => map.set_initial_value(&settings),
            _ => Ok(()),
        };
        outcome.map_err(|e| bpf_error(&format!("set up the BPF map {name}"), e))?;
    }
    Ok(())
}

/// TableSizes of the ring buffer, bytes, and of the tables, entries.
struct TableSizes {
    ring: u64,
    words: u64,
    files: u64,
}

impl TableSizes {
    fn of(memory_bytes: u64, most_bytes: Option<u64>) -> TableSizes {
        let (ring, words) = (ring_bytes(memory_bytes), (memory_bytes >> 14).clamp(1 << 14, WORDS_MOST));
        let Some(most_bytes) = most_bytes else { return TableSizes { ring, words, files: FILES_MOST } };
        let entries = (most_bytes / 4 / ENTRY_BYTES).max(ENTRIES_LEAST);
        let half = 1 << (most_bytes / 2).max(RING_LEAST_BYTES).ilog2();
        TableSizes { ring: ring.min(half), words: words.min(entries), files: entries.min(FILES_MOST) }
    }
}

/// The size of the ring buffer: a power of two, as required.
fn ring_bytes(memory_bytes: u64) -> u64 {
    let most = (memory_bytes / RING_SHARE).clamp(RING_LEAST_BYTES, RING_MOST_BYTES);
    1 << most.ilog2()
}

/// `struct settings` of `bpf/event.h`.
fn settings(options: &Options, source: Source, ring_bytes: u64) -> Result<Vec<u8>> {
    let (cgroup, level) = match &options.scope {
        Scope::Cgroup(directory) => cgroup_of(directory)?,
        _ => (0, 0),
    };
    let mut bytes = cgroup.to_ne_bytes().to_vec();
    let numbers = [
        level,
        u32::from(options.scope == Scope::Everything),
        std::process::id(),
        machine::page_size().ilog2(),
        mounts::namespace(None)?,
        u32::from(options.added || !source.sees_hits()),
        (ring_bytes / WAKE_SHARE) as u32,
        if keeps_clocks(options) { (ring_bytes / 2) as u32 } else { 0 },
        u32::from(objects::has_copies()),
        u32::from(matches!(options.scope, Scope::FirstStart(_))),
    ];
    bytes.extend(numbers.map(u32::to_ne_bytes).concat());
    Ok(bytes)
}

/// The id of a cgroup (its directory's inode number), and its depth below the root.
fn cgroup_of(directory: &Path) -> Result<(u64, u32)> {
    let canonical = std::fs::canonicalize(directory).map_err(|e| Error::io(directory.display().to_string(), e))?;
    let inode = std::fs::metadata(&canonical).map_err(|e| Error::io(canonical.display().to_string(), e))?.ino();
    let table = mounts::own()?;
    let root = table
        .iter()
        .filter(|mount| mount.fs_type == "cgroup2")
        .map(|mount| Path::new(OsStr::from_bytes(&mount.mount_point)))
        .find(|point| canonical.starts_with(point))
        .ok_or_else(|| Error::Unsupported {
            what: format!("following {}", directory.display()),
            why: "it is not a directory of a mounted cgroup v2 file system".into(),
        })?;
    let below = canonical.strip_prefix(root).map_or(0, |rest| rest.components().count());
    Ok((inode, below as u32))
}

const EVENTS: u64 = 0;
const STOPPED: u64 = 1;

/// Registers the ring buffer edge-triggered, so that the BPF programs decide when to wake the reader. Otherwise it would stay
/// awake while there are any events, and compete with the program for cache lines.
fn wait_for_either(events: &MapHandle, stopped: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, events, epoll::EventData::new_u64(EVENTS), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
    epoll::add(&epoll, stopped, epoll::EventData::new_u64(STOPPED), epoll::EventFlags::IN)?;
    Ok(epoll)
}

/// Collects events until the other end of `stopped` is closed and the buffer is empty. Blocks until the BPF programs wake it.
fn read_events(events: &MapHandle, stopped: &OwnedFd, mut collector: Collector) -> Result<Collector> {
    let ring = consumer(events, |bytes| collector.take(bytes))?;
    let epoll = wait_for_either(events, stopped).map_err(|e| Error::io("epoll", e))?;
    let mut ready = Vec::with_capacity(2);
    loop {
        match epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut ready), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::io("wait for events", e)),
        }
        ring.consume().map_err(|e| bpf_error("read the ring buffer", e))?;
        if ready.drain(..).any(|event| event.data.u64() == STOPPED) {
            break;
        }
    }
    drop(ring);
    Ok(collector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn ring_buffer_is_a_power_of_two_and_a_small_share_of_memory() {
        for memory in [64 << 20, 256 << 20, 1 << 30, 3 << 30, 24 << 30, 1 << 40] {
            let bytes = ring_bytes(memory);
            assert!(bytes.is_power_of_two() && (RING_LEAST_BYTES..=RING_MOST_BYTES).contains(&bytes));
            assert!(bytes <= memory / 64 || bytes == RING_LEAST_BYTES, "{memory}");
        }
    }

    #[test]
    fn tables_fit_into_the_given_memory() {
        for most in [2 << 20, 3 << 20, 8 << 20, 100 << 20] {
            let sizes = TableSizes::of(24 << 30, Some(most));
            let bytes = sizes.ring + (sizes.words + sizes.files) * ENTRY_BYTES;
            assert!(
                sizes.ring.is_power_of_two() && bytes <= most.max(RING_LEAST_BYTES + 2 * ENTRIES_LEAST * ENTRY_BYTES),
                "{bytes} of {most}"
            );
        }
        assert_eq!(TableSizes::of(24 << 30, Some(u64::MAX)).ring, TableSizes::of(24 << 30, None).ring);
    }

    /// Regression: every recording of a program loaded and attached the program that lists running processes.
    #[test]
    fn processes_are_listed_only_to_follow_a_family() {
        let is_loaded = |scope| {
            let mut open = objects::open("ahead", &OBJECT).unwrap();
            let options = Options { scope, ..Options::default() };
            let abilities = Abilities { sources: Vec::new(), has_splice: false };
            choose_programs(&mut open, &options, Source::Tracepoints, &abilities);
            open.progs().find(|program| program.name() == LISTING).unwrap().autoload()
        };
        assert!(is_loaded(Scope::Family(1)));
        assert!(!is_loaded(Scope::Processes) && !is_loaded(Scope::Everything));
    }

    #[test]
    fn settings_have_the_layout_of_the_structure() {
        let options = Options { scope: Scope::Everything, added: true, ..Options::default() };
        let expected = Layout::of("ahead").bytes(
            "settings",
            &[
                ("everything", 1),
                ("own_tgid", std::process::id().into()),
                ("page_shift", machine::page_size().ilog2().into()),
                ("mount_namespace", mounts::namespace(None).unwrap().into()),
                ("want_added", 1),
                ("wake_bytes", 1 << 16),
                ("has_copies", objects::has_copies().into()),
            ],
        );
        assert_eq!(settings(&options, Source::Tracepoints, 1 << 20).unwrap(), expected);
    }

    #[test]
    fn counters_have_the_numbers_of_the_enum() {
        let layout = Layout::of("layout_events");
        let names = ["LOSS_RING", "LOSS_FILES", "LOSS_BUSY", "LOSS_TEXT", "REPEATED", "LOSS_TIMELINE"];
        assert_eq!(names.map(|name| layout.value("loss", name)), [0, 1, 2, 3, 4, 5]);
    }
}
