// The state of an rsocket. A table: docs/states.md shows it.
//
// Values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"

namespace weft::rsockets {

enum class RsState : std::uint8_t { kOpen, kListening, kConnecting, kConnected, kFailed };

enum class RsEvent : std::uint8_t {
  kListens,        // rlisten(), and again with another backlog
  kListenRefused,  // by the service thread
  kConnects,
  kNotBegun,
  kAnswers,   // the service thread answers the connect of a peer for it
  kAccepted,  // raccept() has made it
  kConnected,
  kFailed,
  kClosed,
};

using RsArrow = Arrow<RsState, RsEvent>;
[[nodiscard]] std::span<const RsArrow> rsocket_arrows() noexcept;
[[nodiscard]] std::string_view describe(RsState state) noexcept;
[[nodiscard]] std::string_view describe(RsEvent event) noexcept;

}  // namespace weft::rsockets
