// The buffers posted on one connection, in the order of posting. The owner may share a buffer among
// connections: it is told when one is taken, and takes it off the others.
//
// One thread at a time. Memory is taken by allocate() only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rddp/fixed_queue.h"

namespace weft::rddp {

class PostedBuffers {
 public:
  struct Buffer {
    std::uint64_t wr_id = 0;
    void* data = nullptr;
    std::uint32_t size = 0;
  };
  // A message is about to fill this one.
  using TakenFn = void (*)(void* context, std::uint64_t wr_id);

  // False: no memory.
  [[nodiscard]] bool allocate(std::uint32_t depth, Arena* arena = nullptr) {
    return ring_.allocate(depth, arena);
  }
  static constexpr std::size_t memory_needed(std::uint32_t depth) noexcept {
    return FixedQueue<Buffer>::memory_needed(depth);
  }
  void on_taken(TakenFn fn, void* context) noexcept {
    taken_ = fn;
    context_ = context;
  }

  [[nodiscard]] std::size_t size() const noexcept { return ring_.size(); }
  [[nodiscard]] bool full() const noexcept { return ring_.full(); }
  // REQUIRES: not full().
  void add(const Buffer& buffer) noexcept { ring_.push(buffer); }
  // The oldest, for a message.
  [[nodiscard]] bool take(Buffer& out) noexcept {
    if (!remove_oldest(out)) return false;
    if (taken_ != nullptr) taken_(context_, out.wr_id);
    return true;
  }
  // The oldest, for the owner.
  [[nodiscard]] bool remove_oldest(Buffer& out) noexcept {
    if (ring_.empty()) return false;
    out = ring_.pop();
    return true;
  }
  // The oldest with this number; false: none.
  [[nodiscard]] bool remove(std::uint64_t wr_id) noexcept {
    for (std::size_t i = 0; i < ring_.size(); ++i) {
      if (ring_[i].wr_id != wr_id) continue;
      ring_.remove(i);
      return true;
    }
    return false;
  }

 private:
  FixedQueue<Buffer> ring_;
  TakenFn taken_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace weft::rddp
