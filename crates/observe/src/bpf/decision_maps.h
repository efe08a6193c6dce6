/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The tables of decisions.bpf.c: followed processes, announced files, states of threads; and how events are sent. */
#ifndef AHEAD_DECISION_MAPS_H
#define AHEAD_DECISION_MAPS_H

/* Set before loading. */
const volatile u64 wake_bytes;
const volatile u64 page_shift;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 26);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

/* Followed thread groups; 1: has not executed its program yet. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, u32);
	__type(value, u32);
} followed SEC(".maps");

/* Announced inodes by address: number, device and generation, because addresses are reused. */
struct identity {
	u64 number;
	u64 device_and_generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, 1);
	__type(key, u64);
	__type(value, struct identity);
} seen SEC(".maps");

/* By thread: the address of the last fault, and whether it is in a read call. If that call names no offset: the open file and
 * the reported offset. */
struct thread {
	u64 address;
	u64 open;
	s64 position;
	u32 is_reading;
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALLS);
	__type(key, u32);
	__type(value, u32);
} calls SEC(".maps");

static __always_inline void count_lost(void)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&lost, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline void send(void *event, u64 bytes)
{
	u64 flags = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= wake_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_output(&events, event, bytes, flags))
		count_lost();
}

static __always_inline bool is_followed(void)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 *is_before_exec = bpf_map_lookup_elem(&followed, &tgid);
	return is_before_exec && !*is_before_exec;
}

static __always_inline struct thread *this_thread(void)
{
	struct thread none = {};
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		return thread;
	if (bpf_map_update_elem(&threads, &tid, &none, BPF_ANY))
		count_lost();
	return bpf_map_lookup_elem(&threads, &tid);
}

#endif
