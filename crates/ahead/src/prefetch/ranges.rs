//! Profiles of files that a caller names: byte ranges, or a list.
//!
//! ```text
//!     List ──┬─ thread 1: find ▸ regular? page cache? ▸ size, time, data, places on disk ┐
//!            ├─ thread 2                                                               ├──▶ Profile, in the order of the list
//!            └─ …        waits for a file system without an answer: given up           ┘    left out: missing, refused, …
//! ```
//!
//! The names are looked up in several threads, because each lookup may wait for a disk. They may lead through symbolic links: the
//! profile has the path of the file itself.

use crate::prefetch::account::{Reason, Skipped};
use crate::prefetch::{Options, Priority};
use crate::{Error, Result};
use ahead_fetch::{Brake, Limit, Stop, WorkerPool};
use ahead_files::lists::{Joined, List, Listed, Ranged, WHOLE};
use ahead_model::{Mount, RangeSet, sorting};
use ahead_profile::learn::split_by_position;
use ahead_profile::{Extent, File, PathBytes, Profile, Recording};
use ahead_sys::locks::IgnorePoison;
use ahead_sys::openat::Handle;
use ahead_sys::root::Root;
use ahead_sys::{fiemap, machine, mounts, priority, sparse};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Threads that look up names. As many requests keep a flash disk busy; a rotating disk sorts them.
const THREADS: usize = 16;

/// The profile of ranges of files, in bytes, in the order in which the files were first named. Ranges are extended to whole pages and cut at
/// the end of their file.
pub fn to_profile(ranges: impl IntoIterator<Item = (PathBuf, Range<u64>)>) -> Result<Profile> {
    let mut by_path: BTreeMap<PathBuf, (usize, RangeSet)> = BTreeMap::new();
    for (path, range) in ranges {
        let order = by_path.len();
        by_path.entry(path).or_insert_with(|| (order, RangeSet::default())).1.insert(range);
    }
    let mut files: Vec<(usize, File)> = Vec::new();
    let (root, table) = (Root::default(), mounts::own()?);
    for (path, (order, wanted)) in by_path {
        let file = file_of(&root, &table, &path, &wanted)
            .map_err(|unusable| Error::Failed(format!("cannot prefetch {}: {}", path.display(), unusable.why)))?;
        files.push((order, file.file));
    }
    sorting::sort_by_key(&mut files, |(order, _)| *order);
    Ok(of_files(files.into_iter().map(|(_, file)| file)))
}

/// A profile of listed files, and the files that it lacks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Resolved {
    /// The profile, with the current sizes, times and places of the files.
    pub profile: Profile,
    /// Files that are not in the profile, by reason; their listed bytes, without those to an unknown end.
    pub left_out: BTreeMap<Reason, Skipped>,
    /// The first files that are not in the profile, by reason: at most 20 for each.
    pub named: BTreeMap<Reason, Vec<PathBytes>>,
    /// Listed bytes in holes of the files, which are not in the profile either.
    pub holes_bytes: u64,
}

/// Maximum number of left out files whose names are kept, by reason: a message of a screen.
const MAX_NAMED: usize = 20;

impl Resolved {
    /// What is left out, as a line for each reason: `left out: 3 files, missing: /a, /b, /c`.
    pub fn left_out_lines(&self) -> Vec<String> {
        let line = |(reason, skipped): (&Reason, &Skipped)| {
            let named = self.named.get(reason).map(Vec::as_slice).unwrap_or_default();
            let names: Vec<String> = named.iter().map(|name| shown(name)).collect();
            let files = if skipped.spans == 1 { "file" } else { "files" };
            let more = match skipped.spans.saturating_sub(named.len() as u64) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("left out: {} {files}, {}: {}{more}", skipped.spans, reason.name(), names.join(", "))
        };
        self.left_out.iter().map(line).collect()
    }
}

/// A path as text: bytes that are not UTF-8 as `\xff`.
fn shown(path: &[u8]) -> String {
    path.utf8_chunks().map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii())).collect()
}

/// Makes a profile of a list, whose paths are below `root`: with the priority, time limit and threads of these options. A file system that does not
/// answer within [`NOT_ANSWERING`] costs its files only, unless the options permit no thread for the others. `cancelled`: is asked all the
/// time; the files that are left then have this reason.
///
/// # Errors
/// The mount table cannot be read.
pub fn resolve(list: List, root: &Root, options: &Options, mut cancelled: impl FnMut() -> bool) -> Result<Resolved> {
    let count = list.files().len();
    let since = options.since.unwrap_or_else(Instant::now);
    let ends = options.deadline.and_then(|deadline| since.checked_add(deadline));
    let brake = Arc::new(Brake::new(Limit::default(), ends, Instant::now()));
    let mut stopped = || {
        if cancelled() {
            brake.stop(Stop::Cancelled);
        }
        brake.look_at_clock();
        brake.stopped().map(|(why, _)| Reason::from(why))
    };
    if let Some(reason) = stopped() {
        return Ok(collect(&list, vec![None; count], reason));
    }
    // The threads that look up names inherit it.
    if options.priority == Priority::Idle
        && let Err(error) = priority::yield_disk()
    {
        tracing::debug!("{error}");
    }
    // One lane for all: it is not known yet on which device a name is. The caller's thread waits for the others.
    let threads = options.threads.map(|threads| threads + 1);
    let pool = Arc::new(WorkerPool::new([None], Instant::now(), THREADS, threads, brake.clone()));
    pool.look_at_limits();
    let (table, answers) = (mounts::own()?, Mutex::new(vec![None; count]));
    let (root, next) = (root.clone(), AtomicUsize::new(0));
    let lookup = Arc::new(Lookup { list, root, table, next, answers });
    let (own, of_pool, helpers) = (lookup.clone(), pool.clone(), pool.most_workers().min(count).saturating_sub(1));
    let work = move |device| {
        let (helper, of_helper) = (own.clone(), of_pool.clone());
        of_pool.help(device, helpers, Arc::new(move |_| helper.work(&of_helper)));
        own.work(&of_pool);
        of_pool.join(device);
    };
    let mut unanswered = None;
    pool.run([0], Arc::new(work), || {
        if !pool.look().is_empty() {
            pool.give_up(0);
            brake.stop(Stop::NotAnswering);
        }
        unanswered = stopped();
        unanswered.is_some()
    });
    pool.end();
    // No thread takes another file: those that wait end with their call.
    let files = std::mem::take(&mut *lookup.answers.lock().ignore_poison());
    match unanswered {
        // Their threads wait for a file system, and may be all that the caller permits.
        Some(reason) if options.threads.is_some() => Ok(collect(&lookup.list, vec![None; count], reason)),
        _ => Ok(collect(&lookup.list, files, unanswered.unwrap_or(Reason::NotAnswering))),
    }
}

/// The files whose lookup has an answer, each once, and the reasons of the others.
fn collect(list: &List, answers: Vec<Option<LookupAnswer>>, unanswered: Reason) -> Resolved {
    let mut resolved = Resolved::default();
    let mut files = ListedFiles::default();
    for (listed, answer) in list.files().iter().zip(answers) {
        let none =
            || vec![LookupOutcome { name: None, bytes: known_bytes(&listed.everything()), result: Err(unanswered) }];
        for LookupOutcome { name, bytes, result } in answer.unwrap_or_else(none) {
            match result {
                Ok(found) => files.add(found),
                Err(reason) => {
                    let skipped = resolved.left_out.entry(reason).or_default();
                    skipped.spans += 1;
                    skipped.bytes = skipped.bytes.saturating_add(bytes);
                    let named = resolved.named.entry(reason).or_default();
                    if named.len() < MAX_NAMED {
                        named.push(name.unwrap_or_else(|| listed.path.clone()));
                    }
                }
            }
        }
    }
    resolved.holes_bytes = files.holes.values().map(RangeSet::count).sum();
    resolved.profile = of_files(files.complete());
    resolved
}

/// The listed bytes of ranges with an end.
fn known_bytes(wanted: &RangeSet) -> u64 {
    let known = wanted.iter().filter(|range| range.end != u64::MAX);
    known.fold(0, |sum, range| sum.saturating_add(range.end - range.start))
}

/// Found files, each once: two names may lead to one file, as with a symbolic link.
#[derive(Default)]
struct ListedFiles {
    files: Vec<File>,
    by_path: HashMap<PathBytes, usize>,
    joined: BTreeMap<usize, Joined>,
    holes: HashMap<usize, RangeSet>,
}

impl ListedFiles {
    fn add(&mut self, found: ListedFile) {
        let ListedFile { file, holes } = found;
        let index = *self.by_path.entry(file.path.clone()).or_insert(self.files.len());
        if !holes.is_empty() {
            let all = self.holes.entry(index).or_default();
            holes.iter().for_each(|hole| all.insert(hole.clone()));
        }
        match self.files.get(index) {
            Some(first) => {
                let first = || Joined::new(&first.extents);
                self.joined.entry(index).or_insert_with(first).add(&file.extents);
            }
            None => self.files.push(file),
        }
    }

    fn complete(mut self) -> Vec<File> {
        for (index, joined) in self.joined {
            joined.complete(&mut self.files[index], 1);
        }
        self.files
    }
}

fn of_files(files: impl IntoIterator<Item = File>) -> Profile {
    let recording = Recording { runs: 1, ..Recording::default() };
    Profile { recording, files: files.into_iter().collect(), ..Profile::default() }
}

/// The work of the threads.
struct Lookup {
    list: List,
    root: Root,
    table: Vec<Mount>,
    /// The index of the next file to look up.
    next: AtomicUsize,
    /// By file; empty after the end.
    answers: Mutex<Vec<Option<LookupAnswer>>>,
}

/// What became of a listed file, and of the files that have the names of its whole entries.
type LookupAnswer = Vec<LookupOutcome>;

/// What became of a file.
#[derive(Clone, Debug)]
struct LookupOutcome {
    /// Its name as listed; `None`: the listed path.
    name: Option<PathBytes>,
    /// Listed bytes, without those to an unknown end.
    bytes: u64,
    /// The file as it is now, or why it cannot be prefetched.
    result: std::result::Result<ListedFile, Reason>,
}

/// A file as it is now.
#[derive(Clone, Debug)]
struct ListedFile {
    /// Its entry, with the data of the wanted ranges.
    file: File,
    /// The wanted ranges that are holes.
    holes: RangeSet,
}

impl Lookup {
    /// Looks up a listed file, and first the names of its whole entries.
    fn answer(&self, pool: &WorkerPool, listed: &Listed) -> LookupAnswer {
        let (mut wanted, mut found) = (listed.wanted.clone(), Vec::new());
        for Ranged { suffix, range } in &listed.ranged {
            let name = [&listed.path[..], suffix].concat();
            // A listed file may have many names.
            pool.see(0);
            match self.root.find(Path::new(OsStr::from_bytes(&name))) {
                Ok(_) => found.push(self.outcome(&name, Some(name.clone()), &[WHOLE].into_iter().collect())),
                Err(_) => wanted.insert(range.clone()),
            }
        }
        if found.is_empty() || !wanted.is_empty() {
            found.insert(0, self.outcome(&listed.path, None, &wanted));
        }
        found
    }

    fn outcome(&self, path: &[u8], name: Option<PathBytes>, wanted: &RangeSet) -> LookupOutcome {
        let result = file_of(&self.root, &self.table, Path::new(OsStr::from_bytes(path)), wanted);
        LookupOutcome { name, bytes: known_bytes(wanted), result: result.map_err(|unusable| unusable.reason) }
    }

    fn work(&self, pool: &WorkerPool) {
        while let Some((index, listed)) = self.next_file()
            && pool.check(0).is_ok()
        {
            let answer = self.answer(pool, listed);
            // After the end there is no place for it.
            let mut answers = self.answers.lock().ignore_poison();
            let Some(place) = answers.get_mut(index) else { return };
            *place = Some(answer);
        }
    }

    fn next_file(&self) -> Option<(usize, &Listed)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        Some((index, self.list.files().get(index)?))
    }
}

/// Why a named file cannot be prefetched.
struct Unusable {
    reason: Reason,
    why: String,
}

impl Unusable {
    fn refused(why: &str) -> Unusable {
        Unusable { reason: Reason::Refused, why: why.into() }
    }
}

impl From<ahead_sys::Error> for Unusable {
    fn from(error: ahead_sys::Error) -> Unusable {
        let (reason, why) = match error.raw_os_error() {
            // EPERM, EACCES.
            Some(1 | 13) => (Reason::NotPermitted, "permission denied".into()),
            // ENFILE, EMFILE.
            Some(23 | 24) => (Reason::TooManyOpen, error.to_string()),
            // ENOENT, ENOTDIR.
            Some(2 | 20) => (Reason::Missing, "there is no such file".into()),
            _ => (Reason::Missing, error.to_string()),
        };
        Unusable { reason, why }
    }
}

/// The entry of a file as it is now, with the data of these ranges as whole pages. `None`: it cannot be prefetched.
pub fn file_as_it_is(root: &Root, table: &[Mount], path: &[u8], wanted: &RangeSet) -> Option<File> {
    file_of(root, table, Path::new(OsStr::from_bytes(path)), wanted).ok().map(|found| found.file)
}

fn file_of(root: &Root, table: &[Mount], path: &Path, wanted: &RangeSet) -> std::result::Result<ListedFile, Unusable> {
    let (handle, real) = root.find(path)?;
    if !handle.is_regular_file() {
        return Err(Unusable::refused("not a regular file"));
    }
    let path = real.as_os_str().as_bytes().to_vec();
    let mount = mounts::covering(table, &root.outer(&path)).map(|index| &table[index]);
    let mount = mount.ok_or_else(|| Unusable::refused("it lies on no mount of this process"))?;
    let now = handle.identity();
    let pages: RangeSet = wanted.iter().cloned().map(whole_pages).collect();
    let wanted: RangeSet = pages.within(&(0..now.size_bytes)).collect();
    let (holes, extents) = data_and_places(&handle, &wanted, now.size_bytes);
    let file = File {
        path,
        fs_type: mount.fs_type.clone(),
        device: mount.device.key(),
        inode: now.inode,
        size_bytes: now.size_bytes,
        mtime_ns: now.mtime_ns,
        extents,
        ..File::default()
    };
    Ok(ListedFile { file, holes })
}

/// The holes of the wanted ranges, and the other parts with their places on the disk, where the file system reports these and this process
/// may read the file. A file without a page cache is not opened; the prefetch refuses it.
fn data_and_places(handle: &Handle, wanted: &RangeSet, size_bytes: u64) -> (RangeSet, Vec<Extent>) {
    let has_pages = handle.file_system().is_ok_and(|kind| kind.has_page_cache());
    let open = if has_pages { handle.reopen().ok() } else { None };
    let holes = open.as_ref().filter(|_| handle.may_have_holes()).map_or_else(RangeSet::new, |open| {
        let found = wanted.iter().map(|range| sparse::holes(open, range.clone()));
        found.fold(RangeSet::new(), |mut holes, found| {
            found.iter().for_each(|hole| holes.insert(hole.clone()));
            holes
        })
    });
    let data = wanted.difference(&holes).map(|range| Extent {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
        runs: 1,
        ..Extent::default()
    });
    let data: Vec<Extent> = data.collect();
    let extents = match open.map(|open| fiemap::extents(open, 0, size_bytes)) {
        Some(Ok(places)) => split_by_position(data, &places),
        _ => data,
    };
    (holes, extents)
}

fn whole_pages(range: Range<u64>) -> Range<u64> {
    let page = machine::page_size();
    range.start / page * page..range.end.checked_next_multiple_of(page).unwrap_or(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_files::lists::{Syntax, parse};
    use std::fs;
    use std::os::unix::fs::{FileExt, symlink};
    use std::time::Duration;

    /// Not in /tmp, which may be in memory.
    fn home() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let base = fs::canonicalize(home.path()).unwrap();
        (home, base)
    }

    fn used(file: &File) -> Vec<(u64, u64)> {
        file.extents.iter().map(|extent| (extent.offset_bytes, extent.length_bytes)).collect()
    }

    #[test]
    fn ranges_become_whole_pages_within_their_file() {
        let (_home, base) = home();
        let (first, second) = (base.join("z"), base.join("a"));
        let page = machine::page_size();
        fs::write(&first, vec![1; 3 * page as usize + 100]).unwrap();
        fs::write(&second, "x").unwrap();
        let ranges = [(first.clone(), page + 1..page + 2), (second, 0..1), (first, 3 * page..u64::MAX)];
        let profile = to_profile(ranges).unwrap();
        assert_eq!(used(&profile.files[0]), [(page, page), (3 * page, 100)]);
        assert!(profile.files[0].path.ends_with(b"/z") && profile.files[1].path.ends_with(b"/a"));
        ahead_profile::encode(&profile).unwrap();
    }

    /// A file of this many pages with data in these pages only. Each range of data is written by itself, as by a disk image.
    fn sparse(path: &Path, pages: u64, data: impl IntoIterator<Item = u64>) {
        let file = fs::File::create(path).unwrap();
        let page = machine::page_size();
        file.set_len(pages * page).unwrap();
        data.into_iter().for_each(|index| file.write_all_at(&vec![1; page as usize], index * page).unwrap());
        // Some file systems know the holes only of what is on the disk.
        file.sync_all().unwrap();
    }

    #[test]
    fn holes_of_sparse_files_are_counted_and_not_listed() {
        let (_home, base) = home();
        let page = machine::page_size();
        sparse(&base.join("core"), 1 << 16, [4096]);
        sparse(&base.join("image"), 4096, (0..4096).step_by(4));
        sparse(&base.join("empty"), 512, []);
        let (root, options) = (Root::at(&base).unwrap(), Options::default());
        let text = format!("/core\n/image\n/empty\nimage:0-{}\n/core:0-{page}", 64 * page);
        let Resolved { profile, holes_bytes, .. } = resolve(list(&text), &root, &options, || false).unwrap();
        let bytes: Vec<u64> = profile.files.iter().map(File::used_bytes).collect();
        assert_eq!(bytes, [page, 1024 * page, 0]);
        assert_eq!(used(&profile.files[0]), [(4096 * page, page)]);
        // Ranges that are listed twice count once.
        assert_eq!(holes_bytes, ((1 << 16) - 1 + 3072 + 512) * page);
        ahead_profile::encode(&profile).unwrap();
    }

    #[test]
    fn paths_that_lead_to_no_regular_file_are_errors() {
        for (path, why) in
            [("/dev/null", "not a regular file"), ("/nonexistent", "there is no such file"), ("/", "not a")]
        {
            let error = to_profile([(PathBuf::from(path), 0..1)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot prefetch {path}: {why}")), "{error}");
        }
    }

    fn list(text: &str) -> List {
        parse(text.as_bytes(), Syntax::default()).unwrap()
    }

    #[test]
    fn listed_files_keep_their_order_and_others_are_counted() {
        let (_home, base) = home();
        let page = machine::page_size();
        for name in ["a", "b", "c"] {
            fs::write(base.join(name), vec![1; 4 * page as usize]).unwrap();
        }
        fs::create_dir(base.join("directory")).unwrap();
        symlink("a", base.join("link")).unwrap();
        let text = format!("/c\n/none:0-4096\n/none2\n/a:0-{page}\n/directory\n/b\nlink:0-{}\n/../x", 2 * page);
        let (root, options) = (Root::at(&base).unwrap(), Options::default());
        let Resolved { profile, left_out, .. } = resolve(list(&text), &root, &options, || false).unwrap();
        let paths: Vec<&[u8]> = profile.files.iter().map(|file| &file.path[..]).collect();
        assert_eq!(paths, [&b"/c"[..], b"/a", b"/b"]);
        assert_eq!(profile.files[1].used_bytes(), 2 * page);
        assert_eq!(left_out[&Reason::Missing], Skipped { spans: 3, bytes: 4096 });
        assert_eq!((left_out[&Reason::Refused].spans, left_out.len()), (1, 2));
        ahead_profile::encode(&profile).unwrap();
        // Without a root directory the same paths lead elsewhere.
        let outside = resolve(list(&text), &Root::default(), &Options::default(), || false).unwrap();
        assert!(outside.profile.files.is_empty() && outside.left_out[&Reason::Missing].spans >= 7);
    }

    #[test]
    fn existing_file_wins_over_a_range_and_what_is_left_out_is_named() {
        let (_home, base) = home();
        let page = machine::page_size();
        for name in ["x", "x:0-4K", "y:0-4K", "z", "z:1M-"] {
            fs::write(base.join(name), vec![1; 4 * page as usize]).unwrap();
        }
        fs::create_dir(base.join("z:0-1")).unwrap();
        let (root, options) = (Root::at(&base).unwrap(), Options::default());
        let text = format!("/x:0-4K\n/y:0-4K\n/x/:0-{page}\n/z:0-{page}\n/z:1M-\n/z:0-1\n/none:0-4K\n/none2\n");
        let resolved = resolve(list(&text), &root, &options, || false).unwrap();
        let found: Vec<(&[u8], u64)> =
            resolved.profile.files.iter().map(|file| (&file.path[..], file.used_bytes())).collect();
        let expected =
            [(&b"/x"[..], page), (b"/x:0-4K", 4 * page), (b"/y:0-4K", 4 * page), (b"/z", page), (b"/z:1M-", 4 * page)];
        assert_eq!(found, expected);
        let lines = ["left out: 2 files, missing: /none, /none2", "left out: 1 file, not a plain file: /z:0-1"];
        assert_eq!(resolved.left_out_lines(), lines);
        assert_eq!(resolved.left_out[&Reason::Missing].bytes, 4096);
        let many: Vec<u8> = (0..100).flat_map(|index| format!("/none{index}\n").into_bytes()).collect();
        let many = parse(&[b"/\xff\n", &many[..]].concat(), Syntax::default()).unwrap();
        let lines = resolve(many, &root, &options, || false).unwrap().left_out_lines();
        assert!(lines[0].starts_with("left out: 101 files, missing: /\\xff, /none0, "), "{lines:?}");
        assert!(lines[0].ends_with("/none18 and 81 more"), "{lines:?}");
    }

    #[test]
    fn stop_leaves_the_remaining_files_out() {
        let listed = || list("/etc/passwd:0-10\n/none");
        let stopped = resolve(listed(), &Root::default(), &Options::default(), || true).unwrap();
        assert_eq!(stopped.left_out, BTreeMap::from([(Reason::Cancelled, Skipped { spans: 2, bytes: 10 })]));
        // Stopped while threads look names up: each file has an answer, or the reason of the stop.
        let mut asked = 0;
        let stop = || {
            asked += 1;
            asked > 1
        };
        let Resolved { profile, left_out, .. } =
            resolve(listed(), &Root::default(), &Options::default(), stop).unwrap();
        let spans: u64 = left_out.values().map(|skipped| skipped.spans).sum();
        assert_eq!(profile.files.len() as u64 + spans, 2);
        let late = Options { deadline: Some(Duration::ZERO), ..Options::default() };
        assert_eq!(resolve(listed(), &Root::default(), &late, || false).unwrap().left_out[&Reason::Deadline].spans, 2);
    }

    #[test]
    fn one_thread_looks_up_what_many_do() {
        let text = "/etc/passwd:0-10\n/etc\n/none\n/etc/group";
        let two = Options { threads: Some(2), ..Options::default() };
        let [few, many] =
            [two, Options::default()].map(|options| resolve(list(text), &Root::default(), &options, || false).unwrap());
        assert_eq!((few.profile, few.left_out), (many.profile, many.left_out));
    }

    #[test]
    fn empty_list_is_an_empty_profile() {
        let resolved = resolve(List::default(), &Root::default(), &Options::default(), || false).unwrap();
        assert!(resolved.profile.files.is_empty() && resolved.left_out.is_empty());
    }
}
