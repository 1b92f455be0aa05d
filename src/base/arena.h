// Memory that a caller handed in, given out from front to back and never taken back.
//
// One thread at a time. The memory outlives all that was made in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "base/profile.h"

namespace weft {

// Every piece begins at a multiple of this, and so does what a caller hands in.
inline constexpr std::size_t kArenaAlignment = alignof(std::max_align_t);

// `count` objects take at most this from an arena.
template <class T>
constexpr std::size_t arena_bytes(std::size_t count = 1) noexcept {
  const std::size_t whole =
      (count * sizeof(T) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  return alignof(T) <= kArenaAlignment ? whole : whole + alignof(T) - kArenaAlignment;
}

class Arena {
 public:
  // REQUIRES: memory.data() is a multiple of kArenaAlignment.
  explicit Arena(std::span<std::byte> memory) noexcept : left_(memory) {}

  // Room for `count` objects. Null: there is none.
  template <class T>
  [[nodiscard]] void* take(std::size_t count = 1) noexcept {
    if (arena_bytes<T>(count) > left_.size()) return nullptr;
    const auto begin = reinterpret_cast<std::uintptr_t>(left_.data());
    const std::size_t skip = (alignof(T) - begin % alignof(T)) % alignof(T);
    void* const at = left_.data() + skip;
    left_ = left_.subspan(arena_bytes<T>(count));
    return at;
  }
  // The objects themselves.
  template <class T>
  [[nodiscard]] T* make(std::size_t count = 1) noexcept {
    T* const first = static_cast<T*>(take<T>(count));
    if (first == nullptr) return nullptr;
    for (std::size_t i = 0; i < count; ++i) new (first + i) T;
    return first;
  }

 private:
  std::span<std::byte> left_;
};

// Deletes an array, unless it lies in an arena. There it is left to itself: its elements must need
// no destructor.
struct DeleteUnlessLent {
  bool lent = false;
  template <class T>
  void operator()(T* array) const noexcept {
    static_assert(std::is_trivially_destructible_v<T>);
    if (profile::kHeap && !lent) delete[] array;
  }
};

// An array of either kind.
template <class T>
using LentArray = std::unique_ptr<T[], DeleteUnlessLent>;

// `count` objects from `arena`, or, where there is none, from the heap. Null: no room.
template <class T>
[[nodiscard]] LentArray<T> make_array(Arena* arena, std::size_t count) noexcept {
  if (arena != nullptr) return {arena->make<T>(count), DeleteUnlessLent{true}};
  if constexpr (!profile::kHeap) return {nullptr, DeleteUnlessLent{true}};
  return {new (std::nothrow) T[count], DeleteUnlessLent{false}};
}

}  // namespace weft
