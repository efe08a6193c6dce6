//! Converts an observation to a profile.

use crate::learn::extents::{CountedKinds, extents, split_by_position, used};
use crate::learn::filesystem::{FileSystem, S_IFMT, S_IFREG, Stat};
use crate::learn::lookups::{lookups, whole_path};
use crate::learn::observation::{Access, AccessKind, ExecIndex, ExecSeen, FileSeen, Observation};
use crate::learn::resolve::{CLOCK_TICK, Resolver, as_path};
use crate::learn::run::{Host, Run};
use crate::learn::timeline::{WarmTimes, warm_times};
use crate::{Extent, File, Metadata, Milestone, MilestoneKind, PathBytes, Precision, Profile, Recording, WarmUse};
use ahead_model::{DeviceNumber, Mount, sorting};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Omissions of a profile, in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// On file systems without a device (tmpfs, proc, sysfs): they need no prefetching.
    pub without_device: u64,
    /// On file systems that are not mounted where the recorder can reach them, or without a name.
    pub unreachable: u64,
    /// Created or extended in this run: they were not read from a device, or will differ in the next run.
    pub made_here: u64,
    /// Neither file nor block device (directories of network file systems, internal inodes).
    pub other_kinds: u64,
    /// Not files but mount namespaces that ended before their table was read: files read there are kept, but not the paths
    /// under which the program saw them.
    pub unseen_namespaces: u64,
    /// Files whose path was not found: a recording without BPF knows only their numbers.
    pub unnamed_files: u64,
    /// Files that count as deleted, because their directories exceed the limit of entries to read.
    pub not_looked_for: u64,
    /// Lookups beyond the memory limit. They also count as lost events.
    pub unkept_lookups: u64,
}

const S_IFBLK: u32 = 0o060_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// Magic numbers of the file systems that `bpf/path.h` skips.
const WITHOUT_DEVICE: [u64; 9] =
    [0x0102_1994, 0x9fa0, 0x6265_6572, 0x5049_5045, 0x6462_6720, 0x7472_6163, 0x8584_58f6, 0x9584_58f6, 0x6367_7270];

/// Maximum number of first uses that become milestones: enough to show progress, few enough to list.
const FIRST_OPENS: usize = 256;

/// Creates a profile of one run.
pub fn to_profile(filesystem: &dyn FileSystem, host: &Host, observed: &Observation, run: &Run) -> (Profile, LeftOut) {
    let (table, page_bytes) = (&host.mounts[..], host.page_bytes);
    let resolver = Resolver::new(filesystem, observed, table, run.started);
    let all_added = run.read_ahead_off || !observed.sees_hits;
    let folio_pages = (!all_added && run.cold).then_some(run.mapped_folio_pages);
    let counting = CountedKinds { added: all_added, around: !run.precise, folio_pages };
    let warm = warm_times(observed, run);
    let times_of = |order: usize| (since(run.started_ns, observed.accesses[order].time_ns), warm.of_access(order));
    let touches = touches_by_file(observed, run);
    let mut left_out = LeftOut {
        without_device: count_without_device(observed),
        unseen_namespaces: observed.unseen_namespaces,
        unnamed_files: observed.unnamed_files,
        ..LeftOut::default()
    };

    let mut files = BTreeMap::new();
    let mut metadata = Vec::new();
    let mut links = Vec::new();
    let execs = ExecIndex::of(observed);
    let ours = OwnFiles::new(host, observed, run);
    let span = span_of(run, host.now_ns);
    for (id, mut touches) in touches {
        let Some(seen) = observed.files.get(&id) else {
            left_out.unreachable += 1;
            continue;
        };
        ours.remove_own_touches(seen, &mut touches);
        if touches.is_empty() {
            continue;
        }
        match seen.mode & S_IFMT {
            S_IFBLK => metadata.extend(device_blocks(filesystem, seen, &touches, &times_of, table, page_bytes)),
            S_IFLNK => {
                let (time_us, warm_use) = times_of(touches[0].0);
                links.push((seen, time_us, warm_use.map(|warm_use| warm_use.time_us)));
            }
            S_IFREG => match file_of(&execs, &resolver, &span, seen, &touches) {
                Ok(file) => {
                    // A file may have had two inodes in memory. A deleted file is not the one that has its name now.
                    let key = (file.path.clone(), file.inode, file.deleted);
                    let entry: &mut (File, Vec<(usize, Access)>) = files.entry(key).or_insert((file, Vec::new()));
                    entry.1.extend(touches);
                }
                Err(Why::Unreachable) => left_out.unreachable += 1,
                Err(Why::MadeHere) => left_out.made_here += 1,
            },
            _ => left_out.other_kinds += 1,
        }
    }
    let (files, is_exact) = finish_files(filesystem, files.into_values(), counting, &times_of, page_bytes);
    let run = &Run { precise: run.precise && is_exact, ..run.clone() };
    let milestones = milestones(filesystem, observed, run, &resolver, &files, &warm);
    let (lookups, unkept_lookups) = lookups(filesystem, host, observed, &resolver, run, &links, &warm);
    let mut recording = recording(filesystem, host, observed, run, &files);
    recording.lost_events += unkept_lookups;
    let profile = Profile { recording, metadata, lookups, milestones, files, timeline: warm.timeline };
    left_out.unkept_lookups = unkept_lookups;
    left_out.not_looked_for = resolver.given_up();
    (profile, left_out)
}

/// The files that the recorder has mapped itself.
struct OwnFiles<'a> {
    /// Device and inode. On btrfs and overlayfs the device differs from the superblock's: there, nothing is removed.
    mapped: &'a BTreeSet<(DeviceNumber, u64)>,
    started_ns: u64,
    first_exec_us: u64,
}

impl OwnFiles<'_> {
    fn new<'a>(host: &'a Host, observed: &Observation, run: &Run) -> OwnFiles<'a> {
        let first_exec_us = observed.execs.first().map_or(u64::MAX, |exec| since(run.started_ns, exec.time_ns));
        OwnFiles { mapped: &host.own_files, started_ns: run.started_ns, first_exec_us }
    }

    fn remove_own_touches(&self, seen: &FileSeen, touches: &mut Vec<(usize, Access)>) {
        if self.mapped.contains(&(DeviceNumber::from_kernel(seen.device), seen.inode)) {
            let is_later = |access: &Access| since(self.started_ns, access.time_ns) >= self.first_exec_us;
            touches.retain(|(_, access)| access.kind != AccessKind::Added || is_later(access));
        }
    }
}

fn since(start_ns: u64, time_ns: u64) -> u64 {
    time_ns.saturating_sub(start_ns) / 1000
}

/// The touches up to the end of the run: a program that was ready and is being ended reads more.
fn touches_by_file(observed: &Observation, run: &Run) -> BTreeMap<u32, Vec<(usize, Access)>> {
    let mut by_file: BTreeMap<u32, Vec<(usize, Access)>> = BTreeMap::new();
    let in_run = observed.accesses.iter().take_while(|access| access.time_ns <= run.ended_ns);
    for (order, access) in in_run.enumerate() {
        by_file.entry(access.file).or_default().push((order, access.clone()));
    }
    by_file
}

fn count_without_device(observed: &Observation) -> u64 {
    let is_one = |file: &&FileSeen| file.mode & S_IFMT == S_IFREG && WITHOUT_DEVICE.contains(&file.magic);
    observed.files.values().filter(is_one).count() as u64
}

/// Why a file is omitted.
enum Why {
    Unreachable,
    MadeHere,
}

fn file_of(
    execs: &ExecIndex<'_>,
    resolver: &Resolver<'_>,
    span: &RangeInclusive<SystemTime>,
    seen: &FileSeen,
    touches: &[(usize, Access)],
) -> std::result::Result<File, Why> {
    let place = resolver.place(seen).ok_or(Why::Unreachable)?;
    if place.stat.is_some_and(|stat| is_product(span, &stat, seen.size_bytes)) {
        return Err(Why::MadeHere);
    }
    // The last touch: before its exec, another process image reads the program's own file.
    let process = touches.last().and_then(|(_, access)| execs.exec_of(access.tgid, access.time_ns));
    Ok(File {
        seen_path: resolver.seen_path(seen, &place.path, process),
        fs_path: seen.path.clone(),
        fs_type: place.fs_type,
        device: DeviceNumber::from_kernel(seen.device).key(),
        inode: seen.inode,
        size_bytes: place.stat.map_or(seen.size_bytes, |stat| stat.size_bytes),
        mtime_ns: place.stat.map_or(0, |stat| stat.mtime_ns),
        in_place: false,
        deleted: place.stat.is_none(),
        path: place.path,
        extents: Vec::new(),
        content: None,
    })
}

/// The range of file times that the run can produce. Its length comes from CLOCK_MONOTONIC, because the wall clock may be
/// changed during the run.
pub(crate) fn span_of(run: &Run, now_ns: u64) -> RangeInclusive<SystemTime> {
    run.started - CLOCK_TICK..=run.started + Duration::from_nanos(now_ns.saturating_sub(run.started_ns))
}

/// Whether the run has created a file (then it was read back from memory) or extended it, such as a log. Extents of that file
/// are stale after the next run. A file written in place, such as a database, stays valid until it is written again, and a run
/// skips changed files anyway.
fn is_product(span: &RangeInclusive<SystemTime>, now: &Stat, size_at_first: u64) -> bool {
    let is_in = |time: Option<SystemTime>| time.is_some_and(|time| span.contains(&time));
    is_in(now.created) || (now.size_bytes > size_at_first && is_in(now.modified))
}

/// The files in order of first use, and whether all pages are certainly used.
fn finish_files(
    filesystem: &dyn FileSystem,
    files: impl Iterator<Item = (File, Vec<(usize, Access)>)>,
    counting: CountedKinds,
    times_of: &dyn Fn(usize) -> (u64, Option<WarmUse>),
    page_bytes: u64,
) -> (Vec<File>, bool) {
    let mut finished: Vec<(usize, File)> = Vec::new();
    let mut is_exact = true;
    for (mut file, mut touches) in files {
        sorting::sort_by_key(&mut touches, |(order, _)| *order);
        let used = used(&touches, counting);
        is_exact &= used.iter().all(|(_, access)| access.kind != AccessKind::Around);
        file.extents = extents(&used, page_bytes, file.size_bytes, times_of);
        if let (Some((first, _)), false) = (used.first(), file.extents.is_empty()) {
            place_file(filesystem, &mut file);
            finished.push((*first, file));
        }
    }
    sorting::sort_by_key(&mut finished, |(order, _)| *order);
    (finished.into_iter().map(|(_, file)| file).collect(), is_exact)
}

/// Adds positions on disk, if the file system reports them.
fn place_file(filesystem: &dyn FileSystem, file: &mut File) {
    if file.deleted {
        return;
    }
    let physical = filesystem.physical_extents(as_path(&file.path), file.size_bytes);
    file.extents = split_by_position(std::mem::take(&mut file.extents), &physical);
}

fn device_blocks(
    filesystem: &dyn FileSystem,
    seen: &FileSeen,
    touches: &[(usize, Access)],
    times_of: &dyn Fn(usize) -> (u64, Option<WarmUse>),
    table: &[Mount],
    page_bytes: u64,
) -> Option<Metadata> {
    let pair = DeviceNumber::from_kernel(seen.rdev);
    // The file system (or the program) requested every page in the device's own cache, so all are used.
    let used = used(touches, CountedKinds { added: true, ..CountedKinds::default() });
    let mut extents = extents(&used, page_bytes, seen.size_bytes, times_of);
    extents.iter_mut().for_each(|extent| extent.physical_bytes = Some(extent.offset_bytes));
    let mount = table.iter().find(|mount| mount.device == pair);
    let node = filesystem.block_device_node(pair).map(|node| node.into_os_string().into_vec());
    // mountinfo may say /dev/root, which is not a device node.
    let device_path = node.or_else(|| mount.map(|mount| mount.source.clone()))?;
    (!extents.is_empty()).then(|| Metadata {
        device_path,
        mount_point: mount.map(|mount| mount.mount_point.clone()).unwrap_or_default(),
        fs_type: mount.map(|mount| mount.fs_type.clone()).unwrap_or_default(),
        device: pair.key(),
        extents,
    })
}

fn source_of(observed: &Observation, run: &Run) -> String {
    let source = &observed.source;
    if run.single_faults { format!("{source}, one page per fault") } else { source.clone() }
}

/// The largest window of the devices that files were read from.
fn read_ahead_kb(filesystem: &dyn FileSystem, files: &[File]) -> u64 {
    let devices = sorting::set_of(files.iter().map(|file| file.device));
    let window = |device: u64| filesystem.read_ahead_kb(DeviceNumber::from_key(device));
    devices.into_iter().filter_map(window).max().unwrap_or(0)
}

fn recording(filesystem: &dyn FileSystem, host: &Host, observed: &Observation, run: &Run, files: &[File]) -> Recording {
    Recording {
        command: run.command.clone(),
        directory: run.directory.clone(),
        created_unix_s: run.started.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        kernel: host.kernel.clone(),
        machine: host.machine.clone(),
        source: source_of(observed, run),
        precision: if run.precise { Precision::Precise } else { Precision::UpperBound },
        cold: run.cold,
        metadata_seen: run.cold || !observed.lookups.is_empty(),
        lost_events: observed.lost_events(),
        runs: 1,
        duration_us: since(run.started_ns, run.ready_ns.unwrap_or(run.ended_ns)),
        read_ahead_kb: if run.read_ahead_off { 0 } else { read_ahead_kb(filesystem, files) },
        cpu_us: u64::try_from(run.cpu.as_micros()).unwrap_or(0),
        root: Vec::new(),
        devices: Vec::new(),
    }
}

/// The program as it was named (for a script: the script, while `file` is its interpreter), if that path is a file.
fn program_of(
    filesystem: &dyn FileSystem,
    observed: &Observation,
    resolver: &Resolver<'_>,
    exec: &ExecSeen,
) -> Option<PathBytes> {
    let base = if exec.name.starts_with(b"/") { exec.root } else { exec.directory };
    let named = resolver.directory(base).and_then(|base| whole_path(filesystem, &base, &exec.name));
    let named = named.filter(|path| filesystem.stat(as_path(path)).is_some_and(|stat| stat.is_file()));
    named.or_else(|| resolver.place(observed.files.get(&exec.file)?).map(|place| place.path))
}

fn milestones(
    filesystem: &dyn FileSystem,
    observed: &Observation,
    run: &Run,
    resolver: &Resolver<'_>,
    files: &[File],
    warm: &WarmTimes,
) -> Vec<Milestone> {
    let mut found = Vec::new();
    for (index, exec) in observed.execs.iter().enumerate().filter(|(_, exec)| exec.time_ns <= run.ended_ns) {
        let path = program_of(filesystem, observed, resolver, exec).unwrap_or_default();
        let time_us = since(run.started_ns, exec.time_ns);
        found.push(Milestone { time_us, kind: MilestoneKind::Exec, path, warm_us: warm.of_exec(index) });
    }
    found.extend(files.iter().take(FIRST_OPENS).map(|file| {
        let first = file.extents.first();
        Milestone {
            time_us: first.map_or(0, |extent: &Extent| extent.first_use_us),
            kind: MilestoneKind::FirstOpen,
            path: file.path.clone(),
            warm_us: first.and_then(|extent| extent.warm_use).map(|warm_use| warm_use.time_us),
        }
    }));
    if let Some(ready_ns) = run.ready_ns {
        let time_us = since(run.started_ns, ready_ns);
        found.push(Milestone { time_us, kind: MilestoneKind::Ready, path: PathBytes::new(), warm_us: None });
    }
    sorting::sort_by_key(&mut found, |milestone| milestone.time_us);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::observation::{Counters, LookupSeen};
    use crate::learn::testing::{TableFileSystem, long_ago};
    use ahead_model::PhysicalExtent;
    use std::ops::Range;

    const HOUR: Duration = Duration::from_secs(3600);
    const PAGE: u64 = 4096;
    const DEVICE: u32 = 8 << 20 | 1;

    fn stat(filesystem: &TableFileSystem, path: &str) -> Stat {
        filesystem.files[std::path::Path::new(path)]
    }

    /// Regression: files written in place were omitted, and with a wrong clock all files.
    #[test]
    fn file_created_or_extended_in_the_run_is_its_product() {
        let filesystem = TableFileSystem::of(&[("/x", 1, 5)]);
        let born = long_ago();
        let now = Stat { modified: Some(born + 2 * HOUR), ..stat(&filesystem, "/x") };
        let in_run = |from, to, size_at_first| is_product(&(from..=to), &now, size_at_first);
        // The file existed before, and was written in the run.
        let (before, after) = (born + HOUR, born + 3 * HOUR);
        assert!(in_run(before, after, 4));
        assert!(!in_run(before, after, 5));
        // Written after the run, or with a clock that was fast.
        assert!(!in_run(before, before, 4));
        assert!(in_run(born - HOUR, born + HOUR, 5));
        assert!(!in_run(born - 3 * HOUR, born - HOUR, 5));
    }

    fn host() -> Host {
        let mounts = ahead_model::mounts::parse(b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n").unwrap();
        Host { page_bytes: PAGE, memory_bytes: 1 << 20, mounts, now_ns: 2_000_000_000, ..Host::default() }
    }

    fn run() -> Run {
        Run {
            command: vec![b"x".to_vec()],
            directory: b"/".to_vec(),
            started_ns: 1_000_000_000,
            ended_ns: 2_000_000_000,
            started: long_ago() + 100 * HOUR,
            cpu: Duration::ZERO,
            ready_ns: None,
            cold: true,
            precise: true,
            read_ahead_off: true,
            mapped_folio_pages: 512,
            single_faults: true,
        }
    }

    fn file(id: u32, path: &str, inode: u64, size_bytes: u64) -> (u32, FileSeen) {
        let path = path.as_bytes().to_vec();
        (id, FileSeen { id, mode: S_IFREG, device: DEVICE, inode, size_bytes, path, ..FileSeen::default() })
    }

    fn access(after_us: u64, file: u32, pages: Range<u64>, kind: AccessKind) -> Access {
        Access { time_ns: 1_000_000_000 + after_us * 1000, tgid: 7, tid: 7, file, pages, kind, cpu_ns: 0 }
    }

    fn learn(filesystem: &TableFileSystem, mut observation: Observation) -> (Profile, LeftOut) {
        observation.sees_hits = true;
        observation.sort();
        to_profile(filesystem, &host(), &observation, &run())
    }

    #[test]
    fn used_pages_become_extents_in_order_of_first_use_with_positions() {
        let mut filesystem = TableFileSystem::of(&[("/bin/a", 11, 3 * PAGE), ("/lib/b", 12, 10_000)]);
        let place = PhysicalExtent {
            logical_bytes: 0,
            physical_bytes: 1 << 20,
            length_bytes: 3 * PAGE,
            delayed: false,
            unknown: false,
            encoded: false,
            inline: false,
            unwritten: false,
            merged: false,
            shared: false,
        };
        filesystem.extents.insert("/bin/a".into(), vec![place]);
        let observation = Observation {
            files: BTreeMap::from([file(1, "/bin/a", 11, 3 * PAGE), file(2, "/lib/b", 12, 10_000)]),
            accesses: vec![
                access(300, 1, 1..2, AccessKind::Fault),
                access(100, 2, 0..3, AccessKind::Read),
                // Mapped around the fault: use is unknown.
                access(300, 1, 0..3, AccessKind::Around),
                // After the end of the run.
                access(2_000_000, 1, 2..3, AccessKind::Read),
            ],
            lookups: vec![LookupSeen {
                time_ns: 1_000_050_000,
                tgid: 7,
                tid: 7,
                cpu_ns: 0,
                base: 0,
                failed: false,
                listed: false,
                path: b"/bin/a".to_vec(),
            }],
            ..Observation::default()
        };
        let (profile, left_out) = learn(&filesystem, observation);
        assert_eq!(left_out, LeftOut::default());
        let files: Vec<_> = profile.files.iter().map(|file| (&file.path[..], file.deleted, file.mtime_ns)).collect();
        assert_eq!(files, [(&b"/lib/b"[..], false, 7), (b"/bin/a", false, 7)]);
        let extents = |file: usize| -> Vec<_> {
            let extents = profile.files[file].extents.iter();
            extents.map(|e| (e.offset_bytes, e.length_bytes, e.first_use_us, e.physical_bytes)).collect()
        };
        // Cut at the end of the file.
        assert_eq!(extents(0), [(0, 10_000, 100, None)]);
        assert_eq!(extents(1), [(PAGE, PAGE, 300, Some((1 << 20) + PAGE))]);
        assert_eq!(profile.recording.precision, Precision::Precise);
    }

    #[test]
    fn files_without_a_name_are_kept_as_deleted_and_products_are_counted() {
        let mut filesystem = TableFileSystem::of(&[("/new", 21, PAGE), ("/other", 99, PAGE)]);
        let made = Some(run().started + Duration::from_millis(500));
        let new = Stat { created: made, modified: made, ..stat(&filesystem, "/new") };
        filesystem.files.insert("/new".into(), new);
        let mut tmpfs = file(4, "/shm", 24, PAGE);
        tmpfs.1.device = 30;
        let observation = Observation {
            files: BTreeMap::from([
                file(1, "/new", 21, 0),
                file(2, "/gone", 22, PAGE),
                // Another file has its name now.
                file(3, "/other", 23, PAGE),
                tmpfs,
            ]),
            accesses: (1..=5).map(|id| access(u64::from(id), id, 0..1, AccessKind::Read)).collect(),
            ..Observation::default()
        };
        let (profile, left_out) = learn(&filesystem, observation);
        let files: Vec<_> = profile.files.iter().map(|file| (&file.path[..], file.deleted)).collect();
        assert_eq!(files, [(&b"/gone"[..], true), (b"/other", true)]);
        // The file on the unknown device, and the one without a FileSeen event.
        assert_eq!((left_out.made_here, left_out.unreachable), (1, 2));
    }

    #[test]
    fn renamed_file_is_found_by_its_inode_in_the_same_directory() {
        let filesystem = TableFileSystem::of(&[("/etc/conf.new", 31, PAGE)]);
        let observation = Observation {
            files: BTreeMap::from([file(1, "/etc/conf", 31, PAGE)]),
            accesses: vec![access(1, 1, 0..1, AccessKind::Read)],
            ..Observation::default()
        };
        let (profile, _) = learn(&filesystem, observation);
        assert_eq!((&profile.files[0].path[..], profile.files[0].deleted), (&b"/etc/conf.new"[..], false));
    }

    #[test]
    fn lost_events_are_in_the_profile() {
        let counters = Counters { ring_full: 3, unkept: 4, ..Counters::default() };
        let observation = Observation { counters, malformed: 5, ..Observation::default() };
        let (profile, _) = learn(&TableFileSystem::default(), observation);
        assert_eq!(profile.recording.lost_events, 12);
    }

    #[test]
    fn pages_of_the_recorders_own_files_before_the_exec_are_not_the_programs() {
        let filesystem = TableFileSystem::of(&[("/usr/bin/ahead", 41, 8 * PAGE)]);
        let exec = ExecSeen {
            time_ns: 1_000_500_000,
            tgid: 7,
            file: 0,
            root: 0,
            directory: 0,
            mount_namespace: 0,
            name: Vec::new(),
            cpu_ns: 0,
        };
        let mut observation = Observation {
            files: BTreeMap::from([file(1, "/usr/bin/ahead", 41, 8 * PAGE)]),
            accesses: vec![access(100, 1, 0..4, AccessKind::Added), access(900, 1, 5..6, AccessKind::Added)],
            execs: vec![exec],
            sees_hits: true,
            ..Observation::default()
        };
        observation.sort();
        let own = Host { own_files: BTreeSet::from([(DeviceNumber::new(8, 1), 41)]), ..host() };
        let used = |host: &Host| to_profile(&filesystem, host, &observation, &run()).0.data_bytes();
        assert_eq!((used(&own), used(&host())), (PAGE, 5 * PAGE));
    }
}
