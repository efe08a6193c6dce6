/*
 * The layout of structures and the values of constants, as programs have them compiled in. A change here breaks programs: fields are added at
 * the end only, and then the size here grows and FIRST_BYTES in crates/capi/src stays. For 64-bit machines.
 */
#include <ahead.h>

#include <stdio.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#endif

CHECK(AHEAD_NORMAL == 0);
CHECK(AHEAD_RANDOM == 1);
CHECK(AHEAD_SEQUENTIAL == 2);
CHECK(AHEAD_WILLNEED == 3);
CHECK(AHEAD_DONTNEED == 4);
CHECK(AHEAD_BACKWARD == 5);
CHECK(AHEAD_STRIDE == 6);
CHECK(AHEAD_READER_DIRECT == 1);

#if UINTPTR_MAX == UINT64_MAX

CHECK(sizeof(ahead_reader_options) == 40);
CHECK(offsetof(ahead_reader_options, size) == 0);
CHECK(offsetof(ahead_reader_options, budget) == 8);
CHECK(offsetof(ahead_reader_options, largest_distance_bytes) == 16);
CHECK(offsetof(ahead_reader_options, stride_bytes) == 24);
CHECK(offsetof(ahead_reader_options, pattern) == 32);
CHECK(offsetof(ahead_reader_options, flags) == 36);

CHECK(sizeof(ahead_reader_counters) == 88);
CHECK(offsetof(ahead_reader_counters, size) == 0);
CHECK(offsetof(ahead_reader_counters, reads) == 8);
CHECK(offsetof(ahead_reader_counters, bytes) == 16);
CHECK(offsetof(ahead_reader_counters, waits) == 24);
CHECK(offsetof(ahead_reader_counters, waited_us) == 32);
CHECK(offsetof(ahead_reader_counters, requests) == 40);
CHECK(offsetof(ahead_reader_counters, requested_bytes) == 48);
CHECK(offsetof(ahead_reader_counters, cached_requests) == 56);
CHECK(offsetof(ahead_reader_counters, abandoned_bytes) == 64);
CHECK(offsetof(ahead_reader_counters, distance_bytes) == 72);
CHECK(offsetof(ahead_reader_counters, is_direct) == 80);

CHECK(sizeof(ahead_advised_counters) == 72);
CHECK(offsetof(ahead_advised_counters, size) == 0);
CHECK(offsetof(ahead_advised_counters, groups) == 8);
CHECK(offsetof(ahead_advised_counters, cached_groups) == 16);
CHECK(offsetof(ahead_advised_counters, requested_bytes) == 24);
CHECK(offsetof(ahead_advised_counters, retried) == 32);
CHECK(offsetof(ahead_advised_counters, waits) == 40);
CHECK(offsetof(ahead_advised_counters, waited_us) == 48);
CHECK(offsetof(ahead_advised_counters, looks) == 56);
CHECK(offsetof(ahead_advised_counters, distance_bytes) == 64);

CHECK(sizeof(ahead_item) == 48);
CHECK(offsetof(ahead_item, path) == 0);
CHECK(offsetof(ahead_item, offset) == 8);
CHECK(offsetof(ahead_item, length) == 16);
CHECK(offsetof(ahead_item, key) == 24);
CHECK(offsetof(ahead_item, reserved) == 32);

CHECK(sizeof(ahead_prefetcher_options) == 48);
CHECK(offsetof(ahead_prefetcher_options, size) == 0);
CHECK(offsetof(ahead_prefetcher_options, budget) == 8);
CHECK(offsetof(ahead_prefetcher_options, window_bytes) == 16);
CHECK(offsetof(ahead_prefetcher_options, window_items) == 24);
CHECK(offsetof(ahead_prefetcher_options, window_us) == 32);
CHECK(offsetof(ahead_prefetcher_options, threads) == 40);
CHECK(offsetof(ahead_prefetcher_options, flags) == 44);

CHECK(sizeof(ahead_prefetcher_counters) == 72);
CHECK(offsetof(ahead_prefetcher_counters, size) == 0);
CHECK(offsetof(ahead_prefetcher_counters, items) == 8);
CHECK(offsetof(ahead_prefetcher_counters, prefetched_items) == 16);
CHECK(offsetof(ahead_prefetcher_counters, prefetched_bytes) == 24);
CHECK(offsetof(ahead_prefetcher_counters, cached_items) == 32);
CHECK(offsetof(ahead_prefetcher_counters, skipped) == 40);
CHECK(offsetof(ahead_prefetcher_counters, late) == 48);
CHECK(offsetof(ahead_prefetcher_counters, consumed_before_start) == 56);
CHECK(offsetof(ahead_prefetcher_counters, unchecked) == 64);

#endif

int main(void)
{
    /* A constant in a static assertion needs no library. This call does. */
    return puts(ahead_version()) < 0;
}
