/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Never loaded, and part of no program. The tests read the layout of each structure of event.h, launches.h, progress.h and arrivals.bpf.c, as the compiler
 * has chosen it, from this object's type information (BTF), and compare it with the decoders (layout.rs). The objects of the
 * programs have only the types of their maps.
 */
#include "arrivals.bpf.c"
#include "event.h"
#include "launches.h"
#include "progress.h"

struct access_event access_event;
struct file_event file_event;
struct exec_event exec_event;
struct lookup_event lookup_event;
struct fork_event fork_event;
struct thread_event thread_event;
struct arrival arrival;
struct progress_event progress_event;
struct launch_exec launch_exec;
struct launch_end launch_end;
struct start start;
enum event_type event_type;
enum access_kind access_kind;
enum file_flag file_flag;
enum lookup_flag lookup_flag;
enum loss loss;
enum launch_type launch_type;
enum launch_flag launch_flag;
enum launch_loss launch_loss;
