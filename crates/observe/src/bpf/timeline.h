/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The processor clock of each followed thread, and what a thread waits for: the program's own timeline, without the waits for a disk.
 *
 *     thread 1   ── runs ──┤ waits for a page ├── runs ──▶ wakes thread 2 ──      the clock stands still while the thread does not run
 *     thread 2   ─┤ sleeps ·································┤── runs ────────      woken by thread 1, which was at this time of its clock
 *     thread 3   ─┤ sleeps ························┤── runs ─────────────────      woken by a timer or another program: the sleep remains
 *
 * While a thread sleeps until a timer or another program wakes it, other threads may wait for I/O. That time is subtracted from its sleep: a
 * program that polls until its child is ready would poll less often with everything cached.
 *
 * A wait for I/O (in_iowait) ends in no event: with everything cached, there is no such wait. An uninterruptible sleep that no thread of
 * the program ends counts as such a wait, too: XFS waits for its metadata in this way. The scheduler calls these programs with
 * interrupts disabled, so that none of them is interrupted, also on Linux 7 (triple_attach.h): each is attached once.
 *
 * It must never change a table of the scheduler's own path: entries are made when a thread is started, and only looked up here.
 */
#ifndef AHEAD_TIMELINE_H
#define AHEAD_TIMELINE_H

/* From include/linux/sched.h. */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD 0x80

/* Size of a kernel stack without KASAN: 16 KiB on x86_64 and on arm64 (THREAD_SIZE). A larger stack is searched in part. */
#define STACK_BYTES (16 << 10)

/*
 * Whether the current thread itself runs, and not an interrupt that has stopped it. The counter that says so (__preempt_count) can be
 * read only on kernels with CONFIG_KALLSYMS_ALL. Instead: an interrupt of kernel code runs on another stack, while the arguments of a
 * tracepoint (ctx) are on the stack in use. An interrupt of user code may run on the thread's stack, but then the thread is in no
 * system call.
 */
static __always_inline bool is_in_task(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 base = (u64)BPF_CORE_READ(task, stack);
	u64 *argument = ctx;
	u64 at = 0;
	/* Read by a helper, so that the verifier takes the address for a number. */
	bpf_probe_read_kernel(&at, sizeof(at), &argument);
	if (at < base || at >= base + STACK_BYTES)
		return false;
	if (BPF_CORE_READ(task, flags) & PF_EXITING)
		return true;
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	return (long)SYSCALL_NUMBER(regs) >= 0;
}

/* For how long at least one followed thread has waited for I/O so far. Processors that change it at the same time may lose a wait. */
static __always_inline u64 io_waited_ns(u64 now_ns)
{
	u64 since_ns = io_waiting_since_ns;
	return io_waited_before_ns + (io_waiting && now_ns > since_ns ? now_ns - since_ns : 0);
}

static __always_inline void begin_io_wait(struct thread_clock *clock, u64 now_ns)
{
	clock->waits_for_io = 1;
	__sync_fetch_and_add(&io_waiting, 1);
	if (io_waiting == 1)
		io_waiting_since_ns = now_ns;
}

static __always_inline void end_io_wait(struct thread_clock *clock, u64 now_ns)
{
	if (!clock->waits_for_io)
		return;
	clock->waits_for_io = 0;
	u64 since_ns = io_waiting_since_ns;
	__sync_fetch_and_add(&io_waiting, -1);
	if (!io_waiting && now_ns > since_ns)
		io_waited_before_ns += now_ns - since_ns;
}

/* Sends an event if there is room for it beside the accesses, which are the profile. */
static __always_inline void send_timeline(struct thread_event *event)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > settings.timeline_bytes ||
	    bpf_ringbuf_output(&events, event, sizeof(*event), wakeup(false)))
		count(LOSS_TIMELINE);
}

/* The current thread starts another one. Called by the program on sched_process_fork. */
static __always_inline void start_clock(struct task_struct *child)
{
	if (!settings.timeline_bytes)
		return;
	u32 tid = BPF_CORE_READ(child, pid);
	struct thread_clock clock = {};
	if (bpf_map_update_elem(&clocks, &tid, &clock, BPF_ANY))
		count(LOSS_TIMELINE);
	struct thread_event event = { .other = bpf_get_current_pid_tgid(), .tid = tid };
	fill_head(&event.head, EVENT_THREAD_START);
	event.other_cpu_ns = event.head.cpu_ns;
	send_timeline(&event);
}

/* Called by the program on sched_process_exit. */
static __always_inline void end_clock(void)
{
	if (!settings.timeline_bytes)
		return;
	struct thread_event event = { .tid = bpf_get_current_pid_tgid() };
	fill_head(&event.head, EVENT_THREAD_END);
	send_timeline(&event);
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	bool is_preempted = ctx[0];
	struct task_struct *previous = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	u64 now_ns = bpf_ktime_get_ns();
	u32 tid = BPF_CORE_READ(previous, pid);
	struct thread_clock *clock = bpf_map_lookup_elem(&clocks, &tid);
	if (clock) {
		u32 state = BPF_CORE_READ(previous, __state);
		if (clock->since_ns)
			clock->cpu_ns += now_ns - clock->since_ns;
		clock->since_ns = 0;
		bool waits_for_io = BPF_CORE_READ_BITFIELD_PROBED(previous, in_iowait);
		bool sleeps = !is_preempted && state && !(state & TASK_DEAD);
		clock->asleep_since_ns = sleeps && !waits_for_io ? now_ns : 0;
		clock->waits_for_kernel = state & TASK_UNINTERRUPTIBLE;
		clock->waited_before_ns = io_waited_ns(now_ns);
		if (sleeps && (waits_for_io || clock->waits_for_kernel))
			begin_io_wait(clock, now_ns);
		if (state & TASK_DEAD)
			bpf_map_delete_elem(&clocks, &tid);
	}
	tid = BPF_CORE_READ(next, pid);
	clock = bpf_map_lookup_elem(&clocks, &tid);
	if (clock) {
		clock->since_ns = now_ns;
		end_io_wait(clock, now_ns);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int on_waking(u64 *ctx)
{
	struct task_struct *woken = (void *)ctx[0];
	u32 tid = BPF_CORE_READ(woken, pid);
	struct thread_clock *clock = bpf_map_lookup_elem(&clocks, &tid);
	if (!clock)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();
	end_io_wait(clock, now_ns);
	if (!clock->asleep_since_ns)
		return 0;
	struct thread_event event = { .tid = tid };
	fill_head(&event.head, EVENT_WAKE);
	u64 slept_ns = now_ns - clock->asleep_since_ns;
	u64 waited_ns = io_waited_ns(now_ns) - clock->waited_before_ns;
	clock->asleep_since_ns = 0;
	event.slept_ns = clock->waits_for_kernel || waited_ns >= slept_ns ? 0 : slept_ns - waited_ns;
	u32 waker = bpf_get_current_pid_tgid();
	if (is_in_task(ctx) && bpf_map_lookup_elem(&clocks, &waker)) {
		event.other = waker;
		event.other_cpu_ns = event.head.cpu_ns;
	}
	event.head.cpu_ns = clock->cpu_ns;
	if (event.other || event.slept_ns)
		send_timeline(&event);
	return 0;
}

#endif
