/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The observer: which process reads which pages.
 *
 * A followed program reads files in three ways. For each, a tracepoint reports the pages:
 *
 *     read, pread, io_uring, splice, exec ──▶ mm_filemap_get_pages(mapping, first, last)   all pages of the call
 *     access to a mapping, page not mapped ─▶ mm_filemap_map_pages(mapping, first, last)   the window that is mapped
 *         … and not in that window ────────▶ mm_filemap_fault(mapping, page)               the page itself
 *     a miss of any of these ───────────────▶ mm_filemap_add_to_page_cache(folio)          with read-ahead around it
 *
 * In a cold run without read-ahead the first and third tracepoint show the used pages: an untouched page is never resident, and
 * an absent page cannot be mapped without its own fault. Otherwise the second one gives an upper bound. The metadata of ext2,
 * ext3 and ext4 is in the page cache of the block device: the fourth one reports it, with the inode of the device.
 *
 * Kernels before 6.11 or so lack the first three. There, the functions that contain them are probed (fentry, or kprobe if
 * fentry is refused). source.rs decides which programs of this file are loaded.
 *
 *     kernel.h   kernel structures, relocated
 *     folio.h    inode and size of a folio
 *     triple_attach.h   programs that may be interrupted, and the count of lost events
 *     event.h    events for user space
 *     maps.h     tables; which processes are followed
 *     path.h     inode → id, and its path, once
 *     timeline.h   processor clocks of the threads, and what wakes them
 *     known.h    pages that need no look
 *     access.h   pages → new pages → events
 *     older.h    the functions to probe where tracepoints are missing
 *     lookup.h   paths of system calls, in cold recordings only
 *
 * It must never report a page as used that was not requested, lose an event without counting it, or wake the observer for a single
 * event.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "folio.h"
#include "triple_attach.h"
#include "event.h"
#include "maps.h"
#include "timeline.h"
#include "path.h"
#include "known.h"
#include "access.h"

enum { ON_GET_PAGES, ON_FAULT, ON_MAP_PAGES, ON_ADDED, ON_FORK, ON_EXEC, ON_EXIT, ON_SYSCALL_END };

#include "lookup.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Context of a BTF tracepoint, fentry: an array of 64-bit arguments. */
#define ARGUMENT(ctx, n) ((ctx)[n])

/*
 * A buffered read requests pages repeatedly until it has all of them, each time from its current position to the same end. The
 * first request covers the others.
 */
static __always_inline void request_pages(struct address_space *mapping, u64 first, u64 last)
{
	struct inode *inode = BPF_CORE_READ(mapping, host);
	if (last > first + 64) {
		u32 tid = bpf_get_current_pid_tgid();
		struct reading now = {
			.mapping = (u64)mapping,
			.from = first,
			.last = last,
			.size = BPF_CORE_READ(inode, i_size),
		};
		struct reading *before = bpf_map_lookup_elem(&readings, &tid);
		if (before && before->mapping == now.mapping && before->last == last && first > before->from &&
		    before->size == now.size)
			return;
		bpf_map_update_elem(&readings, &tid, &now, BPF_ANY);
	}
	touch(inode, first, last, ACCESS_READ);
}

#include "older.h"

/* Not inlined: then a read that is known does not pay for saving registers. */
static __noinline int look_at_read(struct address_space *mapping, u64 first, u64 last)
{
	if (is_followed())
		request_pages(mapping, first, last);
	return 0;
}

static __always_inline bool is_read_known(u64 *ctx, enum copy copy)
{
	return is_known((void *)ARGUMENT(ctx, 0), ARGUMENT(ctx, 1), ARGUMENT(ctx, 2), copy);
}

TRIPLE_UNLESS(ON_GET_PAGES, on_get_pages, "mm_filemap_get_pages", is_read_known,
	      confirm_pages((void *)ARGUMENT(ctx, 0), ARGUMENT(ctx, 1)))
{
	return look_at_read((void *)ARGUMENT(ctx, 0), ARGUMENT(ctx, 1), ARGUMENT(ctx, 2));
}

TRIPLE(ON_FAULT, on_fault, "mm_filemap_fault")
{
	u32 who = is_followed();
	struct address_space *mapping = (void *)ARGUMENT(ctx, 0);
	u64 page = ARGUMENT(ctx, 1);
	if (who && !is_still_observer(who))
		touch(BPF_CORE_READ(mapping, host), page, page, ACCESS_FAULT);
	return 0;
}

TRIPLE(ON_MAP_PAGES, on_map_pages, "mm_filemap_map_pages")
{
	u32 who = is_followed();
	struct address_space *mapping = (void *)ARGUMENT(ctx, 0);
	if (who && !is_still_observer(who))
		touch(BPF_CORE_READ(mapping, host), ARGUMENT(ctx, 1), ARGUMENT(ctx, 2), ACCESS_AROUND);
	return 0;
}

TRIPLE(ON_ADDED, on_added, "mm_filemap_add_to_page_cache")
{
	if (!is_followed())
		return 0;
	struct folio *folio = (void *)ARGUMENT(ctx, 0);
	struct inode *inode = BPF_CORE_READ(folio, mapping, host);
	u64 first = BPF_CORE_READ(folio, index);
	touch(inode, first, first + pages_of(folio) - 1, ACCESS_ADDED);
	return 0;
}

/* A child is followed from its first instruction on: it does not run before this program has run. */
TRIPLE(ON_FORK, on_fork, "sched_process_fork")
{
	struct task_struct *parent = (void *)ARGUMENT(ctx, 0);
	struct task_struct *child = (void *)ARGUMENT(ctx, 1);
	u32 child_tgid = BPF_CORE_READ(child, tgid);
	if (!is_followed())
		return 0;
	start_clock(child);
	if (BPF_CORE_READ(parent, tgid) == child_tgid)
		return 0;
	u32 flags = 0;
	if (!settings.everything && !settings.cgroup && bpf_map_update_elem(&followed, &child_tgid, &flags, BPF_ANY))
		count(LOSS_FILES);
	else if (settings.armed)
		__sync_fetch_and_add(&followed_processes, 1);
	struct fork_event event = { .child = child_tgid };
	fill_head(&event.head, EVENT_FORK);
	send(&event, sizeof(event), false);
	return 0;
}

/*
 * Called for every task, mostly parents before their children: a task whose parent is followed is followed, too. Writes a byte
 * for each such task. A child that is forked during the walk is found here later, or followed by the program above.
 */
SEC("iter/task")
int on_listed(u64 *ctx)
{
	struct bpf_iter_meta *meta = (void *)ARGUMENT(ctx, 0);
	struct task_struct *task = (void *)ARGUMENT(ctx, 1);
	if (!task)
		return 0;
	u32 tgid = BPF_CORE_READ(task, tgid);
	u32 parent = BPF_CORE_READ(task, real_parent, tgid);
	if ((u32)BPF_CORE_READ(task, pid) != tgid || bpf_map_lookup_elem(&followed, &tgid) ||
	    !bpf_map_lookup_elem(&followed, &parent))
		return 0;
	u32 flags = 0;
	if (bpf_map_update_elem(&followed, &tgid, &flags, BPF_ANY)) {
		count(LOSS_FILES);
		return 0;
	}
	/* If the task has ended, on_exit may have run before: its number would stay in the table. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&followed, &tgid);
	else
		bpf_seq_write(meta->seq, &flags, 1);
	return 0;
}

TRIPLE_THEN(ON_EXIT, on_exit, "sched_process_exit", end_account())
{
	struct task_struct *task = (void *)ARGUMENT(ctx, 0);
	u32 tgid = BPF_CORE_READ(task, tgid);
	if (is_followed())
		end_clock();
	/* The count is already decremented: 0 at the end of the last thread. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0 && !bpf_map_delete_elem(&followed, &tgid) && settings.armed &&
	    __sync_fetch_and_add(&followed_processes, -1) == 1) {
		struct event over;
		fill_head(&over, EVENT_OVER);
		send(&over, sizeof(over), true);
	}
	return 0;
}

/*
 * Armed, and the first exec of a wanted program: its process is followed from here on, whatever other processors execute. The kernel has
 * read the first page of the program before.
 */
static __always_inline bool claim(struct linux_binprm *bprm)
{
	if (!settings.armed || claimed)
		return false;
	struct inode *inode = BPF_CORE_READ(bprm, file, f_inode);
	struct wanted_program program = { .inode = BPF_CORE_READ(inode, i_ino), .device = BPF_CORE_READ(inode, i_sb, s_dev) };
	u32 tgid = bpf_get_current_pid_tgid() >> 32, flags = 0;
	if (tgid == settings.own_tgid || !bpf_map_lookup_elem(&wanted, &program) ||
	    __sync_val_compare_and_swap(&claimed, 0, tgid))
		return false;
	if (bpf_map_update_elem(&followed, &tgid, &flags, BPF_ANY)) {
		count(LOSS_FILES);
		return false;
	}
	followed_processes = 1;
	touch(inode, 0, 0, ACCESS_READ);
	return true;
}

TRIPLE(ON_EXEC, on_exec, "sched_process_exec")
{
	struct task_struct *task = (void *)ARGUMENT(ctx, 0);
	struct linux_binprm *bprm = (void *)ARGUMENT(ctx, 2);
	bool is_first = claim(bprm);
	if (!is_first && !is_followed())
		return 0;
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 *flags = bpf_map_lookup_elem(&followed, &tgid);
	if (flags)
		*flags = 0;
	struct file *program = BPF_CORE_READ(bprm, file);
	u32 file = id_of_entry(BPF_CORE_READ(program, f_path.dentry));
	u32 root = id_of_entry(BPF_CORE_READ(task, fs, root.dentry));
	u32 directory = id_of_entry(BPF_CORE_READ(task, fs, pwd.dentry));
	struct scratch *scratch = take_scratch();
	if (!scratch) {
		count(LOSS_RING);
		return 0;
	}
	struct exec_event *event = &scratch->exec;
	fill_head(&event->head, EVENT_EXEC);
	event->file = file;
	event->root = root;
	event->directory = directory;
	event->mount_namespace = BPF_CORE_READ(task, nsproxy, mnt_ns, ns.inum);
	event->padding = 0;
	long bytes = bpf_probe_read_kernel_str(event->name, PATH_BYTES, BPF_CORE_READ(bprm, filename));
	event->name_bytes = bytes > 0 ? bytes - 1 : 0;
	u32 length = event->name_bytes;
	if (length > PATH_BYTES)
		length = PATH_BYTES;
	/* While the program runs, the observer must open the mount table of another namespace, and read the command line of a claimed process. */
	send(event, __builtin_offsetof(struct exec_event, name) + length,
	     is_first || event->mount_namespace != settings.mount_namespace);
	give_back(scratch);
	return 0;
}
