// The rules of SOCK_STREAM: when bytes go straight to the receiver's memory, when by way of its
// ring.
//
// Two transition functions, one for each end of one direction. No I/O, no memory, no clock: they
// say which bytes go where, the caller moves them. tests/exs/stream_model_test.cc explores every
// interleaving of small cases with these very classes.
//
// Every byte has a number in the stream. A receiver that waits sends *adverts* of its memory.
// Adverts come in *chains*: the first one of a chain names the number of the byte that it is for,
// the others follow on. A chain is dead as soon as a byte takes the ring: what its adverts would
// have received is in the ring, and they are void at both ends. So
//   - a sender begins a chain only at its own next byte: nothing is under way past the advert;
//   - a receiver begins one only with an empty ring, with a new, higher number;
//   - no advert of a dead chain is ever used, since the transport keeps the order of messages.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <vector>

namespace weft::exs {

// The end that sends.
class StreamSender {
 public:
  enum class Way : std::uint8_t { kWait, kDirect, kRing };
  struct Step {
    Way way = Way::kWait;
    std::uint64_t length = 0;  // bytes of this step, all to one place
    std::uint64_t at = 0;      // kDirect: offset in the advert; kRing: offset in the ring
    std::uint64_t advert = 0;  // kDirect: its number, counted from 0 over all accepted ones
    bool advert_ends = false;  // kDirect: the advert is used up by this step
  };
  enum class Verdict : std::uint8_t { kAccepted, kStale, kViolation };

  explicit StreamSender(std::uint64_t ring_bytes) : ring_bytes_(ring_bytes) {}

  // An advert has come. kStale: ignore it, the receiver will find out by itself.
  Verdict on_advert(std::uint32_t chain, std::uint64_t seq, std::uint64_t length, bool wait_all);
  // The receiver asks to end a chain. False: it breaks the protocol.
  bool on_close_chain(std::uint32_t chain);
  // The total of bytes that have left the ring. False: it breaks the protocol.
  bool on_ring_consumed(std::uint64_t total);

  // Where the next of `available` bytes go. Changes nothing.
  [[nodiscard]] Step next(std::uint64_t available) const;
  // The step has been sent.
  void took(const Step& step);

  [[nodiscard]] std::uint64_t seq() const { return seq_; }
  [[nodiscard]] std::uint64_t ring_free() const { return ring_bytes_ - (ring_sent_ - consumed_); }
  [[nodiscard]] bool has_advert() const { return !adverts_.empty(); }
  // The number of the advert that the next direct byte goes to.
  [[nodiscard]] std::uint64_t first_advert() const { return first_advert_; }
  [[nodiscard]] std::uint64_t switches() const { return switches_; }

  // All of its state as numbers, for tests that explore.
  void describe(std::vector<std::uint64_t>& out) const;

 private:
  struct Advert {
    std::uint64_t length = 0;
    std::uint64_t filled = 0;
    bool wait_all = false;
  };

  std::uint64_t ring_bytes_;
  std::uint64_t seq_ = 0;
  std::uint64_t ring_sent_ = 0;
  std::uint64_t consumed_ = 0;
  std::uint32_t chain_ = 0;  // the last one seen
  bool alive_ = false;       // it may still be used
  std::deque<Advert> adverts_;
  std::uint64_t first_advert_ = 0;  // the number of adverts_.front()
  std::uint64_t switches_ = 0;
};

// The end that receives.
class StreamReceiver {
 public:
  struct Advert {
    std::uint32_t chain = 0;
    std::uint64_t seq = 0;
  };
  struct Placed {
    bool ok = false;           // false: the sender broke the protocol
    std::uint64_t length = 0;  // bytes of the head advert that this fills
    bool ends = false;         // the advert is complete
  };

  explicit StreamReceiver(std::uint64_t ring_bytes) : ring_bytes_(ring_bytes) {}

  // An advert may be sent now: the ring is empty, and the sender has no chain to close.
  [[nodiscard]] bool may_advertise() const { return ring_used() == 0 && !closing_; }
  // REQUIRES may_advertise(). The receive of `length` bytes becomes the last of the open adverts.
  Advert advertise(std::uint64_t length, bool wait_all);

  // `length` bytes of the stream, from `seq` on, belong to the head of the open adverts. REQUIRES
  // to be called once for each step of the sender.
  Placed on_direct(std::uint64_t seq, std::uint64_t length);
  // `length` bytes from `seq` on have taken the ring: every open advert is void. False: the sender
  // broke the protocol.
  bool on_ring(std::uint64_t seq, std::uint64_t length);
  // Bytes have been copied out of the ring.
  void consumed(std::uint64_t length) {
    assert(length <= ring_used());
    consumed_ += length;
  }

  // Bytes that have left the ring may be counted back. While receives wait with their memory
  // offered, the sender had better take that: so it is told only once it does. It runs out of ring
  // meanwhile, and the next chain finds it waiting at the right byte.
  [[nodiscard]] bool may_report_ring() const { return adverts_.empty() || direct_in_chain_; }

  // Wants its adverts back; returns the chain to name to the sender. REQUIRES open() > 0.
  std::uint32_t close_chain();
  // The sender's answer: the adverts that are still open are void. False: it breaks the protocol.
  bool on_chain_closed(std::uint32_t chain);

  [[nodiscard]] std::size_t open() const { return adverts_.size(); }
  [[nodiscard]] std::uint64_t seq() const { return seq_; }
  [[nodiscard]] bool closing() const { return closing_; }
  [[nodiscard]] std::uint64_t ring_used() const { return received_ - consumed_; }
  [[nodiscard]] std::uint64_t ring_consumed() const { return consumed_; }
  // Where in the ring the next byte to copy out lies.
  [[nodiscard]] std::uint64_t ring_head() const { return consumed_ % ring_bytes_; }
  [[nodiscard]] std::uint64_t ring_tail() const { return received_ % ring_bytes_; }

  void describe(std::vector<std::uint64_t>& out) const;

 private:
  struct Open {
    std::uint64_t length = 0;
    std::uint64_t filled = 0;
    bool wait_all = false;
  };

  std::uint64_t ring_bytes_;
  std::uint64_t seq_ = 0;
  std::uint64_t received_ = 0;  // by way of the ring
  std::uint64_t consumed_ = 0;
  std::uint32_t chain_ = 0;
  bool in_chain_ = false;  // the next advert continues chain_
  std::uint64_t chain_seq_ = 0;
  bool closing_ = false;
  bool direct_in_chain_ = false;  // an advert of the chain has been used
  std::deque<Open> adverts_;
};

}  // namespace weft::exs
