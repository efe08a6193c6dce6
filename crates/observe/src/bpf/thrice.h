/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Since Linux 7.0 (commit a46023d5616e) a task may be interrupted inside a tracepoint's program: preemption stays on there. While
 * the task waits, the kernel passes that program over for all others on the same processor (recursion_misses), silently. So each
 * program is there three times. They run one right after the other, and each does what those before it have not done:
 *
 *     task 1   first ──▶ interrupted · · · · · · · · · · · · · · · · · ──▶ goes on   second, last: done already
 *     task 2                          first: passed over   second: does it   last: done already
 *
 * An event is lost where all three are passed over, or the last of one event and the first of the next. That the last was passed over
 * is no loss where another had run: the next first of the thread finds the bit that nobody cleared, and says so. The rest is
 * counted (objects.rs).
 *
 * On older kernels nothing is interrupted; the others are not loaded there, and the first keeps no account.
 */
#ifndef AHEAD_THRICE_H
#define AHEAD_THRICE_H

/* From include/linux/sched.h. */
#define PF_EXITING 0x4

/* By thread: a bit for each program that has done its work, and whose last has not run. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, u32);
	__type(value, u32);
} begun SEC(".maps");

/* IS_COMPLETE: not 0 from when all are attached; DONE_BEFORE: so many that were last were passed over, and not needed;
 * NOT_NOTED: of so many events it could not be noted that they were sent, so that they may have been sent again. */
enum { IS_COMPLETE, DONE_BEFORE, NOT_NOTED, NUMBERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NUMBERS);
	__type(key, u32);
	__type(value, u64);
} thrice SEC(".maps");

static __always_inline bool is_complete(void)
{
	u32 key = IS_COMPLETE;
	u64 *value = bpf_map_lookup_elem(&thrice, &key);
	return value && *value;
}

static __always_inline void add(u32 key, u64 times)
{
	u64 *value = bpf_map_lookup_elem(&thrice, &key);
	if (value)
		__sync_fetch_and_add(value, times);
}

enum turn { FIRST, SECOND, LAST };

/* Whether there is something to do for a program's first, second or last. */
static __always_inline bool has_work(u32 program, enum turn turn)
{
	u32 tid = bpf_get_current_pid_tgid(), bit = 1 << program;
	if (!is_complete())
		return turn == FIRST;
	u32 *bits = bpf_map_lookup_elem(&begun, &tid);
	bool is_begun = bits && *bits & bit;
	if (turn == LAST) {
		if (is_begun)
			*bits &= ~bit;
		/* After its end was told, a thread still gives its files and memory back. */
		if (bits && !*bits && BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags) & PF_EXITING)
			bpf_map_delete_elem(&begun, &tid);
		return !is_begun;
	}
	if (is_begun) {
		if (turn == FIRST)
			add(DONE_BEFORE, 1);
		return turn == FIRST;
	}
	if (bits)
		*bits |= bit;
	else if (bpf_map_update_elem(&begun, &tid, &bit, BPF_ANY))
		add(NOT_NOTED, 1);
	return true;
}

/* The current thread ends: what the last on sched_process_exit ends with. */
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

#define TURN(name, suffix, tracepoint, number, turn, then)                                                                      \
	SEC("tp_btf/" tracepoint) int name##suffix(u64 *ctx)                                                                   \
	{                                                                                                                      \
		int result = has_work(number, turn) ? do_##name(ctx) : 0;                                                      \
		then;                                                                                                          \
		return result;                                                                                                 \
	}

/* `number`: below 32, each program of an object has its own. `then`: what the last does in any case. */
#define THRICE_THEN(number, name, tracepoint, then)                                                                            \
	static __always_inline int do_##name(u64 *ctx);                                                                        \
	TURN(name, , tracepoint, number, FIRST, )                                                                              \
	TURN(name, _second, tracepoint, number, SECOND, )                                                                      \
	TURN(name, _last, tracepoint, number, LAST, then)                                                                      \
	static __always_inline int do_##name(u64 *ctx)

#define THRICE(number, name, tracepoint) THRICE_THEN(number, name, tracepoint, )

#endif
