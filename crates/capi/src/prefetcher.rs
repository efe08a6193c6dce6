//! `ahead_prefetcher`: files in an order that the program knows.
//!
//! ```text
//!     ahead_prefetcher_next ──▶ Prefetcher::next ──▶ Callback::next ──▶ the program's function, up to 4,096 items ahead
//!              │                                                        in the same thread
//!              ▼
//!        key of the item
//! ```

use crate::budget::{Budget, budget_or_default};
use crate::errors::{Errno, Guarded, free, hand_out, handle, status};
use crate::reader::path_of;
use crate::sized::{Extensible, read_options, write_counters};
use ahead_read::prefetcher::{Item, Window};
use ahead_sys::reserve;
use libc::size_t;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use std::{ptr, slice};

/// Reads files ahead in an order that the program knows.
///
/// The program takes each item with ahead_prefetcher_next() before it reads the file, by whichever means. Files of the next items are read
/// into the page cache meanwhile. Files that are missing or unreadable are skipped: the program gets the error when it opens them.
///
/// Threads: a prefetcher may be used by one thread at a time; different prefetchers by different threads at the same time.
pub struct Prefetcher(Guarded<Entries>);

impl From<Guarded<Entries>> for Prefetcher {
    fn from(entries: Guarded<Entries>) -> Prefetcher {
        Prefetcher(entries)
    }
}

/// A file, or a range of one, that the program is going to read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileItem {
    /// The file. NULL: there is nothing to read for this item. Symbolic links are followed, and a relative path starts in the current directory.
    pub path: *const c_char,
    /// First byte.
    pub offset: u64,
    /// Bytes. 0: to the end of the file.
    pub length: u64,
    /// Value of the program, which ahead_prefetcher_next() gives back.
    pub key: *mut c_void,
    /// 0: for later versions.
    pub reserved: [u64; 2],
}

/// A function of the program that gives the next item.
///
/// It is called by ahead_prefetcher_next(), in the thread of that call, up to 4096 items ahead of what is taken. All fields of `item` are 0
/// before the call. The path is copied before the next call. The function must not call the library with the same prefetcher, and no C++
/// exception may leave it: the process would be aborted.
///
/// Returns 1: `item` is filled. 0: there are no more items. A negative errno: no more items, and ahead_prefetcher_next() returns the error
/// after the items before it.
pub type NextItem = Option<unsafe extern "C" fn(context: *mut c_void, item: *mut FileItem) -> c_int>;

/// Options of a prefetcher. A field that is 0 or NULL has its default.
///
/// At most one of the windows is set. Without, it is 32 MiB.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PrefetcherOptions {
    /// sizeof(ahead_prefetcher_options): fields may be added at the end in later versions.
    pub size: size_t,
    /// Limit of the memory for read-ahead. NULL: the default budget of the process.
    pub budget: *const Budget,
    /// Window: bytes that are read ahead of the item that was taken last.
    pub window_bytes: u64,
    /// Window: items, at most 4096.
    pub window_items: u64,
    /// Window: the items that the program takes in this time, microseconds.
    pub window_us: u64,
    /// Largest number of threads that read ahead. 0: 8. They are started as needed.
    pub threads: u32,
    /// 0: for later versions.
    pub flags: u32,
}

// SAFETY: numbers, and a pointer that may be null.
unsafe impl Extensible for PrefetcherOptions {
    const FIRST_BYTES: usize = size_of::<PrefetcherOptions>();
}

/// What became of the items of a prefetcher so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PrefetcherCounters {
    /// sizeof(ahead_prefetcher_counters), set by the caller: fields may be added at the end in later versions.
    pub size: size_t,
    /// Items that the program has taken.
    pub items: u64,
    /// Items whose read-ahead was requested completely before they were taken; for large items, their first part.
    pub prefetched_items: u64,
    /// Bytes requested, in whole pages.
    pub prefetched_bytes: u64,
    /// Items that were found cached completely.
    pub cached_items: u64,
    /// Items without a readable regular file.
    pub skipped: u64,
    /// Items that were taken while they were looked up or requested.
    pub late: u64,
    /// Items that were taken before their read-ahead was started. It was not started any more.
    pub consumed_before_start: u64,
    /// Items that were not checked because those that were checked around them were cached.
    pub unchecked: u64,
}

// SAFETY: numbers only.
unsafe impl Extensible for PrefetcherCounters {
    const FIRST_BYTES: usize = size_of::<PrefetcherCounters>();
}

/// A value of the program that is only stored.
struct Key(*mut c_void);

// SAFETY: the address is never used but given back to the program.
unsafe impl Send for Key {}

/// An item with its key. The item is moved out when it is handed over.
struct PrefetcherEntry {
    key: Key,
    item: Cell<Option<Item>>,
}

impl PrefetcherEntry {
    /// # Safety
    /// The path is null or a string.
    unsafe fn new(given: &FileItem) -> Result<PrefetcherEntry, Errno> {
        if given.reserved != [0; 2] {
            return Err(Errno::TOO_NEW);
        }
        let end = match given.length {
            0 => u64::MAX,
            length => given.offset.saturating_add(length),
        };
        let range = Some(given.offset..end).filter(|range| *range != (0..u64::MAX));
        if reserve::is_low() {
            return Err(Errno::NO_MEMORY);
        }
        let item = match given.path.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(Item::try_new(Path::new(unsafe { path_of(given.path) }?), range)?),
        };
        Ok(PrefetcherEntry { key: Key(given.key), item: Cell::new(item) })
    }
}

/// The items, and the error that ends them.
pub(crate) struct Entries {
    prefetcher: ahead_read::prefetcher::Prefetcher<PrefetcherEntry>,
    /// Error of the program's function, or of an item: negative errno, 0: none.
    error: Arc<AtomicI32>,
}

impl Entries {
    fn new(
        entries: impl Iterator<Item = PrefetcherEntry> + Send + 'static,
        error: Arc<AtomicI32>,
        options: ahead_read::prefetcher::PrefetcherOptions,
    ) -> Entries {
        let resolve = |entry: &PrefetcherEntry| entry.item.take();
        Entries { prefetcher: ahead_read::prefetcher::Prefetcher::of_keys(entries, resolve, options), error }
    }

    /// 1 and the key of the next item, 0 at the end, or the negative errno that ends the items, once.
    fn next(&mut self) -> (c_int, *mut c_void) {
        match self.prefetcher.next() {
            Some(entry) => (1, entry.key.0),
            None => (self.error.swap(0, Ordering::Relaxed), ptr::null_mut()),
        }
    }
}

/// The program's function as an iterator.
struct Callback {
    next: unsafe extern "C" fn(*mut c_void, *mut FileItem) -> c_int,
    context: *mut c_void,
    error: Arc<AtomicI32>,
}

// SAFETY: the function is called by `ahead_prefetcher_next` only, in the thread of the program that calls it.
unsafe impl Send for Callback {}

impl Iterator for Callback {
    type Item = PrefetcherEntry;

    fn next(&mut self) -> Option<PrefetcherEntry> {
        let nothing = FileItem { path: ptr::null(), offset: 0, length: 0, key: ptr::null_mut(), reserved: [0; 2] };
        let mut item = nothing;
        // SAFETY: by the contract of the header the function may be called with its context and an item to fill.
        let answer = unsafe { (self.next)(self.context, &raw mut item) };
        let entry = match answer {
            // SAFETY: by the contract of the header the path is null or a string.
            1 => unsafe { PrefetcherEntry::new(&item) },
            0 => return None,
            errno if errno < 0 => return self.end(errno),
            _ => Err(Errno::INVALID),
        };
        entry.map_or_else(|errno| self.end(errno.negative()), Some)
    }
}

impl Callback {
    fn end(&self, errno: c_int) -> Option<PrefetcherEntry> {
        self.error.store(errno, Ordering::Relaxed);
        None
    }
}

/// The options of the Rust prefetcher.
///
/// # Safety
/// As for [`read_options`]; the budget is null, or not freed.
unsafe fn options_of(options: *const PrefetcherOptions) -> Result<ahead_read::prefetcher::PrefetcherOptions, Errno> {
    // SAFETY: the caller's promise.
    let given = unsafe { read_options(options) }?;
    let window = match (given.window_bytes, given.window_items, given.window_us) {
        (0, 0, 0) => Window::default(),
        (bytes, 0, 0) => Window::Bytes(bytes),
        (0, items, 0) => Window::Items(usize::try_from(items).unwrap_or(usize::MAX)),
        (0, 0, us) => Window::Time(Duration::from_micros(us)),
        _ => return Err(Errno::INVALID),
    };
    if given.flags != 0 {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let budget = unsafe { budget_or_default(given.budget) }?;
    let threads = given.threads as usize;
    Ok(ahead_read::prefetcher::PrefetcherOptions::default().window(window).budget(budget).threads(threads))
}

/// Makes a prefetcher whose items come from a function of the program.
///
/// Nothing is read ahead before the first item is taken.
///
/// @param next  gives the next item.
/// @param context  is passed to `next`.
/// @param options  options, or NULL: the defaults.
/// @param out  receives the prefetcher, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `next` or `out` is NULL, two windows are given, or the options have an unknown value.
/// - E2BIG: the options have a field that this version of the library does not know.
/// - ENOMEM: there is too little memory.
///
/// Threads: any thread, at any time. `next` is called by ahead_prefetcher_next() only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_prefetcher_new(
    next: NextItem,
    context: *mut c_void,
    options: *const PrefetcherOptions,
    out: *mut *mut Prefetcher,
) -> c_int {
    let make = || {
        let next = next.ok_or(Errno::INVALID)?;
        // SAFETY: by the contract of the header they are null or valid.
        let options = unsafe { options_of(options) }?;
        let error = Arc::new(AtomicI32::new(0));
        Ok(Entries::new(Callback { next, context, error: error.clone() }, error, options))
    };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { hand_out(out, make) }
}

/// Makes a prefetcher of a list of items.
///
/// The list and its paths are copied. Nothing is read ahead before the first item is taken.
///
/// @param items  the items, in the order in which the program will read them. NULL is permitted if `count` is 0.
/// @param count  number of items.
/// @param options  options, or NULL: the defaults.
/// @param out  receives the prefetcher, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `out` is NULL, `items` is NULL and `count` is not 0, `count` items are longer than any memory, two windows are given, or the
///   options have an unknown value.
/// - E2BIG: the options have a field, or an item has a value, that this version of the library does not know.
/// - ENOMEM: there is too little memory.
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_prefetcher_of_items(
    items: *const FileItem,
    count: size_t,
    options: *const PrefetcherOptions,
    out: *mut *mut Prefetcher,
) -> c_int {
    let make = || {
        // SAFETY: by the contract of the header they are null or valid.
        let options = unsafe { options_of(options) }?;
        let given: &[FileItem] = match (items.is_null(), count) {
            (_, 0) => &[],
            (true, _) => return Err(Errno::INVALID),
            // More than any memory has.
            (false, count) if count > isize::MAX as usize / size_of::<FileItem>() => return Err(Errno::INVALID),
            // SAFETY: by the contract of the header there are `count` items.
            (false, _) => unsafe { slice::from_raw_parts(items, count) },
        };
        let mut entries = Vec::new();
        entries.try_reserve_exact(given.len())?;
        for item in given {
            // SAFETY: by the contract of the header each path is null or a string.
            entries.push(unsafe { PrefetcherEntry::new(item) }?);
        }
        Ok(Entries::new(entries.into_iter(), Arc::default(), options))
    };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { hand_out(out, make) }
}

/// Takes the next item: the program reads it now, and has read the items before it.
///
/// Items come in their order, each once. The call never waits for a file, except on a rotating disk: there it waits, within a sweep of the
/// disk, for the request of its item. An item that was not read ahead yet is read by the program as without a prefetcher.
///
/// @param key  receives the key of the item, or NULL if there is none. May be NULL.
///
/// Returns 1 if an item was taken, 0 after the last item, or a negative errno:
/// - EINVAL: `prefetcher` is NULL, or the program's function has returned an unknown value.
/// - E2BIG: the program's function has set a reserved field of an item.
/// - ENOMEM: there is too little memory; a later call tries again, unless the copy of an item has failed: that ends the items.
/// - The error that the program's function has returned: once, after the items before it.
///
/// Threads: one thread at a time uses a prefetcher; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_prefetcher_next(prefetcher: *mut Prefetcher, key: *mut *mut c_void) -> c_int {
    // SAFETY: by the contract of the header it is null, or a prefetcher that no other call uses.
    let taken = unsafe { handle(prefetcher) }.and_then(|prefetcher| prefetcher.0.call_mut(|items| Ok(items.next())));
    let (answer, of_item) = taken.unwrap_or_else(|errno| (errno.negative(), ptr::null_mut()));
    if !key.is_null() {
        // SAFETY: by the contract of the header a key that is not null may be written.
        unsafe { key.write(of_item) };
    }
    answer
}

/// Gets what became of the items of a prefetcher so far.
///
/// @param counters  receives the counters. The caller sets its field `size`.
///
/// Returns 0, or a negative errno:
/// - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
/// - E2BIG: `size` exceeds 4096.
///
/// Threads: one thread at a time uses a prefetcher; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_prefetcher_get_counters(
    prefetcher: *const Prefetcher,
    counters: *mut PrefetcherCounters,
) -> c_int {
    // SAFETY: by the contract of the header it is null, or a prefetcher that no other call uses.
    let seen = unsafe { handle(prefetcher) };
    let seen = seen.and_then(|prefetcher| prefetcher.0.look(|items| Ok(items.prefetcher.counters())));
    // SAFETY: by the contract of the header `counters` is null, or as long as its size says.
    status(seen.and_then(|seen| unsafe { write_counters(counters, &counters_of(&seen)) }))
}

fn counters_of(seen: &ahead_read::prefetcher::Counters) -> PrefetcherCounters {
    PrefetcherCounters {
        size: 0,
        items: seen.items,
        prefetched_items: seen.prefetched_items,
        prefetched_bytes: seen.prefetched_bytes,
        cached_items: seen.cached_items,
        skipped: seen.skipped,
        late: seen.late,
        consumed_before_start: seen.consumed_before_start,
        unchecked: seen.unchecked,
    }
}

/// Ends the read-ahead of a prefetcher and frees it. Returns at once; requests that the kernel has accepted are carried out.
///
/// @param prefetcher  a prefetcher, or NULL: nothing is done.
///
/// Threads: when no other call uses the prefetcher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_prefetcher_free(prefetcher: *mut Prefetcher) {
    // SAFETY: by the contract of the header it was made by this library and is not used any more.
    unsafe { free(prefetcher) };
}
