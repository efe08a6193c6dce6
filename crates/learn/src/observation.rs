//! What an observer has seen, as plain values. Numbers and paths come from other programs and the kernel: none is trusted.

use ahead_model::Mount;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// How a page was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// A buffered read asked for it.
    Read,
    /// A mapping was touched and the page was looked up.
    Fault,
    /// It lay in the window around a touched page and was mapped with it: an upper bound of what was used.
    Around,
    /// It came into the page cache, by whatever cause.
    Added,
}

/// Pages of one file touched at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Thread group (process id).
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// The file: an id that a [`FileSeen`] explains.
    pub file: u32,
    /// Page numbers.
    pub pages: Range<u64>,
    /// How.
    pub kind: AccessKind,
}

/// An inode, with the path that it had in its file system when it was first touched (or after a rename).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSeen {
    /// When its path was taken, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The id that accesses use.
    pub id: u32,
    /// Type and permission bits, as in stat.
    pub mode: u32,
    /// Device number of the superblock, in the kernel's own encoding.
    pub device: u32,
    /// Of a block device's inode: the device's number, encoded likewise.
    pub rdev: u32,
    /// Inode number.
    pub inode: u64,
    /// Inode generation: distinguishes files that had the same inode number at different times.
    pub generation: u32,
    /// Size when it was first touched, bytes.
    pub size_bytes: u64,
    /// Magic number of the file system.
    pub magic: u64,
    /// It had no name any more.
    pub unlinked: bool,
    /// The path is not whole: too deep, too long, or no directory entry is cached.
    pub incomplete: bool,
    /// From the root of its file system, with a leading slash (`/` alone for the root).
    pub path: Vec<u8>,
}

/// A program was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSeen {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// The program file (of a script: its interpreter), by id; 0: not known.
    pub file: u32,
    /// The root directory of the process, by id.
    pub root: u32,
    /// The working directory of the process, by id.
    pub directory: u32,
    /// Number of its mount namespace.
    pub mount_namespace: u32,
    /// As it was given to execve.
    pub name: Vec<u8>,
}

/// A path was looked up by a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSeen {
    /// When, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// The directory that `path` starts from, by id.
    pub base: u32,
    /// The call gave an error.
    pub failed: bool,
    /// The directory `base` itself was listed.
    pub listed: bool,
    /// As the program gave it; empty: `base` itself.
    pub path: Vec<u8>,
}

/// What the BPF side counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that did not fit into the ring buffer.
    pub ring_full: u64,
    /// Accesses to files, or processes, for which there was no room in a table.
    pub table_full: u64,
    /// Events that no program saw: it had been interrupted on that processor, and is not begun there again before it has ended.
    pub passed_over: u64,
    /// Names that could not be sent at once, and were sent later.
    pub busy: u64,
    /// Paths that could not be read from the program's memory.
    pub unreadable: u64,
    /// Accesses reported without looking whether they repeat: the table of pages was full.
    pub repeated: u64,
    /// Events that were seen, and not kept: the recorder's memory for them was full.
    pub unkept: u64,
}

/// Everything that one observation saw.
#[derive(Clone, Debug, Default)]
pub struct Observation {
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
    /// What the events came from, for users: `tp_btf mm_filemap_get_pages+…`.
    pub source: String,
    /// Whether accesses to cached pages were seen, too, and not only what came into the cache.
    pub sees_hits: bool,
    /// What the kernel side counted.
    pub counters: Counters,
    /// Events that could not be understood.
    pub malformed: u64,
}

/// Generations that are gone back for an ancestor's exec. Numbers are reused, so a chain of parents can be a circle.
const GENERATIONS_MOST: usize = 4096;

impl Observation {
    /// Sorts the events by time: each processor delivers its own in its own order.
    pub fn sort(&mut self) {
        self.accesses.sort_by_key(|access| access.time_ns);
        self.execs.sort_by_key(|exec| exec.time_ns);
        self.lookups.sort_by_key(|lookup| lookup.time_ns);
    }

    /// Events that are missing here.
    pub fn lost_events(&self) -> u64 {
        let Counters { ring_full, table_full, passed_over, unkept, .. } = self.counters;
        ring_full + table_full + passed_over + unkept + self.malformed
    }
}

/// The execs of an observation by process.
#[derive(Debug)]
pub(crate) struct ExecIndex<'a> {
    observation: &'a Observation,
    /// In order of time.
    by_process: HashMap<u32, Vec<&'a ExecSeen>>,
}

impl ExecIndex<'_> {
    /// Of an observation that is sorted.
    pub(crate) fn of(observation: &Observation) -> ExecIndex<'_> {
        let mut by_process: HashMap<u32, Vec<&ExecSeen>> = HashMap::new();
        for exec in &observation.execs {
            by_process.entry(exec.tgid).or_default().push(exec);
        }
        ExecIndex { observation, by_process }
    }

    /// The last exec at or before `time_ns` of a process, or of the nearest ancestor that had one.
    pub(crate) fn exec_of(&self, tgid: u32, time_ns: u64) -> Option<&ExecSeen> {
        let mut process = tgid;
        for _ in 0..GENERATIONS_MOST {
            let execs = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
            let before = execs.partition_point(|exec| exec.time_ns <= time_ns);
            if let Some(last) = before.checked_sub(1) {
                return Some(execs[last]);
            }
            process = *self.observation.parents.get(&process)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_of_a_process_is_its_last_one_before_or_an_ancestor_s() {
        let exec = |(tgid, time_ns)| ExecSeen {
            time_ns,
            tgid,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 1,
            name: Vec::new(),
        };
        let mut observation = Observation {
            execs: [(1, 30), (1, 10), (2, 20)].map(exec).to_vec(),
            // A circle, as reused process numbers make it.
            parents: HashMap::from([(3, 1), (4, 5), (5, 4)]),
            ..Observation::default()
        };
        observation.sort();
        let index = ExecIndex::of(&observation);
        let found = |tgid, time_ns| index.exec_of(tgid, time_ns).map(|exec| (exec.tgid, exec.time_ns));
        assert_eq!(found(1, 29), Some((1, 10)));
        assert_eq!(found(3, 30), Some((1, 30)));
        assert_eq!((found(2, 19), found(4, 99)), (None, None));
    }
}
