/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads one file in known patterns and waits between them, so that its open file can be observed meanwhile:
 *
 *   patterns FILE     for each line on standard input reads the file in that pattern, prints the line, and waits for the next one:
 *                     sequential   16 KiB at a time from the start to the end, by read
 *                     mapped       one byte of 256 pages in random order, through a mapping; it opens the file again, because the kernel
 *                                  reads no page around a fault after 100 missed faults of an open file (mmap_miss)
 *                     backward     16 KiB at a time from the end to the start, by pread
 *
 * The file's pages leave the page cache before each pattern. Static and small: it runs under kernels that share no library with it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096L
#define CHUNK (4 * PAGE)
/* Faults of the pattern `mapped`. */
#define FAULTS 256

static int sequential(int file)
{
	static char buffer[CHUNK];
	ssize_t got;

	if (lseek(file, 0, SEEK_SET))
		return 1;
	while ((got = read(file, buffer, sizeof buffer)) > 0)
		;
	return got < 0;
}

static int backward(int file, long bytes)
{
	static char buffer[CHUNK];

	for (long at = bytes - CHUNK; at >= 0; at -= CHUNK)
		if (pread(file, buffer, sizeof buffer, at) != sizeof buffer)
			return 1;
	return 0;
}

static int mapped(int file, long bytes)
{
	volatile char *start = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
	long pages = bytes / PAGE;
	unsigned random = 1996;

	if (start == MAP_FAILED)
		return 1;
	for (int fault = 0; fault < FAULTS; fault++) {
		/* The constants of rand() in the C standard; its low bits repeat soon. */
		random = random * 1103515245 + 12345;
		(void)start[(random >> 8) % pages * PAGE];
	}
	return munmap((void *)start, bytes);
}

int main(int count, char **words)
{
	char line[32];
	struct stat status;
	int file = count == 2 ? open(words[1], O_RDONLY | O_CLOEXEC) : -1;

	if (file < 0 || fstat(file, &status)) {
		fprintf(stderr, "usage: patterns FILE\n");
		return 2;
	}
	while (fgets(line, sizeof line, stdin)) {
		int failed = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);

		if (!strcmp(line, "sequential\n"))
			failed |= sequential(file);
		else if (!strcmp(line, "backward\n"))
			failed |= backward(file, status.st_size);
		else if (!strcmp(line, "mapped\n")) {
			close(file);
			file = open(words[1], O_RDONLY | O_CLOEXEC);
			failed |= file < 0 || mapped(file, status.st_size);
		} else
			failed = 1;
		if (failed) {
			perror("patterns");
			return 1;
		}
		fputs(line, stdout);
		fflush(stdout);
	}
	return 0;
}
