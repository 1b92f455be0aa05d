// Counts the Acks that wired queue pairs have asked for and given: the numbers behind
// StreamParams::acks, which stream_ack.cc explains. Where there are no Acks, everything counts as
// placed once it is built, and nothing asks.
//
// One thread at a time. Numbers wrap.
#pragma once

#include <cstdint>
#include <utility>

#include "base/profile.h"
#include "proto/work.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::proto {

class Acks {
 public:
  explicit Acks(bool wanted) noexcept : wanted_(wanted) {}

  // --- the end that asks ---

  // kAskBit, if the message of this request is to ask; else 0. `queue`: how many requests the send
  // queue has room for. No more than half of them in a row ask nothing.
  [[nodiscard]] std::uint8_t ask_bit(const SendWqe& wqe, std::uint32_t queue) const noexcept {
    if (!wanted()) return 0;
    const bool asks =
        wqe.has_flag(SendFlags::kSignaled) || wqe.awaits_response() || unasked_ + 1 >= queue / 2;
    return asks ? kAskBit : 0;
  }
  // Behind the message that was built of it with these bits.
  void number(SendWqe& wqe, std::uint8_t bits) noexcept {
    if (!wanted()) return;
    if ((bits & kAskBit) != 0) {
      unasked_ = 0;
      wqe.ask = ++asks_sent_;
    } else {
      ++unasked_;
      wqe.ask = asks_sent_ + 1;
    }
  }
  // One that puts nothing on the wire is complete when all before it is.
  void number_local(SendWqe& wqe) noexcept {
    if (!wanted()) return;
    wqe.ask = unasked_ == 0 ? asks_sent_ : asks_sent_ + 1;
    ask_for_rest();
  }
  // Whether the request is placed at the peer.
  [[nodiscard]] bool cover(const SendWqe& wqe) const noexcept {
    return !wanted() || static_cast<std::int32_t>(asks_acked_ - wqe.ask) >= 0;
  }
  // All that has asked up to this number is placed.
  void reach(std::uint32_t number) noexcept {
    if (static_cast<std::int32_t>(number - asks_acked_) > 0) asks_acked_ = number;
  }
  // The peer says so. False: it has been asked no such thing.
  [[nodiscard]] bool placed(std::uint32_t number) noexcept;

  // Requests have been built that have not asked.
  [[nodiscard]] bool unasked() const noexcept { return unasked_ != 0; }
  // An empty Write is to ask for what has not asked itself.
  void ask_for_rest() noexcept { question_due_ = question_due_ || unasked(); }
  [[nodiscard]] bool question_due() const noexcept { return profile::kWired && question_due_; }
  void take_question() noexcept { question_due_ = false; }
  // That Write has been built.
  void asked_alone() noexcept {
    ++asks_sent_;
    unasked_ = 0;
  }

  // The number that a request not built yet would be behind.
  [[nodiscard]] std::uint32_t asks_sent() const noexcept { return asks_sent_; }
  // The request behind this number, and all after it, will be built once more; those before it are
  // placed. False: more than that has been acknowledged.
  [[nodiscard]] bool go_back(std::uint32_t number) noexcept;
  // ... and of those before it, from `begin` on, these have not asked.
  void count_unasked(SendQueue& queue, std::uint32_t begin, std::uint32_t end) noexcept;

  // --- the end that is asked ---

  // The last segment of a message with these bits has been delivered.
  void delivered(std::uint8_t bits, Opcode op) noexcept;
  [[nodiscard]] bool ack_due() const noexcept { return profile::kWired && ack_due_; }
  // For a message that completed a receive.
  [[nodiscard]] bool due_to_receive() const noexcept { return ack_due() && asked_by_receive_; }
  // True once: an Ack is due, of received() messages.
  [[nodiscard]] bool take_ack() noexcept { return std::exchange(ack_due_, false); }
  [[nodiscard]] std::uint32_t received() const noexcept { return asks_received_; }

 private:
  [[nodiscard]] bool wanted() const noexcept { return profile::kWired && wanted_; }

  const bool wanted_;
  bool question_due_ = false;
  bool ack_due_ = false;
  bool asked_by_receive_ = false;    // the last message that asked completed a receive
  std::uint32_t asks_sent_ = 0;      // messages built with kAskBit
  std::uint32_t asks_acked_ = 0;     // of these, placed at the peer
  std::uint32_t unasked_ = 0;        // work requests built since the last of them
  std::uint32_t asks_received_ = 0;  // messages placed here that asked
};

}  // namespace weft::proto
