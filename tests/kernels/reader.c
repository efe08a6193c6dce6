/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads the given ranges, in every way in which pages get into the page cache, and no other page of those files; and
 * prints which pages of a file are resident. Static and small: it runs under kernels that share no library with it.
 *
 *   reader OPERATION FILE OFFSET LENGTH ...   operations: read (pread), map (mmap, one byte of each page), send (sendfile)
 *   reader fork OPERATION ...                 the rest in a child
 *   reader resident FILE ...                  a JSON object: {"FILE": [[first page, last page], ...], ...}
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "reader: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static int open_file(const char *name)
{
	int file = open(name, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		fail("open", name);
	return file;
}

static long size_of(int file, const char *name)
{
	struct stat status;

	if (fstat(file, &status))
		fail("stat", name);
	return status.st_size;
}

static void read_range(int file, const char *name, long offset, long length)
{
	static char buffer[16 * PAGE];

	while (length > 0) {
		long part = length < (long)sizeof buffer ? length : (long)sizeof buffer;
		ssize_t got = pread(file, buffer, part, offset);

		if (got < 0)
			fail("read", name);
		if (got == 0)
			return;
		offset += got;
		length -= got;
	}
}

static void map_range(int file, const char *name, long offset, long length)
{
	long size = size_of(file, name);
	volatile char *start = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);

	if (start == MAP_FAILED)
		fail("mmap", name);
	for (long at = offset; at < offset + length && at < size; at += PAGE)
		(void)start[at];
	munmap((void *)start, size);
}

static void send_range(int file, const char *name, long offset, long length)
{
	int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (sink < 0)
		fail("open", "/dev/null");
	off_t at = offset;
	while (at < offset + length) {
		ssize_t sent = sendfile(sink, file, &at, offset + length - at);

		if (sent < 0)
			fail("sendfile", name);
		if (sent == 0)
			break;
	}
	close(sink);
}

static void operate(char **words)
{
	const char *operation = words[0], *name = words[1];
	long offset = atol(words[2]), length = atol(words[3]);
	int file = open_file(name);

	if (!strcmp(operation, "read"))
		read_range(file, name, offset, length);
	else if (!strcmp(operation, "map"))
		map_range(file, name, offset, length);
	else if (!strcmp(operation, "send"))
		send_range(file, name, offset, length);
	else {
		fprintf(stderr, "reader: unknown operation %s\n", operation);
		exit(2);
	}
	close(file);
}

static void print_resident(const char *name)
{
	int file = open_file(name);
	long size = size_of(file, name), pages = (size + PAGE - 1) / PAGE, run = -1;
	unsigned char *present = malloc(pages);
	void *start = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
	const char *separator = "";

	if (start == MAP_FAILED || !present || mincore(start, size, present))
		fail("mincore", name);
	printf("\"%s\": [", name);
	for (long page = 0; page <= pages; page++) {
		int here = page < pages && (present[page] & 1);

		if (here && run < 0)
			run = page;
		if (!here && run >= 0) {
			printf("%s[%ld, %ld]", separator, run, page - 1);
			separator = ", ";
			run = -1;
		}
	}
	printf("]");
	close(file);
}

int main(int count, char **words)
{
	words++;
	count--;
	if (count > 0 && !strcmp(words[0], "resident")) {
		for (int i = 1; i < count; i++) {
			printf(i == 1 ? "{" : ", ");
			print_resident(words[i]);
		}
		puts("}");
		return 0;
	}
	while (count > 0) {
		if (!strcmp(words[0], "fork")) {
			pid_t child = fork();
			int status;

			if (child < 0)
				fail("fork", "");
			if (child > 0) {
				if (waitpid(child, &status, 0) != child)
					fail("wait", "");
				return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			}
			words++;
			count--;
			continue;
		}
		if (count < 4) {
			fprintf(stderr, "usage: reader [fork] read|map|send FILE OFFSET LENGTH ... | resident FILE ...\n");
			return 2;
		}
		operate(words);
		words += 4;
		count -= 4;
	}
	return 0;
}
