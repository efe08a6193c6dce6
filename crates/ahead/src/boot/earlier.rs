//! What was read before the observation: by the kernel, the initramfs, PID 1 and the programs that ran until the observer was loaded. On a
//! slow disk that takes a second: the observer's program is read beside all others.
//!
//! ```text
//!     start of the observation    resident metadata blocks of the root's device; the files with resident pages (listed by the kernel)
//!     end of the boot             resident pages of these files, and of files that were never observed
//! ```
//!
//! An upper bound: what the kernel has read ahead counts, too. A replay that begins before PID 1 (in the initramfs) needs these pages first,
//! so they have the time 0. For a later replay they are resident, which costs a query for each file. Files that were written in this boot
//! are left out: their pages were not read.
//!
//! Where the kernel cannot list its cached files (no BPF), the files that PID 1 has mapped and those of the service manager's directories
//! take their place.

use crate::Result;
use crate::prefetch::of_ranges;
use ahead_profile::{Extent, Metadata, Profile};
use ahead_sys::process_id::ProcessId;
use ahead_sys::{block, cache, mounts, openat};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The directories in which systemd looks for units and generators before it starts a service (systemd.unit(5)), and the loader's cache.
const MANAGER: [&str; 4] = ["/etc/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd", "/etc/ld.so.cache"];

/// Files that are looked at: a boot of a Debian desktop reads some 5,000.
const MAX_FILES: usize = 100_000;
/// Directories below one another.
const MAX_DEPTH: usize = 8;
/// Metadata ranges: a device that has more was read by more than the start of a boot.
const MAX_METADATA_RANGES: usize = 1 << 16;

/// What is known when the observation starts.
#[derive(Debug, Default)]
pub struct Earlier {
    files: BTreeSet<PathBuf>,
    metadata: Option<Metadata>,
}

impl Earlier {
    /// Looks at the page cache. What cannot be found is left out. Reads nothing from the disk.
    pub fn now() -> Earlier {
        let files = cached_files().unwrap_or_else(|error| {
            tracing::info!("files that were read before: {error}");
            let maps = fs::read_to_string("/proc/1/maps").unwrap_or_default();
            maps.lines().filter_map(mapped_path).collect()
        });
        let metadata = metadata().inspect_err(|error| tracing::info!("metadata that was read before: {error}"));
        Earlier { files, metadata: metadata.ok().flatten() }
    }

    /// Adds what was read earlier to the profile of one boot.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn add_to(self, profile: Profile) -> Result<Profile> {
        let mut paths = self.files;
        match cached_files() {
            Ok(cached) => {
                // Between the first list and the first event, files were read that neither has.
                let observed: BTreeSet<&[u8]> = profile.files.iter().map(|file| file.path.as_slice()).collect();
                let unseen = |path: &PathBuf| !observed.contains(path.as_os_str().as_bytes());
                paths.extend(cached.into_iter().filter(unseen));
            }
            Err(_) => MANAGER.iter().for_each(|top| collect(Path::new(top), MAX_DEPTH, &mut paths)),
        }
        let began_s = boot_began_s();
        let ranges = paths
            .into_iter()
            .take(MAX_FILES)
            .flat_map(|path| resident(&path, began_s).into_iter().map(move |range| (path.clone(), range)));
        let mut earlier = of_ranges(ranges)?;
        earlier.metadata.extend(self.metadata);
        Ok(join(earlier, profile))
    }
}

/// The files with resident pages on the mounted file systems of block devices, by their paths here.
fn cached_files() -> Result<BTreeSet<PathBuf>> {
    let table = mounts::own()?;
    let (mut done, mut found) = (BTreeSet::new(), BTreeSet::new());
    for mount in ahead_nobpf::roots(&table) {
        let point = Path::new(OsStr::from_bytes(&mount.mount_point));
        // In a container, files of the host are mounted one by one. Their file system is not that of this boot.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(point, flags, Mode::empty()) else { continue };
        if !done.insert(mount.device) {
            continue;
        }
        for file in ahead_observe::cached_files(&directory)? {
            let path = ahead_learn::places(&table, file.device, &file.path).next().map(|(_, path)| path);
            found.extend(path.map(|path| PathBuf::from(OsStr::from_bytes(&path))));
        }
    }
    Ok(found)
}

/// When PID 1 was started, in seconds since 1970. A file with a later change was written in this boot. If that is unknown, every file counts
/// as read.
fn boot_began_s() -> i64 {
    let Ok(Some(first)) = ProcessId::of(1) else { return i64::MAX };
    let age_s =
        clock_gettime(ClockId::Boottime).tv_sec - (first.start_ticks / rustix::param::clock_ticks_per_second()) as i64;
    clock_gettime(ClockId::Realtime).tv_sec - age_s
}

/// Both as one boot. Pages that are in both keep the earlier time.
fn join(earlier: Profile, observed: Profile) -> Profile {
    let recording = observed.recording.clone();
    let mut all = ahead_profile::merge(vec![
        // In this order: the observation describes a file that is in both.
        Profile { recording: ahead_profile::Recording { created_unix_s: 0, ..recording.clone() }, ..earlier },
        Profile { recording: ahead_profile::Recording { created_unix_s: 1, ..recording.clone() }, ..observed },
    ]);
    let files = all.files.iter_mut().flat_map(|file| &mut file.extents);
    for extent in files.chain(all.metadata.iter_mut().flat_map(|metadata| &mut metadata.extents)) {
        if extent.runs > 1 {
            (extent.runs, extent.first_use_us) = (1, 0);
        }
    }
    all.files.sort_by_key(|file| file.extents.first().map_or(u64::MAX, |extent| extent.first_use_us));
    Profile { recording, ..all }
}

/// `7f…-7f… r-xp 00002000 fe:00 1234 /usr/lib/…`: the path of a file that is still there.
fn mapped_path(line: &str) -> Option<PathBuf> {
    let path = &line[line.find('/')?..];
    (!path.ends_with(" (deleted)")).then(|| path.into())
}

/// The regular files of a directory and those below.
fn collect(path: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    if metadata.is_file() && found.len() < MAX_FILES {
        found.insert(path.to_path_buf());
    } else if metadata.is_dir() && depth > 0 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| collect(&entry.path(), depth - 1, found));
    }
}

/// The resident ranges of a file that was not changed since `began_s`; none if it cannot be opened.
fn resident(path: &Path, began_s: i64) -> Vec<Range<u64>> {
    let Ok(handle) = openat::handle(path) else { return Vec::new() };
    let Some(Ok(opened)) = handle.is_regular_file().then(|| handle.reopen()) else { return Vec::new() };
    let file = File::from(opened);
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let was_written = metadata.mtime().max(metadata.ctime()) >= began_s;
    if was_written { Vec::new() } else { cache::resident(&file, 0, metadata.len()).unwrap_or_default() }
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
    let extents = ranges.into_iter().take(MAX_METADATA_RANGES).map(|range| Extent {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
        runs: 1,
        physical_bytes: Some(range.start),
        ..Extent::default()
    });
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
    use ahead_profile::{File, Recording};

    fn profile(runs: u32, extents: &[(u64, u64, u64)]) -> Profile {
        let extents = extents.iter().map(|(offset_bytes, length_bytes, first_use_us)| Extent {
            offset_bytes: *offset_bytes,
            length_bytes: *length_bytes,
            first_use_us: *first_use_us,
            runs,
            ..Extent::default()
        });
        let file =
            File { path: b"/lib/x".to_vec(), size_bytes: 1 << 20, extents: extents.collect(), ..File::default() };
        let recording = Recording { runs, created_unix_s: 7, kernel: "6.1".into(), ..Recording::default() };
        Profile { recording, files: vec![file], ..Profile::default() }
    }

    #[test]
    fn earlier_pages_come_first_and_count_as_one_boot() {
        let joined = join(profile(1, &[(0, 8192, 0)]), profile(1, &[(4096, 8192, 900)]));
        let extents: Vec<_> = joined.files[0]
            .extents
            .iter()
            .map(|at| (at.offset_bytes, at.length_bytes, at.first_use_us, at.runs))
            .collect();
        assert_eq!(extents.iter().map(|extent| extent.1).sum::<u64>(), 12_288);
        assert!(
            extents.iter().all(|(offset, _, time, runs)| *runs == 1 && (*time == 0) == (*offset < 8192)),
            "{extents:?}"
        );
        assert_eq!((joined.recording.runs, joined.recording.created_unix_s), (1, 7));
    }

    #[test]
    fn files_that_were_replaced_are_no_mapped_files() {
        let line = "7f1c2000-7f1c4000 r-xp 00002000 fe:1f 1234 /usr/lib/x y.so";
        assert_eq!(mapped_path(line), Some(PathBuf::from("/usr/lib/x y.so")));
        assert_eq!(mapped_path("7f1c2000-7f1c4000 r-xp 00002000 fe:1f 1234 /usr/lib/x.so (deleted)"), None);
        assert_eq!(mapped_path("7f1c2000-7f1c4000 rw-p 00000000 00:00 0 [heap]"), None);
    }

    #[test]
    fn resident_pages_of_files_below_a_directory_are_found() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::create_dir(home.path().join("a")).unwrap();
        let path = home.path().join("a/unit");
        fs::write(&path, vec![7; 5000]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", home.path().join("link")).unwrap();
        let mut found = BTreeSet::new();
        collect(home.path(), MAX_DEPTH, &mut found);
        assert_eq!(found, BTreeSet::from([path.clone()]));
        assert_eq!(resident(&path, i64::MAX), [0..5000]);
        assert!(resident(&home.path().join("link"), i64::MAX).is_empty());
        // Written in this boot: not read.
        assert!(resident(&path, boot_began_s()).is_empty());
    }
}
