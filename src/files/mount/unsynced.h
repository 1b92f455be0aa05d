// Changes that the server has perhaps not flushed: for fsync(). The server has another
// verifier after each start, and may have lost by then what it was sent before. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "os/lock.h"

namespace weft::mount {

// They are those of all files by number, or of all folders by name.
template <class Key>
class Unsynced {
 public:
  static constexpr std::uint64_t kMixed = ~std::uint64_t{0};
  static constexpr std::size_t kMost = 65536;
  struct Sent {
    std::uint64_t verifier = 0;  // 0: nothing was sent; kMixed: under several
    std::uint64_t when = 0;      // the last of it
  };

  // Something was sent under this verifier. kMixed: nobody knows which it was.
  void note(const Key& key, std::uint64_t verifier) {
    const os::MutexLock lock(mutex_);
    const auto [at, is_new] = sent_.try_emplace(key, Sent{verifier, 0});
    // One that is new here may be among those that were forgotten.
    const std::uint64_t before = is_new ? forgotten_ : at->second.verifier;
    if (before != 0 && before != verifier) at->second.verifier = kMixed;
    at->second.when = ++clock_;
    if (sent_.size() < kMost) return;
    for (const auto& [other, one] : sent_) {
      forgotten_ = forgotten_ == 0 || forgotten_ == one.verifier ? one.verifier : kMixed;
    }
    sent_.clear();
  }

  // Not settled so far: before the server is asked to flush it.
  [[nodiscard]] Sent of(const Key& key) const {
    const os::MutexLock lock(mutex_);
    const auto at = sent_.find(key);
    return at != sent_.end() ? at->second : Sent{forgotten_, 0};
  }

  // The server has flushed all of `sent` under this verifier, or what it had of it.
  void settle(const Key& key, const Sent& sent, std::uint64_t verifier) {
    const os::MutexLock lock(mutex_);
    const auto at = sent_.find(key);
    const bool is_last = at != sent_.end() && at->second.when == sent.when;
    const bool lost = sent.verifier != 0 && sent.verifier != verifier;
    // Another call may have counted it already.
    if (lost && (is_last || sent.when == 0)) note_loss(key);
    if (is_last) sent_.erase(at);
  }

  // How often something was lost. Who saw another number before has to hear of it.
  [[nodiscard]] std::uint64_t losses(const Key& key) const {
    const os::MutexLock lock(mutex_);
    const auto at = losses_.find(key);
    return at != losses_.end() ? at->second : forgotten_losses_;
  }

 private:
  void note_loss(const Key& key) WEFT_REQUIRES(mutex_) {
    losses_[key] = ++clock_;
    if (losses_.size() < kMost) return;
    losses_.clear();
    forgotten_losses_ = clock_;
  }

  mutable os::Mutex mutex_;
  std::unordered_map<Key, Sent> sent_ WEFT_GUARDED_BY(mutex_);
  std::unordered_map<Key, std::uint64_t> losses_ WEFT_GUARDED_BY(mutex_);
  std::uint64_t clock_ WEFT_GUARDED_BY(mutex_) = 0;
  std::uint64_t forgotten_ WEFT_GUARDED_BY(mutex_) = 0;  // the verifier of what had no room
  std::uint64_t forgotten_losses_ WEFT_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft::mount
