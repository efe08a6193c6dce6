//! A start that is waited for ([`crate::Scope::FirstStart`]): when it begins, who it is, and when its last process has ended.
//!
//! ```text
//!     BPF: first exec of a wanted program ─▶ ring buffer, reader is woken ─▶ announcer reads /proc/PID ─▶ FirstExec, `began` is readable
//!          last followed process ends ─────▶ ring buffer, reader is woken ─▶ announcer is dropped ──────▶ `over` is readable
//! ```

use crate::process_files::ProcessFiles;
use crate::program_file::ProgramFile;
use ahead_model::DeviceNumber;
use ahead_profile::learn::{ExecSeen, FileSeen};
use ahead_sys::{Error, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// The exec with which an awaited start began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstExec {
    pub pid: u32,
    /// Time on CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// `None`: its file was not reported.
    pub program: Option<ProgramFile>,
    /// The command line, at most 64 KiB of it. Only the name given to execve if the process has ended at once.
    pub command: Vec<Vec<u8>>,
    /// The working directory; empty if the process has ended at once.
    pub directory: Vec<u8>,
    /// The real user; `None` if the process has ended at once.
    pub uid: Option<u32>,
}

/// A start that begins or has begun.
#[derive(Debug)]
pub struct AwaitedStart {
    began: OwnedFd,
    over: OwnedFd,
    first: Arc<OnceLock<FirstExec>>,
}

impl AwaitedStart {
    /// The exec with which it began; `None`: it has not begun.
    pub fn first(&self) -> Option<&FirstExec> {
        self.first.get()
    }

    /// A descriptor that is readable (end of file) from its begin on.
    pub fn began(&self) -> BorrowedFd<'_> {
        self.began.as_fd()
    }

    /// A descriptor that is readable (end of file) from the end of its last process on.
    pub fn over(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }
}

/// The reader's half. Dropping it reports the end.
#[derive(Debug)]
pub(crate) struct Announcer {
    not_begun: Option<OwnedFd>,
    _running: OwnedFd,
    first: Arc<OnceLock<FirstExec>>,
}

/// Both halves.
pub(crate) fn pair() -> Result<(AwaitedStart, Announcer)> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| Error::io("pipe", e));
    let ((began, not_begun), (over, running)) = (pipe()?, pipe()?);
    let first = Arc::new(OnceLock::new());
    let announcer = Announcer { not_begun: Some(not_begun), _running: running, first: first.clone() };
    Ok((AwaitedStart { began, over, first }, announcer))
}

impl Announcer {
    /// An exec of a followed process. Only the first one counts.
    pub(crate) fn exec(&mut self, exec: &ExecSeen, program: Option<&FileSeen>) {
        let Some(not_begun) = self.not_begun.take() else { return };
        let program =
            program.map(|file| ProgramFile { device: DeviceNumber::from_kernel(file.device), inode: file.inode });
        let process = ProcessFiles::of(exec.tgid);
        let command = process.as_ref().and_then(ProcessFiles::command).unwrap_or_else(|| vec![exec.name.clone()]);
        let directory = process.as_ref().and_then(ProcessFiles::directory).unwrap_or_default();
        let uid = process.as_ref().and_then(ProcessFiles::identity).map(|identity| identity.uid);
        let first = FirstExec { pid: exec.tgid, time_ns: exec.time_ns, program, command, directory, uid };
        // Set once: `not_begun` is taken once.
        let _ = self.first.set(first);
        drop(not_begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    fn exec(tgid: u32, name: &[u8]) -> ExecSeen {
        let (name, own) = (name.to_vec(), 1);
        ExecSeen { time_ns: 9, tgid, file: 1, root: 0, directory: 0, mount_namespace: own, name, cpu_ns: 0 }
    }

    #[test]
    fn first_exec_is_announced_once_and_then_the_end() {
        let (awaited, mut announcer) = pair().unwrap();
        assert!(awaited.first().is_none() && !is_readable(awaited.began()) && !is_readable(awaited.over()));
        let file = FileSeen { device: DeviceNumber::new(8, 1).to_kernel(), inode: 7, ..FileSeen::default() };
        announcer.exec(&exec(std::process::id(), b"own"), Some(&file));
        announcer.exec(&exec(1, b"other"), None);
        assert!(is_readable(awaited.began()) && !is_readable(awaited.over()));
        let first = awaited.first().unwrap();
        assert_eq!(
            (first.pid, first.time_ns, first.uid),
            (std::process::id(), 9, Some(rustix::process::getuid().as_raw()))
        );
        assert_eq!(first.program, Some(ProgramFile { device: DeviceNumber::new(8, 1), inode: 7 }));
        let arguments: Vec<Vec<u8>> = std::env::args().map(String::into_bytes).collect();
        assert_eq!(first.command, arguments);
        assert_eq!(first.directory, std::env::current_dir().unwrap().into_os_string().into_encoded_bytes());
        drop(announcer);
        assert!(is_readable(awaited.over()));
    }

    #[test]
    fn process_that_has_ended_is_named_by_its_exec() {
        let (awaited, mut announcer) = pair().unwrap();
        // No process has this number: it is above the limit of Linux.
        announcer.exec(&exec(u32::MAX, b"./gone"), None);
        let first = awaited.first().unwrap();
        assert_eq!((&first.command[..], &first.directory[..], first.uid), (&[b"./gone".to_vec()][..], &b""[..], None));
    }
}
