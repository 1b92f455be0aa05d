// The buffers posted on one connection, in the order of posting. The owner may share a buffer among
// connections: it is told when one is taken, and takes it off the others.
//
// One thread at a time. Memory is taken by allocate() only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

  void allocate(std::uint32_t depth) { ring_.resize(depth); }
  void on_taken(TakenFn fn, void* context) noexcept {
    taken_ = fn;
    context_ = context;
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool full() const noexcept { return count_ == ring_.size(); }
  // REQUIRES: not full().
  void add(const Buffer& buffer) noexcept { at(count_++) = buffer; }
  // The oldest, for a message.
  [[nodiscard]] bool take(Buffer& out) noexcept {
    if (!remove_oldest(out)) return false;
    if (taken_ != nullptr) taken_(context_, out.wr_id);
    return true;
  }
  // The oldest, for the owner.
  [[nodiscard]] bool remove_oldest(Buffer& out) noexcept {
    if (count_ == 0) return false;
    out = ring_[head_];
    head_ = (head_ + 1) % ring_.size();
    --count_;
    return true;
  }
  // The oldest with this number; false: none.
  [[nodiscard]] bool remove(std::uint64_t wr_id) noexcept {
    std::size_t i = 0;
    while (i < count_ && at(i).wr_id != wr_id) ++i;
    if (i == count_) return false;
    for (; i + 1 < count_; ++i) at(i) = at(i + 1);
    --count_;
    return true;
  }

 private:
  [[nodiscard]] Buffer& at(std::size_t i) noexcept { return ring_[(head_ + i) % ring_.size()]; }

  std::vector<Buffer> ring_;
  std::size_t head_ = 0, count_ = 0;
  TakenFn taken_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace weft::rddp
