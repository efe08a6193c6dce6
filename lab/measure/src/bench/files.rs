//! The files that jobs read: made in a given directory after a check of the free space, and removed at the end.
//!
//! ```text
//!     DIRECTORY/ahead-bench-PID-START/      root writes a note: after a SIGKILL `ahead restore` removes the tree
//!     ├── 0                                 a file for each reader, or many for one reader
//!     └── 1 …
//! ```
//!
//! DIRECTORY may belong to another user, who can replace the tree by symbolic links. So its path is resolved once, and the tree and its
//! files stay open: a reader opens a held file again, not its path.

use crate::bench::device::Device;
use crate::bench::stale_trees::{TREE_PREFIX, remove_stale_trees};
use crate::bench::{Error, Result};
use ahead_model::file_system_kind::Place;
use ahead_process::undo::{FileIdentity, Guard, ProcessId};
use ahead_sim::Chance;
use ahead_sys::directory::{Directory, HeldFile};
use ahead_sys::mounts::{self, Mount};
use ahead_sys::{bdi, cache, evict, machine, openat};
use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Size of a write, bytes.
const PIECE_BYTES: usize = 1 << 20;
/// A file system needs one byte in this many besides the data (extents, inodes, commits of a journal).
const SPARE_SHARE: u64 = 64;
/// Timeout for the eviction of a file. Its last writes or reads may be in flight, and other processors may hold its pages in per-CPU
/// lists.
const EVICT_TIMEOUT: Duration = Duration::from_secs(1);
/// Descriptors for each file: the held one, that of its reader, that of a clairvoyant policy, and a spare one. Descriptors besides the
/// files. Most systems allow 1024, and more on request (`ulimit -Hn`).
const DESCRIPTORS_PER_FILE: u64 = 4;
const DESCRIPTORS: u64 = 256;

/// Files of a job; removed on drop.
#[derive(Debug)]
pub struct Files {
    /// Closed before the tree is removed: FUSE and NFS keep files that are open.
    held: Vec<HeldFile>,
    identities: Vec<FileIdentity>,
    tree: Tree,
    mount: Option<Mount>,
    device: Device,
    /// Whether cachestat reports none of the cached pages (see [`lacks_cachestat`]).
    lacks_cachestat: bool,
}

/// The directory of the files. Drop removes both, also after a lazy unmount or a rename of the parent directory.
#[derive(Debug)]
struct Tree {
    above: Directory,
    name: OsString,
    directory: Directory,
    identity: FileIdentity,
    /// For `ahead restore` after a SIGKILL; after a normal exit nothing remains to be undone.
    _note: Option<Guard>,
}

impl Tree {
    fn make(above: Directory) -> Result<Tree> {
        let own = ProcessId::own()?;
        let name = OsString::from(format!("{TREE_PREFIX}{}-{}", own.pid, own.start_ticks));
        let made = match machine::is_root() {
            true => {
                ahead_process::undo::create_tree_in(own, &above, &name).map(|(directory, note)| (directory, Some(note)))
            }
            false => above.create_directory(&name).map(|directory| (directory, None)),
        };
        let (directory, note) = made.map_err(|error| refused(error, above.path()))?;
        let identity = FileIdentity::of(&directory.metadata()?);
        Ok(Tree { above, name, directory, identity, _note: note })
    }

    fn is_in_place(&self) -> bool {
        // Before Linux 5.8 mounts are found by path, and the path may lead to another mount by now.
        self.above.holds(&self.name, self.identity) && mounts::of_open(&self.above).is_ok_and(|mount| mount.is_some())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // A tree that cannot be removed stays where the user sees it.
        if !self.above.remove_tree(&self.name, self.identity).unwrap_or(false) {
            // The owner has renamed the tree: clearing it frees at least its space.
            let _ = self.directory.clear();
        }
    }
}

/// An extra file; removed on drop.
#[derive(Debug)]
pub struct ExtraFile<'a> {
    held: HeldFile,
    tree: &'a Directory,
}

/// Name of the extra file.
const EXTRA: &str = "extra";

impl ExtraFile<'_> {
    pub fn held(&self) -> &HeldFile {
        &self.held
    }
}

impl Drop for ExtraFile<'_> {
    fn drop(&mut self) {
        // After a failure the file is removed with the tree. FUSE and NFS rename a removed file that is open; the tree's removal covers
        // it too.
        let _ = self.tree.remove_file(OsStr::new(EXTRA));
    }
}

impl Files {
    /// Makes files of these sizes in a new directory within `directory`.
    ///
    /// Errors: no space, no permission, a full or read-only file system, or one without a disk; `stop` was set.
    pub fn make(directory: &Path, sizes: &[u64], stop: &AtomicBool) -> Result<Files> {
        let above = checked_directory(directory, sizes)?;
        allow_descriptors(sizes.len() as u64)?;
        let mount = mounts::of_open(&above)?;
        let (device, lacks_cachestat) =
            (Device::under(&above, mount.as_ref())?, openat::file_system_of(&above)?.place == Place::Layers);
        let tree = Tree::make(above)?;
        let mut files = Files { held: Vec::new(), identities: Vec::new(), tree, mount, device, lacks_cachestat };
        for (number, size) in sizes.iter().enumerate() {
            let held = write_file(&files.tree.directory, &file_name(number), *size, number as u64, stop)?;
            let metadata = held.file().metadata();
            let metadata = metadata.map_err(|e| Error::io(format!("look at {}", held.path().display()), e))?;
            files.identities.push(FileIdentity::of(&metadata));
            files.held.push(held);
        }
        Ok(files)
    }

    /// Checks whether files of these sizes can be made in a directory, without making them. Trees of jobs before the last boot are removed
    /// first, to free their space.
    ///
    /// Errors: no space, a read-only file system, or one without a disk; the directory is missing.
    pub fn check(directory: &Path, sizes: &[u64]) -> Result<()> {
        checked_directory(directory, sizes).map(drop)
    }

    /// Makes an extra file besides the others.
    ///
    /// Errors: as [`Files::make`].
    pub fn extra(&self, size: u64, stop: &AtomicBool) -> Result<ExtraFile<'_>> {
        check_room(&self.tree.above, size)?;
        let tree = &self.tree.directory;
        Ok(ExtraFile { held: write_file(tree, OsStr::new(EXTRA), size, u64::MAX, stop)?, tree })
    }

    /// The files, in the order of their sizes.
    pub fn held(&self) -> &[HeldFile] {
        &self.held
    }

    /// The directory of the files, for messages: another process may have renamed it.
    pub fn directory(&self) -> &Path {
        self.tree.directory.path()
    }

    /// The mount that holds the files.
    pub fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// The file with the kernel's read-ahead window for these files.
    pub fn window(&self) -> Option<PathBuf> {
        bdi::governing_mount(Path::new("/sys"), self.mount()?).map(|(_, file)| file)
    }

    /// The device below the files.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Evicts the files, and empties the buffer of an emulated disk.
    ///
    /// Errors: pages stay in memory; the emulated disk does not answer.
    pub fn make_cold(&self) -> Result<()> {
        self.held.iter().try_for_each(|held| make_cold(held, self.lacks_cachestat))?;
        self.device.restart()
    }

    /// Whether cachestat reports none of the cached pages (see [`lacks_cachestat`]).
    pub(crate) fn lacks_cachestat(&self) -> bool {
        self.lacks_cachestat
    }

    /// Checks that the files are still at their path. Open files can be measured and removed in any case. But a user who has unmounted or
    /// removed the files wants the job to end.
    ///
    /// Errors: the files are not at their path.
    pub(crate) fn check_place(&self) -> Result<()> {
        match self.tree.is_in_place() {
            true => Ok(()),
            false => Err(self.vanished("another process renamed, removed or unmounted it".into())),
        }
    }

    fn vanished(&self, why: String) -> Error {
        Error::Vanished { path: self.directory().to_owned(), why }
    }

    /// Replaces an error by [`Error::Vanished`] if the files do not exist any more.
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

fn open_directory(directory: &Path) -> Result<Directory> {
    Directory::open(directory).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::NOTDIR.raw_os_error() => {
            Error::io(format!("make files in {}", directory.display()), Errno::NOTDIR)
        }
        _ => error.into(),
    })
}

fn checked_directory(directory: &Path, sizes: &[u64]) -> Result<Directory> {
    let above = open_directory(directory)?;
    check_kind(&above)?;
    remove_stale_trees(&above);
    check_room(&above, sizes.iter().sum())?;
    Ok(above)
}

/// Raises the limit of open files: the files of a job stay open, and may exceed the default limit.
///
/// Errors: their number exceeds the hard limit.
fn allow_descriptors(files: u64) -> Result<()> {
    let needed = DESCRIPTORS + DESCRIPTORS_PER_FILE * files;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(before) = current.filter(|current| *current < needed) else { return Ok(()) };
    let allowed = maximum.map_or(needed, |maximum| needed.min(maximum));
    // A refused limit is no error by itself: the previous limit may suffice.
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum });
    match if raised.is_ok() { allowed } else { before } {
        allowed if allowed > files => Ok(()),
        allowed => {
            let what = format!("keeping {files} files open");
            let why = format!("the limit is {allowed}; raise it (ulimit -Hn), or use fewer files");
            Err(ahead_sys::Error::Unsupported { what, why }.into())
        }
    }
}

/// Whether cachestat reports none of the cached pages. On an overlay the pages belong to files of a layer. cachestat queries the
/// overlay's files, which have no pages. A mapping is of the layer's file, so mincore reports the pages.
pub(crate) fn lacks_cachestat(directory: &Path) -> bool {
    Directory::open(directory)
        .is_ok_and(|open| openat::file_system_of(&open).is_ok_and(|kind| kind.place == Place::Layers))
}

fn not_permitted(directory: &Path) -> Error {
    let (what, remedy) =
        (format!("making files in {}", directory.display()), "give a directory with write permission".into());
    ahead_sys::Error::NotPermitted { what, remedy }.into()
}

fn refused(error: ahead_sys::Error, directory: &Path) -> Error {
    match &error {
        ahead_sys::Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => not_permitted(directory),
        _ => error.into(),
    }
}

/// Checks that the file system is writable and has a disk. This comes before the check of free space: file systems without a disk report
/// none, and smaller files would not help.
fn check_kind(directory: &Directory) -> Result<()> {
    let path = directory.path();
    if !openat::file_system_of(directory)?.has_page_cache() {
        let why =
            "its file system has no disk: its files are in memory or made by the kernel; choose a directory on a disk";
        let what = format!("measuring {}", path.display());
        return Err(ahead_sys::Error::Unsupported { what, why: why.into() }.into());
    }
    let stat = rustix::fs::fstatvfs(directory).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
    match stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        true => Err(Error::io(format!("make files in {}", path.display()), Errno::ROFS)),
        false => Ok(()),
    }
}

/// Checks the free space for the files and their metadata.
fn check_room(directory: &Directory, bytes: u64) -> Result<()> {
    let path = directory.path();
    let stat = rustix::fs::fstatvfs(directory).map_err(|e| Error::io(format!("look at {}", path.display()), e))?;
    let (free_bytes, needed_bytes) = (stat.f_bavail.saturating_mul(stat.f_frsize), bytes + bytes / SPARE_SHARE);
    if free_bytes < needed_bytes {
        return Err(Error::NoRoom { path: path.into(), free_bytes, needed_bytes });
    }
    Ok(())
}

/// Writes a file of random bytes, which no file system or drive can compress.
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
        // Each piece differs from the others.
        piece[..8].copy_from_slice(&left.to_le_bytes());
        let now = left.min(PIECE_BYTES as u64);
        file.write_all(&piece[..now as usize]).map_err(failed)?;
        left -= now;
    }
    file.sync_all().map_err(failed)?;
    // The held file is read only.
    let to_read = HeldFile::new(file, path.clone()).open_again(File::options().read(true)).map_err(failed)?;
    Ok(HeldFile::new(to_read, path))
}

fn make_cold(held: &HeldFile, lacks_cachestat: bool) -> Result<()> {
    let failed = |e| Error::io(format!("open {}", held.path().display()), e);
    // Open again: FUSE then drops the cached pages of the file.
    let file = held.open_again(File::options().read(true)).map_err(failed)?;
    let bytes = held.length_bytes().map_err(failed)?;
    let began = Instant::now();
    loop {
        evict::file(&file)?;
        let cached = if lacks_cachestat { cache::present(&file, 0, bytes)? } else { cache::resident(&file, 0, bytes)? };
        let cached_bytes = cached.iter().map(|range| range.end - range.start).sum();
        match cached_bytes {
            0 => return Ok(()),
            _ if began.elapsed() > EVICT_TIMEOUT => {
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
    fn files_are_made_and_removed_with_their_directory() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000, 1 << 21], &AtomicBool::new(false)).unwrap();
        let lengths: Vec<u64> = files.held().iter().map(|file| file.length_bytes().unwrap()).collect();
        assert_eq!(lengths, [5000, 1 << 21]);
        drop(files);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_space_makes_no_file() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let error = Files::make(home.path(), &[1 << 60], &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn stop_leaves_no_file() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(matches!(Files::make(home.path(), &[1 << 20], &AtomicBool::new(true)), Err(Error::Stopped)));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn file_that_stays_in_memory_is_not_cold() {
        let Ok(home) = tempfile::tempdir_in("/dev/shm") else { return };
        let path = home.path().join("file");
        std::fs::write(&path, [1; 8192]).unwrap();
        let held = HeldFile::open(&path).unwrap();
        for lacks_cachestat in [false, true] {
            assert!(matches!(make_cold(&held, lacks_cachestat), Err(Error::NotCold { .. } | Error::Kernel(_))));
        }
    }

    /// Regression: the error for /proc was too little space, and files in memory were made before the job refused them.
    #[test]
    fn file_system_without_a_disk_gets_no_file() {
        for directory in ["/proc", "/sys", "/dev/shm"] {
            let made = Files::make(Path::new(directory), &[1 << 20], &AtomicBool::new(false));
            let Err(Error::Kernel(error)) = made else { panic!("{directory}") };
            assert!(error.is_unavailable(), "{error}");
        }
    }

    /// Regression: each run opened and truncated files by path. So the owner of the directory could make root truncate any file by a
    /// symbolic link.
    #[test]
    fn tree_replaced_by_symbolic_links_leads_to_no_other_file() {
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
        let sizes =
            crate::bench::jobs::Sizes { file_bytes: 1 << 20, block_bytes: 8192, streams: vec![1], count: 1, seed: 0 };
        for variant in crate::bench::jobs::named("bonnie", &sizes).unwrap().variants {
            crate::bench::run_under_kernel(&variant.readers, files.held(), false).unwrap();
        }
        assert!(matches!(files.check_place(), Err(Error::Vanished { .. })));
        drop(files);
        assert_eq!(std::fs::read(&victim).unwrap(), vec![7; 100_000]);
        assert_eq!((names(&tree), names(&away)), (2, 0), "the other tree stays, ours is removed");
    }

    fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory).unwrap().count()
    }

    #[test]
    fn removed_files_have_vanished() {
        let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let files = Files::make(home.path(), &[5000], &AtomicBool::new(false)).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Job(_)));
        std::fs::remove_file(files.held()[0].path()).unwrap();
        assert!(matches!(files.explain(Error::Job("x".into())), Error::Vanished { .. }));
        assert!(matches!(files.explain(Error::Stopped), Error::Stopped));
    }
}
