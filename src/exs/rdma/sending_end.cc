#include "exs/rdma/sending_end.h"

namespace weft::exs {

namespace {

constexpr SendingArrow kSendingArrows[] = {
    {SendingState::kOpen, SendingEvent::kStopped, SendingState::kStopping},
    {SendingState::kStopping, SendingEvent::kStopped, SendingState::kStopping},
    {SendingState::kStopping, SendingEvent::kFinishQueued, SendingState::kTold},
    {SendingState::kTold, SendingEvent::kStopped, SendingState::kTold},
    {SendingState::kTold, SendingEvent::kFinishedCame, SendingState::kAcknowledged},
    {SendingState::kAcknowledged, SendingEvent::kStopped, SendingState::kAcknowledged},
    {SendingState::kAcknowledged, SendingEvent::kDisconnects, SendingState::kDisconnecting},
    {SendingState::kDisconnecting, SendingEvent::kStopped, SendingState::kDisconnecting},
};

}  // namespace

std::span<const SendingArrow> sending_arrows() noexcept { return kSendingArrows; }

std::string_view describe(SendingState state) noexcept {
  switch (state) {
    case SendingState::kOpen: return "Open";
    case SendingState::kStopping: return "Stopping";
    case SendingState::kTold: return "Told";
    case SendingState::kAcknowledged: return "Acknowledged";
    case SendingState::kDisconnecting: return "Disconnecting";
  }
  return "unknown state";
}

std::string_view describe(SendingEvent event) noexcept {
  switch (event) {
    case SendingEvent::kStopped: return "stopped";
    case SendingEvent::kFinishQueued: return "end queued";
    case SendingEvent::kFinishedCame: return "answer came";
    case SendingEvent::kDisconnects: return "disconnects";
  }
  return "unknown event";
}

}  // namespace weft::exs
