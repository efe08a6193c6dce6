// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * The functions of a program in the order of their first use: first-use ADDRESSES PROGRAM ARGUMENT ...
 *
 * ADDRESSES has a line for each function: its address in the file, hexadecimal, and its name. A breakpoint is put at every one of them when
 * PROGRAM is executed. At its first use a function's name is printed and its breakpoint removed. Threads and forked processes are followed
 * until they execute another program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define BREAKPOINT 0xcc

struct function {
	uint64_t address;
	char *name;
	long word; /* the text before the breakpoint */
	int is_used;
};

static struct function *functions;
static size_t count;
static uint64_t base;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = ((const struct function *)a)->address, y = ((const struct function *)b)->address;
	return x < y ? -1 : x > y;
}

static void load(const char *path)
{
	FILE *from = fopen(path, "r");
	char name[65536];
	uint64_t address;
	if (!from)
		die(path);
	while (fscanf(from, "%" SCNx64 " %65535s", &address, name) == 2) {
		functions = realloc(functions, (count + 1) * sizeof *functions);
		functions[count++] = (struct function){ .address = address, .name = strdup(name) };
	}
	fclose(from);
	qsort(functions, count, sizeof *functions, by_address);
	/* Of several names of one function the first is enough. */
	size_t kept = 0;
	for (size_t i = 0; i < count; i++)
		if (i == 0 || functions[i].address != functions[kept - 1].address)
			functions[kept++] = functions[i];
	count = kept;
}

/* Where the program is mapped: the first line of its maps that names it. */
static uint64_t mapped_at(pid_t pid)
{
	char path[64], line[8192], program[4096], link[64];
	uint64_t start = 0;
	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	snprintf(link, sizeof link, "/proc/%d/exe", pid);
	ssize_t length = readlink(link, program, sizeof program - 1);
	FILE *maps = fopen(path, "r");
	if (!maps || length < 0)
		die(path);
	program[length] = 0;
	while (fgets(line, sizeof line, maps))
		if (strstr(line, program)) {
			sscanf(line, "%" SCNx64, &start);
			break;
		}
	fclose(maps);
	return start;
}

static void put_byte(pid_t pid, uint64_t address, int byte)
{
	errno = 0;
	long word = ptrace(PTRACE_PEEKTEXT, pid, address, 0);
	if (errno == 0)
		ptrace(PTRACE_POKETEXT, pid, address, (word & ~0xffL) | byte);
}

/* Puts the breakpoints into a program that has just been executed. */
static void begin(pid_t pid)
{
	base = mapped_at(pid);
	for (size_t i = 0; i < count; i++) {
		functions[i].word = ptrace(PTRACE_PEEKTEXT, pid, base + functions[i].address, 0);
		put_byte(pid, base + functions[i].address, BREAKPOINT);
	}
}

/* Whether the thread has stopped at a breakpoint; it then goes on at the function's own first instruction. */
static int met(pid_t pid)
{
	struct user_regs_struct registers;
	if (ptrace(PTRACE_GETREGS, pid, 0, &registers))
		return 0;
	struct function key = { .address = registers.rip - 1 - base };
	struct function *function = bsearch(&key, functions, count, sizeof key, by_address);
	if (!function)
		return 0;
	if (!function->is_used)
		puts(function->name);
	function->is_used = 1;
	put_byte(pid, registers.rip - 1, function->word & 0xff);
	registers.rip--;
	ptrace(PTRACE_SETREGS, pid, 0, &registers);
	return 1;
}

int main(int argc, char **argv)
{
	int status, has_begun = 0;
	if (argc < 3) {
		fprintf(stderr, "usage: first-use ADDRESSES PROGRAM ARGUMENT ...\n");
		return 2;
	}
	load(argv[1]);
	pid_t first = fork();
	if (first == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execv(argv[2], argv + 2);
		die(argv[2]);
	}
	for (pid_t pid; (pid = waitpid(-1, &status, __WALL)) > 0;) {
		int pass = 0;
		if (!WIFSTOPPED(status))
			continue;
		pass = WSTOPSIG(status);
		if (pass == SIGTRAP) {
			pass = 0;
			if (!has_begun) {
				has_begun = 1;
				ptrace(PTRACE_SETOPTIONS, pid, 0,
				       PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE);
				begin(pid);
			} else if (status >> 16 == PTRACE_EVENT_EXEC) {
				ptrace(PTRACE_DETACH, pid, 0, 0);
				continue;
			} else if (status >> 16 == 0 && !met(pid)) {
				pass = SIGTRAP;
			}
		} else if (pass == SIGSTOP) {
			pass = 0; /* a new thread or process */
		}
		ptrace(PTRACE_CONT, pid, 0, pass);
	}
	return 0;
}
