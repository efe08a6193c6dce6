/*
 * errors DIRECTORY
 *
 * What each function returns for good and for bad arguments. Compiled as C11 and as C++17. DIRECTORY has the files file (8192 bytes of
 * numbers, one on each line) and empty, and the directory directory.
 */
#define _GNU_SOURCE 1
#include <ahead.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define EQUAL(expression, expected) equal(__LINE__, #expression, (long long)(expression), (long long)(expected))

static void equal(int line, const char *expression, long long is, long long should)
{
    if (is != should) {
        fprintf(stderr, "errors.c:%d: %s is %lld (%s), expected %lld\n", line, expression, is, strerror((int)(is < 0 ? -is : 0)), should);
        failures++;
    }
}

/* A pointer that a failed constructor has to set to NULL. */
#define NOT_NULL(type) ((type *)&failures)

static void test_version(void)
{
    EQUAL(ahead_version() != NULL && strchr(ahead_version(), '.') != NULL, 1);
}

static void test_budget(void)
{
    ahead_budget *budget = NOT_NULL(ahead_budget);

    EQUAL(ahead_budget_new(0, &budget), -EINVAL);
    EQUAL(budget == NULL, 1);
    EQUAL(ahead_budget_new(1 << 20, NULL), -EINVAL);
    EQUAL(ahead_budget_new(1 << 20, &budget), 0);
    EQUAL(ahead_budget_used_bytes(budget), 0);
    EQUAL(ahead_budget_used_bytes(NULL) >= 0, 1);
    ahead_budget_free(budget);
    ahead_budget_free(NULL);
}

static void test_reader_options(void)
{
    struct {
        ahead_reader_options known;
        uint64_t newer;
    } options;
    ahead_reader *reader = NOT_NULL(ahead_reader);

    EQUAL(ahead_reader_open(NULL, NULL, &reader), -EINVAL);
    EQUAL(reader == NULL, 1);
    EQUAL(ahead_reader_open("file", NULL, NULL), -EINVAL);
    EQUAL(ahead_reader_open("missing", NULL, &reader), -ENOENT);
    EQUAL(ahead_reader_open("file/file", NULL, &reader), -ENOTDIR);
    static char endless[10000];
    memset(endless, 'x', sizeof endless - 1);
    EQUAL(ahead_reader_open(endless, NULL, &reader), -ENAMETOOLONG);

    memset(&options, 0, sizeof options);
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.size = sizeof options.known - 1;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.size = SIZE_MAX;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -E2BIG);
    options.known.size = sizeof options;
    options.newer = 1;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -E2BIG);
    options.newer = 0;
    options.known.pattern = 77;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.pattern = AHEAD_STRIDE;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.pattern = AHEAD_SEQUENTIAL;
    options.known.stride_bytes = 4096;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.stride_bytes = 0;
    options.known.flags = 1U << 31;
    EQUAL(ahead_reader_open("file", &options.known, &reader), -EINVAL);
    options.known.flags = 0;
    EQUAL(ahead_reader_open("file", &options.known, &reader), 0);
    ahead_reader_close(reader);
    ahead_reader_close(NULL);
}

static void test_reader(void)
{
    struct {
        ahead_reader_counters known;
        uint64_t newer;
    } counters;
    ahead_budget *budget;
    ahead_reader_options options;
    ahead_reader *reader;
    char buffer[10000], text[20];

    EQUAL(ahead_budget_new(1, &budget), 0);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.budget = budget;
    options.largest_distance_bytes = 1 << 20;
    options.flags = AHEAD_READER_DIRECT;
    EQUAL(ahead_reader_open("file", &options, &reader), 0);
    ahead_budget_free(budget);

    EQUAL(ahead_reader_read(NULL, buffer, 1), -EINVAL);
    EQUAL(ahead_reader_read(reader, NULL, 1), -EINVAL);
    EQUAL(ahead_reader_read(reader, NULL, 0), 0);
    EQUAL(ahead_reader_read(reader, buffer, 4), 4);
    EQUAL(memcmp(buffer, "1\n2\n", 4), 0);
    EQUAL(ahead_reader_pread(NULL, buffer, 1, 0), -EINVAL);
    EQUAL(ahead_reader_pread(reader, NULL, 1, 0), -EINVAL);
    EQUAL(ahead_reader_pread(reader, buffer, 1, UINT64_MAX), -EINVAL);
    EQUAL(ahead_reader_pread(reader, buffer, sizeof buffer, 0), 8192);
    EQUAL(ahead_reader_pread(reader, text, sizeof text, 8190), 2);
    EQUAL(memcmp(text, buffer + 8190, 2), 0);
    EQUAL(ahead_reader_pread(reader, text, sizeof text, 8192), 0);
    EQUAL(ahead_reader_pread(reader, text, sizeof text, INT64_MAX), 0);

    EQUAL(ahead_reader_seek(NULL, 0, SEEK_SET), -EINVAL);
    EQUAL(ahead_reader_seek(reader, 0, SEEK_CUR), 4);
    EQUAL(ahead_reader_seek(reader, -1, SEEK_SET), -EINVAL);
    EQUAL(ahead_reader_seek(reader, -5, SEEK_CUR), -EINVAL);
    EQUAL(ahead_reader_seek(reader, INT64_MAX, SEEK_CUR), -EINVAL);
    EQUAL(ahead_reader_seek(reader, 0, 77), -EINVAL);
    EQUAL(ahead_reader_seek(reader, -2, SEEK_END), 8190);
    EQUAL(ahead_reader_read(reader, text, sizeof text), 2);
    EQUAL(ahead_reader_read(reader, text, sizeof text), 0);
    EQUAL(ahead_reader_seek(reader, 100, SEEK_END), 8292);
    EQUAL(ahead_reader_read(reader, text, sizeof text), 0);

    memset(&counters, 0xff, sizeof counters);
    counters.known.size = 0;
    EQUAL(ahead_reader_get_counters(reader, &counters.known), -EINVAL);
    EQUAL(ahead_reader_get_counters(reader, NULL), -EINVAL);
    counters.known.size = sizeof counters;
    EQUAL(ahead_reader_get_counters(NULL, &counters.known), -EINVAL);
    EQUAL(ahead_reader_get_counters(reader, &counters.known), 0);
    EQUAL(counters.known.size, sizeof counters);
    EQUAL(counters.known.bytes, 4 + 8192 + 2 + 2);
    EQUAL(counters.newer, 0);
    ahead_reader_close(reader);
}

static void test_reader_of_descriptors(void)
{
    ahead_reader *reader = NOT_NULL(ahead_reader);
    char text[20];
    int ends[2];

    EQUAL(ahead_reader_from_fd(-1, NULL, &reader), -EBADF);
    EQUAL(reader == NULL, 1);
    EQUAL(ahead_reader_from_fd(1 << 20, NULL, &reader), -EBADF);
    EQUAL(ahead_reader_from_fd(0, NULL, NULL), -EINVAL);

    EQUAL(pipe(ends), 0);
    EQUAL(write(ends[1], "pipe", 4), 4);
    close(ends[1]);
    EQUAL(ahead_reader_from_fd(ends[0], NULL, &reader), 0);
    close(ends[0]);
    EQUAL(ahead_reader_pread(reader, text, sizeof text, 0), -ESPIPE);
    EQUAL(ahead_reader_seek(reader, 0, SEEK_SET), -ESPIPE);
    EQUAL(ahead_reader_read(reader, text, sizeof text), 4);
    EQUAL(ahead_reader_read(reader, text, sizeof text), 0);
    ahead_reader_close(reader);

    EQUAL(ahead_reader_open("directory", NULL, &reader), 0);
    EQUAL(ahead_reader_read(reader, text, sizeof text), -EISDIR);
    ahead_reader_close(reader);

    int fd = open("file", O_RDONLY | O_CLOEXEC);
    EQUAL(lseek(fd, 4, SEEK_SET), 4);
    EQUAL(ahead_reader_from_fd(fd, NULL, &reader), 0);
    EQUAL(ahead_reader_read(reader, text, 2), 2);
    EQUAL(memcmp(text, "3\n", 2), 0);
    EQUAL(lseek(fd, 0, SEEK_CUR), 4);
    ahead_reader_close(reader);
    close(fd);

    fd = open("empty", O_WRONLY | O_CLOEXEC);
    EQUAL(ahead_reader_from_fd(fd, NULL, &reader), 0);
    EQUAL(ahead_reader_read(reader, text, sizeof text), -EBADF);
    ahead_reader_close(reader);
    close(fd);
}

/* A child of fork(2) goes on with the parent's reader, from the same position. */
static void test_fork(void)
{
    ahead_reader *reader;
    char text[20];
    int status = -1;

    EQUAL(ahead_reader_open("file", NULL, &reader), 0);
    EQUAL(ahead_reader_read(reader, text, 2), 2);
    pid_t child = fork();
    if (child == 0) {
        int is_right = ahead_reader_read(reader, text, 2) == 2 && memcmp(text, "2\n", 2) == 0;
        ahead_reader_close(reader);
        _exit(is_right ? 0 : 1);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(ahead_reader_read(reader, text, 2), 2);
    EQUAL(memcmp(text, "2\n", 2), 0);
    ahead_reader_close(reader);
}

static void *report_progress(void *handle)
{
    for (size_t offset = 0; offset < 8192; offset += 64)
        ahead_advised_progress((ahead_advised *)handle, offset);
    return NULL;
}

static void test_advise(void)
{
    static const int behaviours[] = {AHEAD_NORMAL, AHEAD_RANDOM, AHEAD_SEQUENTIAL, AHEAD_WILLNEED, AHEAD_DONTNEED, AHEAD_BACKWARD};
    ahead_advised *advised = NOT_NULL(ahead_advised);
    ahead_advised_counters counters;
    pthread_t threads[4];

    int fd = open("file", O_RDONLY | O_CLOEXEC);
    char *file = (char *)mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    char *memory = (char *)mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    close(fd);
    EQUAL(file != MAP_FAILED && memory != MAP_FAILED, 1);

    EQUAL(ahead_advise(NULL, 8192, AHEAD_SEQUENTIAL, 0, &advised), -EINVAL);
    EQUAL(advised == NULL, 1);
    EQUAL(ahead_advise(file, 8192, AHEAD_SEQUENTIAL, 0, NULL), -EINVAL);
    EQUAL(ahead_advise(file, 8192, 77, 0, &advised), -EINVAL);
    EQUAL(ahead_advise(file, 8192, AHEAD_STRIDE, 0, &advised), -EINVAL);
    EQUAL(ahead_advise(file, SIZE_MAX, AHEAD_SEQUENTIAL, 0, &advised), -EINVAL);
    EQUAL(ahead_advise(memory, 8192, AHEAD_SEQUENTIAL, 0, &advised), -EINVAL);
    EQUAL(ahead_advise_stride(file, 8192, 0, 0, &advised), -EINVAL);
    EQUAL(ahead_advise_stride(NULL, 8192, 4096, 0, &advised), -EINVAL);
    EQUAL(ahead_advise_stride(file, 8192, -4096, 0, &advised), 0);
    ahead_advised_free(advised);
    for (size_t at = 0; at < sizeof behaviours / sizeof behaviours[0]; at++) {
        EQUAL(ahead_advise(file + 1, 8000, behaviours[at], at, &advised), 0);
        EQUAL(file[0], '1');
        ahead_advised_free(advised);
    }

    EQUAL(ahead_advise(file, 8192, AHEAD_SEQUENTIAL, 1, &advised), 0);
    for (int at = 0; at < 4; at++)
        EQUAL(pthread_create(&threads[at], NULL, report_progress, advised), 0);
    for (int at = 0; at < 4; at++)
        EQUAL(pthread_join(threads[at], NULL), 0);
    ahead_advised_progress(advised, SIZE_MAX);
    ahead_advised_progress(NULL, 0);
    memset(&counters, 0xff, sizeof counters);
    counters.size = 8;
    EQUAL(ahead_advised_get_counters(advised, &counters), -EINVAL);
    counters.size = sizeof counters;
    EQUAL(ahead_advised_get_counters(NULL, &counters), -EINVAL);
    EQUAL(ahead_advised_get_counters(advised, &counters), 0);
    EQUAL(counters.distance_bytes == UINT64_MAX, 0);
    /* The region may go before the handle. */
    munmap(file, 8192);
    munmap(memory, 8192);
    ahead_advised_free(advised);
    ahead_advised_free(NULL);
}

/* Gives two items, and then returns what `context` says. */
struct source {
    int calls, last;
    uint64_t reserved;
};

static int two_items(void *context, ahead_item *item)
{
    struct source *source = (struct source *)context;

    if (source->calls++ == 2)
        return source->last;
    item->path = source->calls == 1 ? "file" : NULL;
    item->key = source;
    item->reserved[1] = source->reserved;
    return 1;
}

/* A function of the program that uses the prefetcher that calls it, which the header forbids. */
static ahead_prefetcher *calling;

static int reentrant_item(void *context, ahead_item *item)
{
    (void)item;
    EQUAL(ahead_prefetcher_next(calling, NULL), -EBUSY);
    ++*(int *)context;
    return 0;
}

static void test_busy(void)
{
    int calls = 0;

    EQUAL(ahead_prefetcher_new(reentrant_item, &calls, NULL, &calling), 0);
    EQUAL(ahead_prefetcher_next(calling, NULL), 0);
    EQUAL(calls, 1);
    ahead_prefetcher_free(calling);
}

/* A reader that a thread of the parent uses at the time of the fork. */
static void *read_pipe(void *reader)
{
    char byte;
    long read;

    /* While the main thread looks whether this one reads. */
    while ((read = ahead_reader_read((ahead_reader *)reader, &byte, 1)) == -EBUSY)
        ;
    EQUAL(read, 1);
    return NULL;
}

static void test_busy_at_fork(void)
{
    ahead_reader *reader;
    pthread_t thread;
    int ends[2], status = -1;
    long busy;

    EQUAL(pipe(ends), 0);
    EQUAL(ahead_reader_from_fd(ends[0], NULL, &reader), 0);
    EQUAL(pthread_create(&thread, NULL, read_pipe, reader), 0);
    /* Until the thread reads, each of these calls fails with ESPIPE. */
    while ((busy = ahead_reader_seek(reader, 0, SEEK_SET)) == -ESPIPE)
        ;
    EQUAL(busy, -EBUSY);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(ahead_reader_read(reader, &status, 1) == -EBUSY ? 0 : 1);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    EQUAL(write(ends[1], "x", 1), 1);
    EQUAL(pthread_join(thread, NULL), 0);
    ahead_reader_close(reader);
    close(ends[0]);
    close(ends[1]);
}

static void test_prefetcher_of_function(int last, uint64_t reserved, int expected_items, int expected_end)
{
    struct source source = {0, last, reserved};
    ahead_prefetcher *prefetcher;
    void *key;

    EQUAL(ahead_prefetcher_new(two_items, &source, NULL, &prefetcher), 0);
    for (int at = 0; at < expected_items; at++) {
        EQUAL(ahead_prefetcher_next(prefetcher, &key), 1);
        EQUAL(key == &source, 1);
    }
    EQUAL(ahead_prefetcher_next(prefetcher, &key), expected_end);
    EQUAL(key == NULL, 1);
    EQUAL(ahead_prefetcher_next(prefetcher, NULL), 0);
    ahead_prefetcher_free(prefetcher);
}

static void test_prefetcher(void)
{
    static int keys[4];
    ahead_prefetcher *prefetcher = NOT_NULL(ahead_prefetcher);
    ahead_prefetcher_options options;
    ahead_prefetcher_counters counters;
    ahead_item items[4];
    void *key;

    memset(items, 0, sizeof items);
    for (int at = 0; at < 4; at++)
        items[at].key = &keys[at];
    items[0].path = "file";
    items[1].path = "missing";
    items[2].path = "file";
    items[2].offset = UINT64_MAX;
    items[2].length = UINT64_MAX;

    EQUAL(ahead_prefetcher_new(NULL, NULL, NULL, &prefetcher), -EINVAL);
    EQUAL(prefetcher == NULL, 1);
    EQUAL(ahead_prefetcher_new(two_items, NULL, NULL, NULL), -EINVAL);
    EQUAL(ahead_prefetcher_of_items(NULL, 1, NULL, &prefetcher), -EINVAL);
    EQUAL(ahead_prefetcher_of_items(items, 4, NULL, NULL), -EINVAL);
    memset(&options, 0, sizeof options);
    EQUAL(ahead_prefetcher_of_items(items, 4, &options, &prefetcher), -EINVAL);
    options.size = sizeof options;
    options.window_bytes = 1;
    options.window_us = 1;
    EQUAL(ahead_prefetcher_of_items(items, 4, &options, &prefetcher), -EINVAL);
    options.window_us = 0;
    options.flags = 1;
    EQUAL(ahead_prefetcher_of_items(items, 4, &options, &prefetcher), -EINVAL);
    options.flags = 0;
    options.threads = 1;
    items[3].reserved[0] = 1;
    EQUAL(ahead_prefetcher_of_items(items, 4, &options, &prefetcher), -E2BIG);
    items[3].reserved[0] = 0;

    EQUAL(ahead_prefetcher_next(NULL, &key), -EINVAL);
    EQUAL(ahead_prefetcher_of_items(NULL, 0, NULL, &prefetcher), 0);
    EQUAL(ahead_prefetcher_next(prefetcher, &key), 0);
    ahead_prefetcher_free(prefetcher);
    EQUAL(ahead_prefetcher_of_items(items, 4, &options, &prefetcher), 0);
    for (int at = 0; at < 4; at++) {
        EQUAL(ahead_prefetcher_next(prefetcher, &key), 1);
        EQUAL(key == &keys[at], 1);
    }
    EQUAL(ahead_prefetcher_next(prefetcher, &key), 0);
    memset(&counters, 0, sizeof counters);
    EQUAL(ahead_prefetcher_get_counters(prefetcher, &counters), -EINVAL);
    counters.size = sizeof counters;
    EQUAL(ahead_prefetcher_get_counters(prefetcher, NULL), -EINVAL);
    EQUAL(ahead_prefetcher_get_counters(prefetcher, &counters), 0);
    EQUAL(counters.items, 4);
    ahead_prefetcher_free(prefetcher);
    ahead_prefetcher_free(NULL);

    test_prefetcher_of_function(0, 0, 2, 0);
    test_prefetcher_of_function(-EXDEV, 0, 2, -EXDEV);
    test_prefetcher_of_function(77, 0, 2, -EINVAL);
    test_prefetcher_of_function(0, 1, 0, -E2BIG);
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) < 0) {
        fprintf(stderr, "usage: errors DIRECTORY\n");
        return 2;
    }
    test_version();
    test_budget();
    test_reader_options();
    test_reader();
    test_reader_of_descriptors();
    test_fork();
    test_advise();
    test_prefetcher();
    test_busy();
    test_busy_at_fork();
    return failures == 0 ? 0 : 1;
}
