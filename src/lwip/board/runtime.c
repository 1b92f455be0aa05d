/* The few functions of the C library that the core, lwIP and the compiler call. Memory comes from
 * lwIP's heap, whose size the image fixes: what is not there is refused, and nothing grows. */
#include <assert.h>
#include <lwip/mem.h>
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

void* malloc(size_t size) { return size > MEM_SIZE ? NULL : mem_malloc((mem_size_t)size); }
void free(void* p) {
  if (p != NULL) mem_free(p);
}
void* calloc(size_t count, size_t size) {
  if (size != 0 && count > MEM_SIZE / size) return NULL;
  void* p = malloc(count * size);
  if (p != NULL) memset(p, 0, count * size);
  return p;
}
/* Weft asks for more than MEM_ALIGNMENT only to keep what different cores write in different cache
 * lines. There is one core here. */
void* aligned_alloc(size_t alignment, size_t size) {
  (void)alignment;
  return malloc(size);
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

/* Counters of 64 bits, where the CPU cannot do them in one step. There is one thread, and
 * interrupts do not touch them. */
uint64_t weft_atomic_load_8(const volatile void* p, int order) __asm__("__atomic_load_8");
void weft_atomic_store_8(volatile void* p, uint64_t value, int order) __asm__("__atomic_store_8");

uint64_t weft_atomic_load_8(const volatile void* p, int order) {
  (void)order;
  return *(const volatile uint64_t*)p;
}
void weft_atomic_store_8(volatile void* p, uint64_t value, int order) {
  (void)order;
  *(volatile uint64_t*)p = value;
}
