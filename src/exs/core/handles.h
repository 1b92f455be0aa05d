// Handles: numbers of the application for objects of the library. A number that has been given back
// is not given out again before thousands of others, so that a stale one is found out.
//
// Any thread. What find() returns stays alive as long as the caller keeps it.
#pragma once

#include <cassert>
#include <cstddef>
#include <memory>
#include <vector>

#include "os/lock.h"

namespace weft::exs {

template <class T>
class Handles {
 public:
  // -1: there are as many objects as there can be.
  int add(std::shared_ptr<T> object) {
    assert(object != nullptr);
    const os::WriteLock lock(mutex_);
    std::size_t index = 0;
    if (free_.size() > kReuseAfter || (slots_.size() == kMax && !free_.empty())) {
      index = free_.front();
      free_.erase(free_.begin());
    } else {
      if (slots_.size() == kMax) return -1;
      index = slots_.size();
      slots_.emplace_back();
    }
    assert(index < kMax && slots_[index].object == nullptr);
    slots_[index].object = std::move(object);
    return static_cast<int>(slots_[index].generation * kMax + index);
  }

  [[nodiscard]] std::shared_ptr<T> find(int handle) const {
    const os::ReadLock lock(mutex_);
    const Slot* slot = slot_of(handle);
    return slot != nullptr ? slot->object : nullptr;
  }

  // The same, and `use` gets it before anybody can take it out.
  template <class Use>
  std::shared_ptr<T> find(int handle, Use use) const {
    const os::ReadLock lock(mutex_);
    const Slot* slot = slot_of(handle);
    if (slot == nullptr) return nullptr;
    use(*slot->object);
    return slot->object;
  }

  // Takes the object out if `ready` says that it may go. Null: no such handle, or not ready.
  template <class Ready>
  std::shared_ptr<T> remove_if(int handle, Ready ready) {
    const os::WriteLock lock(mutex_);
    auto* slot = const_cast<Slot*>(slot_of(handle));
    if (slot == nullptr || !ready(*slot->object)) return nullptr;
    auto object = std::move(slot->object);
    slot->generation = (slot->generation + 1) % kGenerations;
    free_.push_back(static_cast<std::size_t>(handle) % kMax);
    return object;
  }

 private:
  static constexpr std::size_t kMax = 1U << 20U;
  static constexpr std::size_t kGenerations = 1U << 11U;  // together 31 bits
  static constexpr std::size_t kReuseAfter = 64;

  struct Slot {
    std::shared_ptr<T> object;
    std::size_t generation = 0;
  };

  [[nodiscard]] const Slot* slot_of(int handle) const WEFT_REQUIRES_SHARED(mutex_) {
    if (handle < 0) return nullptr;
    const std::size_t index = static_cast<std::size_t>(handle) % kMax;
    if (index >= slots_.size() || slots_[index].object == nullptr) return nullptr;
    return slots_[index].generation == static_cast<std::size_t>(handle) / kMax ? &slots_[index]
                                                                               : nullptr;
  }

  mutable os::SharedMutex mutex_;
  std::vector<Slot> slots_ WEFT_GUARDED_BY(mutex_);
  std::vector<std::size_t> free_ WEFT_GUARDED_BY(mutex_);
};

}  // namespace weft::exs
