/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's read-ahead state, and the way to it.
 *
 *     struct file ──▶ f_mapping ──▶ host (inode) ──▶ i_sb ──▶ s_bdi ──▶ ra_pages: the window of the disk now
 *      ├ f_ra: the state; a tracepoint's argument, from which the file is found by the offset
 *      └ private_data, on overlayfs ──▶ the real file, which is read and has the state
 */
#ifndef AHEAD_READAHEAD_H
#define AHEAD_READAHEAD_H

#include "folio.h"

#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IFBLK 0060000
/* x86 uses the generic number, arm64 its own (asm/fcntl.h). */
#if defined(__TARGET_ARCH_x86)
#define O_DIRECT 040000
#else
#define O_DIRECT 0200000
#endif
/* From include/linux/fs.h. */
#define FMODE_READ 0x1
#define FMODE_RANDOM 0x1000
/* Linux 6.3 and later; unused before. */
#define FMODE_NOREUSE 0x800000
/* From include/uapi/linux/magic.h. */
#define OVERLAYFS_SUPER_MAGIC 0x794c7630

struct file_ra_state {
	unsigned long start;
	unsigned int size;
	unsigned int async_size;
	unsigned int ra_pages;
	unsigned short order;
	unsigned short mmap_miss;
	long long prev_pos;
} RELOCATED;

/* Size of a copy of it, with some room: 32 bytes in Linux 6.18. */
#define RA_STATE_BYTES 64

struct file___state {
	unsigned int f_mode;
	unsigned int f_flags;
	long long f_pos;
	void *private_data;
	struct file_ra_state f_ra;
} RELOCATED;

/* The open file of overlayfs; up to Linux 6.13 its private_data is the real file itself. */
struct ovl_file {
	struct file *realfile;
	struct file *upperfile; /* after the file was copied up */
} RELOCATED;

struct address_space___cache {
	struct inode *host;
	unsigned long nrpages;
	unsigned long flags;
} RELOCATED;

enum mapping_flags { AS_FOLIO_ORDER_MIN = 16, AS_FOLIO_ORDER_MAX = 21 };
#define FOLIO_ORDER_BITS 0x1f

struct backing_dev_info {
	unsigned long ra_pages;
	unsigned long io_pages;
} RELOCATED;

struct super_block___bdi {
	struct backing_dev_info *s_bdi;
} RELOCATED;

/* A file that is read through the page cache has an operation to fill it (tmpfs and overlayfs lack it), and a device with requests
 * (io_pages; sysfs lacks it). */
struct address_space_operations {
	void *read_folio;
	void *readahead;
} RELOCATED;

struct address_space___operations {
	struct address_space_operations *a_ops;
} RELOCATED;

struct inode___mapping {
	struct address_space *i_mapping;
} RELOCATED;

struct gendisk {
	struct backing_dev_info *bdi;
} RELOCATED;

struct block_device {
	struct gendisk *bd_disk;
} RELOCATED;

struct bdev_inode {
	struct block_device bdev;
	struct inode vfs_inode;
} RELOCATED;

static __always_inline struct backing_dev_info *disk_of(struct inode *inode)
{
	struct super_block___bdi *mounted = (void *)BPF_CORE_READ(inode, i_sb);
	if (!is_device(inode))
		return BPF_CORE_READ(mounted, s_bdi);
	if (!bpf_core_type_exists(struct bdev_inode))
		return 0;
	struct bdev_inode *device = (void *)inode - bpf_core_field_offset(struct bdev_inode, vfs_inode);
	return BPF_CORE_READ(device, bdev.bd_disk, bdi);
}

static __always_inline struct file_ra_state *state_of(struct file *open)
{
	return (void *)open + bpf_core_field_offset(struct file___state, f_ra);
}

static __always_inline struct file *open_of(struct file_ra_state *ra)
{
	return (void *)ra - bpf_core_field_offset(struct file___state, f_ra);
}

/* The file of the layer that is read for a file on overlayfs; 0 for a file elsewhere. */
static __always_inline struct file *real_file(struct file *open)
{
	if (BPF_CORE_READ(open, f_inode, i_sb, s_magic) != OVERLAYFS_SUPER_MAGIC)
		return 0;
	void *own = BPF_CORE_READ((struct file___state *)open, private_data);
	if (!bpf_core_type_exists(struct ovl_file))
		return own;
	struct file *upper = BPF_CORE_READ((struct ovl_file *)own, upperfile);
	return upper ? upper : BPF_CORE_READ((struct ovl_file *)own, realfile);
}

/* From include/linux/err.h and fs/mount.h: the namespace of mounts that the kernel itself uses. */
#define MNT_NS_INTERNAL ((u64)-22)

struct mount {
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
} RELOCATED;

/* Whether an open file is one that overlayfs reads: it is on a mount that no process sees. */
static __always_inline bool is_of_layer(struct file *open)
{
	struct mount *mount = (void *)BPF_CORE_READ(open, f_path.mnt) - bpf_core_field_offset(struct mount, mnt);
	return (u64)BPF_CORE_READ(mount, mnt_ns) == MNT_NS_INTERNAL;
}

#endif
