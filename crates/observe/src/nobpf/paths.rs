//! From inodes to paths, after the run.
//!
//! ```text
//!     (device, inode) ─▶ block device? ─▶ its metadata
//!             │
//!             ├─▶ file handle (ext2, ext3, ext4, f2fs, XFS) ─▶ path by a name that is still cached
//!             └─▶ walk of the file system, within limits ─▶ names with this inode number
//!                                                                 │ btrfs: subvolumes share a device number, so a file counts
//!                                                                 ▼        only with those pages that are resident in it
//!                                                              FileSeen
//! ```
//!
//! An inode whose path is not found is counted, and its accesses are left out.

use crate::nobpf::collect::{Collected, InodeKey};
use crate::nobpf::walk::{self, Budget, Entry, Next, below, join, point_of};
use ahead_model::file_system_kind::InodeHandle;
use ahead_model::{DeviceNumber, Mount, RangeSet, sorting};
use ahead_profile::learn::{Access, AccessKind, FileSeen, Observation};
use ahead_sys::mounts::covering;
use ahead_sys::{Result, block, cache, filehandle, generation, machine, mounts, openat, xfs};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file type of a block device in a mode.
const BLOCK_DEVICE: u32 = 0o060_000;

/// A path of an inode.
#[derive(Clone, Debug)]
struct Candidate {
    /// Where it can be opened.
    path: Vec<u8>,
    /// Its path from the root of the file system.
    in_filesystem: Vec<u8>,
    metadata: Metadata,
    /// Its resident pages, where several files may have this device and inode.
    resident: Option<RangeSet>,
}

/// Makes an observation with paths. `keeps_added`: pages of files that were added to the cache count.
pub(crate) fn resolve(collected: Collected, keeps_added: bool) -> Result<Observation> {
    let table = mounts::own()?;
    let finder = Finder { table: &table, devices: table.iter().map(|mount| mount.device.to_kernel()).collect() };
    let Collected { inodes, mut accesses, execs, parents, directories, own_namespace, mut last_id, malformed, .. } =
        collected;
    if !keeps_added {
        let is_metadata = |access: &Access| inodes.get(&access.file).is_some_and(|key| finder.is_metadata(*key));
        accesses.retain(|access| access.kind != AccessKind::Added || is_metadata(access));
    }
    let used = sorting::set_of(accesses.iter().map(|access| access.file));
    let wanted = sorting::map_of(inodes.iter().filter(|(id, _)| used.contains(id)).map(|(id, key)| (*key, *id)));
    let found = finder.find(wanted.keys().copied().collect());
    let mut files = BTreeMap::new();
    // The ids of the files with an inode, each with the pages that are in question.
    let mut split: HashMap<u32, Vec<(u32, Option<RangeSet>)>> = HashMap::new();
    let mut unnamed_files = 0;
    for (key, id) in &wanted {
        if let Some(device) = finder.metadata(*key, *id) {
            files.insert(*id, device);
            continue;
        }
        let candidates = found.get(key).map_or(&[][..], Vec::as_slice);
        // On a file system that is not mounted here, the learner counts it.
        unnamed_files += u64::from(candidates.is_empty() && finder.devices.contains(&key.device));
        let mut parts = Vec::new();
        for candidate in candidates {
            last_id += 1;
            files.insert(last_id, candidate.seen(last_id, *key));
            parts.push((last_id, candidate.resident.clone()));
        }
        if !parts.is_empty() || finder.devices.contains(&key.device) {
            split.insert(*id, parts);
        }
    }
    for (path, id) in &directories {
        files.extend(finder.directory(path, *id).map(|file| (*id, file)));
    }
    let namespaces = execs.iter().map(|exec| exec.mount_namespace);
    let others = sorting::set_of(namespaces.filter(|number| *number != own_namespace));
    let accesses = accesses.into_iter().flat_map(|access| parts_of(access, &split)).collect();
    let unseen_namespaces = others.len() as u64;
    let mut observation = Observation {
        accesses,
        files,
        execs,
        parents,
        unseen_namespaces,
        own_namespace,
        malformed,
        unnamed_files,
        ..Observation::default()
    };
    observation.sort();
    Ok(observation)
}

/// The access to each file that has its inode.
fn parts_of(access: Access, split: &HashMap<u32, Vec<(u32, Option<RangeSet>)>>) -> Vec<Access> {
    let Some(parts) = split.get(&access.file) else { return vec![access] };
    let part = |(file, resident): &(u32, Option<RangeSet>)| {
        let pages = match resident {
            Some(resident) => resident.within(&access.pages).collect(),
            None => vec![access.pages.clone()],
        };
        pages.into_iter().map(|pages| Access { file: *file, pages, ..access.clone() }).collect::<Vec<_>>()
    };
    parts.iter().flat_map(part).collect()
}

impl Candidate {
    fn seen(&self, id: u32, key: InodeKey) -> FileSeen {
        let path = Path::new(OsStr::from_bytes(&self.path));
        let generation = openat::handle(path).and_then(|handle| handle.reopen()).ok().and_then(generation::of);
        FileSeen {
            id,
            mode: self.metadata.mode(),
            device: key.device,
            inode: key.inode,
            generation: generation.unwrap_or(0),
            size_bytes: self.metadata.size(),
            path: self.in_filesystem.clone(),
            ..FileSeen::default()
        }
    }
}

/// How the search by number ended.
enum ByNumber {
    Found(Box<Candidate>),
    /// The inode does not exist any more.
    Gone,
    /// The file system cannot, or no name is cached.
    Unknown,
}

struct Finder<'a> {
    table: &'a [Mount],
    /// Of all mounted file systems.
    devices: BTreeSet<u32>,
}

impl Finder<'_> {
    /// Whether the inode is that of a block device in the kernel's own file system of these, which is mounted nowhere.
    fn is_metadata(&self, key: InodeKey) -> bool {
        DeviceNumber::from_kernel(key.device).is_anonymous()
            && !self.devices.contains(&key.device)
            && block_device(key).is_some()
    }

    fn metadata(&self, key: InodeKey, id: u32) -> Option<FileSeen> {
        if !self.is_metadata(key) {
            return None;
        }
        let rdev = block_device(key)?;
        let size_bytes = block::size_bytes(rdev).ok()?;
        let (device, inode) = (key.device, key.inode);
        let rdev = rdev.to_kernel();
        Some(FileSeen { id, mode: BLOCK_DEVICE, device, rdev, inode, size_bytes, ..FileSeen::default() })
    }

    /// The paths of inodes on mounted file systems.
    fn find(&self, wanted: Vec<InodeKey>) -> HashMap<InodeKey, Vec<Candidate>> {
        let mut found: HashMap<InodeKey, Vec<Candidate>> = HashMap::new();
        let mut left: HashMap<u32, BTreeSet<u64>> = HashMap::new();
        for key in wanted.into_iter().filter(|key| self.devices.contains(&key.device)) {
            match self.by_number(key) {
                ByNumber::Found(candidate) => drop(found.insert(key, vec![*candidate])),
                ByNumber::Gone => {}
                ByNumber::Unknown => drop(left.entry(key.device).or_default().insert(key.inode)),
            }
        }
        let mut budget = Budget::new();
        for root in walk::roots(self.table) {
            if let Some(inodes) = left.get(&root.device.to_kernel()) {
                self.search(root, inodes, &mut budget, &mut found);
            }
        }
        found
    }

    /// The path of an inode by a file handle.
    fn by_number(&self, key: InodeKey) -> ByNumber {
        let device = DeviceNumber::from_kernel(key.device);
        let is_its = |mount: &&Mount| mount.device == device;
        let Some(mount) = walk::roots(self.table).into_iter().find(is_its) else { return ByNumber::Unknown };
        let generation = match mount.kind().inode_handle {
            Some(InodeHandle::Bits32) => 0,
            Some(InodeHandle::Bits64) => {
                match walk::open_root(mount).ok().and_then(|point| xfs::generation(point, key.inode)) {
                    Some(generation) => generation,
                    None => return ByNumber::Gone,
                }
            }
            None => return ByNumber::Unknown,
        };
        match filehandle::path_of(point_of(mount), &mount.fs_type, key.inode, generation) {
            Ok(path) if path.as_os_str().as_bytes().ends_with(b" (deleted)") && !path.exists() => ByNumber::Gone,
            Ok(path) => self
                .candidate(path.as_os_str().as_bytes(), mount)
                .filter(|found| found.metadata.ino() == key.inode && device_of(&found.metadata) == device)
                .map_or(ByNumber::Unknown, |found| ByNumber::Found(Box::new(found))),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESTALE | libc::ENOENT)) => ByNumber::Gone,
            Err(_) => ByNumber::Unknown,
        }
    }

    /// A path below the mount that it lies on.
    fn candidate(&self, path: &[u8], mount: &Mount) -> Option<Candidate> {
        let holding = &self.table[covering(self.table, path)?];
        let rest = below(path, &holding.mount_point).filter(|_| holding.device == mount.device)?;
        let in_filesystem = join(&holding.root, rest);
        let metadata = fs::symlink_metadata(OsStr::from_bytes(path)).ok()?;
        Some(Candidate { path: path.to_vec(), in_filesystem, metadata, resident: None })
    }

    /// Adds the paths with these inode numbers below a mount point.
    fn search(
        &self,
        root: &Mount,
        inodes: &BTreeSet<u64>,
        budget: &mut Budget,
        found: &mut HashMap<InodeKey, Vec<Candidate>>,
    ) {
        let is_shared = root.device.is_anonymous();
        let mut missing = inodes.clone();
        let visit = |entry: &Entry<'_>| {
            if !inodes.contains(&entry.inode) {
                return Next::GoOn;
            }
            let path = join(&root.mount_point, &entry.path());
            if let Some(candidate) = self.candidate(&path, root).filter(|found| found.metadata.ino() == entry.inode) {
                let candidate = if is_shared { with_resident_pages(candidate) } else { Some(candidate) };
                let key = InodeKey { device: root.device.to_kernel(), inode: entry.inode };
                add(found.entry(key).or_default(), candidate);
                missing.remove(&entry.inode);
            }
            // Where inode numbers are unique, the search ends with the last one.
            if missing.is_empty() && !is_shared { Next::Stop } else { Next::GoOn }
        };
        match walk::walk(root, budget, visit) {
            Ok(true) => {}
            Ok(false) => tracing::info!("{}: the search for paths reached its limit", point_of(root).display()),
            Err(error) => tracing::info!("{error}"),
        }
    }

    /// A root or working directory.
    fn directory(&self, path: &[u8], id: u32) -> Option<FileSeen> {
        let mount = &self.table[covering(self.table, path)?];
        let in_filesystem = join(&mount.root, below(path, &mount.mount_point)?);
        let metadata = fs::symlink_metadata(OsStr::from_bytes(path)).ok()?;
        let (device, inode) = (mount.device.to_kernel(), metadata.ino());
        Some(FileSeen { id, mode: metadata.mode(), device, inode, path: in_filesystem, ..FileSeen::default() })
    }
}

/// Adds a candidate, unless it is another name of one that is known.
fn add(known: &mut Vec<Candidate>, candidate: Option<Candidate>) {
    let Some(candidate) = candidate else { return };
    let identity = |candidate: &Candidate| (candidate.metadata.dev(), candidate.metadata.ino());
    if !known.iter().any(|other| identity(other) == identity(&candidate)) {
        known.push(candidate);
    }
}

/// The candidate with its resident pages; `None`: it has none, so it is another file with the same number.
fn with_resident_pages(candidate: Candidate) -> Option<Candidate> {
    let path = Path::new(OsStr::from_bytes(&candidate.path));
    let file = openat::handle(path).and_then(|handle| handle.reopen()).ok()?;
    let ranges = cache::resident(file, 0, candidate.metadata.size()).ok()?;
    let page = machine::page_size();
    let pages = ranges.into_iter().map(|range| range.start / page..range.end.div_ceil(page));
    let resident: RangeSet = pages.collect();
    (!resident.is_empty()).then_some(Candidate { resident: Some(resident), ..candidate })
}

fn device_of(metadata: &Metadata) -> DeviceNumber {
    DeviceNumber::from_stat(metadata.dev())
}

/// The block device whose number is the inode.
fn block_device(key: InodeKey) -> Option<DeviceNumber> {
    let device = DeviceNumber::from_kernel(u32::try_from(key.inode).ok()?);
    let exists = !device.is_anonymous() && Path::new(&format!("/sys/dev/block/{device}")).exists();
    exists.then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(file: u32, pages: std::ops::Range<u64>) -> Access {
        Access { time_ns: 1, tgid: 2, tid: 2, file, pages, kind: AccessKind::Read, cpu_ns: 0 }
    }

    #[test]
    fn accesses_of_a_shared_number_go_to_the_files_whose_pages_are_resident() {
        let resident = |range: std::ops::Range<u64>| Some(RangeSet::from_iter([range]));
        let split =
            HashMap::from([(1, vec![(10, resident(0..4)), (11, resident(2..9))]), (2, vec![(12, None)]), (3, vec![])]);
        let parts = |file| {
            let parts = parts_of(access(file, 1..6), &split);
            parts.into_iter().map(|part| (part.file, part.pages)).collect::<Vec<_>>()
        };
        assert_eq!(parts(1), [(10, 1..4), (11, 2..6)]);
        assert_eq!((parts(2), parts(3), parts(4)), (vec![(12, 1..6)], vec![], vec![(4, 1..6)]));
    }

    /// A file of this test, found by its numbers as events have them.
    #[test]
    fn files_and_directories_are_found_on_the_mount_that_they_lie_on() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let directory = fs::canonicalize(home.path()).unwrap();
        let file = directory.join("file");
        fs::write(&file, "12345").unwrap();
        let table = mounts::own().unwrap();
        let finder = Finder { table: &table, devices: table.iter().map(|mount| mount.device.to_kernel()).collect() };
        let mount = mounts::holding(&directory).unwrap().unwrap();
        let found = finder.candidate(file.as_os_str().as_bytes(), &mount).unwrap();
        // The mount may show a part of its file system, as in a tree that is mounted as the root directory.
        let below = file.strip_prefix(std::ffi::OsStr::from_bytes(&mount.mount_point)).unwrap();
        assert!(found.in_filesystem.ends_with(below.as_os_str().as_bytes()));
        assert_eq!(found.metadata.size(), 5);
        let seen = finder.directory(directory.as_os_str().as_bytes(), 7).unwrap();
        assert_eq!((seen.id, seen.inode), (7, fs::metadata(&directory).unwrap().ino()));
        let missing = directory.join("none");
        assert!(finder.candidate(missing.as_os_str().as_bytes(), &mount).is_none());
    }

    #[test]
    fn inode_of_a_block_device_is_its_number() {
        let key = |inode| InodeKey { device: 3, inode };
        assert_eq!(block_device(key(0)), None);
        assert_eq!(block_device(key(u64::MAX)), None);
        for entry in fs::read_dir("/sys/dev/block").into_iter().flatten().flatten() {
            let number: DeviceNumber = entry.file_name().to_str().unwrap().parse().unwrap();
            assert_eq!(block_device(key(number.to_kernel().into())), Some(number));
        }
    }
}
