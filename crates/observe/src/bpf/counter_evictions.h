/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waste: issued pages that are evicted unused.
 *
 * Without observed accesses, a folio's flags show its use: but reclaim clears `referenced` right before it evicts, so only folios that are
 * evicted by advice, truncation or dropped caches are judged by them. For the others counts what the decisions showed, and the position of
 * the reader now.
 */
#ifndef AHEAD_COUNTER_EVICTIONS_H
#define AHEAD_COUNTER_EVICTIONS_H

enum pageflags___use { PG_referenced = 2, PG_active = 8, PG_workingset = 9 };

static __always_inline bool has_flag(u64 flags, u32 flag)
{
	return flags & 1ULL << flag;
}

/* A folio that was evicted before and is read again becomes active and workingset at once, whether it is used or not. */
static __always_inline bool is_flagged_used(struct folio *folio)
{
	u64 flags = flags_of(folio);
	return has_flag(flags, bpf_core_enum_value(enum pageflags___use, PG_referenced)) ||
	       (has_flag(flags, bpf_core_enum_value(enum pageflags___use, PG_active)) &&
		!has_flag(flags, bpf_core_enum_value(enum pageflags___use, PG_workingset)));
}

/* The pages that the reader has passed since its last decision. */
static __always_inline void find_passed(struct page_range *range, struct open_record *record)
{
	struct file *open = (void *)range->open;
	if (!record || record->inode != range->inode ||
	    (u64)BPF_CORE_READ(open, f_mapping, host) != range->inode)
		return;
	s64 position = BPF_CORE_READ(state_of(open), prev_pos);
	u64 passed = (u64)(position + (1 << settings.page_shift) - 1) >> settings.page_shift;
	if (position < 0 || passed > record->start + record->size)
		return;
	range->used_first = record->progress;
	range->used_end = passed;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int on_deleted(u64 *ctx)
{
	struct folio *folio = (void *)ctx[0];
	struct address_space *mapping = folio->mapping;
	u64 first = folio->index;
	struct page_range range = { .inode = inode_of(mapping), .page = first };
	struct block *block = block_of(&range);
	u64 pages = pages_of(folio);
	if (!block && pages == 1)
		return 0;
	range.end = first + pages;
	range.open = block ? block->open : 0;
	struct open_record *record = record_of(range.open);
	if (!settings.is_exact) {
		if (is_flagged_used(folio)) {
			range.used_first = first;
			range.used_end = range.end;
		} else {
			find_passed(&range, record);
		}
	}
	bpf_loop(BLOCKS_MOST, evict_step, &range, 0);
	u64 wasted = range.pages * (settings.sample_every ?: 1);
	count(record, COUNT_WASTED, wasted);
	return 0;
}

#endif
