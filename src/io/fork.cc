#include "io/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <bit>

namespace weft::io {

namespace detail {
std::atomic<std::uint32_t> g_fork_generation{1};
}

namespace {

constexpr unsigned kWordBits = 64;
// Zero-initialized and so without cost until a descriptor of that range is used.
std::array<std::atomic<std::uint64_t>, kForkFdsMax / kWordBits> g_fds;
std::atomic<std::size_t> g_words_used{0};

[[nodiscard]] bool in_range(int fd) { return fd >= 0 && fd < kForkFdsMax; }

// Runs in the only thread of the child. Async-signal-safe.
void after_fork_in_child() {
  detail::g_fork_generation.fetch_add(1, std::memory_order_relaxed);
  const std::size_t words = g_words_used.load(std::memory_order_relaxed);
  for (std::size_t w = 0; w < words; ++w) {
    std::uint64_t bits = g_fds[w].exchange(0, std::memory_order_relaxed);
    while (bits != 0) {
      const int bit = std::countr_zero(bits);
      bits &= bits - 1;
      ::close(static_cast<int>(w * kWordBits) + bit);
    }
  }
}

const int kRegisterError = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

void close_in_child(int fd) noexcept {
  if (!in_range(fd) || kRegisterError != 0) return;
  const std::size_t word = static_cast<std::size_t>(fd) / kWordBits;
  std::size_t used = g_words_used.load(std::memory_order_relaxed);
  while (used <= word && !g_words_used.compare_exchange_weak(used, word + 1)) {
  }
  g_fds[word].fetch_or(std::uint64_t{1} << (static_cast<unsigned>(fd) % kWordBits));
}

void forget_in_child(int fd) noexcept {
  if (!in_range(fd)) return;
  g_fds[static_cast<std::size_t>(fd) / kWordBits].fetch_and(
      ~(std::uint64_t{1} << (static_cast<unsigned>(fd) % kWordBits)));
}

}  // namespace weft::io
