//! Copies from a mapping, and advice for its faults.

use super::{Mapping, sigbus};
use crate::{Error, Result};
use rustix::mm::{Advice, madvise};

impl Mapping {
    /// Copies bytes from an offset on, up to the end of the mapping or the buffer. Returns their number. `None`: beyond the
    /// mapping, or lost.
    pub fn copy(&self, offset: usize, buffer: &mut [u8]) -> Option<usize> {
        let length = buffer.len().min(self.length.checked_sub(offset)?);
        // SAFETY: within the mapping, which lives as long as `self`, and the buffer, which is borrowed exclusively.
        unsafe { std::ptr::copy_nonoverlapping(self.address.add(offset), buffer.as_mut_ptr(), length) };
        (length > 0 && !sigbus::take_lost()).then_some(length)
    }

    /// Makes faults load only their own page (`MADV_RANDOM`).
    pub fn exact_faults(&self) -> Result<()> {
        // SAFETY: our own mapping; this advice does not change its content.
        unsafe { madvise(self.address.cast_mut().cast(), self.length, Advice::Random) }
            .map_err(|e| Error::io("advise random access to a mapping", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn copy_ends_at_the_end_of_the_mapping() {
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
