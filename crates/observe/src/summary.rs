//! From what was observed to a profile.

use crate::collect::Observed;
use crate::event::{AccessKind, ExecSeen, FileSeen};
use crate::extents::{Counting, Touch, extents, place, used};
use crate::lookups::{lookups, whole_path};
use crate::now_ns;
use crate::resolve::{CLOCK_TICK, Resolver, as_path};
use ahead_model::DeviceNumber;
use ahead_profile::{Extent, File, Metadata, Milestone, MilestoneKind, PathBytes, Precision, Profile, Recording};
use ahead_sys::mounts::{self, Mount};
use ahead_sys::{Result, bdi, fiemap, machine, openat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How the run was made that was observed.
#[derive(Clone, Debug)]
pub struct Run {
    /// The command, one entry per argument; empty where none was started.
    pub command: Vec<Vec<u8>>,
    /// Its working directory.
    pub directory: PathBytes,
    /// When it was released to exec, on CLOCK_MONOTONIC.
    pub started_ns: u64,
    /// When it ended or was ready, on CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// The wall clock at `started_ns`.
    pub started: SystemTime,
    /// Processor time of the program and all that it started; zero where that is not known.
    pub cpu: Duration,
    /// It ended because it was ready, as was asked for.
    pub ready: bool,
    /// Everything was evicted before.
    pub cold: bool,
    /// Cold, and the read-ahead of every device was at 0.
    pub precise: bool,
    /// Faults mapped one page each.
    pub single_faults: bool,
}

/// What a profile leaves out, in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// On file systems without a device (tmpfs, proc, sysfs): nothing to fetch.
    pub without_device: u64,
    /// On file systems that are mounted nowhere where we can reach them, or without a name.
    pub unreachable: u64,
    /// Made in this run, or grown: they were not read from a device, or are others in the next run.
    pub made_here: u64,
    /// Neither file nor block device (directories of network file systems, internal inodes).
    pub other_kinds: u64,
    /// Not files but mount namespaces, which ended before they could be looked at: the files that were read there are
    /// kept, but not under which path they were seen.
    pub unseen_namespaces: u64,
    /// Files that count as deleted, for their directories have more entries than are looked at.
    pub not_looked_for: u64,
    /// Looked-up paths that there was no memory for. They count as lost events, too.
    pub unkept_lookups: u64,
}

const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;
const S_IFBLK: u32 = 0o060_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// The file systems that `bpf/path.h` leaves alone.
const WITHOUT_DEVICE: [u64; 9] =
    [0x0102_1994, 0x9fa0, 0x6265_6572, 0x5049_5045, 0x6462_6720, 0x7472_6163, 0x8584_58f6, 0x9584_58f6, 0x6367_7270];

/// First uses of files that become milestones: enough to tell how far a start has come, few enough to list.
const FIRST_OPENS: usize = 256;

/// Makes a profile of one run. Opens the files that were read, to ask where they lie.
pub fn to_profile(observed: &Observed, run: &Run) -> Result<(Profile, LeftOut)> {
    let table = mounts::own()?;
    let resolver = Resolver::new(observed, &table, run.started);
    let counting = Counting { added: run.precise || !observed.source.sees_hits(), around: !run.precise };
    let page_bytes = machine::page_size();
    let touches = touches_by_file(observed, run);
    let mut left_out = LeftOut {
        without_device: count_without_device(observed),
        unseen_namespaces: observed.unseen_namespaces,
        ..LeftOut::default()
    };

    let mut files = BTreeMap::new();
    let mut metadata = Vec::new();
    let mut links = Vec::new();
    let ours = OwnFiles::new(observed, run);
    let span = span_of(run, now_ns());
    for (id, mut touches) in touches {
        let Some(seen) = observed.files.get(&id) else {
            left_out.unreachable += 1;
            continue;
        };
        ours.leave_out(seen, &mut touches);
        if touches.is_empty() {
            continue;
        }
        match seen.mode & S_IFMT {
            S_IFBLK => metadata.extend(device_blocks(seen, &touches, &table, page_bytes)),
            S_IFLNK => links.push((seen, touches[0].time_us)),
            S_IFREG => match file_of(observed, &resolver, &span, seen, &touches) {
                Ok(file) => {
                    // One file may have been in memory twice; a deleted one is not the one that has its name now.
                    let key = (file.path.clone(), file.inode, file.deleted);
                    let entry: &mut (File, Vec<Touch>) = files.entry(key).or_insert((file, Vec::new()));
                    entry.1.extend(touches);
                }
                Err(Why::Unreachable) => left_out.unreachable += 1,
                Err(Why::MadeHere) => left_out.made_here += 1,
            },
            _ => left_out.other_kinds += 1,
        }
    }
    let files = finish_files(files.into_values(), counting, page_bytes);
    let milestones = milestones(observed, run, &resolver, &files);
    let (lookups, unkept_lookups) = lookups(observed, &resolver, &table, run, &links);
    let mut recording = recording(observed, run, &files);
    recording.lost_events += unkept_lookups;
    let profile = Profile { recording, metadata, lookups, milestones, files };
    left_out.unkept_lookups = unkept_lookups;
    left_out.not_looked_for = resolver.given_up();
    Ok((profile, left_out))
}

/// The files that we have mapped ourselves. Before its exec the program is a copy of us and may bring pages of them in.
struct OwnFiles {
    /// Device and inode. On btrfs and overlayfs the device is not the superblock's: there, nothing is left out.
    mapped: BTreeSet<(DeviceNumber, u64)>,
    first_exec_us: u64,
}

impl OwnFiles {
    fn new(observed: &Observed, run: &Run) -> OwnFiles {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let first_exec_us = observed.execs.first().map_or(u64::MAX, |exec| since(run.started_ns, exec.time_ns));
        OwnFiles { mapped: maps.lines().filter_map(mapped_file).collect(), first_exec_us }
    }

    fn leave_out(&self, seen: &FileSeen, touches: &mut Vec<Touch>) {
        if self.mapped.contains(&(DeviceNumber::from_kernel(seen.device), seen.inode)) {
            touches.retain(|touch| touch.kind != AccessKind::Added || touch.time_us >= self.first_exec_us);
        }
    }
}

/// `7f…-7f… r-xp 00002000 fe:00 1234 /usr/lib/…`: the device in hexadecimal, and the inode.
fn mapped_file(line: &str) -> Option<(DeviceNumber, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = DeviceNumber::new(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    Some((device, fields.next()?.parse().ok().filter(|inode| *inode != 0)?))
}

fn since(start_ns: u64, time_ns: u64) -> u64 {
    time_ns.saturating_sub(start_ns) / 1000
}

/// What was touched up to the end: a program that was ready and is being ended reads some more.
fn touches_by_file(observed: &Observed, run: &Run) -> BTreeMap<u32, Vec<Touch>> {
    let mut by_file: BTreeMap<u32, Vec<Touch>> = BTreeMap::new();
    for (order, access) in observed.accesses.iter().enumerate() {
        if access.time_ns > run.ended_ns {
            break;
        }
        let time_us = since(run.started_ns, access.time_ns);
        let touch = Touch { order, time_us, pages: access.pages.clone(), kind: access.kind };
        by_file.entry(access.file).or_default().push(touch);
    }
    by_file
}

fn count_without_device(observed: &Observed) -> u64 {
    let is_one = |file: &&FileSeen| file.mode & S_IFMT == S_IFREG && WITHOUT_DEVICE.contains(&file.magic);
    observed.files.values().filter(is_one).count() as u64
}

/// Why a file is left out.
enum Why {
    Unreachable,
    MadeHere,
}

fn file_of(
    observed: &Observed,
    resolver: &Resolver<'_>,
    span: &RangeInclusive<SystemTime>,
    seen: &FileSeen,
    touches: &[Touch],
) -> std::result::Result<File, Why> {
    let place = resolver.place(seen).ok_or(Why::Unreachable)?;
    if place.metadata.as_ref().is_some_and(|metadata| is_product(span, metadata, seen.size_bytes)) {
        return Err(Why::MadeHere);
    }
    // The last touch: a program's own file is first read before its exec, by what the process was until then.
    let last = touches.last().map(|touch| &observed.accesses[touch.order]);
    let process = last.and_then(|access| observed.exec_of(access.tgid, access.time_ns));
    let metadata = place.metadata.as_ref();
    Ok(File {
        seen_path: resolver.seen_path(seen, &place.path, process),
        fs_path: seen.path.clone(),
        fs_type: place.fs_type,
        device: DeviceNumber::from_kernel(seen.device).key(),
        inode: seen.inode,
        size_bytes: metadata.map_or(seen.size_bytes, |m| m.size()),
        mtime_ns: metadata.map_or(0, |m| m.mtime().saturating_mul(1_000_000_000).saturating_add(m.mtime_nsec())),
        deleted: metadata.is_none(),
        path: place.path,
        extents: Vec::new(),
    })
}

/// The times that files get in a run. By the clock that nobody sets: what lies in the future by a wrong clock is none of it.
fn span_of(run: &Run, now_ns: u64) -> RangeInclusive<SystemTime> {
    run.started - CLOCK_TICK..=run.started + Duration::from_nanos(now_ns.saturating_sub(run.started_ns))
}

/// Whether the run has made a file (then it was read back from memory), or made it longer, as a log: what a profile lists of
/// that one is stale after the next run. Of what was written in place, as a database, all stays true until somebody writes
/// again, and a file that has changed is left out of a run anyway.
fn is_product(span: &RangeInclusive<SystemTime>, now: &fs::Metadata, size_at_first: u64) -> bool {
    let is_in = |time: std::io::Result<SystemTime>| time.is_ok_and(|time| span.contains(&time));
    is_in(now.created()) || (now.size() > size_at_first && is_in(now.modified()))
}

fn finish_files(files: impl Iterator<Item = (File, Vec<Touch>)>, counting: Counting, page_bytes: u64) -> Vec<File> {
    let mut finished: Vec<(usize, File)> = Vec::new();
    for (mut file, mut touches) in files {
        touches.sort_by_key(|touch| touch.order);
        let used = used(&touches, counting);
        file.extents = extents(&used, page_bytes, file.size_bytes);
        if let (Some(first), false) = (used.first(), file.extents.is_empty()) {
            place_file(&mut file);
            finished.push((first.order, file));
        }
    }
    finished.sort_by_key(|(order, _)| *order);
    finished.into_iter().map(|(_, file)| file).collect()
}

/// Asks the file system where the extents lie. Not every one tells: then order is all there is.
fn place_file(file: &mut File) {
    if file.deleted {
        return;
    }
    let physical = openat::handle(as_path(&file.path))
        .and_then(|handle| handle.reopen())
        .and_then(|open| fiemap::extents(open, 0, file.size_bytes));
    match physical {
        Ok(physical) => file.extents = place(std::mem::take(&mut file.extents), &physical),
        Err(error) => tracing::debug!("{}: {error}", as_path(&file.path).display()),
    }
}

fn device_blocks(seen: &FileSeen, touches: &[Touch], table: &[Mount], page_bytes: u64) -> Option<Metadata> {
    let pair = DeviceNumber::from_kernel(seen.rdev);
    // All that came into a device's own cache was asked for by the file system (or the program): it is all used.
    let used = used(touches, Counting { added: true, around: false });
    let mut extents = extents(&used, page_bytes, seen.size_bytes);
    extents.iter_mut().for_each(|extent| extent.physical_bytes = Some(extent.offset_bytes));
    let mount = table.iter().find(|mount| mount.device == pair);
    let node = openat::block_device_node(DeviceNumber::from_kernel(seen.rdev).key())
        .ok()
        .map(|node| node.into_os_string().into_vec());
    // mountinfo may say /dev/root, which is no node.
    let device_path = node.or_else(|| mount.map(|mount| mount.source.clone()))?;
    (!extents.is_empty()).then(|| Metadata {
        device_path,
        mount_point: mount.map(|mount| mount.mount_point.clone()).unwrap_or_default(),
        fs_type: mount.map(|mount| mount.fs_type.clone()).unwrap_or_default(),
        device: DeviceNumber::from_kernel(seen.rdev).key(),
        extents,
    })
}

fn source_of(observed: &Observed, run: &Run) -> String {
    let source = observed.source.describe();
    if run.single_faults { format!("{source}, one page per fault") } else { source.into() }
}

/// The largest window of the devices that files were read from.
fn read_ahead_kb(files: &[File]) -> u64 {
    let devices: BTreeSet<u64> = files.iter().map(|file| file.device).collect();
    let window = |device: u64| bdi::read_ahead_kb(DeviceNumber::from_key(device)).ok();
    devices.into_iter().filter_map(window).max().unwrap_or(0)
}

fn recording(observed: &Observed, run: &Run, files: &[File]) -> Recording {
    Recording {
        command: run.command.clone(),
        directory: run.directory.clone(),
        created_unix_s: run.started.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        kernel: machine::kernel_release(),
        machine: machine::describe(),
        source: source_of(observed, run),
        precision: if run.precise { Precision::Precise } else { Precision::UpperBound },
        cold: run.cold,
        metadata_seen: run.cold,
        lost_events: observed.lost_events(),
        runs: 1,
        duration_us: since(run.started_ns, run.ended_ns),
        read_ahead_kb: if run.precise { 0 } else { read_ahead_kb(files) },
        cpu_us: u64::try_from(run.cpu.as_micros()).unwrap_or(0),
    }
}

/// The program as it was named (of a script: the script, where the file is its interpreter), if that leads somewhere.
fn program_of(observed: &Observed, resolver: &Resolver<'_>, exec: &ExecSeen) -> Option<PathBytes> {
    let base = if exec.name.starts_with(b"/") { exec.root } else { exec.directory };
    let named = resolver.directory(base).and_then(|base| whole_path(&base, &exec.name));
    let named = named.filter(|path| as_path(path).is_file());
    named.or_else(|| resolver.place(observed.files.get(&exec.file)?).map(|place| place.path))
}

fn milestones(observed: &Observed, run: &Run, resolver: &Resolver<'_>, files: &[File]) -> Vec<Milestone> {
    let mut found = Vec::new();
    for exec in observed.execs.iter().filter(|exec| exec.time_ns <= run.ended_ns) {
        let path = program_of(observed, resolver, exec).unwrap_or_default();
        found.push(Milestone { time_us: since(run.started_ns, exec.time_ns), kind: MilestoneKind::Exec, path });
    }
    found.extend(files.iter().take(FIRST_OPENS).map(|file| Milestone {
        time_us: file.extents.first().map_or(0, |extent: &Extent| extent.first_use_us),
        kind: MilestoneKind::FirstOpen,
        path: file.path.clone(),
    }));
    if run.ready {
        let time_us = since(run.started_ns, run.ended_ns);
        found.push(Milestone { time_us, kind: MilestoneKind::Ready, path: PathBytes::new() });
    }
    found.sort_by_key(|milestone| milestone.time_us);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Regression: what was written in place was left out, and with a wrong clock everything.
    #[test]
    fn what_a_run_has_made_or_made_longer_is_its_product() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "12345").unwrap();
        let born = fs::metadata(file.path()).unwrap().modified().unwrap();
        file.as_file().set_modified(born + 2 * HOUR).unwrap();
        let metadata = fs::metadata(file.path()).unwrap();
        let in_run = |from, to, size_at_first| is_product(&(from..=to), &metadata, size_at_first);
        // It was there before, and was written in the run.
        let (before, after) = (born + HOUR, born + 3 * HOUR);
        assert!(in_run(before, after, 4));
        assert!(!in_run(before, after, 5));
        // Written after it, or by a clock that was ahead.
        assert!(!in_run(before, before, 4));
        if metadata.created().is_ok() {
            assert!(in_run(born - HOUR, born + HOUR, 5));
            assert!(!in_run(born - 3 * HOUR, born - HOUR, 5));
        }
    }
}
