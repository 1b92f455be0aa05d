// Posting by the application, the orderly end, and every other end.
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/rdma_socket.h"

namespace weft::exs {
namespace {

// How long a peer may take to end the connection after both have finished.
constexpr auto kDisconnectLimit = std::chrono::seconds(5);
// A peer that has been told of a cancellation, and of which nothing is heard for so long, has
// stopped.
constexpr auto kQuiet = std::chrono::milliseconds(250);
// The same of our own device, which says nothing before a whole Write or Read is over: 8 MB/s.
constexpr auto kStuck = std::chrono::seconds(1);
constexpr auto kStuckPerByte = std::chrono::nanoseconds(125);

}  // namespace

void RdmaSocket::sends_posted() { flush(); }

void RdmaSocket::receives_posted() {
  flow_->receives_posted();
  flush();
}

bool RdmaSocket::readable() const {
  if (tcp_listener_ != nullptr) return tcp_listener_->readable();
  return flow_->readable();
}

// Where a send does not wait, there has to be room for it now.
bool RdmaSocket::writable() const {
  return port_.is_up() && (!s_.nonblocking || (port_.has_credit() && flow_->writable()));
}

void RdmaSocket::cancel() {
  flow_->cancel();
  flush();
  s_.look_at_cancelled_later();
}

void RdmaSocket::end_cancelled(Instant now) {
  // The end of the socket waits for the peer anyhow, as long as its linger time lets it.
  if (port_.gone() || s_.end.closing()) return;
  flow_->cancel_told();  // perhaps the peer has answered
  if (!revoke_stuck(s_.ops.receives, now) || !revoke_stuck(s_.ops.sends, now)) {
    return broke(ETIMEDOUT, "the peer takes nothing, and an operation has to be cancelled");
  }
  flush();
  s_.look_at_cancelled_later();
}

// Closes to the peer what it may reach, if it has been told of the end and says nothing: if it goes
// there all the same, the connection ends. False: our own device is at work, which only the end of
// the connection stops.
bool RdmaSocket::revoke_stuck(OperationList& list, Instant now) {
  const bool told = port_.all_said();
  std::size_t under_way = 0;
  for (const Operation& op : s_.ops.sends) under_way += op.handed;
  for (const Operation& op : s_.ops.receives) under_way += op.fetching ? op.total : 0;
  for (Operation& op : list) {
    const std::uint64_t moved = port_.retired() + s_.stats.messages_received + op.handed + op.done;
    if (op.advertised && told) {
      if (op.cancellation.is_stuck(now, moved, kQuiet)) s_.revoke(op, ECANCELED);
    } else if (op.cancellation.is_stuck(now, moved, kStuck + under_way * kStuckPerByte)) {
      return false;
    }
  }
  return true;
}

// ---- the orderly end

void RdmaSocket::shut_down() {
  end_.advance(SendingEvent::kStopped);
  flow_->stop();
  flush();
}

void RdmaSocket::close() {
  if (!port_.is_up() || s_.end.abortive() || s_.state != State::kConnected) {
    release();
    return s_.closed(0);
  }
  for (Operation& op : s_.ops.receives) op.cancellation.want();
  cancel();
  shut_down();
}

// After all sends: kFinish. After its answer: the application's events, and with exs_close the end
// of the connection, once the last message is on its way.
void RdmaSocket::advance_end() {
  if (end_.state() == SendingState::kOpen || port_.gone()) return;
  if (end_.state() == SendingState::kStopping) {
    if (!s_.ops.sends.empty() || !s_.ops.one_sided.empty()) return;
    end_.advance(SendingEvent::kFinishQueued);
    port_.queue_control(Type::kFinish, 0, 0, 0);
  }
  if (!end_.acknowledged()) return;
  if (!s_.ops.shutdown.empty()) s_.shut_down(0);
  if (!s_.end.closing() || end_.disconnecting() || !s_.ops.receives.empty()) return;
  if (!port_.all_said()) return;
  disconnect();
}

void RdmaSocket::disconnect() {
  assert(s_.ops.sends.empty());
  end_.advance(SendingEvent::kDisconnects);
  rdma_disconnect(port_.cm().id());
  disconnect_by_ = Clock::now() + kDisconnectLimit;
  engine_.schedule(s_.shared_from_this(), disconnect_by_);
}

void RdmaSocket::on_time() {
  const Instant now = Clock::now();
  if (end_.disconnecting() && !port_.gone() && now >= disconnect_by_) return ended();
  end_cancelled(now);
}

// The connection is over: by our own end, the peer's, or an accident.
void RdmaSocket::ended() {
  if (port_.gone()) return;
  const bool ours = s_.end.closing() && end_.acknowledged();
  const bool theirs = flow_->finished() && s_.state != State::kConnecting;
  release();
  if (ours) return s_.closed(0);
  if (!theirs) return broke(ECONNRESET, nullptr);
  // The peer has said all it had to say and has closed: receives find the end, sends nobody.
  s_.peer_gone = true;
  s_.finish_all(s_.ops.sends, EPIPE);
  s_.finish_all(s_.ops.one_sided, EPIPE);
  s_.finish_all(s_.ops.shutdown, EPIPE);
  if (s_.end.closing()) return s_.closed(end_.told() || s_.ops.sends.empty() ? 0 : EPIPE);
  s_.changed();
}

// Ends the connection at once. `why`: the peer's mistake, for the log.
void RdmaSocket::broke(int error, const char* why) {
  if (why != nullptr) log_line(s_, "connection reset", why);
  // Nobody has accepted it, and nobody will.
  if (passive_ && (s_.state == State::kConnecting || announce_)) s_.end.close();
  release();
  s_.failed(error);
}

// The listener counts it no more.
std::shared_ptr<Socket> RdmaSocket::leave_parent() {
  const std::shared_ptr<Socket> parent = parent_.lock();
  parent_.reset();
  if (parent != nullptr) parent->backlog.end_one();
  return parent;
}

// After this the device reaches no memory of this socket, and no report comes any more.
void RdmaSocket::release() {
  leave_parent();
  tcp_listener_.reset();
  port_.end();
  for (auto* list : {&s_.ops.sends, &s_.ops.receives, &s_.ops.one_sided}) {
    for (Operation& op : *list) {
      op.grants.clear();
      op.locals.clear();
    }
  }
  names_.release();
  flow_->release();
  port_.release();
}

}  // namespace weft::exs
