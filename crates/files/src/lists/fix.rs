//! A profile without the problems that a check has found.
//!
//! ```text
//!     missing, not a regular file ──▶ removed
//!     changed, replaced           ──▶ new size, time and inode, if its extents still lie within the file; else removed
//!       with a content check      ──▶ new size and time, with the extents whose content is still there; without any removed
//!     same path, same file        ──▶ its extents join those of the first entry
//!       same content, accepted    ──▶ new size, time and inode
//!     unknown                     ──▶ kept: another user may be able to look at it
//! ```

use super::check::content_reader;
use super::{Checked, Joined, Problem};
use crate::lists::content::Examined;
use ahead_profile::{File, Profile};
use ahead_sys::root::Root;
use std::collections::BTreeMap;

/// What a fix has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fixed {
    /// Entries that are gone.
    pub removed: usize,
    /// Entries with a new size or time.
    pub updated: usize,
    /// Entries that joined another one.
    pub merged: usize,
}

/// Removes, updates and merges entries. Lookups, metadata and milestones stay.
///
/// A changed or replaced file whose content the profile knows is read below `root`, within limits. `by_content`: one whose content it does not
/// know stays as recorded, so that no prefetch takes it for the recorded file.
pub fn fix(profile: Profile, checked: &Checked, root: &Root, by_content: bool) -> (Profile, Fixed) {
    let mut fixed = Fixed::default();
    let mut reader = content_reader(root);
    let mut kept: Vec<Option<File>> = profile.files.into_iter().map(Some).collect();
    for (file, replaced) in &checked.accepted {
        let Some(file) = &mut kept[*file] else { continue };
        replaced.apply(file);
        reader.add_check(file);
        fixed.updated += 1;
    }
    // First every entry by itself, then duplicates: the first entry of a file may be the removed one.
    for finding in &checked.findings {
        let Some(file) = &mut kept[finding.file] else { continue };
        match (finding.problem, checked.now[finding.file]) {
            (Problem::Missing | Problem::NotRegular, _) => {
                kept[finding.file] = None;
                fixed.removed += 1;
            }
            (Problem::Changed | Problem::Replaced, Some(_)) if file.content.is_some() => {
                match reader.examine_content(file) {
                    Examined::Replaced(replaced) => {
                        replaced.apply(file);
                        reader.add_check(file);
                        fixed.updated += 1;
                    }
                    Examined::Stale | Examined::Missing => {
                        kept[finding.file] = None;
                        fixed.removed += 1;
                    }
                    Examined::Same | Examined::Unknown => {}
                }
            }
            (Problem::Changed | Problem::Replaced, Some(_)) if by_content => {}
            (Problem::Changed | Problem::Replaced, Some(now))
                if file.extents.iter().all(|extent| extent.end_bytes() <= now.size_bytes) =>
            {
                (file.size_bytes, file.mtime_ns, file.inode) = (now.size_bytes, now.mtime_ns, now.inode);
                // Their places on the disk are those of the former content.
                file.extents.iter_mut().for_each(|extent| extent.physical_bytes = None);
                fixed.updated += 1;
            }
            (Problem::Changed | Problem::Replaced, _) => {
                kept[finding.file] = None;
                fixed.removed += 1;
            }
            (Problem::Unknown | Problem::SamePath { .. } | Problem::SameFile { .. }, _) => {}
        }
    }
    let mut joined: BTreeMap<usize, Joined> = BTreeMap::new();
    for finding in &checked.findings {
        let Some((first, _)) = finding.problem.duplicate() else { continue };
        let Some(file) = kept[finding.file].take() else { continue };
        match &mut kept[first] {
            Some(entry) => {
                joined.entry(first).or_insert_with(|| Joined::new(&entry.extents)).add(&file.extents);
                fixed.merged += 1;
            }
            // Its successor is the first one now; a third entry joins that.
            gone => *gone = Some(file),
        }
    }
    for (first, joined) in joined {
        kept[first].iter_mut().for_each(|file| joined.complete(file, profile.recording.runs));
    }
    (Profile { files: kept.into_iter().flatten().collect(), ..profile }, fixed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::lists::check;
    use crate::lists::content::digest;
    use ahead_profile::Extent;
    use ahead_profile::{ContentCheck, Recording};
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::{Path, PathBuf};

    /// Files `a`, `b`, `changed` and `short`, a directory, a hard link to `a`, and links to the tree and out of it.
    pub struct Tree {
        _home: tempfile::TempDir,
        base: PathBuf,
    }

    impl Tree {
        pub fn new() -> Tree {
            Tree::of(tempfile::tempdir().unwrap())
        }

        /// Not in /tmp, which may be in memory: there are no content checks.
        pub fn on_disk() -> Tree {
            Tree::of(tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap())
        }

        fn of(home: tempfile::TempDir) -> Tree {
            let base = fs::canonicalize(home.path()).unwrap();
            for name in ["a", "b", "changed"] {
                fs::write(base.join(name), vec![1; 16384]).unwrap();
            }
            fs::write(base.join("short"), "x").unwrap();
            fs::create_dir(base.join("directory")).unwrap();
            fs::hard_link(base.join("a"), base.join("hard")).unwrap();
            symlink(".", base.join("link")).unwrap();
            symlink("/etc/passwd", base.join("out")).unwrap();
            Tree { _home: home, base }
        }

        pub fn home(&self) -> &Path {
            &self.base
        }

        pub fn path(&self, name: &str) -> Vec<u8> {
            self.base.join(name).as_os_str().as_bytes().to_vec()
        }
    }

    pub fn extent(offset_bytes: u64, length_bytes: u64) -> Extent {
        Extent { offset_bytes, length_bytes, runs: 1, ..Extent::default() }
    }

    /// An entry for a file as it is now.
    pub fn entry(tree: &Tree, name: &str, extents: Vec<Extent>) -> File {
        let now = fs::metadata(tree.base.join(name)).unwrap();
        let mtime_ns = now.mtime() * 1_000_000_000 + now.mtime_nsec();
        File { path: tree.path(name), size_bytes: now.len(), mtime_ns, inode: now.ino(), extents, ..File::default() }
    }

    fn fixed(files: Vec<File>) -> (Vec<File>, Fixed) {
        let recording = Recording { runs: 1, ..Recording::default() };
        let profile = Profile { recording, files, ..Profile::default() };
        let checked = check(&profile, &Root::default(), |_| ());
        let (profile, fixed) = fix(profile, &checked, &Root::default(), false);
        assert_eq!(check(&profile, &Root::default(), |_| ()).findings, [], "a fixed profile has no problem");
        ahead_profile::encode(&profile).expect("a fixed profile can be saved");
        (profile.files, fixed)
    }

    #[test]
    fn changed_file_gets_its_new_size_if_the_extents_are_in_it() {
        let tree = Tree::new();
        let placed = Extent { physical_bytes: Some(1 << 20), ..extent(4096, 4096) };
        let stale = |name: &str| File { size_bytes: 1, mtime_ns: 2, inode: 3, ..entry(&tree, name, vec![placed]) };
        let (files, did) = fixed(vec![stale("changed"), stale("short"), entry(&tree, "a", vec![placed])]);
        let expected = [entry(&tree, "changed", vec![extent(4096, 4096)]), entry(&tree, "a", vec![placed])];
        assert_eq!((files, did), (expected.to_vec(), Fixed { removed: 1, updated: 1, merged: 0 }));
    }

    #[test]
    fn changed_file_with_a_content_check_keeps_what_is_still_there() {
        let tree = Tree::new();
        let stale = |name: &str, digests: [u32; 2]| {
            let extents = vec![extent(4096, 4096), extent(12_288, 4096)];
            let content = Some(Box::new(ContentCheck { layout: 0, pieces: digests.to_vec() }));
            File { mtime_ns: 2, inode: 3, content, ..entry(&tree, name, extents) }
        };
        let page = digest(&[1; 4096]);
        let (files, did) = fixed(vec![stale("changed", [page; 2]), stale("a", [page, 7]), stale("b", [7, 7])]);
        assert_eq!(did, Fixed { removed: 1, updated: 2, merged: 0 });
        let kept: Vec<&[Extent]> = files.iter().map(|file| &file.extents[..]).collect();
        assert_eq!(kept, [&[extent(4096, 4096), extent(12_288, 4096)][..], &[extent(4096, 4096)]]);
        // The next fix knows the content, too. (In /tmp, which may be in memory, files have no check.)
        assert!(files.iter().all(|file| file.mtime_ns == entry(&tree, "a", vec![]).mtime_ns || file.mtime_ns > 2));
    }

    #[test]
    fn missing_entries_are_removed_and_duplicates_merged() {
        let tree = Tree::new();
        let used_at = |time_us, offset, length| Extent { first_use_us: time_us, ..extent(offset, length) };
        let (files, did) = fixed(vec![
            entry(&tree, "a", vec![used_at(20_000, 0, 4096)]),
            File { path: tree.path("none"), ..entry(&tree, "a", vec![extent(0, 1)]) },
            File { path: tree.path("directory"), ..entry(&tree, "a", vec![extent(0, 1)]) },
            entry(&tree, "a", vec![used_at(10_000, 8192, 4096), used_at(30_000, 2048, 4096)]),
            File { path: tree.path("hard"), ..entry(&tree, "a", vec![used_at(40_000, 0, 16384)]) },
            File { deleted: true, ..entry(&tree, "b", vec![extent(0, 1)]) },
        ]);
        let extents = [
            used_at(10_000, 8192, 4096),
            used_at(20_000, 0, 4096),
            used_at(30_000, 4096, 2048),
            used_at(40_000, 6144, 2048),
            used_at(40_000, 12288, 4096),
        ];
        let expected =
            [entry(&tree, "a", extents.to_vec()), File { deleted: true, ..entry(&tree, "b", vec![extent(0, 1)]) }];
        assert_eq!((files, did), (expected.to_vec(), Fixed { removed: 2, updated: 0, merged: 2 }));
    }

    /// The first entry of a file is removed, and two others are left.
    #[test]
    fn duplicates_of_a_removed_entry_stay_as_one() {
        let tree = Tree::new();
        let too_long = File { size_bytes: 1 << 30, ..entry(&tree, "a", vec![extent(1 << 20, 4096)]) };
        let (files, did) = fixed(vec![
            too_long,
            entry(&tree, "a", vec![extent(0, 4096)]),
            entry(&tree, "a", vec![extent(4096, 4096)]),
        ]);
        let expected = [entry(&tree, "a", vec![extent(0, 8192)])];
        assert_eq!((files, did), (expected.to_vec(), Fixed { removed: 1, updated: 0, merged: 1 }));
    }
}
