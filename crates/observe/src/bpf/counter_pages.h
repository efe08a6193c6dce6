/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The issued pages: which of them were used, and which were evicted unused.
 *
 *     pages    0 … 63 | 64 … 127 | …            one entry for each 64 pages of an inode
 *     issued   1 1 1 1  1 1 0 0                 read-ahead has read them, and they are cached since
 *     used     1 1 1 0  0 0 0 0                 an access has touched them
 *     evicted  0 0 0 0  0 0 1 1                 evicted unused, and not read since: a miss of such a page is thrashing
 */
#ifndef AHEAD_COUNTER_PAGES_H
#define AHEAD_COUNTER_PAGES_H

/* 64-page blocks that one range may cover: 2 GiB of 4 KiB pages, the limit of a read. */
#define BLOCKS_MOST (1 << 13)

struct block_key {
	u64 inode;
	u64 block;
};

struct block {
	u64 issued;
	u64 used;
	u64 evicted;
	u64 open; /* the open file for which pages were issued last */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct block_key);
	__type(value, struct block);
} blocks SEC(".maps");

static __always_inline u64 bits_in(u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555;
	bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
	bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return bits * 0x0101010101010101 >> 56;
}

/* The bits of the pages from `page` to before `end` in the block of `page`. */
static __always_inline u64 block_bits(u64 page, u64 end)
{
	u32 from = page & 63;
	u64 pages = end - page;
	if (pages >= 64 - from)
		return ~0ULL << from;
	return ((1ULL << (pages & 63)) - 1) << from;
}

/* As a number: the verifier permits no arithmetic with a pointer. */
static __always_inline u64 inode_of(struct address_space *mapping)
{
	return (u64)BPF_CORE_READ(mapping, host);
}

static __always_inline bool is_sampled(u64 inode, u64 block)
{
	if (settings.sample_every <= 1)
		return true;
	/* The multiplier of Fibonacci hashing: 2^64 divided by the golden ratio. */
	return ((inode ^ block) * 0x9e3779b97f4a7c15ULL >> 32) % settings.sample_every == 0;
}

struct page_range {
	u64 inode;
	u64 page; /* the next one */
	u64 end;
	u64 open; /* who issues; for evictions, the open file whose unused pages these were */
	u64 pages; /* result */
	u64 used_first; /* for evictions: these pages are known to be used */
	u64 used_end;
};

static __always_inline struct block *block_of(struct page_range *range)
{
	struct block_key key = { .inode = range->inode, .block = range->page >> 6 };
	return bpf_map_lookup_elem(&blocks, &key);
}

static __always_inline void next_block(struct page_range *range)
{
	range->page = (range->page | 63) + 1;
}

static long issue_step(u64 step, struct page_range *range)
{
	if (range->page >= range->end)
		return 1;
	u64 wanted = block_bits(range->page, range->end);
	if (!is_sampled(range->inode, range->page >> 6)) {
		range->pages += bits_in(wanted);
		next_block(range);
		return 0;
	}
	struct block *block = block_of(range);
	if (!block) {
		struct block_key key = { .inode = range->inode, .block = range->page >> 6 };
		struct block none = {};
		if (bpf_map_update_elem(&blocks, &key, &none, BPF_NOEXIST))
			count_machine(COUNT_LOST_ENTRIES, 1);
		block = block_of(range);
	}
	u64 new = wanted;
	if (block) {
		new &= ~__sync_fetch_and_or(&block->issued, wanted);
		__sync_fetch_and_and(&block->used, ~new);
		__sync_fetch_and_and(&block->evicted, ~wanted);
		block->open = range->open;
	}
	range->pages += bits_in(new);
	next_block(range);
	return 0;
}

static long use_step(u64 step, struct page_range *range)
{
	if (range->page >= range->end)
		return 1;
	u64 wanted = block_bits(range->page, range->end);
	struct block *block = is_sampled(range->inode, range->page >> 6) ? block_of(range) : 0;
	if (block)
		wanted &= block->issued;
	if (block && wanted & ~block->used)
		range->pages += bits_in(wanted & ~__sync_fetch_and_or(&block->used, wanted));
	next_block(range);
	return 0;
}

static long evict_step(u64 step, struct page_range *range)
{
	if (range->page >= range->end)
		return 1;
	u64 wanted = block_bits(range->page, range->end);
	struct block *block = is_sampled(range->inode, range->page >> 6) ? block_of(range) : 0;
	if (block && block->issued & wanted) {
		u64 gone = wanted & __sync_fetch_and_and(&block->issued, ~wanted);
		u64 unused = gone & ~__sync_fetch_and_and(&block->used, ~wanted);
		u64 from = range->used_first > range->page ? range->used_first : range->page;
		u64 to = range->used_end < (range->page | 63) + 1 ? range->used_end : (range->page | 63) + 1;
		if (from < to)
			unused &= ~block_bits(from, to);
		__sync_fetch_and_or(&block->evicted, unused);
		range->pages += bits_in(unused);
	}
	next_block(range);
	return 0;
}

/* Marks pages as issued; returns how many were not before. */
static __always_inline u64 issue_pages(u64 open, u64 inode, u64 first, u64 end)
{
	struct page_range range = { .inode = inode, .page = first, .end = end, .open = open };
	bpf_loop(BLOCKS_MOST, issue_step, &range, 0);
	return range.pages;
}

/* Whether nothing is known of pages of one block. */
static __always_inline bool are_unknown(u64 inode, u64 first, u64 end)
{
	struct page_range range = { .inode = inode, .page = first };
	return (end - 1) >> 6 == first >> 6 && !block_of(&range);
}

/* Marks issued pages as used; returns how many were not before. */
static __always_inline u64 use_pages(u64 inode, u64 first, u64 end)
{
	struct page_range range = { .inode = inode, .page = first, .end = end };
	if (end > (first | 63) + 1)
		bpf_loop(BLOCKS_MOST, use_step, &range, 0);
	else
		use_step(0, &range);
	return range.pages;
}

/* Whether a missing page was evicted unused. */
static __always_inline bool take_thrashed(u64 inode, u64 page)
{
	struct block_key key = { .inode = inode, .block = page >> 6 };
	struct block *block = bpf_map_lookup_elem(&blocks, &key);
	u64 bit = 1ULL << (page & 63);
	return block && block->evicted & bit && __sync_fetch_and_and(&block->evicted, ~bit) & bit;
}

#endif
