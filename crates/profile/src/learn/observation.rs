//! The events of an observer, as plain values. Numbers and paths come from other programs and the kernel: none is trusted.

use ahead_model::Mount;
use ahead_model::sorting;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// How a page was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// A buffered read requested it.
    Read,
    /// A mapping was accessed, and the fault looked the page up.
    Fault,
    /// A fault mapped it together with the accessed page: an upper bound of use.
    Around,
    /// It was added to the page cache, for any reason.
    Added,
}

/// Pages of one file touched at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Thread group (process id).
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// The file: the id of a [`FileSeen`].
    pub file: u32,
    /// Page numbers.
    pub pages: Range<u64>,
    /// The kind of access.
    pub kind: AccessKind,
    /// Processor time of the thread; 0 if the observer keeps no clocks.
    pub cpu_ns: u64,
}

/// An inode, with its path in its file system when it was first touched (or after a rename).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSeen {
    /// Time at which the path was read, on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The id that accesses use.
    pub id: u32,
    /// Type and permission bits, as in stat.
    pub mode: u32,
    /// Device number of the superblock, in the kernel's own encoding.
    pub device: u32,
    /// For a block device's inode: the device's number, in the same encoding.
    pub rdev: u32,
    /// Inode number.
    pub inode: u64,
    /// Inode generation: distinguishes files that had the same inode number at different times.
    pub generation: u32,
    /// Size when it was first touched, bytes.
    pub size_bytes: u64,
    /// Magic number of the file system.
    pub magic: u64,
    /// Whether it was unlinked.
    pub unlinked: bool,
    /// Whether the path is incomplete: too deep, too long, or no directory entry is cached.
    pub incomplete: bool,
    /// The path from the root of its file system, with a leading slash (`/` alone for the root).
    pub path: Vec<u8>,
}

/// An executed program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecSeen {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// The program file (for a script: its interpreter), by id; 0: unknown.
    pub file: u32,
    /// The root directory of the process, by id.
    pub root: u32,
    /// The working directory of the process, by id.
    pub directory: u32,
    /// Number of its mount namespace.
    pub mount_namespace: u32,
    /// The name as given to execve.
    pub name: Vec<u8>,
    /// Processor time of the thread; 0 if the observer keeps no clocks.
    pub cpu_ns: u64,
}

/// A path that a system call looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSeen {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// Process id.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Processor time of the thread; 0 if the observer keeps no clocks.
    pub cpu_ns: u64,
    /// The directory that `path` starts from, by id.
    pub base: u32,
    /// Whether the call failed.
    pub failed: bool,
    /// Whether the directory `base` itself was listed.
    pub listed: bool,
    /// The path as given by the program; empty: `base` itself.
    pub path: Vec<u8>,
}

/// A change of a thread's state, of which the program's timeline is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSeen {
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The thread.
    pub tid: u32,
    /// Its processor time.
    pub cpu_ns: u64,
    /// The change.
    pub change: ThreadChange,
}

/// How a thread's state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadChange {
    /// This thread started it, at this processor time.
    Started {
        /// The other thread.
        by: u32,
        /// The other thread's processor time.
        by_cpu_ns: u64,
    },
    /// It ended.
    Ended,
    /// It was woken from a sleep that was no wait for I/O.
    Woken {
        /// The followed thread that woke it; `None`: a timer, a device or another program did.
        by: Option<u32>,
        /// The other thread's processor time.
        by_cpu_ns: u64,
        /// How long it had slept.
        slept_ns: u64,
    },
}

/// Counters of the BPF programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that did not fit into the ring buffer.
    pub ring_full: u64,
    /// Accesses to files, or processes, that did not fit into a table.
    pub table_full: u64,
    /// Events that no BPF program saw: the kernel does not start a program again on a processor where it was interrupted.
    pub passed_over: u64,
    /// Names that could not be sent at once, and were sent later.
    pub busy: u64,
    /// Paths that could not be read from the program's memory.
    pub unreadable: u64,
    /// Accesses reported without a check for repeats: the table of pages was full.
    pub repeated: u64,
    /// Events that were received but not kept: the recorder's memory limit was reached.
    pub unkept: u64,
    /// Changes of threads that are missing. They make the timeline incomplete, and not the profile.
    pub timeline: u64,
}

/// The result of an observation.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Pages touched for the first time in each way, in order of time. Repeats were dropped in the kernel.
    pub accesses: Vec<Access>,
    /// The files by id.
    pub files: BTreeMap<u32, FileSeen>,
    /// Programs executed, in order of time.
    pub execs: Vec<ExecSeen>,
    /// The parent of each started process.
    pub parents: HashMap<u32, u32>,
    /// Paths looked up, each once, in order of time.
    pub lookups: Vec<LookupSeen>,
    /// Changes of threads, in order of time; empty if the observer keeps no clocks.
    pub threads: Vec<ThreadSeen>,
    /// Mount tables of other mount namespaces, as seen by processes with this root directory (by id).
    pub namespaces: BTreeMap<(u32, u32), Vec<Mount>>,
    /// Other mount namespaces that had ended before their table could be opened.
    pub unseen_namespaces: u64,
    /// Files on mounted file systems whose path was not found. Only recordings without BPF search for paths.
    pub unnamed_files: u64,
    /// Our own mount namespace.
    pub own_namespace: u32,
    /// The event sources as text: `tp_btf mm_filemap_get_pages+…`.
    pub source: String,
    /// Whether accesses to cached pages were recorded, and not only pages added to the cache.
    pub sees_hits: bool,
    /// Counters of the BPF programs.
    pub counters: Counters,
    /// Events that could not be decoded.
    pub malformed: u64,
}

/// Maximum number of generations in the search for an ancestor's exec. Process numbers are reused, so parents can form a cycle.
const GENERATIONS_MOST: usize = 4096;

impl Observation {
    /// Sorts the events by time: each processor delivers its events in its own order.
    pub fn sort(&mut self) {
        sorting::sort_by_key(&mut self.accesses, |access| access.time_ns);
        sorting::sort_by_key(&mut self.execs, |exec| exec.time_ns);
        sorting::sort_by_key(&mut self.lookups, |lookup| lookup.time_ns);
        sorting::sort_by_key(&mut self.threads, |thread| thread.time_ns);
    }

    /// The number of lost events.
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
    /// The index of a sorted observation.
    pub(crate) fn of(observation: &Observation) -> ExecIndex<'_> {
        let mut by_process: HashMap<u32, Vec<&ExecSeen>> = HashMap::new();
        for exec in &observation.execs {
            by_process.entry(exec.tgid).or_default().push(exec);
        }
        ExecIndex { observation, by_process }
    }

    /// The last exec of a process at or before `time_ns`, or that of the nearest ancestor with one.
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
    fn exec_of_a_process_is_its_last_one_or_an_ancestors() {
        let exec = |(tgid, time_ns)| ExecSeen {
            time_ns,
            tgid,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 1,
            name: Vec::new(),
            cpu_ns: 0,
        };
        let mut observation = Observation {
            execs: [(1, 30), (1, 10), (2, 20)].map(exec).to_vec(),
            // A cycle, as reused process numbers can form.
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
