//! Measures the description of a disk for policies, on the files of a job.

use crate::bench::{Error, Files, Result, in_file};
use ahead_policy::DeviceDescription;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;

/// Shortest file for a measurement of the disk, bytes. A disk's buffer (64 MiB is common) must hold only a small part of the file:
/// accesses would seem fast.
const SHORTEST_BYTES: u64 = 128 << 20;

/// Measures the disk on the first file of a job, or on an extra file where the first is short. If the disk cannot be measured, the second
/// value is the reason, and the first value is the default description.
///
/// Errors: a read failed; the files vanished; `stop` was set.
pub fn measure_traits(files: &Files, stop: &AtomicBool) -> Result<(DeviceDescription, Option<String>)> {
    let Some(first) = files.held().first() else { return Ok((DeviceDescription::default(), None)) };
    let is_short = first.length_bytes().is_ok_and(|bytes| bytes < SHORTEST_BYTES);
    let extra = match is_short.then(|| files.extra(SHORTEST_BYTES, stop)).transpose() {
        Err(error @ Error::Stopped) => return Err(error),
        // Without space for an extra file, the short file is used.
        extra => extra.unwrap_or(None),
    };
    let file = extra.as_ref().map_or(first, |extra| extra.held());
    files.make_cold().map_err(|error| files.explain(error))?;
    let measured = crate::bench::live::describe::measure(file);
    files.make_cold().map_err(|error| files.explain(error))?;
    match measured {
        Err(error) if is_unsupported(&error) => Ok((DeviceDescription::default(), Some(error.to_string()))),
        Err(error) => Err(files.explain(in_file(error.into(), file.path()))),
        Ok(traits) => Ok((traits, None)),
    }
}

/// Whether an error means that the disk cannot be measured, and not that the disk failed. The reasons: the file is too short, its file
/// system has no direct I/O, or asynchronous reads are forbidden.
fn is_unsupported(error: &crate::bench::live::Error) -> bool {
    const NO_DIRECT_READS: [Errno; 5] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM, Errno::AGAIN];
    let code = match error {
        crate::bench::live::Error::Kernel(ahead_sys::Error::Io { source, .. })
        | crate::bench::live::Error::Io(source) => source.raw_os_error(),
        _ => None,
    };
    code.is_none_or(|code| NO_DIRECT_READS.iter().any(|known| known.raw_os_error() == code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a disk that failed during the measurement was described as one of 8 ms and 100 MB/s.
    #[test]
    fn failing_disk_is_not_an_unsupported_one() {
        let live = |code: Errno| crate::bench::live::Error::Kernel(ahead_sys::Error::io("read", code));
        assert!(is_unsupported(&live(Errno::INVAL)) && is_unsupported(&std::io::Error::other("short").into()));
        assert!(![Errno::IO, Errno::NXIO, Errno::NOENT].map(live).iter().any(is_unsupported));
    }
}
