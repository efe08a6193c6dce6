/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The inode and size of a folio, for all kernel versions. */
#ifndef AHEAD_FOLIO_H
#define AHEAD_FOLIO_H

#define BDEVFS_MAGIC 0x62646576

static __always_inline u64 flags_of(struct folio *folio)
{
	if (bpf_core_field_exists(struct folio___flags, flags))
		return BPF_CORE_READ((struct folio___flags *)folio, flags);
	return BPF_CORE_READ((struct folio___memdesc *)folio, flags.f);
}

static __always_inline u64 pages_of(struct folio *folio)
{
	u64 flags = flags_of(folio);
	if (!(flags & 1ULL << bpf_core_enum_value(enum pageflags, PG_head)))
		return 1;
	if (bpf_core_field_exists(struct folio___pages, _nr_pages))
		return BPF_CORE_READ((struct folio___pages *)folio, _nr_pages);
	if (bpf_core_field_exists(struct folio___count, _folio_nr_pages))
		return BPF_CORE_READ((struct folio___count *)folio, _folio_nr_pages);
	if (bpf_core_field_exists(struct folio___order, _folio_order))
		return 1ULL << (BPF_CORE_READ((struct folio___order *)folio, _folio_order) & 31);
	return 1ULL << (BPF_CORE_READ((struct folio___flags_1 *)folio, _flags_1) & 31);
}

static __always_inline bool is_device(struct inode *inode)
{
	return BPF_CORE_READ(inode, i_sb, s_magic) == BDEVFS_MAGIC;
}

#endif
