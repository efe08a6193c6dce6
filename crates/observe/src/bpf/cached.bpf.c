/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Lists the files of a file system that have pages in the page cache: what was read since it was mounted, without a read and
 * without a walk through its directories.
 *
 *     descriptor of a directory ─▶ super block ─▶ s_inodes ─▶ inode ─▶ inode ─▶ …      regular, linked, with pages: a file event
 *
 * The walk reads without the list's lock, but as a reader of RCU, so no inode on the way is reused for something else. An inode that
 * leaves the list meanwhile points to itself: the walk ends there (`complete` stays 0), and user space starts it again.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "event.h"
#include "dentry.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A desktop has some 100,000 inodes in memory; the kernel runs a loop of at most 1 << 23 steps. */
#define INODES_MOST (1 << 20)

struct list_settings {
	u32 descriptor; /* of a directory on the file system, in the process that reads the iterator */
	u32 padding;
};

const volatile struct list_settings list_settings SEC(".rodata.list_settings") = {};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} listed SEC(".maps");

struct list_outcome {
	u32 complete; /* the walk has reached the end of the list */
	u32 lost;     /* files for which the ring buffer had no room */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct list_outcome);
} list_outcome SEC(".maps");

/* One reader at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct file_event);
} file_buffer SEC(".maps");

struct inode_walk {
	struct super_block *super;
	struct list_head *head;
	struct list_head *node;
	struct list_outcome *outcome;
};

static __always_inline bool is_cached_file(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFREG && BPF_CORE_READ(inode, i_nlink) &&
	       BPF_CORE_READ(inode, i_mapping, nrpages);
}

static __noinline int list_file(struct inode *inode, struct super_block *super, struct list_outcome *outcome)
{
	u32 key = 0;
	struct file_event *event = bpf_map_lookup_elem(&file_buffer, &key);
	struct dentry *dentry = alias_of(inode);
	if (!event || !dentry || !outcome)
		return 0;
	event->head.type = EVENT_FILE;
	event->mode = BPF_CORE_READ(inode, i_mode);
	event->device = BPF_CORE_READ(super, s_dev);
	event->inode = BPF_CORE_READ(inode, i_ino);
	event->size = BPF_CORE_READ(inode, i_size);
	event->flags = write_path(event, dentry, super);
	u32 bytes = event->path_bytes;
	if (bytes > PATH_BYTES + NAME_BYTES)
		bytes = PATH_BYTES + NAME_BYTES;
	if (bpf_ringbuf_output(&listed, event, __builtin_offsetof(struct file_event, path) + bytes, BPF_RB_NO_WAKEUP))
		outcome->lost++;
	return 0;
}

static long inode_step(u64 step, struct inode_walk *walk)
{
	struct list_head *node = walk->node;
	if (node == walk->head) {
		walk->outcome->complete = 1;
		return 1;
	}
	struct inode *inode = (void *)node - bpf_core_field_offset(struct inode, i_sb_list);
	struct list_head *next = BPF_CORE_READ(node, next);
	if (!next || next == node || BPF_CORE_READ(inode, i_sb) != walk->super)
		return 1;
	if (is_cached_file(inode))
		list_file(inode, walk->super, walk->outcome);
	walk->node = next;
	return 0;
}

/* Reading the iterator once lists the files: the call without a task is the last one. */
SEC("iter/task")
int on_read(u64 *ctx)
{
	u32 key = 0;
	struct list_outcome *outcome = bpf_map_lookup_elem(&list_outcome, &key);
	if (ctx[1] || !outcome)
		return 0;
	struct task_struct *task = (void *)bpf_get_current_task();
	struct file **files = BPF_CORE_READ(task, files, fdt, fd);
	struct file *directory = 0;
	bpf_probe_read_kernel(&directory, sizeof(directory), &files[list_settings.descriptor]);
	struct super_block *super = BPF_CORE_READ(directory, f_inode, i_sb);
	if (!super)
		return 0;
	struct inode_walk walk = {
		.super = super,
		.head = (void *)super + bpf_core_field_offset(struct super_block, s_inodes),
		.node = BPF_CORE_READ(super, s_inodes.next),
		.outcome = outcome,
	};
	bpf_loop(INODES_MOST, inode_step, &walk, 0);
	return 0;
}
