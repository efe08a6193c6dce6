//! Collects decoded events: which pages of which inode were touched for the first time, and which programs were executed.
//!
//! ftrace repeats an event for each access. Here only pages that are new in their way (requested, mapped around a fault, added to
//! the cache) are kept, as the BPF programs do in the kernel.

use crate::collect::{directory_id, memory_limit};
use crate::nobpf::event::{Schema, TraceEvent};
use ahead_model::RangeSet;
use ahead_profile::learn::{Access, AccessKind, ExecSeen, MemoryLimit};
use ahead_sys::maps::{self, Area};
use ahead_sys::mounts;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStringExt;

/// An inode as events name it. Not unique on btrfs: its subvolumes share a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct InodeKey {
    /// The superblock's device number, in the kernel's encoding.
    pub device: u32,
    pub inode: u64,
}

impl InodeKey {
    /// The inode of a mapped file.
    pub(crate) fn mapped_at(area: &Area) -> InodeKey {
        InodeKey { device: area.device.to_kernel(), inode: area.inode }
    }
}

/// The touched pages of an inode.
#[derive(Debug)]
struct Touched {
    id: u32,
    /// Requested, mapped around a fault, added.
    seen: [RangeSet; 3],
}

/// What belongs to the recorder and not to the observed programs.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// The recorder's threads: left out.
    threads: BTreeSet<u32>,
    /// Files that the recorder has mapped. Before its exec a held child is a copy of the recorder.
    mapped: BTreeSet<InodeKey>,
    /// The child that is held before its exec.
    held: Option<u32>,
}

impl Own {
    pub(crate) fn new(held: Option<u32>) -> Own {
        let mapped = maps::files_of(std::process::id()).iter().map(InodeKey::mapped_at).collect();
        let mut own = Own { held, mapped, ..Own::default() };
        own.refresh();
        own
    }

    /// Adds the threads that were started since.
    pub(crate) fn refresh(&mut self) {
        self.threads.extend(threads_of(std::process::id()));
    }

    fn is_ours(&self, tid: u32, key: InodeKey, kind: AccessKind) -> bool {
        let is_fault = kind == AccessKind::Fault || kind == AccessKind::Around;
        self.threads.contains(&tid) || (self.held == Some(tid) && is_fault && self.mapped.contains(&key))
    }
}

/// The threads of a process. None: it has ended.
pub(crate) fn threads_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Collects events one by one.
#[derive(Debug)]
pub(crate) struct Collector {
    pub schema: Schema,
    pub own: Own,
    limit: MemoryLimit,
    files: HashMap<InodeKey, Touched>,
    accesses: Vec<Access>,
    execs: Vec<ExecSeen>,
    parents: HashMap<u32, u32>,
    /// Root and working directories, by path, with their ids.
    directories: HashMap<Vec<u8>, u32>,
    own_namespace: u32,
    last_id: u32,
    malformed: u64,
}

/// Everything that was collected.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// The inodes by the ids of the accesses.
    pub inodes: HashMap<u32, InodeKey>,
    pub accesses: Vec<Access>,
    pub execs: Vec<ExecSeen>,
    pub parents: HashMap<u32, u32>,
    pub directories: HashMap<Vec<u8>, u32>,
    pub own_namespace: u32,
    pub last_id: u32,
    pub malformed: u64,
    /// Events beyond the memory limit.
    pub unkept: u64,
}

impl Collector {
    pub(crate) fn new(schema: Schema, own: Own) -> Collector {
        Collector::within(schema, own, memory_limit())
    }

    fn within(schema: Schema, own: Own, limit: MemoryLimit) -> Collector {
        Collector {
            schema,
            own,
            limit,
            files: HashMap::new(),
            accesses: Vec::new(),
            execs: Vec::new(),
            parents: HashMap::new(),
            directories: HashMap::new(),
            own_namespace: mounts::namespace(None).unwrap_or(0),
            last_id: 0,
            malformed: 0,
        }
    }

    /// Takes one event.
    pub(crate) fn take(&mut self, time_ns: u64, bytes: &[u8]) {
        // The schema is needed while the event borrows the bytes only, and never changes.
        match self.schema.decode(bytes) {
            Ok(TraceEvent::Pages { tid, device, inode, pages, kind }) => {
                let access = Access { time_ns, tgid: tid, tid, file: 0, pages, kind, cpu_ns: 0 };
                self.take_pages(InodeKey { device, inode }, access);
            }
            Ok(TraceEvent::Fork { parent, child }) => {
                if self.parents.contains_key(&child) || self.limit.take::<(u32, u32)>(1, 0) {
                    self.parents.insert(child, parent);
                }
            }
            Ok(TraceEvent::Exec { tid, name }) => self.take_exec(time_ns, tid, name),
            Err(error) => self.count_malformed(&error),
        }
    }

    /// Counts an event, or a page of events, that is not understood.
    pub(crate) fn count_malformed(&mut self, error: &dyn std::error::Error) {
        tracing::debug!("{error}");
        self.malformed += 1;
    }

    fn take_pages(&mut self, key: InodeKey, access: Access) {
        if self.own.is_ours(access.tid, key, access.kind) {
            return;
        }
        if !self.files.contains_key(&key) {
            if !self.limit.take::<(InodeKey, Touched)>(1, 0) {
                return;
            }
            self.last_id += 1;
            self.files.insert(key, Touched { id: self.last_id, seen: Default::default() });
        }
        let Some(file) = self.files.get_mut(&key) else { return };
        let seen = &mut file.seen[match access.kind {
            AccessKind::Read | AccessKind::Fault => 0,
            AccessKind::Around => 1,
            AccessKind::Added => 2,
        }];
        let new: Vec<_> = seen.gaps(&access.pages).collect();
        if new.is_empty() || !self.limit.take::<(Access, std::ops::Range<u64>)>(new.len(), 0) {
            return;
        }
        seen.insert(access.pages.clone());
        self.accesses.extend(new.into_iter().map(|pages| Access { file: file.id, pages, ..access.clone() }));
    }

    fn take_exec(&mut self, time_ns: u64, tid: u32, name: &[u8]) {
        if self.own.held == Some(tid) {
            self.own.held = None;
        }
        if !self.limit.take::<ExecSeen>(1, name.len()) {
            return;
        }
        // The process may have ended since: then its directories are taken for the recorder's.
        let process = format!("/proc/{tid}");
        let namespace = mounts::namespace(Some(tid)).unwrap_or(self.own_namespace);
        let root = self.directory(&process, "root");
        let directory = self.directory(&process, "cwd");
        let name = name.to_vec();
        self.execs.push(ExecSeen {
            time_ns,
            tgid: tid,
            file: 0,
            root,
            directory,
            mount_namespace: namespace,
            name,
            cpu_ns: 0,
        });
    }

    /// The id of a process's root or working directory; 0: unknown.
    fn directory(&mut self, process: &str, link: &str) -> u32 {
        let target =
            fs::read_link(format!("{process}/{link}")).or_else(|_| fs::read_link(format!("/proc/self/{link}")));
        let Ok(target) = target else { return 0 };
        let path = target.into_os_string().into_vec();
        directory_id(&mut self.directories, &mut self.last_id, &mut self.limit, path)
    }

    pub(crate) fn finish(self) -> Collected {
        Collected {
            inodes: self.files.iter().map(|(key, touched)| (touched.id, *key)).collect(),
            accesses: self.accesses,
            execs: self.execs,
            parents: self.parents,
            directories: self.directories,
            own_namespace: self.own_namespace,
            last_id: self.last_id,
            malformed: self.malformed,
            unkept: self.limit.refused(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nobpf::event::tests::{event, schema};

    fn collector(own: Own) -> Collector {
        Collector::within(schema(), own, MemoryLimit::of(1 << 20))
    }

    fn read_of(inode: u64, first: u64, last: u64) -> Vec<u8> {
        let [inode, first, last] = [inode, first, last].map(u64::to_ne_bytes);
        event(1, &[(8, &inode), (16, &8u32.to_ne_bytes()), (24, &first), (32, &last)])
    }

    fn fault_of(inode: u64, page: u64) -> Vec<u8> {
        let [inode, page] = [inode, page].map(u64::to_ne_bytes);
        event(2, &[(8, &inode), (16, &8u32.to_ne_bytes()), (24, &page)])
    }

    #[test]
    fn only_new_pages_are_kept() {
        let mut collector = collector(Own::default());
        for (time, event) in
            [read_of(1, 0, 3), read_of(1, 2, 5), fault_of(1, 4), read_of(1, 0, 5), fault_of(2, 0)].iter().enumerate()
        {
            collector.take(time as u64, event);
        }
        collector.take(9, b"x");
        let collected = collector.finish();
        let kept: Vec<_> = collected.accesses.iter().map(|access| (access.time_ns, access.pages.clone())).collect();
        assert_eq!(kept, [(0, 0..4), (1, 4..6), (4, 0..1)]);
        assert_eq!((collected.inodes.len(), collected.malformed, collected.unkept), (2, 1, 0));
    }

    #[test]
    fn faults_of_the_held_child_on_the_recorders_files_do_not_count() {
        let mapped = BTreeSet::from([InodeKey { device: 8, inode: 1 }]);
        let mut collector = collector(Own { held: Some(7), mapped, ..Own::default() });
        collector.take(0, &fault_of(1, 0));
        collector.take(1, &fault_of(2, 0));
        collector.take(2, &event(6, &[(8, &(20u32 | 3 << 16).to_ne_bytes()), (20, b"/x\0")]));
        collector.take(3, &fault_of(1, 0));
        let collected = collector.finish();
        assert_eq!(collected.accesses.iter().map(|access| access.time_ns).collect::<Vec<_>>(), [1, 3]);
        assert_eq!((collected.execs.len(), collected.execs[0].name.as_slice()), (1, &b"/x"[..]));
    }

    #[test]
    fn events_beyond_the_memory_limit_are_counted() {
        let mut collector = Collector::within(schema(), Own::default(), MemoryLimit::of(8 << 10));
        for inode in 0..1000 {
            collector.take(0, &read_of(inode, 0, 0));
        }
        let collected = collector.finish();
        assert!(collected.accesses.len() < 100);
        assert_eq!(collected.unkept, 1000 - collected.accesses.len() as u64);
    }

    #[test]
    fn mapped_files_have_the_number_of_their_superblock() {
        let (addresses, device) = (0..4096, ahead_model::DeviceNumber::new(0xfe, 0x1f));
        let area = Area { addresses, is_shared: false, offset_bytes: 0, device, inode: 1234, path: None };
        assert_eq!(InodeKey::mapped_at(&area), InodeKey { device: 0xfe << 20 | 0x1f, inode: 1234 });
        let mut own = Own::new(None);
        own.refresh();
        assert!(own.threads.contains(&std::process::id()) && !own.mapped.is_empty());
    }
}
