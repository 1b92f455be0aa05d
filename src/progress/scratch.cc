#include "progress/scratch.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cassert>

#include "os/lock.h"
#include "proto/fpdu_reader.h"

namespace weft::progress {

constinit thread_local std::uint8_t* Scratch::t_own = nullptr;
// Zero pages of the program until it is used.
std::uint8_t Scratch::g_shared[kBytes];

// Frees a thread's buffer when the thread ends, as long as this library is there.
class ScratchKey {
 public:
  ScratchKey() noexcept {
    made_ = pthread_key_create(&key_, [](void* buffer) {
              Scratch::t_own = nullptr;
              ::munmap(buffer, Scratch::kBytes);
            }) == 0;
  }
  ~ScratchKey() {
    if (made_) pthread_key_delete(key_);
  }
  ScratchKey(const ScratchKey&) = delete;
  ScratchKey& operator=(const ScratchKey&) = delete;
  [[nodiscard]] bool keep(void* buffer) const noexcept {
    return made_ && pthread_setspecific(key_, buffer) == 0;
  }

 private:
  pthread_key_t key_{};
  bool made_ = false;
};

namespace {

const ScratchKey g_key;
constinit os::SpinLock g_shared_lock;
constinit thread_local bool t_shares = false;  // this thread holds the shared one

// Pages of its own, as the allocator would take for so much: in a child of fork() nobody knows the
// buffers of the parent's threads any more, and that is no leak of the heap.
std::uint8_t* make_own(std::size_t bytes) {
  void* const made =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  if (g_key.keep(made)) return static_cast<std::uint8_t*>(made);
  ::munmap(made, bytes);
  return nullptr;
}

}  // namespace

void Scratch::find() noexcept WEFT_NOT_ANALYZED {
  static_assert(kBytes >= proto::kScratchBytesMin);
  at_ = t_own = make_own(kBytes);
  if (at_ != nullptr) return;
  at_ = g_shared;
  if (t_shares) return;  // a turn within a turn: a send that has met a reset reads what is there
  g_shared_lock.lock();
  locked_ = t_shares = true;
}

void Scratch::give_back() noexcept WEFT_NOT_ANALYZED {
  assert(locked_ && t_shares && at_ == g_shared);
  t_shares = false;
  g_shared_lock.unlock();
}

}  // namespace weft::progress
