/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The paths that a program names: open, stat, access, readlink, chdir, getdents.
 *
 * If metadata has no pages in a block device's cache (XFS, btrfs), it is prefetched by looking up the same paths again. This
 * slows down every system call of every program, so it is attached in cold recordings only.
 *
 * The program runs at the end of a call: then the kernel has read the string, so it is in memory, and the result is known. The
 * registers still hold the arguments.
 */
#ifndef AHEAD_LOOKUP_H
#define AHEAD_LOOKUP_H

/* The position of a system call's path; filled by the loader for this architecture (syscalls.rs). */
struct call {
	u8 known;
	u8 has_directory; /* argument 0 is a directory's descriptor, 1 the path; otherwise 0 is the path */
	u8 lists;         /* argument 0 is a directory that is listed */
	u8 changes_directory;
};

#define CALLS 512

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALLS);
	__type(key, u32);
	__type(value, struct call);
} calls SEC(".maps");

#define AT_FDCWD -100

static __always_inline struct dentry *entry_of_descriptor(struct task_struct *task, int number)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = 0;
	if (number < 0 || (u32)number >= BPF_CORE_READ(table, max_fds))
		return 0;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + number);
	return file ? BPF_CORE_READ(file, f_path.dentry) : 0;
}

static __always_inline void send_lookup(struct lookup_event *event, u32 base, u32 flags, u32 bytes)
{
	fill_head(&event->head, EVENT_LOOKUP);
	event->tid = bpf_get_current_pid_tgid();
	event->base = base;
	event->flags = flags;
	event->path_bytes = bytes;
	event->padding = 0;
	if (bytes > PATH_BYTES)
		bytes = PATH_BYTES;
	send(event, __builtin_offsetof(struct lookup_event, path) + bytes, false);
}

/* A directory is listed by many calls: only the first one is reported. */
static __always_inline void send_listing(struct task_struct *task, int descriptor)
{
	struct dentry *dentry = entry_of_descriptor(task, descriptor);
	struct inode *inode = dentry ? BPF_CORE_READ(dentry, d_inode) : 0;
	struct file_state *state = inode ? state_of(inode) : 0;
	if (!state || state->flags & (FILE_LISTED | FILE_IGNORED))
		return;
	name_file(state, inode, dentry);
	struct scratch *scratch = take_scratch();
	if (!scratch)
		return;
	state->flags |= FILE_LISTED;
	send_lookup(&scratch->lookup, state->id, LOOKUP_LISTED, 0);
	give_back(scratch);
}

static __always_inline void send_named_path(struct task_struct *task, struct call *call, u64 first, u64 second, long outcome)
{
	const char *text = (const char *)(call->has_directory ? second : first);
	/* After chdir, the directory that the path started from is unknown: the new one is reported. */
	bool is_self = call->changes_directory && outcome == 0;
	char start = 0;
	if (!is_self && (bpf_probe_read_user(&start, 1, text) || !start)) {
		/* An empty path means the descriptor itself, and NULL is an error: nothing is looked up. */
		return;
	}
	struct dentry *base;
	if (is_self)
		base = BPF_CORE_READ(task, fs, pwd.dentry);
	else if (start == '/')
		base = BPF_CORE_READ(task, fs, root.dentry);
	else if (!call->has_directory || (int)first == AT_FDCWD)
		base = BPF_CORE_READ(task, fs, pwd.dentry);
	else
		base = entry_of_descriptor(task, first);
	u32 id = base ? id_of_entry(base) : 0;
	if (!id)
		return;
	struct scratch *scratch = take_scratch();
	if (!scratch) {
		count(LOSS_RING);
		return;
	}
	long bytes = 1;
	if (!is_self)
		bytes = bpf_probe_read_user_str(scratch->lookup.path, PATH_BYTES, text);
	if (bytes > 0)
		send_lookup(&scratch->lookup, id, outcome < 0 ? LOOKUP_FAILED : 0, bytes - 1);
	else
		count(LOSS_TEXT);
	give_back(scratch);
}

TRIPLE(ON_SYSCALL_END, on_syscall_end, "sys_exit")
{
	if (!is_followed())
		return 0;
	struct pt_regs *regs = (void *)ctx[0];
	u32 number = SYSCALL_NUMBER(regs);
	struct call *call = bpf_map_lookup_elem(&calls, &number);
	if (!call || !call->known || !IS_NATIVE(regs))
		return 0;
	struct task_struct *task = (void *)bpf_get_current_task();
	if (call->lists)
		send_listing(task, SYSCALL_ARGUMENT_0(regs));
	else
		send_named_path(task, call, SYSCALL_ARGUMENT_0(regs), ARGUMENT_1(regs), ctx[1]);
	return 0;
}

#endif
