// Memory that the program has mapped for its rsocket, and the offers of it that the peer has still
// to be told.
//
// Values. With the lock of the stream.
#pragma once

#include <weft/device.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "rsockets/rs_wire.h"

namespace weft::rsockets {

class RsMaps {
 public:
  // An entry of the peer's table.
  struct Offer {
    std::uint16_t slot = 0;
    RsIomap entry;
  };

  // The peer has `slots` entries for offers. Once.
  void open(std::size_t slots) {
    assert(slots_.empty());
    slots_.assign(slots, false);
  }

  // Registers [addr, addr + length). `writable`: it is offered to the peer, at `offset` of our name
  // space.
  //   kNoSpace      the peer has no free entry;  kLimitExceeded, kInvalidArgument: registration
  [[nodiscard]] Status add(ProtectionDomain& pd, void* addr, std::size_t length, bool writable,
                           std::uint64_t offset);
  // The peer is not told: see RsStream::unmap().
  //   kNotFound     nothing is mapped there with this length
  [[nodiscard]] Status remove(void* addr, std::size_t length);
  // No peer and no device reaches any of it any more.
  void clear() { mappings_.clear(); }

  // Offers to be told, oldest first.
  [[nodiscard]] bool pending() const { return !offers_.empty(); }
  [[nodiscard]] const Offer& next() const {
    assert(pending());
    return offers_.front();
  }
  void told() {
    assert(pending());
    offers_.pop_front();
  }

 private:
  struct Mapping {
    void* addr = nullptr;
    std::size_t length = 0;
    std::uint16_t slot = 0;
    bool offered = false;
    std::shared_ptr<MemoryRegion> region;
  };

  std::vector<bool> slots_;  // of the peer's table: taken
  std::vector<Mapping> mappings_;
  std::deque<Offer> offers_;
};

}  // namespace weft::rsockets
