//! The bytes of the disk: the image, and perhaps a copy of it in memory.
//!
//! The data of a read must be ready before the due time. It is ready if the page cache holds the image, which is the normal case. But a
//! drop of all caches also drops the image's pages. Then the daemon reads the disk of the image, which may be slower than the model. A
//! drop of caches does not affect a copy in memory (`preload`). The copy needs as much memory as the image has data. Writes go to both.

use crate::{Error, Result};
use ahead_disk::protocol::Setup;
use ahead_sys::sparse;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The bytes of a disk.
#[derive(Debug)]
pub struct Image {
    file: File,
    memory: Option<File>,
}

impl Image {
    /// Locks the image: two daemons on one image would destroy its data. `file` is not opened again by path, which may lead to another
    /// file.
    pub fn new(file: File, setup: &Setup) -> Result<Image> {
        let path = setup.image.display();
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::Busy(format!("{path} is already attached; see ahead disk list")));
            }
            // On a file system without locks, other daemons cannot be excluded.
            Err(std::fs::TryLockError::Error(e)) => tracing::warn!("cannot lock {path}: {e}"),
        }
        let memory = setup.preload.then(|| Self::preload(&file, setup.capacity_bytes)).transpose()?;
        Ok(Image { file, memory })
    }

    fn preload(file: &File, capacity_bytes: u64) -> Result<File> {
        let memory = sparse::memory_file("ahead-disk", capacity_bytes)?;
        sparse::copy_data(file, &memory)?;
        Ok(memory)
    }

    /// Fills `buffer` from `offset`, with zeros beyond the end.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let file = self.memory.as_ref().unwrap_or(&self.file);
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => {
                    buffer[filled..].fill(0);
                    return Ok(());
                }
                Ok(read) => filled += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes to the image and to the copy.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if let Some(memory) = &self.memory {
            memory.write_all_at(data, offset)?;
        }
        self.file.write_all_at(data, offset)
    }

    /// Writes zeros to a range (discard, write zeroes).
    pub fn zero(&self, offset: u64, length: u64) -> ahead_sys::Result<()> {
        if let Some(memory) = &self.memory {
            sparse::zero_range(memory, offset, length)?;
        }
        sparse::zero_range(&self.file, offset, length)
    }
}

/// Unlocks the image. Otherwise the lock would last as long as any copy of the descriptor: a forked process has a copy until its exec.
impl Drop for Image {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahead_disk::ModelSource;

    fn open(path: &std::path::Path, preload: bool) -> Result<Image> {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let setup = Setup {
            name: "test".into(),
            image: path.into(),
            model: ModelSource { name: "hdd".into(), toml: None },
            capacity_bytes: 1 << 20,
            preload,
            read_only: false,
            write_log: None,
        };
        Image::new(file, &setup)
    }

    #[test]
    fn copy_in_memory_gets_every_write() {
        for preload in [false, true] {
            let home = tempfile::NamedTempFile::new().unwrap();
            home.as_file().set_len(1 << 20).unwrap();
            home.as_file().write_all_at(&[3; 100], 5000).unwrap();
            let image = open(home.path(), preload).unwrap();
            image.write(&[4; 100], 9000).unwrap();
            image.zero(8192, 4096).unwrap();
            image.write(&[5; 10], 20_000).unwrap();
            let mut buffer = [9; 30_000];
            image.read(&mut buffer, 0).unwrap();
            assert_eq!((buffer[5000], buffer[9000], buffer[20_000], buffer[29_999]), (3, 0, 5, 0));
            let mut page = [0; 10];
            home.as_file().read_exact_at(&mut page, 20_000).unwrap();
            assert_eq!(page, [5; 10]);
        }
    }

    #[test]
    fn image_cannot_be_attached_twice() {
        let home = tempfile::NamedTempFile::new().unwrap();
        let first = open(home.path(), false).unwrap();
        assert!(matches!(open(home.path(), false), Err(Error::Busy(_))));
        drop(first);
        open(home.path(), false).unwrap();
    }
}
