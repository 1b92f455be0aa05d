// How the sending side of a connection over RDMA ends. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::exs {

enum class SendingState : std::uint8_t {
  kOpen,
  kStopping,       // no more sends will be posted
  kTold,           // kFinish has been sent, or is queued
  kAcknowledged,   // kFinished has come: the peer has everything
  kDisconnecting,  // both have finished, and the connection is being ended
};

enum class SendingEvent : std::uint8_t {
  kStopped,  // exs_shutdown or exs_close, and perhaps one after the other
  kFinishQueued,
  kFinishedCame,
  kDisconnects,
};

using SendingArrow = Arrow<SendingState, SendingEvent>;
[[nodiscard]] std::span<const SendingArrow> sending_arrows() noexcept;
[[nodiscard]] std::string_view describe(SendingState state) noexcept;
[[nodiscard]] std::string_view describe(SendingEvent event) noexcept;

class SendingEnd {
 public:
  [[nodiscard]] SendingState state() const { return state_; }
  // The peer has been told that no data follows.
  [[nodiscard]] bool told() const { return state_ >= SendingState::kTold; }
  // It has answered that all is there.
  [[nodiscard]] bool acknowledged() const { return state_ >= SendingState::kAcknowledged; }
  [[nodiscard]] bool disconnecting() const { return state_ == SendingState::kDisconnecting; }

  // False: the event is not for this state, and nothing changes.
  [[nodiscard]] bool on(SendingEvent event) { return follow(sending_arrows(), state_, event); }
  // The same, for an event that this state has an arrow for.
  void advance(SendingEvent event) { weft::advance(sending_arrows(), state_, event); }

 private:
  SendingState state_ = SendingState::kOpen;
};

}  // namespace weft::exs
