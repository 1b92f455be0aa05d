// The numbers of SOCK_SEQPACKET: which message is next, how many wait for a receive, and how full
// the ring is that small ones wait in.
//
// Two classes, one for each end of one direction. No I/O, no memory, no clock: they count, the
// caller moves the bytes. Numbers of messages begin with 0.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "exs/core/exs_messages.h"

namespace weft::exs {

// The end that sends.
class PacketSender {
 public:
  // As the receiver offers.
  explicit PacketSender(const Hello& offer)
      : messages_(offer.messages), ring_bytes_(offer.ring_bytes) {}

  // The receiver has room for one more message.
  [[nodiscard]] bool may_send() const {
    return static_cast<std::uint32_t>(seq_) - consumed_ < messages_;
  }
  [[nodiscard]] std::uint64_t ring_free() const {
    return ring_bytes_ - (ring_sent_ - ring_consumed_);
  }
  // A message of `ring_bytes` in the receiver's ring, none if it is to be fetched. Its number.
  // REQUIRES room for it.
  std::uint64_t send(std::uint64_t ring_bytes);
  // The receiver's totals: messages that wait no more, bytes that have left the ring. Why they
  // break the protocol; null: they do not.
  [[nodiscard]] const char* on_consumed(std::uint32_t messages, std::uint64_t ring_bytes);

 private:
  std::uint32_t messages_;
  std::uint64_t ring_bytes_;
  std::uint64_t seq_ = 0;
  std::uint32_t consumed_ = 0;
  std::uint64_t ring_sent_ = 0;
  std::uint64_t ring_consumed_ = 0;
};

// The end that receives.
class PacketReceiver {
 public:
  // As we have offered.
  explicit PacketReceiver(const Hello& offer)
      : messages_(offer.messages), ring_bytes_(offer.ring_bytes) {}

  // Message `seq` has come, `ring_bytes` of it for the ring. Why that breaks the protocol; null: it
  // does not. `waiting`: how many wait already.
  [[nodiscard]] const char* on_message(std::uint64_t seq, std::size_t waiting,
                                       std::uint64_t ring_bytes);
  // A message waits no more, and its bytes have left the ring.
  void consumed(std::uint64_t ring_bytes);
  [[nodiscard]] bool has_come(std::uint64_t seq) const { return seq < next_; }

  [[nodiscard]] std::uint64_t ring_used() const { return ring_received_ - ring_consumed_; }
  [[nodiscard]] std::uint64_t ring_consumed() const { return ring_consumed_; }
  // Where in the ring the first message lies, and where one that has come lies: its end is the
  // ring's.
  [[nodiscard]] std::uint64_t ring_head() const { return ring_consumed_ % ring_bytes_; }
  [[nodiscard]] std::uint64_t ring_last(std::uint64_t length) const {
    assert(length <= ring_used());
    return (ring_received_ - length) % ring_bytes_;
  }

  // The total of messages that wait no more, as it is told to the sender.
  std::uint32_t tell() { return told_ = consumed_; }
  // The sender may well wait for that.
  [[nodiscard]] bool has_to_tell() const {
    return consumed_ - told_ >= std::max(1U, messages_ / 2);
  }

 private:
  std::uint32_t messages_;
  std::uint64_t ring_bytes_;
  std::uint64_t next_ = 0;
  std::uint32_t consumed_ = 0;
  std::uint32_t told_ = 0;
  std::uint64_t ring_received_ = 0;
  std::uint64_t ring_consumed_ = 0;
};

}  // namespace weft::exs
