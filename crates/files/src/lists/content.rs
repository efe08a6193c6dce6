//! The content check: what the used ranges of files contained when they were recorded, and whether files that replaced these still have it.
//!
//! ```text
//!     end of a recording    resident pages ─▶ digests ─▶ File::content           no device is read
//!     packages changed      a file of another identity ─▶ digests ─▶ compare ─▶ identity and extents of the file now
//! ```
//!
//! Files are opened as a prefetch opens them: a handle without access, which must be a regular file with a page cache. Bytes and time are
//! limited, because a package manager waits.

mod compare;

pub use compare::{digest, used_ranges};

use ahead_model::RangeSet;
use ahead_profile::{ContentCheck, Extent, File, PIECE_BYTES, Profile};
use ahead_sys::openat::{Handle, Identity};
use ahead_sys::root::Root;
use ahead_sys::{cache, machine};
use compare::{KeptContent, compare_content, layout_of, pieces};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads files for their digests, within limits.
#[derive(Debug)]
pub struct ContentReader {
    root: Root,
    left_bytes: u64,
    until: Instant,
    scratch: Vec<u8>,
}

/// What became of a file of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// It is the recorded file.
    Same,
    /// Another file is at its path, which has all of the used content, or some.
    Replaced(Replaced),
    /// Another file is at its path, and nothing of the used content is in it, or the profile does not say what that was.
    Stale,
    /// No regular file is at its path.
    Missing,
    /// The file was not looked at: the limits were reached, or it cannot be read.
    Unknown,
}

/// A file that replaced a recorded one and still has what was used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The recorded size and modification time.
    before: (u64, i64),
    now: Identity,
    /// The ranges that still apply.
    ranges: RangeSet,
    /// Whether these are all.
    pub all: bool,
    /// Whether all of the used content that is known is equal.
    pub is_equal: bool,
}

impl Replaced {
    /// Whether this is an entry of the replaced file.
    pub fn is_of(&self, file: &File) -> bool {
        (file.size_bytes, file.mtime_ns) == self.before
    }

    /// Gives an entry of the replaced file the identity of the new one, and the extents that still apply. Their places on the disk are those
    /// of the replaced file.
    pub fn apply(&self, file: &mut File) {
        (file.size_bytes, file.mtime_ns, file.inode) = (self.now.size_bytes, self.now.mtime_ns, self.now.inode);
        let kept = |extent: &Extent| -> Vec<Extent> {
            let whole = extent.offset_bytes..extent.end_bytes().min(self.now.size_bytes);
            let part = |range: Range<u64>| Extent {
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
                physical_bytes: None,
                ..*extent
            };
            if whole.is_empty() { Vec::new() } else { self.ranges.within(&whole).map(part).collect() }
        };
        file.extents = file.extents.iter().flat_map(kept).collect();
        if !self.is_equal || self.before != (self.now.size_bytes, self.now.mtime_ns) {
            // Its digests are those of the replaced file.
            file.content = None;
        }
    }
}

impl ContentReader {
    /// Reads at most this much, in this time. A call that a device does not answer takes longer.
    pub fn new(root: &Root, bytes: u64, time: Duration) -> ContentReader {
        let scratch = vec![0; PIECE_BYTES as usize];
        ContentReader { root: root.clone(), left_bytes: bytes, until: Instant::now() + time, scratch }
    }

    /// Adds the content check to each file of a profile that has none and is still the recorded one, from pages that are resident. Reads no
    /// device, unless a page is evicted at this moment.
    pub fn add_checks(&mut self, profile: &mut Profile) {
        for file in profile.files.iter_mut().filter(|file| !file.deleted && file.content.is_none()) {
            if self.is_exhausted() {
                tracing::info!("content check: the limit of time or bytes is reached");
                return;
            }
            self.add_check(file);
        }
    }

    /// As [`Self::add_checks`], of one file.
    pub fn add_check(&mut self, file: &mut File) {
        let Ok((handle, fd)) = self.open(file) else { return };
        if is_recorded(file, &handle.identity()) {
            let check = self.digests(&fd, file, true);
            file.content = check.filter(|check| check.pieces.iter().any(|digest| *digest != 0)).map(Box::new);
        }
    }

    /// Looks at the file that is now at the path of an entry. Reads it only if it is another one.
    pub fn examine(&mut self, file: &File) -> Examined {
        if self.is_exhausted() {
            return Examined::Unknown;
        }
        let (handle, fd) = match self.open(file) {
            Ok(opened) => opened,
            Err(missing) => return missing,
        };
        let now = handle.identity();
        let is_same = is_recorded(file, &now);
        if is_same && now.inode == file.inode {
            return Examined::Same;
        }
        if is_same {
            // Installed again: package managers keep the time of the package. A prefetch takes it for the recorded file, too.
            let before = (file.size_bytes, file.mtime_ns);
            let ranges = [0..now.size_bytes].into_iter().collect();
            return Examined::Replaced(Replaced { before, now, ranges, all: true, is_equal: true });
        }
        self.compare(file, &fd, now)
    }

    /// As [`Self::examine`], and reads the file also if it has the recorded size and time.
    pub fn examine_content(&mut self, file: &File) -> Examined {
        if self.is_exhausted() {
            return Examined::Unknown;
        }
        match self.open(file) {
            Ok((handle, fd)) => self.compare(file, &fd, handle.identity()),
            Err(missing) => missing,
        }
    }

    fn compare(&mut self, file: &File, fd: &OwnedFd, now: Identity) -> Examined {
        if file.content.is_none() {
            return Examined::Stale;
        }
        let Some(check) = self.digests(fd, file, false) else { return Examined::Unknown };
        match compare_content(file, &check) {
            Some(KeptContent { ranges, all, is_equal }) if !ranges.is_empty() => {
                let before = (file.size_bytes, file.mtime_ns);
                Examined::Replaced(Replaced { before, now, ranges, all, is_equal })
            }
            _ => Examined::Stale,
        }
    }

    fn is_exhausted(&self) -> bool {
        self.left_bytes == 0 || Instant::now() >= self.until
    }

    fn open(&self, file: &File) -> std::result::Result<(Handle, OwnedFd), Examined> {
        let handle = self.root.handle(Path::new(OsStr::from_bytes(&file.path))).map_err(|error| {
            // EPERM, EACCES.
            if matches!(error.raw_os_error(), Some(1 | 13)) { Examined::Unknown } else { Examined::Missing }
        })?;
        if !handle.is_regular_file() {
            return Err(Examined::Missing);
        }
        if !handle.file_system().is_ok_and(|kind| kind.has_page_cache()) {
            return Err(Examined::Unknown);
        }
        let fd = handle.reopen().map_err(|_| Examined::Unknown)?;
        Ok((handle, fd))
    }

    /// The digests of the recorded pieces now; 0 for those that are not resident (`only_resident`) or end beyond the file. `None`: the limits
    /// are reached.
    fn digests(&mut self, fd: &OwnedFd, file: &File, only_resident: bool) -> Option<ContentCheck> {
        let pieces = pieces(file)?;
        // If a page is absent, only this page is read.
        drop(cache::exact_reads(fd));
        let resident: RangeSet = match (only_resident, pieces.last()) {
            (true, Some(last)) => cache::resident(fd, 0, last.end).unwrap_or_default().into_iter().collect(),
            _ => [0..u64::MAX].into_iter().collect(),
        };
        let is_there = |range: &Range<u64>| resident.count_within(range) == range.end - range.start;
        let begin = 0..machine::page_size().min(file.size_bytes);
        let layout = match pieces.first() {
            Some(first) if first.start == 0 && is_there(&begin) => layout_of(self.read(fd, begin)),
            _ => 0,
        };
        let mut check = ContentCheck { layout, pieces: Vec::with_capacity(pieces.len()) };
        for piece in pieces {
            if self.is_exhausted() {
                return None;
            }
            let length = (piece.end - piece.start) as usize;
            let content = if is_there(&piece) { self.read(fd, piece) } else { &[] };
            check.pieces.push(if content.len() == length { digest(content) } else { 0 });
        }
        Some(check)
    }

    /// The content of a range of at most [`PIECE_BYTES`]; shorter at the end of the file, or where it cannot be read.
    fn read(&mut self, fd: impl AsFd, range: Range<u64>) -> &[u8] {
        let want = ((range.end - range.start) as usize).min(self.scratch.len());
        self.left_bytes = self.left_bytes.saturating_sub(want as u64);
        let read = cache::wait_for_range(fd, range.start, &mut self.scratch[..want]).unwrap_or(0);
        &self.scratch[..read]
    }
}

/// Whether a prefetch takes the file for the recorded one.
fn is_recorded(file: &File, now: &Identity) -> bool {
    file.is_recorded(now.size_bytes, now.mtime_ns, now.inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::PathBuf;

    const PIECE: usize = PIECE_BYTES as usize;

    struct Home {
        _home: tempfile::TempDir,
        path: PathBuf,
    }

    impl Home {
        /// With a file of four pieces. Not in /tmp, which may be in memory.
        fn new() -> Home {
            let home = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let path = fs::canonicalize(home.path()).unwrap().join("x");
            fs::write(&path, content()).unwrap();
            Home { _home: home, path }
        }

        /// The file as it is now, with everything but the second piece used.
        fn recorded(&self) -> File {
            let now = fs::metadata(&self.path).unwrap();
            let extent = |pieces: Range<usize>, first_use_us| Extent {
                offset_bytes: (pieces.start * PIECE) as u64,
                length_bytes: (pieces.len() * PIECE) as u64,
                first_use_us,
                runs: 1,
                physical_bytes: Some(1 << 30),
                warm_use: None,
            };
            let file = File {
                path: self.path.as_os_str().as_bytes().to_vec(),
                size_bytes: now.len(),
                mtime_ns: now.mtime() * 1_000_000_000 + now.mtime_nsec(),
                inode: now.ino(),
                extents: vec![extent(2..4, 5), extent(0..1, 9)],
                ..File::default()
            };
            let mut profile = Profile { files: vec![file], ..Profile::default() };
            reader().add_checks(&mut profile);
            assert!(profile.files[0].content.is_some());
            profile.files.remove(0)
        }

        /// As a package manager does: a new file under a temporary name, then renamed.
        fn replace(&self, content: &[u8]) {
            let new = self.path.with_extension("new");
            fs::write(&new, content).unwrap();
            fs::File::open(&new).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            fs::rename(new, &self.path).unwrap();
        }
    }

    fn content() -> Vec<u8> {
        (0..4 * PIECE).map(|at| (at / 7) as u8).collect()
    }

    fn reader() -> ContentReader {
        ContentReader::new(&Root::default(), 1 << 30, Duration::from_secs(60))
    }

    fn applied(examined: Examined, file: &File) -> Vec<(usize, usize)> {
        let Examined::Replaced(replaced) = examined else { panic!("{examined:?}") };
        let mut file = file.clone();
        assert!(replaced.is_of(&file));
        replaced.apply(&mut file);
        assert!(!replaced.is_of(&file) && file.content.is_none());
        assert!(file.extents.iter().all(|extent| extent.physical_bytes.is_none()));
        let pieces = |extent: &Extent| (extent.offset_bytes as usize / PIECE, extent.length_bytes as usize / PIECE);
        file.extents.iter().map(pieces).collect()
    }

    #[test]
    fn file_with_the_same_content_keeps_its_extents_under_another_identity() {
        let home = Home::new();
        let file = home.recorded();
        assert_eq!(reader().examine(&file), Examined::Same);
        home.replace(&content());
        assert_eq!(applied(reader().examine(&file), &file), [(2, 2), (0, 1)]);
    }

    #[test]
    fn changed_piece_is_dropped_and_a_change_elsewhere_is_not_noticed() {
        let home = Home::new();
        let file = home.recorded();
        let mut changed = content();
        changed[PIECE + 5] ^= 1;
        home.replace(&changed);
        assert_eq!(applied(reader().examine(&file), &file), [(2, 2), (0, 1)]);
        changed[2 * PIECE] ^= 1;
        home.replace(&changed);
        assert_eq!(applied(reader().examine(&file), &file), [(3, 1), (0, 1)]);
        // Shorter: the last piece ends beyond the file.
        home.replace(&content()[..3 * PIECE + 100]);
        assert_eq!(applied(reader().examine(&file), &file), [(2, 1), (0, 1)]);
    }

    #[test]
    fn other_content_and_files_without_a_check_stay_stale() {
        let home = Home::new();
        let file = home.recorded();
        home.replace(&vec![3; 4 * PIECE]);
        assert_eq!(reader().examine(&file), Examined::Stale);
        home.replace(&content());
        assert_eq!(reader().examine(&File { content: None, ..file.clone() }), Examined::Stale);
        fs::remove_file(&home.path).unwrap();
        assert_eq!(reader().examine(&file), Examined::Missing);
    }

    #[test]
    fn links_fifos_and_devices_are_not_read() {
        let home = Home::new();
        let file = home.recorded();
        let other = home.path.with_extension("other");
        fs::rename(&home.path, &other).unwrap();
        symlink(&other, &home.path).unwrap();
        assert_eq!(reader().examine(&file), Examined::Missing);
        for path in [&b"/dev/zero"[..], b"/proc/version", b"/"] {
            let examined = reader().examine(&File { path: path.to_vec(), ..file.clone() });
            assert!(matches!(examined, Examined::Missing | Examined::Unknown), "{examined:?}");
        }
    }

    #[test]
    fn limits_of_bytes_and_time_end_the_work() {
        let home = Home::new();
        let file = home.recorded();
        home.replace(&content());
        let mut few = ContentReader::new(&Root::default(), PIECE_BYTES, Duration::from_secs(60));
        assert_eq!((few.examine(&file), few.examine(&file)), (Examined::Unknown, Examined::Unknown));
        let mut late = ContentReader::new(&Root::default(), 1 << 30, Duration::ZERO);
        assert_eq!(late.examine(&file), Examined::Unknown);
    }
}
