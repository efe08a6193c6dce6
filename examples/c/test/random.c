/*
 * random DIRECTORY CALLS SEED
 * random DIRECTORY CALLS SEED little-memory RUNS
 *
 * Calls all functions with random arguments, valid ones, NULL and nonsense among them, and checks each byte and each status. With
 * `little-memory` in RUNS children, each with somewhat more address space than the one before. Fails if a child does not exit by itself.
 * DIRECTORY has the files file (8192 bytes), large and empty, and the directory directory. Arguments that the header forbids (freed
 * handles, wild pointers) are not tried: no library can tell them.
 */
#define _GNU_SOURCE 1
#include <ahead.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../tests/splitmix64.h"

#define HANDLES 6
#define LARGEST_READ (1 << 20)

static const char *const paths[] = {"file", "large", "empty", "directory", "missing", "file/file", "/dev/null", "/dev/zero", ""};

struct content {
    char *bytes;
    size_t length;
    int fd;
};

static uint64_t state;
static struct content contents[2];
static char *buffer;
static int little_memory;

static ahead_budget *budgets[HANDLES];
static ahead_reader *readers[HANDLES];
static int reader_files[HANDLES];
static ahead_advised *regions[HANDLES];
static ahead_prefetcher *prefetchers[HANDLES];
static long items_left[HANDLES];

static uint64_t number(void) { return splitmix64(&state); }

static uint64_t below(uint64_t limit) { return number() % limit; }

/* A size or offset: small, near a power of two, or anything. */
static uint64_t extreme(void)
{
    switch (below(4)) {
    case 0: return below(3);
    case 1: return ((uint64_t)1 << below(64)) + below(3) - 1;
    case 2: return number();
    default: return below(1 << 20);
    }
}

static void fail(const char *what, long long is)
{
    fprintf(stderr, "random: %s: %lld\n", what, is);
    exit(3);
}

/* Whether a call has failed; -ENOMEM only with little memory, and -ENOTRECOVERABLE never. */
static int failed(const char *what, long long status)
{
    if (status >= 0)
        return 0;
    if (status == -ENOTRECOVERABLE || status < -4095 || (status == -ENOMEM && !little_memory && strcmp(what, "advise") != 0))
        fail(what, status);
    return 1;
}

static const char *path(void)
{
    uint64_t at = below(sizeof paths / sizeof paths[0] + 1);

    return at == sizeof paths / sizeof paths[0] ? NULL : paths[at];
}

static void budget_calls(void)
{
    size_t at = below(HANDLES);

    ahead_budget_free(budgets[at]);
    budgets[at] = NULL;
    if (below(4) != 0)
        failed("budget_new", ahead_budget_new(extreme(), below(8) == 0 ? NULL : &budgets[at]));
    failed("budget_used_bytes", ahead_budget_used_bytes(budgets[below(HANDLES)]));
}

static void new_reader(size_t at)
{
    ahead_reader_options options;
    ahead_reader **out = below(16) == 0 ? NULL : &readers[at];
    const char *name = path();
    int status;

    ahead_reader_close(readers[at]);
    readers[at] = NULL;
    memset(&options, 0, sizeof options);
    options.size = below(16) == 0 ? extreme() % sizeof options : sizeof options;
    options.budget = budgets[below(HANDLES)];
    options.largest_distance_bytes = below(2) == 0 ? 0 : extreme();
    options.pattern = below(3) == 0 ? (int32_t)below(9) - 1 : 0;
    options.stride_bytes = options.pattern == AHEAD_STRIDE ? (int64_t)number() : 0;
    options.flags = below(16) == 0 ? (uint32_t)number() : (uint32_t)below(2);
    if (below(4) == 0) {
        static const int bad[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
        uint64_t which = below(6);

        reader_files[at] = which < 2 ? (int)which : -1;
        status = ahead_reader_from_fd(which < 2 ? contents[which].fd : bad[which - 2], &options, out);
    } else {
        reader_files[at] = name == paths[0] ? 0 : name == paths[1] ? 1 : -1;
        status = ahead_reader_open(name, below(3) == 0 ? NULL : &options, out);
    }
    if (failed("reader_open", status) && out != NULL && *out != NULL)
        fail("a failed reader is not NULL", status);
}

static void check_bytes(size_t reader, uint64_t offset, int64_t bytes)
{
    const struct content *content;

    if (bytes <= 0 || reader_files[reader] < 0)
        return;
    content = &contents[reader_files[reader]];
    if (offset + bytes > content->length || memcmp(buffer, content->bytes + offset, bytes) != 0)
        fail("wrong bytes at", (long long)offset);
}

static void reader_calls(void)
{
    size_t at = below(HANDLES);
    ahead_reader *reader = readers[at];
    void *to = below(32) == 0 ? NULL : buffer;
    size_t length = below(8) == 0 ? below(LARGEST_READ) : below(20000);
    uint64_t offset = below(4) == 0 ? extreme() : below(contents[1].length + 100);
    ahead_reader_counters counters;
    int64_t before, bytes;

    switch (below(8)) {
    case 0:
        new_reader(at);
        break;
    case 1:
        failed("seek", ahead_reader_seek(reader, below(2) == 0 ? (int64_t)offset : (int64_t)extreme(), (int)below(5) - 1));
        break;
    case 2:
        memset(&counters, 0, sizeof counters);
        counters.size = below(8) == 0 ? below(sizeof counters) : sizeof counters;
        failed("get_counters", ahead_reader_get_counters(reader, below(16) == 0 ? NULL : &counters));
        break;
    case 3:
    case 4:
        bytes = ahead_reader_pread(reader, to, length, offset);
        if (!failed("pread", bytes))
            check_bytes(at, offset, bytes);
        break;
    default:
        before = ahead_reader_seek(reader, 0, SEEK_CUR);
        bytes = ahead_reader_read(reader, to, length);
        if (!failed("read", bytes) && before >= 0)
            check_bytes(at, before, bytes);
    }
}

static void region_calls(void)
{
    size_t at = below(HANDLES), file = below(2);
    const struct content *content = &contents[file];
    char *start = below(16) == 0 ? NULL : content->bytes + below(content->length);
    size_t length = below(8) == 0 ? extreme() : below(content->bytes + content->length - start + 1);
    size_t pages = below(2) == 0 ? 0 : extreme();
    ahead_advised **out = below(16) == 0 ? NULL : &regions[at];
    ahead_advised_counters counters;

    switch (below(4)) {
    case 0:
        ahead_advised_free(regions[at]);
        regions[at] = NULL;
        if (below(2) == 0)
            failed("advise", ahead_advise(start, length, (int)below(9) - 1, pages, out));
        else
            failed("advise", ahead_advise_stride(start, length, (int64_t)extreme(), pages, out));
        break;
    case 1:
        counters.size = below(8) == 0 ? below(sizeof counters) : sizeof counters;
        failed("advised_get_counters", ahead_advised_get_counters(regions[at], below(16) == 0 ? NULL : &counters));
        break;
    default:
        ahead_advised_progress(regions[at], extreme());
    }
}

static int next_item(void *context, ahead_item *item)
{
    long *left = (long *)context;

    if (--*left < 0)
        return below(4) == 0 ? -EXDEV : 0;
    item->path = path();
    item->offset = below(2) == 0 ? 0 : extreme();
    item->length = below(2) == 0 ? 0 : extreme();
    item->key = context;
    item->reserved[0] = below(1000) == 0;
    return 1;
}

static void prefetcher_calls(void)
{
    size_t at = below(HANDLES);
    ahead_prefetcher **out = below(16) == 0 ? NULL : &prefetchers[at];
    ahead_prefetcher_options options;
    ahead_prefetcher_counters counters;
    ahead_item items[20];
    void *key;

    switch (below(16)) {
    case 0:
        ahead_prefetcher_free(prefetchers[at]);
        prefetchers[at] = NULL;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.budget = budgets[below(HANDLES)];
        *(below(3) == 0 ? &options.window_bytes : below(2) == 0 ? &options.window_items : &options.window_us) = extreme();
        options.threads = (uint32_t)below(5);
        options.flags = below(16) == 0;
        items_left[at] = (long)below(300);
        if (below(2) == 0) {
            failed("prefetcher_new", ahead_prefetcher_new(below(16) == 0 ? NULL : next_item, &items_left[at], &options, out));
        } else {
            long left = 20;

            memset(items, 0, sizeof items);
            for (size_t item = 0; item < 20; item++)
                next_item(&left, &items[item]);
            size_t count = below(16) == 0 ? SIZE_MAX - below(3) : below(21);
            failed("prefetcher_of_items", ahead_prefetcher_of_items(below(16) == 0 ? NULL : items, count, &options, out));
        }
        break;
    case 1:
        counters.size = below(8) == 0 ? below(sizeof counters) : sizeof counters;
        failed("prefetcher_get_counters", ahead_prefetcher_get_counters(prefetchers[at], below(16) == 0 ? NULL : &counters));
        break;
    default:
        failed("prefetcher_next", ahead_prefetcher_next(prefetchers[at], below(4) == 0 ? NULL : &key));
    }
}

static void make_cold(void)
{
    for (int at = 0; at < 2; at++)
        posix_fadvise(contents[at].fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void call_all(long calls)
{
    for (long call = 0; call < calls; call++) {
        switch (below(20)) {
        case 0: budget_calls(); break;
        case 1: case 2: region_calls(); break;
        case 3: case 4: case 5: case 6: case 7: prefetcher_calls(); break;
        default: reader_calls();
        }
        if (below(2000) == 0)
            make_cold();
    }
    for (int at = 0; at < HANDLES; at++) {
        ahead_reader_close(readers[at]);
        ahead_prefetcher_free(prefetchers[at]);
        ahead_advised_free(regions[at]);
        ahead_budget_free(budgets[at]);
    }
}

static size_t address_space(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    if (file == NULL || fscanf(file, "%zu", &pages) != 1)
        fail("/proc/self/statm", 0);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Each run has 24 KiB more: from nothing to what a reader, and threads with their stacks, need. */
static int sweep(long calls, uint64_t seed, long runs)
{
    int failures = 0;

    little_memory = 1;
    for (long run = 0; run < runs; run++) {
        size_t space = address_space() + (size_t)run * (24 << 10);
        pid_t child = fork();
        int status = -1;

        if (child == 0) {
            struct rlimit limit = {space, space};

            alarm(120);
            state = seed + (uint64_t)run;
            make_cold();
            setrlimit(RLIMIT_AS, &limit);
            call_all(calls);
            _exit(0);
        }
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "random: run %ld, %zu bytes more: status %#x\n", run, (size_t)run * (24 << 10), (unsigned)status);
            failures++;
        }
    }
    if (failures != 0)
        fprintf(stderr, "random: %d of %ld runs failed\n", failures, runs);
    return failures == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if ((argc != 4 && argc != 6) || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: random DIRECTORY CALLS SEED [little-memory RUNS]\n");
        return 2;
    }
    for (int at = 0; at < 2; at++) {
        struct content *content = &contents[at];

        content->fd = open(paths[at], O_RDONLY | O_CLOEXEC);
        content->length = (size_t)lseek(content->fd, 0, SEEK_END);
        content->bytes = (char *)mmap(NULL, content->length, PROT_READ, MAP_SHARED, content->fd, 0);
        if (content->fd < 0 || content->bytes == MAP_FAILED)
            fail(paths[at], errno);
    }
    buffer = (char *)malloc(LARGEST_READ);
    state = strtoull(argv[3], NULL, 10);
    if (argc == 6)
        return sweep(atol(argv[2]), state, atol(argv[5]));
    call_all(atol(argv[2]));
    return 0;
}
