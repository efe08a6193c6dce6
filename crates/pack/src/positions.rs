//! Writes the places of now into a profile, so that a replay orders its reads by them.

use super::Named;
use ahead::Result;
use ahead_plan::relocation::PackedFile;
use ahead_profile::learn::split_by_position;
use ahead_profile::{Extent, File};
use ahead_sys::{fiemap, openat};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Loads the profile, sets the places of these files, and replaces it in one step; its owner and mode stay. A profile that was deleted meanwhile
/// is not written.
///
/// # Errors
/// The profile cannot be loaded or saved.
pub(super) fn save(named: &Named, files: &[PackedFile]) -> Result<()> {
    if !named.place.is_taken() {
        return Ok(());
    }
    let (mut profile, access) = named.place.load()?;
    let moved: HashSet<&[u8]> = files.iter().map(|file| &file.path[..]).collect();
    for file in profile.files.iter_mut().filter(|file| moved.contains(&file.path[..])) {
        if let Some(extents) = placed(file) {
            file.extents = extents;
        }
    }
    // Splitting adds extents; a profile at its limit keeps its old places.
    match named.place.save(&profile, Some(access)) {
        Err(ahead_profile::SaveError::Invalid(why)) => {
            tracing::warn!("{}: its places are not updated: {why}", named.path.display());
            Ok(())
        }
        saved => Ok(saved?),
    }
}

/// The used ranges with the places of now; `None`: the file is not the recorded one any more.
fn placed(file: &File) -> Option<Vec<Extent>> {
    let handle = openat::handle(Path::new(OsStr::from_bytes(&file.path))).ok()?;
    let now = handle.identity();
    if !handle.is_regular_file() || !file.is_recorded(now.size_bytes, now.mtime_ns, now.inode) {
        return None;
    }
    let reader = handle.reopen().ok()?;
    let physical = fiemap::extents(&reader, 0, now.size_bytes).ok()?;
    Some(split_by_position(joined(&file.extents), &physical))
}

/// Undoes an earlier split: neighbours in the list that were used as one.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match joined.last_mut() {
            Some(last)
                if last.offset_bytes + last.length_bytes == extent.offset_bytes
                    && (last.first_use_us, last.runs, last.warm_use)
                        == (extent.first_use_us, extent.runs, extent.warm_use) =>
            {
                last.length_bytes += extent.length_bytes;
            }
            _ => joined.push(*extent),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_profile::WarmUse;

    #[test]
    fn split_ranges_are_joined_and_others_are_not() {
        let extent = |offset_bytes, first_use_us| Extent {
            offset_bytes,
            length_bytes: 10,
            first_use_us,
            runs: 1,
            physical_bytes: None,
            warm_use: None,
        };
        let lengths = |extents: &[Extent]| joined(extents).iter().map(|extent| extent.length_bytes).collect::<Vec<_>>();
        assert_eq!(lengths(&[extent(0, 5), extent(10, 5), extent(20, 6), extent(40, 6)]), [20, 10, 10]);
        // Uses of two threads.
        let by = |offset_bytes, thread| {
            let warm_use = Some(WarmUse { thread, ..WarmUse::default() });
            Extent { warm_use, ..extent(offset_bytes, 5) }
        };
        assert_eq!(lengths(&[by(0, 1), by(10, 1), by(20, 2)]), [20, 10]);
    }
}
