/* What the library for LD_PRELOAD of `weft run --check` (given_back.c) and the module of the rules
 * share: which memory is of interest, and who wants to hear of it. C and C++. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* By the __atomic functions. The module finds it by its name, weft_memory_watch. */
struct weft_memory_watch {
  uintptr_t low;  /* outstanding requests use memory from here on */
  uintptr_t high; /* to there; low >= high: none do */
  /* Memory is about to be given back to the C library or the system. Any thread. */
  void (*gone)(const void* address, size_t length);
  /* The program says that memory is its own, or is no longer (<weft/check.h>). Any thread. */
  void (*owned)(const void* address, size_t length, int is_own);
};
