#include "rsockets/rsocket_states.h"

namespace weft::rsockets {

namespace {

constexpr RsArrow kRsocket[] = {
    {RsState::kOpen, RsEvent::kListens, RsState::kListening},
    {RsState::kOpen, RsEvent::kConnects, RsState::kConnecting},
    {RsState::kOpen, RsEvent::kAnswers, RsState::kConnecting},
    {RsState::kOpen, RsEvent::kAccepted, RsState::kConnected},
    {RsState::kOpen, RsEvent::kClosed, RsState::kFailed},
    {RsState::kListening, RsEvent::kListens, RsState::kListening},
    {RsState::kListening, RsEvent::kListenRefused, RsState::kOpen},
    {RsState::kListening, RsEvent::kClosed, RsState::kFailed},
    {RsState::kConnecting, RsEvent::kNotBegun, RsState::kOpen},
    {RsState::kConnecting, RsEvent::kConnected, RsState::kConnected},
    {RsState::kConnecting, RsEvent::kFailed, RsState::kFailed},
    {RsState::kConnecting, RsEvent::kClosed, RsState::kFailed},
    {RsState::kConnected, RsEvent::kClosed, RsState::kFailed},
    {RsState::kFailed, RsEvent::kClosed, RsState::kFailed},
};

}  // namespace

std::span<const RsArrow> rsocket_arrows() noexcept { return kRsocket; }

std::string_view describe(RsState state) noexcept {
  switch (state) {
    case RsState::kOpen: return "Open";
    case RsState::kListening: return "Listening";
    case RsState::kConnecting: return "Connecting";
    case RsState::kConnected: return "Connected";
    case RsState::kFailed: return "Failed";
  }
  return "unknown state";
}

std::string_view describe(RsEvent event) noexcept {
  switch (event) {
    case RsEvent::kListens: return "listens";
    case RsEvent::kListenRefused: return "listening refused";
    case RsEvent::kConnects: return "connects";
    case RsEvent::kNotBegun: return "not begun";
    case RsEvent::kAnswers: return "answers";
    case RsEvent::kAccepted: return "accepted";
    case RsEvent::kConnected: return "connected";
    case RsEvent::kFailed: return "failed";
    case RsEvent::kClosed: return "closed";
  }
  return "unknown event";
}

}  // namespace weft::rsockets
