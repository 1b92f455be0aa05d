// An image that compares the code which only a board has with the plainest way of doing the same:
// CRC32C, lwIP's checksum, memcpy() and memmove(), for every alignment and many lengths.
#include <cstdint>
#include <cstring>
#include <span>

#include <lwip/arch.h>
#include <lwip/def.h>

#include "base/crc32c.h"
#include "lwip/board/board.h"

namespace {

constexpr std::size_t kLengthMax = 200;
constexpr std::size_t kAlignments = 8;
constexpr std::size_t kRoom = kLengthMax + kAlignments;
constexpr std::size_t kLongest = 4096;

alignas(8) std::uint8_t octets[kLongest];
alignas(8) std::uint8_t copied[kRoom + 1], expected[kRoom + 1];

void say(const char* text) {
  while (*text != '\0') board_putc(*text++);
}

void fill(std::uint32_t seed) {
  for (std::uint8_t& octet : octets) {
    seed = seed * 1664525U + 1013904223U;
    octet = static_cast<std::uint8_t>(seed >> 24U);
  }
}

std::uint32_t plain_crc(std::span<const std::uint8_t> run) {
  std::uint32_t state = 0xffffffffU;
  for (const std::uint8_t octet : run) {
    state ^= octet;
    for (int bit = 0; bit < 8; ++bit) {
      state = (state >> 1U) ^ ((state & 1U) != 0 ? 0x82f63b78U : 0U);
    }
  }
  return ~state;
}

// RFC 1071, in host order, as lwIP wants it.
std::uint16_t plain_sum(std::span<const std::uint8_t> run) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    sum += i % 2 == 0 ? std::uint32_t{run[i]} << 8U : run[i];
    if (sum > 0xffffU) sum -= 0xffffU;
  }
  return lwip_htons(static_cast<std::uint16_t>(sum));
}

bool sums_are_right(std::span<const std::uint8_t> run) {
  return weft::crc32c(run) == plain_crc(run) &&
         weft_lwip_checksum(run.data(), static_cast<int>(run.size())) == plain_sum(run);
}

bool every_sum_is_right() {
  for (std::size_t at = 0; at < kAlignments; ++at) {
    for (std::size_t size = 0; size <= kLengthMax; ++size) {
      if (!sums_are_right({octets + at, size})) return false;
    }
  }
  return sums_are_right(octets);
}

// `move` of `size` octets within `copied`, which are as those of `octets` before.
bool copy_is_right(void* (*move)(void*, const void*, std::size_t), std::size_t to, std::size_t from,
                   std::size_t size) {
  const std::uint8_t* const source = move == std::memcpy ? octets : copied;
  for (std::size_t i = 0; i < sizeof copied; ++i) copied[i] = expected[i] = octets[i];
  for (std::size_t i = 0; i < size; ++i) expected[to + i] = octets[from + i];
  move(copied + to, source + from, size);
  for (std::size_t i = 0; i < sizeof copied; ++i) {
    if (copied[i] != expected[i]) return false;
  }
  return true;
}

bool every_copy_is_right() {
  for (std::size_t to = 0; to < kAlignments; ++to) {
    for (std::size_t from = 0; from < kAlignments; ++from) {
      for (std::size_t size = 0; size <= kLengthMax; size += size < 40 ? 1 : 23) {
        if (!copy_is_right(std::memcpy, to, from, size)) return false;
        if (!copy_is_right(std::memmove, to, from, size)) return false;
      }
    }
  }
  return true;
}

}  // namespace

int main() {
  fill(1);
  const bool sums = every_sum_is_right();
  const bool copies = every_copy_is_right();
  // Where sums are largest, and would wrap if they could.
  std::memset(octets, 0xff, sizeof octets);
  const bool largest = sums_are_right(octets) && sums_are_right({octets + 3, kLongest - 3});
  say(sums ? "sums: right\n" : "sums: wrong\n");
  say(largest ? "largest sums: right\n" : "largest sums: wrong\n");
  say(copies ? "copies: right\n" : "copies: wrong\n");
  say("weft-board: done\n");
  return 0;
}
