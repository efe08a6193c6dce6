//! The files that a template names now.
//!
//! Directories are listed from their handles, only on disks, and no symbolic link below a pattern's base is followed: a link in a tree
//! that another user owns leads nowhere. Each directory is listed once for each pattern.

use super::pattern::{Pattern, Positions};
use super::{List, ListError, Template};
use ahead_profile::{MAX_PATH_BYTES, PathBytes};
use ahead_sys::openat::EntryKind;
use ahead_sys::root::Root;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum number of directory entries that a template may list: as many as a recording searches for renamed files.
const MAX_ENTRIES: usize = 4 << 20;

/// The result of an expansion.
#[derive(Clone, Debug, Default)]
pub struct Expanded {
    /// The files, in the order of the patterns, and by path within each.
    pub list: List,
    /// Lines of patterns that match no file.
    pub unmatched: Vec<u64>,
    /// Directories that could not be listed.
    pub unreadable: u64,
}

/// Finds the files of a template below a root directory. `progress`: is called with the number of entries listed so far.
///
/// Errors: more files than a profile may have, or more directory entries than are listed.
pub fn expand(template: &Template, root: &Root, mut progress: impl FnMut(usize)) -> Result<Expanded, ListError> {
    let mut walk = Walk { root, expanded: Expanded::default(), listed: 0 };
    for (line, pattern, range) in &template.lines {
        let failed = |reason| ListError::new(format!("line {line}"), reason);
        let before = walk.expanded.list.ranges;
        walk.add_matches(pattern, range, &mut progress).map_err(failed)?;
        if walk.expanded.list.ranges == before {
            walk.expanded.unmatched.push(*line);
        }
    }
    Ok(walk.expanded)
}

struct Walk<'a> {
    root: &'a Root,
    expanded: Expanded,
    listed: usize,
}

impl Walk<'_> {
    fn add_matches(
        &mut self,
        pattern: &Pattern,
        range: &Range<u64>,
        progress: &mut impl FnMut(usize),
    ) -> Result<(), String> {
        if pattern.is_literal() {
            // A missing file is counted when the list is used, as that of a plain list.
            return self.expanded.list.add(pattern.base(), range.clone());
        }
        // The user has named the base: links in it are followed. Those below may belong to anybody's program.
        let Ok((_, base)) = self.root.find(as_path(pattern.base())) else { return Ok(()) };
        let mut left: Vec<(PathBytes, Positions)> = vec![(base.as_os_str().as_bytes().to_vec(), pattern.start())];
        while let Some((directory, at)) = left.pop() {
            progress(self.listed);
            let mut inner = Vec::new();
            for (name, kind) in self.entries(&directory)? {
                let after = pattern.step(at, &name);
                let path = [directory.strip_suffix(b"/").unwrap_or(&directory), b"/", &name].concat();
                if path.len() > MAX_PATH_BYTES {
                    continue;
                }
                match kind {
                    EntryKind::File if pattern.is_match(after) => self.expanded.list.add(&path, range.clone())?,
                    EntryKind::Directory if pattern.goes_on(after) => inner.push((path, after)),
                    _ => {}
                }
            }
            // The last one is taken first: files of a directory come before those of directories in it, each by name.
            left.extend(inner.into_iter().rev());
        }
        Ok(())
    }

    /// The entries of a directory by name; none if it cannot be listed.
    fn entries(&mut self, directory: &[u8]) -> Result<Vec<(PathBytes, EntryKind)>, String> {
        let left = MAX_ENTRIES - self.listed;
        // A directory that another process replaces by a link in the meantime leads nowhere, or elsewhere below the root.
        let listed = self.root.handle(as_path(directory)).and_then(|handle| handle.entries(left));
        let Ok(entries) = listed else {
            self.expanded.unreadable += 1;
            return Ok(Vec::new());
        };
        self.listed += entries.len();
        if entries.len() == left {
            return Err(format!("more than {MAX_ENTRIES} entries of directories: name a smaller directory"));
        }
        let known = |(name, kind): (std::ffi::OsString, EntryKind)| {
            let name = name.as_bytes().to_vec();
            let kind = if kind == EntryKind::Unknown { self.kind(directory, &name) } else { kind };
            (name, kind)
        };
        // A tenth of the code of a sort.
        Ok(entries.into_iter().map(known).collect::<BinaryHeap<_>>().into_sorted_vec())
    }

    /// The kind of an entry on a file system that does not store kinds in directories.
    fn kind(&self, directory: &[u8], name: &[u8]) -> EntryKind {
        match self.root.handle(as_path(&[directory, b"/", name].concat())) {
            Ok(handle) if handle.is_regular_file() => EntryKind::File,
            Ok(handle) if handle.is_directory() => EntryKind::Directory,
            _ => EntryKind::Other,
        }
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::parse_template;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn tree() -> (tempfile::TempDir, PathBuf) {
        // Not in /tmp, which may be in memory: only directories on disks are listed.
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let base = fs::canonicalize(home.path()).unwrap();
        for directory in ["usr/lib/a/b", "usr/lib/c", "srv"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["usr/lib/x.so", "usr/lib/y.so", "usr/lib/z", "usr/lib/a/x.so", "usr/lib/a/b/x.so", "srv/x.so"] {
            fs::write(base.join(file), "x").unwrap();
        }
        symlink("../../../srv", base.join("usr/lib/c/link")).unwrap();
        symlink("usr/lib", base.join("lib")).unwrap();
        (home, base)
    }

    fn expanded(text: &str, root: &Root) -> Result<Expanded, ListError> {
        expand(&parse_template(text.as_bytes()).unwrap(), root, |_| ())
    }

    fn paths(expanded: &Expanded) -> Vec<&str> {
        expanded.list.files().iter().map(|file| str::from_utf8(&file.path).unwrap()).collect()
    }

    #[test]
    fn files_come_by_pattern_and_path_and_links_are_not_followed() {
        let (_home, base) = tree();
        let root = Root::at(&base).unwrap();
        let all = ["/usr/lib/x.so", "/usr/lib/y.so", "/usr/lib/z", "/usr/lib/a/x.so", "/usr/lib/a/b/x.so"];
        assert_eq!(paths(&expanded("/usr/lib/**", &root).unwrap()), all);
        assert_eq!(paths(&expanded("/usr/lib/**/x.so", &root).unwrap()), [all[0], all[3], all[4]]);
        assert_eq!(paths(&expanded("/usr/*/[!x].so\n# comment\n/lib/a/*\n", &root).unwrap()), [all[1], all[3]]);
        let found = expanded("/none/*\n/srv/x.so\n/usr/*.so\n/missing", &root).unwrap();
        assert_eq!((paths(&found), &found.unmatched[..]), (vec!["/srv/x.so", "/missing"], &[1, 3][..]));
    }

    #[test]
    fn ranges_belong_to_every_file_of_a_pattern() {
        let (_home, base) = tree();
        let found = expanded("/usr/lib/*.so:0-4K\n/usr/lib/x.so:8K-12K", &Root::at(&base).unwrap()).unwrap();
        let ranges: Vec<Vec<Range<u64>>> =
            found.list.files().iter().map(|file| file.wanted.iter().cloned().collect()).collect();
        assert_eq!(ranges, [vec![0..4096, 8192..12288], vec![0..4096]]);
    }

    #[test]
    fn directories_in_memory_are_not_listed() {
        let found = expanded("/proc/*", &Root::default()).unwrap();
        assert_eq!((found.list.files().len(), found.unreadable, &found.unmatched[..]), (0, 1, &[1][..]));
    }
}
