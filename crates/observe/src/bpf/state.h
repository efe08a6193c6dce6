/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The rows and queries of state.bpf.c. src/state.rs decodes them. */
#ifndef AHEAD_STATE_H
#define AHEAD_STATE_H

#define NAME_BYTES 16

enum state_flag {
	STATE_RANDOM = 1,   /* FMODE_RANDOM */
	STATE_CACHED = 2,   /* not O_DIRECT */
	STATE_READABLE = 4, /* FMODE_READ */
	STATE_NOREUSE = 8,  /* FMODE_NOREUSE */
};

struct open_state {
	u64 open;
	u64 inode;
	u64 inode_number;
	u64 file_bytes;
	u64 cached_pages;
	u64 position;
	u64 start;
	s64 prev_pos;
	u32 size;
	u32 async_size;
	u32 window;
	u32 disk_window;
	u32 device;
	u32 pid;
	u32 descriptor;
	u16 mmap_miss;
	u8 flags;
	u8 padding;
	char name[NAME_BYTES];
};

/* Arguments and result of `query`. */
struct state_query {
	u64 open; /* 0: the open file of `descriptor` */
	u64 inode;
	u32 descriptor;
	u32 is_found;
	struct open_state state;
};

#endif
