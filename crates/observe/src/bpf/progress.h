/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The event of progress.bpf.c, decoded by progress.rs. */
#ifndef AHEAD_PROGRESS_H
#define AHEAD_PROGRESS_H

struct progress_event {
	u64 page;
	u32 file;
	u32 unused;
};

#endif
