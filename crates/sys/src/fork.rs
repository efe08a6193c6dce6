//! A forked copy of this process that does one piece of work and exits. For work that may block without end on a dead device.

#![allow(unsafe_code)]

use crate::{Error, Result};
use rustix::process::Pid;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Forks a child that runs `work` with the descriptors `kept` and exits: status 0, or 1 after a panic.
///
/// The child has a copy of our memory and our blocked signals. Standard input and output are /dev/null, standard error is
/// `errors`. All other descriptors but `kept` are closed: `work` must own none.
///
/// Errors: this process has more than one thread (in the copy, a lock of another thread would never be released); the fork failed.
pub fn fork_worker(kept: [OwnedFd; 2], errors: OwnedFd, work: impl FnOnce([OwnedFd; 2])) -> Result<Pid> {
    check_single_thread()?;
    // SAFETY: there is no other thread, so no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(Error::io("fork a worker", io::Error::last_os_error())),
        0 => {
            redirect_streams(Some(errors.as_fd()));
            close_all_but([kept[0].as_raw_fd(), kept[1].as_raw_fd()]);
            // `close_all_but` has closed it.
            std::mem::forget(errors);
            run(|| work(kept))
        }
        pid => Ok(Pid::from_raw(pid).expect("fork returned a positive process number")),
    }
}

/// Forks a child that keeps everything, runs `work` and exits: status 0, or 1 after a panic. For a process from [`fork_worker`], which is a template for
/// others.
///
/// Errors: this process has more than one thread; the fork failed.
pub fn fork_copy(work: impl FnOnce()) -> Result<Pid> {
    check_single_thread()?;
    // SAFETY: there is no other thread, so no lock is held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(Error::io("fork a copy", io::Error::last_os_error())),
        0 => run(work),
        pid => Ok(Pid::from_raw(pid).expect("fork returned a positive process number")),
    }
}

fn check_single_thread() -> Result<()> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|e| Error::io("count the threads", e))?.count();
    if threads == 1 {
        return Ok(());
    }
    Err(Error::io("fork a worker", io::Error::other(format!("the process has {threads} threads, not one"))))
}

/// Forks a child that runs `work`, and waits for it. Returns its exit status (1 after a panic), or the number of the signal that ended it, negated.
/// A child that hangs is ended after a minute (`SIGALRM`).
///
/// For tests of what a child of a program with threads may do: only the calling thread exists in it, and locks of others are never released.
///
/// Errors: the fork failed.
pub fn run_in_child(work: impl FnOnce()) -> Result<i32> {
    // SAFETY: memory is copied as it is; a lock that another thread holds can block the child, which is then ended.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(Error::io("fork", io::Error::last_os_error())),
        0 => {
            // SAFETY: sets a timer of the child.
            unsafe { libc::alarm(LONGEST_CHILD_S) };
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends the process; exit handlers belong to the parent.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        child => child,
    };
    let mut status = 0;
    loop {
        // SAFETY: waits for the child made above; the status outlives the call.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            return Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(Error::io("wait for a child", error));
        }
    }
}

/// Time for a child of [`run_in_child`], seconds.
const LONGEST_CHILD_S: u32 = 60;

/// Runs the work and ends the process. Code of the parent after [`fork_worker`], and its exit handlers, do not run here.
fn run(work: impl FnOnce()) -> ! {
    let done = catch_unwind(AssertUnwindSafe(work));
    // The parent must not wait for the standard error of a thread that waits for a device.
    redirect_streams(None);
    // SAFETY: ends the process; exit handlers belong to the parent.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

/// Redirects the standard streams to /dev/null, and standard error to `errors`. Without a /dev/null (chroot) all three become
/// `errors`, so that no stream of the parent stays open.
fn redirect_streams(errors: Option<BorrowedFd<'_>>) {
    let null = File::options().read(true).write(true).open("/dev/null").ok();
    let (null, errors) = (null.as_ref().map(AsRawFd::as_raw_fd), errors.map(|fd| fd.as_raw_fd()));
    for (stream, target) in [
        (libc::STDIN_FILENO, null.or(errors)),
        (libc::STDOUT_FILENO, null.or(errors)),
        (libc::STDERR_FILENO, errors.or(null)),
    ] {
        // SAFETY: numbers only; no object of the worker owns these descriptors.
        unsafe {
            match target {
                Some(target) => libc::dup2(target, stream),
                None => libc::close(stream),
            }
        };
    }
}

/// Closes every descriptor but the standard streams and `kept`.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut first = libc::STDERR_FILENO as u32 + 1;
    let mut closed = true;
    for next in kept.map(|fd| fd as u32).into_iter().chain([u32::MAX]) {
        if first < next {
            // SAFETY: no object of the worker owns these descriptors: `work` owns none.
            closed &=
                unsafe { libc::syscall(libc::SYS_close_range, first, next - u32::from(next != u32::MAX), 0) } == 0;
        }
        first = next.saturating_add(1);
    }
    // Before Linux 5.9, or if a container forbids the call.
    if !closed {
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let open = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        let open: Vec<RawFd> = open.filter(|fd| *fd > libc::STDERR_FILENO && !kept.contains(fd)).collect();
        for fd in open {
            // SAFETY: as above. The descriptor of the directory is closed already; that is not an error.
            unsafe { libc::close(fd) };
        }
    }
}
