/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Waits for pages: begin and end of a sleep for I/O, and the open file that causes it. */
#ifndef AHEAD_COUNTER_WAITS_H
#define AHEAD_COUNTER_WAITS_H

/* The open file of the system call in which the task is; 0 if it is in none that reads. */
static __always_inline u64 called_open(struct task_struct *task, u32 descriptor)
{
	struct file *open = opened_file(task, descriptor);
	struct file *real = open ? real_file(open) : 0;
	return (u64)(real ? real : open);
}

/* From include/linux/sched.h: a fatal signal ends the sleep. So a read or a fault sleeps for a page; the submission of a request sleeps
 * without, for a free request or for metadata that say where the file is. */
#define TASK_WAKEKILL 0x100

/* What was already cached was not issued. When the thread sleeps for a page, all pages of its decision were added. */
static __always_inline void correct_issued(struct thread_record *thread, struct open_record *record)
{
	u64 cached = cached_pages_of((void *)thread->inode), added = cached > thread->cached ? cached - thread->cached : 0;
	if (record && thread->counted > added)
		count(record, COUNT_ISSUED, added - thread->counted);
	thread->counted = 0;
}

static __always_inline void begin_wait(struct task_struct *task, u64 now_ns)
{
	if (task->tgid == settings.own_pid)
		return;
	u32 tid = task->pid;
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	/* The scheduler has counted the switch that it reports. */
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	/* After an exception the register has 64 bits set, a thread's record 32. */
	u32 call = SYSCALL_NUMBER(regs);
	bool is_after_decision = thread && thread->phase != NO_DECISION && thread->switches + 1 == switches_of(task) &&
				 thread->call == call && thread->called == called_descriptor(regs);
	u64 open = is_after_decision ? thread->open : 0;
	if (!is_after_decision && !(task->flags & PF_KTHREAD)) {
		u32 descriptor = called_descriptor(regs);
		if (descriptor != NO_DESCRIPTOR)
			open = called_open(task, descriptor);
		else if (call == NO_CALL && thread && thread->is_fault)
			open = thread->open;
	}
	if (!open || !record_of(open))
		return;
	if (!thread)
		thread = thread_of(tid);
	if (!thread)
		return;
	thread->wait_open = open;
	thread->wait_begin_ns = now_ns;
	thread->is_locked_wait = !is_after_decision || thread->kind == DECIDED_MARKER;
	if (settings.sample_every <= 1)
		thread->has_waited = 1;
	if (thread->is_locked_wait && thread->inode == thread->fault_inode)
		take_hit_back(thread);
	if (!is_after_decision)
		return;
	if (BPF_CORE_READ(task, __state) & TASK_WAKEKILL) {
		correct_issued(thread, record_of(open));
		thread->phase = NO_DECISION;
	} else {
		/* The submission continues afterwards. */
		thread->switches++;
	}
}

static __always_inline void end_wait(u32 tid, u64 now_ns)
{
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	if (!thread || !thread->wait_begin_ns)
		return;
	struct open_record *record = record_of(thread->wait_open);
	count(record, COUNT_WAITS, 1);
	count(record, COUNT_WAIT_NS, now_ns - thread->wait_begin_ns);
	count(record, COUNT_LOCKED, thread->is_locked_wait);
	thread->wait_begin_ns = 0;
}

/* in_iowait is set before the task sleeps, and cleared after it runs again. */
SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	bool begins = BPF_CORE_READ_BITFIELD(previous, in_iowait), ends = BPF_CORE_READ_BITFIELD(next, in_iowait);
	if (!begins && !ends)
		return 0;
	u64 now_ns = bpf_ktime_get_ns();
	if (begins && !(bool)ctx[0])
		begin_wait(previous, now_ns);
	if (ends)
		end_wait(next->pid, now_ns);
	return 0;
}

#endif
