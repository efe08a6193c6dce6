/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Never loaded, as layout_events.bpf.c: for counters.h. */
#include "kernel.h"
#include "counters.h"

struct counter_event counter_event;
struct open_record open_record;
struct counter_settings counter_settings;
enum counter counter;
enum counter_flag counter_flag;
enum decision_kind decision_kind;
enum mapping_advice mapping_advice;
