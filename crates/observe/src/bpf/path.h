/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Converts an inode to a small number and a path (dentry.h).
 *
 *     inode ──▶ key {address, number, device, generation} ──▶ id      first time: a file event with all of its names
 *       │
 *       └─ first alias that is still hashed ─▶ parent ─▶ parent ─▶ … ─▶ the file system's root
 *            "libc.so.6"                       "lib"     "usr"          (the loop ends: it is its own parent)
 *
 * The path is relative to the file system's root; user space finds the mount. The walk reads without locks: a name that changes
 * during the walk may be wrong, which user space detects when it looks the path up.
 */
#ifndef AHEAD_PATH_H
#define AHEAD_PATH_H

#include "dentry.h"

#define TMPFS_MAGIC 0x01021994
#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define PIPEFS_MAGIC 0x50495045
#define DEBUGFS_MAGIC 0x64626720
#define TRACEFS_MAGIC 0x74726163
#define RAMFS_MAGIC 0x858458f6
#define HUGETLBFS_MAGIC 0x958458f6
#define CGROUP2_MAGIC 0x63677270

/* Sends the event that describes a file id. */
static __noinline bool announce(u32 id, struct inode *inode, struct dentry *dentry)
{
	struct scratch *scratch = take_scratch();
	if (!scratch)
		return false;
	struct file_event *event = &scratch->file;
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	fill_head(&event->head, EVENT_FILE);
	event->file = id;
	event->mode = BPF_CORE_READ(inode, i_mode);
	event->device = BPF_CORE_READ(super, s_dev);
	event->rdev = BPF_CORE_READ(inode, i_rdev);
	event->inode = BPF_CORE_READ(inode, i_ino);
	event->size = BPF_CORE_READ(inode, i_size);
	event->magic = BPF_CORE_READ(super, s_magic);
	event->generation = BPF_CORE_READ(inode, i_generation);
	event->path_bytes = 0;
	event->flags = dentry ? write_path(event, dentry, super) : FILE_NAMELESS;
	u32 bytes = event->path_bytes;
	if (bytes > PATH_BYTES + NAME_BYTES)
		bytes = PATH_BYTES + NAME_BYTES;
	bool sent = send(event, __builtin_offsetof(struct file_event, path) + bytes, false);
	give_back(scratch);
	return sent;
}

/* File systems without a device, whose files need no prefetching. */
static __always_inline bool is_ignored(u64 magic)
{
	switch (magic) {
	case TMPFS_MAGIC:
	case PROC_MAGIC:
	case SYSFS_MAGIC:
	case PIPEFS_MAGIC:
	case DEBUGFS_MAGIC:
	case TRACEFS_MAGIC:
	case RAMFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case CGROUP2_MAGIC:
		return true;
	}
	return false;
}

/* The state of an inode, created if it is new. NULL: the table is full. */
static __always_inline struct file_state *state_of(struct inode *inode)
{
	struct super_block *super = BPF_CORE_READ(inode, i_sb);
	struct file_key key = {
		.address = (u64)inode,
		.inode = BPF_CORE_READ(inode, i_ino),
		.device = BPF_CORE_READ(super, s_dev),
		.generation = BPF_CORE_READ(inode, i_generation),
	};
	struct file_state *state = bpf_map_lookup_elem(&files, &key);
	if (state)
		return state;
	struct file_state new = {
		.id = __sync_fetch_and_add(&last_file_id, 1) + 1,
		.flags = is_ignored(BPF_CORE_READ(super, s_magic)) ? FILE_IGNORED : 0,
	};
	/* If another processor was faster, its number is valid and ours stays unused. */
	bpf_map_update_elem(&files, &key, &new, BPF_NOEXIST);
	state = bpf_map_lookup_elem(&files, &key);
	if (!state)
		count(LOSS_FILES);
	return state;
}

/* Announces a file if that has not been done, or if its name has changed since. An ignored file is announced once, too. */
static __always_inline void name_file(struct file_state *state, struct inode *inode, struct dentry *dentry)
{
	u64 parent = dentry ? (u64)BPF_CORE_READ(dentry, d_parent) : 0;
	u64 name_hash = dentry ? BPF_CORE_READ(dentry, d_name.hash_len) : 0;
	if (state->flags & FILE_ANNOUNCED && state->dentry == (u64)dentry && state->parent == parent &&
	    state->name_hash == name_hash)
		return;
	if (!announce(state->id, inode, dentry))
		return;
	state->dentry = (u64)dentry;
	state->parent = parent;
	state->name_hash = name_hash;
	state->flags |= FILE_ANNOUNCED;
}

/* The id of a directory or program file by its entry; 0: none. */
static __always_inline u32 id_of_entry(struct dentry *dentry)
{
	struct inode *inode = BPF_CORE_READ(dentry, d_inode);
	struct file_state *state = inode ? state_of(inode) : 0;
	if (!state)
		return 0;
	name_file(state, inode, dentry);
	return state->id;
}

#endif
