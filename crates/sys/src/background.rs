//! Threads of a library in another program: they receive none of the program's signals.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::thread::Builder;

/// Stack of such a thread, bytes: it makes system calls, and perhaps writes a line to a log.
const STACK_BYTES: usize = 256 << 10;

/// Memory that must be left beside the stack, bytes: variables of the thread, the first block of its allocator, its guard pages.
const BESIDE_STACK_BYTES: usize = 1 << 20;

/// Starts a thread in which all signals are blocked: a handler of the program never runs there, and a signal that should interrupt the program does
/// not end up there. The thread is not joined.
///
/// Errors: those of the start of a thread; `EAGAIN` if there are too many, or little memory.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    if !has_memory() {
        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
    }
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call fills the set that the second one reads; the second one fills `before`. A new thread inherits the mask.
    let is_blocked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let started = Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop);
    if is_blocked {
        // SAFETY: the call above has filled the set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    started
}

/// Whether there is room for a stack, and for what a new thread needs beside it: the C library ends the process if it finds none.
fn has_memory() -> bool {
    let bytes = STACK_BYTES + BESIDE_STACK_BYTES;
    // SAFETY: a new mapping, which nothing else uses, is made and removed.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let room = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0);
        room != libc::MAP_FAILED && libc::munmap(room, bytes) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_blocked(signal: i32) -> bool {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the call fills the set, and changes no mask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn only_the_new_thread_blocks_signals() {
        let (sender, receiver) = std::sync::mpsc::channel();
        spawn("test", move || sender.send(is_blocked(libc::SIGTERM)).unwrap()).unwrap();
        assert!(receiver.recv().unwrap() && !is_blocked(libc::SIGTERM));
    }
}
