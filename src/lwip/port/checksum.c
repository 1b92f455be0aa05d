/* The Internet checksum (RFC 1071) for lwIP, in a quarter of the instructions of its own: that one
 * takes two octets at a time. Most of what lwIP does for a large segment is this sum. */
#include <stddef.h>
#include <stdint.h>

#include <lwip/arch.h>

/* May lie over memory of any type. */
typedef uint32_t __attribute__((may_alias)) word_t;
typedef uint16_t __attribute__((may_alias)) half_t;

#if BYTE_ORDER == BIG_ENDIAN
enum { FIRST_SHIFT = 8, SECOND_SHIFT = 0 };
#else
enum { FIRST_SHIFT = 0, SECOND_SHIFT = 8 };
#endif

enum { WORDS_AT_ONCE = 8, RUN = 4 * WORDS_AT_ONCE }; /* RUN in octets */

static uint32_t fold(uint32_t sum) { return (sum & 0xffffu) + (sum >> 16); }

/* The sum of the runs from the aligned `p` to `end`, of which there is at least one. */
static uint32_t sum_runs(const uint8_t* p, const uint8_t* end) {
#ifdef __thumb2__
  /* Three instructions for two words: one load for a whole run, and a carry that goes into the next
   * addition, to which gcc has no way from C. */
  uint32_t sum = 0;
  do {
    const uint8_t(*run)[RUN] = (const void*)p;
    __asm__(
        "ldmia %0!, {r3, r4, r5, r6, r8, r9, r10, r12}\n\t"
        "adds %1, r3\n\t"
        "adcs %1, r4\n\t"
        "adcs %1, r5\n\t"
        "adcs %1, r6\n\t"
        "adcs %1, r8\n\t"
        "adcs %1, r9\n\t"
        "adcs %1, r10\n\t"
        "adcs %1, r12\n\t"
        "adc %1, %1, #0"
        : "+r"(p), "+r"(sum)
        : "m"(*run)
        : "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r12", "cc");
  } while (p != end);
  return fold(sum);
#else
  /* `all` wraps; without the upper halves, which are summed apart, it is the sum of the lower ones.
   * Neither of those can wrap: lwIP's lengths have 16 bits. */
  uint32_t all = 0, upper = 0;
  do {
#pragma GCC unroll 8
    for (int i = 0; i < WORDS_AT_ONCE; ++i) {
      const uint32_t word = ((const word_t*)p)[i];
      all += word;
      upper += word >> 16;
      /* Word by word: otherwise gcc loads all of them first, for which there are not enough
       * registers. */
      __asm__("" : "+r"(all), "+r"(upper));
    }
    p += RUN;
  } while (p != end);
  return fold(all - (upper << 16)) + fold(upper);
#endif
}

u16_t weft_lwip_checksum(const void* data, int size) {
  const uint8_t* p = data;
  size_t left = size > 0 ? (size_t)size : 0;
  const int odd = ((uintptr_t)p & 1u) != 0;
  uint32_t sum = 0;
  if (odd && left != 0) {
    sum = (uint32_t)*p++ << SECOND_SHIFT;
    --left;
  }
  if (((uintptr_t)p & 2u) != 0 && left >= 2) {
    sum += *(const half_t*)p;
    p += 2;
    left -= 2;
  }
  if (left >= RUN) {
    const uint8_t* const end = p + left / RUN * RUN;
    sum += sum_runs(p, end);
    p = end;
    left %= RUN;
  }
  for (; left >= 4; left -= 4, p += 4) {
    const uint32_t word = *(const word_t*)p;
    sum += (word & 0xffffu) + (word >> 16);
  }
  if (left >= 2) {
    sum += *(const half_t*)p;
    p += 2;
    left -= 2;
  }
  if (left != 0) sum += (uint32_t)*p << FIRST_SHIFT;
  sum = fold(fold(sum));
  /* From an odd address each octet was taken for the other one of its pair. */
  return (u16_t)(odd ? (sum >> 8 | sum << 8) : sum);
}
