/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A directory entry of an inode, and the path from there to the root of its file system. */
#ifndef AHEAD_DENTRY_H
#define AHEAD_DENTRY_H

#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFDIR 0040000

/* Maximum number of aliases of an inode that are checked: more hard links are rare. */
#define ALIASES 8

static __always_inline u64 alias_offset(void)
{
	if (bpf_core_field_exists(struct dentry___named, d_u.d_alias))
		return bpf_core_field_offset(struct dentry___named, d_u.d_alias);
	return bpf_core_field_offset(struct dentry___anonymous, d_alias);
}

static __always_inline bool is_hashed(struct dentry *dentry)
{
	return BPF_CORE_READ(dentry, d_hash.pprev) != 0;
}

/* A directory entry of the inode: a hashed one if possible, otherwise any; 0 if there is none. */
static __always_inline struct dentry *alias_of(struct inode *inode)
{
	struct hlist_node *node = BPF_CORE_READ(inode, i_dentry.first);
	struct dentry *any = 0;
	for (int i = 0; i < ALIASES && node; i++) {
		struct dentry *dentry = (void *)node - alias_offset();
		if (is_hashed(dentry))
			return dentry;
		if (!any)
			any = dentry;
		node = BPF_CORE_READ(node, next);
	}
	return any;
}

struct walk {
	struct file_event *event;
	struct dentry *dentry;
	u32 bytes;
	u32 done;
};

static long walk_step(u64 step, struct walk *walk)
{
	struct dentry *dentry = walk->dentry;
	struct dentry *parent = BPF_CORE_READ(dentry, d_parent);
	if (parent == dentry || !parent) {
		walk->done = 1;
		return 1;
	}
	u32 at = walk->bytes;
	if (at >= PATH_BYTES)
		return 1;
	u32 length = BPF_CORE_READ(dentry, d_name.hash_len) >> 32;
	/* The limit is for the verifier: no file system has longer names. */
	length &= NAME_BYTES - 1;
	if (length == 0 || bpf_probe_read_kernel(&walk->event->path[at], length, BPF_CORE_READ(dentry, d_name.name)))
		return 1;
	at += length;
	walk->event->path[at] = 0;
	walk->bytes = at + 1;
	walk->dentry = parent;
	return 0;
}

/* Writes the path of the entry into the event, and returns its flags. */
static __always_inline u32 write_path(struct file_event *event, struct dentry *dentry, struct super_block *super)
{
	struct walk walk = { .event = event, .dentry = dentry };
	u32 flags = 0;
	bpf_loop(PATH_DEPTH, walk_step, &walk, 0);
	event->path_bytes = walk.bytes;
	if (!walk.done)
		flags |= FILE_TRUNCATED;
	else if (walk.dentry != BPF_CORE_READ(super, s_root))
		flags |= FILE_DISCONNECTED;
	/* A root has no name and is never hashed. */
	if (walk.bytes > 0 && !is_hashed(dentry))
		flags |= FILE_UNLINKED;
	return flags;
}

#endif
