// One RDMA device as the server uses it: its domain, its completion channel, and the memory through
// which files go (staging) and names go (lists). A part of it belongs to a session at a time; the
// heap of device memory (base/block_heap.h) keeps the sessions apart and takes all back when one
// ends. Lists have memory of their own, so that no client that takes its data slowly keeps others
// from looking at a folder.
//
// One thread.
#pragma once

#include <memory>
#include <span>

#include "base/block_heap.h"
#include "files/protocol/registered.h"

namespace weft::files {

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
  // An area and who has which part of it.
  struct Area {
    Registered memory;
    std::span<std::uint8_t> octets;  // all of it
    std::unique_ptr<BlockHeap> heap;
    std::uint64_t held_bytes = 0;
  };
  [[nodiscard]] Area& staging() { return staging_; }
  [[nodiscard]] Area& lists() { return lists_; }

  // Somebody who holds nothing got nothing: who holds memory and does not drain it has to go.
  bool starved = false;

 private:
  explicit Port(ibv_context* verbs) : verbs_(verbs) {}

  ibv_context* verbs_;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  Area staging_, lists_;
};

}  // namespace weft::files
