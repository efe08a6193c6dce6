/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's read-ahead decisions with all their inputs, for `ahead sim conform`.
 *
 *     the program                    the decision, and the state before it     its result
 *     ───────────                    ─────────────────────────────────────     ──────────
 *     read, pread, readv, preadv ──▶ page_cache_sync_ra   page absent     ─┬─▶ page_cache_ra_order      a window
 *                               └──▶ page_cache_async_ra  page marked     ─┤
 *     access to a mapping ─────────▶ mm_filemap_fault     page absent     ─┴─▶ page_cache_ra_unbounded  exactly these pages
 *     posix_fadvise, readahead, madvise
 *
 *     cached pages: mm_filemap_add_to_page_cache, mm_filemap_delete_from_page_cache, mm_khugepaged_collapse_file, by any process;
 *     writeback_dirty_folio
 *
 * The state (struct file_ra_state) is read where the decision begins. The tracepoint of a fault names only the pages of the
 * mapping. The address (exceptions:page_fault_*) and bpf_find_vma lead to the open file and the advice for the mapping.
 *
 * Kernel threads decide through a program's open file, too: khugepaged reads the pages that it needs for a huge page
 * (collapse_file), and thereby moves the window. Therefore their events are sent with the followed programs' events.
 *
 * It must never lose an event without counting it. It must never send an event of a program that is not followed, except pages
 * added to and removed from announced files.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "readahead.h"
#include "decision.h"
#include "decision_maps.h"
#include "triple_attach.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	ON_PAGES, ON_SYNC, ON_ASYNC, ON_WINDOW, ON_EXACT, ON_ADDED, ON_COLLAPSED, ON_REMOVED, ON_DIRTIED, ON_USER_FAULT,
	ON_KERNEL_FAULT, ON_FAULT, ON_AROUND, ON_CALL, ON_CALL_END, ON_FORK, ON_EXEC, ON_EXIT,
};

static __always_inline void fill(struct event *event, u8 kind, struct inode *inode)
{
	event->time_ns = bpf_ktime_get_ns();
	event->task = bpf_get_current_pid_tgid();
	event->kind = kind;
	event->inode = (u64)inode;
}

static __always_inline void fill_surroundings(struct long_event *event, struct inode *inode)
{
	struct backing_dev_info *disk = disk_of(inode);
	event->file_bytes = BPF_CORE_READ(inode, i_size);
	event->disk_window = BPF_CORE_READ(disk, ra_pages);
	event->disk_request = BPF_CORE_READ(disk, io_pages);
}

static __always_inline void fill_state(struct long_event *event, struct file_ra_state *ra)
{
	struct file___state *open = (void *)open_of(ra);
	event->head.open = (u64)open;
	event->state.start = BPF_CORE_READ(ra, start);
	event->state.size = BPF_CORE_READ(ra, size);
	event->state.async_size = BPF_CORE_READ(ra, async_size);
	event->state.window = BPF_CORE_READ(ra, ra_pages);
	event->state.order = BPF_CORE_READ(ra, order);
	event->state.mmap_miss = BPF_CORE_READ(ra, mmap_miss);
	event->state.prev_pos = BPF_CORE_READ(ra, prev_pos);
	if (BPF_CORE_READ(open, f_mode) & FMODE_RANDOM)
		event->head.flags |= EVENT_RANDOM;
}

static __always_inline bool is_announced(struct inode *inode, struct identity *identity)
{
	u64 address = (u64)inode;
	identity->number = BPF_CORE_READ(inode, i_ino);
	identity->device_and_generation = (u64)(is_device(inode) ? BPF_CORE_READ(inode, i_rdev)
								  : BPF_CORE_READ(inode, i_sb, s_dev)) << 32 |
					  BPF_CORE_READ(inode, i_generation);
	struct identity *before = bpf_map_lookup_elem(&seen, &address);
	return before && before->number == identity->number &&
	       before->device_and_generation == identity->device_and_generation;
}

/* Announces a new file; `added`: number of its pages that have just been added and will be reported. */
static __always_inline void announce(struct inode *inode, u64 added)
{
	struct identity identity;
	u64 address = (u64)inode;
	if (is_announced(inode, &identity))
		return;
	struct address_space___cache *cache = (void *)BPF_CORE_READ((struct inode___mapping *)inode, i_mapping);
	u64 flags = BPF_CORE_READ(cache, flags);
	u64 most = flags >> bpf_core_enum_value(enum mapping_flags, AS_FOLIO_ORDER_MAX) & FOLIO_ORDER_BITS;
	u64 least = flags >> bpf_core_enum_value(enum mapping_flags, AS_FOLIO_ORDER_MIN) & FOLIO_ORDER_BITS;
	struct long_event event = {};
	fill(&event.head, FILE_SEEN, inode);
	fill_surroundings(&event, inode);
	event.head.order = most | least << 8;
	event.head.page = identity.number;
	event.head.count = identity.device_and_generation;
	event.head.extra = BPF_CORE_READ(cache, nrpages) - added;
	/* Sent before it is stored: another thread may announce the file, too, but no other event of the file comes first. */
	send(&event, sizeof(event));
	if (bpf_map_update_elem(&seen, &address, &identity, BPF_ANY))
		count_lost();
}

/* Reports the offset of a read call without one. Such a call starts where the previous one ended, and waits for that end
 * (f_pos_lock): only then is its offset known. From then until its end, the position stays. */
static __always_inline void report_position(void)
{
	struct thread *thread = this_thread();
	if (!thread || !thread->is_reading || !thread->open)
		return;
	struct file___state *open = (void *)thread->open;
	s64 position = BPF_CORE_READ(open, f_pos);
	if (position == thread->position)
		return;
	thread->position = position;
	struct event event = {};
	fill(&event, READ_AT, 0);
	event.page = position;
	send(&event, sizeof(event));
}

/* Whether this task's decisions on a file are sent. */
static __always_inline bool is_reported(struct inode *inode)
{
	struct identity identity;
	struct task_struct *task = (void *)bpf_get_current_task();
	return is_followed() || (BPF_CORE_READ(task, flags) & PF_KTHREAD && is_announced(inode, &identity));
}

static __always_inline void decision(u8 kind, u64 *ctx)
{
	struct inode *inode = (void *)ctx[0];
	if (!is_reported(inode))
		return;
	if (is_followed()) {
		report_position();
		announce(inode, 0);
	}
	struct long_event event = {};
	fill(&event.head, kind, inode);
	event.head.page = ctx[1];
	event.head.count = ctx[3];
	fill_state(&event, (void *)ctx[2]);
	fill_surroundings(&event, inode);
	send(&event, sizeof(event));
}

/* Needed for a read that causes no decision. */
TRIPLE(ON_PAGES, on_pages, "mm_filemap_get_pages")
{
	if (is_followed())
		report_position();
	return 0;
}

TRIPLE(ON_SYNC, on_sync, "page_cache_sync_ra")
{
	decision(SYNC, ctx);
	return 0;
}

TRIPLE(ON_ASYNC, on_async, "page_cache_async_ra")
{
	decision(ASYNC, ctx);
	return 0;
}

TRIPLE(ON_WINDOW, on_window, "page_cache_ra_order")
{
	struct file_ra_state *ra = (void *)ctx[2];
	if (!is_reported((void *)ctx[0]))
		return 0;
	struct event event = {};
	fill(&event, WINDOW, (void *)ctx[0]);
	event.page = ctx[1];
	event.count = BPF_CORE_READ(ra, size);
	event.extra = BPF_CORE_READ(ra, async_size);
	event.order = BPF_CORE_READ(ra, order);
	send(&event, sizeof(event));
	return 0;
}

TRIPLE(ON_EXACT, on_exact, "page_cache_ra_unbounded")
{
	if (!is_reported((void *)ctx[0]))
		return 0;
	struct event event = {};
	fill(&event, EXACT, (void *)ctx[0]);
	event.page = ctx[1];
	event.count = ctx[2];
	event.extra = ctx[3];
	send(&event, sizeof(event));
	return 0;
}

/* Checks the inode, because these folios include folios of files that were never announced. */
static __always_inline void send_folio(u8 kind, struct folio *folio, u8 flags)
{
	struct identity identity;
	struct inode *inode = BPF_CORE_READ(folio, mapping, host);
	u64 pages = pages_of(folio);
	if (!is_announced(inode, &identity)) {
		if (kind != ADDED || is_device(inode) || !is_followed())
			return;
		announce(inode, pages);
	}
	struct event event = {};
	fill(&event, kind, inode);
	event.flags = flags;
	event.page = BPF_CORE_READ(folio, index);
	while (pages > 1 && event.order < 31) {
		event.order++;
		pages >>= 1;
	}
	send(&event, sizeof(event));
}

TRIPLE(ON_ADDED, on_added, "mm_filemap_add_to_page_cache")
{
	struct folio *folio = (void *)ctx[0];
	send_folio(ADDED, folio, is_reported(BPF_CORE_READ(folio, mapping, host)) ? EVENT_OWN : 0);
	return 0;
}

/* A huge folio has replaced the cached folios (collapse_file): no other tracepoint reports that. */
TRIPLE(ON_COLLAPSED, on_collapsed, "mm_khugepaged_collapse_file")
{
	struct folio *folio = (void *)ctx[1];
	if (folio && (int)ctx[7] == bpf_core_enum_value(enum scan_result, SCAN_SUCCEED))
		send_folio(ADDED, folio, 0);
	return 0;
}

TRIPLE(ON_REMOVED, on_removed, "mm_filemap_delete_from_page_cache")
{
	struct task_struct *task = (void *)bpf_get_current_task();
	bool is_reclaim = BPF_CORE_READ(task, flags) & PF_MEMALLOC;
	send_folio(REMOVED, (void *)ctx[0], is_reclaim ? EVENT_RECLAIMED : 0);
	return 0;
}

/* The marker shares its bit with PG_reclaim: a written folio loses its marker, now or when the writeback ends. */
TRIPLE(ON_DIRTIED, on_dirtied, "writeback_dirty_folio")
{
	send_folio(DIRTIED, (void *)ctx[0], 0);
	return 0;
}

static __always_inline void store_fault_address(u64 address)
{
	struct thread *thread = is_followed() ? this_thread() : 0;
	if (thread)
		thread->address = address;
}

TRIPLE(ON_USER_FAULT, on_user_fault, "page_fault_user")
{
	store_fault_address(ctx[0]);
	return 0;
}

TRIPLE(ON_KERNEL_FAULT, on_kernel_fault, "page_fault_kernel")
{
	store_fault_address(ctx[0]);
	return 0;
}

struct wanted {
	struct address_space *mapping;
	u64 page;
	struct long_event *event;
	u64 is_found;
};

static long on_mapping(struct task_struct *task, struct vm_area_struct *vma, struct wanted *wanted)
{
	struct vm_area_struct___place *place = (void *)vma;
	struct file *open = BPF_CORE_READ(place, vm_file);
	u64 first = BPF_CORE_READ(place, vm_pgoff);
	u64 pages = (BPF_CORE_READ(place, vm_end) - BPF_CORE_READ(place, vm_start)) >> page_shift;
	if (!open || BPF_CORE_READ(open, f_mapping) != wanted->mapping || wanted->page < first ||
	    wanted->page >= first + pages)
		return 0;
	wanted->event->mapping_first = first;
	wanted->event->mapping_end = first + pages;
	wanted->event->mapping_flags = BPF_CORE_READ(place, vm_flags);
	fill_state(wanted->event, state_of(open));
	wanted->is_found = 1;
	return 0;
}

TRIPLE(ON_FAULT, on_fault, "mm_filemap_fault")
{
	struct address_space *mapping = (void *)ctx[0];
	if (!is_followed())
		return 0;
	struct inode *inode = BPF_CORE_READ(mapping, host);
	announce(inode, 0);
	struct long_event event = {};
	fill(&event.head, FAULT, inode);
	event.head.page = ctx[1];
	fill_surroundings(&event, inode);
	struct wanted wanted = { .mapping = mapping, .page = ctx[1], .event = &event };
	struct thread *thread = this_thread();
	if (thread)
		bpf_find_vma((void *)bpf_get_current_task_btf(), thread->address, on_mapping, &wanted, 0);
	if (!wanted.is_found)
		event.head.flags |= EVENT_UNMAPPED;
	send(&event, sizeof(event));
	return 0;
}

TRIPLE(ON_AROUND, on_around, "mm_filemap_map_pages")
{
	struct address_space *mapping = (void *)ctx[0];
	if (!is_followed())
		return 0;
	struct inode *inode = BPF_CORE_READ(mapping, host);
	announce(inode, 0);
	struct event event = {};
	fill(&event, AROUND, inode);
	event.page = ctx[1];
	event.count = ctx[2];
	send(&event, sizeof(event));
	return 0;
}

/* An open regular file or block device that is read through the page cache. */
static __always_inline struct file *open_file(u64 number)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *open = 0, **place = BPF_CORE_READ(table, fd);
	if (number >= BPF_CORE_READ(table, max_fds))
		return 0;
	bpf_probe_read_kernel(&open, sizeof(open), place + number);
	u16 type = BPF_CORE_READ(open, f_inode, i_mode) & S_IFMT;
	bool is_file = open && (type == S_IFREG || type == S_IFBLK);
	if (!is_file || (BPF_CORE_READ((struct file___state *)open, f_flags) & O_DIRECT))
		return 0;
	struct address_space___operations *mapping = (void *)BPF_CORE_READ(open, f_mapping);
	struct address_space_operations *operations = BPF_CORE_READ(mapping, a_ops);
	if (!BPF_CORE_READ(operations, read_folio) && !BPF_CORE_READ(operations, readahead))
		return 0;
	struct backing_dev_info *disk = disk_of(BPF_CORE_READ(open, f_mapping, host));
	return BPF_CORE_READ(disk, io_pages) ? open : 0;
}

static __always_inline void send_use(u8 kind, struct file *open, u64 offset, u64 bytes, u64 extra, u8 flags)
{
	struct inode *inode = BPF_CORE_READ(open, f_mapping, host);
	announce(inode, 0);
	struct long_event event = {};
	fill(&event.head, kind, inode);
	event.head.flags = flags;
	event.head.page = offset;
	event.head.count = bytes;
	event.head.extra = extra;
	fill_state(&event, state_of(open));
	fill_surroundings(&event, inode);
	send(&event, sizeof(event));
}

static __always_inline void send_read(u64 number, s64 offset, u64 bytes, u64 extra, u8 flags)
{
	struct file *open = open_file(number);
	struct thread *thread = this_thread();
	if (!open || !thread)
		return;
	thread->is_reading = 1;
	thread->open = offset < 0 && !(flags & EVENT_OTHER) ? (u64)open : 0;
	if (offset < 0)
		offset = BPF_CORE_READ((struct file___state *)open, f_pos);
	thread->position = offset;
	send_use(READ, open, offset, bytes, extra, flags);
}

/* The total length of the buffers of a readv. */
static __always_inline u64 length_of(u64 buffers, u64 count)
{
	struct iovec vector;
	u64 bytes = 0;
	for (u32 i = 0; i < BUFFERS; i++) {
		if (i >= count || bpf_probe_read_user(&vector, sizeof(vector), (void *)buffers + i * sizeof(vector)))
			break;
		bytes += vector.length;
	}
	return bytes;
}

struct range {
	u64 address;
	u64 end;
};

static long on_advised(struct task_struct *task, struct vm_area_struct *vma, struct range *range)
{
	struct vm_area_struct___place *place = (void *)vma;
	struct file *open = BPF_CORE_READ(place, vm_file);
	u64 start = BPF_CORE_READ(place, vm_start), end = BPF_CORE_READ(place, vm_end);
	if (!open || (BPF_CORE_READ(open, f_inode, i_mode) & S_IFMT) != S_IFREG)
		return 0;
	u64 bytes = (range->end < end ? range->end : end) - range->address;
	u64 advice = POSIX_FADV_WILLNEED | (range->end > end ? SPANNING : 0);
	send_use(ADVICE, open, range->address - start + (BPF_CORE_READ(place, vm_pgoff) << page_shift), bytes, advice, 0);
	return 0;
}

static __always_inline void send_memory_advice(u64 address, u64 bytes, u64 advice)
{
	struct thread *thread = this_thread();
	struct range range = { .address = address, .end = address + bytes };
	/* Such a call has no effect, or fails. */
	if (!bytes || address & ((1 << page_shift) - 1) || range.end < address)
		return;
	if (advice == MADV_WILLNEED)
		bpf_find_vma((void *)bpf_get_current_task_btf(), address, on_advised, &range, 0);
	/* These calls cause no exception that would report the address of the pages. */
	else if (thread && (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE))
		thread->address = address;
}

TRIPLE(ON_CALL, on_call, "sys_enter")
{
	struct pt_regs *regs = (void *)ctx[0];
	u32 number = ctx[1];
	u32 *call = bpf_map_lookup_elem(&calls, &number);
	if (!call || !*call || !is_followed() || !IS_NATIVE(regs))
		return 0;
	u64 first = SYSCALL_ARGUMENT_0(regs), second = ARGUMENT_1(regs), third = ARGUMENT_2(regs);
	u64 fourth = SYSCALL_ARGUMENT_3(regs);
	switch (*call) {
	case CALL_READ:
		send_read(first, -1, third, 0, 0);
		break;
	case CALL_PREAD:
		send_read(first, fourth, third, 0, 0);
		break;
	case CALL_READV:
		send_read(first, -1, length_of(second, third), 0, third > BUFFERS ? EVENT_OTHER : 0);
		break;
	case CALL_PREADV:
		send_read(first, fourth, length_of(second, third), 0, third > BUFFERS ? EVENT_OTHER : 0);
		break;
	case CALL_PREADV2:
		send_read(first, fourth, length_of(second, third), SYSCALL_ARGUMENT_5(regs), third > BUFFERS ? EVENT_OTHER : 0);
		break;
	case CALL_SENDFILE:
		send_read(second, -1, fourth, 0, EVENT_OTHER);
		break;
	case CALL_SPLICE:
		send_read(first, -1, 0, 0, EVENT_OTHER);
		break;
	case CALL_MADVISE:
		send_memory_advice(first, second, third);
		break;
	case CALL_FADVISE:
	case CALL_READAHEAD: {
		struct file *open = open_file(first);
		u64 advice = *call == CALL_FADVISE ? fourth : POSIX_FADV_WILLNEED;
		if (open)
			send_use(ADVICE, open, second, third, advice, 0);
		break;
	}
	}
	return 0;
}

TRIPLE(ON_CALL_END, on_call_end, "sys_exit")
{
	struct pt_regs *regs = (void *)ctx[0];
	s64 result = ctx[1];
	u32 number = SYSCALL_NUMBER(regs);
	u32 *call = bpf_map_lookup_elem(&calls, &number);
	if (!call || !*call || !is_followed() || !IS_NATIVE(regs))
		return 0;
	if (*call == CALL_OPEN) {
		struct file *open = result >= 0 ? open_file(result) : 0;
		if (open)
			send_use(OPENED, open, 0, 0, 0, 0);
		return 0;
	}
	struct thread *thread = this_thread();
	if (!thread || !thread->is_reading)
		return 0;
	thread->is_reading = 0;
	struct event event = {};
	fill(&event, READ_END, 0);
	event.count = result;
	send(&event, sizeof(event));
	return 0;
}

/* A child is followed from its first instruction on: it does not run before this program has run. */
TRIPLE(ON_FORK, on_fork, "sched_process_fork")
{
	u32 parent = BPF_CORE_READ((struct task_struct *)ctx[0], tgid);
	u32 child = BPF_CORE_READ((struct task_struct *)ctx[1], tgid);
	u32 *is_before_exec = bpf_map_lookup_elem(&followed, &parent);
	u32 value = is_before_exec ? *is_before_exec : 0;
	if (parent != child && is_before_exec && bpf_map_update_elem(&followed, &child, &value, BPF_ANY))
		count_lost();
	return 0;
}

TRIPLE(ON_EXEC, on_exec, "sched_process_exec")
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 *is_before_exec = bpf_map_lookup_elem(&followed, &tgid);
	if (is_before_exec)
		*is_before_exec = 0;
	return 0;
}

TRIPLE_THEN(ON_EXIT, on_exit, "sched_process_exit", end_account())
{
	struct task_struct *task = (void *)ctx[0];
	u32 tid = BPF_CORE_READ(task, pid), tgid = BPF_CORE_READ(task, tgid);
	bpf_map_delete_elem(&threads, &tid);
	/* The count is already decremented: 0 at the end of the last thread. */
	if (BPF_CORE_READ(task, signal, live.counter) == 0)
		bpf_map_delete_elem(&followed, &tgid);
	return 0;
}
