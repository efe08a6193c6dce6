/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The read-ahead state of open files: of all processes, of one, or of one open file.
 *
 *     read of the iterator ──▶ each task, each of its descriptors ──▶ a file with read-ahead, of the wanted process? ──▶ a row
 *     query: a descriptor of the caller, or an address ─────────────▶ the same ────────────────────────────────────────▶ one row
 *
 * The iterator visits every descriptor, so most of its calls end early: a socket or pipe after two loads. The iterator's arguments are
 * pointers that the verifier knows, so they are loaded directly (state_fill.h); the state itself, in a union, is copied by a helper.
 *
 * A query by address reads memory that may have been reused, safely and in vain: the address counts only if the file there is in use and
 * has the expected inode.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "readahead.h"
#include "state.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The process whose files the iterator lists; 0: all. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} wanted_process SEC(".maps");

struct task_struct___name {
	char comm[NAME_BYTES];
	struct task_struct *group_leader;
} RELOCATED;

/* The number of references: up to Linux 6.12 a count, later a count that is negative when the last reference is gone. */
struct file___count {
	struct {
		long counter;
	} f_count;
} RELOCATED;

struct file___ref {
	struct {
		struct {
			long counter;
		} refcnt;
	} f_ref;
} RELOCATED;

static __always_inline bool is_in_use(struct file *open)
{
	if (bpf_core_field_exists(struct file___ref, f_ref))
		return BPF_CORE_READ((struct file___ref *)open, f_ref.refcnt.counter) >= 0;
	return BPF_CORE_READ((struct file___count *)open, f_count.counter) > 0;
}

/* Arguments of the iterator, and what they point to, are loaded directly. */
#define FILL fill_listed
#define LOAD(pointer, member) ((pointer)->member)
#include "state_fill.h"

/* At an address that the verifier does not know. */
#define FILL fill_queried
#define LOAD(pointer, member) BPF_CORE_READ(pointer, member)
#include "state_fill.h"

static __always_inline bool is_file_or_device(u16 mode)
{
	return (mode & S_IFMT) == S_IFREG || (mode & S_IFMT) == S_IFBLK;
}

static __always_inline bool fill_real(struct open_state *state, struct file *open)
{
	struct file *real = real_file(open);
	return real && fill_queried(state, real);
}

static __always_inline void fill_process(struct open_state *state, struct task_struct *task)
{
	struct task_struct___name *leader = (void *)BPF_CORE_READ((struct task_struct___name *)task, group_leader);
	state->pid = BPF_CORE_READ(task, tgid);
	bpf_core_read(state->name, NAME_BYTES, &leader->comm);
}

SEC("iter/task_file")
int on_listed(u64 *ctx)
{
	struct bpf_iter_meta *meta = (void *)ctx[0];
	struct task_struct *task = (void *)ctx[1];
	struct file *open = (void *)ctx[3];
	u32 key = 0, *wanted = bpf_map_lookup_elem(&wanted_process, &key);
	if (!task || !open || !wanted || (*wanted && task->tgid != *wanted))
		return 0;
	if (!is_file_or_device(open->f_inode->i_mode))
		return 0;
	struct open_state state = { .descriptor = ctx[2] };
	if (!fill_listed(&state, open) && !fill_real(&state, open))
		return 0;
	fill_process(&state, task);
	bpf_seq_write(meta->seq, &state, sizeof(state));
	return 0;
}

static __always_inline struct file *own_file(u32 descriptor)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *open = 0, **place = BPF_CORE_READ(table, fd);
	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&open, sizeof(open), place + descriptor);
	return open;
}

SEC("syscall")
int query(struct state_query *query)
{
	struct open_state state = {};
	struct file *open = query->open ? (void *)query->open : own_file(query->descriptor);
	query->is_found = 0;
	if (!open || !is_in_use(open) || !is_file_or_device(BPF_CORE_READ(open, f_inode, i_mode)))
		return 0;
	if (!fill_queried(&state, open) && !fill_real(&state, open))
		return 0;
	if (query->open) {
		query->is_found = state.open == query->open && state.inode == query->inode;
	} else {
		state.descriptor = query->descriptor;
		fill_process(&state, (void *)bpf_get_current_task());
		query->is_found = 1;
	}
	query->state = state;
	return 0;
}
