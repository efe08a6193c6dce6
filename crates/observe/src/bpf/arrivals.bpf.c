/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion of reads: every read that a block device has completed, with its position and time. Together with the first use of
 * each page (ahead.bpf.c) this shows which pages were late, that is, requested by the program before they had arrived.
 *
 *     block_rq_complete(request, error, bytes) ──▶ ring buffer ──▶ arrivals.rs
 *
 * A request may complete in parts; each part is an event with the position where the part begins. For short observations only:
 * on a busy disk this is one event per request.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct gendisk {
	int major;
	int first_minor;
} RELOCATED;

struct request_queue {
	struct gendisk *disk;
} RELOCATED;

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	u64 __sector;
} RELOCATED;

/* The operation is in the low 8 bits; 0 is a read (enum req_op). */
#define OPERATION_BITS 0xff

struct arrival {
	u64 time_ns;
	u64 sector;
	u32 bytes;
	u32 major;
	u32 minor;
	u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

SEC("tp_btf/block_rq_complete")
int on_complete(u64 *ctx)
{
	struct request *request = (void *)ctx[0];
	u32 error = ctx[1], bytes = ctx[2], first = 0;
	struct gendisk *disk = BPF_CORE_READ(request, q, disk);
	if (error || !bytes || !disk || (BPF_CORE_READ(request, cmd_flags) & OPERATION_BITS))
		return 0;
	struct arrival *arrival = bpf_ringbuf_reserve(&arrivals, sizeof(*arrival), 0);
	if (!arrival) {
		u64 *count = bpf_map_lookup_elem(&lost, &first);
		if (count)
			__sync_fetch_and_add(count, 1);
		return 0;
	}
	arrival->time_ns = bpf_ktime_get_ns();
	arrival->sector = BPF_CORE_READ(request, __sector);
	arrival->bytes = bytes;
	arrival->major = BPF_CORE_READ(disk, major);
	arrival->minor = BPF_CORE_READ(disk, first_minor);
	arrival->padding = 0;
	bpf_ringbuf_submit(arrival, 0);
	return 0;
}
