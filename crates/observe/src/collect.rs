//! Collects events from the ring buffer into an observation.

use crate::awaited::Announcer;
use crate::event::{Event, decode};
use crate::source::Source;
use ahead_model::sorting;
use ahead_profile::learn::{
    Access, Counters, ExecSeen, FileSeen, LookupSeen, MemoryLimit, Observation, ThreadSeen, memory_limit_bytes,
};
use ahead_sys::machine;
use ahead_sys::mounts::{self, Mount, Table};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum number of open mount tables of other namespaces, one descriptor each; beyond it, a namespace counts as unseen. A
/// machine has a few containers, and a process 1024 descriptors.
const TABLES_MOST: usize = 256;

/// Maximum number of changes of threads that are kept, 48 MB. The start of Chromium has some ten thousand.
const THREAD_CHANGES_MOST: usize = 1 << 20;

/// The identity of a lookup: the directory that it starts from, whether that was listed, and the path.
type Known = (u32, bool, Vec<u8>);

/// The memory limit of an observation on this machine.
pub(crate) fn memory_limit() -> MemoryLimit {
    MemoryLimit::of(memory_limit_bytes(machine::meminfo_bytes("MemTotal").unwrap_or(0)))
}

/// The id of a directory: the next one if it is new; 0: beyond the memory limit.
pub(crate) fn directory_id(
    directories: &mut HashMap<Vec<u8>, u32>,
    last_id: &mut u32,
    limit: &mut MemoryLimit,
    path: Vec<u8>,
) -> u32 {
    if let Some(id) = directories.get(&path) {
        return *id;
    }
    if !limit.take::<(Vec<u8>, u32)>(1, path.len()) {
        return 0;
    }
    *last_id += 1;
    directories.insert(path, *last_id);
    *last_id
}

/// Collects events one by one.
#[derive(Debug)]
pub(crate) struct Collector {
    accesses: Vec<Access>,
    files: BTreeMap<u32, FileSeen>,
    execs: Vec<ExecSeen>,
    parents: HashMap<u32, u32>,
    lookups: Vec<LookupSeen>,
    known_lookups: HashSet<Known>,
    threads: Vec<ThreadSeen>,
    threads_unkept: u64,
    tables: BTreeMap<(u32, u32), Table>,
    own_namespace: u32,
    malformed: u64,
    limit: MemoryLimit,
    /// Reports the first exec, and the end.
    announcer: Option<Announcer>,
}

impl Collector {
    pub(crate) fn new(own_namespace: u32, announcer: Option<Announcer>) -> Collector {
        Collector { announcer, ..Collector::within(own_namespace, memory_limit()) }
    }

    fn within(own_namespace: u32, limit: MemoryLimit) -> Collector {
        Collector {
            limit,
            accesses: Vec::new(),
            files: BTreeMap::new(),
            execs: Vec::new(),
            parents: HashMap::new(),
            lookups: Vec::new(),
            known_lookups: HashSet::new(),
            threads: Vec::new(),
            threads_unkept: 0,
            tables: BTreeMap::new(),
            own_namespace,
            malformed: 0,
            announcer: None,
        }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        match decode(bytes) {
            Ok(Event::Access(accesses)) => {
                if self.limit.take::<Access>(accesses.len(), 0) {
                    self.accesses.extend(accesses);
                }
            }
            Ok(Event::File(file)) => self.take_file(file),
            Ok(Event::Exec(exec)) => {
                if let Some(announcer) = &mut self.announcer {
                    announcer.exec(&exec, self.files.get(&exec.file));
                }
                self.take_exec(exec);
            }
            Ok(Event::Over) => self.announcer = None,
            Ok(Event::Lookup(lookup)) => self.take_lookup(lookup),
            // Not within the memory limit: the timeline must not displace what the profile needs.
            Ok(Event::Thread(thread)) if self.threads.len() < THREAD_CHANGES_MOST => self.threads.push(thread),
            Ok(Event::Thread(_)) => self.threads_unkept += 1,
            Ok(Event::Fork(parent, child)) => {
                if self.parents.contains_key(&child) || self.limit.take::<(u32, u32)>(1, 0) {
                    self.parents.insert(child, parent);
                }
            }
            Err(error) => {
                tracing::debug!("{error}");
                self.malformed += 1;
            }
        }
    }

    fn take_file(&mut self, mut file: FileSeen) {
        match self.files.get_mut(&file.id) {
            // Announced again with a new name. The first size is kept, to detect whether the file has grown.
            Some(known) => {
                file.size_bytes = known.size_bytes;
                *known = file;
            }
            None if self.limit.take::<FileSeen>(1, file.path.len()) => {
                self.files.insert(file.id, file);
            }
            None => {}
        }
    }

    fn take_exec(&mut self, exec: ExecSeen) {
        if !self.limit.take::<ExecSeen>(1, exec.name.len() + size_of::<usize>()) {
            return;
        }
        // Paths in a mount table begin at the root directory of the process that it was opened for. The first programs of a
        // container have another root than later ones.
        let (namespace, key) = (exec.mount_namespace, (exec.mount_namespace, exec.root));
        let is_new = namespace != self.own_namespace && !self.tables.contains_key(&key);
        if is_new && self.tables.len() < TABLES_MOST {
            // Fails if the program has ended already. A later program of that namespace may still succeed.
            match Table::of_process(exec.tgid) {
                // The process number may have been reused, or the process may have entered another namespace. If it has ended by
                // now, it still existed when its table was opened.
                Ok(table) if mounts::namespace(Some(exec.tgid)).is_ok_and(|now| now != namespace) => drop(table),
                Ok(table) => {
                    self.tables.insert(key, table);
                }
                Err(error) => tracing::debug!("mount table of process {}: {error}", exec.tgid),
            }
        }
        self.execs.push(exec);
    }

    fn take_lookup(&mut self, lookup: LookupSeen) {
        let key = (lookup.base, lookup.listed, lookup.path);
        if self.known_lookups.contains(&key) || !self.limit.take::<(LookupSeen, Known)>(1, 2 * key.2.len()) {
            return;
        }
        self.lookups.push(LookupSeen { path: key.2.clone(), ..lookup });
        self.known_lookups.insert(key);
    }

    /// Reads a mount table, unless it exceeds the memory limit.
    fn read_table(limit: &mut MemoryLimit, table: &mut Table) -> Option<Vec<Mount>> {
        let mounts = table.read().ok()?;
        let bytes = |mount: &Mount| mount.mount_point.len() + mount.source.len() + mount.super_options.len();
        let elsewhere = mounts.iter().map(bytes).sum();
        limit.take::<Mount>(mounts.len(), elsewhere).then_some(mounts)
    }

    pub(crate) fn finish(mut self, source: Source, counters: Counters) -> Observation {
        // Read at the end: a program mounts what it needs after its exec.
        let limit = &mut self.limit;
        let namespaces =
            self.tables.iter_mut().filter_map(|(key, table)| Some((*key, Collector::read_table(limit, table)?)));
        let namespaces = sorting::map_of(namespaces);
        let entered = self.execs.iter().map(|exec| exec.mount_namespace).filter(|number| *number != self.own_namespace);
        let is_unseen = |number: &u32| namespaces.range((*number, 0)..=(*number, u32::MAX)).next().is_none();
        let unseen = sorting::set_of(entered.filter(is_unseen));
        let mut observation = Observation {
            counters: Counters {
                unkept: self.limit.refused(),
                timeline: counters.timeline + self.threads_unkept,
                ..counters
            },
            unseen_namespaces: unseen.len() as u64,
            unnamed_files: 0,
            namespaces,
            accesses: self.accesses,
            files: self.files,
            execs: self.execs,
            parents: self.parents,
            lookups: self.lookups,
            threads: self.threads,
            own_namespace: self.own_namespace,
            source: source.describe().into(),
            sees_hits: source.sees_hits(),
            malformed: self.malformed,
        };
        observation.sort();
        observation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::learn::AccessKind;

    fn collector(bytes: usize) -> Collector {
        Collector::within(1, MemoryLimit::of(bytes))
    }

    fn finish(collector: Collector) -> Observation {
        collector.finish(Source::Tracepoints, Counters::default())
    }

    fn lookup(path: &str, time_ns: u64) -> LookupSeen {
        LookupSeen { time_ns, tgid: 1, tid: 1, cpu_ns: 0, base: 1, failed: false, listed: false, path: path.into() }
    }

    /// Regression: every path that a program looked up was kept, millions of them, until memory was exhausted.
    #[test]
    fn lookups_beyond_the_limit_are_counted_and_not_kept() {
        let mut collector = collector(64 << 10);
        for number in 0..100_000 {
            collector.take_lookup(lookup(&format!("some/path/{number}"), number));
        }
        let kept = collector.lookups.len();
        assert!((100..1000).contains(&kept), "{kept}");
        assert_eq!(collector.known_lookups.len(), kept);
        // A known path takes no memory.
        collector.take_lookup(lookup("some/path/7", 0));
        let observed = finish(collector);
        assert_eq!((observed.lookups.len(), observed.counters.unkept), (kept, 100_000 - kept as u64));
        assert_eq!(observed.lost_events(), observed.counters.unkept);
    }

    #[test]
    fn every_table_has_a_limit() {
        let mut collector = collector(16 << 10);
        let exec = |tgid: u32| ExecSeen {
            time_ns: tgid.into(),
            tgid,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 1,
            name: b"x".to_vec(),
            cpu_ns: 0,
        };
        for number in 0..1000 {
            collector.take_exec(exec(number));
            collector.take_file(FileSeen { id: number, path: vec![b'x'; 100], ..FileSeen::default() });
            let pages = u64::from(number)..u64::from(number) + 1;
            let access = Access { time_ns: 0, tgid: 1, tid: 1, file: 1, pages, kind: AccessKind::Read, cpu_ns: 0 };
            if collector.limit.take::<Access>(1, 0) {
                collector.accesses.push(access);
            }
        }
        let observed = finish(collector);
        let kept = observed.execs.len() + observed.files.len() + observed.accesses.len();
        assert!(kept < 200, "{kept}");
        assert_eq!(observed.counters.unkept, 3000 - kept as u64);
    }
}
