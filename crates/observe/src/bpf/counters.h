/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The events, counters and tables' entries of counters.bpf.c. src/counters/ decodes them. */
#ifndef AHEAD_COUNTERS_H
#define AHEAD_COUNTERS_H

#define NAME_BYTES 16

/* Set before loading. */
struct counter_settings {
	u32 own_pid; /* never counted */
	u32 page_shift;
	u32 sends;
	u32 is_exact; /* added and accessed pages are observed */
	u32 sample_every; /* one in this number of 64-page blocks; 1: all */
	u32 padding;
};

enum decision_kind { DECIDED_MISS, DECIDED_MARKER, DECIDED_FAULT };

/* What is counted: for each open file up to OPEN_COUNTERS, for the machine everything. */
enum counter {
	COUNT_HITS,
	COUNT_LOCKED,
	COUNT_MISSES,
	COUNT_MARKERS,
	COUNT_FAULTS,
	COUNT_WAITS,
	COUNT_WAIT_NS,
	COUNT_ISSUED,
	COUNT_USED,
	COUNT_WASTED,
	COUNT_THRASHED,
	OPEN_COUNTERS,
	COUNT_READS = OPEN_COUNTERS,
	COUNT_LOST_EVENTS, /* the ring buffer was full */
	COUNT_LOST_ENTRIES, /* a table was full */
	COUNTERS,
};

enum counter_flag {
	EVENT_IS_RANDOM = 1,   /* FMODE_RANDOM */
	EVENT_IS_THRASHED = 2, /* the page had been issued before */
	EVENT_IS_MAPPED = 4,   /* by an access to a mapping, which was found */
	EVENT_IS_OPEN = 8,     /* the descriptor was found */
	EVENT_IS_DEVICE = 16,  /* the pages are those of a block device, and not of a file */
};

enum mapping_advice { ADVICE_NORMAL, ADVICE_SEQUENTIAL, ADVICE_RANDOM };

struct counter_event {
	u64 time_ns;
	u64 open;
	u64 inode;
	u64 inode_number;
	u64 page;
	u64 wanted;
	u64 start;
	s64 prev_pos;
	u64 file_pages;
	u64 cached_pages;
	u64 mapping_first;
	u64 mapping_end;
	u64 mapping_address;
	u64 misses;
	u64 waits;
	u64 wait_ns;
	u64 issued;
	u64 wasted;
	u32 pid;
	u32 tid;
	u32 device;
	u32 descriptor;
	u32 size;
	u32 async_size;
	u32 window;
	u32 disk_window;
	u16 mmap_miss;
	u8 kind;
	u8 flags;
	u8 advice;
	u8 padding[3];
	char name[NAME_BYTES];
};

#define LAST_PAGES 8

/* An open file, by its address. */
struct open_record {
	u64 inode;
	u64 counts[OPEN_COUNTERS];
	u64 last_ns;
	u64 last_pages[LAST_PAGES]; /* page << 1 | by a fault; a ring */
	u64 decisions;
	u32 pid;
	u32 has_jumped; /* the last decision was a jump */
	/* The window after the last decision, and the start of the window before it if it is adjacent. */
	u64 start;
	u64 prior_start;
	u32 size;
	u32 async_size;
	u64 progress; /* issued pages before this one were used */
	/* What was sent since `budget_ns`. */
	u64 budget_ns;
	u32 sent_jumps;
	u32 sent_others;
	u64 sent_waits;
	u32 descriptor;
	u32 unfound; /* when the last search for a descriptor failed, in units of 2^UNFOUND_SHIFT nanoseconds; 0: it did not */
};

#endif
