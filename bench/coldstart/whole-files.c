// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What prefetchers before this one do, as small as it can be said, for a measurement side by side: read whole files
// ahead with one readahead() each, in the order of the list or sorted by device, first block and inode.
//
//     whole-files [--sorted] LIST        LIST: one path a line
//
// Unsorted it is BusyBox's `readahead`, sorted it is Ubuntu's `readahead-list` (Opdenacker 2007, section 4.1): both
// issue one call a file, which the kernel cuts at its own limit. It returns when everything was submitted, as they do.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct entry {
	char *path;
	dev_t device;
	int first_block;
	ino_t inode;
};

static int by_place(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (x->first_block != y->first_block)
		return x->first_block < y->first_block ? -1 : 1;
	return x->inode < y->inode ? -1 : x->inode > y->inode;
}

// Where a file begins; needs the file opened, as readahead-list does it.
static void locate(struct entry *entry)
{
	struct stat status;
	int fd = open(entry->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0) {
		entry->device = status.st_dev;
		entry->inode = status.st_ino;
	}
	if (ioctl(fd, FIBMAP, &entry->first_block) != 0)
		entry->first_block = 0;
	close(fd);
}

static void read_ahead(const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		readahead(fd, 0, status.st_size);
	close(fd);
}

int main(int argc, char **argv)
{
	int sorted = argc == 3 && strcmp(argv[1], "--sorted") == 0;
	struct entry *entries = NULL;
	size_t count = 0, space = 0, room = 0;
	char *line = NULL;
	ssize_t length;
	FILE *list;

	if (argc != 2 + sorted || !(list = fopen(argv[1 + sorted], "r"))) {
		fprintf(stderr, "usage: whole-files [--sorted] LIST\n");
		return 2;
	}
	while ((length = getline(&line, &room, list)) > 0) {
		if (line[length - 1] == '\n')
			line[length - 1] = 0;
		if (count == space) {
			space = space ? 2 * space : 1024;
			entries = realloc(entries, space * sizeof(*entries));
			if (!entries)
				return 1;
		}
		entries[count] = (struct entry){ .path = strdup(line) };
		if (!entries[count].path)
			return 1;
		if (sorted)
			locate(&entries[count]);
		count++;
	}
	if (sorted)
		qsort(entries, count, sizeof(*entries), by_place);
	for (size_t i = 0; i < count; i++)
		read_ahead(entries[i].path);
	return 0;
}
