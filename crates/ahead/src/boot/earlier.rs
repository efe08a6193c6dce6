//! What was read before the observation: by the kernel, the initramfs, and PID 1 until it started its first services.
//!
//! ```text
//!     start of the observation    resident metadata blocks of the root's device; the files that PID 1 has mapped
//!     end of the boot             resident pages of these files, and of the service manager's directories
//! ```
//!
//! An upper bound: what the kernel has read ahead counts, too. A replay that begins before PID 1 (in the initramfs) needs these pages first,
//! so they have the time 0. For a later replay they are resident, which costs a query for each file.

use crate::Result;
use crate::prefetch::of_ranges;
use ahead_profile::{Extent, Metadata, Profile};
use ahead_sys::{block, cache, mounts, openat};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directories in which systemd looks for units and generators before it starts a service (systemd.unit(5)), and the loader's cache.
const MANAGER: [&str; 4] = ["/etc/systemd", "/usr/lib/systemd", "/usr/local/lib/systemd", "/etc/ld.so.cache"];

/// Files that are looked at: a Debian desktop has 1,500 in these directories.
const MAX_FILES: usize = 10_000;
/// Directories below one another.
const MAX_DEPTH: usize = 8;
/// Metadata ranges: a device that has more was read by more than the start of a boot.
const MAX_METADATA_RANGES: usize = 1 << 16;

/// What is known when the observation starts.
#[derive(Debug, Default)]
pub struct Earlier {
    mapped: Vec<PathBuf>,
    metadata: Option<Metadata>,
}

impl Earlier {
    /// Looks at PID 1 and the root's device. What cannot be found is left out. Reads nothing from the disk.
    pub fn now() -> Earlier {
        let maps = fs::read_to_string("/proc/1/maps").unwrap_or_default();
        let mapped: BTreeSet<PathBuf> = maps.lines().filter_map(mapped_path).collect();
        let metadata = metadata().inspect_err(|error| tracing::info!("metadata that was read before: {error}"));
        Earlier { mapped: mapped.into_iter().collect(), metadata: metadata.ok().flatten() }
    }

    /// Adds what was read earlier to the profile of one boot.
    ///
    /// # Errors
    /// The mount table cannot be read.
    pub fn add_to(self, profile: Profile) -> Result<Profile> {
        let mut paths = self.mapped;
        for top in MANAGER {
            collect(Path::new(top), MAX_DEPTH, &mut paths);
        }
        let ranges =
            paths.into_iter().flat_map(|path| resident(&path).into_iter().map(move |range| (path.clone(), range)));
        let mut earlier = of_ranges(ranges)?;
        earlier.metadata.extend(self.metadata);
        Ok(join(earlier, profile))
    }
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
fn collect(path: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    if metadata.is_file() && found.len() < MAX_FILES {
        found.push(path.to_path_buf());
    } else if metadata.is_dir() && depth > 0 {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| collect(&entry.path(), depth - 1, found));
    }
}

/// The resident ranges of a file; none if it cannot be opened.
fn resident(path: &Path) -> Vec<Range<u64>> {
    let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(file) = is_file.then(|| File::open(path).ok()).flatten() else { return Vec::new() };
    let size_bytes = file.metadata().map_or(0, |metadata| metadata.len());
    cache::resident(&file, 0, size_bytes).unwrap_or_default()
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
        let mut found = Vec::new();
        collect(home.path(), MAX_DEPTH, &mut found);
        assert_eq!(found, std::slice::from_ref(&path));
        assert_eq!(resident(&path), [0..5000]);
        assert!(resident(&home.path().join("link")).is_empty());
    }
}
