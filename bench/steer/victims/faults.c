/* Touches pages of a mapped file in random order, each at most once, and prints a line of JSON.
 *
 *     faults FILE COUNT [--from N] [--seconds S] [--advise random] [--stat FILE]
 *
 * Times and bytes are counted from fault N on (default 100); --seconds counts from the start. --advise random: MADV_RANDOM on the mapping. --stat: the statistics of the
 * block device (/sys/dev/block/…/stat), or a file whose first two numbers are requests and bytes. */
#include "victim.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Faults that are counted at least, even beyond --seconds. */
#define LEAST 50

static const char *stat_path;

/* Bytes that the device has read. */
static uint64_t device_bytes(void) {
    unsigned long long fields[3] = {0};
    FILE *stat = stat_path ? fopen(stat_path, "r") : NULL;
    if (stat == NULL)
        return 0;
    int got = fscanf(stat, "%llu %llu %llu", &fields[0], &fields[1], &fields[2]);
    fclose(stat);
    return got == 3 ? fields[2] * 512 : fields[1];
}

static int by_value(const void *one, const void *other) {
    uint64_t left = *(const uint64_t *)one, right = *(const uint64_t *)other;
    return (left > right) - (left < right);
}

static long major_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
}

static uint32_t *shuffled(uint64_t pages) {
    uint32_t *order = malloc(pages * sizeof *order);
    uint64_t state = 2007;
    if (order == NULL)
        fail("malloc");
    for (uint64_t page = 0; page < pages; page++)
        order[page] = (uint32_t)page;
    for (uint64_t page = pages - 1; page > 0; page--) {
        uint64_t other = splitmix64(&state) % (page + 1);
        uint32_t moved = order[page];
        order[page] = order[other];
        order[other] = moved;
    }
    return order;
}

int main(int argc, char **argv) {
    uint64_t from = 100, limit_ns = UINT64_MAX;
    int advice = MADV_NORMAL;
    if (argc < 3) {
        fprintf(stderr, "usage: faults FILE COUNT [--from N] [--seconds S] [--advise random] [--stat FILE]\n");
        return 2;
    }
    uint64_t count = (uint64_t)number(argv[2]);
    for (int at = 3; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "--from") == 0)
            from = (uint64_t)number(argv[at + 1]);
        else if (strcmp(argv[at], "--seconds") == 0)
            limit_ns = (uint64_t)(number(argv[at + 1]) * NS_PER_S);
        else if (strcmp(argv[at], "--advise") == 0)
            advice = MADV_RANDOM;
        else if (strcmp(argv[at], "--stat") == 0)
            stat_path = argv[at + 1];
        else
            return 2;
    }
    int file = open(argv[1], O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0)
        fail(argv[1]);
    uint64_t pages = (uint64_t)about.st_size / PAGE_BYTES, sum = 0, done = 0, before = device_bytes(), first_ns = 0;
    uint32_t *order = shuffled(pages);
    if (count > pages)
        count = pages;
    uint64_t *took_ns = calloc(count + 1, sizeof *took_ns);
    volatile const unsigned char *mapped = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || took_ns == NULL || madvise((void *)(uintptr_t)mapped, (size_t)about.st_size, advice) != 0)
        fail(argv[1]);
    long major = major_faults();
    uint64_t start_ns = now_ns();
    for (uint64_t index = 0; index < count; index++) {
        uint64_t began_ns = now_ns();
        if (index == from) {
            before = device_bytes();
            major = major_faults();
            first_ns = began_ns = now_ns();
        }
        sum = sum * 31 + mapped[(uint64_t)order[index] * PAGE_BYTES];
        uint64_t end_ns = now_ns();
        took_ns[index] = end_ns - began_ns;
        done = index + 1;
        if (done >= from + LEAST && end_ns - start_ns > limit_ns)
            break;
    }
    uint64_t elapsed_ns = now_ns() - first_ns, read = device_bytes() - before, counted = done > from ? done - from : 0;
    if (counted == 0) {
        fprintf(stderr, "fewer than %llu faults\n", (unsigned long long)from);
        return 1;
    }
    major = major_faults() - major;
    qsort(took_ns + from, counted, sizeof *took_ns, by_value);
    printf("{\"faults\": %llu, \"major\": %ld, \"elapsed_s\": %.6f, \"us_per_fault\": %.3f, \"median_us\": %.3f, \"device_bytes\": %llu, "
           "\"sum\": \"%016llx\"}\n",
           (unsigned long long)counted, major, (double)elapsed_ns / NS_PER_S, (double)elapsed_ns / 1000 / (double)counted,
           (double)took_ns[from + counted / 2] / 1000, (unsigned long long)read, (unsigned long long)sum);
    return 0;
}
