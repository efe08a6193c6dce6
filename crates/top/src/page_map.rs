//! Which pages of an open file are in the page cache.
//!
//! The file is opened for this, and closed at once. Opening a file of a network file system or of FUSE may drop its cached pages, and may
//! wait for a server: such a file has no map. The file is compared before it is opened, for the process may have replaced the descriptor.

use crate::OpenFile;
use ahead_model::Mount;
use ahead_model::file_system_kind::Place;
use ahead_sys::other_process::{Descriptor, Expected, reopen_descriptor};
use ahead_sys::{Error, Result, cache, machine, mounts};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// Residency of a file, in parts of equal size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageMap {
    /// Resident share of each part, from 0 to 1. At most as many as were asked for; none for an empty file.
    pub shares: Vec<f64>,
    /// Pages of a part; the last one may be shorter.
    pub part_pages: u64,
}

impl PageMap {
    /// Maps an open file in at most `parts` parts.
    ///
    /// Errors: the file cannot be opened without side effects, or is another one by now.
    pub fn of(file: &OpenFile, parts: usize) -> Result<PageMap> {
        let opened = open(file)?;
        let (page, pages) = (machine::page_size(), file.file_bytes.div_ceil(machine::page_size()));
        let part_pages = pages.div_ceil(parts.max(1) as u64).max(1);
        let share = |start: u64| {
            let length = part_pages.min(pages - start);
            let resident = cache::resident_bytes(&opened, start * page, length * page)?;
            Ok((resident as f64 / (length * page) as f64).min(1.0))
        };
        let shares = (0..pages).step_by(usize::try_from(part_pages).unwrap_or(usize::MAX)).map(share);
        Ok(PageMap { shares: shares.collect::<Result<_>>()?, part_pages })
    }

    /// The part that holds a page.
    pub fn part_of(&self, page: u64) -> usize {
        usize::try_from(page / self.part_pages.max(1)).unwrap_or(usize::MAX)
    }
}

fn open(file: &OpenFile) -> Result<OwnedFd> {
    let refused = |why: &str| Error::Unsupported { what: "a map of the pages of this file".into(), why: why.into() };
    let descriptor = file.descriptor.ok_or_else(|| refused("the process has no descriptor of it"))?;
    let mounts = mounts::own()?;
    let is_local = |mount: &Mount| mount.kind().place == Place::Disk;
    if !mounts.iter().find(|mount| mount.device == file.device).is_some_and(is_local) {
        return Err(refused("opening a file of this file system may change its cached pages"));
    }
    let of_file = Descriptor { pid: file.pid, tid: file.pid, number: descriptor };
    let expected = Expected { device: file.device, inode_number: file.inode_number, is_block_device: false };
    reopen_descriptor(&of_file, &expected).map_err(|error| match error.raw_os_error() {
        Some(number) if number == Errno::STALE.raw_os_error() => {
            refused("the descriptor belongs to another file by now")
        }
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_sys::sparse::memory_file;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn open_file(file: &File) -> OpenFile {
        let metadata = file.metadata().unwrap();
        OpenFile {
            pid: std::process::id(),
            descriptor: Some(file.as_raw_fd() as u32),
            inode_number: metadata.ino(),
            device: ahead_model::DeviceNumber::from_stat(metadata.dev()),
            file_bytes: metadata.len(),
            ..OpenFile::default()
        }
    }

    #[test]
    fn resident_parts_are_mapped() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let page = machine::page_size();
        file.set_len(100 * page).unwrap();
        let seen = open_file(&file);
        let map = match PageMap::of(&seen, 10) {
            Ok(map) => map,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        assert_eq!((map.shares.len(), map.part_pages, map.part_of(99)), (10, 10, 9));
        assert_eq!(PageMap::of(&seen, 1000).unwrap().shares.len(), 100);
        let replaced = OpenFile { inode_number: seen.inode_number + 1, ..seen };
        assert!(PageMap::of(&replaced, 10).unwrap_err().to_string().contains("another file"));
    }

    /// Regression: the inode number alone was compared. A file of a user's FUSE server may have any, and the open waits for that server.
    #[test]
    fn file_with_the_same_inode_number_on_another_device_is_not_opened() {
        let (here, elsewhere) =
            (tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap(), memory_file("x", 1).unwrap());
        let seen = OpenFile { device: open_file(&here).device, ..open_file(&elsewhere) };
        let error = PageMap::of(&seen, 10).unwrap_err().to_string();
        assert!(error.contains("another file") || error.contains("may change its cached pages"), "{error}");
    }

    #[test]
    fn other_file_systems_have_no_map() {
        let error = PageMap::of(&open_file(&File::open("/proc/self/status").unwrap()), 10).unwrap_err();
        assert!(error.to_string().contains("may change its cached pages"), "{error}");
    }
}
