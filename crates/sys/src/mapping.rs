//! Files as memory, to be touched page by page.

#![allow(unsafe_code)]

mod copying;
mod lost;

use crate::{Error, Result};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise};
use std::os::fd::AsFd;

/// A file that is mapped to be read. Where it is shorter meanwhile, or its disk fails, there is nothing.
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
        lost::survive();
        let length = length.max(1);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, fd, 0) };
        let address = address.map_err(|e| Error::io("map a file", e))?;
        Ok(Mapping { address: address.cast_const().cast(), length })
    }

    /// Says how it will be used: `Normal`, `Random` or `Sequential`; other advice is `EINVAL`.
    pub fn advise(&self, advice: Advice) -> Result<()> {
        if !matches!(advice, Advice::Normal | Advice::Random | Advice::Sequential) {
            return Err(Error::io("advise on a mapping", Errno::INVAL));
        }
        // SAFETY: exactly the mapping, which lives as long as `self`; such advice changes no memory.
        let done = unsafe { madvise(self.address.cast_mut().cast(), self.length, advice) };
        done.map_err(|e| Error::io("advise on a mapping", e))
    }

    /// Brings in the page at an offset as a touch of it does, by the same fault. Where the page cannot be read (the device
    /// failed, the file became shorter) that is an error. Beyond the mapping there is nothing.
    ///
    /// Before Linux 5.14 (`MADV_POPULATE_READ`) it is a touch.
    pub fn fault(&self, offset: usize) -> Result<()> {
        if offset >= self.length {
            return Ok(());
        }
        let page = offset & !(crate::machine::page_size() as usize - 1);
        // SAFETY: within the mapping, which lives as long as `self`; the advice changes no memory.
        match unsafe { madvise(self.address.add(page).cast_mut().cast(), 1, Advice::LinuxPopulateRead) } {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) if self.touch(offset).is_some() => Ok(()),
            // What a touch is sent SIGBUS for is told as a bad address.
            Err(Errno::FAULT | Errno::INVAL) => Err(Error::io("read through a mapping", Errno::IO)),
            Err(error) => Err(Error::io("read through a mapping", error)),
        }
    }

    /// Reads the byte at an offset: a fault, if its page is not mapped yet. Beyond the mapping there is nothing.
    pub fn touch(&self, offset: usize) -> Option<u8> {
        // SAFETY: within the mapping, which lives as long as `self`; where the file has nothing, `lost` puts a page of zeros.
        let byte = (offset < self.length).then(|| unsafe { self.address.add(offset).read_volatile() });
        byte.filter(|_| !lost::was_touched())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody can reach it any more.
        let _ = unsafe { rustix::mm::munmap(self.address.cast_mut().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_cannot_be_read_is_an_error_and_not_the_end() {
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
    fn touches_give_the_bytes_of_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let mapping = Mapping::new(&file, 5000).unwrap();
        drop(file);
        assert_eq!([0, 4999, 5000].map(|offset| mapping.touch(offset)), [Some(7), Some(7), None]);
    }

    /// Regression: SIGBUS ended the program, and what it had changed in the system stayed.
    #[test]
    fn a_page_that_is_lost_is_nothing_and_ends_nobody() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let mapping = Mapping::new(&file, 8192).unwrap();
        file.set_len(4096).unwrap();
        let mut bucket = [1; 4096];
        assert_eq!((mapping.touch(4096), mapping.copy(4096, &mut bucket)), (None, Some(4096)));
        assert_eq!((mapping.touch(0), bucket), (Some(7), [0; 4096]), "nothing is there, and it is told once");
        let mapping = Mapping::new(&file, 8192).unwrap();
        assert_eq!((mapping.copy(4096, &mut bucket), mapping.copy(0, &mut bucket)), (None, Some(4096)));
    }
}
