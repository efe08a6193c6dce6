//! What was observed, as it comes from the ring buffer.

use crate::event::{Access, Event, ExecSeen, FileSeen, LookupSeen, decode};
use crate::source::Source;
use crate::tracer::Counters;
use ahead_kernel::mounts::{self, Mount, Table};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Everything that one observation saw.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Pages touched for the first time in each way, in order of time. Repeats were dropped in the kernel.
    pub accesses: Vec<Access>,
    /// What the file ids stand for.
    pub files: BTreeMap<u32, FileSeen>,
    /// Programs executed, in order of time.
    pub execs: Vec<ExecSeen>,
    /// Parent of each process that was started.
    pub parents: HashMap<u32, u32>,
    /// Paths looked up, each once, in order of time.
    pub lookups: Vec<LookupSeen>,
    /// Mount tables of other mount namespaces, as processes with this root directory (by id) see them.
    pub namespaces: BTreeMap<(u32, u32), Vec<Mount>>,
    /// Other mount namespaces that had ended before their table could be opened.
    pub unseen_namespaces: u64,
    /// Our own mount namespace.
    pub own_namespace: u32,
    /// What the events came from.
    pub source: Source,
    /// What the kernel side counted.
    pub counters: Counters,
    /// Events that could not be understood.
    pub malformed: u64,
}

impl Observed {
    /// Events that are missing here.
    pub fn lost_events(&self) -> u64 {
        let Counters { ring_full, table_full, passed_over, .. } = self.counters;
        ring_full + table_full + passed_over + self.malformed
    }

    /// The last exec at or before `time_ns` of a process, or of the nearest ancestor that had one.
    pub fn exec_of(&self, tgid: u32, time_ns: u64) -> Option<&ExecSeen> {
        let mut process = tgid;
        // Numbers are reused: a chain of parents can be a circle.
        for _ in 0..=self.parents.len() {
            let before = self.execs.iter().filter(|exec| exec.tgid == process && exec.time_ns <= time_ns);
            if let Some(exec) = before.max_by_key(|exec| exec.time_ns) {
                return Some(exec);
            }
            process = *self.parents.get(&process)?;
        }
        None
    }
}

/// Takes events one by one.
#[derive(Debug)]
pub(crate) struct Collector {
    accesses: Vec<Access>,
    files: BTreeMap<u32, FileSeen>,
    execs: Vec<ExecSeen>,
    parents: HashMap<u32, u32>,
    lookups: Vec<LookupSeen>,
    known_lookups: HashSet<(u32, bool, Vec<u8>)>,
    tables: BTreeMap<(u32, u32), Table>,
    own_namespace: u32,
    malformed: u64,
}

impl Collector {
    pub(crate) fn new(own_namespace: u32) -> Collector {
        Collector {
            accesses: Vec::new(),
            files: BTreeMap::new(),
            execs: Vec::new(),
            parents: HashMap::new(),
            lookups: Vec::new(),
            known_lookups: HashSet::new(),
            tables: BTreeMap::new(),
            own_namespace,
            malformed: 0,
        }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) {
        match decode(bytes) {
            Ok(Event::Access(accesses)) => self.accesses.extend(accesses),
            Ok(Event::File(mut file)) => {
                // Announced again under a new name: the size at first tells whether it has grown since.
                if let Some(first) = self.files.get(&file.id) {
                    file.size_bytes = first.size_bytes;
                }
                self.files.insert(file.id, file);
            }
            Ok(Event::Exec(exec)) => self.take_exec(exec),
            Ok(Event::Lookup(lookup)) => self.take_lookup(lookup),
            Ok(Event::Fork(parent, child)) => {
                self.parents.insert(child, parent);
            }
            Err(error) => {
                tracing::debug!("{error}");
                self.malformed += 1;
            }
        }
    }

    fn take_exec(&mut self, exec: ExecSeen) {
        // Paths in a table begin at the root directory of the process that it was opened for; a container's first
        // programs have another one than those after them.
        let (namespace, key) = (exec.mount_namespace, (exec.mount_namespace, exec.root));
        if namespace != self.own_namespace && !self.tables.contains_key(&key) {
            // Too late for a program that has ended already; the next one in that namespace may be in time.
            match Table::of_process(exec.tgid) {
                // Another process may have got its number, or it may have entered another namespace. One that has ended
                // by now was there when its table was opened.
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
        if self.known_lookups.insert((lookup.base, lookup.listed, lookup.path.clone())) {
            self.lookups.push(lookup);
        }
    }

    pub(crate) fn finish(mut self, source: Source, counters: Counters) -> Observed {
        // Each processor writes in its own order.
        self.accesses.sort_by_key(|access| access.time_ns);
        self.execs.sort_by_key(|exec| exec.time_ns);
        self.lookups.sort_by_key(|lookup| lookup.time_ns);
        // Read now: a program mounts what it needs after its exec.
        let namespaces = self.tables.iter_mut().filter_map(|(key, table)| Some((*key, table.read().ok()?)));
        let namespaces: BTreeMap<(u32, u32), Vec<Mount>> = namespaces.collect();
        let entered = self.execs.iter().map(|exec| exec.mount_namespace).filter(|number| *number != self.own_namespace);
        let is_unseen = |number: &u32| namespaces.range((*number, 0)..=(*number, u32::MAX)).next().is_none();
        let unseen: BTreeSet<u32> = entered.filter(is_unseen).collect();
        Observed {
            unseen_namespaces: unseen.len() as u64,
            namespaces,
            accesses: self.accesses,
            files: self.files,
            execs: self.execs,
            parents: self.parents,
            lookups: self.lookups,
            own_namespace: self.own_namespace,
            source,
            counters,
            malformed: self.malformed,
        }
    }
}
