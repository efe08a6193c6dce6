/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Events and accounts of starts (decoded by launches/decode.rs). All numbers are in the machine's byte order; structures have no holes. */
#ifndef AHEAD_LAUNCHES_H
#define AHEAD_LAUNCHES_H

enum launch_type {
	LAUNCH_EXEC = 1,
	LAUNCH_END = 2,
};

enum launch_flag {
	LAUNCH_ELEVATED = 1,  /* the effective user or group is not the real one: a setuid or setgid program */
	LAUNCH_SCRIPT = 2,    /* the kernel runs an interpreter on the named file */
	LAUNCH_TRUNCATED = 4, /* a name is longer than its limit */
};

/* A process number is used again, so a start is named with its time (CLOCK_MONOTONIC). 0, 0: none. */
struct start_key {
	u64 began_ns;
	u32 pid;
	u32 padding;
};

/* The numbers of an inode: i_ino, s_dev. 0, 0: unknown. */
struct program_file {
	u64 inode;
	u32 device;
	u32 padding;
};

struct account {
	u64 waited_ns; /* while waiting > 0, it lacks the present time: each wait of the start subtracts its begin and adds its end */
	u64 waited_in_exec_ns; /* the part before began_ns: execve itself reads the program's first page */
	u64 read_bytes;
	u32 waits;
	u32 major_faults;
	u32 waiting;   /* threads that wait now */
	u32 processes; /* that run in this start itself, not in one nested in it */
};

/* An entry of the table of starts. */
struct start {
	struct program_file program;
	struct account account;
};

struct launch_end {
	u32 type;
	u32 padding;
	struct start_key start;
	u64 ended_ns;
	struct account account;
};

/* The limits of the kernel: PATH_MAX, BINPRM_BUF_SIZE. */
#define LAUNCH_NAME_BYTES 4096
#define LAUNCH_INTERPRETER_BYTES 256

struct launch_exec {
	u32 type;
	u32 flags;
	u64 time_ns;
	u32 pid;
	u32 parent;
	u32 uid;
	u32 gid;
	struct start_key start; /* the process is in this start from now on; its own if pid and time are these */
	struct start_key outer; /* the start that this one is nested in */
	struct program_file program; /* for a script: its interpreter */
	struct program_file script;
	u32 mount_namespace;
	u16 name_bytes;
	u16 interpreter_bytes;
	/* The name as given to execve, then the name of the interpreter if it is another one. */
	char text[LAUNCH_NAME_BYTES + LAUNCH_INTERPRETER_BYTES];
};

enum launch_loss {
	LAUNCH_LOST_EVENT,  /* the ring buffer was full */
	LAUNCH_LOST_START,  /* the table of starts, or memory for a thread, was full: the start has no account */
	LAUNCH_LOSSES,
};

#endif
