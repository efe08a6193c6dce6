//! Which process: its number is reused after its end, its number and start time together are not.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;

/// A process, safe against reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The calling process.
    pub fn own() -> Result<Self> {
        let pid = std::process::id();
        Self::of(pid)?.ok_or_else(|| Error::Parse { path: "/proc/self/stat".into(), text: "starttime".into() })
    }

    /// The process that has this number now, if any.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        // A zombie holds nothing any more.
        Ok(Stat::of(pid)?.filter(|stat| !stat.is_zombie).map(|stat| stat.process))
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        matches!(Self::of(self.pid), Ok(Some(now)) if now == self)
    }

    /// Whether it still runs code of its own. One that is ending does not, but holds for a while what it has open: of a
    /// killed one, a lock may be free before it is gone.
    pub fn is_at_work(self) -> bool {
        let is_at_work = |stat: Stat| stat.process == self && !stat.is_zombie && !stat.is_ending;
        Stat::of(self.pid).is_ok_and(|stat| stat.is_some_and(is_at_work))
    }

    /// Whether the number is still its own. That of a zombie is: it has ended, but other threads of it may not have yet, and they
    /// hold what it held.
    pub fn has_its_number(self) -> Result<bool> {
        Ok(Stat::of(self.pid)?.is_some_and(|stat| stat.process == self))
    }
}

/// What `/proc/PID/stat` tells of a process's first thread.
struct Stat {
    process: ProcessId,
    is_zombie: bool,
    is_ending: bool,
}

impl Stat {
    /// `None`: there is none of this number.
    fn of(pid: u32) -> Result<Option<Stat>> {
        let path = format!("/proc/{pid}/stat");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
                return Ok(None);
            }
            Err(e) => return Err(Error::io(format!("read {path}"), e)),
        };
        // The command name is in parentheses and may hold anything: count the fields from the last parenthesis.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        let mut fields = rest.into_iter().flat_map(str::split_ascii_whitespace);
        let state = fields.next();
        let flags: Option<u32> = fields.nth(5).and_then(|field| field.parse().ok());
        let start_ticks = fields.nth(12).and_then(|field| field.parse().ok());
        let (Some(state), Some(flags), Some(start_ticks)) = (state, flags, start_ticks) else {
            return Err(Error::Parse { path: path.into(), text });
        };
        let process = ProcessId { pid, start_ticks };
        Ok(Some(Stat { process, is_zombie: matches!(state, "Z" | "X"), is_ending: flags & PF_EXITING != 0 }))
    }
}

/// Of the flags in `/proc/PID/stat` (include/linux/sched.h): it is being taken down.
const PF_EXITING: u32 = 4;
