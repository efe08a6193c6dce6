/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How far a program is in files that user space names: their first use, the execution of one, and each further MiB of it.
 *
 *     read, fault, mapping of cached pages ──▶ a watched file, at or beyond its next page? ──▶ a descendant of the program? ──▶ event
 *
 * Accesses to other files cost one lookup. Descendants are found by their parents, at the events only: a process whose parent has ended
 * is not followed. Lost events are later confirmed by others, so one copy of each program is enough (triple_attach.h).
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "progress.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Pages between two events of a file: 1 MiB of 4 KiB pages. */
#define STEP_PAGES 256
/* Generations between a process and the program. */
#define GENERATIONS_MOST 16

struct progress_key {
	u64 inode;
	u32 device; /* of the superblock */
	u32 unused;
};

struct progress_file {
	u64 next_page; /* accesses before it are not reported */
	u32 file;
	u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC */
	__type(key, struct progress_key);
	__type(value, struct progress_file);
} progress_files SEC(".maps");

/* The program's process; 0: not started. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} program SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} progress SEC(".maps");

static __noinline bool is_of_program(void)
{
	u32 key = 0, *root = bpf_map_lookup_elem(&program, &key);
	struct task_struct *task = (void *)bpf_get_current_task();
	if (!root || !*root)
		return false;
	for (int generation = 0; generation < GENERATIONS_MOST; generation++) {
		u32 tgid = BPF_CORE_READ(task, tgid);
		if (tgid == *root)
			return true;
		if (tgid <= 1)
			return false;
		task = BPF_CORE_READ(task, real_parent);
	}
	return false;
}

static __always_inline struct progress_file *file_of(struct inode *inode)
{
	struct progress_key key = { .inode = BPF_CORE_READ(inode, i_ino), .device = BPF_CORE_READ(inode, i_sb, s_dev) };
	return bpf_map_lookup_elem(&progress_files, &key);
}

static __always_inline void send(u32 file, u64 page)
{
	struct progress_event event = { .page = page, .file = file };
	bpf_ringbuf_output(&progress, &event, sizeof(event), 0);
}

static __always_inline void use(struct inode *inode, u64 page)
{
	struct progress_file *file = file_of(inode);
	if (!file || page < file->next_page || !is_of_program())
		return;
	/* The first use is reported at page 0. */
	u64 reported = file->next_page ? page : 0;
	file->next_page = reported + STEP_PAGES;
	send(file->file, reported);
}

SEC("tp_btf/mm_filemap_get_pages")
int on_get_pages(u64 *ctx)
{
	use(BPF_CORE_READ((struct address_space *)ctx[0], host), ctx[1]);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int on_fault(u64 *ctx)
{
	use(BPF_CORE_READ((struct address_space *)ctx[0], host), ctx[1]);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int on_map_pages(u64 *ctx)
{
	use(BPF_CORE_READ((struct address_space *)ctx[0], host), ctx[1]);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int on_exec(u64 *ctx)
{
	struct linux_binprm *bprm = (void *)ctx[2];
	struct progress_file *file = file_of(BPF_CORE_READ(bprm, file, f_inode));
	if (file && is_of_program())
		send(file->file, 0);
	return 0;
}
