//! Profiles that a test makes: of files as they are now.

use super::wait::wait_until;
use ahead_profile::{Extent, File, Lookup, Profile};
use ahead_sys::openat;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A profile's entry for a file of which these ranges were used, in this order, one each millisecond.
pub fn used(path: &Path, ranges: &[Range<u64>]) -> File {
    let now = openat::handle(path).unwrap().identity();
    let extents = ranges.iter().zip(0..).map(|(range, index)| extent(range.clone(), index * 1000));
    File {
        path: path.as_os_str().as_bytes().to_vec(),
        fs_path: b"/".to_vec(),
        device: now.device,
        inode: now.inode,
        size_bytes: now.size_bytes,
        mtime_ns: now.mtime_ns,
        extents: extents.collect(),
        ..File::default()
    }
}

/// The same for a whole file.
pub fn used_whole(path: &Path) -> File {
    let bytes = openat::handle(path).unwrap().identity().size_bytes.max(4096);
    used(path, &[0..bytes])
}

pub fn extent(range: Range<u64>, first_use_us: u64) -> Extent {
    let length_bytes = range.end - range.start;
    Extent { offset_bytes: range.start, length_bytes, first_use_us, runs: 1, ..Extent::default() }
}

/// The lookup of a name on this device.
pub fn lookup(path: &Path, device: u64, inode: u64) -> Lookup {
    Lookup { path: path.as_os_str().as_bytes().to_vec().into(), device, inode, ..Lookup::default() }
}

pub fn of_files(files: Vec<File>) -> Profile {
    let mut profile = Profile { files, ..Profile::default() };
    profile.recording.runs = 1;
    profile
}

/// Saves a profile of one run.
pub fn save(profile: &Profile, path: &Path) {
    let mut profile = profile.clone();
    profile.recording.runs = profile.recording.runs.max(1);
    ahead_files::save(&profile, path).unwrap();
}

/// A file with this profile.
pub fn saved(profile: &Profile) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    save(profile, file.path());
    file
}

/// The entry of a file.
pub fn entry<'a>(profile: &'a Profile, path: &Path) -> &'a File {
    find(profile, path).unwrap_or_else(|| panic!("{} is missing in {:?}", path.display(), paths(profile)))
}

pub fn find<'a>(profile: &'a Profile, path: &Path) -> Option<&'a File> {
    profile.files.iter().find(|file| file.path == path.as_os_str().as_bytes())
}

pub fn paths(profile: &Profile) -> Vec<&OsStr> {
    profile.files.iter().map(|file| OsStr::from_bytes(&file.path)).collect()
}

/// The byte ranges that were used of a file, in order of their offsets.
pub fn ranges(file: &File) -> Vec<Range<u64>> {
    joined(&file.extents)
}

/// The ranges of extents in order of their offsets; neighbours are joined.
pub fn joined<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> Vec<Range<u64>> {
    let mut ranges: Vec<_> = extents.into_iter().map(Extent::range).collect();
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// A process that another test forks has this process's descriptors until its exec, also those with which a file was just written. Some commands refuse
/// such a file.
pub fn wait_until_closed(path: &Path) {
    let Ok(reader) = std::fs::File::open(path) else { return };
    let began = std::time::Instant::now();
    // A test that holds a descriptor itself waits for the limit.
    wait_until("the exec of other processes", || {
        !ahead_sys::ext4::has_writers(std::os::fd::AsFd::as_fd(&reader)).unwrap_or(false)
            || began.elapsed().as_secs() >= 10
    });
}
