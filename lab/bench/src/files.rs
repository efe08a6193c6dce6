//! The files that jobs read: made where one says, with room asked for first, and removed again.
//!
//! ```text
//!     DIRECTORY/ahead-bench-PID-START/      for root it is noted: after a SIGKILL `ahead restore` removes it
//!     ├── 0                                 a file for each reader, or many for one
//!     └── 1 …
//! ```
//!
//! DIRECTORY may belong to another user, who can rename the tree and put links in its place. So its path is used once, and the
//! tree and the files are kept open: each opening for a reader is one more of the same file.

use crate::device::Device;
use crate::{Error, Result, earlier};
use ahead_sim::Chance;
use ahead_sys::directory::{Directory, HeldFile};
use ahead_sys::mounts::{self, Mount};
use ahead_sys::{bdi, cache, evict, machine, openat};
use ahead_undo::{FileIdentity, Guard, ProcessId};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How the names of trees begin; the process that made one follows, PID-START.
pub(crate) const TREE_PREFIX: &str = "ahead-bench-";
/// Files are written in pieces of this, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// What a file system needs beside the data (extents, inodes, a journal's commits): one part in so many.
const SPARE_SHARE: u64 = 64;
/// So long a file is evicted again and again: its last writes or reads may still be under way, other processors may hold pages
/// that they have just handled.
const LONGEST_EVICTION: Duration = Duration::from_secs(1);
/// Descriptors for each file: the one that keeps it, its reader's, that of a policy that knows the accesses in advance, and one to spare; and those
/// that do not depend on files. Most systems allow 1024 and more on request (`ulimit -Hn`).
const DESCRIPTORS_PER_FILE: u64 = 4;
const DESCRIPTORS: u64 = 256;

/// Files of a job, until this is dropped.
#[derive(Debug)]
pub struct Files {
    /// Closed before the tree is removed: FUSE and NFS keep a file that is open.
    held: Vec<HeldFile>,
    identities: Vec<FileIdentity>,
    tree: Tree,
    mount: Option<Mount>,
    device: Device,
    /// cachestat sees nothing of them.
    is_blind: bool,
}

/// The directory that they lie in, and what removes it with them, wherever the directory above is by then: it may have been unmounted
/// lazily, or renamed.
#[derive(Debug)]
struct Tree {
    above: Directory,
    name: OsString,
    directory: Directory,
    identity: FileIdentity,
    /// For who comes after a SIGKILL; it has nothing left to do otherwise.
    _note: Option<Guard>,
}

impl Tree {
    fn make(above: Directory) -> Result<Tree> {
        let own = ProcessId::own()?;
        let name = OsString::from(format!("{TREE_PREFIX}{}-{}", own.pid, own.start_ticks));
        let made = match machine::is_root() {
            true => ahead_undo::create_tree_in(own, &above, &name).map(|(directory, note)| (directory, Some(note))),
            false => above.create_directory(&name).map(|directory| (directory, None)),
        };
        let (directory, note) = made.map_err(|error| refused(error, above.path()))?;
        let identity = FileIdentity::of(&directory.metadata()?);
        Ok(Tree { above, name, directory, identity, _note: note })
    }

    fn is_in_place(&self) -> bool {
        // Before Linux 5.8 the table is asked by path, which may have become another one's.
        self.above.holds(&self.name, self.identity) && mounts::of_open(&self.above).is_ok_and(|mount| mount.is_some())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // What cannot be removed stays where the user sees it.
        if !self.above.remove_tree(&self.name, self.identity).unwrap_or(false) {
            // Renamed by its owner: the room that it takes is given back, at least.
            let _ = self.directory.clear();
        }
    }
}

/// One file more, for a while.
#[derive(Debug)]
pub struct Extra<'a> {
    held: HeldFile,
    tree: &'a Directory,
}

/// Its name.
const EXTRA: &str = "extra";

impl Extra<'_> {
    /// The file.
    pub fn held(&self) -> &HeldFile {
        &self.held
    }
}

impl Drop for Extra<'_> {
    fn drop(&mut self) {
        // It goes with the others at the end otherwise; so does what FUSE and NFS keep of it, which is open still.
        let _ = self.tree.remove_file(OsStr::new(EXTRA));
    }
}

impl Files {
    /// Makes files of these sizes in a directory of their own within `directory`.
    ///
    /// Errors: no room, no permission, a full or read-only file system, or one without a disk behind it; it was asked to stop.
    pub fn make(directory: &Path, sizes: &[u64], stop: &AtomicBool) -> Result<Files> {
        let above = checked_place(directory, sizes)?;
        allow_descriptors(sizes.len() as u64)?;
        let mount = mounts::of_open(&above)?;
        let (device, is_blind) = (Device::under(&above, mount.as_ref())?, magic(&above, directory)? == OVERLAYFS);
        let tree = Tree::make(above)?;
        let mut files = Files { held: Vec::new(), identities: Vec::new(), tree, mount, device, is_blind };
        for (number, size) in sizes.iter().enumerate() {
            let held = write_file(&files.tree.directory, &file_name(number), *size, number as u64, stop)?;
            let metadata = held.file().metadata();
            let metadata = metadata.map_err(|e| Error::io(format!("look at {}", held.path().display()), e))?;
            files.identities.push(FileIdentity::of(&metadata));
            files.held.push(held);
        }
        Ok(files)
    }

    /// Whether files of these sizes could be made there, as far as that is known without making them. Those of an earlier start of
    /// the machine are removed first, for their room.
    ///
    /// Errors: no room, a read-only file system, or one without a disk behind it; there is no such directory.
    pub fn check(directory: &Path, sizes: &[u64]) -> Result<()> {
        checked_place(directory, sizes).map(drop)
    }

    /// One more beside them, for a while.
    ///
    /// Errors: as [`Files::make`].
    pub fn extra(&self, size: u64, stop: &AtomicBool) -> Result<Extra<'_>> {
        check_room(&self.tree.above, size)?;
        let tree = &self.tree.directory;
        Ok(Extra { held: write_file(tree, OsStr::new(EXTRA), size, u64::MAX, stop)?, tree })
    }

    /// The files themselves, in their order.
    pub fn held(&self) -> &[HeldFile] {
        &self.held
    }

    /// The directory that they were made in, for messages: it may have another name since.
    pub fn directory(&self) -> &Path {
        self.tree.directory.path()
    }

    /// The mount that they were made on.
    pub fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// The kernel's setting of the read-ahead window for them.
    pub fn window(&self) -> Option<PathBuf> {
        bdi::governing_mount(Path::new("/sys"), self.mount()?).map(|(_, file)| file)
    }

    /// What is below them.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Evicts them, and empties the drive's buffer.
    ///
    /// Errors: they stay in memory; the emulated disk does not answer.
    pub fn make_cold(&self) -> Result<()> {
        self.held.iter().try_for_each(|held| make_cold(held, self.is_blind))?;
        self.device.restart()
    }

    /// Whether the kernel tells nobody which of their pages are on their way (see [`is_blind`]).
    pub(crate) fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// Whether they can still be found where they were made. What is open is measured and removed in any case, but who has unmounted or
    /// removed them wants it to end.
    ///
    /// Errors: they cannot.
    pub(crate) fn check_place(&self) -> Result<()> {
        match self.tree.is_in_place() {
            true => Ok(()),
            false => Err(self.vanished("another process renamed, removed or unmounted it".into())),
        }
    }

    fn vanished(&self, why: String) -> Error {
        Error::Vanished { path: self.directory().to_owned(), why }
    }

    /// An error, or if the files are not there any more, that.
    pub fn explain(&self, error: Error) -> Error {
        let is_there =
            |(number, identity): (usize, &FileIdentity)| self.tree.directory.holds(&file_name(number), *identity);
        let are_there = || self.tree.is_in_place() && self.identities.iter().enumerate().all(is_there);
        match error {
            error @ (Error::Stopped | Error::Vanished { .. }) => error,
            error if are_there() => error,
            error => self.vanished(error.to_string()),
        }
    }
}

fn file_name(number: usize) -> OsString {
    number.to_string().into()
}

/// Opens the directory that files are to be made in.
fn place(directory: &Path) -> Result<Directory> {
    Directory::open(directory).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOTDIR.raw_os_error() => {
            Error::io(format!("make files in {}", directory.display()), Errno::NOTDIR)
        }
        _ => error.into(),
    })
}

fn checked_place(directory: &Path, sizes: &[u64]) -> Result<Directory> {
    let above = place(directory)?;
    check_kind(&above)?;
    earlier::remove(&above);
    check_room(&above, sizes.iter().sum())?;
    Ok(above)
}

/// Files are kept open: more of them than most programs may have at first.
///
/// Errors: they are more than this process may have open at all.
fn allow_descriptors(files: u64) -> Result<()> {
    let needed = DESCRIPTORS + DESCRIPTORS_PER_FILE * files;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current.filter(|current| *current < needed) else { return Ok(()) };
    let allowed = maximum.map_or(needed, |maximum| needed.min(maximum));
    // Where it stays as it was, that has to do.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum });
    match if raised.is_ok() { allowed } else { before } {
        allowed if allowed > files => Ok(()),
        allowed => {
            let what = format!("keeping {files} files open");
            let why = format!("{allowed} are allowed; allow more (ulimit -Hn), or measure with fewer files");
            Err(ahead_sys::Error::Unsupported { what, why }.into())
        }
    }
}

/// Magic number of overlayfs (linux/magic.h).
const OVERLAYFS: u64 = 0x794c_7630;

/// On an overlay the pages belong to files of a layer: cachestat answers for the overlay's own, which have none. A mapping is one
/// of the layer's file, so that mincore sees them.
pub(crate) fn is_blind(directory: &Path) -> bool {
    Directory::open(directory).is_ok_and(|open| magic(&open, directory).is_ok_and(|magic| magic == OVERLAYFS))
}

fn magic(directory: impl AsFd, path: &Path) -> Result<u64> {
    let stat = rustix::fs::fstatfs(directory).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
    // A signed word on some machines: the 32 bits that linux/magic.h defines.
    Ok(stat.f_type as u64 & 0xffff_ffff)
}

fn not_permitted(directory: &Path) -> Error {
    let (what, remedy) =
        (format!("making files in {}", directory.display()), "give a directory that you may write".into());
    ahead_sys::Error::NotPermitted { what, remedy }.into()
}

fn refused(error: ahead_sys::Error, directory: &Path) -> Error {
    match &error {
        ahead_sys::Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => not_permitted(directory),
        _ => error.into(),
    }
}

/// It is a directory that can be written, on a file system that reads from something. Asked before room is: such file systems
/// have none, and smaller files would not help.
fn check_kind(directory: &Directory) -> Result<()> {
    let path = directory.path();
    if !openat::has_page_cache(magic(directory, path)?) {
        let why = "there is no disk behind it: its files lie in memory, or the kernel makes them up; choose a directory on a disk";
        let what = format!("measuring {}", path.display());
        return Err(ahead_sys::Error::Unsupported { what, why: why.into() }.into());
    }
    let stat = rustix::fs::fstatvfs(directory).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
    match stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Error::io(format!("make files in {}", path.display()), Errno::ROFS)),
        false => Ok(()),
    }
}

/// Room for the files, and what belongs to them, is there before the first is made.
fn check_room(directory: &Directory, bytes: u64) -> Result<()> {
    let path = directory.path();
    let stat = rustix::fs::fstatvfs(directory).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
    let (free_bytes, needed_bytes) = (stat.f_bavail.saturating_mul(stat.f_frsize), bytes + bytes / SPARE_SHARE);
    if free_bytes < needed_bytes {
        return Err(Error::NoRoom { path: path.into(), free_bytes, needed_bytes });
    }
    Ok(())
}

/// A file of bytes that no file system or drive makes shorter.
fn write_file(tree: &Directory, name: &OsStr, bytes: u64, seed: u64, stop: &AtomicBool) -> Result<HeldFile> {
    let path = tree.path().join(name);
    let failed = |e| Error::io(format!("write {}", path.display()), e);
    let mut file = tree.create_file(name)?;
    let mut chance = Chance::new(seed);
    let mut piece: Vec<u8> = (0..PIECE_BYTES / 8).flat_map(|_| chance.number().to_le_bytes()).collect();
    let mut left = bytes;
    while left > 0 {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        // No two pieces are the same.
        piece[..8].copy_from_slice(&left.to_le_bytes());
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..now as usize]).map_err(failed)?;
        left -= now;
    }
    file.sync_all().map_err(failed)?;
    // What keeps it writes nothing.
    let to_read = HeldFile::new(file, path.clone()).open_again(File::options().read(true)).map_err(failed)?;
    Ok(HeldFile::new(to_read, path))
}

fn make_cold(held: &HeldFile, is_blind: bool) -> Result<()> {
    let failed = |e| Error::io(format!("open {}", held.path().display()), e);
    // Another opening: FUSE drops what is cached of a file then.
    let file = held.open_again(File::options().read(true)).map_err(failed)?;
    let bytes = held.length_bytes().map_err(failed)?;
    let began = Instant::now();
    loop {
        evict::file(&file)?;
        let cached = if is_blind { cache::present(&file, 0, bytes)? } else { cache::resident(&file, 0, bytes)? };
        let cached_bytes = cached.iter().map(|range| range.end - range.start).sum();
        match cached_bytes {
            0 => return Ok(()),
            _ if began.elapsed() > LONGEST_EVICTION => {
                return Err(Error::NotCold { path: held.path().into(), cached_bytes });
            }
            _ => std::thread::yield_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_and_go_with_their_directory() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000, 1 << 21], &AtomicBool::new(false)).unwrap();
        let lengths: Vec<u64> = files.held().iter().map(|file| file.length_bytes().unwrap()).collect();
        assert_eq!(lengths, [5000, 1 << 21]);
        drop(files);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn room_is_asked_for_first() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let error = Files::make(home.path(), &[1 << 60], &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_leaves_nothing() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(matches!(Files::make(home.path(), &[1 << 20], &AtomicBool::new(true)), Err(Error::Stopped)));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_stays_in_memory_is_not_called_cold() {
        let Ok(home) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = home.path().join("file");
        std::fs::write(&path, [1; 8192]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        for is_blind in [false, true] {
            assert!(matches!(make_cold(&held, is_blind), Err(Error::NotCold { .. } | Error::Kernel(_))));
        }
    }

    /// Regression: /proc was said to have too little room, and files in memory were made before they were refused.
    #[test]
    fn without_a_disk_nothing_is_made() {
        for directory in ["/proc", "/sys", "/dev/shm"] {
            let made = Files::make(Path::new(directory), &[1 << 20], &AtomicBool::new(false));
            let Err(Error::Kernel(error)) = made else { panic!("{directory}") };
            assert!(error.is_unavailable(), "{error}");
        }
    }

    /// Regression: files were opened by path for each run and truncated there, so that the owner of the directory could have root do
    /// that to any file by a link.
    #[test]
    fn a_tree_that_is_replaced_by_links_leads_to_no_other_file() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (stop, victim) = (AtomicBool::new(false), home.path().join("victim"));
        std::fs::write(&victim, vec![7; 100_000]).unwrap();
        let files = Files::make(home.path(), &[1 << 20], &stop).unwrap();
        let (tree, away) = (files.directory().to_owned(), home.path().join("away"));
        std::fs::rename(&tree, &away).unwrap();
        std::fs::create_dir(&tree).unwrap();
        for name in ["0", EXTRA] {
            std::os::unix::fs::symlink(&victim, tree.join(name)).unwrap();
        }
        files.make_cold().unwrap();
        drop(files.extra(1 << 20, &stop).unwrap());
        let sizes = crate::jobs::Sizes { file_bytes: 1 << 20, block_bytes: 8192, streams: vec![1], count: 1, seed: 0 };
        for variant in crate::jobs::named("bonnie", &sizes).unwrap().variants {
            crate::run_under_kernel(&variant.readers, files.held(), false).unwrap();
        }
        assert!(matches!(files.check_place(), Err(Error::Vanished { .. })));
        drop(files);
        assert_eq!(std::fs::read(&victim).unwrap(), vec![7; 100_000]);
        assert_eq!((names(&tree), names(&away)), (2, 0), "another's stays, ours is gone");
    }

    fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn files_that_are_gone_have_vanished() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000], &AtomicBool::new(false)).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Job(_)));
        std::fs::remove_file(files.held()[0].path()).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Vanished { .. }));
        assert!(matches!(files.explain(Error::Stopped), Error::Stopped));
    }
}
