/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For kernels without the tracepoints of read-ahead (Linux 6.18) or of faults (Linux 6.11): the functions that contain them, by a
 * trampoline (fentry) or a breakpoint (kprobe), as in older.h.
 */
#ifndef AHEAD_COUNTER_OLDER_H
#define AHEAD_COUNTER_OLDER_H

struct readahead_control {
	struct address_space *mapping;
	struct file_ra_state *ra;
	unsigned long _index;
} RELOCATED;

static __always_inline int entered_decision(u8 kind, struct readahead_control *control, u64 wanted)
{
	return decided(kind, BPF_CORE_READ(control, mapping, host), BPF_CORE_READ(control, _index), BPF_CORE_READ(control, ra),
		       wanted);
}

static __always_inline int entered_order(struct readahead_control *control, struct file_ra_state *ra)
{
	return ordered(BPF_CORE_READ(control, mapping, host), BPF_CORE_READ(control, _index), ra);
}

static __always_inline int entered_unbounded(struct readahead_control *control, u64 pages)
{
	return issued_exactly(BPF_CORE_READ(control, mapping, host), BPF_CORE_READ(control, _index), pages);
}

static __always_inline int entered_fault(struct vm_fault *fault)
{
	return note_fault((u64)BPF_CORE_READ(fault, vma, vm_file, f_mapping, host), BPF_CORE_READ(fault, pgoff));
}

SEC("fentry/page_cache_sync_ra")
int enter_sync(u64 *ctx)
{
	return entered_decision(DECIDED_MISS, (void *)ctx[0], ctx[1]);
}

SEC("fentry/page_cache_async_ra")
int enter_async(u64 *ctx)
{
	return entered_decision(DECIDED_MARKER, (void *)ctx[0], ctx[2]);
}

SEC("fentry/page_cache_ra_order")
int enter_order(u64 *ctx)
{
	return entered_order((void *)ctx[0], (void *)ctx[1]);
}

SEC("fentry/page_cache_ra_unbounded")
int enter_unbounded(u64 *ctx)
{
	return entered_unbounded((void *)ctx[0], ctx[1]);
}

SEC("fentry/filemap_fault")
int enter_fault(u64 *ctx)
{
	return entered_fault((void *)ctx[0]);
}

SEC("kprobe/page_cache_sync_ra")
int probe_sync(struct pt_regs *regs)
{
	return entered_decision(DECIDED_MISS, (void *)ARGUMENT_0(regs), ARGUMENT_1(regs));
}

SEC("kprobe/page_cache_async_ra")
int probe_async(struct pt_regs *regs)
{
	return entered_decision(DECIDED_MARKER, (void *)ARGUMENT_0(regs), ARGUMENT_2(regs));
}

SEC("kprobe/page_cache_ra_order")
int probe_order(struct pt_regs *regs)
{
	return entered_order((void *)ARGUMENT_0(regs), (void *)ARGUMENT_1(regs));
}

SEC("kprobe/page_cache_ra_unbounded")
int probe_unbounded(struct pt_regs *regs)
{
	return entered_unbounded((void *)ARGUMENT_0(regs), ARGUMENT_1(regs));
}

SEC("kprobe/filemap_fault")
int probe_fault(struct pt_regs *regs)
{
	return entered_fault((void *)ARGUMENT_0(regs));
}

#endif
