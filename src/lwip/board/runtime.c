/* The few functions of the C library that the core, lwIP and the compiler call. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lwip/board/board.h"

/* Not const, as the C library has it. The compiler must not make these call themselves. */
#define AS_WRITTEN __attribute__((optimize("no-tree-loop-distribute-patterns")))

AS_WRITTEN void* memcpy(void* restrict to, const void* restrict from, size_t n) {
  uint8_t* t = to;
  const uint8_t* f = from;
  if ((((uintptr_t)t ^ (uintptr_t)f) & 3u) == 0) {
    for (; n != 0 && ((uintptr_t)t & 3u) != 0; --n) *t++ = *f++;
    for (; n >= 16; n -= 16, t += 16, f += 16) {
      const uint32_t a = ((const uint32_t*)f)[0], b = ((const uint32_t*)f)[1];
      const uint32_t c = ((const uint32_t*)f)[2], d = ((const uint32_t*)f)[3];
      ((uint32_t*)t)[0] = a, ((uint32_t*)t)[1] = b, ((uint32_t*)t)[2] = c, ((uint32_t*)t)[3] = d;
    }
    for (; n >= 4; n -= 4, t += 4, f += 4) *(uint32_t*)t = *(const uint32_t*)f;
  } else if (n >= 16) {
    /* Whole words are written, made of the two that each straddles. */
    for (; ((uintptr_t)t & 3u) != 0; --n) *t++ = *f++;
    const unsigned shift = 8u * ((uintptr_t)f & 3u);
    const uint32_t* w = (const uint32_t*)((uintptr_t)f & ~(uintptr_t)3u);
    uint32_t have = *w++;
    for (; n >= 4; n -= 4, t += 4, f += 4) {
      const uint32_t next = *w++;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
      *(uint32_t*)t = have << shift | next >> (32u - shift);
#else
      *(uint32_t*)t = have >> shift | next << (32u - shift);
#endif
      have = next;
    }
  }
  while (n-- != 0) *t++ = *f++;
  return to;
}

AS_WRITTEN void* memmove(void* to, const void* from, size_t n) {
  uint8_t* t = to;
  const uint8_t* f = from;
  if (t <= f || t >= f + n) {
    if (t + 16 <= f || t >= f + n) return memcpy(to, from, n);
    while (n-- != 0) *t++ = *f++;
  } else {
    while (n-- != 0) t[n] = f[n];
  }
  return to;
}

AS_WRITTEN void* memset(void* to, int value, size_t n) {
  uint8_t* t = to;
  const uint32_t word = 0x01010101u * (uint8_t)value;
  for (; n != 0 && ((uintptr_t)t & 3u) != 0; --n) *t++ = (uint8_t)value;
  for (; n >= 4; n -= 4, t += 4) *(uint32_t*)t = word;
  while (n-- != 0) *t++ = (uint8_t)value;
  return to;
}

AS_WRITTEN int memcmp(const void* a, const void* b, size_t n) {
  const uint8_t *x = a, *y = b;
  for (; n != 0; --n, ++x, ++y) {
    if (*x != *y) return *x < *y ? -1 : 1;
  }
  return 0;
}

size_t strlen(const char* s) {
  const char* end = s;
  while (*end != '\0') ++end;
  return (size_t)(end - s);
}

static void say(const char* text) {
  while (*text != '\0') board_putc(*text++);
}

void abort(void) {
  say("weft-board: abort\n");
  board_halt();
}

/* What assert() calls, also for lwIP. */
void weft_board_assert(const char* file, int line) {
  char digits[12];
  char* at = digits + sizeof digits - 1;
  *at = '\0';
  do {
    *--at = (char)('0' + line % 10);
  } while ((line /= 10) != 0);
  say("weft-board: assertion failed: ");
  say(file);
  say(":");
  say(at);
  say("\n");
  board_halt();
}

/* There is no heap: all memory is fixed when the image is linked. Weft's code for workstations asks
 * for some; here it gets none. */
void* malloc(size_t size) {
  (void)size;
  return NULL;
}
void free(void* p) { (void)p; }
void* calloc(size_t count, size_t size) {
  (void)count;
  return malloc(size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  (void)alignment;
  return malloc(size);
}

/* The stack is filled with this before it is used; what still holds it has not been used. */
#define UNUSED_STACK 0x57454654u
extern uint32_t weft_stack_bottom, weft_stack_top;

void weft_board_mark_stack(void) {
  /* What this function itself uses is above. */
  uint32_t* const end = (uint32_t*)__builtin_frame_address(0) - 32;
  for (uint32_t* at = &weft_stack_bottom; at < end; ++at) *at = UNUSED_STACK;
}

size_t board_stack_unused(void) {
  const uint32_t* at = &weft_stack_bottom;
  while (at < &weft_stack_top && *at == UNUSED_STACK) ++at;
  return (size_t)((const uint8_t*)at - (const uint8_t*)&weft_stack_bottom);
}

/* Not for secrets: a board with a source of entropy puts it here. Without one, STags and initial
 * sequence numbers can be guessed from the time when the board started; see docs/embedded.md. */
unsigned weft_lwip_random(void) {
  static uint64_t state;
  state += board_now_ns() | 1u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (unsigned)(state >> 16);
}
