/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which decisions are sent, and their content.
 *
 *     decision ─▶ within the budget of this open file? ─▶ file large enough? ─▶ quiet, and of the pattern before? ─▶ event ─▶ wake the reader?
 *
 * A program that reads at random decides tens of thousands of times a second. A few of its decisions show the pattern; all of them would
 * fill the ring buffer and take a processor. The counters, which every event has, count all of them.
 */
#ifndef AHEAD_COUNTER_SEND_H
#define AHEAD_COUNTER_SEND_H

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* A file that is read with a few requests in any case: two windows of Linux's default. Unit: bytes. */
#define SMALL_BYTES (256 << 10)
/* Events of an open file in each BUDGET_NS: decisions far from the last one, and others. */
#define BUDGET_NS 100000000ULL
#define JUMPS_MOST 16
#define OTHERS_MOST 32
/* Bytes in the ring buffer that wake the reader also for markers: a sixteenth of it. */
#define WAKE_BYTES (1 << 16)

/* The descriptor of a mapped file may be closed. A search reads the whole table of descriptors, so a failed one is repeated after 1 s at the
 * earliest. Unit: 2^UNFOUND_SHIFT nanoseconds, about 1 ms. */
#define UNFOUND_SHIFT 20
#define UNFOUND_AGAIN 954

/* A decision, and the state before it. */
struct decision {
	struct inode *inode;
	struct file *open;
	u64 page;
	u64 wanted;
	u64 start;
	s64 prev_pos;
	u32 size;
	u32 async_size;
	u32 window;
	u16 mmap_miss;
	u8 kind;
	u8 is_fault;
	u8 is_thrashed;
	u8 has_jumped;
};

/* Whether the budget has room. */
static __always_inline bool is_within_budget(struct open_record *record, struct decision *decision, u64 now_ns)
{
	if (now_ns - record->budget_ns > BUDGET_NS) {
		record->budget_ns = now_ns;
		record->sent_jumps = 0;
		record->sent_others = 0;
	}
	return decision->has_jumped ? record->sent_jumps < JUMPS_MOST : record->sent_others < OTHERS_MOST;
}

static __always_inline bool is_wanted(struct open_record *record, struct decision *decision, u64 now_ns)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct inode *inode = decision->inode;
	if (!settings.sends || !is_within_budget(record, decision, now_ns) || BPF_CORE_READ(inode, i_size) <= SMALL_BYTES ||
	    BPF_CORE_READ(task, flags) & PF_KTHREAD)
		return false;
	u64 open = (u64)decision->open;
	bool is_same = !decision->is_thrashed && decision->has_jumped == record->has_jumped;
	if (is_same && bpf_map_lookup_elem(&quiet, &open))
		return false;
	if (decision->has_jumped)
		record->sent_jumps++;
	else
		record->sent_others++;
	return true;
}

static __always_inline void fill_event(struct counter_event *event, struct open_record *record, struct decision *decision)
{
	struct inode *inode = decision->inode;
	struct file___state *open = (void *)decision->open;
	struct address_space *mapping = BPF_CORE_READ(inode, i_mapping);
	u64 process_and_thread = bpf_get_current_pid_tgid();
	event->open = (u64)decision->open;
	event->inode = (u64)inode;
	event->inode_number = BPF_CORE_READ(inode, i_ino);
	event->device = is_device(inode) ? BPF_CORE_READ(inode, i_rdev) : BPF_CORE_READ(inode, i_sb, s_dev);
	event->page = decision->page;
	event->wanted = decision->wanted;
	event->start = decision->start;
	event->size = decision->size;
	event->async_size = decision->async_size;
	event->prev_pos = decision->prev_pos;
	event->window = decision->window;
	event->mmap_miss = decision->mmap_miss;
	event->kind = decision->kind;
	event->file_pages = (BPF_CORE_READ(inode, i_size) + (1ULL << settings.page_shift) - 1) >> settings.page_shift;
	event->cached_pages = BPF_CORE_READ(mapping, nrpages);
	event->disk_window = BPF_CORE_READ(disk_of(inode), ra_pages);
	event->misses = record->counts[COUNT_MISSES];
	event->waits = record->counts[COUNT_WAITS];
	event->wait_ns = record->counts[COUNT_WAIT_NS];
	event->issued = record->counts[COUNT_ISSUED];
	event->wasted = record->counts[COUNT_WASTED];
	event->pid = process_and_thread >> 32;
	event->tid = process_and_thread;
	event->flags = (decision->is_thrashed ? EVENT_IS_THRASHED : 0) | (is_device(inode) ? EVENT_IS_DEVICE : 0);
	if (BPF_CORE_READ(open, f_mode) & FMODE_RANDOM)
		event->flags |= EVENT_IS_RANDOM;
	bpf_get_current_comm(event->name, NAME_BYTES);
}

/* Misses and faults wait for the disk now, and a reader of markers that has waited needs a larger window: these wake the reader of events at
 * once. */
static __always_inline u64 wakeup(struct open_record *record, struct decision *decision)
{
	bool has_waited = record->counts[COUNT_WAITS] != record->sent_waits;
	record->sent_waits = record->counts[COUNT_WAITS];
	if (decision->kind != DECIDED_MARKER || has_waited ||
	    bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >= WAKE_BYTES)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

/* The descriptor, and where the next search for it begins. */
static __always_inline void locate_descriptor(struct counter_event *event, struct open_record *record, u64 now_ns)
{
	u32 now = now_ns >> UNFOUND_SHIFT;
	bool may_search = !record->unfound || now - record->unfound > UNFOUND_AGAIN;
	bool has_searched = find_descriptor(event, (void *)event->open, record->descriptor, may_search);
	bool is_open = event->flags & EVENT_IS_OPEN;
	record->descriptor = event->descriptor;
	if (is_open)
		record->unfound = 0;
	else if (has_searched)
		record->unfound = now ? now : 1;
}

static __always_inline void send(struct open_record *record, struct decision *decision, u64 now_ns)
{
	if (!is_wanted(record, decision, now_ns))
		return;
	struct counter_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count_machine(COUNT_LOST_EVENTS, 1);
		return;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = now_ns;
	fill_event(event, record, decision);
	if (decision->is_fault)
		find_mapping(event, decision->inode, decision->open);
	locate_descriptor(event, record, now_ns);
	bpf_ringbuf_submit(event, wakeup(record, decision));
}

#endif
