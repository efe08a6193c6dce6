//! What else programs do with mapped memory: copy it, and say how they will use it.

use super::{Mapping, lost};
use crate::{Error, Result};
use rustix::mm::{Advice, madvise};

impl Mapping {
    /// Copies bytes from an offset on, as far as the mapping and the buffer go; gives how many. Beyond it there is nothing.
    pub fn copy(&self, offset: usize, buffer: &mut [u8]) -> Option<usize> {
        let length = buffer.len().min(self.length.checked_sub(offset)?);
        // SAFETY: within the mapping, which lives as long as `self`, and the buffer, which nobody else has.
        unsafe { std::ptr::copy_nonoverlapping(self.address.add(offset), buffer.as_mut_ptr(), length) };
        (length > 0 && !lost::was_touched()).then_some(length)
    }

    /// Faults bring their own page and nothing else (`MADV_RANDOM`).
    pub fn exact_faults(&self) -> Result<()> {
        // SAFETY: our own mapping; this advice changes nothing that is read through it.
        unsafe { madvise(self.address.cast_mut().cast(), self.length, Advice::Random) }
            .map_err(|e| Error::io("advise random access to a mapping", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn bytes_are_copied_as_far_as_they_go() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5000]).unwrap();
        let mapping = Mapping::new(&file, 5000).unwrap();
        mapping.exact_faults().unwrap();
        let mut buffer = [0; 4096];
        assert_eq!(
            [0, 4096, 4999, 5000].map(|at| mapping.copy(at, &mut buffer)),
            [Some(4096), Some(904), Some(1), None]
        );
        assert_eq!(buffer, [7; 4096]);
    }
}
