// How many messages may be sent, and how many the peer may send: buffers that have been given back
// to it.
//
// Values. Totals modulo 2^32, as every header tells them.
#pragma once

#include <cassert>
#include <cstdint>

namespace weft::exs {

class SlotCredits {
 public:
  // Messages that the peer, who has `slots` buffers, can take now.
  [[nodiscard]] std::uint32_t left(std::uint32_t slots) const {
    assert(sent_ - peer_returned_ <= slots);
    return slots - (sent_ - peer_returned_);
  }
  void sent() { ++sent_; }
  // The peer's total. False: it breaks the protocol.
  [[nodiscard]] bool on_returned(std::uint32_t total) {
    if (total - peer_returned_ > sent_ - peer_returned_) return false;
    peer_returned_ = total;
    return true;
  }

  // The peer, whom we have offered `slots` buffers, has sent a message. False: more than it has
  // been told that it may, which breaks the protocol. Their buffers may be there all the same.
  [[nodiscard]] bool on_message(std::uint32_t slots) { return ++received_ - told_ <= slots; }
  // Buffers of ours are there for the peer again.
  void returned(std::uint32_t count) { returned_ += count; }
  // Our total, as it is told to the peer.
  std::uint32_t tell() { return told_ = returned_; }
  [[nodiscard]] std::uint32_t untold() const { return returned_ - told_; }

 private:
  std::uint32_t sent_ = 0;
  std::uint32_t peer_returned_ = 0;
  std::uint32_t received_ = 0;
  std::uint32_t returned_ = 0;
  std::uint32_t told_ = 0;
};

}  // namespace weft::exs
