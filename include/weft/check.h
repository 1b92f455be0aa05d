/* For memory pools, in C and C++: tells `weft run --check` which memory the program has for itself,
 * so that an access of a peer is reported (E13). Without --check the calls do nothing, and nothing
 * has to be linked.
 *
 *   buffer = pool_take(pool);   weft_own(buffer, size);      from here on no peer may touch it
 *   weft_release(buffer, size); pool_give(pool, buffer);     peers may again
 *
 * Any thread. Memory that nobody has spoken of is not looked at. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What `weft run --check` preloads has them. */
void weft_check_own(const void* memory, size_t length) __attribute__((weak));
void weft_check_release(const void* memory, size_t length) __attribute__((weak));

static inline void weft_own(const void* memory, size_t length) {
  if (weft_check_own) weft_check_own(memory, length);
}

static inline void weft_release(const void* memory, size_t length) {
  if (weft_check_release) weft_check_release(memory, length);
}

#ifdef __cplusplus
}
#endif
