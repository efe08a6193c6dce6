/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The maps, the counters of losses, and which processes are followed. */
#ifndef AHEAD_MAPS_H
#define AHEAD_MAPS_H

const volatile struct settings settings SEC(".rodata.settings") = {};

/* The loader sets the sizes of these maps, depending on the machine's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

/* The followed thread groups, by process id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC: few of them are ever used */
	__type(key, u32);
	__type(value, u32);
} followed SEC(".maps");

/* Armed: the first exec of one of these programs is followed, and no other. */
struct wanted_program {
	u64 inode;
	u32 device;
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct wanted_program);
	__type(value, u32);
} wanted SEC(".maps");

/* The process that was followed first, and how many are followed now. */
static u32 claimed;
static u32 followed_processes;

/* A thread group that has not executed its program yet: it is still a copy of the observer. */
#define BEFORE_EXEC 1

/* An inode in memory. Its number alone is not enough (btrfs subvolumes collide), nor is its address (it is reused). */
struct file_key {
	u64 address;
	u64 inode;
	u32 device;
	u32 generation;
};

struct file_state {
	u32 id;
	u32 flags;
	u64 dentry; /* the source of its path: if one of these changes, the path is read again */
	u64 parent;
	u64 name_hash;
};

#define FILE_ANNOUNCED 1
#define FILE_IGNORED 2
#define FILE_LISTED 4

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct file_key);
	__type(value, struct file_state);
} files SEC(".maps");

/* The reported ones of 64 pages of a file, by kind. */
struct word_key {
	u64 word;
	u32 file;
	u32 padding;
};

struct word {
	u64 used;
	u64 around;
	u64 added;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__type(key, struct word_key);
	__type(value, struct word);
} words SEC(".maps");

/* The current read of a thread: its first event covers all of it, the others are only its progress. */
struct reading {
	u64 mapping;
	u64 from;
	u64 last;
	u64 size; /* of the file at that time: growth since is not covered */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct reading);
} readings SEC(".maps");

/* The processor clocks of the followed threads, by thread id (timeline.h). */
struct thread_clock {
	u64 cpu_ns;          /* processor time until it last stopped running */
	u64 since_ns;        /* it has been running since; 0: it is not running */
	u64 asleep_since_ns; /* it has been sleeping since, and not for I/O; 0: it is not */
	u64 waits_for_kernel; /* the sleep is uninterruptible */
	u64 waited_before_ns; /* see io_waited_ns, at the beginning of the sleep */
	u64 waits_for_io;     /* counted in io_waiting */
};

/* How many followed threads wait for I/O, since when at least one does, and for how long there was one before. */
static u64 io_waiting;
static u64 io_waiting_since_ns;
static u64 io_waited_before_ns;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, u32);
	__type(value, struct thread_clock);
} clocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* Buffers for events with a path, taken with `busy`: where a program can be preempted, a second and a third one may run. */
#define SCRATCHES 3

struct scratch {
	u32 busy;
	u32 padding;
	union {
		struct file_event file;
		struct exec_event exec;
		struct lookup_event lookup;
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* The last file id; 0 is not a file. */
u32 last_file_id = 0;

static __always_inline void count(u32 what)
{
	u64 *counter = bpf_map_lookup_elem(&counters, &what);
	if (counter)
		__sync_fetch_and_add(counter, 1);
}

static __always_inline struct scratch *take_scratch(void)
{
	for (u32 i = 0; i < SCRATCHES; i++) {
		u32 key = i;
		struct scratch *scratch = bpf_map_lookup_elem(&scratches, &key);
		if (scratch && __sync_val_compare_and_swap(&scratch->busy, 0, 1) == 0)
			return scratch;
	}
	count(LOSS_BUSY);
	return 0;
}

static __always_inline void give_back(struct scratch *scratch)
{
	__sync_val_compare_and_swap(&scratch->busy, 1, 0);
}

/*
 * Waking the observer for each event would cost the program a context switch each. It is woken when wake_bytes wait in the
 * buffer, or when it must act at once.
 */
static __always_inline u64 wakeup(bool now)
{
	if (now || bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= settings.wake_bytes)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

static __always_inline bool send(void *event, u64 bytes, bool now)
{
	if (bpf_ringbuf_output(&events, event, bytes, wakeup(now)) == 0)
		return true;
	count(LOSS_RING);
	return false;
}

/* Processor time of the current thread; 0 if it has no clock. */
static __always_inline u64 cpu_ns_of_current(u64 now_ns)
{
	if (!settings.timeline_bytes)
		return 0;
	u32 tid = bpf_get_current_pid_tgid();
	struct thread_clock *clock = bpf_map_lookup_elem(&clocks, &tid);
	if (!clock)
		return 0;
	return clock->cpu_ns + (clock->since_ns ? now_ns - clock->since_ns : 0);
}

static __always_inline void fill_head(struct event *head, u32 type)
{
	head->type = type;
	head->tgid = bpf_get_current_pid_tgid() >> 32;
	head->time_ns = bpf_ktime_get_ns();
	head->cpu_ns = cpu_ns_of_current(head->time_ns);
}

/*
 * Whether the current thread is followed. Threads are followed by their group: io_uring's workers belong to the group of their
 * program, but raise no fork event. Returns 0, or 1 | the flags of the group << 1.
 */
static __always_inline u32 is_followed(void)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (settings.everything)
		return tgid != settings.own_tgid;
	if (settings.cgroup)
		return bpf_get_current_ancestor_cgroup_id(settings.cgroup_level) == settings.cgroup;
	if (settings.armed && !claimed)
		return 0;
	u32 *flags = bpf_map_lookup_elem(&followed, &tgid);
	return flags ? 1 | *flags << 1 : 0;
}

/*
 * Whether the accesses are by the copy of the observer (a program before its exec). The kernel accesses the new program before
 * it announces the exec (it clears the rest of the last data page), so BEFORE_EXEC is not enough. The kernel clears
 * PF_FORKNOEXEC together with the old memory.
 */
static __always_inline bool is_still_observer(u32 followed)
{
	if (!(followed & BEFORE_EXEC << 1))
		return false;
	struct task_struct *task = (void *)bpf_get_current_task();
	return BPF_CORE_READ(task, flags) & PF_FORKNOEXEC;
}

#endif
