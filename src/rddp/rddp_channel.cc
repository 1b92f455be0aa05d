#include "rddp/rddp_channel.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

namespace weft::rddp {

bool Channel::on(PhaseEvent event) noexcept { return follow(phase_arrows(), phase_, event); }

// --- start-up ---

Status Channel::initiate(const proto::StartupOffer& offer) {
  if (phase_ != Phase::kIdle) return fail(Error::kBadState);
  if (startup_room_ == nullptr) return fail(Error::kNoMemory);
  if (const Status good = check(offer); !good) return good;
  auto* made = new (startup_room_) proto::Startup(proto::Startup::responder());
  if (const Status begun = made->request(offer); !begun) return begun;
  startup_ = made;
  (void)on(PhaseEvent::kBegun);
  return {};
}

Status Channel::check(const proto::StartupOffer& offer) const noexcept {
  if (std::max(offer.ird, offer.ord) <= reads_max_) return {};
  return fail(Error::kLimitExceeded);
}

void Channel::respond() {
  if (phase_ != Phase::kIdle) return;
  if (startup_room_ == nullptr) {
    (void)on(PhaseEvent::kNoMemory);
    return;
  }
  startup_ = new (startup_room_) proto::Startup(proto::Startup::responder());
  (void)on(PhaseEvent::kBegun);
}

Status Channel::accept(const proto::StartupOffer& offer) {
  if (phase_ != Phase::kRequest) return fail(Error::kBadState);
  if (const Status good = check(offer); !good) return good;
  const Status taken = startup_->accept(offer);
  if (taken) (void)on(PhaseEvent::kAnswered);
  return taken;
}

Status Channel::reject(std::span<const std::uint8_t> private_data) {
  if (phase_ != Phase::kRequest) return fail(Error::kBadState);
  const Status taken = startup_->reject(private_data);
  if (taken) (void)on(PhaseEvent::kAnswered);
  return taken;
}

std::span<const std::uint8_t> Channel::private_data() const noexcept {
  if (startup_ == nullptr) return kept_data_;
  return startup_->peer().private_data;
}

void Channel::end_startup(std::span<std::uint8_t> kept) noexcept {
  static_assert(std::is_trivially_destructible_v<proto::Startup>);
  const std::span<const std::uint8_t> data = startup_->peer().private_data;
  const std::size_t size = std::min(data.size(), kept.size());
  if (size != 0) std::memcpy(kept.data(), data.data(), size);
  kept_data_ = kept.first(size);
  startup_ = nullptr;
}

// Octets of `bytes` that belong to the peer's frame.
std::size_t Channel::startup_received(std::span<const std::uint8_t> bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && phase_ == Phase::kStarting && !stream_runs()) {
    // A responder that still has to answer gets everything: the initiator should have waited.
    const std::size_t missing = startup_->missing();
    const std::size_t rest = bytes.size() - used;
    const std::size_t give = missing == 0 ? rest : std::min(missing, rest);
    const auto taken = startup_->received(bytes.subspan(used, give));
    if (taken) used += *taken;
    follow_startup();
    if (!taken || *taken == 0) break;
  }
  return used;
}

void Channel::follow_startup() {
  switch (startup_->state()) {
    case proto::StartupState::kRequestReady: (void)on(PhaseEvent::kRequested); break;
    case proto::StartupState::kDone:
      if (!on(PhaseEvent::kEstablished)) break;  // lost meanwhile
      negotiated_ = startup_->result();
      stream_runs_ = begin_stream();
      if (!stream_runs_) (void)on(PhaseEvent::kNoMemory);
      break;
    case proto::StartupState::kRejected: (void)on(PhaseEvent::kRefused); break;
    case proto::StartupState::kFailed: (void)on(PhaseEvent::kFailed); break;
    default: break;
  }
}

// --- the transport's side ---

void Channel::received(std::span<std::uint8_t> bytes) {
  if (phase_ == Phase::kRequest && !bytes.empty()) {  // the initiator did not wait for the Reply
    (void)startup_->received(bytes);
    follow_startup();
    return;
  }
  if (phase_ == Phase::kStarting) bytes = bytes.subspan(startup_received(bytes));
  if (bytes.empty()) return;
  if (phase_ == Phase::kRequest)
    return received(bytes);  // behind the Request, in one piece with it
  if (stream_runs()) stream_feed(bytes);
}

proto::Ahead Channel::place_ahead(std::uint32_t /*distance*/,
                                  std::span<const std::uint8_t> /*bytes*/) const {
  return {};
}

void Channel::peer_closed() {
  if (stream_runs()) {
    stream_peer_closed();
  } else if (startup_ != nullptr) {
    startup_->peer_closed();
    follow_startup();
  }
}

void Channel::lost(bool timed_out) {
  if (stream_runs()) {
    stream_lost(timed_out);
  } else {
    (void)on(PhaseEvent::kLost);  // one that was refused stays so
  }
}

bool Channel::tx_pending() const noexcept {
  if (stream_runs()) return stream_tx_pending();
  return startup_ != nullptr && !startup_->to_send().empty();
}

TxFpdu Channel::next_fpdu() {
  if (stream_runs()) {
    const proto::TxBatch* batch = stream_gather();
    if (batch == nullptr) return {};
    return {batch->unsent(), batch->unsent_of_fpdu(), true};
  }
  const std::span<const Slice> frame = next_slices();
  if (frame.empty()) return {};
  return {frame, frame.front().size, false};
}

std::span<const Slice> Channel::next_slices() {
  if (stream_runs()) {
    const proto::TxBatch* batch = stream_gather();
    if (batch == nullptr) return {};
    return batch->unsent();
  }
  if (startup_ == nullptr) return {};
  const auto bytes = startup_->to_send();
  if (bytes.empty()) return {};
  startup_slice_ = {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  return {&startup_slice_, 1};
}

void Channel::taken(std::size_t n) {
  if (stream_runs()) {
    stream_sent(n);
  } else if (startup_ != nullptr && n != 0) {
    startup_->sent(n);
    startup_octets_ += n;
    follow_startup();
  }
}

void Channel::released(std::size_t n) {
  const std::size_t frame = std::min(n, startup_octets_);
  startup_octets_ -= frame;
  if (stream_runs() && n != frame) stream_released(n - frame);
}

void Channel::transport_closed() {
  if (stream_runs()) stream_transport_closed();
}

bool Channel::take_fin() { return stream_runs() && stream_take_fin(); }

bool Channel::finished() const noexcept {
  if (stream_runs()) return stream_finished();
  return phase_ == Phase::kRefused || phase_ == Phase::kFailed;
}

bool Channel::wants_reset() const noexcept {
  return stream_runs() ? stream_wants_reset() : aborted_;
}

void Channel::close() {
  if (stream_runs()) stream_close();
}

void Channel::abort() {
  if (stream_runs()) {
    stream_abort();
  } else {
    (void)on(PhaseEvent::kAborted);
    aborted_ = true;
  }
}

}  // namespace weft::rddp
