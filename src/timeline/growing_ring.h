// A queue of plain values. It takes memory only to grow beyond what it has ever been.
#pragma once

#include <cstddef>
#include <vector>

namespace weft::timeline {

template <class T>
class Ring {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  // From the oldest on. REQUIRES: there are that many.
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return slots_[slot(i)]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return slots_[slot(i)]; }
  [[nodiscard]] T& front() noexcept { return (*this)[0]; }
  [[nodiscard]] const T& front() const noexcept { return (*this)[0]; }
  [[nodiscard]] T& back() noexcept { return (*this)[size_ - 1]; }

  // Without memory it stays as it is.
  void push_back(const T& value) {
    if (size_ == slots_.size()) grow();
    slots_[slot(size_)] = value;
    ++size_;
  }
  void pop_back() noexcept { --size_; }
  void pop_front(std::size_t count = 1) noexcept {
    first_ = slot(count);
    size_ -= count;
  }
  void clear() noexcept { size_ = 0; }

 private:
  static constexpr std::size_t kLeast = 16;  // a power of 2, as all sizes of slots_

  [[nodiscard]] std::size_t slot(std::size_t i) const noexcept {
    return (first_ + i) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<T> more(slots_.empty() ? kLeast : 2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i) more[i] = (*this)[i];
    slots_.swap(more);
    first_ = 0;
  }

  std::vector<T> slots_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace weft::timeline
