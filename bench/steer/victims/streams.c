/* Many slow streams: each reads its file from front to back, 4 KiB at a time, at a fixed rate. Prints a line of JSON.
 *
 *     streams DIRECTORY COUNT BYTES_PER_S SECONDS THREADS
 *
 * The files are DIRECTORY/0000 and so on. A thread serves COUNT/THREADS streams in turn. A stream begins again at the end of its file.
 * A read that is late delays the following reads; no read is left out. */
#include "victim.h"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define NAME_BYTES 4096
/* A read that takes longer has waited for the device: a copy of 4 KiB takes a few µs. */
#define SLOW_NS 50000

struct part {
    pthread_t thread;
    const char *directory;
    int first, count;
    uint64_t interval_ns, end_ns;
    uint64_t reads, slow, waited_ns, behind_ns;
};

static void *serve(void *argument) {
    struct part *part = argument;
    int *files = calloc((size_t)part->count, sizeof *files);
    off_t at = 0;
    char name[NAME_BYTES], page[PAGE_BYTES];
    for (int one = 0; one < part->count; one++) {
        snprintf(name, sizeof name, "%s/%04d", part->directory, part->first + one);
        if ((files[one] = open(name, O_RDONLY)) < 0)
            fail(name);
    }
    uint64_t due_ns = now_ns();
    for (;; at += PAGE_BYTES) {
        for (int one = 0; one < part->count; one++) {
            uint64_t began_ns = now_ns();
            if (began_ns >= part->end_ns)
                return NULL;
            if (began_ns < due_ns)
                sleep_until(due_ns);
            else if (began_ns - due_ns > part->behind_ns)
                part->behind_ns = began_ns - due_ns;
            began_ns = now_ns();
            ssize_t got = pread(files[one], page, sizeof page, at);
            if (got < 0)
                fail("pread");
            uint64_t took_ns = now_ns() - began_ns;
            part->waited_ns += took_ns;
            part->slow += took_ns > SLOW_NS;
            part->reads++;
            due_ns += part->interval_ns;
            if (got < PAGE_BYTES)
                at = -PAGE_BYTES;
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: streams DIRECTORY COUNT BYTES_PER_S SECONDS THREADS\n");
        return 2;
    }
    int count = (int)number(argv[2]), threads = (int)number(argv[5]), each = count / threads;
    uint64_t end_ns = now_ns() + (uint64_t)(number(argv[4]) * NS_PER_S);
    struct part *parts = calloc((size_t)threads, sizeof *parts), all = {0};
    for (int one = 0; one < threads; one++) {
        parts[one] = (struct part){.directory = argv[1], .first = one * each, .count = each, .end_ns = end_ns};
        parts[one].interval_ns = (uint64_t)(PAGE_BYTES * NS_PER_S / number(argv[3]) / each);
        if (pthread_create(&parts[one].thread, NULL, serve, &parts[one]) != 0)
            fail("pthread_create");
    }
    for (int one = 0; one < threads; one++) {
        pthread_join(parts[one].thread, NULL);
        all.reads += parts[one].reads;
        all.slow += parts[one].slow;
        all.waited_ns += parts[one].waited_ns;
        all.behind_ns = parts[one].behind_ns > all.behind_ns ? parts[one].behind_ns : all.behind_ns;
    }
    printf("{\"reads\": %llu, \"slow_reads\": %llu, \"waited_s\": %.3f, \"behind_s\": %.3f}\n", (unsigned long long)all.reads,
           (unsigned long long)all.slow, (double)all.waited_ns / NS_PER_S, (double)all.behind_ns / NS_PER_S);
    return 0;
}
