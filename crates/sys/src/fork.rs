//! A copy of this process that does one piece of work and exits: what a worker that may wait for a dead device for ever needs.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::process::Pid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Forks a child that runs `work` with the descriptors `kept` and exits, with status 0, or 1 after a panic.
///
/// The child has our memory and our blocked signals. Its standard input and output are /dev/null, its standard error is `errors`, and it
/// has no other descriptor of ours than `kept`: `work` must own none.
///
/// Errors: there is more than one thread (a copy without the others might wait for ever for a lock that one of them holds); the fork
/// failed.
pub fn fork_worker(kept: [OwnedFd; 2], errors: OwnedFd, work: impl FnOnce([OwnedFd; 2])) -> Result<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|e| Error::io("count the threads", e))?.count();
    if threads != 1 {
        return Err(Error::io("fork a worker", io::Error::other(format!("there are {threads} threads"))));
    }
    // SAFETY: there is no other thread, so that no lock that the child may need is held by a thread that it does not have.
    match unsafe { libc::fork() } {
        -1 => Err(Error::io("fork a worker", io::Error::last_os_error())),
        0 => {
            redirect_streams(Some(errors.as_fd()));
            close_all_but([kept[0].as_raw_fd(), kept[1].as_raw_fd()]);
            // Closed above.
            std::mem::forget(errors);
            run(|| work(kept))
        }
        pid => Ok(Pid::from_raw(pid).expect("fork returned a positive process number")),
    }
}

/// The worker's whole life. Nothing that the caller of [`fork_worker`] does afterwards, or at its exit, is done here.
fn run(work: impl FnOnce()) -> ! {
    let done = catch_unwind(AssertUnwindSafe(work));
    // The parent must not wait for messages of a thread of ours that waits for a device.
    redirect_streams(None);
    // SAFETY: ends the process; handlers that run at an exit are the parent's.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Makes the standard streams /dev/null, or standard error `errors`. Where there is no /dev/null (chroot) all become `errors`:
/// nothing of the caller stays open.
fn redirect_streams(errors: Option<BorrowedFd<'_>>) {
    let null = File::options().read(true).write(true).open("/dev/null").ok();
    let (null, errors) = (null.as_ref().map(AsRawFd::as_raw_fd), errors.map(|fd| fd.as_raw_fd()));
    for (stream, target) in [
        (libc::STDIN_FILENO, null.or(errors)),
        (libc::STDOUT_FILENO, null.or(errors)),
        (libc::STDERR_FILENO, errors.or(null)),
    ] {
        // SAFETY: numbers only, of descriptors that no object of the worker owns.
        unsafe {
            match target {
                Some(target) => libc::dup2(target, stream),
                None => libc::close(stream),
            }
        };
    }
}

/// Closes every descriptor but the standard streams and these.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut first = libc::STDERR_FILENO as u32 + 1;
    let mut closed = true;
    for next in kept.map(|fd| fd as u32).into_iter().chain([u32::MAX]) {
        if first < next {
            // SAFETY: descriptors that no object of the worker owns: `work` owns none.
            closed &=
                unsafe { libc::syscall(libc::SYS_close_range, first, next - u32::from(next != u32::MAX), 0) } == 0;
        }
        first = next.saturating_add(1);
    }
    // Before Linux 5.9, or where a container forbids the call.
    if !closed {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        let open: Vec<RawFd> = open.filter(|fd| *fd > libc::STDERR_FILENO && !kept.contains(fd)).collect();
        for fd in open {
            // SAFETY: as above; the directory's own descriptor is closed already, and that is no error.
            unsafe { libc::close(fd) };
        }
    }
}
