/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Events from the kernel to user space (decoded by event.rs, which checks every length).
 * All numbers are in the machine's byte order; structures have no holes.
 */
#ifndef AHEAD_EVENT_H
#define AHEAD_EVENT_H

enum event_type {
	EVENT_ACCESS = 1,
	EVENT_FILE = 2,
	EVENT_EXEC = 3,
	EVENT_LOOKUP = 4,
	EVENT_FORK = 5,
	EVENT_THREAD_START = 6,
	EVENT_THREAD_END = 7,
	EVENT_WAKE = 8,
	EVENT_OVER = 9, /* armed: the last followed process has ended; only a head */
};

enum access_kind {
	ACCESS_READ = 0,   /* a buffered read requested the pages */
	ACCESS_FAULT = 1,  /* a mapping was accessed, and the fault looked the page up */
	ACCESS_AROUND = 2, /* a fault mapped the pages around its page: an upper bound */
	ACCESS_ADDED = 3,  /* the pages were added to the cache */
};

/* Flags of a file event. */
enum file_flag {
	FILE_UNLINKED = 1,     /* it was unlinked */
	FILE_TRUNCATED = 2,    /* the path is longer than PATH_BYTES, or deeper than PATH_DEPTH */
	FILE_NAMELESS = 4,     /* no directory entry is cached for it */
	FILE_DISCONNECTED = 8, /* the walk ended at a root that is not its file system's */
};

/* Flags of a lookup event. */
enum lookup_flag {
	LOOKUP_FAILED = 1, /* the system call failed */
	LOOKUP_LISTED = 2, /* the directory was listed */
};

struct event {
	u32 type;
	u32 tgid;
	u64 time_ns;
	u64 cpu_ns; /* processor time of the thread; 0 without a timeline */
};

struct access_event {
	struct event head;
	u32 tid;
	u32 file;
	u64 first_page;
	u64 mask;  /* if pages is 0: which of the 64 pages from first_page on */
	u32 pages; /* otherwise: number of pages from first_page on */
	u32 kind;
};

/* Maximum length of a path (PATH_MAX), and of the longest name in it (FUSE allows 1024). */
#define PATH_BYTES 4096
#define NAME_BYTES 1024
/* Maximum depth of the walk from a file to its root. */
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
	u32 file; /* the program file (for a script: its interpreter) */
	u32 root; /* the root directory of the process, also a file id */
	u32 directory;
	u32 mount_namespace;
	u32 name_bytes;
	u32 padding;
	char name[PATH_BYTES]; /* as given to execve */
};

struct lookup_event {
	struct event head;
	u32 tid;
	u32 base; /* the directory that a relative path starts from, or the root directory for an absolute one */
	u16 flags;
	u16 path_bytes;
	u32 padding;
	char path[PATH_BYTES];
};

struct fork_event {
	struct event head; /* of the parent */
	u32 child;
	u32 padding;
};

/* A thread starts (other: the one that starts it), ends, or is woken (other: by which followed thread, 0 if by none). */
struct thread_event {
	struct event head; /* cpu_ns: of the thread */
	u32 tid;
	u32 other;
	u64 other_cpu_ns; /* processor time of the other thread */
	u64 slept_ns;     /* woken: how long it slept */
};

/* Settings, fixed before the programs are loaded, so that the verifier removes unused code. */
struct settings {
	u64 cgroup;        /* or 0 */
	u32 cgroup_level;  /* depth of that cgroup below the root */
	u32 everything;    /* all processes except own_tgid */
	u32 own_tgid;
	u32 page_shift;
	u32 mount_namespace; /* of the observer: a program in another one is announced at once */
	u32 want_added;      /* report pages that are added to the cache */
	u32 wake_bytes;      /* wake the observer when this many bytes wait */
	u32 timeline_bytes;  /* send no events of threads when more bytes than this wait; 0: the threads have no clocks */
	u32 has_copies;      /* each program is attached three times (triple_attach.h) */
	u32 armed;           /* follow the first process that executes a program of `wanted` */
};

enum loss {
	LOSS_RING = 0,   /* the ring buffer was full: an event is lost */
	LOSS_FILES = 1,  /* the file table was full: an access has no file */
	LOSS_BUSY = 2,   /* all scratch buffers of this processor were in use: tried again later */
	LOSS_TEXT = 3,   /* a path could not be read from the program's memory */
	REPEATED = 4,    /* the table of pages was full: repeats are reported again, nothing is lost */
	LOSS_TIMELINE = 5, /* an event of a thread: the timeline is incomplete, the profile is not */
	COUNTERS = 6,
};

#endif
