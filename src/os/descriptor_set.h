// A set of descriptors that fork() closes, or that somebody else has to know without a lock.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::os {

// Holds descriptors below kMost; others are never in it. Any thread. Zero-initialized, and so
// without cost until a descriptor of that range is used: for static objects.
template <int kMost>
class DescriptorSet {
 public:
  void add(int fd) noexcept {
    if (!in_range(fd)) return;
    const std::size_t words = static_cast<std::size_t>(fd) / kWordBits + 1;
    std::size_t used = words_used_.load(std::memory_order_relaxed);
    while (used < words && !words_used_.compare_exchange_weak(used, words)) {
    }
    word_of(fd).fetch_or(bit_of(fd));
  }
  // True: it was there.
  bool remove(int fd) noexcept {
    return in_range(fd) && (word_of(fd).fetch_and(~bit_of(fd)) & bit_of(fd)) != 0;
  }
  // Async-signal-safe. In the only thread of a child of fork().
  void close_all() noexcept {
    const std::size_t words = words_used_.load(std::memory_order_relaxed);
    for (std::size_t w = 0; w < words; ++w) {
      for (std::uint64_t bits = words_[w].exchange(0); bits != 0; bits &= bits - 1) {
        ::close(static_cast<int>(w * kWordBits) + std::countr_zero(bits));
      }
    }
  }

 private:
  static constexpr unsigned kWordBits = 64;
  static bool in_range(int fd) noexcept { return fd >= 0 && fd < kMost; }
  static std::uint64_t bit_of(int fd) noexcept {
    return std::uint64_t{1} << (static_cast<unsigned>(fd) % kWordBits);
  }
  std::atomic<std::uint64_t>& word_of(int fd) noexcept {
    return words_[static_cast<std::size_t>(fd) / kWordBits];
  }

  std::array<std::atomic<std::uint64_t>, kMost / kWordBits> words_;
  std::atomic<std::size_t> words_used_{0};
};

}  // namespace weft::os
