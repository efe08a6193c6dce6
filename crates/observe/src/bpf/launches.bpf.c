/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Announces every exec of the machine, and counts how long each start waited for I/O.
 *
 *     fork ──▶ the child's thread gets a member, in the start of its parent
 *     exec ──▶ another program: a separate start, nested in that of the process        the same program: it stays in its start
 *               └──▶ event, user space is woken at once
 *     sched_switch, previous thread sleeps for I/O ──▶ its start has one more waiting thread ┐ the time in which there is at least one:
 *     sched_waking, or it runs again ────────────────▶ one fewer                             ┘ each first one subtracts, each last one adds now
 *     exit of the start's last process ──▶ event with the account
 *
 * It is attached all the time, so it must cost nearly nothing. A switch or a wake-up looks at one bit of a task, and only a thread that
 * waits for I/O looks up its member (in storage of the task, which ends with it) and its start. sched_waking may be reported before the
 * switch of the thread that it wakes, so the end of a wait is found at two places.
 *
 * execve reads the beginning of the program before the exec is announced. This wait is kept in the member and belongs to the new start. So
 * every process has a member from its fork on, but only user space's table of starts says what is followed: its entries are removed
 * at the end of a start, or by user space when a start has been observed for long enough.
 *
 * It must never keep an entry that user space does not know of, lose an event without counting it, or allocate while a thread is switched.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "launches.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The loader sets the sizes of these two. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} launches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct start_key);
	__type(value, struct start);
} starts SEC(".maps");

/* A thread. */
struct member {
	struct start_key start;
	u64 waits_since_ns;     /* in execve; in_execve is 0 otherwise */
	u64 waited_in_exec_ns;  /* since the last exec of its process */
	u64 read_bytes;         /* already counted */
	u32 major_faults;       /* likewise */
	u32 waits;              /* it is counted in `waiting` of its start */
	u32 waits_in_exec;
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC, required */
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LAUNCH_LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* The kernel runs this program once at a time on a processor. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct launch_exec);
} scratch SEC(".maps");

/* Ends are read with the next exec, or when this many bytes wait. */
#define WAKE_BYTES (64 << 10)

static __always_inline void count_loss(u32 which)
{
	u64 *number = bpf_map_lookup_elem(&losses, &which);
	if (number)
		__sync_fetch_and_add(number, 1);
}

static __always_inline struct start *start_of(struct member *member)
{
	struct start_key key = member->start;
	return key.pid ? bpf_map_lookup_elem(&starts, &key) : 0;
}

/* What the thread has read and faulted since the last call. */
static __always_inline void count_reads(struct account *account, struct member *member, struct task_struct *task)
{
	u32 faults = task->maj_flt;
	if (account)
		__sync_fetch_and_add(&account->major_faults, faults - member->major_faults);
	member->major_faults = faults;
	if (!bpf_core_field_exists(task->ioac.read_bytes))
		return;
	u64 bytes = task->ioac.read_bytes;
	if (account)
		__sync_fetch_and_add(&account->read_bytes, bytes - member->read_bytes);
	member->read_bytes = bytes;
}

static __noinline void end_start(struct start_key *key, struct start *start)
{
	struct launch_end event = {
		.type = LAUNCH_END,
		.start = *key,
		.ended_ns = bpf_ktime_get_ns(),
		.account = start->account,
	};
	bpf_map_delete_elem(&starts, key);
	u64 flags = bpf_ringbuf_query(&launches, BPF_RB_AVAIL_DATA) >= WAKE_BYTES ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_output(&launches, &event, sizeof(event), flags))
		count_loss(LAUNCH_LOST_EVENT);
}

static __always_inline void leave(struct start_key *key, struct start *start)
{
	if (__sync_fetch_and_add(&start->account.processes, -1) == 1)
		end_start(key, start);
}

static __always_inline bool is_in_execve(struct task_struct *task)
{
	return bpf_core_field_exists(task->in_execve) && BPF_CORE_READ_BITFIELD(task, in_execve);
}

/* Not inlined: a switch without a wait does not pay for saving registers. */
static __noinline int begin_wait(struct task_struct *task, struct member *member)
{
	struct start *start;
	u64 now_ns = bpf_ktime_get_ns();
	if (is_in_execve(task)) {
		member->waits_since_ns = now_ns;
		return 0;
	}
	start = start_of(member);
	if (!start || member->waits)
		return 0;
	count_reads(&start->account, member, task);
	__sync_fetch_and_add(&start->account.waits, 1);
	if (__sync_fetch_and_add(&start->account.waiting, 1) == 0)
		__sync_fetch_and_add(&start->account.waited_ns, -now_ns);
	/* Last: a wake-up on another processor ends only a wait that is counted. */
	__sync_lock_test_and_set(&member->waits, 1);
	return 0;
}

static __noinline int end_wait(struct task_struct *task, struct member *member)
{
	u64 now_ns = bpf_ktime_get_ns(), since_ns = __sync_lock_test_and_set(&member->waits_since_ns, 0);
	if (since_ns) {
		__sync_fetch_and_add(&member->waited_in_exec_ns, now_ns - since_ns);
		__sync_fetch_and_add(&member->waits_in_exec, 1);
	}
	if (!__sync_lock_test_and_set(&member->waits, 0))
		return 0;
	struct start *start = start_of(member);
	if (start && __sync_fetch_and_add(&start->account.waiting, -1) == 1)
		__sync_fetch_and_add(&start->account.waited_ns, now_ns);
	return 0;
}

/* in_iowait is set before the task sleeps, and cleared after it runs again. */
SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *previous = (void *)ctx[1], *next = (void *)ctx[2];
	struct member *member;
	if (BPF_CORE_READ_BITFIELD(previous, in_iowait) && !(bool)ctx[0]) {
		member = bpf_task_storage_get(&members, previous, 0, 0);
		if (member)
			begin_wait(previous, member);
	}
	if (BPF_CORE_READ_BITFIELD(next, in_iowait)) {
		member = bpf_task_storage_get(&members, next, 0, 0);
		if (member)
			end_wait(next, member);
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int on_waking(u64 *ctx)
{
	struct task_struct *woken = (void *)ctx[0];
	if (!BPF_CORE_READ_BITFIELD(woken, in_iowait))
		return 0;
	struct member *member = bpf_task_storage_get(&members, woken, 0, 0);
	if (member)
		end_wait(woken, member);
	return 0;
}

/* The child does not run before this program has run. A thread of a process without a start needs no member. */
SEC("tp_btf/sched_process_fork")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	struct member *own = bpf_task_storage_get(&members, parent, 0, 0);
	struct start *start = own ? start_of(own) : 0;
	bool is_thread = child->tgid == parent->tgid;
	if (is_thread && !start)
		return 0;
	struct member *member = bpf_task_storage_get(&members, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member) {
		count_loss(LAUNCH_LOST_START);
		return 0;
	}
	if (!start)
		return 0;
	member->start = own->start;
	if (!is_thread)
		__sync_fetch_and_add(&start->account.processes, 1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct member *member = bpf_task_storage_get(&members, task, 0, 0);
	struct start *start = member ? start_of(member) : 0;
	if (!start)
		return 0;
	count_reads(&start->account, member, task);
	struct start_key key = member->start;
	/* The count is already decremented: 0 at the end of the last thread. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		leave(&key, start);
	return 0;
}

static __always_inline struct program_file numbers_of(struct file *file)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	return (struct program_file){ .inode = BPF_CORE_READ(inode, i_ino), .device = BPF_CORE_READ(inode, i_sb, s_dev) };
}

static __always_inline void fill_exec(struct launch_exec *event, struct task_struct *task, struct linux_binprm *bprm)
{
	const struct cred *cred = BPF_CORE_READ(task, cred);
	struct file *executable = 0;
	const char *name = BPF_CORE_READ(bprm, filename), *interpreter = BPF_CORE_READ(bprm, interp);
	event->type = LAUNCH_EXEC;
	event->flags = 0;
	event->time_ns = bpf_ktime_get_ns();
	event->pid = task->tgid;
	event->parent = BPF_CORE_READ(task, real_parent, tgid);
	event->uid = BPF_CORE_READ(cred, uid.val);
	event->gid = BPF_CORE_READ(cred, gid.val);
	if (event->uid != BPF_CORE_READ(cred, euid.val) || event->gid != BPF_CORE_READ(cred, egid.val))
		event->flags |= LAUNCH_ELEVATED;
	event->program = numbers_of(BPF_CORE_READ(bprm, file));
	event->script = (struct program_file){};
	if (interpreter != name)
		event->flags |= LAUNCH_SCRIPT;
	/* The kernel keeps it open only where the interpreter gets a descriptor of it (binfmt_misc, since Linux 5.8). */
	if (bpf_core_field_exists(bprm->executable))
		executable = BPF_CORE_READ(bprm, executable);
	if (executable)
		event->script = numbers_of(executable);
	event->mount_namespace = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	long bytes = bpf_probe_read_kernel_str(event->text, LAUNCH_NAME_BYTES, name);
	event->name_bytes = bytes > 0 ? bytes - 1 : 0;
	event->interpreter_bytes = 0;
	if (event->name_bytes == LAUNCH_NAME_BYTES - 1)
		event->flags |= LAUNCH_TRUNCATED;
	if (interpreter == name)
		return;
	u32 at = event->name_bytes & (LAUNCH_NAME_BYTES - 1);
	bytes = bpf_probe_read_kernel_str(&event->text[at], LAUNCH_INTERPRETER_BYTES, interpreter);
	event->interpreter_bytes = bytes > 0 ? bytes - 1 : 0;
	if (event->interpreter_bytes == LAUNCH_INTERPRETER_BYTES - 1)
		event->flags |= LAUNCH_TRUNCATED;
}

static __always_inline bool send_exec(struct launch_exec *event)
{
	u64 bytes = event->name_bytes + event->interpreter_bytes;
	if (bytes > sizeof(event->text))
		bytes = sizeof(event->text);
	if (!bpf_ringbuf_output(&launches, event, __builtin_offsetof(struct launch_exec, text) + bytes, BPF_RB_FORCE_WAKEUP))
		return true;
	count_loss(LAUNCH_LOST_EVENT);
	return false;
}

/* Begins a start for the exec of the event. */
static __noinline bool begin_start(struct launch_exec *event, struct member *member)
{
	struct start new = { .program = event->program, .account.processes = 1 };
	new.account.waited_ns = new.account.waited_in_exec_ns = member->waited_in_exec_ns;
	new.account.waits = member->waits_in_exec;
	event->start = (struct start_key){ .began_ns = event->time_ns, .pid = event->pid };
	if (!bpf_map_update_elem(&starts, &event->start, &new, BPF_NOEXIST))
		return true;
	count_loss(LAUNCH_LOST_START);
	event->start = (struct start_key){};
	return false;
}

SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	u32 zero = 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct launch_exec *event = bpf_map_lookup_elem(&scratch, &zero);
	if (!event)
		return 0;
	fill_exec(event, task, (void *)ctx[2]);
	event->start = event->outer = (struct start_key){};
	struct member *member = bpf_task_storage_get(&members, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member) {
		count_loss(LAUNCH_LOST_START);
		send_exec(event);
		return 0;
	}
	struct start *outer = start_of(member);
	struct start_key left = member->start;
	bool stays = outer && !(event->flags & LAUNCH_SCRIPT) && outer->program.inode == event->program.inode &&
		     outer->program.device == event->program.device;
	if (stays) {
		event->start = left;
		__sync_fetch_and_add(&outer->account.waited_ns, member->waited_in_exec_ns);
		__sync_fetch_and_add(&outer->account.waits, member->waits_in_exec);
	} else {
		if (outer)
			event->outer = left;
		begin_start(event, member);
		member->start = event->start;
	}
	member->waited_in_exec_ns = 0;
	member->waits_in_exec = 0;
	count_reads(stays ? &outer->account : 0, member, task);
	if (!send_exec(event) && !stays) {
		/* User space could not end a start that it does not know of. */
		bpf_map_delete_elem(&starts, &member->start);
		member->start = (struct start_key){};
	}
	if (outer && !stays)
		leave(&left, outer);
	return 0;
}
