/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A cache of pages that are known to be used: a read of them changes nothing, so its program ends at once.
 *
 *     inode, page ─▶ slot of this processor ─▶ the same inode and word, and all bits set?  ──yes──▶ nothing to do
 *                         ▲                                                                └─no──▶ is it followed? which file? new pages?
 *                         └── remember_pages: after a read whose pages are in one word ◀────────────────────┘
 *
 * Who reads does not matter: for a process that is not followed there is nothing to do either. The inode is compared by its address, super
 * block, number and generation, so that another inode at a reused address is not taken for it. Bits in `words` are never cleared, so a
 * slot is never obsolete.
 *
 * Where programs can be interrupted (Linux 7), another task may use a slot in the middle of a change or of a comparison: `sequence` is
 * odd during a change, and different after it. There, too, each program has copies (triple_attach.h). A copy that ends here sets no
 * bit in `begun`. So a slot counts only after the last copy has cleared the bit of the read that filled it, and the reads that only their
 * first copy found here are counted.
 */
#ifndef AHEAD_KNOWN_H
#define AHEAD_KNOWN_H

/* A slot takes one cache line. A loop over a file needs one at a time; 64 of them cover 16 MiB, in any order. */
#define SLOTS 64

struct known_pages {
	u64 sequence;
	u64 inode; /* its address */
	u64 super; /* the address of its super block */
	u64 number;
	u64 word;
	u64 used; /* bits of the word's pages */
	u64 unconfirmed; /* the same; until the last copy has run, `used` is 0 */
	u32 generation;
	u32 padding;
};

struct known {
	struct known_pages slots[SLOTS];
	/* Reads that a first copy found here, and those that a last copy did. */
	u64 begun;
	u64 ended;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct known);
} known SEC(".maps");

#define ONCE(place) (*(volatile typeof(place) *)&(place))

static __always_inline struct known *known_here(void)
{
	u32 key = 0;
	return bpf_map_lookup_elem(&known, &key);
}

static __always_inline struct known_pages *slot_of(struct known *known, u64 inode, u64 word)
{
	return &known->slots[(word ^ inode >> 10) & (SLOTS - 1)];
}

/* Whether all pages from first to last (inclusive) are known. `mapping`: an argument of a BTF tracepoint, which is read directly. */
static __always_inline bool is_known(struct address_space *mapping, u64 first, u64 last, enum copy copy)
{
	struct known *known = known_here();
	if (!known)
		return false;
	u64 word = first >> 6;
	struct inode *inode = mapping->host;
	struct known_pages *slot = slot_of(known, (u64)inode, word);
	u64 sequence = ONCE(slot->sequence);
	u64 wanted = ~0ULL >> (63 - (last - first) & 63) << (first & 63);
	if (ONCE(slot->inode) != (u64)inode || ONCE(slot->word) != word || last >> 6 != word || wanted & ~ONCE(slot->used))
		return false;
	if (ONCE(slot->number) != inode->i_ino || ONCE(slot->generation) != inode->i_generation ||
	    ONCE(slot->super) != (u64)inode->i_sb || sequence & 1 || ONCE(slot->sequence) != sequence)
		return false;
	if (settings.has_copies && copy == FIRST)
		__sync_fetch_and_add(&known->begun, 1);
	if (settings.has_copies && copy == LAST)
		__sync_fetch_and_add(&known->ended, 1);
	return true;
}

/* Begins to change a slot, unless an interrupted program is changing it. */
static __always_inline bool take_slot(struct known_pages *slot)
{
	u64 sequence = ONCE(slot->sequence);
	return !(sequence & 1) && __sync_val_compare_and_swap(&slot->sequence, sequence, sequence + 1) == sequence;
}

static __always_inline void give_slot_back(struct known_pages *slot)
{
	__sync_fetch_and_add(&slot->sequence, 1);
}

static __always_inline void remember_pages(struct inode *inode, u64 word, u64 used)
{
	struct known *known = known_here();
	/* Without all copies, no bit is set that the last one could clear. */
	if (!known || (settings.has_copies && !is_complete()))
		return;
	struct known_pages *slot = slot_of(known, (u64)inode, word);
	if (!take_slot(slot))
		return;
	ONCE(slot->inode) = (u64)inode;
	ONCE(slot->super) = (u64)BPF_CORE_READ(inode, i_sb);
	ONCE(slot->number) = BPF_CORE_READ(inode, i_ino);
	ONCE(slot->generation) = BPF_CORE_READ(inode, i_generation);
	ONCE(slot->word) = word;
	ONCE(slot->used) = settings.has_copies ? 0 : used;
	ONCE(slot->unconfirmed) = used;
	give_slot_back(slot);
}

/* Run by the last copy: the read of these pages is complete. */
static __always_inline void confirm_pages(struct address_space *mapping, u64 first)
{
	struct known *known = known_here();
	u64 word = first >> 6;
	struct inode *inode = mapping->host;
	if (!known)
		return;
	struct known_pages *slot = slot_of(known, (u64)inode, word);
	if (ONCE(slot->inode) != (u64)inode || ONCE(slot->word) != word || ONCE(slot->used) == ONCE(slot->unconfirmed) ||
	    !take_slot(slot))
		return;
	ONCE(slot->used) = ONCE(slot->unconfirmed);
	give_slot_back(slot);
}

#endif
