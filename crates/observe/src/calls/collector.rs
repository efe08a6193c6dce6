//! Collects what calls name and what page tables map, each path and each page once.

use super::decode::{self, CallRead, Kind};
use super::descriptors::{HeldFile, link, position, process_of, regular_file};
use crate::collect::{directory_id, memory_limit};
use crate::now_ns;
use crate::syscalls::Shape;
use ahead_model::RangeSet;
use ahead_profile::learn::{Access, AccessKind, ExecSeen, LookupSeen, MemoryLimit};
use ahead_sys::held_calls::{HeldCall, read_text};
use ahead_sys::maps::{self, Area};
use ahead_sys::pagemap::Pagemap;
use ahead_sys::{evict, machine, mounts, openat};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `PATH_MAX` of linux/limits.h.
const PATH_BYTES: usize = 4096;
/// A fault maps this much around the accessed page (`fault_around_bytes`): of a file that is not larger, the whole. Bytes.
const AROUND_BYTES: u64 = 64 << 10;

/// A file that was used.
#[derive(Debug)]
pub(super) struct Used {
    pub path: Vec<u8>,
    pub inode: u64,
    /// Size at its first use, bytes.
    pub size_bytes: u64,
    pub first_ns: u64,
    read: RangeSet,
    mapped: RangeSet,
}

/// A process of the program.
#[derive(Debug, Default)]
struct Process {
    parent: u32,
    /// Its root directory, by id.
    root: u32,
    /// Whether it runs a program, and not the recorder's code before its first exec.
    is_program: bool,
    /// Whether it has executed a program itself. A forked copy that executes another one has used nothing itself.
    has_executed: bool,
    /// Whether its last call was an exec, which may have failed: a shell tries one directory after another.
    executes: bool,
    exec_ns: u64,
    last_look_ns: u64,
}

/// Collects calls one by one.
#[derive(Debug)]
pub(super) struct Collector {
    kinds: HashMap<i64, Kind>,
    child: u32,
    evicts: bool,
    page_bytes: u64,
    limit: MemoryLimit,
    processes: HashMap<u32, Process>,
    /// The process of each thread.
    threads: HashMap<u32, u32>,
    /// Files by identity, and by the path that /proc shows; ids of [`Used`].
    by_identity: HashMap<(u32, u32, u64), u32>,
    by_path: HashMap<Vec<u8>, u32>,
    pub(super) used: HashMap<u32, Used>,
    /// Directories from which paths are looked up, by path.
    pub(super) directories: HashMap<Vec<u8>, u32>,
    known: HashSet<(u32, Vec<u8>, bool)>,
    pub(super) accesses: Vec<Access>,
    pub(super) lookups: Vec<LookupSeen>,
    pub(super) execs: Vec<ExecSeen>,
    last_id: u32,
    pub(super) unreadable: u64,
}

impl Collector {
    pub(super) fn new(child: u32, evicts: bool) -> Collector {
        Collector {
            kinds: decode::calls().into_iter().map(|(held, kind)| (held.number, kind)).collect(),
            child,
            evicts,
            page_bytes: machine::page_size(),
            limit: memory_limit(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            by_identity: HashMap::new(),
            by_path: HashMap::new(),
            used: HashMap::new(),
            directories: HashMap::new(),
            known: HashSet::new(),
            accesses: Vec::new(),
            lookups: Vec::new(),
            execs: Vec::new(),
            last_id: 0,
            unreadable: 0,
        }
    }

    /// Elements beyond the memory limit.
    pub(super) fn unkept(&self) -> u64 {
        self.limit.refused()
    }

    /// The parent of each process.
    pub(super) fn parents(&self) -> HashMap<u32, u32> {
        self.processes.iter().map(|(process, of)| (*process, of.parent)).collect()
    }

    /// Takes one call, which waits meanwhile.
    pub(super) fn take(&mut self, call: &HeldCall) {
        let Some(kind) = self.kinds.get(&call.number).copied() else { return };
        let Some(process) = self.process(call.tid) else { return };
        let is_exec = matches!(kind, Kind::Executes(_));
        if let Some(of) = self.processes.get_mut(&process).filter(|of| of.executes && !is_exec) {
            (of.is_program, of.has_executed, of.executes) = (true, true, false);
        }
        match kind {
            Kind::LooksUp(shape) => self.look_up(process, call, shape),
            Kind::Executes(shape) => self.execute(process, call, shape),
            Kind::Reads(reading) => match reading.of(call) {
                Some(read) => self.read(process, call.tid, &read),
                None => self.unreadable += 1,
            },
            Kind::Maps => self.map(process, call),
            // A smaller file counts as a whole when it is mapped.
            Kind::Unmaps if call.arguments[1] > AROUND_BYTES => {
                let start = call.arguments[0] as usize;
                self.look_at(process, Some(start..start.saturating_add(call.arguments[1] as usize)));
            }
            Kind::Unmaps => {}
            Kind::Ends => {
                self.look_at(process, None);
                self.threads.retain(|_, of| *of != process);
            }
        }
    }

    /// The process of a thread. `None`: it has ended.
    fn process(&mut self, tid: u32) -> Option<u32> {
        if let Some(process) = self.threads.get(&tid) {
            return Some(*process);
        }
        let (process, parent) = process_of(tid)?;
        if !self.limit.take::<(u32, u32)>(1, 0) {
            return Some(process);
        }
        self.threads.insert(tid, process);
        if !self.processes.contains_key(&process) && self.limit.take::<(u32, Process)>(1, 0) {
            let root = link(process, "root").map_or(0, |path| self.directory(path));
            let is_program = process != self.child;
            let now = now_ns();
            self.processes
                .insert(process, Process { parent, root, is_program, last_look_ns: now, ..Process::default() });
        }
        Some(process)
    }

    /// The id of a directory; 0: beyond the memory limit.
    fn directory(&mut self, path: Vec<u8>) -> u32 {
        directory_id(&mut self.directories, &mut self.last_id, &mut self.limit, path)
    }

    /// The directory from which a call looks its path up, and the path. `None`: it cannot be read.
    fn named(&mut self, process: u32, call: &HeldCall, shape: Shape) -> Option<(u32, Vec<u8>)> {
        let [first, second, ..] = call.arguments;
        let (descriptor, address) = match shape {
            Shape::At => (Some(first as i32).filter(|number| *number != libc::AT_FDCWD), second),
            Shape::Lists => (Some(first as i32), 0),
            Shape::Path | Shape::ChangesDirectory => (None, first),
        };
        let path = if shape == Shape::Lists { Some(Vec::new()) } else { read_text(call.tid, address, PATH_BYTES) };
        let Some(path) = path else {
            self.unreadable += 1;
            return None;
        };
        if path.starts_with(b"/") {
            return Some((self.processes.get(&process).map_or(0, |process| process.root), path));
        }
        let base = match descriptor {
            Some(number) => link(call.tid, &format!("fd/{number}")),
            None => link(call.tid, "cwd"),
        };
        Some((self.directory(base?), path))
    }

    fn look_up(&mut self, process: u32, call: &HeldCall, shape: Shape) {
        let Some((base, path)) = self.named(process, call, shape) else { return };
        self.add_lookup(process, call.tid, base, path, shape == Shape::Lists);
    }

    fn add_lookup(&mut self, process: u32, tid: u32, base: u32, path: Vec<u8>, listed: bool) {
        let key = (base, path, listed);
        if self.known.contains(&key) || !self.limit.take::<(LookupSeen, Vec<u8>)>(1, 2 * key.1.len()) {
            return;
        }
        let path = key.1.clone();
        self.known.insert(key);
        self.lookups.push(LookupSeen {
            time_ns: now_ns(),
            tgid: process,
            tid,
            cpu_ns: 0,
            base,
            failed: false,
            listed,
            path,
        });
    }

    fn execute(&mut self, process: u32, call: &HeldCall, shape: Shape) {
        if self.processes.get(&process).is_some_and(|of| of.has_executed) {
            self.look_at(process, None);
        }
        let Some((base, name)) = self.named(process, call, shape) else { return };
        let time_ns = now_ns();
        if self.evicts {
            evict_program(call.tid, &name);
        }
        self.add_lookup(process, call.tid, base, name.clone(), false);
        let Some(of) = self.processes.get_mut(&process) else { return };
        *of = Process { executes: true, exec_ns: time_ns, last_look_ns: time_ns, ..*of };
        let root = of.root;
        if self.limit.take::<ExecSeen>(1, name.len()) {
            let mount_namespace = mounts::namespace(Some(process)).unwrap_or(0);
            let exec =
                ExecSeen { time_ns, tgid: process, file: 0, root, directory: base, mount_namespace, name, cpu_ns: 0 };
            self.execs.push(exec);
        }
    }

    fn read(&mut self, process: u32, tid: u32, read: &CallRead) {
        let Some((id, open)) = self.open_file(tid, read.descriptor) else { return };
        let position = if read.offset_bytes.is_none() { position(tid, read.descriptor) } else { 0 };
        let pages = read.pages(position, open.size_bytes, self.page_bytes);
        self.add(process, id, pages, AccessKind::Read, now_ns());
    }

    fn map(&mut self, process: u32, call: &HeldCall) {
        let [_, length, _, _, descriptor, offset] = call.arguments;
        let Some((id, open)) = self.open_file(call.tid, descriptor as i32) else { return };
        if open.size_bytes <= AROUND_BYTES {
            let read = CallRead { descriptor: 0, offset_bytes: Some(offset), length_bytes: length };
            self.add(process, id, read.pages(0, open.size_bytes, self.page_bytes), AccessKind::Around, now_ns());
        }
    }

    /// The regular file of a descriptor, and its id.
    fn open_file(&mut self, tid: u32, descriptor: i32) -> Option<(u32, HeldFile)> {
        let name = format!("fd/{descriptor}");
        let path = format!("/proc/{tid}/{name}");
        let open = regular_file(&path)?;
        if let Some(id) = self.by_identity.get(&open.identity) {
            return Some((*id, open));
        }
        if self.evicts {
            evict_file(Path::new(&path));
        }
        Some((self.add_file(link(tid, &name)?, open, now_ns())?, open))
    }

    /// A file that is used for the first time. `None`: beyond the memory limit.
    fn add_file(&mut self, path: Vec<u8>, open: HeldFile, first_ns: u64) -> Option<u32> {
        if !self.limit.take::<(Used, Vec<u8>)>(1, 2 * path.len()) {
            return None;
        }
        self.last_id += 1;
        self.by_identity.insert(open.identity, self.last_id);
        self.by_path.insert(path.clone(), self.last_id);
        let (read, mapped) = (RangeSet::new(), RangeSet::new());
        let used = Used { path, inode: open.identity.2, size_bytes: open.size_bytes, first_ns, read, mapped };
        self.used.insert(self.last_id, used);
        Some(self.last_id)
    }

    fn add(&mut self, process: u32, file: u32, pages: Range<u64>, kind: AccessKind, time_ns: u64) {
        let Some(used) = self.used.get_mut(&file) else { return };
        let seen = if kind == AccessKind::Read { &mut used.read } else { &mut used.mapped };
        if pages.is_empty() || !self.limit.take::<(Access, Range<u64>)>(1, 0) {
            return;
        }
        let new = seen.insert_new(pages);
        let access = |pages| Access { time_ns, tgid: process, tid: process, file, pages, kind, cpu_ns: 0 };
        self.accesses.extend(new.into_iter().map(access));
    }

    /// Looks at the page tables of all processes.
    pub(super) fn look_at_all(&mut self) {
        let running: HashSet<u32> = self.threads.values().copied().collect();
        running.into_iter().for_each(|process| self.look_at(process, None));
    }

    /// Adds the pages of files that a process has mapped, `within` a range of addresses.
    fn look_at(&mut self, process: u32, within: Option<Range<usize>>) {
        let Some(of) = self.processes.get(&process).filter(|of| of.is_program && !of.executes) else { return };
        let (exec_ns, last_look_ns) = (of.exec_ns, of.last_look_ns);
        let Ok(pagemap) = Pagemap::of(process) else { return };
        let now = now_ns();
        for area in maps::files_of(process) {
            let addresses = match &within {
                Some(within) => area.addresses.start.max(within.start)..area.addresses.end.min(within.end),
                None => area.addresses.clone(),
            };
            let mapped = if addresses.is_empty() { Vec::new() } else { pagemap.mapped(addresses).unwrap_or_default() };
            if mapped.is_empty() {
                continue;
            }
            let Some(file) = self.mapped_file(&area, exec_ns) else { continue };
            // After the last look, and after the file was opened.
            let time_ns = self.used.get(&file).map_or(now, |used| used.first_ns).max(last_look_ns).min(now);
            for range in mapped {
                let offset = |address: usize| area.offset_bytes + (address - area.addresses.start) as u64;
                let pages = offset(range.start) / self.page_bytes..offset(range.end).div_ceil(self.page_bytes);
                self.add(process, file, pages, AccessKind::Around, time_ns);
            }
        }
        if let Some(of) = self.processes.get_mut(&process).filter(|_| within.is_none()) {
            of.last_look_ns = now;
        }
    }

    /// The id of a mapped file. The kernel maps programs and their loaders itself, at the exec.
    fn mapped_file(&mut self, area: &Area, exec_ns: u64) -> Option<u32> {
        let path = area.path.as_ref()?.as_os_str().as_bytes();
        if let Some(id) = self.by_path.get(path) {
            return Some(*id);
        }
        let open = regular_file(std::str::from_utf8(path).ok().filter(|path| path.starts_with('/'))?)?;
        (open.identity.2 == area.inode).then_some(())?;
        self.add_file(path.to_vec(), open, exec_ns)
    }
}

/// Evicts a file that a descriptor leads to.
fn evict_file(path: &Path) {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        // Pages in use stay.
        let _ = evict::file(&file);
    }
}

/// Evicts a program before its exec.
fn evict_program(tid: u32, name: &[u8]) {
    let path = Path::new("/proc").join(tid.to_string()).join("cwd").join(OsStr::from_bytes(name));
    let handle = path.canonicalize().ok().and_then(|path| openat::handle(&path).ok());
    if let Some(file) = handle.filter(openat::Handle::is_regular_file).and_then(|handle| handle.reopen().ok()) {
        // Pages in use stay.
        let _ = evict::file(&file);
    }
}
