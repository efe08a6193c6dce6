/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Since Linux 7.0 (commit a46023d5616e) a task may be interrupted inside a tracepoint's program, because preemption stays
 * enabled. While that task waits, the kernel silently skips the program for all other tasks on the same processor
 * (recursion_misses). Therefore each program is attached three times. The copies run one right after the other, and each does
 * the work that those before it have not done:
 *
 *     task 1   first ──▶ interrupted · · · · · · · · · · · · · · · · · ──▶ continues   second, last: work done already
 *     task 2                          first: skipped       second: does the work       last: work done already
 *
 * An event is lost if all three copies are skipped, or the last one for one event and the first one for the next. A skipped
 * last copy is no loss if another copy had run: the thread's next first copy finds the bit that was not cleared, and counts it.
 * All other skipped runs count as losses (objects.rs).
 *
 * Older kernels interrupt no program; there only the first copy is loaded, and it keeps no account.
 */
#ifndef AHEAD_TRIPLE_ATTACH_H
#define AHEAD_TRIPLE_ATTACH_H

/* From include/linux/sched.h. */
#define PF_EXITING 0x4

/* By thread: a bit for each program that has done its work, and whose last copy has not run. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, u32);
	__type(value, u32);
} begun SEC(".maps");

/* IS_COMPLETE: not 0 when all copies are attached. DONE_BEFORE: number of last copies that were skipped after the work was done.
 * NOT_NOTED: number of events whose bit could not be stored, so that they may have been sent again. */
enum { IS_COMPLETE, DONE_BEFORE, NOT_NOTED, NUMBERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NUMBERS);
	__type(key, u32);
	__type(value, u64);
} triple_attach SEC(".maps");

static __always_inline bool is_complete(void)
{
	u32 key = IS_COMPLETE;
	u64 *value = bpf_map_lookup_elem(&triple_attach, &key);
	return value && *value;
}

static __always_inline void add(u32 key, u64 times)
{
	u64 *value = bpf_map_lookup_elem(&triple_attach, &key);
	if (value)
		__sync_fetch_and_add(value, times);
}

enum copy { FIRST, SECOND, LAST };

/* Whether a program's first, second or last copy has to do the work. */
static __always_inline bool has_work(u32 program, enum copy copy)
{
	if (!is_complete())
		return copy == FIRST;
	u32 tid = bpf_get_current_pid_tgid(), bit = 1 << program;
	u32 *bits = bpf_map_lookup_elem(&begun, &tid);
	bool is_begun = bits && *bits & bit;
	if (copy == LAST) {
		if (is_begun)
			*bits &= ~bit;
		/* After its exit event, a thread still releases its files and memory. */
		if (bits && !*bits && BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags) & PF_EXITING)
			bpf_map_delete_elem(&begun, &tid);
		return !is_begun;
	}
	if (is_begun) {
		if (copy == FIRST)
			add(DONE_BEFORE, 1);
		return copy == FIRST;
	}
	if (bits)
		*bits |= bit;
	else if (bpf_map_update_elem(&begun, &tid, &bit, BPF_ANY))
		add(NOT_NOTED, 1);
	return true;
}

/* The current thread ends: run by the last copy on sched_process_exit. */
static __always_inline void end_account(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	u32 *bits = bpf_map_lookup_elem(&begun, &tid);
	if (!bits)
		return;
	u64 left = 0;
	for (u32 i = 0; i < 32; i++)
		left += *bits >> i & 1;
	add(DONE_BEFORE, left);
	bpf_map_delete_elem(&begun, &tid);
}

#define COPY(name, suffix, tracepoint, number, copy, is_done, then)                                                             \
	SEC("tp_btf/" tracepoint) int name##suffix(u64 *ctx)                                                                   \
	{                                                                                                                      \
		if (is_done(ctx, copy))                                                                                        \
			return 0;                                                                                              \
		int result = has_work(number, copy) ? do_##name(ctx) : 0;                                                      \
		then;                                                                                                          \
		return result;                                                                                                 \
	}

/*
 * `number`: below 32, unique in the object. `is_done`: whether nothing is left to do, by the context and the copy; then no copy keeps an
 * account. `then`: what the last copy does in any other case.
 */
#define TRIPLE_UNLESS(number, name, tracepoint, is_done, then)                                                                 \
	static __always_inline int do_##name(u64 *ctx);                                                                        \
	COPY(name, , tracepoint, number, FIRST, is_done, )                                                                     \
	COPY(name, _second, tracepoint, number, SECOND, is_done, )                                                             \
	COPY(name, _last, tracepoint, number, LAST, is_done, then)                                                             \
	static __always_inline int do_##name(u64 *ctx)

static __always_inline bool is_never_done(u64 *ctx, enum copy copy)
{
	return false;
}

#define TRIPLE_THEN(number, name, tracepoint, then) TRIPLE_UNLESS(number, name, tracepoint, is_never_done, then)

#define TRIPLE(number, name, tracepoint) TRIPLE_THEN(number, name, tracepoint, )

#endif
