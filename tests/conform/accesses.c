/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads files in every way that programs do, for traces of the kernel's read-ahead.
 *
 *     accesses create DIR             makes the files
 *     accesses PATTERN DIR SEED N     one pattern of the table below, N times as long as the shortest that makes sense;
 *                                     `all`: every one but those with threads, processes and pipes, one after the other
 *
 * The same seed gives the same accesses. Each pattern begins with a file that is not cached.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../splitmix64.h"

#define PAGE 4096
#define FILES 6

static const char *directory;
static uint64_t random_state;
static long length;

/* Odd lengths too: the last page is partial, and the end is not near the end of a large folio. */
static const struct { const char *name; long bytes; } files[FILES] = {
	{ "tiny", 9000 }, { "small", 1 << 20 }, { "odd", 3234567 },
	{ "middle", 8 << 20 }, { "large", 24 << 20 }, { "huge", 48 << 20 },
};

static void die(const char *what)
{
	fprintf(stderr, "accesses: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t draw(uint64_t below)
{
	uint64_t value = splitmix64(&random_state);

	return below ? value % below : 0;
}

static char *path_of(int file)
{
	static char path[4096];
	snprintf(path, sizeof(path), "%s/%s", directory, files[file].name);
	return path;
}

static int open_file(int file, int flags)
{
	int fd = open(path_of(file), flags);
	if (fd < 0)
		die(path_of(file));
	return fd;
}

static int open_cold(int file)
{
	int fd = open_file(file, O_RDONLY);
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
	return open_file(file, O_RDONLY);
}

static void read_at(int fd, long bytes, long offset)
{
	static __thread char buffer[2 << 20];
	if (pread(fd, buffer, bytes, offset < 0 ? 0 : offset) < 0)
		die("pread");
}

static int large_file(void)
{
	return 3 + draw(3);
}

static long size_of(int fd)
{
	struct stat stat;
	if (fstat(fd, &stat))
		die("fstat");
	return stat.st_size;
}

static long block(void)
{
	static const long blocks[] = { 512, 4096, 4096, 8192, 16384, 16384, 65536, 100000, 131072, 1 << 20 };
	return blocks[draw(sizeof(blocks) / sizeof(*blocks))];
}

static void sequential(void)
{
	static char buffer[2 << 20];
	for (int i = 0; i < FILES; i++) {
		int fd = open_cold(i);
		long bytes = block(), left = 200 * length;
		while (left-- > 0 && read(fd, buffer, bytes) > 0)
			;
		close(fd);
	}
}

static void vectors(void)
{
	static char a[5000], b[70000], c[300];
	struct iovec buffers[] = { { a, sizeof(a) }, { b, sizeof(b) }, { c, sizeof(c) } };
	int fd = open_cold(large_file());
	for (long i = 0; i < 30 * length && readv(fd, buffers, 1 + draw(3)) > 0; i++)
		if (preadv(fd, buffers, 1 + draw(3), draw(size_of(fd))) < 0)
			die("preadv");
	close(fd);
}

static void at_random(void)
{
	int fd = open_cold(large_file());
	long bytes = block(), size = size_of(fd);
	for (long i = 0; i < 100 * length; i++)
		read_at(fd, bytes, draw(2) ? (long)draw(size) : (long)draw(size / PAGE) * PAGE);
	close(fd);
}

static void backward(void)
{
	int fd = open_cold(large_file());
	long bytes = block();
	for (long i = 1, size = size_of(fd); i < 60 * length && i * bytes < size; i++)
		read_at(fd, bytes, size - i * bytes);
	close(fd);
}

static void stride(void)
{
	int fd = open_cold(large_file());
	long bytes = block(), step = bytes + (1 + draw(8)) * PAGE;
	for (long i = 0, size = size_of(fd); i < 60 * length && i * step < size; i++)
		read_at(fd, bytes, i * step);
	close(fd);
}

static void interleaved(void)
{
	int fd = open_cold(large_file()), streams = 2 + draw(6);
	long bytes = block(), size = size_of(fd), position[8];
	for (int i = 0; i < streams; i++)
		position[i] = draw(size);
	for (long i = 0; i < 100 * length; i++) {
		int stream = draw(3) ? i % streams : (long)draw(streams);
		read_at(fd, bytes, position[stream]);
		position[stream] = (position[stream] + bytes) % size;
	}
	close(fd);
}

static void mixed(void)
{
	int fd = open_cold(large_file());
	long bytes = block(), size = size_of(fd), position = 0;
	for (long i = 0; i < 100 * length && position < size; i++) {
		if (draw(5))
			read_at(fd, bytes, position), position += bytes;
		else
			read_at(fd, block(), draw(size));
	}
	close(fd);
}

/* Several open files of one file: each finds the pages and markers that the others left in the cache. */
static void openings(void)
{
	int file = large_file(), count = 2 + draw(5), fds[8];
	long position[8], bytes = block();
	for (int i = 0; i < count; i++) {
		fds[i] = i ? open_file(file, O_RDONLY) : open_cold(file);
		position[i] = draw(size_of(fds[i]));
	}
	for (long i = 0; i < 100 * length; i++) {
		int one = draw(count);
		read_at(fds[one], bytes, position[one]);
		position[one] = (position[one] + bytes) % size_of(fds[one]);
	}
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

/* Reads across holes in the cached pages. */
static void partly_cached(void)
{
	int fd = open_file(large_file(), O_RDONLY);
	long size = size_of(fd), bytes = block();
	for (int i = 0; i < 12; i++)
		posix_fadvise(fd, draw(size), 1 << (12 + draw(10)), POSIX_FADV_DONTNEED);
	for (long i = 0; i < 10 * length; i++)
		read_at(fd, block(), draw(size));
	for (long at = draw(size), i = 0; at < size && i < 100 * length; i++, at += bytes)
		read_at(fd, bytes, at);
	close(fd);
}

static void advised(void)
{
	static const int advice[] = { POSIX_FADV_RANDOM, POSIX_FADV_SEQUENTIAL, POSIX_FADV_NORMAL, POSIX_FADV_NOREUSE };
	int fd = open_cold(large_file());
	long bytes = block(), size = size_of(fd), position = 0;
	for (long i = 0; i < 40 * length; i++) {
		if (i % 16 == 0)
			posix_fadvise(fd, 0, 0, advice[draw(4)]);
		read_at(fd, bytes, draw(4) ? position : (long)draw(size));
		position = (position + bytes) % size;
	}
	close(fd);
}

static void wanted(void)
{
	static const long lengths[] = { 0, 1, PAGE, 65536, 1 << 20, 5 << 20 };
	int fd = open_cold(large_file());
	long size = size_of(fd);
	char *memory = mmap(0, size, PROT_READ, MAP_SHARED, fd, 0);
	for (long i = 0; i < 5 * length; i++) {
		long bytes = lengths[draw(6)], at = draw(size / PAGE) * PAGE;
		if (draw(2))
			posix_fadvise(fd, draw(size), bytes, POSIX_FADV_WILLNEED);
		else if (draw(2))
			readahead(fd, draw(size), bytes);
		else
			madvise(memory + at, bytes < size - at ? bytes : size - at, MADV_WILLNEED);
		read_at(fd, block(), draw(size));
		if (i % 8 == 0)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	munmap(memory, size);
	close(fd);
}

/* Touches pages of a mapping: `next` returns the page. */
static void touch(int protection, int advice, long times, long (*next)(long i, long pages))
{
	int fd = open_cold(large_file());
	long size = size_of(fd), pages = size / PAGE;
	volatile char *memory = mmap(0, size, protection, MAP_SHARED, fd, 0), sum = 0;
	if (memory == MAP_FAILED)
		die("mmap");
	if (advice)
		madvise((void *)memory, size, advice);
	for (long i = 0; i < times; i++)
		sum += memory[next(i, pages) % pages * PAGE];
	munmap((void *)memory, size);
	close(fd);
}

static long forwards(long i, long pages) { return i < pages ? i : (long)draw(pages); }
static long backwards(long i, long pages) { return i < pages ? pages - 1 - i : 0; }
static long anywhere(long i, long pages) { (void)i; return draw(pages); }
static long clustered(long i, long pages) { return (i / 20 * 7919 + draw(40)) % pages; }

static void mapped(void) { touch(PROT_READ, 0, 300 * length, forwards); }
static void mapped_backwards(void) { touch(PROT_READ, 0, 100 * length, backwards); }
static void mapped_at_random(void) { touch(PROT_READ, 0, 60 * length, anywhere); }
static void mapped_clustered(void) { touch(PROT_READ, 0, 200 * length, clustered); }
static void mapped_random(void) { touch(PROT_READ, MADV_RANDOM, 60 * length, anywhere); }
static void mapped_sequential(void) { touch(PROT_READ, MADV_SEQUENTIAL, 300 * length, forwards); }
static void mapped_huge(void) { touch(PROT_READ, MADV_HUGEPAGE, 10 * length, anywhere); }
static void mapped_program(void) { touch(PROT_READ | PROT_EXEC, 0, 60 * length, clustered); }

static void populated(void)
{
	int fd = open_cold(large_file());
	long size = size_of(fd);
	char *memory = mmap(0, size, PROT_READ, MAP_SHARED, fd, 0);
	for (long i = 0; i < length; i++) {
		long at = draw(size / PAGE) * PAGE;
		madvise(memory + at, size - at < 1 << 20 ? size - at : 1 << 20, MADV_POPULATE_READ);
	}
	munmap(memory, size);
	close(fd);
}

/* Written pages are cached too, in folios of other sizes; a truncation removes pages. */
static void written(void)
{
	static char data[300000];
	int fd = open_cold(4), writer = open_file(4, O_WRONLY);
	long size = files[4].bytes, bytes = block();
	for (long i = 0, at = 0; i < 30 * length; i++, at = (at + bytes) % size) {
		if (draw(4) == 0 && pwrite(writer, data, 1 + draw(sizeof(data)), draw(size)) < 0)
			die("pwrite");
		if (draw(25) == 0 && (ftruncate(writer, size - draw(size / 4)) || fsync(writer)))
			die("ftruncate");
		read_at(fd, bytes, at);
	}
	if (ftruncate(writer, size) || fsync(writer))
		die("ftruncate");
	close(writer);
	close(fd);
}

static struct { int fd; long bytes; } shared;

static void *reader(void *seed)
{
	/* Each thread has a separate random state: the order in which they run must not matter. */
	uint64_t state = (uintptr_t)seed;
	long position = 0, size = size_of(shared.fd);
	for (long i = 0; i < 200 * length; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		if ((state >> 33) % 8 == 0)
			position = (state >> 20) % size;
		read_at(shared.fd, shared.bytes, position);
		position = (position + shared.bytes) % size;
	}
	return 0;
}

/* One open file, several threads: their decisions overlap. */
static void threads(void)
{
	pthread_t thread[4];
	shared.fd = open_cold(5);
	shared.bytes = block();
	for (uintptr_t i = 0; i < 4; i++)
		if (pthread_create(&thread[i], 0, reader, (void *)(draw(1 << 30) + i)))
			die("pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], 0);
	close(shared.fd);
}

/* Shares the position with others: reads the next bytes, and sometimes seeks. */
static void *read_shared_position(void *seed)
{
	static __thread char buffer[1 << 20];
	uint64_t state = (uintptr_t)seed;
	for (long i = 0; i < 30 * length; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		if (state >> 60 == 0)
			lseek(shared.fd, (state >> 20) % files[5].bytes, SEEK_SET);
		if (read(shared.fd, buffer, shared.bytes) < 0)
			die("read");
	}
	return 0;
}

static void turns(void)
{
	pthread_t thread[4];
	shared.fd = open_cold(5);
	shared.bytes = block();
	for (uintptr_t i = 0; i < 4; i++)
		if (pthread_create(&thread[i], 0, read_shared_position, (void *)(draw(1 << 30) + i)))
			die("pthread_create");
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], 0);
	close(shared.fd);
}

/* The same with processes that have inherited the open file. */
static void inherited(void)
{
	shared.fd = open_cold(large_file());
	shared.bytes = block();
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			read_shared_position((void *)(uintptr_t)(draw(1 << 30) + i));
			exit(0);
		}
	while (wait(0) > 0)
		;
	close(shared.fd);
}

/* Data that do not pass through the program: to a pipe, and to a file. */
static void sent(void)
{
	static char buffer[1 << 17];
	int fd = open_cold(large_file()), pipes[2], sink = open("/dev/null", O_WRONLY);
	long size = size_of(fd), bytes = block();
	if (pipe(pipes) || sink < 0)
		die("pipe");
	for (long i = 0; i < 40 * length; i++) {
		off_t at = draw(size);
		ssize_t left = draw(2) ? splice(fd, &at, pipes[1], 0, 60000, 0) : sendfile(pipes[1], fd, &at, 50000);
		while (left > 0)
			left -= read(pipes[0], buffer, left);
		if (left < 0)
			die("splice");
		if (draw(2))
			read_at(fd, bytes, draw(3) ? (long)at : (long)draw(size));
		if (draw(4) == 0 && sendfile(sink, fd, 0, bytes) < 0)
			die("sendfile");
	}
	close(pipes[0]);
	close(pipes[1]);
	close(sink);
	close(fd);
}

#ifndef RWF_DONTCACHE
#define RWF_DONTCACHE 0x80
#endif

/* Read pages are dropped behind the reader, if the file system supports it. */
static void uncached(void)
{
	static char buffer[1 << 20];
	int fd = open_cold(large_file());
	long size = size_of(fd);
	struct iovec vector = { buffer, 9000 };
	for (long i = 0; i < 40 * length; i++) {
		long at = draw(size);
		int flags = draw(2) ? RWF_DONTCACHE : 0;
		for (int j = 0; j < 4; j++)
			if (preadv2(fd, &vector, 1, at + j * 9000, flags) < 0 && errno != EOPNOTSUPP)
				die("preadv2");
	}
	close(fd);
}

/* One file, several processes with an open file each. */
static void processes(void)
{
	int file = large_file();
	close(open_cold(file));
	for (int i = 0; i < 3; i++) {
		random_state += i;
		if (fork() == 0) {
			shared.fd = open_file(file, O_RDONLY);
			shared.bytes = block();
			reader((void *)(uintptr_t)draw(1 << 30));
			exit(0);
		}
	}
	while (wait(0) > 0)
		;
}

static const struct { const char *name; void (*run)(void); int is_apart; } patterns[] = {
	{ "sequential", sequential, 0 }, { "vectors", vectors, 0 }, { "random", at_random, 0 },
	{ "backward", backward, 0 }, { "stride", stride, 0 }, { "interleaved", interleaved, 0 }, { "mixed", mixed, 0 },
	{ "openings", openings, 0 }, { "partly-cached", partly_cached, 0 }, { "advised", advised, 0 },
	{ "wanted", wanted, 0 }, { "mapped", mapped, 0 }, { "mapped-backwards", mapped_backwards, 0 },
	{ "mapped-at-random", mapped_at_random, 0 }, { "mapped-clustered", mapped_clustered, 0 },
	{ "mapped-random", mapped_random, 0 }, { "mapped-sequential", mapped_sequential, 0 },
	{ "mapped-huge", mapped_huge, 0 }, { "mapped-program", mapped_program, 0 }, { "populated", populated, 0 },
	{ "written", written, 0 }, { "threads", threads, 1 }, { "processes", processes, 1 },
	{ "turns", turns, 1 }, { "inherited", inherited, 1 }, { "sent", sent, 1 }, { "uncached", uncached, 0 },
};

static void create(void)
{
	static uint64_t content[1 << 14];
	for (int i = 0; i < FILES; i++) {
		int fd = open(path_of(i), O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0)
			die(path_of(i));
		for (long left = files[i].bytes; left > 0; left -= sizeof(content)) {
			long bytes = left < (long)sizeof(content) ? left : (long)sizeof(content);
			for (size_t j = 0; j < sizeof(content) / sizeof(*content); j++)
				content[j] = draw(0) + random_state;
			if (write(fd, content, bytes) != bytes)
				die(path_of(i));
		}
		if (fsync(fd))
			die("fsync");
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "create") == 0) {
		directory = argv[2];
		create();
		return 0;
	}
	if (argc != 5) {
		fprintf(stderr, "usage: accesses create DIR | accesses PATTERN|all DIR SEED N\n");
		return 2;
	}
	directory = argv[2];
	random_state = strtoull(argv[3], 0, 10);
	length = strtol(argv[4], 0, 10);
	int ran = 0;
	for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
		int is_all = strcmp(argv[1], "all") == 0 && !patterns[i].is_apart;
		if (!is_all && strcmp(argv[1], patterns[i].name) != 0)
			continue;
		patterns[i].run();
		ran = 1;
	}
	if (!ran)
		fprintf(stderr, "accesses: no pattern %s\n", argv[1]);
	return ran ? 0 : 2;
}
