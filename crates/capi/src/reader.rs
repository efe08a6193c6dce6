//! `ahead_reader`: a file that is read with read-ahead.

use crate::budget::{Budget, budget_or_default};
use crate::errors::{Errno, Guarded, free, hand_out, handle, status};
use crate::sized::{Extensible, read_options, write_counters};
use crate::{AHEAD_BACKWARD, AHEAD_NORMAL, AHEAD_RANDOM, AHEAD_SEQUENTIAL, AHEAD_STRIDE};
use ahead_read::stream::Pattern;
use ahead_sys::reserve;
use libc::{size_t, ssize_t};
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::slice;

/// Flag of ahead_reader_options: read past the page cache (O_DIRECT), where the file system permits it.
///
/// What was read ahead is dropped when the file was changed since (its size, mtime or ctime is another one), so that a read returns what a write
/// has written that ended before the read. Two exceptions: a direct write (O_DIRECT) that began before the read ahead and ended after it; and
/// changes by other machines, which the file system sees late. Each read makes a call of fstat(2).
pub const AHEAD_READER_DIRECT: u32 = 1;

/// A file that is read with read-ahead.
///
/// The reader finds the order of the reads (forward with small gaps, backward, equal distances) and reads ahead in it. It reads further
/// ahead only when the program had to wait. A file that is not regular (a pipe, a terminal) is read without read-ahead.
///
/// Threads: a reader may be used by one thread at a time; different readers by different threads at the same time.
pub struct Reader(Guarded<ahead_read::stream::Reader>);

impl From<Guarded<ahead_read::stream::Reader>> for Reader {
    fn from(reader: Guarded<ahead_read::stream::Reader>) -> Reader {
        Reader(reader)
    }
}

/// Options of a reader. A field that is 0 or NULL has its default.
///
/// C: `ahead_reader_options options = {.size = sizeof options};`
/// C++: `ahead_reader_options options = {}; options.size = sizeof options;`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReaderOptions {
    /// sizeof(ahead_reader_options): fields may be added at the end in later versions.
    pub size: size_t,
    /// Limit of the memory for read-ahead. NULL: the default budget of the process.
    pub budget: *const Budget,
    /// Largest distance between the reader and the end of what is read ahead, bytes. 0: 16 MiB.
    pub largest_distance_bytes: u64,
    /// Distance between the beginnings of two reads, bytes; negative: downwards. For the pattern AHEAD_STRIDE only, else 0.
    pub stride_bytes: i64,
    /// Order of the reads. AHEAD_NORMAL (0): it is found from the reads. AHEAD_SEQUENTIAL, AHEAD_BACKWARD, AHEAD_STRIDE, AHEAD_RANDOM: this
    /// order, whatever the reads are.
    pub pattern: i32,
    /// 0, or AHEAD_READER_DIRECT.
    pub flags: u32,
}

// SAFETY: numbers, and a pointer that may be null.
unsafe impl Extensible for ReaderOptions {
    const FIRST_BYTES: usize = size_of::<ReaderOptions>();
}

/// What a reader has done so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ReaderCounters {
    /// sizeof(ahead_reader_counters), set by the caller: fields may be added at the end in later versions.
    pub size: size_t,
    /// Reads of the program.
    pub reads: u64,
    /// Bytes that the program has received.
    pub bytes: u64,
    /// Waits for the device. In a file system that cannot tell: calls that took longer than 100 us.
    pub waits: u64,
    /// Time of these waits, microseconds.
    pub waited_us: u64,
    /// Requests to read ahead.
    pub requests: u64,
    /// Bytes that were requested ahead.
    pub requested_bytes: u64,
    /// Requests that were not submitted, because their pages were cached already.
    pub cached_requests: u64,
    /// Bytes that were requested, and given up because the program went elsewhere, or the file changed.
    pub abandoned_bytes: u64,
    /// How far ahead of the reader requests may end now, bytes.
    pub distance_bytes: u64,
    /// 1: the file is read past the page cache. 0 in spite of AHEAD_READER_DIRECT: the file system refuses it.
    pub is_direct: u64,
}

// SAFETY: numbers only.
unsafe impl Extensible for ReaderCounters {
    const FIRST_BYTES: usize = size_of::<ReaderCounters>();
}

/// The options of the Rust reader.
///
/// # Safety
/// As for [`read_options`]; the budget is null, or not freed.
unsafe fn options_of(options: *const ReaderOptions) -> Result<ahead_read::stream::ReaderOptions, Errno> {
    // SAFETY: the caller's promise.
    let given = unsafe { read_options(options) }?;
    if given.flags & !AHEAD_READER_DIRECT != 0 || (given.stride_bytes != 0) != (given.pattern == AHEAD_STRIDE) {
        return Err(Errno::INVALID);
    }
    let pattern = match given.pattern {
        AHEAD_NORMAL => None,
        AHEAD_RANDOM => Some(Pattern::Random),
        AHEAD_SEQUENTIAL => Some(Pattern::Sequential),
        AHEAD_BACKWARD => Some(Pattern::Backward),
        AHEAD_STRIDE => Some(Pattern::Stride(given.stride_bytes)),
        _ => return Err(Errno::INVALID),
    };
    // SAFETY: the caller's promise.
    let budget = unsafe { budget_or_default(given.budget) }?;
    let direct = given.flags & AHEAD_READER_DIRECT != 0;
    let options = ahead_read::stream::ReaderOptions::default().budget(budget).pattern(pattern).direct(direct);
    Ok(match given.largest_distance_bytes {
        0 => options,
        bytes => options.largest_distance_bytes(bytes),
    })
}

/// Opens a file for reading with read-ahead.
///
/// @param path  the file. Symbolic links are followed.
/// @param options  options, or NULL: the defaults.
/// @param out  receives the reader, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EINVAL: `path` or `out` is NULL, or the options have an unknown value.
/// - E2BIG: the options have a field that this version of the library does not know.
/// - ENOMEM: there is too little memory.
/// - ENOENT, EACCES, EMFILE and other errors of open(2).
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_open(
    path: *const c_char,
    options: *const ReaderOptions,
    out: *mut *mut Reader,
) -> c_int {
    let make = || {
        // SAFETY: by the contract of the header `path` is null, or a string.
        let path = unsafe { path_of(path) }?;
        if path.len() > reserve::LONGEST_PATH_BYTES {
            return Err(Errno::NAME_TOO_LONG);
        }
        // SAFETY: by the contract of the header they are null or valid.
        let options = unsafe { options_of(options) }?;
        Ok(ahead_read::stream::Reader::open_with(path, options)?)
    };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { hand_out(out, make) }
}

/// The path in a string of C.
///
/// # Safety
/// `path` is null, or a string that ends with a null byte and is not changed during `'a`.
pub(crate) unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a OsStr, Errno> {
    if path.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    Ok(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()))
}

/// Makes a reader of an open file.
///
/// The descriptor is duplicated: the caller closes its descriptor at any time. The reader begins at the file offset of the descriptor, and does
/// not move it. While the reader exists, the kernel's read-ahead is off for the open file, also for the caller.
///
/// @param fd  a descriptor that is open for reading.
/// @param options  options, or NULL: the defaults.
/// @param out  receives the reader, or NULL if the call fails.
///
/// Returns 0, or a negative errno:
/// - EBADF: `fd` is no open descriptor.
/// - EINVAL: `out` is NULL, or the options have an unknown value.
/// - E2BIG: the options have a field that this version of the library does not know.
/// - EMFILE: the process has too many descriptors.
/// - ENOMEM: there is too little memory.
///
/// Threads: any thread, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_from_fd(
    fd: c_int,
    options: *const ReaderOptions,
    out: *mut *mut Reader,
) -> c_int {
    let make = || {
        if fd < 0 {
            return Err(Errno::NO_DESCRIPTOR);
        }
        // SAFETY: it is not -1; it is only duplicated, and a number that is no descriptor is reported by that call.
        let file = File::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?);
        // SAFETY: by the contract of the header they are null or valid.
        let options = unsafe { options_of(options) }?;
        Ok(ahead_read::stream::Reader::with_options(file, options)?)
    };
    // SAFETY: by the contract of the header `out` is null, or may be written.
    unsafe { hand_out(out, make) }
}

/// The bytes that the program wants filled. At most SSIZE_MAX bytes, the largest result.
///
/// # Safety
/// `buffer` is null, or points to `length` writable bytes that nothing else uses during `'a`.
unsafe fn buffer_of<'a>(buffer: *mut c_void, length: size_t) -> Result<&'a mut [u8], Errno> {
    match (buffer.is_null(), length) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Errno::INVALID),
        // SAFETY: the caller's promise. Memory of another language counts as initialised here, and the readers only write to it.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(buffer.cast(), length.min(isize::MAX as usize)) }),
    }
}

fn size_of_read(result: Result<usize, Errno>) -> ssize_t {
    match result {
        Ok(bytes) => bytes as ssize_t,
        Err(errno) => errno.negative() as ssize_t,
    }
}

/// Reads from the position of the reader, and moves it by what was read.
///
/// As read(2), the call may return fewer bytes than asked for, and returns 0 at the end of the file only. An error of the device is returned
/// when the reader is at its place, not before; a later call tries again.
///
/// @param buffer  where the bytes go. NULL is permitted if `length` is 0.
/// @param length  size of the buffer, bytes.
///
/// Returns the number of bytes, 0 at the end of the file, or a negative errno:
/// - EINVAL: `reader` is NULL, or `buffer` is NULL and `length` is not 0.
/// - EISDIR: the file is a directory.
/// - EBADF: the descriptor was not open for reading.
/// - ENOMEM: there is too little memory; nothing was read, and a later call tries again.
/// - EIO and other errors of read(2).
///
/// Threads: one thread at a time uses a reader; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_read(reader: *mut Reader, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: by the contract of the header the pointers are null or valid, and no other call uses the reader.
    let arguments = unsafe { handle(reader).and_then(|reader| Ok((reader, buffer_of(buffer, length)?))) };
    size_of_read(arguments.and_then(|(reader, buffer)| reader.0.call_mut(|reader| Ok(reader.read(buffer)?))))
}

/// Reads from an offset. The position of the reader stays.
///
/// The buffer is filled, except at the end of the file, or before an error.
///
/// @param buffer  where the bytes go. NULL is permitted if `length` is 0.
/// @param length  size of the buffer, bytes.
/// @param offset  first byte in the file.
///
/// Returns the number of bytes, 0 at the end of the file, or a negative errno:
/// - EINVAL: `reader` is NULL, `buffer` is NULL and `length` is not 0, or `offset` exceeds the largest int64_t.
/// - ESPIPE: the file is a pipe or a terminal.
/// - ENOMEM: as for ahead_reader_read().
/// - EIO and other errors of pread(2).
///
/// Threads: one thread at a time uses a reader; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_pread(
    reader: *mut Reader,
    buffer: *mut c_void,
    length: size_t,
    offset: u64,
) -> ssize_t {
    // SAFETY: by the contract of the header the pointers are null or valid, and no other call uses the reader.
    let arguments = unsafe { handle(reader).and_then(|reader| Ok((reader, buffer_of(buffer, length)?))) };
    size_of_read(arguments.and_then(|(reader, buffer)| reader.0.call_mut(|reader| Ok(reader.read_at(buffer, offset)?))))
}

/// Moves the position of the reader. Nothing is read.
///
/// @param offset  bytes, from where `whence` says. A position beyond the end of the file is permitted.
/// @param whence  SEEK_SET, SEEK_CUR or SEEK_END of stdio.h.
///
/// Returns the new position in bytes from the beginning of the file, or a negative errno:
/// - EINVAL: `reader` is NULL, `whence` is unknown, or the position is negative or exceeds the largest int64_t.
/// - ESPIPE: the file is a pipe or a terminal.
/// - ENOMEM: there is too little memory; the position has not changed.
///
/// Threads: one thread at a time uses a reader; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_seek(reader: *mut Reader, offset: i64, whence: c_int) -> i64 {
    let to = match whence {
        libc::SEEK_SET => u64::try_from(offset).map(SeekFrom::Start).map_err(|_| Errno::INVALID),
        libc::SEEK_CUR => Ok(SeekFrom::Current(offset)),
        libc::SEEK_END => Ok(SeekFrom::End(offset)),
        _ => Err(Errno::INVALID),
    };
    // SAFETY: by the contract of the header it is null, or a reader that no other call uses.
    let arguments = unsafe { handle(reader) }.and_then(|reader| Ok((reader, to?)));
    let position = arguments.and_then(|(reader, to)| reader.0.call_mut(|reader| Ok(reader.seek(to)?)));
    let position = position.and_then(|position| i64::try_from(position).map_err(|_| Errno::INVALID));
    position.unwrap_or_else(|errno| errno.negative().into())
}

/// Gets what a reader has done so far.
///
/// @param counters  receives the counters. The caller sets its field `size`.
///
/// Returns 0, or a negative errno:
/// - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
/// - E2BIG: `size` exceeds 4096.
///
/// Threads: one thread at a time uses a reader; a second one gets -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_get_counters(reader: *const Reader, counters: *mut ReaderCounters) -> c_int {
    // SAFETY: by the contract of the header it is null, or a reader that no other call uses.
    let seen = unsafe { handle(reader) }.and_then(|reader| reader.0.look(|reader| Ok(reader.counters())));
    // SAFETY: by the contract of the header `counters` is null, or as long as its size says.
    status(seen.and_then(|seen| unsafe { write_counters(counters, &counters_of(&seen)) }))
}

fn counters_of(seen: &ahead_read::stream::Counters) -> ReaderCounters {
    ReaderCounters {
        size: 0,
        reads: seen.reads,
        bytes: seen.bytes,
        waits: seen.waits,
        waited_us: seen.waited_us,
        requests: seen.requests,
        requested_bytes: seen.requested_bytes,
        cached_requests: seen.cached_requests,
        abandoned_bytes: seen.abandoned_bytes,
        distance_bytes: seen.distance_bytes,
        is_direct: seen.is_direct.into(),
    }
}

/// Closes a reader, and cancels its read-ahead.
///
/// @param reader  a reader, or NULL: nothing is done.
///
/// Threads: when no other call uses the reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ahead_reader_close(reader: *mut Reader) {
    // SAFETY: by the contract of the header it was made by this library and is not used any more.
    unsafe { free(reader) };
}
