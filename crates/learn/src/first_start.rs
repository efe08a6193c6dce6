//! Signs of a program's first start: files that it created, and that its next start may read instead of what this one has read.
//!
//! ```text
//!     looked up ──▶ is it there now, and created in this run? ──▶ did it exist before? ──▶ neither temporary nor the result of the work?
//!                         (time of creation)                       no: the lookup failed,
//!                                                                  or the file is not younger than the lookup
//! ```
//!
//! Caches, settings and compiled files are such files. A file that replaced an older one is none, and neither are logs and results that
//! are written where the command was started, or to a path that is one of its arguments.

use crate::filesystem::FileSystem;
use crate::lookups::{is_on_device, whole_path};
use crate::observation::{LookupSeen, Observation};
use crate::profile::span_of;
use crate::resolve::{CLOCK_TICK, Resolver, as_path};
use crate::run::{Host, Run};
use ahead_profile::PathBytes;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

/// Directories whose files are temporary.
const TEMPORARY: [&[u8]; 4] = [b"/tmp/", b"/var/tmp/", b"/run/", b"/dev/"];

/// The files that the run created and that a later start may read, in order of their first lookup. Empty without lookups (a warm
/// recording, or one without BPF).
pub fn created_files(filesystem: &dyn FileSystem, host: &Host, observed: &Observation, run: &Run) -> Vec<PathBytes> {
    let resolver = Resolver::new(filesystem, observed, &host.mounts, run.started);
    let span = span_of(run, host.now_ns);
    let results = Results::of(filesystem, run);
    let mut directories: HashMap<u32, Option<PathBytes>> = HashMap::new();
    let mut known = HashSet::new();
    let mut created = Vec::new();
    for seen in observed.lookups.iter().filter(|seen| seen.time_ns <= run.ended_ns && !seen.listed) {
        let base = directories.entry(seen.base).or_insert_with(|| resolver.directory(seen.base));
        let Some(path) = base.as_ref().and_then(|base| whole_path(filesystem, base, &seen.path)) else { continue };
        if results.contain(&path) || !is_on_device(&host.mounts, &path) {
            continue;
        }
        let stat = filesystem.lstat(as_path(&path)).filter(|stat| stat.is_file && stat.size_bytes > 0);
        let Some(made) = stat.and_then(|stat| stat.created).filter(|made| span.contains(made)) else { continue };
        if (seen.failed || made <= looked_up(run, seen) + CLOCK_TICK) && known.insert(path.clone()) {
            created.push(path);
        }
    }
    created
}

fn looked_up(run: &Run, seen: &LookupSeen) -> SystemTime {
    run.started + Duration::from_nanos(seen.time_ns.saturating_sub(run.started_ns))
}

/// The paths that count as temporary, or as the result of the program's work.
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
        TEMPORARY.iter().any(|directory| path.starts_with(directory))
            || self.arguments.contains(path)
            || below.is_some_and(|below| !is_cache(below))
    }
}

fn base_of<'a>(word: &[u8], directory: &'a [u8]) -> &'a [u8] {
    if word.starts_with(b"/") { b"/" } else { directory }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::FileSeen;
    use crate::testing::{TableFileSystem, long_ago};
    use ahead_model::{DeviceNumber, Mount};
    use std::collections::BTreeMap;

    const SECOND_NS: u64 = 1_000_000_000;

    fn run(started: SystemTime) -> Run {
        Run {
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
        }
    }

    /// What counts as created, of files with the second of their creation (negative: before the run), looked up in second 2.
    fn created(files: &[(&str, i64)], failed: bool) -> Vec<String> {
        let started = SystemTime::now();
        let list: Vec<(&str, u64, u64)> = files.iter().map(|(path, _)| (*path, 7, 100)).collect();
        let mut filesystem = TableFileSystem::of(&list);
        filesystem.files.extend(TableFileSystem::of(&[("/", 2, 4096)]).files);
        for (path, second) in files {
            let at = if *second < 0 { long_ago() } else { started + Duration::from_secs(*second as u64) };
            filesystem.files.get_mut(as_path(path.as_bytes())).unwrap().created = Some(at);
        }
        let root = FileSeen {
            id: 1,
            mode: 0o040_755,
            device: 8 << 20 | 1,
            inode: 2,
            path: b"/".to_vec(),
            ..FileSeen::default()
        };
        let lookup = |(path, _): &(&str, i64)| LookupSeen {
            time_ns: 2 * SECOND_NS,
            tgid: 1,
            tid: 1,
            cpu_ns: 0,
            base: 1,
            failed,
            listed: false,
            path: path.as_bytes().to_vec(),
        };
        let observed = Observation {
            lookups: files.iter().chain(files).map(lookup).collect(),
            files: BTreeMap::from([(1, root)]),
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
        let found = created_files(&filesystem, &host, &observed, &run(started));
        found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
    }

    #[test]
    fn new_files_are_those_that_a_lookup_missed_or_made() {
        let files = [("/home/u/.cache/new", 1), ("/home/u/.cache/later", 5), ("/home/u/.cache/old", -1)];
        assert_eq!(created(&files, true), ["/home/u/.cache/new", "/home/u/.cache/later"]);
        // The lookup in second 2 found a file that was replaced in second 5.
        assert_eq!(created(&files, false), ["/home/u/.cache/new"]);
    }

    #[test]
    fn temporary_files_and_results_are_no_sign() {
        let files =
            ["/tmp/x", "/run/x", "/project/a.out", "/home/u/named", "/project/.cache/x", "/project/m/__pycache__/x"];
        let files = files.map(|path| (path, 1));
        assert_eq!(created(&files, true), ["/project/.cache/x", "/project/m/__pycache__/x"]);
    }
}
