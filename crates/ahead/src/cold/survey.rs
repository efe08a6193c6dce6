//! Many files in the page cache: named ones, those below directories, those of a profile.
//!
//! ```text
//!     items ─▶ one group for each mount ─▶ helper process ─▶ open, count, evict ─▶ a message for each file ─▶ findings
//!                                               │
//!                                               └── no message in time: the file system does not answer; the next group goes on
//! ```
//!
//! A file system that does not answer stops the process that asks it, which then cannot even end. So a helper process asks, and only the items
//! of that file system have no answer. A file is counted once, whatever number of names it has.

use super::file::{CachedFile, Task, explain, find_mappings};
use crate::error::IoContext;
use crate::{Error, Result, Stopped};
use ahead_process::{ResultPipe, Signals, Worker};
use ahead_profile::Profile;
use ahead_sys::openat::{self, Handle};
use ahead_sys::root::Root;
use ahead_sys::walk::{self, Budget, Entry, Next};
use ahead_sys::{machine, mounts, within};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item {
    /// A file, or a directory with everything below it on the same mount. The user has named it: a symbolic link is followed.
    Named(PathBuf),
    /// A file of a profile. No symbolic link is followed.
    Recorded {
        /// Its path.
        path: PathBuf,
        /// The used ranges, bytes.
        part: Vec<Range<u64>>,
    },
}

impl Item {
    /// The files of a profile that still have a name.
    pub fn of_profile(profile: &Profile) -> Vec<Item> {
        let files = profile.files.iter().filter(|file| !file.deleted);
        let item = |file: &ahead_profile::File| Item::Recorded {
            path: OsString::from_vec(file.path.clone()).into(),
            part: file.extents.iter().map(ahead_profile::Extent::range).collect(),
        };
        files.map(item).collect()
    }

    /// Its path, as it was named or recorded.
    pub fn path(&self) -> &Path {
        match self {
            Item::Named(path) | Item::Recorded { path, .. } => path,
        }
    }
}

/// What was left out below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Passed {
    /// Symbolic links, which are not followed.
    pub symbolic_links: u64,
    /// Devices, FIFOs and sockets.
    pub not_regular: u64,
    /// Directories on which another file system is mounted.
    pub mount_points: u64,
    /// Directories that cannot be read.
    pub unread_directories: u64,
    /// Names of files that were counted under another name already.
    pub other_names: u64,
    /// A limit was reached: four million entries, or an hour.
    pub is_cut: bool,
}

/// A result of a survey.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Finding {
    /// A file.
    File(Box<CachedFile>),
    /// Nothing is known of an item, for this reason.
    Failed(usize, String),
}

/// What helper processes send: each in JSON, then a NUL byte, a path, and a NUL byte. A path is no text, and has no NUL byte.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The next message may take this much longer, milliseconds, than [`within::NAMED`].
    Busy(u64),
    File(Box<CachedFile>),
    Failed(usize, String),
    /// The item is done.
    Done(usize, Passed),
}

/// Maximum number of files with pages that stay for which the processes that have them mapped are found: each is kept until all are done.
const MAX_KEPT_FILES: usize = 4096;
/// Interval of messages while only other entries than files are found.
const ALIVE: Duration = Duration::from_secs(1);
/// Limits of a walk: as many entries as [`Budget::new`], and time for a large tree on a slow disk.
const ENTRIES: usize = 1 << 22;
const WALK_TIME: Duration = Duration::from_secs(3600);
/// A search through the mappings of all processes, which has separate limits.
const SEARCH_TIME: Duration = Duration::from_secs(60);

/// Does the task with each item. `found` gets what is found. Returns what was left out. The caller has one thread.
///
/// # Errors
/// [`Stopped`]; no helper process can be started.
pub fn survey(items: &[Item], task: Task, signals: &Signals, found: &mut dyn FnMut(Finding)) -> Result<Passed> {
    let (mut passed, mut seen) = (Passed::default(), BTreeSet::new());
    for group in groups(items)? {
        let mut open: BTreeSet<usize> = group.iter().copied().collect();
        let worker = Worker::fork(|results, _| Helper::new(items, task, results).run(&group))?;
        let why = receive(worker, signals, &mut |message| match message {
            Message::Busy(_) => {}
            Message::File(file) if seen.insert((file.device, file.inode)) => found(Finding::File(file)),
            Message::File(_) => passed.other_names += 1,
            Message::Failed(item, why) => {
                open.remove(&item);
                found(Finding::Failed(item, why));
            }
            Message::Done(item, of_item) => {
                open.remove(&item);
                passed.add(of_item);
            }
        })?;
        open.into_iter().for_each(|item| found(Finding::Failed(item, why.clone())));
    }
    Ok(passed)
}

/// The items of each mount, by their paths as they are.
fn groups(items: &[Item]) -> Result<Vec<Vec<usize>>> {
    let (mounts, here) = (mounts::own()?, std::env::current_dir().unwrap_or_default());
    let mount = |item: &Item| mounts::covering(&mounts, here.join(item.path()).as_os_str().as_bytes());
    let mut groups: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let mount = mount(item);
        match groups.iter_mut().find(|(of, _)| *of == mount) {
            Some((_, group)) => group.push(index),
            None => groups.push((mount, vec![index])),
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// Passes on the messages of a helper. Returns why items have no answer, if any.
fn receive(mut worker: Worker, signals: &Signals, take: &mut dyn FnMut(Message)) -> Result<String> {
    let (mut rest, mut more) = (Vec::new(), Duration::ZERO);
    let mut deadline = Instant::now() + within::NAMED;
    loop {
        if let Some(signal) = worker.wait(signals, Some(deadline))? {
            return Err(Stopped(signal).into());
        }
        let new = worker.take_received();
        let has_answered = !new.is_empty();
        rest.extend(new);
        while let Some((message, length)) = parse(&rest)? {
            rest.drain(..length);
            more = if let Message::Busy(ms) = message { Duration::from_millis(ms) } else { Duration::ZERO };
            take(message);
        }
        if worker.is_complete() {
            return Ok("the helper process ended early".into());
        } else if has_answered {
            deadline = Instant::now() + within::NAMED + more;
        } else if Instant::now() >= deadline {
            return Ok(format!("its file system has not answered for {} s", (within::NAMED + more).as_secs()));
        }
    }
}

/// The first message and its length; `None`: it is not complete yet.
fn parse(bytes: &[u8]) -> Result<Option<(Message, usize)>> {
    let mut parts = bytes.split(|byte| *byte == 0);
    let (Some(json), Some(path), Some(_)) = (parts.next(), parts.next(), parts.next()) else { return Ok(None) };
    let mut message = serde_json::from_slice(json).map_err(|e| Error::io("understand a helper process", e.into()))?;
    if let Message::File(file) = &mut message {
        file.path = path.to_vec();
    }
    Ok(Some((message, json.len() + path.len() + 2)))
}

impl Passed {
    fn add(&mut self, other: Passed) {
        self.symbolic_links += other.symbolic_links;
        self.not_regular += other.not_regular;
        self.mount_points += other.mount_points;
        self.unread_directories += other.unread_directories;
        self.other_names += other.other_names;
        self.is_cut |= other.is_cut;
    }
}

/// The work of a helper process.
struct Helper<'a> {
    items: &'a [Item],
    task: Task,
    results: ResultPipe,
    /// Files of which pages stay. They are sent when the processes that have them mapped are known.
    kept: Vec<CachedFile>,
    sent: Instant,
    has_reader: bool,
}

impl<'a> Helper<'a> {
    fn new(items: &'a [Item], task: Task, results: ResultPipe) -> Helper<'a> {
        Helper { items, task, results, kept: Vec::new(), sent: Instant::now(), has_reader: true }
    }

    fn run(mut self, group: &[usize]) {
        for item in group {
            if self.has_reader {
                match self.item(*item) {
                    Ok(passed) => self.send(&Message::Done(*item, passed), b""),
                    Err(why) => self.send(&Message::Failed(*item, why), b""),
                }
            }
        }
        if self.kept.is_empty() || !self.has_reader {
            return;
        }
        self.busy(SEARCH_TIME);
        let mut kept = std::mem::take(&mut self.kept);
        find_mappings(&mut kept);
        kept.into_iter().for_each(|file| self.send_file(file));
    }

    /// Does the task with an item. `Err`: why it could not be looked at.
    fn item(&mut self, index: usize) -> std::result::Result<Passed, String> {
        let explained = |error: ahead_sys::Error| explain(&error);
        let items = self.items;
        let (handle, path, part) = match &items[index] {
            Item::Named(path) => {
                let (handle, path) = Root::default().find(path).map_err(explained)?;
                (handle, path, None)
            }
            Item::Recorded { path, part } => (openat::handle(path).map_err(explained)?, path.clone(), Some(&part[..])),
        };
        if handle.is_directory() && part.is_none() {
            return self.directory(index, &handle, &path);
        }
        if !handle.is_regular_file() {
            return Err("neither a regular file nor a directory".into());
        }
        self.file(index, &handle, path.into_os_string().into_vec(), part);
        Ok(Passed::default())
    }

    fn directory(&mut self, index: usize, handle: &Handle, path: &Path) -> std::result::Result<Passed, String> {
        let kind = handle.file_system().map_err(|error| explain(&error))?;
        if !kind.has_page_cache() && !kind.is_in_memory() {
            return Err("the kernel generates its files: they are not in the page cache".into());
        }
        let mut passed = Passed::default();
        let mut budget = Budget::of(ENTRIES, WALK_TIME);
        let walked = walk::walk(handle, &mut budget, |entry| {
            if self.sent.elapsed() > ALIVE {
                self.busy(Duration::ZERO);
            }
            match entry.kind {
                FileType::RegularFile => self.entry(index, entry, path),
                FileType::Symlink => passed.symbolic_links += 1,
                _ => passed.not_regular += 1,
            }
            if self.has_reader { Next::GoOn } else { Next::Stop }
        });
        let walked = walked.map_err(|error| std::io::Error::from(error).to_string())?;
        passed.is_cut = walked.is_cut;
        (passed.mount_points, passed.unread_directories) = (walked.mount_points, walked.unread_directories);
        Ok(passed)
    }

    /// A regular file of a directory. Another file may have its name by now.
    fn entry(&mut self, index: usize, entry: &Entry<'_>, directory: &Path) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let base = directory.as_os_str().as_bytes();
        let path = [base.strip_suffix(b"/").unwrap_or(base), &entry.path()].concat();
        let opened = rustix::fs::openat(entry.directory, entry.name, flags, Mode::empty()).ok();
        let handle = opened.and_then(|fd| Handle::of(fd, directory).ok());
        if let Some(handle) = handle.filter(Handle::is_regular_file) {
            self.file(index, &handle, path, None);
        }
    }

    fn file(&mut self, index: usize, handle: &Handle, path: Vec<u8>, part: Option<&[Range<u64>]>) {
        let task = self.task;
        let file = CachedFile::examine(handle, part, task, &mut |time| {
            if !time.is_zero() {
                self.busy(time);
            }
        });
        let file = CachedFile { path, item: index, ..file };
        let stays = file.after.is_some_and(|after| after.cached() > 0) && !file.is_in_memory;
        if stays && self.kept.len() < MAX_KEPT_FILES {
            self.kept.push(file);
        } else {
            self.send_file(file);
        }
    }

    fn busy(&mut self, time: Duration) {
        self.send(&Message::Busy(time.as_millis() as u64), b"");
    }

    fn send_file(&mut self, mut file: CachedFile) {
        let path = std::mem::take(&mut file.path);
        self.send(&Message::File(Box::new(file)), &path);
    }

    fn send(&mut self, message: &Message, path: &[u8]) {
        let Ok(mut bytes) = serde_json::to_vec(message) else { return };
        bytes.push(0);
        bytes.extend(path);
        bytes.push(0);
        // Without a reader there is no need for the rest.
        self.has_reader &= self.results.write_all(&bytes).what("send a result").is_ok();
        self.sent = Instant::now();
    }
}

/// Bytes of a number of pages.
pub fn bytes_of(pages: u64) -> u64 {
    pages * machine::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_one_after_the_other() {
        let file = CachedFile { inode: 7, ..CachedFile::default() };
        let json = serde_json::to_vec(&Message::File(Box::new(file))).unwrap();
        let bytes = [&json[..], b"\0/a\xff\n\0\"x"].concat();
        let (message, length) = parse(&bytes).unwrap().unwrap();
        let Message::File(file) = message else { panic!("{message:?}") };
        assert_eq!((file.inode, &file.path[..], length), (7, &b"/a\xff\n"[..], bytes.len() - 2));
        for part in [&bytes[..length - 1], &bytes[length..], b""] {
            assert!(parse(part).unwrap().is_none());
        }
        assert!(parse(b"nonsense\0\0").is_err());
    }

    #[test]
    fn items_of_one_mount_are_one_group() {
        let named = |path: &str| Item::Named(path.into());
        let items = [named("/proc/self"), named("/"), named("/proc/1/status"), named("/nowhere")];
        assert_eq!(groups(&items).unwrap(), [vec![0, 2], vec![1, 3]]);
    }
}
