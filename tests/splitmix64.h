/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood 2014). For the programs in C of tests and benchmarks. */
#pragma once
#include <stdint.h>

static inline uint64_t splitmix64(uint64_t *state)
{
	uint64_t mixed = *state += 0x9e3779b97f4a7c15ull;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
	return mixed ^ mixed >> 31;
}
