//! A profile of byte ranges that a caller names.

use crate::record::{FileSystem, OsFileSystem};
use crate::{Error, Result};
use ahead_learn::split_by_position;
use ahead_model::RangeSet;
use ahead_profile::{Extent, File, Profile, Recording};
use ahead_sys::{machine, mounts};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The profile of ranges of files, in bytes, in the order in which the files were first named. Ranges are extended to whole pages and cut at
/// the end of their file.
pub fn to_profile(ranges: impl IntoIterator<Item = (PathBuf, Range<u64>)>) -> Result<Profile> {
    let mut by_path: BTreeMap<PathBuf, (usize, RangeSet)> = BTreeMap::new();
    for (path, range) in ranges {
        let order = by_path.len();
        by_path.entry(path).or_insert_with(|| (order, RangeSet::default())).1.insert(whole_pages(range));
    }
    let mut files: Vec<(usize, File)> = Vec::new();
    let table = mounts::own()?;
    for (path, (order, wanted)) in by_path {
        files.push((order, file_of(&path, &wanted, &table)?));
    }
    files.sort_by_key(|(order, _)| *order);
    let recording = Recording { runs: 1, ..Recording::default() };
    Ok(Profile { recording, files: files.into_iter().map(|(_, file)| file).collect(), ..Profile::default() })
}

fn file_of(path: &Path, wanted: &RangeSet, table: &[ahead_model::Mount]) -> Result<File> {
    let unusable = |why: &str| Error::Failed(format!("cannot prefetch {}: {why}", path.display()));
    let real = OsFileSystem.canonicalize(path).ok_or_else(|| unusable("there is no such file"))?;
    let stat = OsFileSystem.lstat(&real).filter(|stat| stat.is_file).ok_or_else(|| unusable("not a regular file"))?;
    let bytes = real.as_os_str().as_bytes().to_vec();
    let mount = mounts::covering(table, &bytes).map(|index| &table[index]);
    let mount = mount.ok_or_else(|| unusable("it lies on no mount of this process"))?;
    let whole = 0..stat.size_bytes;
    let extents = wanted.within(&whole).map(|range| Extent {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
        runs: 1,
        ..Extent::default()
    });
    let extents = split_by_position(extents.collect(), &OsFileSystem.physical_extents(&real, stat.size_bytes));
    Ok(File {
        path: bytes,
        fs_type: mount.fs_type.clone(),
        device: mount.device.key(),
        inode: stat.inode,
        size_bytes: stat.size_bytes,
        mtime_ns: stat.mtime_ns,
        extents,
        ..File::default()
    })
}

fn whole_pages(range: Range<u64>) -> Range<u64> {
    let page = machine::page_size();
    range.start / page * page..range.end.checked_next_multiple_of(page).unwrap_or(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_whole_pages_within_their_file() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (first, second) = (home.path().join("z"), home.path().join("a"));
        let page = machine::page_size();
        std::fs::write(&first, vec![1; 3 * page as usize + 100]).unwrap();
        std::fs::write(&second, "x").unwrap();
        let ranges = [(first.clone(), page + 1..page + 2), (second, 0..1), (first, 3 * page..u64::MAX)];
        let profile = to_profile(ranges).unwrap();
        let used: Vec<(u64, u64)> =
            profile.files[0].extents.iter().map(|extent| (extent.offset_bytes, extent.length_bytes)).collect();
        assert_eq!(used, [(page, page), (3 * page, 100)]);
        assert!(profile.files[0].path.ends_with(b"/z") && profile.files[1].path.ends_with(b"/a"));
        ahead_profile::encode(&profile).unwrap();
    }

    #[test]
    fn paths_that_lead_to_no_regular_file_are_errors() {
        for path in ["/dev/null", "/nonexistent", "/"] {
            let error = to_profile([(PathBuf::from(path), 0..1)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot prefetch {path}: ")), "{error}");
        }
    }
}
