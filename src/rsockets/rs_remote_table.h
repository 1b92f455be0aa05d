// The table in the peer's memory that we write: where it may write next, and what we offer it to
// map. Its address and size come with the peer's private data.
//
// Values.
#pragma once

#include <cassert>
#include <cstdint>

#include "rsockets/rs_wire.h"

namespace weft::rsockets {

class RsRemoteTable {
 public:
  // Once. The first of our targets came with the private data: the next one is entry 1.
  void open(const RsConnect& peer) {
    assert(entries_ == 0 && peer.target_sgl.length != 0);
    addr_ = peer.target_sgl.addr;
    key_ = peer.target_sgl.key;
    entries_ = peer.target_sgl.length;
    next_ = 1 % entries_;
    is_wefts_ = peer.from_weft;
  }

  [[nodiscard]] std::uint32_t key() const { return key_; }
  // The entry for the next target.
  [[nodiscard]] std::uint64_t next_target() const {
    return addr_ + std::uint64_t{RsSge::kSize} * next_;
  }
  // It has been written.
  void target_written() {
    assert(entries_ != 0);
    next_ = (next_ + 1) % entries_;
  }
  // The entry for an offer of memory, behind the targets.
  [[nodiscard]] std::uint64_t offer(std::uint16_t slot) const {
    return addr_ + std::uint64_t{RsSge::kSize} * entries_ + std::uint64_t{RsIomap::kSize} * slot;
  }
  // An offer costs a credit for good, unless the peer is Weft: rdma-core never counts it as read.
  [[nodiscard]] bool offers_give_credit_back() const { return is_wefts_; }

 private:
  std::uint64_t addr_ = 0;
  std::uint32_t key_ = 0;
  std::uint32_t entries_ = 0;
  std::uint32_t next_ = 0;
  bool is_wefts_ = false;
};

}  // namespace weft::rsockets
