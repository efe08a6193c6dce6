//! A sandbox without io_uring, as container runtimes and browsers have. For tests.

#![allow(unsafe_code)]

use crate::{Error, Result};
use std::io;

/// Offset of `nr`, the number of the system call, in `struct seccomp_data` of linux/seccomp.h.
const NUMBER: u32 = 0;

/// Classic BPF: load a word of the data, compare and jump, return (linux/bpf_common.h).
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Lets `io_uring_setup`, `io_uring_enter` and `io_uring_register` fail with `EPERM`, in all threads of this process and in its children, from now on.
/// This cannot be undone: call it in a child ([`crate::fork::run_in_child`]).
///
/// Errors: the kernel has no seccomp, or another thread has a different filter.
pub fn forbid_io_uring() -> Result<()> {
    let code = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let calls =
        [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register].map(|call| call as u32);
    let mut filter = [
        code(LOAD, 0, 0, NUMBER),
        code(JUMP_IF_EQUAL, 3, 0, calls[0]),
        code(JUMP_IF_EQUAL, 2, 0, calls[1]),
        code(JUMP_IF_EQUAL, 1, 0, calls[2]),
        code(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        code(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call changes a flag of the process. The second one reads the program and the filter, which outlive it; the kernel checks them.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (mode, all_threads) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        libc::syscall(libc::SYS_seccomp, mode, all_threads, &raw const program)
    };
    match installed {
        0 => Ok(()),
        -1 => Err(Error::io("install a seccomp filter", io::Error::last_os_error())),
        thread => {
            Err(Error::io("install a seccomp filter", io::Error::other(format!("thread {thread} has another one"))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::run_in_child;
    use crate::ring::Ring;

    #[test]
    fn child_has_no_io_uring_and_its_parent_keeps_it() {
        let had_ring = Ring::new(2).is_ok();
        let status = run_in_child(|| {
            forbid_io_uring().unwrap();
            assert!(Ring::new(2).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)));
        });
        assert_eq!((status.unwrap(), Ring::new(2).is_ok()), (0, had_ring));
    }
}
