//! Profiles of files that a caller names: byte ranges, or a list.
//!
//! ```text
//!     List ──┬─ thread 1: find ▸ regular? page cache? ▸ size, time, places on the disk ─┐
//!            ├─ thread 2                                                               ├──▶ Profile, in the order of the list
//!            └─ …        waits for a file system without an answer: given up           ┘    left out: missing, refused, …
//! ```
//!
//! The names are looked up in several threads, because each lookup may wait for a disk. They may lead through symbolic links: the
//! profile has the path of the file itself.

use crate::lists::{Joined, List};
use crate::prefetch::account::{Reason, Skipped};
use crate::prefetch::pool::NOT_ANSWERING;
use crate::prefetch::{Options, Priority};
use crate::{Error, Result};
use ahead_learn::split_by_position;
use ahead_model::{Mount, RangeSet, sorting};
use ahead_profile::{Extent, File, PathBytes, Profile, Recording};
use ahead_sys::openat::Handle;
use ahead_sys::root::Root;
use ahead_sys::{fiemap, machine, mounts, openat, priority};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that look up names. As many requests keep a flash disk busy; a rotating disk sorts them.
const THREADS: usize = 16;

/// Interval at which a stop is noticed.
const INTERVAL: Duration = Duration::from_millis(50);

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
        files.push((order, file));
    }
    sorting::sort_by_key(&mut files, |(order, _)| *order);
    Ok(of_files(files.into_iter().map(|(_, file)| file)))
}

/// A profile of listed files, and the files that it lacks.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The profile, with the current sizes, times and places of the files.
    pub profile: Profile,
    /// Files that are not in the profile, by reason; their listed bytes, without those to an unknown end.
    pub left_out: BTreeMap<Reason, Skipped>,
}

/// Makes a profile of a list: with the root directory, priority, time limit and threads of these options. A file system that does not
/// answer within [`NOT_ANSWERING`] costs its files only, unless the options permit no thread for the others. `cancelled`: is asked all the
/// time; the files that are left then have this reason.
///
/// # Errors
/// The mount table cannot be read.
pub fn resolve(list: List, options: &Options, mut cancelled: impl FnMut() -> bool) -> Result<Resolved> {
    let count = list.files().len();
    let since = options.since.unwrap_or_else(Instant::now);
    let ends = options.deadline.and_then(|deadline| since.checked_add(deadline));
    let mut stopped = || match ends {
        _ if cancelled() => Some(Reason::Cancelled),
        Some(ends) if Instant::now() >= ends => Some(Reason::Deadline),
        _ => None,
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
    let answers = Answers { next: 0, left: count, files: vec![None; count] };
    let (table, answers) = (mounts::own()?, Mutex::new(answers));
    let lookup = Arc::new(Lookup { list, root: options.root.clone(), table, answers, answered: Condvar::new() });
    // The caller's thread waits for the others.
    let most = options.threads.map_or(THREADS, |threads| threads.saturating_sub(1).clamp(1, THREADS));
    let start = |_| {
        let own = lookup.clone();
        std::thread::Builder::new().name("ahead-lookup".into()).spawn(move || own.work()).ok()
    };
    let threads: Vec<JoinHandle<()>> = (0..most.min(count)).filter_map(start).collect();
    if threads.is_empty() {
        lookup.work();
    }
    let unanswered = lookup.wait(stopped);
    let files = {
        let mut answers = lookup.lock();
        // No thread takes another file: those that wait end with their call.
        answers.next = count;
        std::mem::take(&mut answers.files)
    };
    match unanswered {
        // With the answers all threads are over, except for their last instructions.
        None => threads.into_iter().for_each(|thread| drop(thread.join())),
        // Their threads wait for a file system, and may be all that the caller permits.
        Some(reason) if options.threads.is_some() => return Ok(collect(&lookup.list, vec![None; count], reason)),
        Some(_) => {}
    }
    Ok(collect(&lookup.list, files, unanswered.unwrap_or(Reason::NotAnswering)))
}

/// The files whose lookup has an answer, each once, and the reasons of the others.
fn collect(list: &List, answers: Vec<Option<Answer>>, unanswered: Reason) -> Resolved {
    let mut left_out: BTreeMap<Reason, Skipped> = BTreeMap::new();
    let (mut files, mut by_path): (Vec<File>, HashMap<PathBytes, usize>) = Default::default();
    let mut joined: BTreeMap<usize, Joined> = BTreeMap::new();
    for (listed, answer) in list.files().iter().zip(answers) {
        match answer.unwrap_or(Err(unanswered)) {
            Ok(file) => match by_path.get(&file.path) {
                // Two names of one file, as with a symbolic link.
                Some(index) => {
                    let first = || Joined::new(&files[*index].extents);
                    joined.entry(*index).or_insert_with(first).add(&file.extents);
                }
                None => {
                    by_path.insert(file.path.clone(), files.len());
                    files.push(file);
                }
            },
            Err(reason) => {
                let skipped = left_out.entry(reason).or_default();
                skipped.spans += 1;
                let known = listed.wanted.iter().filter(|range| range.end != u64::MAX);
                skipped.bytes = known.fold(skipped.bytes, |sum, range| sum.saturating_add(range.end - range.start));
            }
        }
    }
    for (index, joined) in joined {
        joined.complete(&mut files[index], 1);
    }
    Resolved { profile: of_files(files), left_out }
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
    answers: Mutex<Answers>,
    /// The last answer has arrived.
    answered: Condvar,
}

/// A file as it is now, or why it cannot be prefetched.
type Answer = std::result::Result<File, Reason>;

/// The answers so far.
struct Answers {
    /// The index of the next file to look up.
    next: usize,
    /// Files without an answer.
    left: usize,
    /// By file; empty after the end.
    files: Vec<Option<Answer>>,
}

impl Lookup {
    /// A thread that panicked has left no partial answer.
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all files have an answer. Otherwise returns why the remaining files have none.
    fn wait(&self, mut stopped: impl FnMut() -> Option<Reason>) -> Option<Reason> {
        let mut answers = self.lock();
        let (mut last, mut left) = (Instant::now(), answers.left);
        while answers.left > 0 {
            if let Some(reason) = stopped() {
                return Some(reason);
            }
            if answers.left < left {
                (last, left) = (Instant::now(), answers.left);
            } else if last.elapsed() > NOT_ANSWERING {
                return Some(Reason::NotAnswering);
            }
            let waited = self.answered.wait_timeout(answers, INTERVAL);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    fn work(&self) {
        loop {
            let index = {
                let mut answers = self.lock();
                answers.next += 1;
                answers.next - 1
            };
            let Some(listed) = self.list.files().get(index) else { return };
            let path = Path::new(OsStr::from_bytes(&listed.path));
            let file = file_of(&self.root, &self.table, path, &listed.wanted).map_err(|unusable| unusable.reason);
            let mut answers = self.lock();
            // After the end there is no place for it.
            let Some(place) = answers.files.get_mut(index) else { return };
            *place = Some(file);
            answers.left -= 1;
            if answers.left == 0 {
                self.answered.notify_all();
            }
        }
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

/// The entry of a file as it is now, with these ranges as whole pages. `None`: it cannot be prefetched.
pub(crate) fn file_as_it_is(root: &Root, table: &[Mount], path: &[u8], wanted: &RangeSet) -> Option<File> {
    file_of(root, table, Path::new(OsStr::from_bytes(path)), wanted).ok()
}

fn file_of(root: &Root, table: &[Mount], path: &Path, wanted: &RangeSet) -> std::result::Result<File, Unusable> {
    let (handle, real) = root.find(path)?;
    if !handle.is_regular_file() {
        return Err(Unusable::refused("not a regular file"));
    }
    let path = real.as_os_str().as_bytes().to_vec();
    let mount = mounts::covering(table, &root.outer(&path)).map(|index| &table[index]);
    let mount = mount.ok_or_else(|| Unusable::refused("it lies on no mount of this process"))?;
    let now = handle.identity();
    let wanted: RangeSet = wanted.iter().cloned().map(whole_pages).collect();
    let whole = 0..now.size_bytes;
    let extents = wanted.within(&whole).map(|range| Extent {
        offset_bytes: range.start,
        length_bytes: range.end - range.start,
        runs: 1,
        ..Extent::default()
    });
    Ok(File {
        path,
        fs_type: mount.fs_type.clone(),
        device: mount.device.key(),
        inode: now.inode,
        size_bytes: now.size_bytes,
        mtime_ns: now.mtime_ns,
        extents: with_places(&handle, extents.collect(), now.size_bytes),
        ..File::default()
    })
}

/// Adds the places on the disk, where the file system reports them and this process may read the file. A file without a page cache is
/// not opened; the prefetch refuses it.
fn with_places(handle: &Handle, extents: Vec<Extent>, size_bytes: u64) -> Vec<Extent> {
    if !handle.file_system_magic().is_ok_and(openat::has_page_cache) {
        return extents;
    }
    match handle.reopen().and_then(|open| fiemap::extents(open, 0, size_bytes)) {
        Ok(places) => split_by_position(extents, &places),
        Err(_) => extents,
    }
}

fn whole_pages(range: Range<u64>) -> Range<u64> {
    let page = machine::page_size();
    range.start / page * page..range.end.checked_next_multiple_of(page).unwrap_or(range.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::{Syntax, parse};
    use std::fs;
    use std::os::unix::fs::symlink;

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
        let options = Options { root: Root::at(&base).unwrap(), ..Options::default() };
        let Resolved { profile, left_out } = resolve(list(&text), &options, || false).unwrap();
        let paths: Vec<&[u8]> = profile.files.iter().map(|file| &file.path[..]).collect();
        assert_eq!(paths, [&b"/c"[..], b"/a", b"/b"]);
        assert_eq!(profile.files[1].used_bytes(), 2 * page);
        assert_eq!(left_out[&Reason::Missing], Skipped { spans: 3, bytes: 4096 });
        assert_eq!((left_out[&Reason::Refused].spans, left_out.len()), (1, 2));
        ahead_profile::encode(&profile).unwrap();
        // Without a root directory the same paths lead elsewhere.
        let outside = resolve(list(&text), &Options::default(), || false).unwrap();
        assert!(outside.profile.files.is_empty() && outside.left_out[&Reason::Missing].spans >= 7);
    }

    #[test]
    fn stop_leaves_the_remaining_files_out() {
        let listed = || list("/etc/passwd:0-10\n/none");
        let stopped = resolve(listed(), &Options::default(), || true).unwrap();
        assert_eq!(stopped.left_out, BTreeMap::from([(Reason::Cancelled, Skipped { spans: 2, bytes: 10 })]));
        // Stopped while threads look names up: each file has an answer, or the reason of the stop.
        let mut asked = 0;
        let stop = || {
            asked += 1;
            asked > 1
        };
        let Resolved { profile, left_out } = resolve(listed(), &Options::default(), stop).unwrap();
        let spans: u64 = left_out.values().map(|skipped| skipped.spans).sum();
        assert_eq!(profile.files.len() as u64 + spans, 2);
        let late = Options { deadline: Some(Duration::ZERO), ..Options::default() };
        assert_eq!(resolve(listed(), &late, || false).unwrap().left_out[&Reason::Deadline].spans, 2);
    }

    #[test]
    fn one_thread_looks_up_what_many_do() {
        let text = "/etc/passwd:0-10\n/etc\n/none\n/etc/group";
        let two = Options { threads: Some(2), ..Options::default() };
        let [few, many] = [two, Options::default()].map(|options| resolve(list(text), &options, || false).unwrap());
        assert_eq!((few.profile, few.left_out), (many.profile, many.left_out));
    }

    #[test]
    fn empty_list_is_an_empty_profile() {
        let resolved = resolve(List::default(), &Options::default(), || false).unwrap();
        assert!(resolved.profile.files.is_empty() && resolved.left_out.is_empty());
    }
}
