//! `ahead_budget`: memory that read-ahead may hold.

use crate::errors::{Errno, Guarded, free, hand_out, handle};
use std::ffi::c_int;

/// Memory that read-ahead may hold, shared by any number of readers and prefetchers.
///
/// Counted are pages and buffers that were requested and are not consumed yet. Each reader and prefetcher has an equal share, and is always
/// granted one request, so that each of them makes progress.
///
/// Without a budget in their options, all readers and prefetchers of the process share the default budget: 64 MiB, or a quarter of the
/// memory that is available at the first use if that is less.
///
/// Threads: a budget may be used by any number of threads at the same time.
pub struct Budget(Guarded<ahead_read::stream::Budget>);

impl From<Guarded<ahead_read::stream::Budget>> for Budget {
    fn from(budget: Guarded<ahead_read::stream::Budget>) -> Budget {
        Budget(budget)
    }
}

/// The budget behind a field of options; null: the default one of the process.
///
/// # Safety
/// `budget` is null, or a budget that is not freed.
pub(crate) unsafe fn budget_or_default(budget: *const Budget) -> Result<ahead_read::stream::Budget, Errno> {
    if budget.is_null() {
        return Ok(ahead_read::stream::Budget::global());
    }
    // SAFETY: the caller's promise.
    unsafe { handle(budget) }?.0.call(|budget| Ok(budget.clone()))
}

/// Makes a budget.
///
/// Readers and prefetchers keep a reference to the budget of their options, so it may be freed before them.
///
/// @param bytes  size of the budget. A size of less than a page for each reader still grants each of them one request at a time.
/// @param out  receives the budget, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `bytes` is 0, or `out` is NULL.
/// - ENOMEM: there is too little memory.
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_budget_new(bytes: u64, out: *mut *mut Budget) -> c_int {
    let make = || if bytes == 0 { Err(Errno::INVALID) } else { Ok(ahead_read::stream::Budget::new(bytes)) };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { hand_out(out, make) }
}

/// Gets how much of a budget is in use.
///
/// @param budget  a budget, or NULL: the default budget of the process.
///
/// Returns the bytes that readers and prefetchers hold now, or a negative errno. It fails only after a defect of the library
/// (ENOTRECOVERABLE).
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_budget_used_bytes(budget: *const Budget) -> i64 {
    // SAFETY: by the contract of the header `budget` is null, or a budget that is not freed.
    let used = unsafe { budget_or_default(budget) }.map(|budget| budget.used_bytes());
    used.map_or_else(|errno| errno.negative().into(), |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

/// Frees the handle of a budget. Readers and prefetchers that were made with it go on.
///
/// @param budget  a budget, or NULL: nothing is done.
///
/// Threads: when no other call uses the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_budget_free(budget: *mut Budget) {
    // SAFETY: by the contract of the header it was made by `ahead_budget_new` and is not used any more.
    unsafe { free(budget) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn budget_outlives_its_handle() {
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer of a variable; the handle is freed once, after its last use.
        let budget = unsafe {
            assert_eq!(ahead_budget_new(0, &raw mut handle), -libc::EINVAL);
            assert_eq!(ahead_budget_new(1 << 20, &raw mut handle), 0);
            assert_eq!(ahead_budget_used_bytes(handle), 0);
            let budget = budget_or_default(handle).unwrap();
            ahead_budget_free(handle);
            budget
        };
        assert_eq!(budget.bytes(), 1 << 20);
    }
}
