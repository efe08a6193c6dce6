//! Whether a file is still as it was when a part of it was read into own memory.
//!
//! ```text
//!     ctime ─────── settled? ─── read ahead ─── a write begins: another ctime ─── compared ── dropped
//!           ├ tick ┤
//! ```
//!
//! A write sets the times of its file to the time at which it begins, as exactly as the kernel's clock ticks: a second write within the same tick
//! leaves no trace. So a version says nothing before its ctime is older than a tick: it is not *settled*, and nothing is kept by it. (Since Linux
//! 6.13 a write after a look always gets another time.) Memory that is mapped and written counts as a write when its page was clean before, and a
//! direct read cleans the pages that it reads.
//!
//! Not seen: the part of a direct write that reaches the device after the read, if the write had begun more than a tick before; changes by other
//! machines, before the file system sees them.

use rustix::fs::fstat;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::time::Duration;

/// Time after a change in which another one may have the same time: two ticks of the slowest kernel (CONFIG_HZ=100).
const TICKS: Duration = Duration::from_millis(20);

/// As [`TICKS`], for times without a fraction, as FAT (2 s) and ext3 (1 s) have them.
const SECONDS: Duration = Duration::from_secs(3);

/// Size and times of a file: seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    /// The version now.
    ///
    /// Errors: those of fstat(2).
    #[allow(clippy::unnecessary_cast, clippy::cast_lossless)]
    pub fn of(file: &File) -> io::Result<Version> {
        let stat = fstat(file)?;
        Ok(Version {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }

    /// Whether each write from now on makes another version.
    pub fn is_settled(&self) -> bool {
        let now = clock_gettime(ClockId::Realtime);
        self.is_settled_at((now.tv_sec, now.tv_nsec))
    }

    /// A time that is yet to come (the clock was set back) is as good as one that has passed: no write gets it soon.
    fn is_settled_at(&self, now: (i64, i64)) -> bool {
        let nanoseconds = |(seconds, rest): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let window = if self.changed.1 == 0 { SECONDS } else { TICKS };
        (nanoseconds(now) - nanoseconds(self.changed)).unsigned_abs() > window.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_settled_when_a_tick_has_passed() {
        let at = |changed| Version { size_bytes: 1, modified: (0, 0), changed };
        assert!(!at((100, 5)).is_settled_at((100, 20_000_000)));
        assert!(at((100, 5)).is_settled_at((100, 20_000_006)));
        assert!(!at((100, 0)).is_settled_at((102, 900_000_000)));
        assert!(at((100, 0)).is_settled_at((103, 1)));
        assert!(at((200, 5)).is_settled_at((100, 0)) && !at((100, 9)).is_settled_at((99, 999_999_999)));
    }
}
