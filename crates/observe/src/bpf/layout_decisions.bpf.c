/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Never loaded, as layout_events.bpf.c: for state.h and decision.h, whose structures have the same names as those of event.h. */
#include "kernel.h"
#include "decision.h"
#include "state.h"

struct long_event long_event;
enum kind kind;
enum event_flag event_flag;
enum call call;
struct open_state open_state;
struct state_query state_query;
enum state_flag state_flag;
