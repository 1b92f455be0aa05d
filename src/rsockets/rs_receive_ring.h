// The octets of the receive ring of an rsocket, and the messages that announce them: how much is
// offered to the peer, unread, or free to be offered again.
//
// Values. The ring is offered by halves. Sequence numbers are modulo 2^16, as on the wire.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::rsockets {

class RsReceiveRing {
 public:
  // `bytes`: of the ring, even. `messages`: receives that the peer has credits for. Half of the
  // ring is offered from the start. Once, before use.
  void open(std::size_t bytes, std::uint16_t messages);

  [[nodiscard]] std::size_t unread() const { return unread_; }
  [[nodiscard]] std::uint64_t arrived() const { return arrived_; }  // octets, ever
  [[nodiscard]] std::size_t read_at() const { return read_at_; }    // where unread() begins

  // A message announces octets. False: more than was offered, or more messages than credits (H5,
  // H7).
  [[nodiscard]] bool announced(std::uint32_t length);
  // The program has taken octets. REQUIRES: they are unread().
  void taken(std::size_t count);
  // A message that announces none has been read.
  void message_read() { ++read_seq_; }

  // A half is free, to be offered to the peer: where it begins.
  [[nodiscard]] bool has_half() const { return free_ >= half(); }
  [[nodiscard]] std::size_t half() const { return bytes_ / 2; }
  [[nodiscard]] std::size_t half_at() const { return half_at_; }
  // It has been offered. REQUIRES has_half().
  void half_offered();

  // The peer has used up half of its credits, and is told of more.
  [[nodiscard]] bool credit_is_due() const {
    return static_cast<std::int16_t>(static_cast<std::uint16_t>(read_seq_ - credited_seq_)) >= 0;
  }
  // The number up to which it may send.
  [[nodiscard]] std::uint16_t credit() const {
    return static_cast<std::uint16_t>(read_seq_ + lengths_.size());
  }
  // It has been told.
  void credited() { credited_seq_ = static_cast<std::uint16_t>(read_seq_ + lengths_.size() / 2); }

 private:
  void check() const { assert(promised_ + unread_ + free_ == bytes_); }

  std::size_t bytes_ = 0;
  std::vector<std::uint32_t> lengths_;  // of unread messages, a ring
  std::size_t first_ = 0, count_ = 0;
  std::size_t unread_ = 0;
  std::uint64_t arrived_ = 0;
  std::size_t read_at_ = 0;
  std::size_t free_ = 0;      // read, and not yet offered again
  std::size_t half_at_ = 0;   // the next half to be offered
  std::size_t promised_ = 0;  // offered to the peer and not yet filled
  std::uint16_t read_seq_ = 0, credited_seq_ = 0;
};

}  // namespace weft::rsockets
