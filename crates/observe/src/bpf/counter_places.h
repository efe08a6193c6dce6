/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Where the current process has an open file: its mapping of a page, and its descriptor.
 *
 *     inode ─▶ i_mapping ─▶ i_mmap: a tree of all mappings of the file, by their first page      mapped by this process, with the page?
 *     task ─▶ files ─▶ fdt ─▶ fd[0 … max_fds]                                                      the same open file?
 *
 * Both are read without their locks, as a reader of RCU: a mapping or descriptor that changes meanwhile may be missed.
 */
#ifndef AHEAD_COUNTER_PLACES_H
#define AHEAD_COUNTER_PLACES_H

/* Nodes of the tree that are visited: a file that is mapped very often, as a library, is not one to steer. */
#define NODES_MOST 256
/* Nodes that wait to be visited: the depth of a balanced tree of 4 billion nodes. */
#define NODES_WAITING 64
/* Descriptors that are read at once, and how often: up to 65536 descriptors, the default hard limit of most services. */
#define DESCRIPTORS_AT_ONCE 32
#define DESCRIPTOR_BLOCKS 2048

/* From include/linux/mm.h. */
#define VM_SEQ_READ 0x8000
#define VM_RAND_READ 0x10000

struct rb_node {
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} RELOCATED;

struct rb_root {
	struct rb_node *rb_node;
} RELOCATED;

struct rb_root_cached {
	struct rb_root rb_root;
} RELOCATED;

struct address_space___mapped {
	struct rb_root_cached i_mmap;
} RELOCATED;

struct vm_area_struct___mapped {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct mm_struct *vm_mm;
	struct file *vm_file;
	struct {
		struct rb_node rb;
		unsigned long rb_subtree_last; /* the last page of all mappings below */
	} shared;
} RELOCATED;

struct task_struct___memory {
	struct mm_struct *mm;
} RELOCATED;

/* Too large for the stack. */
struct place_scratch {
	struct rb_node *waiting[NODES_WAITING];
	struct file *opened[DESCRIPTORS_AT_ONCE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct place_scratch);
} place_scratch SEC(".maps");

static __always_inline struct place_scratch *scratch_here(void)
{
	u32 key = 0;
	return bpf_map_lookup_elem(&place_scratch, &key);
}

struct mapping_search {
	struct mm_struct *memory;
	struct file *open;
	u64 page;
	u64 waiting; /* number of nodes */
	struct vm_area_struct___mapped *found;
};

/* Not static, as take_word in access.h: the verifier checks it once, and not each step of the search. */
__noinline int visit_mapping(struct mapping_search *search)
{
	struct place_scratch *scratch = scratch_here();
	if (!search || !scratch || !search->waiting)
		return 1;
	search->waiting--;
	struct rb_node *node = scratch->waiting[search->waiting & (NODES_WAITING - 1)];
	struct vm_area_struct___mapped *area = (void *)node - bpf_core_field_offset(struct vm_area_struct___mapped, shared.rb);
	if (!node || BPF_CORE_READ(area, shared.rb_subtree_last) < search->page)
		return 0;
	u64 first = BPF_CORE_READ(area, vm_pgoff);
	u64 pages = (BPF_CORE_READ(area, vm_end) - BPF_CORE_READ(area, vm_start)) >> settings.page_shift;
	if (search->page >= first && search->page < first + pages && BPF_CORE_READ(area, vm_mm) == search->memory &&
	    BPF_CORE_READ(area, vm_file) == search->open) {
		search->found = area;
		return 1;
	}
	scratch->waiting[search->waiting++ & (NODES_WAITING - 1)] = BPF_CORE_READ(node, rb_left);
	if (first <= search->page)
		scratch->waiting[search->waiting++ & (NODES_WAITING - 1)] = BPF_CORE_READ(node, rb_right);
	return 0;
}

static long mapping_step(u64 step, struct mapping_search *search)
{
	return visit_mapping(search) != 0;
}

static __always_inline void find_mapping(struct counter_event *event, struct inode *inode, struct file *open)
{
	struct place_scratch *scratch = scratch_here();
	struct task_struct___memory *task = (void *)bpf_get_current_task();
	struct address_space___mapped *mapped = (void *)BPF_CORE_READ(inode, i_mapping);
	struct mapping_search search = {
		.memory = BPF_CORE_READ(task, mm),
		.open = open,
		.page = event->page,
		.waiting = 1,
	};
	if (!scratch)
		return;
	scratch->waiting[0] = BPF_CORE_READ(mapped, i_mmap.rb_root.rb_node);
	bpf_loop(NODES_MOST, mapping_step, &search, 0);
	struct vm_area_struct___mapped *found = search.found;
	if (!found)
		return;
	u64 start = BPF_CORE_READ(found, vm_start), flags = BPF_CORE_READ(found, vm_flags);
	event->mapping_address = start;
	event->mapping_first = BPF_CORE_READ(found, vm_pgoff);
	event->mapping_end = event->mapping_first + ((BPF_CORE_READ(found, vm_end) - start) >> settings.page_shift);
	event->advice = flags & VM_RAND_READ ? ADVICE_RANDOM : flags & VM_SEQ_READ ? ADVICE_SEQUENTIAL : ADVICE_NORMAL;
	event->flags |= EVENT_IS_MAPPED;
}

/* System calls that read an open file: 1 if the first argument is its descriptor, 2 if the second one is. Filled by src/counters/calls.rs. */
#define CALLS 512

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CALLS);
	__type(key, u32);
	__type(value, u32);
} read_calls SEC(".maps");

#define NO_DESCRIPTOR (~0U)
/* The number of the system call in a thread's registers after an exception. */
#define NO_CALL (~0U)

/* The descriptor that the task reads with the system call in which it is. */
static __always_inline u32 called_descriptor(struct pt_regs *regs)
{
	u32 number = SYSCALL_NUMBER(regs);
	u32 *argument = bpf_map_lookup_elem(&read_calls, &number);
	if (!argument || !*argument || !IS_NATIVE(regs))
		return NO_DESCRIPTOR;
	return *argument == 1 ? SYSCALL_ARGUMENT_0(regs) : ARGUMENT_1(regs);
}

static __always_inline struct file *opened_file(struct task_struct *task, u32 descriptor)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *opened = 0, **place = BPF_CORE_READ(table, fd);
	if (descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&opened, sizeof(opened), place + descriptor);
	return opened;
}

struct descriptor_search {
	struct file **table;
	struct file *open;
	u64 is_layer; /* a file of a layer: descriptors hold the file on overlayfs */
	u32 next;
	u32 descriptors;
	u32 found;
	u32 is_found;
};

static __always_inline bool is_same_open(struct file *opened, struct file *open, bool is_layer)
{
	return opened == open || (is_layer && opened && real_file(opened) == open);
}

/* Not static, as visit_mapping. */
__noinline int visit_descriptors(struct descriptor_search *search)
{
	struct place_scratch *scratch = scratch_here();
	if (!search || !scratch || search->next >= search->descriptors)
		return 1;
	/* The kernel allocates the table in units of 64 descriptors or more, so none of these lies behind it. */
	if (bpf_probe_read_kernel(scratch->opened, sizeof(scratch->opened), search->table + search->next))
		return 1;
	for (u32 i = 0; i < DESCRIPTORS_AT_ONCE; i++) {
		if (is_same_open(scratch->opened[i], search->open, search->is_layer)) {
			search->found = search->next + i;
			search->is_found = 1;
			return 1;
		}
	}
	search->next += DESCRIPTORS_AT_ONCE;
	return 0;
}

static long descriptor_step(u64 step, struct descriptor_search *search)
{
	return visit_descriptors(search) != 0;
}

/* `known`: the descriptor at which it was before. Returns whether the whole table was searched, which only `may_search` permits. */
static __always_inline bool find_descriptor(struct counter_event *event, struct file *open, u32 known, bool may_search)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct descriptor_search search = {
		.table = BPF_CORE_READ(table, fd),
		.open = open,
		.is_layer = is_of_layer(open),
		.descriptors = BPF_CORE_READ(table, max_fds),
		.found = known,
	};
	search.is_found = is_same_open(opened_file(task, known), open, search.is_layer);
	if (!search.is_found) {
		u32 called = called_descriptor((void *)bpf_task_pt_regs(task));
		search.is_found = is_same_open(opened_file(task, called), open, search.is_layer);
		search.found = called;
	}
	bool searches = !search.is_found && may_search;
	if (searches)
		bpf_loop(DESCRIPTOR_BLOCKS, descriptor_step, &search, 0);
	if (search.is_found) {
		event->descriptor = search.found;
		event->flags |= EVENT_IS_OPEN;
	}
	return searches;
}

#endif
