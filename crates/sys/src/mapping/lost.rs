//! Pages of a mapping that cannot be had: the file was made shorter, the disk failed or was taken away.
//!
//! The kernel answers such a touch with SIGBUS, which would end the program before a guard could take back what it has changed.
//! So a page of zeros is put in the place of the one that is lost, and the thread that has touched it is told (as systemd's
//! `sigbus.c` does).

#![allow(unsafe_code)]

use std::cell::Cell;
use std::sync::Once;
use std::sync::atomic::{Ordering, compiler_fence};

thread_local! {
    /// Whether this thread has touched a lost page. Without destructor and initialiser it may be used in a signal's handler.
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// From now on a lost page does not end the program.
pub(super) fn survive() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an empty action is a valid one; the handler below has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = replace_page as extern "C" fn(_, _, _) as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigemptyset(&raw mut action.sa_mask);
            // It fails for no signal that there is; then all is as it was.
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
}

/// Whether this thread has touched a lost page since it was last asked.
pub(super) fn was_touched() -> bool {
    // The compiler knows nothing of the handler, and must not look before the touch.
    compiler_fence(Ordering::SeqCst);
    LOST.replace(false)
}

/// What SIGBUS does: only calls that a handler may make.
extern "C" fn replace_page(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `info`. The page is one of a mapping whose file has nothing there, so that nobody can have
    // read anything from it; `mmap` with MAP_FIXED puts a page of zeros in its place, which can be read by whoever touches it next.
    unsafe {
        let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let page = ((*info).si_addr() as usize & !(page_bytes - 1)) as *mut libc::c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let is_fault = (*info).si_code == libc::BUS_ADRERR;
        if !is_fault || libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) == libc::MAP_FAILED {
            // Not ours: what would have happened happens when the touch is tried again.
            libc::signal(signal, libc::SIG_DFL);
            return;
        }
    }
    LOST.set(true);
}
