/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Every access, and every page that read-ahead adds: hits, used and issued pages are exact. Only with `is_exact`, because these programs
 * run on reads of cached pages.
 *
 *     read of pages    ──▶ mm_filemap_get_pages, after a miss and its wait ──▶ no miss and no wait since the last one? a hit
 *     access to a mapping
 *       page cached    ──▶ mm_filemap_map_pages: it and its neighbours are mapped, so that no access to them is seen
 *       otherwise      ──▶ mm_filemap_fault, before a miss or a wait, and mm_filemap_map_pages after it ──▶ a hit, taken back at a miss or wait
 *
 * The faulted page among those that are mapped is found by the address of the fault (page_fault_user, page_fault_kernel). Its neighbours
 * count as used if the thread's faults proceed from one such window to the next: then it reads all of them.
 *
 * Pages that were cached before are no pages of read-ahead, so their use is not counted. A used page counts for the open file for which
 * it was issued.
 */
#ifndef AHEAD_COUNTER_ACCESSES_H
#define AHEAD_COUNTER_ACCESSES_H

static __always_inline u32 weight(void)
{
	return settings.sample_every ?: 1;
}

static __always_inline void count_used(u64 inode, u64 first, u64 end)
{
	struct page_range range = { .inode = inode, .page = first, .end = end };
	struct block *block = block_of(&range);
	u64 used = use_pages(inode, first, end) * weight();
	if (used)
		count(block ? record_of(block->open) : 0, COUNT_USED, used);
}

/* The record of the open file that the current system call reads; it is made if it is missing. */
static __always_inline struct open_record *accessed_record(struct thread_record *thread, u64 inode)
{
	if (thread->access_inode != inode) {
		struct task_struct *task = bpf_get_current_task_btf();
		u32 descriptor = called_descriptor((void *)bpf_task_pt_regs(task));
		struct file *open = (void *)(descriptor == NO_DESCRIPTOR ? 0 : called_open(task, descriptor));
		if ((u64)BPF_CORE_READ(open, f_mapping, host) != inode)
			open = 0;
		if (!open && thread->inode == inode)
			open = (void *)thread->open;
		thread->access_open = (u64)open;
		/* One that is not found is looked for again: the table of calls is filled when the programs run already. */
		thread->access_inode = open ? inode : 0;
	}
	if (!thread->access_open)
		return 0;
	struct open_record *record = record_of(thread->access_open);
	if (!record || record->inode != inode)
		record = new_record(thread->access_open, inode);
	if (record)
		record->pid = bpf_get_current_pid_tgid() >> 32;
	return record;
}

static __always_inline struct thread_record *accessing_thread(void)
{
	return thread_of(bpf_get_current_pid_tgid());
}

SEC("tp_btf/mm_filemap_get_pages")
int on_get_pages(u64 *ctx)
{
	struct address_space *mapping = (void *)ctx[0];
	u64 inode = inode_of(mapping), first = ctx[1], end = ctx[2] + 1;
	if (is_own())
		return 0;
	if (settings.sample_every <= 1 || end > (first | 63) + 1 || is_sampled(inode, first >> 6))
		count_used(inode, first, end);
	if (!is_sampled(inode, first >> 6))
		return 0;
	struct thread_record *thread = accessing_thread();
	if (!thread)
		return 0;
	struct open_record *record = accessed_record(thread, inode);
	count_machine(COUNT_READS, weight());
	if (!thread->has_waited)
		count(record, COUNT_HITS, weight());
	thread->has_waited = 0;
	return 0;
}

/* The kernel maps cached pages in an aligned block of this size around a fault (default of fault_around_bytes). Unit: bytes. */
#define AROUND_BYTES (64 << 10)

/* Uses the neighbours of a sequence of faults. */
static __always_inline void use_window(struct thread_record *thread, u64 inode, u64 first, u64 end)
{
	struct window *window = &thread->windows[inode >> 6 & (WINDOWS - 1)];
	if (window->inode == inode && (window->end == first || window->first == end))
		count_used(inode, first < window->first ? first : window->first, end > window->end ? end : window->end);
	window->inode = inode;
	window->first = first;
	window->end = end;
}

/* An access to a mapping: counted as a hit, until a miss or a wait of this thread takes it back. After a miss, the fault is repeated. */
static __always_inline struct thread_record *access_mapping(u64 inode, u64 page)
{
	if (!is_sampled(inode, page >> 6))
		return 0;
	count_used(inode, page, page + 1);
	struct thread_record *thread = accessing_thread();
	if (!thread || (thread->fault_inode == inode && thread->fault_page == page))
		return thread;
	thread->fault_inode = inode;
	thread->fault_page = page;
	thread->fault_hits = weight();
	thread->fault_open = thread->inode == inode ? thread->open : 0;
	count_machine(COUNT_READS, weight());
	count(record_of(thread->fault_open), COUNT_HITS, weight());
	return thread;
}

static __always_inline int note_address(u64 address)
{
	u32 key = 0;
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);
	if (!fault)
		return 0;
	fault->address = address;
	fault->address_tid = bpf_get_current_pid_tgid();
	fault->switches = switches_of((void *)bpf_get_current_task());
	return 0;
}

SEC("tp_btf/page_fault_user")
int on_user_fault(u64 *ctx)
{
	return note_address(ctx[0]);
}

SEC("tp_btf/page_fault_kernel")
int on_kernel_fault(u64 *ctx)
{
	return note_address(ctx[0]);
}

/* The page of the fault around which these pages are mapped. A fault that has waited is repeated: then other threads have run on this
 * processor, but its page is known. The first and last block of a mapping may be shorter. */
static __always_inline u64 faulted_page(u64 inode, u64 first, u64 end)
{
	u32 key = 0, tid = bpf_get_current_pid_tgid();
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	/* After a wait the thread may be on a processor where it has faulted before. */
	if (!fault || fault->address_tid != tid || fault->switches != switches_of((void *)bpf_get_current_task())) {
		bool is_repeated = thread && thread->fault_inode == inode && thread->fault_page >= first && thread->fault_page < end;
		return is_repeated ? thread->fault_page : first;
	}
	u64 page = first + (fault->address % AROUND_BYTES >> settings.page_shift);
	return page < end ? page : end - 1;
}

SEC("tp_btf/mm_filemap_map_pages")
int on_map_pages(u64 *ctx)
{
	struct address_space *mapping = (void *)ctx[0];
	u64 inode = inode_of(mapping), first = ctx[1], end = ctx[2] + 1;
	if (is_own())
		return 0;
	struct thread_record *thread = access_mapping(inode, faulted_page(inode, first, end));
	if (thread)
		use_window(thread, inode, first, end);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int on_accessed_fault(u64 *ctx)
{
	struct address_space *mapping = (void *)ctx[0];
	u64 inode = inode_of(mapping), page = ctx[1];
	note_fault(inode, page);
	if (!is_own())
		access_mapping(inode, page);
	return 0;
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int on_added(u64 *ctx)
{
	struct folio *folio = (void *)ctx[0];
	struct address_space *mapping = folio->mapping;
	u32 tid = bpf_get_current_pid_tgid();
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	u64 first = folio->index;
	if (!thread || thread->inode != (u64)mapping->host || first < thread->first || first >= thread->end)
		return 0;
	u64 end = first + pages_of(folio), file_pages = pages_of_file(mapping->host);
	if (end > file_pages)
		end = file_pages;
	if (first >= end)
		return 0;
	count(record_of(thread->open), COUNT_ISSUED, issue_pages(thread->open, thread->inode, first, end));
	if (thread->is_fault && thread->page >= first && thread->page < end)
		count_used(thread->inode, thread->page, thread->page + 1);
	return 0;
}

#endif
