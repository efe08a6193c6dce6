/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts the kernel's read-ahead decisions, the waits for them and their waste, for each open file; and sends the decisions.
 *
 *     a read, page absent ──▶ page_cache_sync_ra ──┐                      ┌─▶ page_cache_ra_order       a window: issued
 *     page marked ──────────▶ page_cache_async_ra ─┼─▶ decided() ─────────┴─▶ page_cache_ra_unbounded   exactly these pages: issued
 *     a fault, page absent ─▶ mm_filemap_fault ────┘      └─▶ event
 *
 *     sleeps for I/O ───────▶ sched_switch ────────▶ begin_wait(): which open file?   runs again: end_wait()
 *     evicted ──────────────▶ mm_filemap_delete_from_page_cache ──▶ issued and not used: wasted
 *
 * No program runs on a read of cached pages. So which pages were used is found from the decisions: the pages that a read asked for, and
 * those that it has passed since the last decision (prev_pos). With `is_exact`, accesses and added pages are observed themselves.
 *
 * A fault reads around its page without a page_cache_sync_ra: it is a window that no decision precedes. Its page is known from
 * mm_filemap_fault, which comes before it on the same processor. That tracepoint fires for few accesses to cached pages: the first write to
 * a page of a private mapping, for example; others map the cached pages around (mm_filemap_map_pages), or cause no fault at all.
 *
 * A wait belongs to the last decision of its thread if that comes right before it (no context switch in between, and the same system call:
 * after a marker, fsync(2) of another file may sleep). Otherwise the page was already being read ("locked"), and the descriptor in the
 * system call's arguments leads to the open file.
 *
 * The tracepoints of read-ahead are in Linux 6.18 and newer; counter_older.h has programs for older kernels.
 *
 * It must never count or send an access of the observing process, and never lose a count without counting that.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "readahead.h"
#include "counters.h"
#include "counter_maps.h"
#include "counter_pages.h"
#include "counter_places.h"
#include "counter_send.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The last fault of the thread that runs on this processor. */
struct fault {
	u64 inode;
	u64 page;
	u64 address; /* in Hits mode, with the thread's voluntary context switches before it */
	u64 switches;
	u32 tid;
	u32 address_tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct fault);
} faults SEC(".maps");

static __always_inline struct fault *fault_of(u64 inode, u64 first, u64 end)
{
	u32 key = 0;
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);
	if (!fault || fault->tid != (u32)bpf_get_current_pid_tgid() || fault->inode != inode)
		return 0;
	return fault->page >= first && fault->page < end ? fault : 0;
}

static __always_inline u64 pages_of_file(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_size) + (1ULL << settings.page_shift) - 1) >> settings.page_shift;
}

static __always_inline u64 cached_pages_of(struct inode *inode)
{
	struct address_space *mapping = BPF_CORE_READ(inode, i_mapping);
	return BPF_CORE_READ(mapping, nrpages);
}

/* A state that is not in an open file of this inode: directories of ext4 are read from the device's page cache with their own. */
static __always_inline bool is_of_open_file(struct file *open, struct inode *inode)
{
	return BPF_CORE_READ(open, f_mapping) == BPF_CORE_READ(inode, i_mapping);
}

/* The record of an open file. An address is reused: another inode, or a state in which nothing was read yet, is another open file. */
static __always_inline struct open_record *find_record(struct decision *decision)
{
	struct open_record *record = record_of((u64)decision->open);
	bool is_fresh = decision->prev_pos == -1 && !decision->size && !decision->start;
	if (record && record->inode == (u64)decision->inode && !(is_fresh && record->decisions))
		return record;
	return is_of_open_file(decision->open, decision->inode) ? new_record((u64)decision->open, (u64)decision->inode) : 0;
}

/* The pages that the reader has passed since the last decision were used. With observed accesses that is known for reads, but not for
 * mappings: the kernel may map a huge page without an event. */
static __always_inline void infer_used(struct open_record *record, struct decision *decision)
{
	u64 passed = decision->is_fault ? decision->page : (u64)(decision->prev_pos + (1 << settings.page_shift) - 1) >> settings.page_shift;
	u64 from = record->progress;
	if ((settings.is_exact && !decision->is_fault) || !record->size || from < record->prior_start || passed > record->start + record->size)
		return;
	if (from < passed)
		count(record, COUNT_USED, use_pages(record->inode, from, passed));
}

static __always_inline bool is_jump(struct open_record *record, struct decision *decision)
{
	u64 page = decision->page, end = record->start + record->size;
	u64 last = record->last_pages[(record->decisions - 1) % LAST_PAGES] >> 1;
	if (decision->kind == DECIDED_MARKER || (record->size && page >= record->prior_start && page <= end))
		return false;
	if (!record->decisions)
		return page != 0;
	return page != last && page != last + 1 &&
	       (decision->is_fault || page - (decision->prev_pos >> settings.page_shift) > 1);
}

static __always_inline void note(struct open_record *record, struct decision *decision, u64 now_ns)
{
	bool is_miss = decision->kind != DECIDED_MARKER;
	count(record, is_miss ? COUNT_MISSES : COUNT_MARKERS, 1);
	if (decision->kind == DECIDED_FAULT)
		count(record, COUNT_FAULTS, 1);
	decision->is_thrashed = is_miss && take_thrashed((u64)decision->inode, decision->page);
	count(record, COUNT_THRASHED, decision->is_thrashed);
	if (!record)
		return;
	infer_used(record, decision);
	decision->has_jumped = is_jump(record, decision);
	send(record, decision, now_ns);
	record->has_jumped = decision->has_jumped;
	record->last_pages[record->decisions++ % LAST_PAGES] = decision->page << 1 | decision->is_fault;
	record->last_ns = now_ns;
	record->pid = bpf_get_current_pid_tgid() >> 32;
	record->progress = decision->page;
}

/* The last access to a mapping was no hit. */
static __always_inline void take_hit_back(struct thread_record *thread)
{
	if (thread->fault_hits && thread->fault_inode == thread->inode)
		count(record_of(thread->fault_open), COUNT_HITS, -(u64)thread->fault_hits);
	thread->fault_hits = 0;
}

static __always_inline struct thread_record *begin_decision(struct decision *decision)
{
	struct thread_record *thread = thread_of(bpf_get_current_pid_tgid());
	if (!thread)
		return 0;
	thread->open = (u64)decision->open;
	thread->inode = (u64)decision->inode;
	thread->page = decision->page;
	thread->needed = decision->is_fault ? 1 : decision->wanted;
	thread->first = thread->end = thread->counted = 0;
	thread->switches = switches_of((void *)bpf_get_current_task());
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	thread->call = SYSCALL_NUMBER(regs);
	thread->called = called_descriptor(regs);
	thread->phase = DECIDED;
	thread->kind = decision->kind;
	thread->is_fault = decision->is_fault;
	if (decision->kind != DECIDED_MARKER && is_sampled(thread->inode, thread->page >> 6))
		thread->has_waited = 1;
	if (decision->kind == DECIDED_FAULT)
		take_hit_back(thread);
	return thread;
}

static __always_inline void read_state(struct decision *decision, struct file_ra_state *ra)
{
	u8 copy[RA_STATE_BYTES] = {};
	bpf_probe_read_kernel(copy, bpf_core_type_size(struct file_ra_state), ra);
	ra = (void *)copy;
	decision->start = ra->start;
	decision->size = ra->size;
	decision->async_size = ra->async_size;
	decision->window = ra->ra_pages;
	decision->mmap_miss = ra->mmap_miss;
	decision->prev_pos = ra->prev_pos;
}

static __always_inline int decided(u8 kind, struct inode *inode, u64 page, struct file_ra_state *ra, u64 wanted)
{
	if (is_own())
		return 0;
	struct decision decision = { .inode = inode, .open = open_of(ra), .page = page, .wanted = wanted, .kind = kind };
	struct fault *fault = fault_of((u64)inode, page, page + 1);
	if (fault) {
		decision.is_fault = 1;
		fault->tid = 0;
		if (kind == DECIDED_MISS) {
			decision.kind = DECIDED_FAULT;
			decision.wanted = 1;
		}
	}
	read_state(&decision, ra);
	note(find_record(&decision), &decision, bpf_ktime_get_ns());
	begin_decision(&decision);
	return 0;
}

/* A window without a decision before it: the kernel reads around a fault. Its state is that after the decision; that before it is known
 * from the last decision. */
static __always_inline struct thread_record *decided_around(struct inode *inode, u64 first, struct file_ra_state *ra)
{
	struct decision decision = { .inode = inode, .open = open_of(ra), .wanted = 1, .kind = DECIDED_FAULT, .is_fault = 1 };
	read_state(&decision, ra);
	struct fault *fault = fault_of((u64)inode, first, first + decision.size);
	decision.page = first + decision.window / 2;
	if (fault) {
		decision.page = fault->page;
		fault->tid = 0;
	}
	struct open_record *record = record_of((u64)decision.open);
	if (!record || record->inode != (u64)inode)
		record = is_of_open_file(decision.open, inode) ? new_record((u64)decision.open, (u64)inode) : 0;
	decision.start = record ? record->start : 0;
	decision.size = record ? record->size : 0;
	decision.async_size = record ? record->async_size : 0;
	note(record, &decision, bpf_ktime_get_ns());
	return begin_decision(&decision);
}

static __always_inline void issued(struct thread_record *thread, struct inode *inode, u64 first, u64 pages)
{
	u64 file_pages = pages_of_file(inode), end = first + pages < file_pages ? first + pages : file_pages;
	if (first >= end)
		return;
	if (!thread->end)
		thread->first = first;
	thread->end = end;
	if (settings.is_exact)
		return;
	struct open_record *record = record_of(thread->open);
	u64 from = thread->page > first ? thread->page : first;
	u64 to = thread->page + thread->needed < end ? thread->page + thread->needed : end;
	/* Pages that the access itself needs are used for sure. A reader in no order issues no others. */
	bool is_needed = from == first && to == end && are_unknown(thread->inode, first, end);
	u64 new = is_needed ? end - first : issue_pages(thread->open, thread->inode, first, end);
	if (!thread->counted)
		thread->cached = cached_pages_of(inode);
	thread->counted += new;
	count(record, COUNT_ISSUED, new);
	if (from >= to)
		return;
	count(record, COUNT_USED, is_needed ? new : use_pages(thread->inode, from, to));
	if (record && record->progress < to)
		record->progress = to;
}

static __always_inline int ordered(struct inode *inode, u64 first, struct file_ra_state *ra)
{
	if (is_own())
		return 0;
	u32 tid = bpf_get_current_pid_tgid();
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	bool is_decided = thread && thread->phase == DECIDED && thread->open == (u64)open_of(ra) &&
			  thread->switches == switches_of((void *)bpf_get_current_task());
	if (!is_decided)
		thread = decided_around(inode, first, ra);
	if (!thread)
		return 0;
	u32 size = BPF_CORE_READ(ra, size);
	issued(thread, inode, first, size);
	thread->phase = ORDERED;
	struct open_record *record = record_of(thread->open);
	if (!record || record->inode != (u64)inode)
		return 0;
	record->prior_start = record->size && first == record->start + record->size ? record->start : first;
	record->start = first;
	record->size = size;
	record->async_size = BPF_CORE_READ(ra, async_size);
	return 0;
}

/* The pages of a window on a file system without large folios, too; and those of readahead(2), which no decision precedes. */
static __always_inline int issued_exactly(struct inode *inode, u64 first, u64 pages)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread_record *thread = bpf_map_lookup_elem(&threads, &tid);
	if (is_own() || !thread || thread->inode != (u64)inode)
		return 0;
	if (thread->phase != DECIDED && !(thread->phase == EXACT && thread->end == first))
		return 0;
	issued(thread, inode, first, pages);
	thread->phase = EXACT;
	return 0;
}

SEC("tp_btf/page_cache_sync_ra")
int on_sync(u64 *ctx)
{
	return decided(DECIDED_MISS, (void *)ctx[0], ctx[1], (void *)ctx[2], ctx[3]);
}

SEC("tp_btf/page_cache_async_ra")
int on_async(u64 *ctx)
{
	return decided(DECIDED_MARKER, (void *)ctx[0], ctx[1], (void *)ctx[2], ctx[3]);
}

SEC("tp_btf/page_cache_ra_order")
int on_order(u64 *ctx)
{
	return ordered((void *)ctx[0], ctx[1], (void *)ctx[2]);
}

SEC("tp_btf/page_cache_ra_unbounded")
int on_unbounded(u64 *ctx)
{
	return issued_exactly((void *)ctx[0], ctx[1], ctx[2]);
}

static __always_inline int note_fault(u64 inode, u64 page)
{
	u32 key = 0;
	struct fault *fault = bpf_map_lookup_elem(&faults, &key);
	if (!fault)
		return 0;
	fault->inode = inode;
	fault->page = page;
	fault->tid = bpf_get_current_pid_tgid();
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int on_fault(u64 *ctx)
{
	struct address_space *mapping = (void *)ctx[0];
	return note_fault(inode_of(mapping), ctx[1]);
}

#include "counter_waits.h"
#include "counter_evictions.h"
#include "counter_accesses.h"
#include "counter_older.h"
