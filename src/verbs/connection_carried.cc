// A connection that only carries the numbers of queue pairs: rdma_cm of RoCE-like devices, which
// does what InfiniBand's CM does. The MPA frames are its REQ, REP and REJ (roce/cm_header.h), an
// octet its RTU, the FIN of the end that disconnects its DREQ, and that of the other its DREP. No
// stream runs on it.
#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <utility>

#include "io/socket.h"
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
Status ConnectionImpl::Carrier::fill(const ConnectionParams& params, proto::StartupOffer& offer) {
  Lock::assume(c_);
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

// Takes the queue pair of the peer's frame into `event`. Returns the program's part of its private
// data.
std::span<const std::uint8_t> ConnectionImpl::Carrier::take(ConnectionEvent& event) const {
  Lock::assume(c_);
  const std::span<const std::uint8_t> all = c_.session_.peer().private_data;
  ByteReader in(all);
  const auto header = roce::decode_cm_header(in);
  if (!header) return all;
  event.carried = carried_of(*header);
  return all.subspan(roce::CmHeader::kSize);
}

// Whether the peer's frame carries a queue pair, or none, as it should.
bool ConnectionImpl::Carrier::speaks_as(bool carrying) const {
  Lock::assume(c_);
  ByteReader in(c_.session_.peer().private_data);
  return roce::decode_cm_header(in).has_value() == carrying;
}

// Both frames are through.
void ConnectionImpl::Carrier::begin(Lock& lock) {
  lock.covers(c_);
  assert(carries_ && !up_ && !ends_ && c_.qp_ == nullptr);
  const proto::Negotiated& agreed = c_.session_.agreed();
  ConnectionInfo& info = c_.info_;
  info.initiator = agreed.initiator;
  info.mpa_revision = agreed.revision;
  info.ird = agreed.ird;
  info.ord = agreed.ord;
  if (agreed.initiator && !speaks_as(true)) {
    c_.set_up_failed(lock, Type::kConnectError, Error::kProtocol,
                     "the peer is no RoCE-like device");
    return;
  }
  c_.phase_.on(ConnectionStep::kCarries);
  c_.socket_.clear_timer();
  c_.socket_.watch(EPOLLIN);
  if (agreed.initiator) io::keep_alive(c_.socket_.get(), c_.device_->config().keepalive);
  if (!agreed.initiator) {
    // The peer's program makes its queue pair ready, and takes its time.
    c_.socket_.set_timer(os::now() + c_.device_->config().reply_timeout);
    c_.session_.drop_frames();
    return;
  }
  ConnectionEvent event;
  event.type = Type::kResponse;
  event.ird = info.ird;
  event.ord = info.ord;
  const auto own = take(event);
  event.private_data.assign(own.begin(), own.end());
  c_.session_.drop_frames();
  c_.post(lock, std::move(event));
}

bool ConnectionImpl::Carrier::say(std::uint8_t what) {
  Lock::assume(c_);
  return os::calls::send(c_.socket_.get(), &what, sizeof what, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         sizeof what;
}

Status ConnectionImpl::establish() {
  if (!device_->usable()) return fail(Error::kBadState);
  const Lock lock(*this);
  return carrier_.establish();
}

Status ConnectionImpl::Carrier::establish() {
  Lock::assume(c_);
  if (c_.phase_ == Phase::kDown && carries_) return fail(Error::kConnectionLost);
  if (c_.phase_ != Phase::kCarrying || !c_.info_.initiator || up_) return fail(Error::kBadState);
  if (!say(roce::kCmReadyToUse)) return fail(Error::kConnectionLost);
  up_ = true;
  c_.device_->note_opened();
  return {};
}

void ConnectionImpl::Carrier::disconnect() {
  Lock::assume(c_);
  if (std::exchange(ends_, true)) return;
  if (peer_ended_) return close();
  ::shutdown(c_.socket_.get(), SHUT_WR);
  c_.socket_.set_timer(os::now() + c_.device_->config().close_timeout);
}

void ConnectionImpl::Carrier::read(Lock& lock) {
  lock.covers(c_);
  std::array<std::uint8_t, 2> octets;
  const ssize_t n = os::calls::recv(c_.socket_.get(), octets.data(), octets.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == 0 && up_ && !ends_) return peer_disconnects(lock);
  if (n == 0) return ended(lock, std::nullopt);
  if (n < 0) return ended(lock, Error::kConnectionLost);
  const bool awaited = !c_.info_.initiator && !up_;
  if (awaited && octets[0] == roce::kCmRejected) {
    c_.set_up_failed(lock, Type::kRejected, Error::kRefused, "rejected by the peer's application");
    return;
  }
  if (n != 1 || !awaited || octets[0] != roce::kCmReadyToUse) {
    return ended(lock, Error::kProtocol);
  }
  up_ = true;
  if (!ends_) c_.socket_.clear_timer();
  c_.device_->note_opened();
  ConnectionEvent event;
  event.type = Type::kEstablished;
  event.ird = c_.info_.ird;
  event.ord = c_.info_.ord;
  c_.post(lock, std::move(event));
}

// The program knows, and answers by disconnect(), or by letting go. The peer's hears of its own
// disconnect by that answer, as with InfiniBand: when it does, this one has heard.
void ConnectionImpl::Carrier::peer_disconnects(Lock& lock) {
  lock.covers(c_);
  c_.socket_.unwatch();
  tell_end(lock, std::nullopt);
  peer_ended_ = true;  // not where there was no memory to tell: ended() does it then
}

// The peer has closed, is gone, or has taken too long.
void ConnectionImpl::Carrier::ended(Lock& lock, std::optional<Error> error) {
  lock.covers(c_);
  // A limit that runs out behind our own disconnect is no error: the peer is gone or stopped.
  if (ends_) error.reset();
  if (!up_ && !ends_) {
    const bool silent = error == Error::kTimedOut;
    c_.set_up_failed(lock, silent ? Type::kUnreachable : Type::kConnectError,
                     error.value_or(Error::kConnectionLost),
                     "the peer left before the connection was established");
    return;
  }
  close();
  if (!peer_ended_) tell_end(lock, error);
}

void ConnectionImpl::Carrier::tell_end(Lock& lock, std::optional<Error> error) {
  lock.covers(c_);
  ConnectionEvent event;
  event.type = Type::kDisconnected;
  event.error = error;
  c_.post(lock, std::move(event));
}

void ConnectionImpl::Carrier::close() {
  Lock::assume(c_);
  c_.socket_.stand_down();
  c_.socket_.close(false);
  c_.phase_.on(ConnectionStep::kEnded);
}

// By abort(), or because the program has let go.
void ConnectionImpl::Carrier::end(Lock& lock, bool tell) {
  lock.covers(c_);
  if (c_.info_.initiator && !up_) static_cast<void>(say(roce::kCmRejected));
  if (tell) return ended(lock, Error::kAborted);
  close();
}

}  // namespace weft::verbs
