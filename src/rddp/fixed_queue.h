// A queue of fixed capacity. Memory is taken by allocate() only, from the heap or from a caller's
// arena, and a lack of it is told, not thrown. One thread at a time.
#pragma once

#include <cassert>
#include <cstddef>

#include "base/arena.h"

namespace weft::rddp {

template <class T>
class FixedQueue {
 public:
  // Once, before anything else. False: no memory.
  [[nodiscard]] bool allocate(std::size_t capacity, Arena* arena = nullptr) {
    items_ = make_array<T>(arena, capacity);
    if (items_ == nullptr) return false;
    capacity_ = capacity;
    return true;
  }

  static constexpr std::size_t memory_needed(std::size_t capacity) noexcept {
    return arena_bytes<T>(capacity);
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool full() const noexcept { return count_ == capacity_; }

  // The oldest is [0].  REQUIRES: i < size().
  [[nodiscard]] T& operator[](std::size_t i) noexcept {
    assert(i < count_);
    return items_[(head_ + i) % capacity_];
  }
  // REQUIRES: not full().
  void push(const T& item) noexcept {
    assert(!full());
    ++count_;
    (*this)[count_ - 1] = item;
  }
  // The oldest.  REQUIRES: not empty().
  T pop() noexcept {
    const T item = (*this)[0];
    head_ = (head_ + 1) % capacity_;
    --count_;
    return item;
  }
  // REQUIRES: i < size().
  void remove(std::size_t i) noexcept {
    for (; i + 1 < count_; ++i) (*this)[i] = (*this)[i + 1];
    --count_;
  }
  // The oldest that is equal; false: none.
  bool remove_one(const T& item) noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      if ((*this)[i] != item) continue;
      remove(i);
      return true;
    }
    return false;
  }

 private:
  LentArray<T> items_;
  std::size_t capacity_ = 0;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace weft::rddp
