/* What the victims share: time, failures, random numbers. */
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../../tests/splitmix64.h"

#define PAGE_BYTES 4096
#define NS_PER_S 1000000000ull

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline void sleep_until(uint64_t due_ns) {
    struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S), .tv_nsec = (long)(due_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0) {
    }
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}

/* The number behind an option such as --seconds. */
static inline double number(const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || value < 0) {
        fprintf(stderr, "%s is not a number\n", text);
        exit(2);
    }
    return value;
}
