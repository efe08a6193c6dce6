/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tables of counters.bpf.c: open files, threads, and the machine's counts. */
#ifndef AHEAD_COUNTER_MAPS_H
#define AHEAD_COUNTER_MAPS_H

const volatile struct counter_settings settings SEC(".rodata.counter_settings") = {};

/* By address. Entries of closed files are replaced when the table is full. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, u64);
	__type(value, struct open_record);
} opens SEC(".maps");

/* Open files whose decisions are sent only if they differ from those before. Written by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u64);
	__type(value, u32);
} quiet SEC(".maps");

/* Never written: the value of a new entry, which is too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct open_record);
} empty_record SEC(".maps");

/* What the thread's last decision has done so far. */
enum phase {
	NO_DECISION,
	DECIDED, /* nothing is issued yet */
	ORDERED, /* a window is issued */
	EXACT,	 /* the wanted pages are issued */
};

/* Pages of a file that were mapped around a fault. */
struct window {
	u64 inode;
	u64 first;
	u64 end;
};

/* Mapped files that a thread reads in turn. */
#define WINDOWS 4

/* By number. */
struct thread_record {
	/* The last decision. */
	u64 open;
	u64 inode;
	u64 page;
	u64 needed;   /* pages from `page` on that the access touches */
	u64 first;    /* the issued pages */
	u64 end;
	u64 cached;   /* pages of the file that were cached before, and how many were counted as issued */
	u64 counted;
	u64 switches; /* the thread's voluntary context switches before it */
	u32 call;     /* the system call in which it was made, and the descriptor that this reads */
	u32 called;
	/* The wait in progress. */
	u64 wait_open;
	u64 wait_begin_ns;
	/* The last access, in Hits mode. */
	u64 access_open;
	u64 access_inode;
	u64 fault_open; /* for which it was counted */
	u64 fault_inode;
	u64 fault_page;
	struct window windows[WINDOWS]; /* the last of each file; files share places */
	u32 fault_hits; /* counted for the last access to a mapping, as long as it may be taken back */
	u32 phase;
	u8 kind;
	u8 is_fault;
	u8 is_locked_wait;
	u8 has_waited; /* since the last access */
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, u32);
	__type(value, struct thread_record);
} threads SEC(".maps");

struct machine_counts {
	u64 of[COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct machine_counts);
} machine SEC(".maps");

static __always_inline void count_machine(u32 which, u64 number)
{
	u32 key = 0;
	struct machine_counts *counts = bpf_map_lookup_elem(&machine, &key);
	if (counts)
		counts->of[which] += number;
}

static __always_inline void count(struct open_record *record, u32 which, u64 number)
{
	if (!number)
		return;
	if (record)
		__sync_fetch_and_add(&record->counts[which], number);
	count_machine(which, number);
}

static __always_inline bool is_own(void)
{
	return bpf_get_current_pid_tgid() >> 32 == settings.own_pid;
}

static __always_inline struct open_record *record_of(u64 open)
{
	return bpf_map_lookup_elem(&opens, &open);
}

static __always_inline struct open_record *new_record(u64 open, u64 inode)
{
	u32 key = 0;
	struct open_record *empty = bpf_map_lookup_elem(&empty_record, &key);
	if (!empty)
		return 0;
	bpf_map_delete_elem(&quiet, &open);
	if (bpf_map_update_elem(&opens, &open, empty, BPF_ANY))
		count_machine(COUNT_LOST_ENTRIES, 1);
	struct open_record *record = record_of(open);
	if (record)
		record->inode = inode;
	return record;
}

static __always_inline struct thread_record *thread_of(u32 tid)
{
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		return thread;
	struct thread_record none = {};
	if (bpf_map_update_elem(&threads, &tid, &none, BPF_ANY))
		count_machine(COUNT_LOST_ENTRIES, 1);
	return bpf_map_lookup_elem(&threads, &tid);
}

/* The voluntary context switches of a thread. */
struct task_struct___switches {
	unsigned long nvcsw;
} RELOCATED;

static __always_inline u64 switches_of(struct task_struct *task)
{
	return BPF_CORE_READ((struct task_struct___switches *)task, nvcsw);
}

#endif
