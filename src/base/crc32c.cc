#include "base/crc32c.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "base/profile.h"

#if defined(__x86_64__) || defined(__i386__)
#include <nmmintrin.h>
#define WEFT_CRC_SSE42 1
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define WEFT_CRC_ARM 1
#endif

#if defined(WEFT_HAVE_ISAL)
#include <isa-l/crc.h>
#endif

namespace weft {
namespace {

constexpr std::uint32_t kPolynomialReflected = 0x82f63b78;

// kTables[k][b]: the register after byte b and k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, profile::kCrcTables>;

constexpr Tables make_tables() {
  Tables t{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t r = byte;
    for (int bit = 0; bit < 8; ++bit) r = (r >> 1) ^ ((r & 1U) != 0 ? kPolynomialReflected : 0);
    t[0][byte] = r;
  }
  for (std::size_t k = 1; k < t.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t r = t[k - 1][byte];
      t[k][byte] = (r >> 8) ^ t[0][r & 0xffU];
    }
  }
  return t;
}

constexpr Tables kTables = make_tables();

#ifdef WEFT_PROFILE_SMALL

// load_le32() of an aligned address, always inline: with -Os gcc makes a function of that, and each
// word then takes a call.
[[gnu::always_inline]] inline std::uint32_t aligned_word(const std::uint8_t* p) noexcept {
  std::uint32_t word = 0;
  std::memcpy(&word, std::assume_aligned<4>(p), sizeof word);
  return std::endian::native == std::endian::little ? word : __builtin_bswap32(word);
}

// The next four words, of an aligned address; moves `p` behind them.
struct FourWords {
  std::uint32_t a, b, c, d;
};
[[gnu::always_inline]] inline FourWords next_four_words(const std::uint8_t*& p) noexcept {
#if defined(__thumb2__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  // One instruction instead of five; gcc does not find it by itself.
  using Run = const std::uint8_t[16];
  register std::uint32_t a asm("r8");
  register std::uint32_t b asm("r9");
  register std::uint32_t c asm("r10");
  register std::uint32_t d asm("r11");
  const Run& run = *reinterpret_cast<Run*>(p);
  asm("ldmia %0!, {%1, %2, %3, %4}" : "+r"(p), "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "m"(run));
  return {a, b, c, d};
#else
  p += 16;
  return {aligned_word(p - 16), aligned_word(p - 12), aligned_word(p - 8), aligned_word(p - 4)};
#endif
}

#endif

#if defined(WEFT_CRC_SSE42)

__attribute__((target("sse4.2"))) std::uint32_t extend_instruction(std::uint32_t state,
                                                                   const std::uint8_t* p,
                                                                   std::size_t size) noexcept {
#if defined(__x86_64__)
  std::uint64_t wide = state;
  for (; size >= 8; p += 8, size -= 8) wide = _mm_crc32_u64(wide, load_le64(p));
  state = static_cast<std::uint32_t>(wide);
#endif
  for (; size >= 4; p += 4, size -= 4) state = _mm_crc32_u32(state, load_le32(p));
  for (; size > 0; ++p, --size) state = _mm_crc32_u8(state, *p);
  return state;
}

bool cpu_has_instruction() noexcept {
  __builtin_cpu_init();  // another translation unit's initializer may come here first
  return __builtin_cpu_supports("sse4.2") != 0;
}

// False until this line has run: code that computes a CRC before main() gets the table method.
const bool kHasInstruction = cpu_has_instruction();

#if defined(WEFT_HAVE_ISAL)

bool cpu_has_avx() noexcept {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx") != 0;
}

const bool kHasAvx = cpu_has_avx();

// ISA-L's folding code leaves the upper halves of the vector registers in use. Every SSE
// instruction behind it, here and in the program, then has to merge with them: 1 KiB messages took
// some 350 ns more each. Code built without AVX keeps nothing there.
void leave_vector_code() noexcept {
  if (kHasAvx) asm volatile("vzeroupper");
}

#endif

#elif defined(WEFT_CRC_ARM)

// Built for a CPU that has it: asking at run time would take a call into the operating system.
constexpr bool kHasInstruction = true;

std::uint32_t extend_instruction(std::uint32_t state, const std::uint8_t* p,
                                 std::size_t size) noexcept {
  for (; size >= 8; p += 8, size -= 8) state = __crc32cd(state, load_le64(p));
  for (; size > 0; ++p, --size) state = __crc32cb(state, *p);
  return state;
}

#endif

#if defined(WEFT_HAVE_ISAL)

// Below this the set-up of the folding code costs more than the plain instruction.
constexpr std::size_t kIsalMinBytes = 256;

std::uint32_t extend_isal(std::uint32_t state, const std::uint8_t* p, std::size_t size) noexcept {
  constexpr std::size_t kCallBytes = std::size_t{1} << 30U;  // the library counts in int
  while (size > 0) {
    const std::size_t n = std::min(size, kCallBytes);
    // It takes a pointer to non-const and does not write through it.
    state = crc32_iscsi(const_cast<std::uint8_t*>(p), static_cast<int>(n), state);
    p += n;
    size -= n;
  }
#if defined(WEFT_CRC_SSE42)
  leave_vector_code();
#endif
  return state;
}

#endif

}  // namespace

namespace detail {

std::uint32_t crc32c_extend_portable(std::uint32_t state, const void* data,
                                     std::size_t size) noexcept {
  const auto* p = static_cast<const std::uint8_t*>(data);
#ifdef WEFT_PROFILE_SMALL
  static_assert(profile::kCrcTables == 4);
  const std::uint32_t* t0 = kTables[0].data();
  const std::uint32_t* t1 = kTables[1].data();
  const std::uint32_t* t2 = kTables[2].data();
  const std::uint32_t* t3 = kTables[3].data();
  // Four registers: one for all of them would take an addition for each look-up.
  asm("" : "+r"(t0), "+r"(t1), "+r"(t2), "+r"(t3));
  // Some CPUs would take a call for each word that may not be aligned.
  for (; size != 0 && reinterpret_cast<std::uintptr_t>(p) % 4 != 0; ++p, --size) {
    state = (state >> 8) ^ t0[(state ^ *p) & 0xffU];
  }
  const auto take = [&](std::uint32_t word) __attribute__((always_inline)) {
    const std::uint32_t a = state ^ word;
    state = t3[a & 0xffU] ^ t2[(a >> 8) & 0xffU] ^ t1[(a >> 16) & 0xffU] ^ t0[a >> 24];
  };
  const auto take_four = [&]() __attribute__((always_inline)) {
    const FourWords words = next_four_words(p);
    take(words.a);
    take(words.b);
    take(words.c);
    take(words.d);
  };
  // Eight words at a time, and the loop's test at its end: it would be a tenth of the instructions.
  if (size >= 32) {
    const std::uint8_t* const end = p + size / 32 * 32;
    do {
      take_four();
      take_four();
    } while (p != end);
    size %= 32;
  }
  for (; size >= 4; size -= 4, p += 4) take(aligned_word(p));
#else
  for (; size >= 8; p += 8, size -= 8) {
    const std::uint32_t a = state ^ load_le32(p);
    const std::uint32_t b = load_le32(p + 4);
    state = kTables[7][a & 0xffU] ^ kTables[6][(a >> 8) & 0xffU] ^ kTables[5][(a >> 16) & 0xffU] ^
            kTables[4][a >> 24] ^ kTables[3][b & 0xffU] ^ kTables[2][(b >> 8) & 0xffU] ^
            kTables[1][(b >> 16) & 0xffU] ^ kTables[0][b >> 24];
  }
#endif
  for (; size > 0; ++p, --size) state = (state >> 8) ^ kTables[0][(state ^ *p) & 0xffU];
  return state;
}

std::uint32_t crc32c_extend(std::uint32_t state, const void* data, std::size_t size) noexcept {
  [[maybe_unused]] const auto* p = static_cast<const std::uint8_t*>(data);
#if defined(WEFT_HAVE_ISAL)
  if (size >= kIsalMinBytes) return extend_isal(state, p, size);
#endif
#if defined(WEFT_CRC_SSE42) || defined(WEFT_CRC_ARM)
  if (kHasInstruction) return extend_instruction(state, p, size);
#endif
  return crc32c_extend_portable(state, data, size);
}

}  // namespace detail

const char* crc32c_method() noexcept {
#if defined(WEFT_HAVE_ISAL)
  return "isa-l";
#elif defined(WEFT_CRC_SSE42)
  return kHasInstruction ? "sse4.2" : "table";
#elif defined(WEFT_CRC_ARM)
  return "armv8";
#else
  return "table";
#endif
}

}  // namespace weft
