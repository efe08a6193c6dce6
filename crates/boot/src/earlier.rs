//! What was read before the observation: by the kernel, the initramfs, PID 1 and the programs that ran until the observer was loaded. On a
//! slow disk that takes a second: the observer's program is read beside all others.
//!
//! ```text
//!     start of the observation    resident metadata blocks of the root's device; the files with resident pages (listed by the kernel)
//!     end of the boot             resident pages of these files, and of files and metadata blocks that were never observed
//! ```
//!
//! An upper bound: what the kernel has read ahead counts, too. Files that were made in this boot, or have grown, are left out: their pages
//! were not read. Those that were written in place had to be read first (a journal, a database).
//!
//! Times of a boot count from the start of PID 1. The kernel lists the files in the order in which they were first looked up, so those of
//! the time before the observation get times in this order, at equal distances: a disk that does not seek is read in the order of first use.
//!
//! If the boot was replayed, what the replay brought is resident, used or not, and in the order of the replay. So a part that the replayed
//! profile has keeps its time if it is used before the observation begins, or soon after. A part that is used later counts only if it was
//! observed. The observation begins at the same time of the profile in each boot ([`began_us`]), however fast the boot was.
//!
//! Where the kernel cannot list its cached files (no BPF), the files that PID 1 has mapped and those of the service manager's directories
//! take their place, with the time 0.

use ahead::Result;
use ahead::prefetch::file_as_it_is;
use ahead_model::{RangeSet, sorting};
use ahead_profile::{Extent, File as RecordedFile, Metadata, Milestone, MilestoneKind, PathBytes, Profile, Recording};
use ahead_sys::maps::{self, Area};
use ahead_sys::process_id::ProcessId;
use ahead_sys::root::Root;
use ahead_sys::{block, cache, mounts, openat};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The directories in which systemd looks for units and generators before it starts a service (systemd.unit(5)), and the loader's cache.
const MANAGER: [&str; 4] = ["/etc/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd", "/etc/ld.so.cache"];

/// Files that are looked at: a boot of a Debian desktop reads some 5,000.
const MAX_FILES: usize = 100_000;
/// Directories below one another.
const MAX_DEPTH: usize = 8;
/// Metadata ranges: a device that has more was read by more than the start of a boot.
const MAX_METADATA_RANGES: usize = 1 << 16;

/// Resident pages of a file that was written in this boot: a journal has up to 8 MiB at first, a segment of PostgreSQL's log has 16 MiB. Of a
/// larger one (the disk of a virtual machine) most were written, and not read.
const MAX_WRITTEN_BYTES: u64 = 16 << 20;

/// Resolution of the order of first lookups.
const PARTS: u64 = 1 << 20;

/// A replayed boot gets further until the observer is loaded: the observer's program is read from the disk, and all others are replayed. Two
/// seconds of a boot from a slow disk take less than half a second when they are replayed. Microseconds.
const HEAD_START_US: u64 = 2_000_000;

/// The longest start of an observer that is plausible, microseconds. In other profiles the milestone is that of another command.
const LONGEST_START_US: u64 = 60_000_000;

/// The path of the milestone that says when the observation of a boot began.
const OBSERVER: &[u8] = b"/usr/bin/ahead";

/// What is known when the observation starts.
#[derive(Debug, Default)]
pub struct Earlier {
    /// When PID 1 was started, microseconds of CLOCK_MONOTONIC.
    pid_1_us: u64,
    files: BTreeMap<PathBuf, Cached>,
    metadata: Option<Metadata>,
}

/// A file with resident pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cached {
    /// When it was first looked up: the part of the time before the observation, in units of 1 / [`PARTS`].
    part: u64,
    /// Its size at the start of the observation, bytes; `None`: unknown.
    size_bytes: Option<u64>,
}

impl Earlier {
    /// Looks at the page cache. What cannot be found is left out. Reads nothing from the disk.
    pub fn now() -> Earlier {
        let files = cached_files().unwrap_or_else(|error| {
            tracing::info!("files that were read before: {error}");
            maps::files_of(1).into_iter().filter_map(path_that_is_there).map(|path| (path, Cached::default())).collect()
        });
        let metadata = metadata().inspect_err(|error| tracing::info!("metadata that was read before: {error}"));
        let pid_1_us = clock_us(ClockId::Monotonic).saturating_sub(age_of_boot_us());
        Earlier { pid_1_us, files, metadata: metadata.ok().flatten() }
    }

    /// Adds what was read earlier to the profile of one boot, which was observed from `started_us` (CLOCK_MONOTONIC). `replayed`: the profile
    /// that was replayed in this boot, if any.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn add_to(self, mut profile: Profile, started_us: u64, replayed: Option<&Profile>) -> Result<Profile> {
        let until_us = begin(&mut profile, started_us.saturating_sub(self.pid_1_us), replayed);
        let mut files = self.files;
        match cached_files() {
            Ok(cached) => {
                // Between the first list and the first event, files were read that neither has.
                let observed: BTreeSet<&[u8]> = profile.files.iter().map(|file| file.path.as_slice()).collect();
                for path in cached.into_keys().filter(|path| !observed.contains(path.as_os_str().as_bytes())) {
                    files.entry(path).or_insert(Cached { part: PARTS, size_bytes: None });
                }
            }
            Err(_) => MANAGER.iter().for_each(|top| collect(Path::new(top), MAX_DEPTH, &mut files)),
        }
        let mut earlier = Profile { files: resident_files(files, until_us)?, ..Profile::default() };
        earlier.metadata.extend(self.metadata);
        earlier.metadata.extend(metadata_since(&profile, until_us));
        replayed.inspect(|replayed| leave_out_unobserved(&mut earlier, replayed, until_us));
        Ok(join(earlier, profile))
    }
}

/// Makes the times of an observation, which began so long after PID 1, those of a boot. Returns when it began in these.
fn begin(observed: &mut Profile, after_pid_1_us: u64, replayed: Option<&Profile>) -> u64 {
    let until_us = replayed.and_then(began_us).unwrap_or(after_pid_1_us.max(1));
    delay(observed, until_us);
    let (kind, path) = (MilestoneKind::Exec, OBSERVER.to_vec());
    observed.milestones.push(Milestone { time_us: until_us, kind, path, warm_us: None });
    sorting::sort_by_key(&mut observed.milestones, |milestone| milestone.time_us);
    until_us
}

/// When the observation of a recorded boot began, microseconds since the start of PID 1. `None`: the profile is not that of a boot.
pub fn began_us(profile: &Profile) -> Option<u64> {
    let is_observer = |at: &&Milestone| at.kind == MilestoneKind::Exec && at.path == OBSERVER;
    profile
        .milestones
        .iter()
        .filter(is_observer)
        .map(|at| at.time_us)
        .min()
        .filter(|time_us| *time_us < LONGEST_START_US)
}

/// The metadata blocks that are resident at the end of a boot and were never observed, or only in the time between the look at the page cache
/// and the first event.
fn metadata_since(observed: &Profile, until_us: u64) -> Option<Metadata> {
    let mut now = metadata().inspect_err(|error| tracing::info!("metadata that was read: {error}")).ok()??;
    let known = observed.metadata.iter().filter(|known| known.mount_point == now.mount_point);
    let known: RangeSet = known.flat_map(|known| known.extents.iter().map(Extent::range)).collect();
    let unseen = |extent: &Extent| -> Vec<Extent> {
        let part = |gap: Range<u64>| metadata_extent(gap, until_us);
        known.gaps(&extent.range()).map(part).collect()
    };
    now.extents = now.extents.iter().flat_map(unseen).collect();
    Some(now)
}

/// The files with their resident pages, each at its time.
fn resident_files(cached: BTreeMap<PathBuf, Cached>, until_us: u64) -> Result<Vec<RecordedFile>> {
    let (root, table, began_s) = (Root::default(), mounts::own()?, boot_began_s());
    let entry = |(path, Cached { part, size_bytes }): (PathBuf, Cached)| {
        let pages: RangeSet = resident(&path, began_s, size_bytes).into_iter().collect();
        let mut file =
            file_as_it_is(&root, &table, path.as_os_str().as_bytes(), &pages).filter(|_| !pages.is_empty())?;
        let time_us = u128::from(until_us.saturating_sub(1)) * u128::from(part) / u128::from(PARTS);
        file.extents.iter_mut().for_each(|extent| extent.first_use_us = time_us as u64);
        Some(file)
    };
    Ok(cached.into_iter().take(MAX_FILES).filter_map(entry).collect())
}

/// The files with resident pages on the mounted file systems of block devices, by their paths here.
fn cached_files() -> Result<BTreeMap<PathBuf, Cached>> {
    let table = mounts::own()?;
    let (mut done, mut found) = (BTreeSet::new(), BTreeMap::new());
    for mount in ahead_observe::nobpf::roots(&table) {
        let point = Path::new(OsStr::from_bytes(&mount.mount_point));
        // In a container, files of the host are mounted one by one. Their file system is not that of this boot.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(point, flags, Mode::empty()) else { continue };
        if !done.insert(mount.device) {
            continue;
        }
        let files = ahead_observe::cached_files(&directory)?;
        let last = files.len().saturating_sub(1).max(1) as u64;
        for (number, file) in files.into_iter().enumerate() {
            let path = ahead_profile::learn::places(&table, file.device, &file.path).next().map(|(_, path)| path);
            let cached = Cached { part: PARTS * number as u64 / last, size_bytes: Some(file.size_bytes) };
            found.extend(path.map(|path| (PathBuf::from(OsStr::from_bytes(&path)), cached)));
        }
    }
    Ok(found)
}

/// Adds this to all times of a recording.
fn delay(profile: &mut Profile, by_us: u64) {
    profile.files.iter_mut().flat_map(|file| &mut file.extents).for_each(|extent| extent.first_use_us += by_us);
    profile.metadata.iter_mut().flat_map(|at| &mut at.extents).for_each(|extent| extent.first_use_us += by_us);
    profile.lookups.iter_mut().for_each(|lookup| lookup.first_use_us += by_us);
    profile.milestones.iter_mut().for_each(|milestone| milestone.time_us += by_us);
    profile.recording.duration_us += by_us;
}

/// Gives the parts that the replayed profile has the times that they have there, and removes those that are used later than the observation
/// has begun: if they were used in this boot, they were observed. Not for metadata: the use of a resident block is not observed. Changed
/// files were not replayed.
fn leave_out_unobserved(earlier: &mut Profile, replayed: &Profile, until_us: u64) {
    let known = replayed.files.iter().filter(|file| !file.deleted).map(|file| (&file.path, file));
    let known: HashMap<&PathBytes, &RecordedFile> = known.collect();
    for file in &mut earlier.files {
        if let Some(known) = known.get(&file.path).filter(|known| known.is_version_of(file)) {
            let kept_until_us = until_us.saturating_add(HEAD_START_US);
            file.extents = with_times_of(&file.extents, &known.extents, |time_us| time_us < kept_until_us);
        }
    }
    earlier.files.retain(|file| !file.extents.is_empty());
    for metadata in &mut earlier.metadata {
        let same = |known: &&Metadata| known.mount_point == metadata.mount_point;
        if let Some(known) = replayed.metadata.iter().find(same) {
            metadata.extents = with_times_of(&metadata.extents, &known.extents, |_| true);
        }
    }
}

/// The same bytes, with the times of `known` where both overlap. Without the parts whose known time is not kept.
fn with_times_of(extents: &[Extent], known: &[Extent], is_kept: impl Fn(u64) -> bool) -> Vec<Extent> {
    let mut known: Vec<&Extent> = known.iter().collect();
    sorting::sort_by_key(&mut known, |extent| extent.offset_bytes);
    let mut output = Vec::with_capacity(extents.len());
    for extent in extents {
        let (mut at, end) = (extent.offset_bytes, extent.end_bytes());
        let mut push = |to: u64, time_us: Option<u64>| {
            let (length_bytes, offset_bytes) = (to.saturating_sub(at), at);
            at = at.max(to);
            if let (Some(first_use_us), 1..) = (time_us, length_bytes) {
                let physical_bytes = extent.physical_bytes.map(|place| place + (offset_bytes - extent.offset_bytes));
                output.push(Extent { offset_bytes, length_bytes, first_use_us, physical_bytes, ..*extent });
            }
        };
        let first = known.partition_point(|known| known.end_bytes() <= extent.offset_bytes);
        for known in known[first..].iter().take_while(|known| known.offset_bytes < end) {
            push(known.offset_bytes, Some(extent.first_use_us));
            let kept = is_kept(known.first_use_us).then_some(known.first_use_us);
            push(known.end_bytes().min(end), kept);
        }
        push(end, Some(extent.first_use_us));
    }
    output
}

fn clock_us(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000
}

/// How long PID 1 has run, microseconds; 0: unknown.
fn age_of_boot_us() -> u64 {
    let Ok(Some(first)) = ProcessId::of(1) else { return 0 };
    let started_us = first.start_ticks.saturating_mul(1_000_000) / rustix::param::clock_ticks_per_second();
    clock_us(ClockId::Boottime).saturating_sub(started_us)
}

/// When PID 1 was started, in seconds since 1970. A file with a later change was written in this boot. If that is unknown, every file counts
/// as read.
fn boot_began_s() -> i64 {
    match age_of_boot_us() {
        0 => i64::MAX,
        age_us => clock_gettime(ClockId::Realtime).tv_sec - (age_us / 1_000_000) as i64,
    }
}

/// Both as one boot. Pages that are in both keep the earlier time.
fn join(earlier: Profile, observed: Profile) -> Profile {
    let recording = observed.recording.clone();
    let mut all = ahead_profile::merge(vec![
        // In this order: the observation describes a file that is in both.
        Profile { recording: Recording { created_unix_s: 0, ..recording.clone() }, ..earlier },
        Profile { recording: Recording { created_unix_s: 1, ..recording.clone() }, ..observed },
    ]);
    let files = all.files.iter_mut().flat_map(|file| &mut file.extents);
    for extent in files.chain(all.metadata.iter_mut().flat_map(|metadata| &mut metadata.extents)) {
        extent.runs = 1;
    }
    all.files.sort_by_key(|file| file.extents.first().map_or(u64::MAX, |extent| extent.first_use_us));
    Profile { recording, ..all }
}

/// The path of a mapped file that was not replaced.
fn path_that_is_there(area: Area) -> Option<PathBuf> {
    area.path.filter(|path| !path.as_os_str().as_encoded_bytes().ends_with(b" (deleted)"))
}

/// The regular files of a directory and those below, with the time 0.
fn collect(path: &Path, depth: usize, found: &mut BTreeMap<PathBuf, Cached>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    if metadata.is_file() && found.len() < MAX_FILES {
        found.insert(path.to_path_buf(), Cached::default());
    } else if metadata.is_dir() && depth > 0 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| collect(&entry.path(), depth - 1, found));
    }
}

/// The resident ranges of a file; none if it cannot be opened, or was made or has grown since `began_s`. `size_at_first`: as [`Cached`].
fn resident(path: &Path, began_s: i64, size_at_first: Option<u64>) -> Vec<Range<u64>> {
    let Ok(handle) = openat::handle(path) else { return Vec::new() };
    let Some(Ok(opened)) = handle.is_regular_file().then(|| handle.reopen()) else { return Vec::new() };
    let file = File::from(opened);
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let was_written = metadata.mtime().max(metadata.ctime()) >= began_s;
    let made_s =
        metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok()).map(|made| made.as_secs());
    let is_in_place = size_at_first == Some(metadata.len()) && made_s.is_some_and(|made_s| (made_s as i64) < began_s);
    if was_written && !is_in_place {
        return Vec::new();
    }
    let ranges = cache::resident(&file, 0, metadata.len()).unwrap_or_default();
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if was_written && bytes > MAX_WRITTEN_BYTES { Vec::new() } else { ranges }
}

fn metadata_extent(range: Range<u64>, first_use_us: u64) -> Extent {
    let (offset_bytes, length_bytes) = (range.start, range.end - range.start);
    Extent { offset_bytes, length_bytes, first_use_us, runs: 1, physical_bytes: Some(offset_bytes), warm_use: None }
}

/// The resident blocks of the root's device, where metadata is in its page cache: ext2, ext3 and ext4. `None`: it is elsewhere.
fn metadata() -> ahead_sys::Result<Option<Metadata>> {
    let table = mounts::own()?;
    let Some(root) = mounts::covering(&table, b"/").map(|index| &table[index]) else { return Ok(None) };
    if !root.fs_type.starts_with("ext") {
        return Ok(None);
    }
    let device = root.device;
    let node = openat::block_device_node(device.key())?;
    let opened = openat::handle(&node)?;
    if opened.block_device() != Some(device.key()) {
        tracing::info!("{}: not the device of the root", node.display());
        return Ok(None);
    }
    let ranges = cache::resident(opened.reopen_block_device()?, 0, block::size_bytes(device)?)?;
    tracing::info!("{}: {} ranges of metadata were read before", node.display(), ranges.len());
    let extents = ranges.into_iter().take(MAX_METADATA_RANGES).map(|range| metadata_extent(range, 0));
    Ok(Some(Metadata {
        device_path: node.as_os_str().as_bytes().to_vec(),
        mount_point: b"/".to_vec(),
        fs_type: root.fs_type.clone(),
        device: device.key(),
        extents: extents.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rows(extents: &[Extent]) -> Vec<(u64, u64, u64)> {
        extents.iter().map(|extent| (extent.offset_bytes, extent.length_bytes, extent.first_use_us)).collect()
    }

    fn profile(runs: u32, extents: &[(u64, u64, u64)]) -> Profile {
        let extents = extents.iter().map(|(offset_bytes, length_bytes, first_use_us)| Extent {
            offset_bytes: *offset_bytes,
            length_bytes: *length_bytes,
            first_use_us: *first_use_us,
            runs,
            ..Extent::default()
        });
        let (path, extents) = (b"/lib/x".to_vec(), extents.collect());
        let file = RecordedFile { path, size_bytes: 1 << 20, extents, ..RecordedFile::default() };
        let recording = Recording { runs, created_unix_s: 7, kernel: "6.1".into(), ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    #[test]
    fn pages_that_were_read_earlier_keep_the_earlier_time_and_count_once() {
        let mut observed = profile(1, &[(4096, 8192, 9000)]);
        delay(&mut observed, 100);
        let joined = join(profile(1, &[(0, 8192, 7)]), observed);
        assert_eq!(rows(&joined.files[0].extents), [(0, 4096, 7), (4096, 4096, 7), (8192, 4096, 9100)]);
        assert!(joined.files[0].extents.iter().all(|extent| extent.runs == 1));
        assert_eq!((joined.recording.runs, joined.recording.created_unix_s), (1, 7));
    }

    /// Regression: what was replayed once counted as used at each later boot, and never left the profile.
    #[test]
    fn replayed_parts_keep_their_times_and_later_ones_have_to_be_observed() {
        let mut earlier = profile(1, &[(0, 40960, 500), (81920, 4096, 600)]);
        earlier.files[0].extents[0].physical_bytes = Some(1 << 20);
        earlier.metadata = vec![Metadata { extents: vec![metadata_extent(0..8192, 3)], ..Metadata::default() }];
        let late_us = HEAD_START_US + 80;
        let mut replayed = profile(5, &[(28672, 4096, 70), (4096, 8192, 50), (36864, 8192, late_us), (61440, 4096, 1)]);
        replayed.metadata = vec![Metadata { extents: vec![metadata_extent(4096..8192, 900)], ..Metadata::default() }];
        leave_out_unobserved(&mut earlier, &replayed, 80);
        let extents = &earlier.files[0].extents;
        let expected = [
            (0, 4096, 500),
            (4096, 8192, 50),
            (12288, 16384, 500),
            (28672, 4096, 70),
            (32768, 4096, 500),
            // Not 36864, which is used late.
            (81920, 4096, 600),
        ];
        assert_eq!(rows(extents), expected);
        assert!(extents[..5].iter().all(|extent| extent.physical_bytes == Some((1 << 20) + extent.offset_bytes)));
        assert_eq!(extents[5].physical_bytes, None);
        assert_eq!(rows(&earlier.metadata[0].extents), [(0, 4096, 3), (4096, 4096, 900)]);
        // Another version was not replayed.
        let mut changed = profile(1, &[(0, 1 << 20, late_us)]);
        changed.files[0].mtime_ns = 9;
        leave_out_unobserved(&mut earlier, &changed, 80);
        assert_eq!(rows(&earlier.files[0].extents), expected);
        leave_out_unobserved(&mut earlier, &profile(1, &[(0, 1 << 20, late_us)]), 80);
        assert!(earlier.files.is_empty());
    }

    #[test]
    fn observation_begins_at_the_same_time_of_each_profile() {
        let boot = |after_pid_1_us, replayed: Option<&Profile>| {
            let mut observed = profile(1, &[(4096, 4096, 70)]);
            // The program runs again when the boot is done.
            observed.milestones =
                vec![Milestone { time_us: 9, kind: MilestoneKind::Exec, path: OBSERVER.to_vec(), warm_us: None }];
            (begin(&mut observed, after_pid_1_us, replayed), observed).1
        };
        let first = boot(2_000_000, None);
        assert_eq!((began_us(&first), rows(&first.files[0].extents)), (Some(2_000_000), vec![(4096, 4096, 2_000_070)]));
        // A faster boot.
        let second = boot(500_000, Some(&first));
        assert_eq!((began_us(&second), began_us(&profile(1, &[]))), (Some(2_000_000), None));
        let mut late = profile(1, &[]);
        late.milestones = vec![Milestone {
            time_us: LONGEST_START_US,
            kind: MilestoneKind::Exec,
            path: OBSERVER.to_vec(),
            warm_us: None,
        }];
        assert_eq!(began_us(&late), None);
        let merged = ahead_profile::merge(vec![first, second]);
        assert_eq!((began_us(&merged), merged.files[0].extents[0].first_use_us), (Some(2_000_000), 2_000_070));
    }

    #[test]
    fn files_that_were_replaced_are_no_mapped_files() {
        let device = ahead_model::DeviceNumber::new(0xfe, 0x1f);
        let mapped = |path: &str| {
            let area = Area {
                addresses: 0..4096,
                is_shared: false,
                offset_bytes: 0,
                device,
                inode: 1234,
                path: Some(path.into()),
            };
            path_that_is_there(area)
        };
        assert_eq!(mapped("/usr/lib/x y.so"), Some(PathBuf::from("/usr/lib/x y.so")));
        assert_eq!(mapped("/usr/lib/x.so (deleted)"), None);
    }

    #[test]
    fn resident_pages_of_files_below_a_directory_are_found() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        let path = home.path().join("a/unit");
        fs::write(&path, vec![7; 5000]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
        let mut found = BTreeMap::new();
        collect(home.path(), MAX_DEPTH, &mut found);
        assert_eq!(found, BTreeMap::from([(path.clone(), Cached::default())]));
        assert_eq!(resident(&path, i64::MAX, None), [0..5000]);
        assert!(resident(&home.path().join("link"), i64::MAX, None).is_empty());
        // Made in this boot: not read.
        assert!(resident(&path, boot_began_s(), Some(5000)).is_empty());
    }

    /// Regression: the journal, which is read and written before the observer is loaded, was in no recording.
    #[test]
    fn file_that_was_written_in_place_was_read() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = home.path().join("journal");
        fs::write(&path, vec![7; 5000]).unwrap();
        let written_s = path.symlink_metadata().unwrap().mtime();
        // Made before, and written in the second in which the boot began.
        let began_s = written_s + 1;
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(UNIX_EPOCH + Duration::from_secs(began_s as u64))
            .unwrap();
        assert_eq!(resident(&path, began_s, Some(5000)), [0..5000]);
        // Grown, or nothing is known.
        assert!(resident(&path, began_s, Some(4999)).is_empty());
        assert!(resident(&path, began_s, None).is_empty());
    }
}
