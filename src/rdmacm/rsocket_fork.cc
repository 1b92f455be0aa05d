#include "rdmacm/rsocket_fork.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft::rdmacm {
namespace {

constexpr int kWordBits = 64;

// Zero-initialized, and so without cost until a number of that range is used.
class Numbers {
 public:
  void add(int fd) {
    if (!in_range(fd)) return;
    word_of(fd).fetch_or(bit_of(fd));
    const std::size_t words = static_cast<std::size_t>(fd) / kWordBits + 1;
    std::size_t used = words_used_.load();
    while (used < words && !words_used_.compare_exchange_weak(used, words)) {
    }
  }
  // True: it was there.
  bool remove(int fd) {
    return in_range(fd) && (word_of(fd).fetch_and(~bit_of(fd)) & bit_of(fd)) != 0;
  }
  void close_all() {
    for (std::size_t w = 0; w < words_used_.load(); ++w) {
      for (std::uint64_t bits = words_[w].exchange(0); bits != 0; bits &= bits - 1) {
        close(static_cast<int>(w * kWordBits) + std::countr_zero(bits));
      }
    }
  }

 private:
  static bool in_range(int fd) { return fd >= 0 && fd < kNumbersMax; }
  static std::uint64_t bit_of(int fd) {
    return std::uint64_t{1} << (static_cast<unsigned>(fd) % kWordBits);
  }
  std::atomic<std::uint64_t>& word_of(int fd) {
    return words_[static_cast<std::size_t>(fd) / kWordBits];
  }

  std::array<std::atomic<std::uint64_t>, kNumbersMax / kWordBits> words_;
  std::atomic<std::size_t> words_used_{0};
};

Numbers g_programs;
Numbers g_internal;
std::atomic<void (*)()> g_renew{nullptr};

}  // namespace

void note_number(int fd) { g_programs.add(fd); }
bool forget_number(int fd) { return g_programs.remove(fd); }
void close_in_child(int fd) { g_internal.add(fd); }
void keep_in_child(int fd) { g_internal.remove(fd); }

int watch_forks(void (*renew)()) {
  g_renew = renew;
  return pthread_atfork(nullptr, nullptr, [] {
    g_internal.close_all();
    g_renew.load()();
  });
}

}  // namespace weft::rdmacm
