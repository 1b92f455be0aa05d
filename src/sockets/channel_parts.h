// The two halves of Channel, reading and writing, have this in common.
#pragma once

#include <pthread.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace weft::sockets {

// RingHalf::ended.
inline constexpr std::uint32_t kEnded = 1;
inline constexpr std::uint32_t kReset = 2;

// Copied and published at once: meanwhile the other end copies what came before, from its cache.
inline constexpr std::uint64_t kPiece = 65536;

inline std::size_t total_of(const iovec* parts, std::size_t count) {
  std::size_t total = 0;
  for (std::size_t i = 0; i < count; ++i) total += parts[i].iov_len;
  return total;
}

// A lock that another process may die with: what it guards is one cursor, always whole. False: this
// thread has it, and is in a signal handler now.
inline bool lock_robust(pthread_mutex_t& mutex) {
  const int result = pthread_mutex_lock(&mutex);
  if (result == EOWNERDEAD) pthread_mutex_consistent(&mutex);
  return result != EDEADLK;
}

// Such a lock, held.
class Hold {
 public:
  explicit Hold(pthread_mutex_t& mutex) : mutex_(mutex), held_(lock_robust(mutex)) {}
  ~Hold() { drop(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  // A signal handler must not wait for what it has interrupted.
  [[nodiscard]] bool held() const { return held_; }
  void drop() {
    if (held_) pthread_mutex_unlock(&mutex_);
    held_ = false;
  }
  void take() { held_ = lock_robust(mutex_); }

 private:
  pthread_mutex_t& mutex_;
  bool held_;
};

}  // namespace weft::sockets
