// One RDMA device as the server uses it: its domain, its completion channel, and the staging memory
// through which files go. A part of the staging memory belongs to a session at a time; the heap of
// device memory (base/block_heap.h) keeps the sessions apart and takes all back when one ends.
//
// One thread.
#pragma once

#include <memory>

#include "base/block_heap.h"
#include "store/rdma.h"

namespace weft::store {

class Port {
 public:
  [[nodiscard]] static Outcome<std::unique_ptr<Port>> create(ibv_context* verbs,
                                                             std::uint64_t staging_bytes);
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  [[nodiscard]] ibv_context* verbs() const { return verbs_; }
  [[nodiscard]] ibv_pd* pd() const { return pd_; }
  [[nodiscard]] ibv_comp_channel* channel() const { return channel_; }
  [[nodiscard]] BlockHeap& heap() { return *heap_; }
  [[nodiscard]] std::uint8_t* at(const BlockHeap::Extent& extent) const {
    return staging_.data() + extent.offset;
  }
  [[nodiscard]] std::uint32_t lkey() const { return staging_.lkey(); }

 private:
  explicit Port(ibv_context* verbs) : verbs_(verbs) {}

  ibv_context* verbs_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  Registered staging_;
  std::unique_ptr<BlockHeap> heap_;
};

}  // namespace weft::store
