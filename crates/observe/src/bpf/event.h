/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What goes from the kernel to user space (decoded by event.rs, which checks every length), and the maps behind it.
 * All numbers in the machine's byte order; structures without holes.
 */
#ifndef AHEAD_EVENT_H
#define AHEAD_EVENT_H

enum event_type {
	EVENT_ACCESS = 1,
	EVENT_FILE = 2,
	EVENT_EXEC = 3,
	EVENT_LOOKUP = 4,
	EVENT_FORK = 5,
};

enum access_kind {
	ACCESS_READ = 0,   /* a buffered read asked for the pages */
	ACCESS_FAULT = 1,  /* a mapping was touched and its page looked up */
	ACCESS_AROUND = 2, /* the window around a touched page was mapped: an upper bound */
	ACCESS_ADDED = 3,  /* the pages came into the cache */
};

/* Of a file event. */
enum {
	FILE_UNLINKED = 1,     /* it had no name any more */
	FILE_TRUNCATED = 2,    /* the path was longer than what is kept, or deeper than the walk */
	FILE_NAMELESS = 4,     /* no directory entry is cached for it */
	FILE_DISCONNECTED = 8, /* the walk ended at a root that is not its file system's */
};

/* Of a lookup event. */
enum {
	LOOKUP_FAILED = 1, /* the system call gave an error */
	LOOKUP_LISTED = 2, /* the directory was listed */
};

struct event {
	u32 type;
	u32 tgid;
	u64 time_ns;
};

struct access_event {
	struct event head;
	u32 tid;
	u32 file;
	u64 first_page;
	u64 mask;  /* pages 0: which of the 64 pages from first_page on */
	u32 pages; /* or this many from first_page on, and no mask */
	u32 kind;
};

/* The longest path that is kept (PATH_MAX), and the longest name in it (FUSE allows 1024). */
#define PATH_BYTES 4096
#define NAME_BYTES 1024
/* How deep the walk from a file to its root may go. */
#define PATH_DEPTH 128

struct file_event {
	struct event head;
	u32 file;
	u32 mode;
	u32 device;
	u32 rdev;
	u64 inode;
	u64 size;
	u64 magic;
	u32 generation;
	u16 flags;
	u16 path_bytes;
	char path[PATH_BYTES + NAME_BYTES]; /* from the file up to the root, a NUL after each name */
};

struct exec_event {
	struct event head;
	u32 file; /* the program file (of a script: its interpreter) */
	u32 root; /* the root directory of the process, a file too */
	u32 directory;
	u32 mount_namespace;
	u32 name_bytes;
	u32 padding;
	char name[PATH_BYTES]; /* as it was given to execve */
};

struct lookup_event {
	struct event head;
	u32 base; /* the directory that a relative path starts from, or the root of an absolute one */
	u16 flags;
	u16 path_bytes;
	char path[PATH_BYTES];
};

struct fork_event {
	struct event head; /* of the parent */
	u32 child;
	u32 padding;
};

/* What is followed; fixed before the programs are loaded, so that the rest is left out by the verifier. */
struct settings {
	u64 cgroup;        /* or 0 */
	u32 cgroup_level;  /* of that cgroup below the root */
	u32 everything;    /* all but own_tgid */
	u32 own_tgid;
	u32 page_shift;
	u32 mount_namespace; /* of the observer: a program in another one is announced at once */
	u32 want_added;      /* report pages that came into the cache */
	u32 wake_bytes;      /* wake the observer when so much waits for it */
	u32 padding;
};

enum loss {
	LOSS_RING = 0,   /* the ring buffer was full: an event is gone */
	LOSS_FILES = 1,  /* the file table was full: an access could not be named */
	LOSS_BUSY = 2,   /* another event was being written on this processor: will be tried again */
	LOSS_TEXT = 3,   /* a path could not be read from the program's memory */
	REPEATED = 4,    /* the table of pages was full: repeats were reported again, nothing is lost */
	COUNTERS = 5,
};

#endif
