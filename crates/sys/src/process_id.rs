//! The identity of a process: its number is reused after its end; number and start time together are not.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;

/// A process. The start time protects against reuse of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
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

    /// The running process with this number, if any.
    pub fn of(pid: u32) -> Result<Option<Self>> {
        // A zombie holds no resources any more.
        Ok(ProcessStat::of(pid)?.filter(|stat| !stat.is_zombie).map(|stat| stat.process))
    }

    /// As [`ProcessId::of`], with the kind of the process.
    pub fn with_kind(pid: u32) -> Result<Option<(Self, Kind)>> {
        let kind = |stat: &ProcessStat| if stat.is_kernel_thread { Kind::KernelThread } else { Kind::Program };
        Ok(ProcessStat::of(pid)?.filter(|stat| !stat.is_zombie).map(|stat| (stat.process, kind(&stat))))
    }

    /// Whether the process still runs.
    pub fn is_alive(self) -> bool {
        matches!(Self::of(self.pid), Ok(Some(now)) if now == self)
    }

    /// Whether the process still executes its own code. A killed process does not, but for a while it keeps its open files. Its
    /// locks may be free before the process is gone.
    pub fn is_executing(self) -> bool {
        let is_executing = |stat: ProcessStat| stat.process == self && !stat.is_zombie && !stat.is_ending;
        ProcessStat::of(self.pid).is_ok_and(|stat| stat.is_some_and(is_executing))
    }

    /// Whether the number still belongs to this process. It does for a zombie: its main thread has ended, but other threads may
    /// still run and keep its resources.
    pub fn keeps_its_number(self) -> Result<bool> {
        Ok(ProcessStat::of(self.pid)?.is_some_and(|stat| stat.process == self))
    }
}

/// The first PID namespace (`PROC_PID_INIT_INO` of linux/proc_ns.h). The numbers that the kernel itself uses are those in it.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether numbers of processes that the kernel reports, by BPF for example, are the numbers that this process uses: outside of the PID
/// namespaces of containers. `true` without /proc.
pub fn has_kernel_numbers() -> bool {
    fs::read_link("/proc/self/ns/pid").map_or(true, |namespace| namespace.as_os_str() == FIRST_NAMESPACE)
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It runs a program.
    Program,
    /// It belongs to the kernel, as the threads of loop devices, which read their backing file.
    KernelThread,
}

/// The first thread of a process, from `/proc/PID/stat`.
struct ProcessStat {
    process: ProcessId,
    is_zombie: bool,
    is_ending: bool,
    is_kernel_thread: bool,
}

impl ProcessStat {
    /// `None`: no process has this number.
    fn of(pid: u32) -> Result<Option<ProcessStat>> {
        let path = format!("/proc/{pid}/stat");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
                return Ok(None);
            }
            Err(e) => return Err(Error::io(format!("read {path}"), e)),
        };
        // The command name is in parentheses and may contain any character: fields are counted from the last parenthesis.
        let rest = text.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        let mut fields = rest.into_iter().flat_map(str::split_ascii_whitespace);
        let state = fields.next();
        let flags: Option<u32> = fields.nth(5).and_then(|field| field.parse().ok());
        let start_ticks = fields.nth(12).and_then(|field| field.parse().ok());
        let (Some(state), Some(flags), Some(start_ticks)) = (state, flags, start_ticks) else {
            return Err(Error::Parse { path: path.into(), text });
        };
        let process = ProcessId { pid, start_ticks };
        let has = |flag| flags & flag != 0;
        let is_zombie = matches!(state, "Z" | "X");
        Ok(Some(ProcessStat { process, is_zombie, is_ending: has(PF_EXITING), is_kernel_thread: has(PF_KTHREAD) }))
    }
}

/// A flag in `/proc/PID/stat` (include/linux/sched.h): the process is exiting.
const PF_EXITING: u32 = 4;

/// As [`PF_EXITING`]: a thread of the kernel.
const PF_KTHREAD: u32 = 0x0020_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_the_kernel_are_visible_only_in_the_first_namespace() {
        let sees_kernel = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n");
        assert_eq!(has_kernel_numbers(), sees_kernel);
    }

    #[test]
    fn kernel_threads_are_distinguished_from_programs() {
        assert_eq!(ProcessId::with_kind(std::process::id()).unwrap().unwrap().1, Kind::Program);
        // kthreadd, unless this is another pid namespace.
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
            assert_eq!(ProcessId::with_kind(2).unwrap().unwrap().1, Kind::KernelThread);
        }
        assert_eq!(ProcessId::with_kind(u32::MAX).unwrap(), None);
    }
}
