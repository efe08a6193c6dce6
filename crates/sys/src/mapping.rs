//! Memory-mapped files, accessed page by page.

#![allow(unsafe_code)]

mod copying;
mod sigbus;

use crate::{Error, Result};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise};
use std::ops::Range;
use std::os::fd::AsFd;

/// A file that is mapped for reading. A page that cannot be read (file truncated, disk failed) reads as `None`.
#[derive(Debug)]
pub struct Mapping {
    address: *const u8,
    length: usize,
}

// SAFETY: the memory is only read, and belongs to this value until it is dropped.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `length` bytes of a file, at least one.
    pub fn new(fd: impl AsFd, length: usize) -> Result<Mapping> {
        sigbus::install_handler();
        let length = length.max(1);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, fd, 0) };
        let address = address.map_err(|e| Error::io("map a file", e))?;
        Ok(Mapping { address: address.cast_const().cast(), length })
    }

    /// The addresses of the mapping, without those of the last page behind its end.
    pub fn addresses(&self) -> Range<usize> {
        self.address as usize..self.address as usize + self.length
    }

    /// Announces the access pattern: `Normal`, `Random` or `Sequential`. Other advice is `EINVAL`.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        match advice {
            Advice::Normal | Advice::Random | Advice::Sequential => self.advise_range(0..self.length, advice),
            _ => Err(Error::io("advise on a mapping", Errno::INVAL)),
        }
    }

    /// Requests the kernel to read the pages of a range into the page cache (`MADV_WILLNEED`).
    pub fn read_ahead(&self, range: Range<usize>) -> Result<()> {
        self.advise_range(range, Advice::WillNeed)
    }

    /// Requests the kernel to evict the pages of a range that are mapped (`MADV_PAGEOUT`, Linux 5.4).
    pub fn page_out(&self, range: Range<usize>) -> Result<()> {
        self.advise_range(range, Advice::LinuxPageOut)
    }

    /// The range begins at a page.
    fn advise_range(&self, range: Range<usize>, advice: Advice) -> Result<()> {
        let end = range.end.min(self.length);
        let start = range.start.min(end);
        // SAFETY: within this mapping, which lives as long as `self`; the callers' advice changes no memory.
        let done = unsafe { madvise(self.address.add(start).cast_mut().cast(), end - start, advice) };
        done.map_err(|e| Error::io("advise on a mapping", e))
    }

    /// Loads the page at an offset by a fault, as an access does. Beyond the mapping it does nothing.
    ///
    /// Before Linux 5.14 (`MADV_POPULATE_READ`) it reads a byte of the page.
    ///
    /// Errors: the page cannot be read (device failed, file truncated).
    pub fn fault(&self, offset: usize) -> Result<()> {
        if offset >= self.length {
            return Ok(());
        }
        let page = offset & !(crate::machine::page_size() as usize - 1);
        // SAFETY: within the mapping, which lives as long as `self`; the advice changes no memory.
        match unsafe { madvise(self.address.add(page).cast_mut().cast(), 1, Advice::LinuxPopulateRead) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) if self.touch(offset).is_some() => Ok(()),
            // EFAULT: an access would get SIGBUS.
            Err(Errno::FAULT | Errno::INVAL) => Err(Error::io("read through a mapping", Errno::IO)),
            Err(error) => Err(Error::io("read through a mapping", error)),
        }
    }

    /// Reads the byte at an offset, with a fault if its page is not mapped yet. `None`: beyond the mapping, or lost.
    pub fn touch(&self, offset: usize) -> Option<u8> {
        // SAFETY: within the mapping, which lives as long as `self`; `sigbus` replaces a lost page by zeros.
        let byte = (offset < self.length).then(|| unsafe { self.address.add(offset).read_volatile() });
        byte.filter(|_| !sigbus::take_lost())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no other code can reach it.
        let _ = unsafe { rustix::mm::munmap(self.address.cast_mut().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn unreadable_page_is_an_error_and_eof_is_not() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let mapping = Mapping::new(&file, 3 * 4096).unwrap();
        mapping.fault(2 * 4096 + 5).unwrap();
        file.set_len(4096).unwrap();
        mapping.fault(0).unwrap();
        assert!(mapping.fault(2 * 4096).is_err());
        mapping.fault(3 * 4096).unwrap();
    }

    #[test]
    fn touch_returns_the_bytes_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let mapping = Mapping::new(&file, 5000).unwrap();
        drop(file);
        assert_eq!([0, 4999, 5000].map(|offset| mapping.touch(offset)), [Some(7), Some(7), None]);
    }

    #[test]
    fn advice_on_a_range_keeps_its_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let mapping = Mapping::new(&file, 3 * 4096).unwrap();
        mapping.read_ahead(4096..1 << 20).unwrap();
        mapping.touch(4096).unwrap();
        mapping.page_out(0..2 * 4096).unwrap();
        assert_eq!([0, 4096, 8192].map(|offset| mapping.touch(offset)), [Some(7); 3]);
        assert!(mapping.read_ahead(1..4096).is_err());
    }

    /// Regression: SIGBUS ended the program, and its changes to the system stayed.
    #[test]
    fn lost_page_is_none_and_does_not_end_the_program() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        file.set_len(4096).unwrap();
        let mut bucket = [1; 4096];
        assert_eq!((mapping.touch(4096), mapping.copy(4096, &mut bucket)), (None, Some(4096)));
        assert_eq!((mapping.touch(0), bucket), (Some(7), [0; 4096]), "a lost page reads as zeros and is reported once");
        let mapping = Mapping::new(&file, 8192).unwrap();
        assert_eq!((mapping.copy(4096, &mut bucket), mapping.copy(0, &mut bucket)), (None, Some(4096)));
    }
}
