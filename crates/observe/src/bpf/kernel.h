/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel structures that the observer reads, with only the members that it needs. Every access is relocated at load
 * time against the running kernel's BTF (CO-RE): order and size do not matter, only names and types. For a member with
 * different names or positions there is one structure per variant. The loader ignores the suffix after three underscores.
 */
#ifndef AHEAD_KERNEL_H
#define AHEAD_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef _Bool bool;
enum { false, true };

/* From include/uapi/linux/bpf.h. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#define RELOCATED __attribute__((preserve_access_index))

struct hlist_node {
	struct hlist_node *next;
} RELOCATED;

struct hlist_head {
	struct hlist_node *first;
} RELOCATED;

struct hlist_bl_node {
	struct hlist_bl_node **pprev;
} RELOCATED;

struct qstr {
	u64 hash_len;
	const unsigned char *name;
} RELOCATED;

struct super_block;
struct inode;
struct address_space;
struct task_struct;

struct dentry {
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
} RELOCATED;

/* Up to Linux 6.18: the alias link is in a named union. */
struct dentry___named {
	union {
		struct hlist_node d_alias;
	} d_u;
} RELOCATED;

/* Later: in an anonymous union. */
struct dentry___anonymous {
	struct hlist_node d_alias;
} RELOCATED;

struct list_head {
	struct list_head *next;
} RELOCATED;

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
	struct dentry *s_root;
	struct list_head s_inodes;
} RELOCATED;

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_nlink;
	u32 i_rdev;
	long long i_size;
	u32 i_generation;
	struct hlist_head i_dentry;
	struct address_space *i_mapping;
	struct list_head i_sb_list;
} RELOCATED;

struct address_space {
	struct inode *host;
	unsigned long nrpages;
} RELOCATED;

struct folio {
	struct address_space *mapping;
	unsigned long index;
} RELOCATED;

/* Up to Linux 6.17 the flags of a folio are a number, later a structure with that number. */
struct folio___flags {
	unsigned long flags;
} RELOCATED;

typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio___memdesc {
	memdesc_flags_t flags;
} RELOCATED;

/* The size of a large folio: a count, or its order, or its order in the low byte of a flags word. */
struct folio___pages {
	unsigned int _nr_pages;
} RELOCATED;

struct folio___count {
	unsigned int _folio_nr_pages;
} RELOCATED;

struct folio___order {
	unsigned char _folio_order;
} RELOCATED;

struct folio___flags_1 {
	unsigned long _flags_1;
} RELOCATED;

enum pageflags { PG_head = 6 };

struct vfsmount {
	struct super_block *mnt_sb;
} RELOCATED;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} RELOCATED;

struct file {
	struct address_space *f_mapping;
	struct inode *f_inode;
	struct path f_path;
} RELOCATED;

struct fs_struct {
	struct path root;
	struct path pwd;
} RELOCATED;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

struct ns_common {
	unsigned int inum;
} RELOCATED;

struct mnt_namespace {
	struct ns_common ns;
} RELOCATED;

struct nsproxy {
	struct mnt_namespace *mnt_ns;
} RELOCATED;

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} RELOCATED;

/* From include/linux/sched.h: forked, and has not executed a program yet. */
#define PF_FORKNOEXEC 0x40
/* Likewise: a kernel thread. */
#define PF_KTHREAD 0x00200000

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

struct cred {
	kuid_t uid, euid;
	kgid_t gid, egid;
} RELOCATED;

struct task_io_accounting {
	u64 read_bytes;
} RELOCATED;

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	struct task_struct *real_parent;
	struct fs_struct *fs;
	struct files_struct *files;
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	unsigned int __state;
	void *stack;
	unsigned in_iowait : 1;
	unsigned in_execve : 1;
	const struct cred *cred;
	unsigned long maj_flt;
	struct task_io_accounting ioac;
} RELOCATED;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} RELOCATED;

struct linux_binprm {
	struct file *file;
	struct file *executable;
	const char *filename;
	const char *interp;
} RELOCATED;

struct iov_iter {
	unsigned long count;
} RELOCATED;

struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
} RELOCATED;

struct vm_area_struct {
	struct file *vm_file;
} RELOCATED;

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
} RELOCATED;

/* Registers at a system call and at a function's entry: all of these are unchanged at the end of a system call. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di, si, dx, cx, cs, orig_ax;
} RELOCATED;
#define ARGUMENT_0(regs) BPF_CORE_READ(regs, di)
#define ARGUMENT_1(regs) BPF_CORE_READ(regs, si)
#define ARGUMENT_2(regs) BPF_CORE_READ(regs, dx)
#define ARGUMENT_3(regs) BPF_CORE_READ(regs, cx)
#define SYSCALL_ARGUMENT_0(regs) ARGUMENT_0(regs)
#define SYSCALL_NUMBER(regs) BPF_CORE_READ(regs, orig_ax)
/* Calls of a 32-bit program have other numbers and registers. */
#define IS_NATIVE(regs) (BPF_CORE_READ(regs, cs) == 0x33)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 orig_x0;
	int syscallno;
} RELOCATED;
#define ARGUMENT_0(r) BPF_CORE_READ(r, regs[0])
#define ARGUMENT_1(r) BPF_CORE_READ(r, regs[1])
#define ARGUMENT_2(r) BPF_CORE_READ(r, regs[2])
#define ARGUMENT_3(r) BPF_CORE_READ(r, regs[3])
#define SYSCALL_ARGUMENT_0(r) BPF_CORE_READ(r, orig_x0)
#define SYSCALL_NUMBER(r) BPF_CORE_READ(r, syscallno)
#define IS_NATIVE(r) 1
#else
#error "the registers of this architecture are not described in kernel.h"
#endif

#endif
