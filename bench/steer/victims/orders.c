/* Reads a file block by block in an order, without any advice, and prints a line of JSON.
 *
 *     orders ORDER FILE BLOCK_KIB [--stride-kib N] [--seconds S] [--passes N] [--think-us T]
 *
 *     sequential    0 1 2 3 …            backward      … 3 2 1 0
 *     stride        a block every N KiB  interleaved   four readers, each in its quarter, in turn, through one open file
 *
 * --seconds ends it after this time; --think-us sleeps after each block, as a program that computes. The checksum is that of what was read. */
#include "victim.h"
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READERS 4

enum order { SEQUENTIAL, BACKWARD, STRIDE, INTERLEAVED, ORDERS };
static const char *const names[ORDERS] = {"sequential", "backward", "stride", "interleaved"};

struct run {
    enum order order;
    uint64_t block_bytes, stride_bytes, file_bytes, think_ns, end_ns;
};

/* The place of the `index`th block; at or beyond the end of the file: no more. */
static uint64_t place(const struct run *run, uint64_t index) {
    uint64_t blocks = run->file_bytes / run->block_bytes;
    switch (run->order) {
    case BACKWARD:
        return index < blocks ? (blocks - 1 - index) * run->block_bytes : run->file_bytes;
    case STRIDE:
        return index * run->stride_bytes;
    case INTERLEAVED:
        return index < blocks / READERS * READERS ? (index % READERS * (blocks / READERS) + index / READERS) * run->block_bytes : run->file_bytes;
    default:
        return index * run->block_bytes;
    }
}

static uint64_t checksum_of(const char *block, uint64_t bytes) {
    uint64_t sum = 0, word;
    for (uint64_t at = 0; at + sizeof word <= bytes; at += 512) {
        memcpy(&word, block + at, sizeof word);
        sum = sum * 31 + word;
    }
    return sum;
}

int main(int argc, char **argv) {
    struct run run = {.order = ORDERS, .end_ns = UINT64_MAX};
    uint64_t passes = 1, bytes = 0, reads = 0, checksum = 0;
    for (int known = 0; argc >= 4 && known < ORDERS; known++)
        if (strcmp(argv[1], names[known]) == 0)
            run.order = (enum order)known;
    if (run.order == ORDERS) {
        fprintf(stderr, "usage: orders sequential|backward|stride|interleaved FILE BLOCK_KIB [--stride-kib N] [--seconds S] [--passes N] [--think-us T]\n");
        return 2;
    }
    run.block_bytes = (uint64_t)number(argv[3]) << 10;
    run.stride_bytes = 4 * run.block_bytes;
    uint64_t began_ns = now_ns();
    for (int at = 4; at + 1 < argc; at += 2) {
        double value = number(argv[at + 1]);
        if (strcmp(argv[at], "--stride-kib") == 0)
            run.stride_bytes = (uint64_t)value << 10;
        else if (strcmp(argv[at], "--seconds") == 0)
            run.end_ns = began_ns + (uint64_t)(value * NS_PER_S);
        else if (strcmp(argv[at], "--passes") == 0)
            passes = (uint64_t)value;
        else if (strcmp(argv[at], "--think-us") == 0)
            run.think_ns = (uint64_t)(value * 1000);
        else
            return 2;
    }
    int file = open(argv[2], O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0)
        fail(argv[2]);
    run.file_bytes = (uint64_t)about.st_size;
    char *block = malloc(run.block_bytes);
    if (block == NULL)
        fail("malloc");
    memset(block, 0, run.block_bytes);
    began_ns = now_ns();
    for (uint64_t pass = 0; pass < passes && now_ns() < run.end_ns; pass++) {
        uint64_t at;
        for (uint64_t index = 0; (at = place(&run, index)) < run.file_bytes; index++) {
            ssize_t got = pread(file, block, run.block_bytes, (off_t)at);
            if (got < 0)
                fail(argv[2]);
            bytes += (uint64_t)got;
            reads++;
            if (passes == 1)
                checksum = checksum * 31 + checksum_of(block, (uint64_t)got);
            if (run.think_ns > 0)
                sleep_until(now_ns() + run.think_ns);
            if (run.end_ns != UINT64_MAX && now_ns() >= run.end_ns)
                break;
        }
    }
    printf("{\"elapsed_s\": %.6f, \"bytes\": %llu, \"reads\": %llu, \"checksum\": \"%016llx\"}\n", (double)(now_ns() - began_ns) / NS_PER_S,
           (unsigned long long)bytes, (unsigned long long)reads, (unsigned long long)checksum);
    return 0;
}
