/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events and tables of decisions.bpf.c, and the kernel structures that only it reads (readahead.h has the others). */
#ifndef AHEAD_DECISION_H
#define AHEAD_DECISION_H

/* The kinds of events. src/decisions/event.rs has the same numbers. */
enum kind {
	FILE_SEEN = 1, /* page: inode number; count: device and generation; extra: pages cached; order: folio sizes */
	OPENED,
	READ,	   /* page: offset in bytes; count: bytes; extra: RWF_ flags */
	READ_END,  /* count: result of the call */
	SYNC,	   /* page, count: pages wanted */
	ASYNC,	   /* as SYNC */
	WINDOW,	   /* page; count: size; extra: async size; order */
	EXACT,	   /* page; count: pages; extra: look-ahead */
	FAULT,	   /* page; with the mapping */
	AROUND,	   /* page to count: may have been mapped around a fault */
	ADDED,	   /* page, order */
	REMOVED,   /* page, order */
	ADVICE,	   /* page: offset in bytes; count: bytes; extra: POSIX_FADV_ */
	DIRTIED,   /* page, order */
	READ_AT,   /* page: offset in bytes at which a read has begun, known only later */
};

enum event_flag {
	EVENT_RANDOM = 1,    /* FMODE_RANDOM */
	EVENT_UNMAPPED = 2,  /* the mapping of a fault was not found */
	EVENT_RECLAIMED = 4, /* removed by a task that reclaims memory */
	EVENT_OTHER = 8,     /* a read whose arguments do not determine its pages: sendfile, splice, too many buffers */
	EVENT_OWN = 16,	     /* added by a task whose decisions are reported */
};

struct event {
	u64 time_ns;
	u64 inode; /* address */
	u64 open;  /* address of the struct file */
	u32 task;
	u8 kind;
	u8 flags;
	u16 order;
	u64 page;
	u64 count;
	u64 extra;
};

struct state {
	u64 start;
	s64 prev_pos;
	u32 size;
	u32 async_size;
	u32 window;
	u16 order;
	u16 mmap_miss;
};

/* An event with the state of the open file before it, the file size, the settings of the disk, and the mapping. */
struct long_event {
	struct event head;
	struct state state;
	u64 file_bytes;
	u64 mapping_first;
	u64 mapping_end;
	u32 mapping_flags;
	u32 disk_window;
	u32 disk_request;
	u32 padding;
};

/* System calls, by number. src/decisions/calls.rs fills the table. */
enum call { NO_CALL, CALL_READ, CALL_PREAD, CALL_READV, CALL_PREADV, CALL_OPEN, CALL_FADVISE, CALL_READAHEAD, CALL_MADVISE,
	    CALL_SENDFILE, CALL_SPLICE, CALL_PREADV2 };
#define CALLS 512

/* From include/uapi/asm-generic/mman-common.h and include/uapi/linux/fadvise.h. */
#define MADV_WILLNEED 3
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#define POSIX_FADV_WILLNEED 3
/* Flag with it: the range spans several mappings. SPANNING in crates/policy/src/traces. */
#define SPANNING 0x100

/* From include/linux/sched.h: the task reclaims memory, and may use the reserves for that. */
#define PF_MEMALLOC 0x800
/* Maximum number of buffers of a readv that are counted; with more, its length is unknown. */
#define BUFFERS 16

/* The result of an attempt to collapse pages into a huge one (mm/khugepaged.c). */
enum scan_result { SCAN_SUCCEED = 1 };

struct vm_area_struct___place {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
} RELOCATED;

struct iovec {
	u64 base;
	u64 length;
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs___call {
	unsigned long r10, r9;
} RELOCATED;
#define SYSCALL_ARGUMENT_3(regs) BPF_CORE_READ((struct pt_regs___call *)(regs), r10)
#define SYSCALL_ARGUMENT_5(regs) BPF_CORE_READ((struct pt_regs___call *)(regs), r9)
#else
#define SYSCALL_ARGUMENT_3(regs) ARGUMENT_3(regs)
#define SYSCALL_ARGUMENT_5(regs) BPF_CORE_READ(regs, regs[5])
#endif

#endif
