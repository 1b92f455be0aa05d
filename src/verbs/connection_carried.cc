// A connection that only carries the numbers of queue pairs: rdma_cm of RoCE-like devices, which
// does what InfiniBand's CM does. The MPA frames are its REQ, REP and REJ (roce/cm_header.h), an
// octet its RTU, and the end of the TCP connection its DREQ and DREP. No stream runs on it.
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "os/calls.h"
#include "os/clock.h"
#include "roce/cm_header.h"
#include "verbs/connection.h"

namespace weft::verbs {

using Type = ConnectionEvent::Type;

namespace {

roce::CmHeader header_of(const CarriedQp& qp) {
  roce::CmHeader h;
  h.shared_queue = qp.shared_queue;
  h.retry_count = qp.retry_count;
  h.rnr_retry = qp.rnr_retry;
  h.gid = qp.gid;
  h.number = qp.number;
  h.psn = qp.psn;
  return h;
}

CarriedQp carried_of(const roce::CmHeader& h) {
  CarriedQp qp;
  qp.shared_queue = h.shared_queue;
  qp.retry_count = h.retry_count;
  qp.rnr_retry = h.rnr_retry;
  qp.gid = h.gid;
  qp.number = h.number;
  qp.psn = h.psn;
  return qp;
}

bool is_legal(const CarriedQp& qp) {
  constexpr std::uint32_t k24Bits = 0xff'ffff;
  constexpr std::uint8_t kRetriesMax = 7;
  return qp.number <= k24Bits && qp.psn <= k24Bits && qp.retry_count <= kRetriesMax &&
         qp.rnr_retry <= kRetriesMax;
}

}  // namespace

// Puts our queue pair in front of the program's data.
Status ConnectionImpl::fill_carried(const ConnectionParams& params, proto::StartupOffer& offer) {
  if (!is_legal(*params.carried)) return fail(Error::kInvalidArgument);
  frame_data_.resize(roce::CmHeader::kSize);
  ByteWriter out(frame_data_);
  encode(header_of(*params.carried), out);
  frame_data_.insert(frame_data_.end(), params.private_data.begin(), params.private_data.end());
  offer.private_data = frame_data_;
  offer.revision = 2;
  offer.peer_to_peer = false;  // who speaks first is no question here
  return {};
}

// What the peer's frame carries, into `event`. Returns the program's part of its private data.
std::span<const std::uint8_t> ConnectionImpl::take_carried(ConnectionEvent& event) const {
  const std::span<const std::uint8_t> all = session_.peer().private_data;
  ByteReader in(all);
  const auto header = roce::decode_cm_header(in);
  if (!header) return all;
  event.carried = carried_of(*header);
  return all.subspan(roce::CmHeader::kSize);
}

// Whether the peer's frame carries a queue pair, or none, as it should.
bool ConnectionImpl::speaks_as(bool carrying) const {
  ByteReader in(session_.peer().private_data);
  return roce::decode_cm_header(in).has_value() == carrying;
}

// Both frames are through.
void ConnectionImpl::carry(Lock& lock) {
  const proto::Negotiated& agreed = session_.agreed();
  info_.initiator = agreed.initiator;
  info_.mpa_revision = agreed.revision;
  info_.ird = agreed.ird;
  info_.ord = agreed.ord;
  if (agreed.initiator && !speaks_as(true)) {
    set_up_failed(lock, Type::kConnectError, Error::kProtocol, "the peer is no RoCE-like device");
    return;
  }
  phase_ = Phase::kCarrying;
  clear_timer();
  watch(EPOLLIN);
  if (!agreed.initiator) {
    // The peer's program makes its queue pair ready, and takes its time.
    set_timer(os::now() + device_->config().reply_timeout);
    session_.drop_frames();
    return;
  }
  ConnectionEvent event;
  event.type = Type::kResponse;
  event.ird = info_.ird;
  event.ord = info_.ord;
  const auto own = take_carried(event);
  event.private_data.assign(own.begin(), own.end());
  session_.drop_frames();
  post(lock, std::move(event));
}

bool ConnectionImpl::say(std::uint8_t what) {
  return os::calls::send(socket_.get(), &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         sizeof what;
}

Status ConnectionImpl::establish() {
  if (!device_->usable()) return fail(Error::kBadState);
  Lock lock(*this);
  if (phase_ == Phase::kDown && carries_) return fail(Error::kConnectionLost);
  if (phase_ != Phase::kCarrying || !info_.initiator || carried_up_) return fail(Error::kBadState);
  if (!say(roce::kCmReadyToUse)) return fail(Error::kConnectionLost);
  carried_up_ = true;
  device_->note_opened();
  return {};
}

void ConnectionImpl::read_carrier(Lock& lock) {
  std::array<std::uint8_t, 2> octets;
  const ssize_t n = os::calls::recv(socket_.get(), octets.data(), octets.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == 0) return carrier_ends(lock, std::nullopt);
  if (n < 0) return carrier_ends(lock, Error::kConnectionLost);
  const bool awaited = !info_.initiator && !carried_up_;
  if (awaited && octets[0] == roce::kCmRejected) {
    set_up_failed(lock, Type::kRejected, Error::kRefused, "rejected by the peer's application");
    return;
  }
  if (n != 1 || !awaited || octets[0] != roce::kCmReadyToUse) {
    return carrier_ends(lock, Error::kProtocol);
  }
  carried_up_ = true;
  if (!carried_ends_) clear_timer();
  device_->note_opened();
  ConnectionEvent event;
  event.type = Type::kEstablished;
  event.ird = info_.ird;
  event.ord = info_.ord;
  post(lock, std::move(event));
}

// The peer has closed, is gone, or has taken too long.
void ConnectionImpl::carrier_ends(Lock& lock, std::optional<Error> error) {
  // A limit that runs out behind our own disconnect is no error: the peer is gone or stopped.
  if (carried_ends_) error.reset();
  if (!carried_up_ && !carried_ends_) {
    const bool silent = error == Error::kTimedOut;
    set_up_failed(lock, silent ? Type::kUnreachable : Type::kConnectError,
                  error.value_or(Error::kConnectionLost),
                  "the peer left before the connection was established");
    return;
  }
  unwatch();
  clear_timer();
  close_socket(false);
  phase_ = Phase::kDown;
  ConnectionEvent event;
  event.type = Type::kDisconnected;
  event.error = error;
  post(lock, std::move(event));
}

// By abort(), or because the program has let go.
void ConnectionImpl::end_carrier(Lock& lock, bool tell) {
  if (info_.initiator && !carried_up_) static_cast<void>(say(roce::kCmRejected));
  if (tell) return carrier_ends(lock, Error::kAborted);
  unwatch();
  clear_timer();
  close_socket(false);
  phase_ = Phase::kDown;
}

}  // namespace weft::verbs
