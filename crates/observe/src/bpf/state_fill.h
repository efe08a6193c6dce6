/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Fills a row with the state of an open file. Included once for each way to load a member (LOAD), because direct loads take a tenth of the
 * time, and are permitted only from pointers that the verifier knows. FILL is the function's name.
 */

/* Fills everything but the process, its name and the descriptor, for a regular file or block device. False: it has no read-ahead. */
static __always_inline bool FILL(struct open_state *state, struct file *open)
{
	struct address_space *mapping = LOAD(open, f_mapping);
	struct address_space_operations *operations = LOAD((struct address_space___operations *)mapping, a_ops);
	if (!LOAD(operations, read_folio) && !LOAD(operations, readahead))
		return false;
	struct inode *inode = LOAD(mapping, host);
	struct super_block *super = LOAD(inode, i_sb);
	bool is_device = LOAD(super, s_magic) == BDEVFS_MAGIC;
	struct backing_dev_info *disk = is_device ? disk_of(inode) : LOAD((struct super_block___bdi *)super, s_bdi);
	if (!BPF_CORE_READ(disk, io_pages))
		return false;
	struct file___state *file = (void *)open;
	u32 mode = LOAD(file, f_mode);
	state->open = (u64)open;
	state->inode = (u64)inode;
	state->inode_number = LOAD(inode, i_ino);
	state->file_bytes = LOAD(inode, i_size);
	state->cached_pages = LOAD(mapping, nrpages);
	state->position = LOAD(file, f_pos);
	state->disk_window = BPF_CORE_READ(disk, ra_pages);
	state->device = is_device ? LOAD(inode, i_rdev) : LOAD(super, s_dev);
	state->flags = (mode & FMODE_RANDOM ? STATE_RANDOM : 0) | (mode & FMODE_READ ? STATE_READABLE : 0);
	if (mode & FMODE_NOREUSE)
		state->flags |= STATE_NOREUSE;
	if (!(LOAD(file, f_flags) & O_DIRECT))
		state->flags |= STATE_CACHED;
	u8 copy[RA_STATE_BYTES] = {};
	struct file_ra_state *ra = (void *)copy;
	bpf_probe_read_kernel(copy, bpf_core_type_size(struct file_ra_state), state_of(open));
	state->start = ra->start;
	state->prev_pos = ra->prev_pos;
	state->size = ra->size;
	state->async_size = ra->async_size;
	state->window = ra->ra_pages;
	state->mmap_miss = ra->mmap_miss;
	return true;
}

#undef FILL
#undef LOAD
