/*
 * Brings ranges of a file into the page cache in one way, touches them, and evicts them. Prints times and processor times.
 *
 *     ways WAY FILE EXTENT STRIDE TOTAL CALL THREADS map|read
 *
 * WAY: none, willneed, readahead, pread, pread-sequential, pread-random, nowait (RWF_NOWAIT drives the kernel's read-ahead), populate
 * (MADV_POPULATE_READ), populate-random, populate-huge, block (2 MiB each: MADV_HUGEPAGE, MADV_RANDOM and one populated page, in THREADS
 * threads). EXTENT bytes of every STRIDE of the first TOTAL bytes; CALL: bytes of one call. Times in milliseconds.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (2L << 20)
#define PAGE 4096L
#define MAX_THREADS 16

static const char *way;
static int file;
static long extent, stride, total, call, next_block;

static double clock_ms(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static long least(long a, long b)
{
	return a < b ? a : b;
}

static void bring_block(long at)
{
	char *reserved = mmap(NULL, 2 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *address = (char *)(((uintptr_t)reserved + BLOCK - 1) & ~(BLOCK - 1));
	if (mmap(address, BLOCK, PROT_READ, MAP_SHARED | MAP_FIXED, file, at) == MAP_FAILED)
		err(1, "mmap");
	if (madvise(address, BLOCK, MADV_HUGEPAGE) || madvise(address, BLOCK, MADV_RANDOM) ||
	    madvise(address, 1, MADV_POPULATE_READ))
		err(1, "madvise");
	munmap(reserved, 2 * BLOCK);
}

/* Each thread takes the next block that lies in an extent. */
static void *bring_blocks(void *unused)
{
	long at;
	while ((at = __atomic_fetch_add(&next_block, BLOCK, __ATOMIC_RELAXED)) < total)
		if (at % stride < extent)
			bring_block(at);
	return unused;
}

static void populate(long at)
{
	char *mapped = mmap(NULL, extent, PROT_READ, MAP_SHARED, file, at);
	if (mapped == MAP_FAILED)
		err(1, "mmap");
	if (!strcmp(way, "populate-random"))
		madvise(mapped, extent, MADV_RANDOM);
	if (!strcmp(way, "populate-huge"))
		madvise(mapped, extent, MADV_HUGEPAGE);
	if (madvise(mapped, extent, MADV_POPULATE_READ))
		err(1, "madvise");
	munmap(mapped, extent);
}

static void bring(long start, char *scratch)
{
	if (!strncmp(way, "populate", 8)) {
		populate(start);
		return;
	}
	for (long at = start; at < start + extent; at += call) {
		long length = least(call, start + extent - at);
		struct iovec one = { scratch, length };
		if (!strcmp(way, "willneed"))
			posix_fadvise(file, at, length, POSIX_FADV_WILLNEED);
		else if (!strcmp(way, "readahead"))
			readahead(file, at, length);
		else if (!strncmp(way, "pread", 5) && pread(file, scratch, length, at) != length)
			err(1, "pread");
		else if (!strcmp(way, "nowait"))
			preadv2(file, &one, 1, at, RWF_NOWAIT);
	}
}

/* As a reader that waits for the last pages, without more read-ahead. */
static void await_arrival(const char *path)
{
	char byte;
	int other = open(path, O_RDONLY);
	posix_fadvise(other, 0, 0, POSIX_FADV_RANDOM);
	for (long start = 0; start < total; start += stride)
		for (long at = start; at < start + extent; at += 64 << 10)
			if (pread(other, &byte, 1, least(at + (64 << 10), start + extent) - 1) != 1)
				err(1, "pread");
	close(other);
}

static void touch(int other, const char *mapped, char *scratch)
{
	volatile unsigned long sum = 0;
	for (long start = 0; start < total; start += stride)
		for (long at = start; at < start + extent; at += mapped ? PAGE : 128 << 10) {
			if (mapped)
				sum += mapped[at];
			else
				sum += pread(other, scratch, least(128 << 10, start + extent - at), at);
		}
}

int main(int argc, char **argv)
{
	if (argc != 9)
		errx(2, "usage: ways WAY FILE EXTENT STRIDE TOTAL CALL THREADS map|read");
	way = argv[1];
	extent = atol(argv[3]), stride = atol(argv[4]), total = atol(argv[5]), call = atol(argv[6]);
	int threads = atoi(argv[7]), maps = !strcmp(argv[8], "map");
	file = open(argv[2], O_RDONLY);
	char *scratch = malloc(16 << 20);
	memset(scratch, 1, 16 << 20);
	posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	if (!strcmp(way, "pread-sequential"))
		posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (!strcmp(way, "pread-random"))
		posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
	double began = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	if (!strcmp(way, "block")) {
		pthread_t others[MAX_THREADS];
		for (int i = 0; i < threads - 1 && i < MAX_THREADS; i++)
			pthread_create(&others[i], NULL, bring_blocks, NULL);
		bring_blocks(NULL);
		for (int i = 0; i < threads - 1 && i < MAX_THREADS; i++)
			pthread_join(others[i], NULL);
	} else if (strcmp(way, "none")) {
		for (long start = 0; start < total; start += stride)
			bring(start, scratch);
	}
	double submitted_cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	if (strcmp(way, "none"))
		await_arrival(argv[2]);
	double arrived = clock_ms(CLOCK_MONOTONIC);
	int other = open(argv[2], O_RDONLY);
	char *mapped = maps ? mmap(NULL, total, PROT_READ, MAP_SHARED, other, 0) : NULL;
	double touch_cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	touch(other, mapped, scratch);
	double touched = clock_ms(CLOCK_MONOTONIC), touched_cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	printf("{\"prefetch_ms\": %.2f, \"prefetch_cpu_ms\": %.2f, \"touch_ms\": %.2f, \"touch_cpu_ms\": %.2f", arrived - began,
	       submitted_cpu - cpu, touched - arrived, touched_cpu - touch_cpu);
	fflush(stdout);
	/* A mapping would keep the pages. */
	if (mapped)
		munmap(mapped, total);
	cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
	posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
	printf(", \"evict_cpu_ms\": %.2f}\n", clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	return 0;
}
