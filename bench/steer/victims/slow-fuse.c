/* A FUSE file system with the latency and bandwidth of a network volume: a read-ahead window, and no block device below it.
 *
 *     slow-fuse MOUNT SIZE_MIB LATENCY_US MB_PER_S
 *
 *     data    SIZE_MIB; each 8 bytes hold their offset, mixed
 *     stat    "requests bytes" that were read of `data`, never cached
 *
 * A request is transferred after those before it, and is answered LATENCY_US after its transfer. Runs in the foreground; SIGTERM unmounts. */
#define FUSE_USE_VERSION 312
#include "victim.h"
#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <string.h>

enum { DATA = 2, STAT = 3 };

/* Requests that wait at the same time. */
#define THREADS 64
/* The kernel keeps names and attributes this long. */
#define KEPT_S 3600

static uint64_t size_bytes, latency_ns, bytes_per_s, free_ns, requests, bytes_read;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct stat attributes(fuse_ino_t node) {
    struct stat about = {.st_ino = node, .st_nlink = 1, .st_mode = S_IFREG | 0444};
    if (node == FUSE_ROOT_ID)
        about.st_mode = S_IFDIR | 0555;
    about.st_size = node == DATA ? (off_t)size_bytes : node == STAT ? 64 : 0;
    return about;
}

static void get_attributes(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    (void)info;
    struct stat about = attributes(node);
    fuse_reply_attr(request, &about, KEPT_S);
}

static void lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
    fuse_ino_t node = strcmp(name, "data") == 0 ? DATA : strcmp(name, "stat") == 0 ? STAT : 0;
    if (parent != FUSE_ROOT_ID || node == 0) {
        fuse_reply_err(request, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.ino = node, .attr = attributes(node), .attr_timeout = KEPT_S, .entry_timeout = KEPT_S};
    fuse_reply_entry(request, &entry);
}

static void open_file(fuse_req_t request, fuse_ino_t node, struct fuse_file_info *info) {
    info->direct_io = node == STAT;
    info->keep_cache = node == DATA;
    fuse_reply_open(request, info);
}

/* When a request of these bytes has been answered by the volume. */
static uint64_t due_ns(uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint64_t now = now_ns();
    free_ns = (free_ns > now ? free_ns : now) + bytes * NS_PER_S / bytes_per_s;
    requests++;
    bytes_read += bytes;
    uint64_t due = free_ns + latency_ns;
    pthread_mutex_unlock(&lock);
    return due;
}

static uint64_t mixed(uint64_t offset) {
    uint64_t word = offset * 0x9e3779b97f4a7c15ull;
    return word ^ word >> 32;
}

static void read_file(fuse_req_t request, fuse_ino_t node, size_t size, off_t at, struct fuse_file_info *info) {
    (void)info;
    if (node == STAT) {
        char text[64];
        int length = snprintf(text, sizeof text, "%llu %llu\n", (unsigned long long)requests, (unsigned long long)bytes_read);
        fuse_reply_buf(request, text + (at < length ? at : length), at < length ? (size_t)(length - at) : 0);
        return;
    }
    if ((uint64_t)at >= size_bytes) {
        fuse_reply_buf(request, NULL, 0);
        return;
    }
    if (size > size_bytes - (uint64_t)at)
        size = size_bytes - (uint64_t)at;
    uint64_t due = due_ns(size), *words = malloc(size + sizeof *words);
    if (words == NULL) {
        fuse_reply_err(request, ENOMEM);
        return;
    }
    for (uint64_t word = 0; word * sizeof *words < size; word++)
        words[word] = mixed((uint64_t)at + word * sizeof *words);
    sleep_until(due);
    fuse_reply_buf(request, (const char *)words, size);
    free(words);
}

static const struct fuse_lowlevel_ops operations = {.lookup = lookup, .getattr = get_attributes, .open = open_file, .read = read_file};

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: slow-fuse MOUNT SIZE_MIB LATENCY_US MB_PER_S\n");
        return 2;
    }
    size_bytes = (uint64_t)number(argv[2]) << 20;
    latency_ns = (uint64_t)(number(argv[3]) * 1000);
    bytes_per_s = (uint64_t)(number(argv[4]) * 1e6);
    char *words[] = {argv[0], "-o", "ro,fsname=slow-fuse", NULL};
    struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
    struct fuse_session *session = fuse_session_new(&arguments, &operations, sizeof operations, NULL);
    if (session == NULL || fuse_set_signal_handlers(session) != 0 || fuse_session_mount(session, argv[1]) != 0)
        return 1;
    struct fuse_loop_config *loop = fuse_loop_cfg_create();
    fuse_loop_cfg_set_max_threads(loop, THREADS);
    fuse_loop_cfg_set_idle_threads(loop, THREADS);
    int result = fuse_session_loop_mt(session, loop);
    fuse_loop_cfg_destroy(loop);
    fuse_session_unmount(session);
    fuse_remove_signal_handlers(session);
    fuse_session_destroy(session);
    return result < 0;
}
