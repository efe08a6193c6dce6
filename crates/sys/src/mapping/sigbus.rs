//! Lost pages of a mapping: the file was truncated, or the disk failed or was removed.
//!
//! The kernel sends SIGBUS to a thread that accesses such a page, and the program would end before its guards could undo their
//! changes. The handler therefore maps a page of zeros in place of the lost page, and sets a flag of the thread, as systemd's
//! `sigbus.c` does.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    /// Whether this thread has accessed a lost page. A const Cell without destructor may be used in a signal handler.
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// Installs the SIGBUS handler, once. From then on a lost page does not end the program.
pub(super) fn install_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an empty action is valid; the handler below has the signature that SA_SIGINFO requires.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = replace_page as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigemptyset(&raw mut action.sa_mask);
            // It cannot fail for a valid signal; if it did, SIGBUS would keep its default action.
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

/// Whether this thread has accessed a lost page since the last call.
pub(super) fn take_lost() -> bool {
    // The compiler does not know the handler, and must not move the read before the access.
    compiler_fence(Ordering::SeqCst);
    LOST.replace(false)
}

/// The SIGBUS handler. Makes only calls that a signal handler may make.
extern "C" fn replace_page(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`. The page belongs to a mapping whose file has no data there, so no code has read
    // from it. `mmap` with MAP_FIXED replaces it by a readable page of zeros.
    unsafe {
        let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let page = ((*info).si_addr() as usize & !(page_bytes - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let is_fault = (*info).si_code == libc::BUS_ADRERR;
        if !is_fault || libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED {
            // Not a lost page: the default action follows when the access is repeated.
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
    }
    LOST.set(true);
}
