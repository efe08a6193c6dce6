/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For kernels without the page cache's access tracepoints: probes of the functions that contain them, by a trampoline (fentry)
 * or a breakpoint (kprobe). Each program exists twice, since the two pass arguments differently.
 */
#ifndef AHEAD_OLDER_H
#define AHEAD_OLDER_H

static __always_inline int entered_read(struct kiocb *iocb, struct iov_iter *iter)
{
	if (!is_followed())
		return 0;
	u64 at = BPF_CORE_READ(iocb, ki_pos);
	u64 bytes = BPF_CORE_READ(iter, count);
	if (bytes)
		request_pages(BPF_CORE_READ(iocb, ki_filp, f_mapping), at >> settings.page_shift,
			  (at + bytes - 1) >> settings.page_shift);
	return 0;
}

static __always_inline int entered_splice(struct file *file, long long *position, u64 bytes)
{
	if (!is_followed())
		return 0;
	u64 at = 0;
	bpf_probe_read_kernel(&at, sizeof(at), position);
	if (bytes)
		request_pages(BPF_CORE_READ(file, f_mapping), at >> settings.page_shift,
			  (at + bytes - 1) >> settings.page_shift);
	return 0;
}

static __always_inline int entered_fault(struct vm_fault *fault, u64 first, u64 last, u32 kind)
{
	u32 who = is_followed();
	if (who && !is_still_observer(who))
		touch(BPF_CORE_READ(fault, vma, vm_file, f_mapping, host), first, last, kind);
	return 0;
}

SEC("fentry/filemap_read")
int enter_read(u64 *ctx)
{
	return entered_read((void *)ctx[0], (void *)ctx[1]);
}

SEC("fentry/filemap_splice_read")
int enter_splice(u64 *ctx)
{
	return entered_splice((void *)ctx[0], (void *)ctx[1], ctx[3]);
}

SEC("fentry/filemap_fault")
int enter_fault(u64 *ctx)
{
	struct vm_fault *fault = (void *)ctx[0];
	u64 page = BPF_CORE_READ(fault, pgoff);
	return entered_fault(fault, page, page, ACCESS_FAULT);
}

SEC("fentry/filemap_map_pages")
int enter_map_pages(u64 *ctx)
{
	return entered_fault((void *)ctx[0], ctx[1], ctx[2], ACCESS_AROUND);
}

SEC("kprobe/filemap_read")
int probe_read(struct pt_regs *regs)
{
	return entered_read((void *)ARGUMENT_0(regs), (void *)ARGUMENT_1(regs));
}

SEC("kprobe/filemap_splice_read")
int probe_splice(struct pt_regs *regs)
{
	return entered_splice((void *)ARGUMENT_0(regs), (void *)ARGUMENT_1(regs), ARGUMENT_3(regs));
}

SEC("kprobe/filemap_fault")
int probe_fault(struct pt_regs *regs)
{
	struct vm_fault *fault = (void *)ARGUMENT_0(regs);
	u64 page = BPF_CORE_READ(fault, pgoff);
	return entered_fault(fault, page, page, ACCESS_FAULT);
}

SEC("kprobe/filemap_map_pages")
int probe_map_pages(struct pt_regs *regs)
{
	return entered_fault((void *)ARGUMENT_0(regs), ARGUMENT_1(regs), ARGUMENT_2(regs), ACCESS_AROUND);
}

#endif
