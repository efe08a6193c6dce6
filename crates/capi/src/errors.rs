//! What a C function returns: 0 or a size, or a negative errno. No panic leaves the library.
//!
//! ```text
//!     Ok(value) ─────────────────────────────▶ value
//!     io::Error ── its errno, or by kind ────▶ -errno
//!     panic ─────▶ the handle is unusable ───▶ -ENOTRECOVERABLE, also from each later call with the handle
//!     used by another call now ──────────────▶ -EBUSY, where a handle is for one thread at a time
//!     little memory, at the begin of a call ─▶ -ENOMEM: a call that has begun has what it needs ([`ahead_sys::reserve`])
//! ```

use ahead_sys::reserve;
use std::cell::UnsafeCell;
use std::collections::TryReserveError;
use std::error::Error;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// An error number of errno.h, positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(c_int);

impl Errno {
    /// A null pointer, an unknown value, or a combination of values without meaning.
    pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
    /// A number that is no file descriptor.
    pub(crate) const NO_DESCRIPTOR: Errno = Errno(libc::EBADF);
    /// A path that no kernel takes.
    pub(crate) const NAME_TOO_LONG: Errno = Errno(libc::ENAMETOOLONG);
    /// Another call uses the handle: of another thread, of a function of the program that the library calls, or of a thread that a forked child
    /// does not have.
    pub(crate) const BUSY: Errno = Errno(libc::EBUSY);
    /// There is too little memory.
    pub(crate) const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    /// Options of a newer library that this one does not know.
    pub(crate) const TOO_NEW: Errno = Errno(libc::E2BIG);
    /// A panic: a defect of the library. The state of the handle is unknown.
    pub(crate) const PANIC: Errno = Errno(libc::ENOTRECOVERABLE);

    /// As a C function returns it.
    pub(crate) fn negative(self) -> c_int {
        -self.0
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        if let Some(errno) = errno_in(&error) {
            return Errno(errno);
        }
        Errno(match error.kind() {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::PermissionDenied => libc::EACCES,
            ErrorKind::InvalidInput => libc::EINVAL,
            ErrorKind::OutOfMemory => libc::ENOMEM,
            ErrorKind::Unsupported => libc::EOPNOTSUPP,
            ErrorKind::WouldBlock => libc::EAGAIN,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Interrupted => libc::EINTR,
            _ => libc::EIO,
        })
    }
}

impl From<TryReserveError> for Errno {
    fn from(_: TryReserveError) -> Errno {
        Errno::NO_MEMORY
    }
}

/// The error number of a failed system call: that of the error, or of the one that it wraps.
fn errno_in(error: &io::Error) -> Option<c_int> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        let errno = io.and_then(io::Error::raw_os_error);
        if errno.is_some_and(|errno| errno > 0) {
            return errno;
        }
        // `source` of an `io::Error` leaves out the error that it wraps.
        let wrapped = io.and_then(io::Error::get_ref).map(|error| error as &(dyn Error + 'static));
        next = wrapped.or_else(|| error.source());
    }
    None
}

/// Makes a panic an error. The message of the panic goes to standard error, as in every Rust program.
fn caught<T>(call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::PANIC))
}

/// The value behind a handle. After a panic in it, it is only freed.
///
/// Either all calls with a handle are shared ones, or all are exclusive.
pub(crate) struct Guarded<T> {
    value: UnsafeCell<T>,
    /// A call has exclusive access now.
    is_busy: AtomicBool,
    is_unusable: AtomicBool,
}

// SAFETY: shared calls need a value that is `Sync`, and exclusive ones exclude each other and need one that is `Send`.
unsafe impl<T: Send + Sync> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    fn new(value: T) -> Guarded<T> {
        Guarded { value: UnsafeCell::new(value), is_busy: AtomicBool::new(false), is_unusable: AtomicBool::new(false) }
    }

    /// Calls with shared access.
    pub(crate) fn call<R>(&self, call: impl FnOnce(&T) -> Result<R, Errno>) -> Result<R, Errno>
    where
        T: Sync,
    {
        // SAFETY: the handles of this type have no exclusive calls.
        self.caught(|| call(unsafe { &*self.value.get() }))
    }

    /// Calls with exclusive access, if there is memory for what the call makes.
    pub(crate) fn call_mut<R>(&self, call: impl FnOnce(&mut T) -> Result<R, Errno>) -> Result<R, Errno>
    where
        T: Send,
    {
        reserve::check_call()?;
        self.look(call)
    }

    /// Calls with exclusive access, for what makes nothing.
    pub(crate) fn look<R>(&self, call: impl FnOnce(&mut T) -> Result<R, Errno>) -> Result<R, Errno>
    where
        T: Send,
    {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(Errno::BUSY);
        }
        // SAFETY: `is_busy` lets one call at a time in, and the handles of this type have no shared calls.
        let result = self.caught(|| call(unsafe { &mut *self.value.get() }));
        self.is_busy.store(false, Ordering::Release);
        result
    }

    fn caught<R>(&self, call: impl FnOnce() -> Result<R, Errno>) -> Result<R, Errno> {
        if self.is_unusable.load(Ordering::Relaxed) {
            return Err(Errno::PANIC);
        }
        let result = catch_unwind(AssertUnwindSafe(call));
        result.unwrap_or_else(|_| {
            self.is_unusable.store(true, Ordering::Relaxed);
            Err(Errno::PANIC)
        })
    }
}

/// Makes a value and puts its handle into `*out`; null if that fails.
///
/// # Safety
/// `out` is null, or points to a pointer that may be written.
pub(crate) unsafe fn hand_out<H: From<Guarded<T>>, T>(
    out: *mut *mut H,
    make: impl FnOnce() -> Result<T, Errno>,
) -> c_int {
    if out.is_null() {
        return Errno::INVALID.negative();
    }
    let made = caught(|| {
        reserve::check_new()?;
        Ok(Box::new(H::from(Guarded::new(make()?))))
    });
    let (handle, status) = match made {
        Ok(made) => (Box::into_raw(made), 0),
        Err(errno) => (ptr::null_mut(), errno.negative()),
    };
    // SAFETY: it is not null, so the caller's promise holds.
    unsafe { out.write(handle) };
    status
}

/// Frees what [`hand_out`] made. Null is permitted.
///
/// # Safety
/// `handle` is null, or was made by [`hand_out`], is not freed, and no call uses it.
pub(crate) unsafe fn free<H>(handle: *mut H) {
    if !handle.is_null() {
        // SAFETY: `hand_out` made it by `Box::into_raw`, and the caller promises that nothing else refers to it.
        let owned = unsafe { Box::from_raw(handle) };
        // A panic while it is dropped leaves memory allocated, and nothing for the caller to do.
        let _ = caught(|| {
            drop(owned);
            Ok(())
        });
    }
}

/// The handle.
///
/// # Safety
/// `handle` is null, or was made by [`hand_out`], and is not freed during `'a`.
pub(crate) unsafe fn handle<'a, H>(handle: *const H) -> Result<&'a H, Errno> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or(Errno::INVALID)
}

/// 0, or the negative errno.
pub(crate) fn status(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.negative(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Handle(Guarded<u32>);

    impl From<Guarded<u32>> for Handle {
        fn from(value: Guarded<u32>) -> Handle {
            Handle(value)
        }
    }

    #[test]
    fn errors_have_their_errno_or_one_of_their_kind() {
        assert_eq!(Errno::from(io::Error::from_raw_os_error(libc::ESTALE)), Errno(libc::ESTALE));
        assert_eq!(Errno::from(io::Error::from(ErrorKind::UnexpectedEof)), Errno(libc::EIO));
        assert_eq!(Errno::from(io::Error::new(ErrorKind::InvalidInput, "a reason")), Errno(libc::EINVAL));
        let wrapped = io::Error::other(io::Error::from_raw_os_error(libc::ENOTCONN));
        assert_eq!(Errno::from(io::Error::other(wrapped)), Errno(libc::ENOTCONN));
    }

    #[test]
    fn panic_makes_its_handle_unusable_and_a_second_call_meanwhile_is_refused() {
        let mut handles = [ptr::null_mut::<Handle>(); 2];
        for handle in &mut handles {
            // SAFETY: a pointer to a variable.
            assert_eq!(unsafe { hand_out(handle, || Ok(7)) }, 0);
        }
        // SAFETY: made above, and used only here.
        let [first, second] = handles.map(|handle| unsafe { super::handle(handle) }.unwrap());
        assert_eq!(first.0.call_mut(|_| -> Result<(), Errno> { panic!("a panic of this test") }), Err(Errno::PANIC));
        assert_eq!(first.0.call_mut(|value| Ok(*value)), Err(Errno::PANIC));
        assert_eq!(second.0.call_mut(|value| Ok(*value)), Ok(7));
        let busy = second.0.call_mut(|_| Ok(second.0.call_mut(|_| Ok(()))));
        assert_eq!((busy, second.0.call_mut(|_| Ok(()))), (Ok(Err(Errno::BUSY)), Ok(())));
        for handle in handles {
            // SAFETY: made above, and not used any more.
            unsafe { free(handle) };
        }
    }

    #[test]
    fn failed_call_makes_the_handle_null() {
        let mut handle = ptr::NonNull::<Handle>::dangling().as_ptr();
        // SAFETY: a pointer to a variable.
        let status = unsafe { hand_out(&raw mut handle, || Err(Errno::INVALID)) };
        assert_eq!((status, handle.is_null()), (-libc::EINVAL, true));
        // SAFETY: null is permitted.
        assert_eq!(unsafe { hand_out(ptr::null_mut::<*mut Handle>(), || Ok(7)) }, -libc::EINVAL);
        // SAFETY: null is permitted.
        unsafe { free(handle) };
    }
}
