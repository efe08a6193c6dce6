/*
 * ahead: read-ahead inside a program, for cold files on Linux.
 *
 *     I read a file from its beginning, or in some other order            ahead_reader_open
 *     I have mapped a file and know how I will use the mapping            ahead_advise
 *     I read many files and know in which order                           ahead_prefetcher_of_items
 *
 * Link with `pkg-config --cflags --libs ahead`. Rules for all functions:
 *
 * Errors: a function that can fail returns a negative error number of errno.h; errno itself is not set. A constructor sets `*out` to NULL
 * then. A required argument that is NULL gives -EINVAL. -ENOTRECOVERABLE means a defect of the library: a message is on standard error, and
 * each later call with the same handle returns the same error, until the handle is freed. No function ends the process: with too little memory
 * they return -ENOMEM, and read-ahead that would need more is left out.
 *
 * Arguments: a handle comes from the function that makes it, and is used until it is closed or freed. Strings end with a null byte. Buffers
 * have the length that is passed with them, and are used during the call only.
 *
 * Threads: the comment of each function says which threads may call it. Constructors may be called by any number of threads. The library
 * starts threads as it needs them; they block all signals. A second call with a reader or prefetcher while one is under way returns -EBUSY. No function may be called in a signal handler, and no thread may be cancelled
 * (pthread_cancel) during a call.
 *
 * Fork: a child of fork(2) may use and free the handles of its parent, also if the parent has other threads, but not a handle that another
 * thread used at the time of the fork. Parent and child have separate budgets. In the child, the read-ahead of a mapping starts with the first
 * ahead_advised_progress().
 *
 * Versions: a structure that begins with `size` may grow; a program that was compiled with an older header runs with a newer library. Set
 * `size` to sizeof of the structure, and all other fields to 0 before setting some of them.
 *
 * License: Apache-2.0 OR MIT.
 */

#ifndef AHEAD_H
#define AHEAD_H

/* Generated from the sources in crates/capi/src: change those, then run scripts/c-header. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Behaviour: no announcement. The order of reads is found from the reads, as without a call. */
#define AHEAD_NORMAL 0

/** Behaviour: reads are in no order. Nothing is read ahead. */
#define AHEAD_RANDOM 1

/** Behaviour: reads go from lower to higher offsets. */
#define AHEAD_SEQUENTIAL 2

/** Behaviour: all of it will be read soon. For ahead_advise() only. */
#define AHEAD_WILLNEED 3

/** Behaviour: it will not be read again soon. For ahead_advise() only. */
#define AHEAD_DONTNEED 4

/** Behaviour: reads go from higher to lower offsets. */
#define AHEAD_BACKWARD 5

/** Behaviour: reads begin at equal distances. For ahead_reader_options only; for mappings see ahead_advise_stride(). */
#define AHEAD_STRIDE 6

/**
 * Flag of ahead_reader_options: read past the page cache (O_DIRECT), where the file system permits it.
 *
 * What was read ahead is dropped when the file was changed since (its size, mtime or ctime is another one), so that a read returns what a write
 * has written that ended before the read. Two exceptions: a direct write (O_DIRECT) that began before the read ahead and ended after it; and
 * changes by other machines, which the file system sees late. Each read makes a call of fstat(2).
 */
#define AHEAD_READER_DIRECT 1

/**
 * Read-ahead of a mapped region, until it is freed.
 *
 * Threads: a handle may be used by any number of threads at the same time, except to free it.
 */
typedef struct ahead_advised ahead_advised;

/**
 * Memory that read-ahead may hold, shared by any number of readers and prefetchers.
 *
 * Counted are pages and buffers that were requested and are not consumed yet. Each reader and prefetcher has an equal share, and is always
 * granted one request, so that each of them makes progress.
 *
 * Without a budget in their options, all readers and prefetchers of the process share the default budget: 64 MiB, or a quarter of the
 * memory that is available at the first use if that is less.
 *
 * Threads: a budget may be used by any number of threads at the same time.
 */
typedef struct ahead_budget ahead_budget;

/**
 * Reads files ahead in an order that the program knows.
 *
 * The program takes each item with ahead_prefetcher_next() before it reads the file, by whichever means. Files of the next items are read
 * into the page cache meanwhile. Files that are missing or unreadable are skipped: the program gets the error when it opens them.
 *
 * Threads: a prefetcher may be used by one thread at a time; different prefetchers by different threads at the same time.
 */
typedef struct ahead_prefetcher ahead_prefetcher;

/**
 * A file that is read with read-ahead.
 *
 * The reader finds the order of the reads (forward with small gaps, backward, equal distances) and reads ahead in it. It reads further
 * ahead only when the program had to wait. A file that is not regular (a pipe, a terminal) is read without read-ahead.
 *
 * Threads: a reader may be used by one thread at a time; different readers by different threads at the same time.
 */
typedef struct ahead_reader ahead_reader;

/** What was done for a region so far. */
typedef struct ahead_advised_counters {
    /** sizeof(ahead_advised_counters), set by the caller: fields may be added at the end in later versions. */
    size_t size;
    /** Groups that were requested. */
    uint64_t groups;
    /** Groups that were cached when they were due. */
    uint64_t cached_groups;
    /** Bytes of all requests, repeated ones included. The kernel skips resident pages. */
    uint64_t requested_bytes;
    /** Ranges that were requested again, because they were absent when the reader entered their group. */
    uint64_t retried;
    /** Waits of the reader for requests, at most one for each group. Always 0 if the user neither owns nor may write the file. */
    uint64_t waits;
    /** Duration of these waits as far as the library has seen them, microseconds. */
    uint64_t waited_us;
    /** Looks of the library at the region. */
    uint64_t looks;
    /** How far ahead of the reader requests may end now, bytes. */
    uint64_t distance_bytes;
} ahead_advised_counters;

/** A file, or a range of one, that the program is going to read. */
typedef struct ahead_item {
    /** The file. NULL: there is nothing to read for this item. Symbolic links are followed, and a relative path starts in the current directory. */
    const char *path;
    /** First byte. */
    uint64_t offset;
    /** Bytes. 0: to the end of the file. */
    uint64_t length;
    /** Value of the program, which ahead_prefetcher_next() gives back. */
    void *key;
    /** 0: for later versions. */
    uint64_t reserved[2];
} ahead_item;

/**
 * A function of the program that gives the next item.
 *
 * It is called by ahead_prefetcher_next(), in the thread of that call, up to 4096 items ahead of what is taken. All fields of `item` are 0
 * before the call. The path is copied before the next call. The function must not call the library with the same prefetcher, and no C++
 * exception may leave it: the process would be aborted.
 *
 * Returns 1: `item` is filled. 0: there are no more items. A negative errno: no more items, and ahead_prefetcher_next() returns the error
 * after the items before it.
 */
typedef int (*ahead_next_item)(void *context, struct ahead_item *item);

/**
 * Options of a prefetcher. A field that is 0 or NULL has its default.
 *
 * At most one of the windows is set. Without, it is 32 MiB.
 */
typedef struct ahead_prefetcher_options {
    /** sizeof(ahead_prefetcher_options): fields may be added at the end in later versions. */
    size_t size;
    /** Limit of the memory for read-ahead. NULL: the default budget of the process. */
    const struct ahead_budget *budget;
    /** Window: bytes that are read ahead of the item that was taken last. */
    uint64_t window_bytes;
    /** Window: items, at most 4096. */
    uint64_t window_items;
    /** Window: the items that the program takes in this time, microseconds. */
    uint64_t window_us;
    /** Largest number of threads that read ahead. 0: 8. They are started as needed. */
    uint32_t threads;
    /** 0: for later versions. */
    uint32_t flags;
} ahead_prefetcher_options;

/** What became of the items of a prefetcher so far. */
typedef struct ahead_prefetcher_counters {
    /** sizeof(ahead_prefetcher_counters), set by the caller: fields may be added at the end in later versions. */
    size_t size;
    /** Items that the program has taken. */
    uint64_t items;
    /** Items whose read-ahead was requested completely before they were taken; for large items, their first part. */
    uint64_t prefetched_items;
    /** Bytes requested, in whole pages. */
    uint64_t prefetched_bytes;
    /** Items that were found cached completely. */
    uint64_t cached_items;
    /** Items without a readable regular file. */
    uint64_t skipped;
    /** Items that were taken while they were looked up or requested. */
    uint64_t late;
    /** Items that were taken before their read-ahead was started. It was not started any more. */
    uint64_t consumed_before_start;
    /** Items that were not checked because those that were checked around them were cached. */
    uint64_t unchecked;
} ahead_prefetcher_counters;

/**
 * Options of a reader. A field that is 0 or NULL has its default.
 *
 * C: `ahead_reader_options options = {.size = sizeof options};`
 * C++: `ahead_reader_options options = {}; options.size = sizeof options;`
 */
typedef struct ahead_reader_options {
    /** sizeof(ahead_reader_options): fields may be added at the end in later versions. */
    size_t size;
    /** Limit of the memory for read-ahead. NULL: the default budget of the process. */
    const struct ahead_budget *budget;
    /** Largest distance between the reader and the end of what is read ahead, bytes. 0: 16 MiB. */
    uint64_t largest_distance_bytes;
    /** Distance between the beginnings of two reads, bytes; negative: downwards. For the pattern AHEAD_STRIDE only, else 0. */
    int64_t stride_bytes;
    /**
     * Order of the reads. AHEAD_NORMAL (0): it is found from the reads. AHEAD_SEQUENTIAL, AHEAD_BACKWARD, AHEAD_STRIDE, AHEAD_RANDOM: this
     * order, whatever the reads are.
     */
    int32_t pattern;
    /** 0, or AHEAD_READER_DIRECT. */
    uint32_t flags;
} ahead_reader_options;

/** What a reader has done so far. */
typedef struct ahead_reader_counters {
    /** sizeof(ahead_reader_counters), set by the caller: fields may be added at the end in later versions. */
    size_t size;
    /** Reads of the program. */
    uint64_t reads;
    /** Bytes that the program has received. */
    uint64_t bytes;
    /** Waits for the device. In a file system that cannot tell: calls that took longer than 100 us. */
    uint64_t waits;
    /** Time of these waits, microseconds. */
    uint64_t waited_us;
    /** Requests to read ahead. */
    uint64_t requests;
    /** Bytes that were requested ahead. */
    uint64_t requested_bytes;
    /** Requests that were not submitted, because their pages were cached already. */
    uint64_t cached_requests;
    /** Bytes that were requested, and given up because the program went elsewhere, or the file changed. */
    uint64_t abandoned_bytes;
    /** How far ahead of the reader requests may end now, bytes. */
    uint64_t distance_bytes;
    /** 1: the file is read past the page cache. 0 in spite of AHEAD_READER_DIRECT: the file system refuses it. */
    uint64_t is_direct;
} ahead_reader_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gets the version of the library that was loaded, which may be newer than the header.
 *
 * Returns a string that is never freed, for example "0.1.0".
 *
 * Threads: any thread, at any time.
 */
const char *ahead_version(void);

/**
 * Reads ahead in a mapping of a file, as the program will use it.
 *
 * Groups of pages are requested before the program touches them, also while it touches pages that are cached. The program never waits for a
 * request. The library sees how far the program is by the pages that become mapped; a program that knows it better calls
 * ahead_advised_progress(). The kernel's read-ahead for this mapping is off until the handle is freed; then its advice is MADV_NORMAL.
 *
 * AHEAD_NORMAL leaves the mapping to the kernel. AHEAD_RANDOM has each access read its page only. AHEAD_WILLNEED requests all of it in the
 * background, up to half of the available memory. AHEAD_DONTNEED makes its pages the first that the kernel reclaims; no data is lost.
 *
 * One region has one reader: several readers of a mapping advise on a part each. The library never reads or writes the region. It may be
 * unmapped before the handle is freed: the read-ahead ends.
 *
 * @param addr  first byte of the region. It need not be at the beginning of a page.
 * @param length  size of the region, bytes. 0: nothing is done.
 * @param behaviour  AHEAD_NORMAL, AHEAD_RANDOM, AHEAD_SEQUENTIAL, AHEAD_WILLNEED, AHEAD_DONTNEED or AHEAD_BACKWARD.
 * @param pages  size of a group, pages, at most 16384. 0: the size adapts to the time for which the program waits.
 * @param out  receives the handle, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `addr` or `out` is NULL, `behaviour` is unknown, or a part of the region is not a mapped file.
 * - EAGAIN: no thread can be started.
 * - ENOMEM: the process has too many mappings, or there is too little memory.
 * - Other errors of madvise(2).
 *
 * Threads: any thread, at any time.
 */
int ahead_advise(const void *addr,
                 size_t length,
                 int behaviour,
                 size_t pages,
                 struct ahead_advised **out);

/**
 * Reads ahead in a mapping whose pages are used at equal distances.
 *
 * As ahead_advise(), for columns of a table, or one plane of an image.
 *
 * @param addr  first byte of the region.
 * @param length  size of the region, bytes. 0: nothing is done.
 * @param stride_bytes  distance between the beginnings of two accesses, bytes; negative: downwards. The first access is to the first record
 * in this direction.
 * @param pages  size of a group, pages, at most 16384. 0: the size adapts to the time for which the program waits.
 * @param out  receives the handle, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `addr` or `out` is NULL, `stride_bytes` is 0, or a part of the region is not a mapped file.
 * - EAGAIN: no thread can be started.
 * - ENOMEM: the process has too many mappings, or there is too little memory.
 * - Other errors of madvise(2).
 *
 * Threads: any thread, at any time.
 */
int ahead_advise_stride(const void *addr,
                        size_t length,
                        int64_t stride_bytes,
                        size_t pages,
                        struct ahead_advised **out);

/**
 * Reports how far the program is in the region.
 *
 * Without this call the library finds it by the pages that become mapped; the first call ends that search for this region. It costs two
 * stores, and a system call when another group begins. In a child of fork(2), the first call starts the read-ahead there.
 *
 * @param advised  a handle, or NULL: nothing is done.
 * @param offset  offset in the region of what the program uses now, bytes.
 *
 * Threads: any number of threads at the same time.
 */
void ahead_advised_progress(const struct ahead_advised *advised,
                            size_t offset);

/**
 * Gets what was done for a region so far.
 *
 * @param counters  receives the counters. The caller sets its field `size`.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
 * - E2BIG: `size` exceeds 4096.
 *
 * Threads: any number of threads at the same time.
 */
int ahead_advised_get_counters(const struct ahead_advised *advised, struct ahead_advised_counters *counters);

/**
 * Ends the read-ahead of a region, and puts the kernel's advice for it back to MADV_NORMAL.
 *
 * @param advised  a handle, or NULL: nothing is done.
 *
 * Threads: when no other call uses the handle.
 */
void ahead_advised_free(struct ahead_advised *advised);

/**
 * Makes a budget.
 *
 * Readers and prefetchers keep a reference to the budget of their options, so it may be freed before them.
 *
 * @param bytes  size of the budget. A size of less than a page for each reader still grants each of them one request at a time.
 * @param out  receives the budget, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `bytes` is 0, or `out` is NULL.
 * - ENOMEM: there is too little memory.
 *
 * Threads: any thread, at any time.
 */
int ahead_budget_new(uint64_t bytes,
                     struct ahead_budget **out);

/**
 * Gets how much of a budget is in use.
 *
 * @param budget  a budget, or NULL: the default budget of the process.
 *
 * Returns the bytes that readers and prefetchers hold now, or a negative errno. It fails only after a defect of the library
 * (ENOTRECOVERABLE).
 *
 * Threads: any thread, at any time.
 */
int64_t ahead_budget_used_bytes(const struct ahead_budget *budget);

/**
 * Frees the handle of a budget. Readers and prefetchers that were made with it go on.
 *
 * @param budget  a budget, or NULL: nothing is done.
 *
 * Threads: when no other call uses the handle.
 */
void ahead_budget_free(struct ahead_budget *budget);

/**
 * Makes a prefetcher whose items come from a function of the program.
 *
 * Nothing is read ahead before the first item is taken.
 *
 * @param next  gives the next item.
 * @param context  is passed to `next`.
 * @param options  options, or NULL: the defaults.
 * @param out  receives the prefetcher, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `next` or `out` is NULL, two windows are given, or the options have an unknown value.
 * - E2BIG: the options have a field that this version of the library does not know.
 * - ENOMEM: there is too little memory.
 *
 * Threads: any thread, at any time. `next` is called by ahead_prefetcher_next() only.
 */
int ahead_prefetcher_new(ahead_next_item next,
                         void *context,
                         const struct ahead_prefetcher_options *options,
                         struct ahead_prefetcher **out);

/**
 * Makes a prefetcher of a list of items.
 *
 * The list and its paths are copied. Nothing is read ahead before the first item is taken.
 *
 * @param items  the items, in the order in which the program will read them. NULL is permitted if `count` is 0.
 * @param count  number of items.
 * @param options  options, or NULL: the defaults.
 * @param out  receives the prefetcher, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `out` is NULL, `items` is NULL and `count` is not 0, `count` items are longer than any memory, two windows are given, or the
 *   options have an unknown value.
 * - E2BIG: the options have a field, or an item has a value, that this version of the library does not know.
 * - ENOMEM: there is too little memory.
 *
 * Threads: any thread, at any time.
 */
int ahead_prefetcher_of_items(const struct ahead_item *items,
                              size_t count,
                              const struct ahead_prefetcher_options *options,
                              struct ahead_prefetcher **out);

/**
 * Takes the next item: the program reads it now, and has read the items before it.
 *
 * Items come in their order, each once. The call never waits for a file, except on a rotating disk: there it waits, within a sweep of the
 * disk, for the request of its item. An item that was not read ahead yet is read by the program as without a prefetcher.
 *
 * @param key  receives the key of the item, or NULL if there is none. May be NULL.
 *
 * Returns 1 if an item was taken, 0 after the last item, or a negative errno:
 * - EINVAL: `prefetcher` is NULL, or the program's function has returned an unknown value.
 * - E2BIG: the program's function has set a reserved field of an item.
 * - ENOMEM: there is too little memory; a later call tries again, unless the copy of an item has failed: that ends the items.
 * - The error that the program's function has returned: once, after the items before it.
 *
 * Threads: one thread at a time uses a prefetcher; a second one gets -EBUSY.
 */
int ahead_prefetcher_next(struct ahead_prefetcher *prefetcher,
                          void **key);

/**
 * Gets what became of the items of a prefetcher so far.
 *
 * @param counters  receives the counters. The caller sets its field `size`.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
 * - E2BIG: `size` exceeds 4096.
 *
 * Threads: one thread at a time uses a prefetcher; a second one gets -EBUSY.
 */
int ahead_prefetcher_get_counters(const struct ahead_prefetcher *prefetcher,
                                  struct ahead_prefetcher_counters *counters);

/**
 * Ends the read-ahead of a prefetcher and frees it. Returns at once; requests that the kernel has accepted are carried out.
 *
 * @param prefetcher  a prefetcher, or NULL: nothing is done.
 *
 * Threads: when no other call uses the prefetcher.
 */
void ahead_prefetcher_free(struct ahead_prefetcher *prefetcher);

/**
 * Opens a file for reading with read-ahead.
 *
 * @param path  the file. Symbolic links are followed.
 * @param options  options, or NULL: the defaults.
 * @param out  receives the reader, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: `path` or `out` is NULL, or the options have an unknown value.
 * - E2BIG: the options have a field that this version of the library does not know.
 * - ENOMEM: there is too little memory.
 * - ENOENT, EACCES, EMFILE and other errors of open(2).
 *
 * Threads: any thread, at any time.
 */
int ahead_reader_open(const char *path, const struct ahead_reader_options *options, struct ahead_reader **out);

/**
 * Makes a reader of an open file.
 *
 * The descriptor is duplicated: the caller closes its descriptor at any time. The reader begins at the file offset of the descriptor, and does
 * not move it. While the reader exists, the kernel's read-ahead is off for the open file, also for the caller.
 *
 * @param fd  a descriptor that is open for reading.
 * @param options  options, or NULL: the defaults.
 * @param out  receives the reader, or NULL if the call fails.
 *
 * Returns 0, or a negative errno:
 * - EBADF: `fd` is no open descriptor.
 * - EINVAL: `out` is NULL, or the options have an unknown value.
 * - E2BIG: the options have a field that this version of the library does not know.
 * - EMFILE: the process has too many descriptors.
 * - ENOMEM: there is too little memory.
 *
 * Threads: any thread, at any time.
 */
int ahead_reader_from_fd(int fd,
                         const struct ahead_reader_options *options,
                         struct ahead_reader **out);

/**
 * Reads from the position of the reader, and moves it by what was read.
 *
 * As read(2), the call may return fewer bytes than asked for, and returns 0 at the end of the file only. An error of the device is returned
 * when the reader is at its place, not before; a later call tries again.
 *
 * @param buffer  where the bytes go. NULL is permitted if `length` is 0.
 * @param length  size of the buffer, bytes.
 *
 * Returns the number of bytes, 0 at the end of the file, or a negative errno:
 * - EINVAL: `reader` is NULL, or `buffer` is NULL and `length` is not 0.
 * - EISDIR: the file is a directory.
 * - EBADF: the descriptor was not open for reading.
 * - ENOMEM: there is too little memory; nothing was read, and a later call tries again.
 * - EIO and other errors of read(2).
 *
 * Threads: one thread at a time uses a reader; a second one gets -EBUSY.
 */
ssize_t ahead_reader_read(struct ahead_reader *reader,
                          void *buffer,
                          size_t length);

/**
 * Reads from an offset. The position of the reader stays.
 *
 * The buffer is filled, except at the end of the file, or before an error.
 *
 * @param buffer  where the bytes go. NULL is permitted if `length` is 0.
 * @param length  size of the buffer, bytes.
 * @param offset  first byte in the file.
 *
 * Returns the number of bytes, 0 at the end of the file, or a negative errno:
 * - EINVAL: `reader` is NULL, `buffer` is NULL and `length` is not 0, or `offset` exceeds the largest int64_t.
 * - ESPIPE: the file is a pipe or a terminal.
 * - ENOMEM: as for ahead_reader_read().
 * - EIO and other errors of pread(2).
 *
 * Threads: one thread at a time uses a reader; a second one gets -EBUSY.
 */
ssize_t ahead_reader_pread(struct ahead_reader *reader, void *buffer, size_t length, uint64_t offset);

/**
 * Moves the position of the reader. Nothing is read.
 *
 * @param offset  bytes, from where `whence` says. A position beyond the end of the file is permitted.
 * @param whence  SEEK_SET, SEEK_CUR or SEEK_END of stdio.h.
 *
 * Returns the new position in bytes from the beginning of the file, or a negative errno:
 * - EINVAL: `reader` is NULL, `whence` is unknown, or the position is negative or exceeds the largest int64_t.
 * - ESPIPE: the file is a pipe or a terminal.
 * - ENOMEM: there is too little memory; the position has not changed.
 *
 * Threads: one thread at a time uses a reader; a second one gets -EBUSY.
 */
int64_t ahead_reader_seek(struct ahead_reader *reader, int64_t offset, int whence);

/**
 * Gets what a reader has done so far.
 *
 * @param counters  receives the counters. The caller sets its field `size`.
 *
 * Returns 0, or a negative errno:
 * - EINVAL: an argument is NULL, or `size` is too small for the first version of the structure.
 * - E2BIG: `size` exceeds 4096.
 *
 * Threads: one thread at a time uses a reader; a second one gets -EBUSY.
 */
int ahead_reader_get_counters(const struct ahead_reader *reader, struct ahead_reader_counters *counters);

/**
 * Closes a reader, and cancels its read-ahead.
 *
 * @param reader  a reader, or NULL: nothing is done.
 *
 * Threads: when no other call uses the reader.
 */
void ahead_reader_close(struct ahead_reader *reader);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* AHEAD_H */
