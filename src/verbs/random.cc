#include "verbs/random.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "os/cancel.h"
#include "os/fork.h"

namespace weft::verbs {

namespace {

struct Pool {
  std::array<std::uint32_t, 64> words;
  std::size_t left = 0;
  std::uint32_t generation = 0;
};

void fill(Pool& pool) {
  const os::NoCancel guard;
  auto* at = reinterpret_cast<std::uint8_t*>(pool.words.data());
  std::size_t missing = sizeof pool.words;
  while (missing != 0) {
    const ssize_t n = getrandom(at, missing, 0);
    if (n < 0 && errno == EINTR) continue;
    // Without unpredictable STags there is no protection: better to stop than to go on.
    if (n <= 0) std::abort();
    at += n;
    missing -= static_cast<std::size_t>(n);
  }
  pool.left = pool.words.size();
  pool.generation = os::fork_generation();
}

}  // namespace

std::uint32_t random_u32() {
  thread_local Pool pool;
  if (pool.left == 0 || pool.generation != os::fork_generation()) fill(pool);
  std::uint32_t& word = pool.words[--pool.left];
  const std::uint32_t out = word;
  word = 0;
  return out;
}

std::uint64_t random_u64() { return std::uint64_t{random_u32()} << 32U | random_u32(); }

}  // namespace weft::verbs
