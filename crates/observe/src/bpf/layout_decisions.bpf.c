/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Never loaded, as layout_events.bpf.c: for decision.h, whose structures have the same names as those of event.h. */
#include "kernel.h"
#include "decision.h"

struct long_event long_event;
enum kind kind;
enum event_flag event_flag;
enum call call;
