//! `ahead_advised`: read-ahead for a mapped region.

use crate::errors::{Errno, Guarded, free, hand_out, handle, status};
use crate::sized::{Extensible, write_counters};
use crate::{AHEAD_BACKWARD, AHEAD_DONTNEED, AHEAD_NORMAL, AHEAD_RANDOM, AHEAD_SEQUENTIAL, AHEAD_WILLNEED};
use ahead_read::advise::Behaviour;
use libc::size_t;
use std::ffi::{c_int, c_void};

/// Read-ahead of a mapped region, until it is freed.
///
/// Threads: a handle may be used by any number of threads at the same time, except to free it.
pub struct Advised(Guarded<ahead_read::advise::Advised>);

impl From<Guarded<ahead_read::advise::Advised>> for Advised {
    fn from(advised: Guarded<ahead_read::advise::Advised>) -> Advised {
        Advised(advised)
    }
}

/// What was done for a region so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AdvisedCounters {
    /// sizeof(ahead_advised_counters), set by the caller: fields may be added at the end in later versions.
    pub size: size_t,
    /// Groups that were requested.
    pub groups: u64,
    /// Groups that were cached when they were due.
    pub cached_groups: u64,
    /// Bytes of all requests, repeated ones included. The kernel skips resident pages.
    pub requested_bytes: u64,
    /// Ranges that were requested again, because they were absent when the reader entered their group.
    pub retried: u64,
    /// Waits of the reader for requests, at most one for each group. Always 0 if the user neither owns nor may write the file.
    pub waits: u64,
    /// Duration of these waits as far as the library has seen them, microseconds.
    pub waited_us: u64,
    /// Looks of the library at the region.
    pub looks: u64,
    /// How far ahead of the reader requests may end now, bytes.
    pub distance_bytes: u64,
}

// SAFETY: numbers only.
unsafe impl Extensible for AdvisedCounters {
    const FIRST_BYTES: usize = size_of::<AdvisedCounters>();
}

/// Reads ahead in a mapping of a file, as the program will use it.
///
/// Groups of pages are requested before the program touches them, also while it touches pages that are cached. The program never waits for a
/// request. The library sees how far the program is by the pages that become mapped; a program that knows it better calls
/// ahead_advised_progress(). The kernel's read-ahead for this mapping is off until the handle is freed; then its advice is MADV_NORMAL.
///
/// AHEAD_NORMAL leaves the mapping to the kernel. AHEAD_RANDOM has each access read its page only. AHEAD_WILLNEED requests all of it in the
/// background, up to half of the available memory. AHEAD_DONTNEED makes its pages the first that the kernel reclaims; no data is lost.
///
/// One region has one reader: several readers of a mapping advise on a part each. The library never reads or writes the region. It may be
/// unmapped before the handle is freed: the read-ahead ends.
///
/// @param addr  first byte of the region. It need not be at the beginning of a page.
/// @param length  size of the region, bytes. 0: nothing is done.
/// @param behaviour  AHEAD_NORMAL, AHEAD_RANDOM, AHEAD_SEQUENTIAL, AHEAD_WILLNEED, AHEAD_DONTNEED or AHEAD_BACKWARD.
/// @param pages  size of a group, pages, at most 16384. 0: the size adapts to the time for which the program waits.
/// @param out  receives the handle, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `addr` or `out` is NULL, `behaviour` is unknown, or a part of the region is not a mapped file.
/// - EAGAIN: no thread can be started.
/// - ENOMEM: the process has too many mappings, or there is too little memory.
/// - Other errors of madvise(2).
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_advise(
    addr: *const c_void,
    length: size_t,
    behaviour: c_int,
    pages: size_t,
    out: *mut *mut Advised,
) -> c_int {
    let behaviour = match behaviour {
        AHEAD_NORMAL => Some(Behaviour::Normal),
        AHEAD_RANDOM => Some(Behaviour::Random),
        AHEAD_SEQUENTIAL => Some(Behaviour::Sequential),
        AHEAD_WILLNEED => Some(Behaviour::WillNeed),
        AHEAD_DONTNEED => Some(Behaviour::DontNeed),
        AHEAD_BACKWARD => Some(Behaviour::Backward),
        _ => None,
    };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { advise(addr, length, behaviour, pages, out) }
}

/// Reads ahead in a mapping whose pages are used at equal distances.
///
/// As ahead_advise(), for columns of a table, or one plane of an image.
///
/// @param addr  first byte of the region.
/// @param length  size of the region, bytes. 0: nothing is done.
/// @param stride_bytes  distance between the beginnings of two accesses, bytes; negative: downwards. The first access is to the first record
/// in this direction.
/// @param pages  size of a group, pages, at most 16384. 0: the size adapts to the time for which the program waits.
/// @param out  receives the handle, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `addr` or `out` is NULL, `stride_bytes` is 0, or a part of the region is not a mapped file.
/// - EAGAIN: no thread can be started.
/// - ENOMEM: the process has too many mappings, or there is too little memory.
/// - Other errors of madvise(2).
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_advise_stride(
    addr: *const c_void,
    length: size_t,
    stride_bytes: i64,
    pages: size_t,
    out: *mut *mut Advised,
) -> c_int {
    let behaviour = Some(Behaviour::Stride { bytes: stride_bytes }).filter(|_| stride_bytes != 0);
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { advise(addr, length, behaviour, pages, out) }
}

/// # Safety
/// `out` is null, or points to a pointer that may be written.
unsafe fn advise(
    addr: *const c_void,
    length: size_t,
    behaviour: Option<Behaviour>,
    pages: size_t,
    out: *mut *mut Advised,
) -> c_int {
    let make = || {
        let behaviour = behaviour.filter(|_| !addr.is_null()).ok_or(Errno::INVALID)?;
        Ok(ahead_read::advise::advise_raw(addr.addr(), length, behaviour, pages)?)
    };
    // SAFETY: the caller's promise.
    unsafe { hand_out(out, make) }
}

/// Reports how far the program is in the region.
///
/// Without this call the library finds it by the pages that become mapped; the first call ends that search for this region. It costs two
/// stores, and a system call when another group begins. In a child of fork(2), the first call starts the read-ahead there.
///
/// @param advised  a handle, or NULL: nothing is done.
/// @param offset  offset in the region of what the program uses now, bytes.
///
/// Threads: any number of threads at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_advised_progress(advised: *const Advised, offset: size_t) {
    // SAFETY: by the contract of the header it is null, or a handle that is not freed.
    let result = unsafe { handle(advised) }.and_then(|advised| {
        advised.0.call(|advised| {
            advised.progress(offset);
            Ok(())
        })
    });
    // Progress is a hint: without it the read-ahead goes on by the mapped pages.
    let _ = result;
}

/// Gets what was done for a region so far.
///
/// @param counters  receives the counters. The caller sets its field `size`.
///
/// Returns 0, or a negative errno:
/// - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
/// - E2BIG: `size` exceeds 4096.
///
/// Threads: any number of threads at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_advised_get_counters(advised: *const Advised, counters: *mut AdvisedCounters) -> c_int {
    // SAFETY: by the contract of the header it is null, or a handle that is not freed.
    let seen = unsafe { handle(advised) }.and_then(|advised| advised.0.call(|advised| Ok(advised.counters())));
    // SAFETY: by the contract of the header `counters` is null, or as long as its size says.
    status(seen.and_then(|seen| unsafe { write_counters(counters, &counters_of(&seen)) }))
}

fn counters_of(seen: &ahead_read::advise::Counters) -> AdvisedCounters {
    AdvisedCounters {
        size: 0,
        groups: seen.groups,
        cached_groups: seen.cached_groups,
        requested_bytes: seen.requested_bytes,
        retried: seen.retried,
        waits: seen.waits,
        waited_us: seen.waited_us,
        looks: seen.looks,
        distance_bytes: seen.distance_bytes,
    }
}

/// Ends the read-ahead of a region, and puts the kernel's advice for it back to MADV_NORMAL.
///
/// @param advised  a handle, or NULL: nothing is done.
///
/// Threads: when no other call uses the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_advised_free(advised: *mut Advised) {
    // SAFETY: by the contract of the header it was made by this library and is not used any more.
    unsafe { free(advised) };
}

/// Several threads of a program may report their progress.
const _: fn() = || {
    fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Advised>();
};
