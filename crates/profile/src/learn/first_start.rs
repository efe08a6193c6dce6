//! Signs of a program's first start: files that it wrote, and that its next start reads instead of what this one has read.
//!
//! ```text
//!     a lookup failed ──▶ a file is there now, created in this run ──▶ not temporary ──┐
//!     it was read     ──▶ another file has its name, created in this run ──────────────┼──▶ not the result of the work ──▶ a sign
//!     it was read     ──▶ it was modified in this run ─────────────────────────────────┘
//! ```
//!
//! Caches, settings, compiled files and indexes are such files. A log is none: it is written, and not read. A file with a new name at each
//! start is none: no later start asks for it. Results are written where the command was started, or to a path that is one of its arguments.

use crate::PathBytes;
use crate::learn::filesystem::{FileSystem, S_IFMT, S_IFREG, Stat};
use crate::learn::lookups::{is_on_device, whole_path};
use crate::learn::observation::{AccessKind, FileSeen, Observation};
use crate::learn::profile::span_of;
use crate::learn::resolve::{Resolver, as_path};
use crate::learn::run::{Host, Run};
use ahead_model::sorting;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::SystemTime;

/// Permission to create files for every user, who can remove only their own: a directory for temporary files.
const S_SHARED: u32 = 0o1002;

/// The files that the run wrote and that a later start reads, in order of the first time that it asked for them. Without lookups (a warm
/// recording, or one without BPF) created files are missing.
pub fn written_files(filesystem: &dyn FileSystem, host: &Host, observed: &Observation, run: &Run) -> Vec<PathBytes> {
    let resolver = Resolver::new(filesystem, observed, &host.mounts, run.started);
    let signs = Signs { filesystem, observed, run, resolver, span: span_of(run, host.now_ns) };
    let results = Results::of(filesystem, run);
    let mut written = signs.created();
    written.extend(signs.rewritten());
    sorting::sort_by_key(&mut written, |(time_ns, _)| *time_ns);
    let mut known = HashSet::new();
    let is_sign = |path: &PathBytes| !results.contain(path) && is_on_device(&host.mounts, path);
    written.into_iter().map(|(_, path)| path).filter(|path| is_sign(path) && known.insert(path.clone())).collect()
}

/// Looks for files that the run wrote.
struct Signs<'a> {
    filesystem: &'a dyn FileSystem,
    observed: &'a Observation,
    run: &'a Run,
    resolver: Resolver<'a>,
    /// Times of files that the run wrote.
    span: RangeInclusive<SystemTime>,
}

impl Signs<'_> {
    /// Files that were created after a lookup had failed, with the time of that.
    fn created(&self) -> Vec<(u64, PathBytes)> {
        let mut directories: HashMap<u32, Option<PathBytes>> = HashMap::new();
        let failed = self.observed.lookups.iter().filter(|seen| seen.failed && seen.time_ns <= self.run.ended_ns);
        let path = failed.filter_map(|seen| {
            let base = directories.entry(seen.base).or_insert_with(|| self.resolver.directory(seen.base));
            let path = whole_path(self.filesystem, base.as_ref()?, &seen.path)?;
            let stat = self.filesystem.lstat(as_path(&path)).filter(has_data)?;
            // Where the file system has no time of creation, a file that was not there is new when its content is.
            let is_new = self.is_now(stat.created.or(stat.modified)) && !self.is_temporary(as_path(&path));
            is_new.then_some((seen.time_ns, path))
        });
        path.collect()
    }

    /// Files that were read, and that were then replaced or modified, with the time of the first read.
    fn rewritten(&self) -> Vec<(u64, PathBytes)> {
        // Pages around a fault: where faults themselves are not seen, they stand for one.
        let is_read = |kind| kind != AccessKind::Added;
        let mut read: HashSet<u32> = HashSet::new();
        let first = self.observed.accesses.iter().filter(|access| access.time_ns <= self.run.ended_ns);
        let first = first.filter(|access| is_read(access.kind) && read.insert(access.file));
        let path = first.filter_map(|access| {
            let seen = self.observed.files.get(&access.file).filter(|seen| seen.mode & S_IFMT == S_IFREG)?;
            Some((access.time_ns, self.replaced(seen).or_else(|| self.modified(seen))?))
        });
        path.collect()
    }

    /// The path of a file, if another has it now that the run created.
    fn replaced(&self, seen: &FileSeen) -> Option<PathBytes> {
        let (path, stat) = self.resolver.successor(seen)?;
        (has_data(&stat) && self.is_now(stat.created)).then_some(path)
    }

    /// The path of a file, if it is older than the run, which modified it.
    fn modified(&self, seen: &FileSeen) -> Option<PathBytes> {
        let place = self.resolver.place(seen)?;
        let stat = place.stat.filter(has_data)?;
        (self.is_now(stat.modified) && !self.is_now(stat.created)).then_some(place.path)
    }

    fn is_now(&self, time: Option<SystemTime>) -> bool {
        time.is_some_and(|time| self.span.contains(&time))
    }

    /// Whether a path lies in a directory for temporary files, below a name that this run created there.
    fn is_temporary(&self, path: &Path) -> bool {
        path.ancestors().any(|entry| {
            let directory = entry.parent().and_then(|directory| self.filesystem.lstat(directory));
            directory.is_some_and(|stat| stat.mode & S_SHARED == S_SHARED)
                && self.filesystem.lstat(entry).is_some_and(|stat| self.is_now(stat.created.or(stat.modified)))
        })
    }
}

fn has_data(stat: &Stat) -> bool {
    stat.is_file() && stat.size_bytes > 0
}

/// The paths that count as the result of the program's work.
struct Results {
    /// With a slash at its end; `None`: it is the root directory, and everything lies below it.
    directory: Option<PathBytes>,
    arguments: HashSet<PathBytes>,
}

impl Results {
    fn of(filesystem: &dyn FileSystem, run: &Run) -> Results {
        let arguments =
            run.command.iter().filter_map(|word| whole_path(filesystem, base_of(word, &run.directory), word));
        let directory = [&run.directory[..], b"/"].concat();
        Results { directory: (run.directory != b"/").then_some(directory), arguments: arguments.collect() }
    }

    fn contain(&self, path: &[u8]) -> bool {
        let below = self.directory.as_deref().and_then(|directory| path.strip_prefix(directory));
        // A cache beside the work: `.cache`, `__pycache__`.
        let is_cache = |path: &[u8]| {
            path.split(|byte| *byte == b'/').any(|name| name.starts_with(b".") || name.starts_with(b"__"))
        };
        self.arguments.contains(path) || below.is_some_and(|below| !is_cache(below))
    }
}

fn base_of<'a>(word: &[u8], directory: &'a [u8]) -> &'a [u8] {
    if word.starts_with(b"/") { b"/" } else { directory }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::observation::{Access, LookupSeen};
    use crate::learn::testing::{TableFileSystem, long_ago};
    use ahead_model::{DeviceNumber, Mount};
    use std::time::Duration;

    const SECOND_NS: u64 = 1_000_000_000;
    /// The root directory: the base of all lookups.
    const ROOT: u32 = 1;

    /// A file after the run. Times are seconds of the run; negative: before it.
    struct Now {
        path: &'static str,
        created_s: i64,
        modified_s: i64,
        inode: u64,
        mode: u32,
    }

    /// A file that was created in this second.
    fn made(path: &'static str, second: i64) -> Now {
        Now { path, created_s: second, modified_s: second, inode: 7, mode: S_IFREG | 0o644 }
    }

    fn directory(path: &'static str, created_s: i64, mode: u32) -> Now {
        Now { mode: 0o040_000 | mode, ..made(path, created_s) }
    }

    /// A run of 9 seconds with failed lookups in second 2, and inodes that were read in second 3.
    fn written(now: &[Now], failed: &[&str], read: &[(&str, u64)]) -> Vec<String> {
        let started = SystemTime::now();
        let at = |second: i64| Some(if second < 0 { long_ago() } else { started + Duration::from_secs(second as u64) });
        let mut filesystem = TableFileSystem::of(&[("/", 2, 4096)]);
        for now in now {
            let mut stat = *TableFileSystem::of(&[(now.path, now.inode, 100)]).files.values().next().unwrap();
            (stat.created, stat.modified, stat.mode) = (at(now.created_s), at(now.modified_s), now.mode);
            filesystem.files.insert(now.path.into(), stat);
        }
        let seen = |(id, path, inode, mode): (u32, &str, u64, u32)| {
            let seen = FileSeen { id, mode, inode, device: 8 << 20 | 1, path: path.into(), ..FileSeen::default() };
            (id, seen)
        };
        let lookup = |path: &&str| LookupSeen {
            time_ns: 2 * SECOND_NS,
            tgid: 1,
            tid: 1,
            cpu_ns: 0,
            base: ROOT,
            failed: true,
            listed: false,
            path: path.as_bytes().to_vec(),
        };
        let access = |file| Access {
            time_ns: 3 * SECOND_NS,
            tgid: 1,
            tid: 1,
            file,
            pages: 0..1,
            kind: AccessKind::Read,
            cpu_ns: 0,
        };
        let read: Vec<_> = (ROOT + 1..).zip(read).map(|(id, (path, inode))| (id, *path, *inode, S_IFREG)).collect();
        let observed = Observation {
            lookups: failed.iter().chain(failed).map(lookup).collect(),
            accesses: read.iter().map(|(id, ..)| access(*id)).collect(),
            files: read.iter().copied().chain([(ROOT, "/", 2, 0o040_755)]).map(seen).collect(),
            ..Observation::default()
        };
        let mount = Mount {
            device: DeviceNumber::new(8, 1),
            root: b"/".to_vec(),
            mount_point: b"/".to_vec(),
            fs_type: "ext4".into(),
            ..Mount::default()
        };
        let host = Host { mounts: vec![mount], now_ns: 20 * SECOND_NS, ..Host::default() };
        let run = Run {
            command: vec![b"/bin/p".to_vec(), b"/home/u/named".to_vec()],
            directory: b"/project".to_vec(),
            started_ns: 0,
            ended_ns: 9 * SECOND_NS,
            ready_ns: None,
            started,
            cpu: Duration::ZERO,
            cold: true,
            precise: true,
            read_ahead_off: true,
            mapped_folio_pages: 512,
            single_faults: false,
        };
        let found = written_files(&filesystem, &host, &observed, &run);
        found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    /// Regression: a file with a new name at each start had the program recorded twice each time.
    #[test]
    fn file_that_was_looked_for_before_it_was_created_is_a_sign() {
        let now = [made("/home/u/.cache/new", 5), made("/home/u/.cache/tmp-x7Tq", 5), made("/home/u/.cache/old", -1)];
        assert_eq!(written(&now, &["/home/u/.cache/new", "/home/u/.cache/old"], &[]), ["/home/u/.cache/new"]);
    }

    /// Regression: the first `git status` in a clone refreshes the index. It reads every file for that, and was recorded once.
    #[test]
    fn file_that_was_read_and_replaced_is_a_sign() {
        let now = [made("/home/u/.git/index", 4), Now { inode: 8, ..made("/home/u/.git/HEAD", -1) }];
        assert_eq!(written(&now, &[], &[("/home/u/.git/index", 6), ("/home/u/.git/HEAD", 8)]), ["/home/u/.git/index"]);
        // It was created by the run itself, and read then.
        assert!(written(&[made("/home/u/new", 4)], &[], &[("/home/u/new", 7)]).is_empty());
    }

    #[test]
    fn file_that_was_read_and_modified_in_place_is_a_sign() {
        let rewritten = |path| Now { modified_s: 4, ..made(path, -1) };
        let now = [rewritten("/home/u/.cache/index"), Now { inode: 8, ..rewritten("/home/u/log") }];
        assert_eq!(written(&now, &[], &[("/home/u/.cache/index", 7)]), ["/home/u/.cache/index"]);
    }

    #[test]
    fn results_are_no_sign() {
        let paths = ["/project/a.out", "/home/u/named", "/project/.cache/x", "/project/m/__pycache__/x"];
        let now: Vec<Now> = paths.into_iter().map(|path| made(path, 5)).collect();
        assert_eq!(written(&now, &paths, &[]), ["/project/.cache/x", "/project/m/__pycache__/x"]);
    }

    /// Regression: every file below `/tmp` was temporary, also in a directory that was there before, or on a file system mounted there.
    #[test]
    fn temporary_is_what_the_run_created_in_a_directory_for_temporary_files() {
        let shared = || directory("/tmp", -1, 0o1777);
        let now = [
            shared(),
            directory("/tmp/clone", -1, 0o755),
            directory("/tmp/job", 5, 0o755),
            made("/tmp/clone/.cache/x", 5),
            made("/tmp/job/x", 5),
            made("/tmp/x", 5),
        ];
        let looked_for = ["/tmp/clone/.cache/x", "/tmp/job/x", "/tmp/x"];
        assert_eq!(written(&now, &looked_for, &[]), ["/tmp/clone/.cache/x"]);
        // Its name is the same at the next start: the run has read it before it wrote it.
        let now = [shared(), Now { modified_s: 4, ..made("/tmp/cache", -1) }];
        assert_eq!(written(&now, &[], &[("/tmp/cache", 7)]), ["/tmp/cache"]);
    }
}
