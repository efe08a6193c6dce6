/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pages that were evicted from the page cache although their file still has them: by reclaim, by dropping caches, by advice. A
 * program that needs such a page again waits for the disk, so its measurement is not valid.
 *
 *     mm_filemap_delete_from_page_cache(folio) ──▶ file still linked, page within its size? ──▶ pages of this device
 *
 * Pages removed because their file was deleted or truncated do not count. Reclaim is recognised by a flag that the kernel sets
 * for a task that reclaims memory: kswapd, DAMON's thread, a process that needs memory.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "folio.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* From include/linux/sched.h: the task reclaims memory, and may use the reserves for that. */
#define PF_MEMALLOC 0x800

/* Base-2 logarithm of the page size; set before loading. */
const volatile u32 page_shift;

struct pages {
	u64 evicted;
	u64 reclaimed;
};

/* Pages by device (of the superblock, or the block device itself for metadata). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct pages);
} evicted SEC(".maps");

struct watched_file {
	u64 inode;
	/* Device of the superblock. */
	u32 device;
	u32 unused;
};

/* Pages by file, for the files that user space has added. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, 1); /* BPF_F_NO_PREALLOC: few of them are ever used */
	__type(key, struct watched_file);
	__type(value, struct pages);
} watched SEC(".maps");

static void count(struct pages *pages, u64 number, bool reclaimed)
{
	if (!pages)
		return;
	__sync_fetch_and_add(&pages->evicted, number);
	if (reclaimed)
		__sync_fetch_and_add(&pages->reclaimed, number);
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int on_deleted(u64 *ctx)
{
	struct folio *folio = (void *)ctx[0];
	struct inode *inode = BPF_CORE_READ(folio, mapping, host);
	if (!BPF_CORE_READ(inode, i_nlink) || BPF_CORE_READ(folio, index) << page_shift >= BPF_CORE_READ(inode, i_size))
		return 0;
	u32 device = is_device(inode) ? BPF_CORE_READ(inode, i_rdev) : BPF_CORE_READ(inode, i_sb, s_dev);
	struct pages none = {}, *pages = bpf_map_lookup_elem(&evicted, &device);
	if (!pages) {
		bpf_map_update_elem(&evicted, &device, &none, BPF_NOEXIST);
		pages = bpf_map_lookup_elem(&evicted, &device);
	}
	struct watched_file file = { .inode = BPF_CORE_READ(inode, i_ino), .device = device };
	bool reclaimed = BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags) & PF_MEMALLOC;
	u64 number = pages_of(folio);
	count(pages, number, reclaimed);
	count(bpf_map_lookup_elem(&watched, &file), number, reclaimed);
	return 0;
}
