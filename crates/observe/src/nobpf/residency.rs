//! Recording by residency: after the run, every page of every file that is in the page cache counts.
//!
//! ```text
//!     evict ─▶ baseline: pages of files that running programs have mapped ─▶ program runs ─▶ walk: resident pages of all files
//!                            │                                                                  │
//!                            └── a file without new pages does not count ◀──────────────────────┘
//! ```
//!
//! An upper bound: pages that the kernel read ahead, and pages that other programs read meanwhile, count, too. The order of use is
//! unknown: the pages are in the order of their positions on the disk, with the time 0. Pages that running programs keep in
//! memory cannot be evicted, so their files are known only if the run adds pages.

use crate::collect::memory_limit;
use crate::nobpf::collect::InodeKey;
use crate::nobpf::walk::{self, Budget, Entry, Next, join, point_of};
use ahead_model::Mount;
use ahead_model::sorting;
use ahead_profile::learn::{Access, AccessKind, ExecSeen, FileSeen, MemoryLimit, Observation};
use ahead_sys::{Error, Result, block, cache, fiemap, generation, machine, maps, mounts, openat};
use rustix::fs::{FileType, Mode, OFlags, fstat};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const REGULAR_FILE: u32 = 0o100_000;
const BLOCK_DEVICE: u32 = 0o060_000;

/// Maximum number of mapped files whose pages are compared: a desktop has some thousand.
const MAPPED_MOST: usize = 1 << 16;

/// The pages that the program finds in memory when it starts.
#[derive(Debug)]
pub struct Residency {
    /// Resident bytes of files that running processes have mapped.
    mapped: HashMap<InodeKey, u64>,
    process: u32,
    name: Vec<u8>,
}

/// One file or block device with resident pages.
struct Found {
    seen: FileSeen,
    ranges: Vec<Range<u64>>,
    /// Its first position on the disk.
    position: u64,
}

impl Residency {
    /// Finds the pages that stayed in memory after an eviction. Waits for processes that wait for a disk. `process`: the held child, and the name of its program.
    ///
    /// # Errors
    /// Not root: the residency of other users' files is secret.
    pub fn start(process: u32, name: &[u8]) -> Result<Residency> {
        if !machine::is_root() {
            return Err(Error::needs_root("recording by residency"));
        }
        let table = mounts::own()?;
        let devices = walk::roots(&table).into_iter().map(|root| root.device.to_kernel()).collect();
        Ok(Residency { mapped: mapped_files(&devices), process, name: name.to_vec() })
    }

    /// Finds all resident pages. May open every file of the machine.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn finish(self) -> Result<Observation> {
        let table = mounts::own()?;
        let limit = memory_limit();
        let own_program = fs::metadata("/proc/self/exe").ok().map(|own| (own.dev(), own.ino()));
        let mapped = &self.mapped;
        let mut search = Search { mapped, own_program, found: Vec::new(), limit };
        let mut roots = walk::roots(&table);
        // Reclaim may evict the pages of small file systems while the walk through a large one lasts.
        sorting::sort_by_key(&mut roots, |root| used_inodes(root));
        // First: the walk reads metadata, too.
        search.block_devices(&roots);
        let (mut budget, mut is_complete) = (Budget::new(), true);
        for root in &roots {
            is_complete &= search.files(root, &mut budget);
        }
        let Search { found, limit, .. } = search;
        let exec = ExecSeen {
            time_ns: 0,
            tgid: self.process,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: mounts::namespace(None)?,
            name: self.name,
            cpu_ns: 0,
        };
        let source = if is_complete { SOURCE.into() } else { format!("{SOURCE}, INCOMPLETE: too many files") };
        let mut observation = observation(found, exec, source);
        observation.counters.unkept = limit.refused();
        // The number of missing files is unknown.
        observation.counters.table_full = u64::from(!is_complete);
        Ok(observation)
    }
}

/// The number of inodes in use. 0 where inodes are not counted (btrfs), or if that is unknown.
fn used_inodes(mount: &Mount) -> u64 {
    rustix::fs::statvfs(point_of(mount)).map_or(0, |counts| counts.f_files.saturating_sub(counts.f_ffree))
}

const SOURCE: &str = "residency after the run";

fn observation(mut found: Vec<Found>, exec: ExecSeen, source: String) -> Observation {
    sorting::sort_by_key(&mut found, |found| (found.seen.device, found.position, found.seen.inode));
    let own_namespace = exec.mount_namespace;
    let mut observation = Observation { execs: vec![exec], source, own_namespace, ..Observation::default() };
    let page = machine::page_size();
    for (index, found) in found.into_iter().enumerate() {
        let id = index as u32 + 1;
        let process = observation.execs[0].tgid;
        observation.accesses.extend(found.ranges.into_iter().map(|range| Access {
            time_ns: 0,
            cpu_ns: 0,
            tgid: process,
            tid: process,
            file: id,
            pages: range.start / page..range.end.div_ceil(page),
            kind: AccessKind::Added,
        }));
        observation.files.insert(id, FileSeen { id, ..found.seen });
    }
    observation
}

struct Search<'a> {
    mapped: &'a HashMap<InodeKey, u64>,
    /// The recorder's program runs during the recording, and pages of it are added.
    own_program: Option<(u64, u64)>,
    found: Vec<Found>,
    limit: MemoryLimit,
}

impl Search<'_> {
    /// The resident metadata of file systems that keep it in the cache of their block device.
    fn block_devices(&mut self, roots: &[&Mount]) {
        let devices = sorting::map_of(roots.iter().map(|root| (root.device, root)));
        for device in devices.into_keys().filter(|device| !device.is_anonymous()) {
            let open = || {
                let node = openat::block_device_node(device.key())?;
                let file = openat::handle(&node)?;
                let is_it = file.block_device() == Some(device.key());
                let size_bytes = block::size_bytes(device)?;
                Ok::<_, Error>((file.reopen_block_device()?, size_bytes, is_it))
            };
            let Ok((file, size_bytes, true)) = open() else { continue };
            let rdev = device.to_kernel();
            let seen = FileSeen { mode: BLOCK_DEVICE, rdev, inode: rdev.into(), size_bytes, ..FileSeen::default() };
            match cache::resident(&file, 0, size_bytes) {
                Ok(ranges) => self.keep(seen, ranges, 0),
                Err(error) => tracing::debug!("block device {device}: {error}"),
            }
        }
    }

    /// The resident pages of all files below a mount point. Returns whether no limit was reached.
    fn files(&mut self, root: &Mount, budget: &mut Budget) -> bool {
        let mut seen = BTreeSet::new();
        let walked = walk::walk(root, budget, |entry| {
            if entry.kind == FileType::RegularFile {
                // A file with several names is opened once for each.
                self.file(root, entry, &mut seen);
            }
            Next::GoOn
        });
        walked.unwrap_or_else(|error| {
            tracing::info!("{error}; its files are missing in the recording ({})", point_of(root).display());
            true
        })
    }

    fn file(&mut self, root: &Mount, entry: &Entry<'_>, seen: &mut BTreeSet<(u64, u64)>) {
        let Some((file, stat)) = open(entry) else { return };
        let size_bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let Ok(ranges) = cache::resident(&file, 0, size_bytes) else { return };
        let resident_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let identity = (stat.st_dev, stat.st_ino);
        let key = InodeKey { device: root.device.to_kernel(), inode: stat.st_ino };
        let is_new = self.mapped.get(&key).is_none_or(|before| resident_bytes > *before);
        let is_new = is_new && self.own_program != Some(identity);
        if ranges.is_empty() || !is_new || !seen.insert(identity) {
            return;
        }
        let extents = fiemap::extents(&file, 0, size_bytes).unwrap_or_default();
        let position =
            extents.iter().find(|extent| extent.is_placed()).map_or(u64::MAX, |extent| extent.physical_bytes);
        let seen = FileSeen {
            mode: REGULAR_FILE,
            device: root.device.to_kernel(),
            inode: stat.st_ino,
            generation: generation::of(&file).unwrap_or(0),
            size_bytes,
            path: join(&root.root, &entry.path()),
            ..FileSeen::default()
        };
        self.keep(seen, ranges, position);
    }

    fn keep(&mut self, seen: FileSeen, ranges: Vec<Range<u64>>, position: u64) {
        let fits = self.limit.take::<Access>(ranges.len(), 0) && self.limit.take::<Found>(1, seen.path.len());
        if fits && !ranges.is_empty() {
            self.found.push(Found { seen, ranges, position });
        }
    }
}

/// Opens a regular file. The entry may have been replaced meanwhile, also by a FIFO, which must not block.
fn open(entry: &Entry<'_>) -> Option<(OwnedFd, rustix::fs::Stat)> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::openat(entry.directory, entry.name, flags, Mode::empty());
    // O_NOATIME needs CAP_FOWNER, which root in a container may lack.
    let file = open(flags).or_else(|_| open(flags - OFlags::NOATIME)).ok()?;
    let stat = fstat(&file).ok()?;
    FileType::from_raw_mode(stat.st_mode).is_file().then_some((file, stat))
}

/// The resident bytes of all files on block devices that running processes have mapped. Files of a process that has ended meanwhile
/// can be evicted, and are then in the recording.
fn mapped_files(devices: &BTreeSet<u32>) -> HashMap<InodeKey, u64> {
    let mut found = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for area in maps::files_of(pid) {
            let key = InodeKey::mapped_at(&area);
            if !devices.contains(&key.device) || found.contains_key(&key) || found.len() >= MAPPED_MOST {
                continue;
            }
            let range = format!("{:x}-{:x}", area.addresses.start, area.addresses.end);
            match resident_bytes(&process.path().join("map_files").join(range)) {
                Ok(bytes) => drop(found.insert(key, bytes)),
                Err(error) => tracing::debug!("{error}"),
            }
        }
    }
    found
}

/// The resident bytes of a regular file. `link`: an entry of `map_files`, which leads to whatever is mapped there by now, also to a
/// device, and opening that could have an effect.
fn resident_bytes(link: &Path) -> Result<u64> {
    let failed = |e: rustix::io::Errno| Error::io(format!("open {}", link.display()), e);
    let handle = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let stat = fstat(&handle).map_err(failed)?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Error::io(format!("open {}", link.display()), std::io::Error::other("not a regular file")));
    }
    let file = fs::File::open(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let file = file.map_err(|e| Error::io(format!("open {}", link.display()), e))?;
    cache::resident_bytes(&file, 0, u64::try_from(stat.st_size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_order_of_their_positions() {
        let page = machine::page_size();
        let found = |inode, position, ranges: &[Range<u64>]| Found {
            seen: FileSeen { inode, device: 8, ..FileSeen::default() },
            ranges: ranges.to_vec(),
            position,
        };
        let exec = ExecSeen {
            time_ns: 0,
            tgid: 7,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 1,
            name: b"x".to_vec(),
            cpu_ns: 0,
        };
        let files = vec![found(1, 500, &[0..page]), found(2, 100, &[page..3 * page, 4 * page..4 * page + 1])];
        let observed = observation(files, exec, SOURCE.into());
        let accesses: Vec<_> = observed.accesses.iter().map(|access| (access.file, access.pages.clone())).collect();
        assert_eq!(accesses, [(1, 1..3), (1, 4..5), (2, 0..1)]);
        assert_eq!((observed.files[&1].inode, observed.files[&2].inode, observed.sees_hits), (2, 1, false));
    }

    #[test]
    fn mapped_files_of_this_process_are_found() {
        if !machine::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let exe = fs::canonicalize("/proc/self/exe").unwrap();
        let device = mounts::holding(&exe).unwrap().unwrap().device.to_kernel();
        let key = InodeKey { device, inode: fs::metadata(&exe).unwrap().ino() };
        assert!(mapped_files(&BTreeSet::from([device])).get(&key).is_some_and(|bytes| *bytes > 0));
        assert!(mapped_files(&BTreeSet::new()).is_empty());
    }
}
