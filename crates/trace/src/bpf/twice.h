/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Since Linux 7.0 a task may be interrupted inside a tracepoint's program: preemption stays on there. While the task waits, the
 * kernel passes that program over for all others on the same processor (recursion_misses), silently. So each program is there
 * twice. The second comes right after the first, and does what that has not done:
 *
 *     task 1   first ──▶ interrupted · · · · · · · · · · · · · · · · · ──▶ goes on   second: done already
 *     task 2                          first: passed over   second: does it
 *
 * Only where both are passed over, an event is lost. That a second was passed over is no loss where its first had run: the next
 * first of the thread finds the bit that nobody cleared, and says so. The rest is counted (objects.rs).
 *
 * On older kernels nothing is interrupted; the seconds are not loaded there, and the firsts keep no account.
 */
#ifndef AHEAD_TWICE_H
#define AHEAD_TWICE_H

/* By thread: a bit for each program that has run, and whose second has not. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 18);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, u32);
	__type(value, u32);
} begun SEC(".maps");

/* IS_COMPLETE: not 0 from when all are attached; DONE_BEFORE: seconds that were passed over, and not needed. */
enum { IS_COMPLETE, DONE_BEFORE, TWICE_NUMBERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TWICE_NUMBERS);
	__type(key, u32);
	__type(value, u64);
} twice SEC(".maps");

static __always_inline bool is_complete(void)
{
	u32 key = IS_COMPLETE;
	u64 *value = bpf_map_lookup_elem(&twice, &key);
	return value && *value;
}

static __always_inline void done_before(u64 seconds)
{
	u32 key = DONE_BEFORE;
	u64 *value = bpf_map_lookup_elem(&twice, &key);
	if (value)
		__sync_fetch_and_add(value, seconds);
}

/* Whether the first or second of a program has something to do. */
static __always_inline bool has_work(u32 program, bool is_second)
{
	u32 tid = bpf_get_current_pid_tgid(), bit = 1 << program;
	if (!is_complete())
		return !is_second;
	u32 *bits = bpf_map_lookup_elem(&begun, &tid);
	bool is_begun = bits && *bits & bit;
	if (is_second) {
		if (is_begun)
			*bits &= ~bit;
		return !is_begun;
	}
	if (is_begun)
		done_before(1);
	else if (bits)
		*bits |= bit;
	else
		bpf_map_update_elem(&begun, &tid, &bit, BPF_ANY);
	return true;
}

/* The current thread ends: the last that its second on sched_process_exit does. */
static __always_inline void end_account(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	u32 *bits = bpf_map_lookup_elem(&begun, &tid);
	if (!bits)
		return;
	u64 left = 0;
	for (u32 i = 0; i < 32; i++)
		left += *bits >> i & 1;
	done_before(left);
	bpf_map_delete_elem(&begun, &tid);
}

/* `number`: below 32, each program of an object has its own. `then`: what the second does in any case. */
#define TWICE_THEN(number, name, tracepoint, then)                                                                             \
	static __always_inline int do_##name(u64 *ctx);                                                                        \
	SEC("tp_btf/" tracepoint) int name(u64 *ctx)                                                                           \
	{                                                                                                                      \
		return has_work(number, false) ? do_##name(ctx) : 0;                                                           \
	}                                                                                                                      \
	SEC("tp_btf/" tracepoint) int name##_again(u64 *ctx)                                                                   \
	{                                                                                                                      \
		int result = has_work(number, true) ? do_##name(ctx) : 0;                                                      \
		then;                                                                                                          \
		return result;                                                                                                 \
	}                                                                                                                      \
	static __always_inline int do_##name(u64 *ctx)

#define TWICE(number, name, tracepoint) TWICE_THEN(number, name, tracepoint, )

#endif
