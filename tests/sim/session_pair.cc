#include "session_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace weft::testing {

using namespace std::chrono_literals;

SessionSide::SessionSide(const proto::SessionLimits& limits, std::uint64_t secret)
    : endpoint({.arena_bytes = 64U << 10U, .queue_depth = 16, .secret = secret}), session(limits) {
  offer.ird = offer.ord = 4;
}

proto::StartupOffer SessionSide::offer_now() {
  proto::StartupOffer now = offer;
  now.private_data = {reinterpret_cast<const std::uint8_t*>(private_data.data()),
                      private_data.size()};
  return now;
}

std::string SessionSide::story() const {
  std::string all;
  for (const std::string& event : events) all += (all.empty() ? "" : " ") + event;
  return all;
}

namespace {

std::string text(std::span<const std::uint8_t> data) { return {data.begin(), data.end()}; }

}  // namespace

Status SessionSide::start() {
  const Status made = session.request(offer_now());
  if (made) session.begin(endpoint.clock);
  return made;
}

Status SessionSide::accept() {
  const Status taken = session.accept(offer_now(), endpoint.clock);
  follow();
  return taken;
}

void SessionSide::follow() {
  using Notice = proto::SessionNotice;
  for (Notice n = session.take_notice(); n != Notice::kNone; n = session.take_notice()) take(n);
}

void SessionSide::take(proto::SessionNotice notice) {
  using Notice = proto::SessionNotice;
  switch (notice) {
    case Notice::kNone: return;
    case Notice::kRequest:
      events.emplace_back("request");
      peer_data = text(session.peer().private_data);
      if (rejects_at_once) {
        EXPECT_TRUE(session.reject(offer_now().private_data, endpoint.clock).has_value());
      } else if (accepts_at_once) {
        EXPECT_TRUE(session.accept(offer_now(), endpoint.clock).has_value());
      }
      return;
    case Notice::kAgreed: begin_stream(); return;
    case Notice::kEstablished:
      events.emplace_back("established");
      peer_data = text(session.peer().private_data);
      session.drop_frames();
      return;
    case Notice::kAbortStream:
      stream->abort();
      settle();
      return;
    case Notice::kRejected:
      events.emplace_back("rejected");
      peer_data = text(session.peer().private_data);
      return;
    case Notice::kFailed:
      EXPECT_FALSE(failure.has_value()) << "told twice";
      events.emplace_back("failed");
      failure = session.failure();
      return;
    case Notice::kEnded:
      EXPECT_FALSE(failure.has_value()) << "told twice";
      events.emplace_back("ended");
      failure = session.failure();
      ended = true;
      return;
  }
}

void SessionSide::begin_stream() {
  events.emplace_back("starting");
  agreed = session.agreed();
  EXPECT_EQ(agreed.initiator, session.is_initiator());
  proto::StreamParams params = proto::stream_params(agreed, 50ms, 50ms);
  params.id = Endpoint::kId;
  stream.emplace(params, endpoint, endpoint.table(), endpoint.sq());
  stream->start();
  if (runs_late) return;
  session.stream_running(endpoint.clock);
}

// Tells the session what has become of the stream.
void SessionSide::settle() {
  follow();
  if (stream && stream->first_fpdu_seen() && !std::exchange(first_fpdu_told_, true)) {
    session.first_fpdu();
  }
  if (stream && stream->is_down() && !std::exchange(down_told_, true)) {
    session.stream_down(stream->end());
  }
  follow();
}

std::vector<std::uint8_t> SessionSide::gather(std::size_t most) {
  std::vector<std::uint8_t> out;
  if (!stream) {
    const auto frame = session.to_send();
    out.assign(frame.begin(),
               frame.begin() + static_cast<std::ptrdiff_t>(std::min(most, frame.size())));
    frame_octets += out.size();
    if (!out.empty()) session.sent(out.size());
  } else if (const proto::TxBatch* const batch = stream->gather(); batch != nullptr) {
    for (std::size_t i = batch->slice_next; i < batch->slice_count && out.size() < most; ++i) {
      const Slice& s = batch->slices[i];
      out.insert(out.end(), s.data, s.data + std::min(s.size, most - out.size()));
    }
    stream->sent(out.size());
    stream->released(out.size());
  }
  settle();
  return out;
}

std::size_t SessionSide::wanted(std::size_t there) {
  return stream ? there : std::min(there, session.wanted());
}

void SessionSide::arrived(std::span<const std::uint8_t> octets) {
  if (stream) {
    std::vector<std::uint8_t> copy(octets.begin(), octets.end());
    stream->feed(copy);
  } else {
    session.arrived(octets);
  }
  settle();
}

void SessionSide::peer_closed() {
  stream ? stream->peer_closed() : session.peer_closed();
  settle();
}

void SessionSide::transport_lost() {
  stream ? stream->transport_lost(false) : session.transport_lost(Error::kConnectionLost);
  settle();
}

void SessionSide::close() {
  stream->close();
  settle();
}

void SessionSide::abort() {
  session.abort();
  follow();
}

Instant SessionSide::deadline() const {
  return stream ? std::min(session.deadline(), stream->deadline()) : session.deadline();
}

void SessionSide::expired(Instant now) {
  session.expired(now);
  follow();
  if (stream) stream->expired(now);
  settle();
}

bool SessionSide::finished() const {
  return stream ? stream->finished() : session.state() == proto::SessionState::kOver;
}

bool SessionSide::wants_reset() const {
  if (stream) return stream->wants_reset();
  using Fault = proto::SessionFault;
  const Fault fault = session.failure().fault;
  return fault == Fault::kAborted || fault == Fault::kReplyTimeout || fault == Fault::kSendTimeout;
}

SessionPair::SessionPair(std::uint64_t seed, const proto::SessionLimits& limits)
    : client(limits, 1), server(limits, 2), rng_(seed) {}

bool SessionPair::transmit(int i) {
  Pipe& out = pipes_[i];
  if (out.closed) return false;
  const std::vector<std::uint8_t> octets = side(i).gather(rng_.size(1, chunk_max));
  if (octets.empty()) {
    if (!side(i).take_fin()) return false;
    return out.fin = true;
  }
  if (!out.fin) out.octets.insert(out.octets.end(), octets.begin(), octets.end());
  return true;
}

bool SessionPair::receive(int i) {
  Pipe& in = pipes_[1 - i];
  if (pipes_[i].closed) return false;
  if (in.octets.empty()) {
    if (!in.fin || in.fin_seen) return false;
    in.fin_seen = true;
    side(i).peer_closed();
    return true;
  }
  const auto n = static_cast<std::ptrdiff_t>(
      side(i).wanted(rng_.size(1, std::min(in.octets.size(), chunk_max))));
  if (n == 0) return false;
  const std::vector<std::uint8_t> octets(in.octets.begin(), in.octets.begin() + n);
  in.octets.erase(in.octets.begin(), in.octets.begin() + n);
  side(i).arrived(octets);
  return true;
}

void SessionPair::close_finished(int i) {
  Pipe& mine = pipes_[i];
  if (mine.closed || !side(i).finished()) return;
  mine.closed = true;
  if (side(i).wants_reset()) {
    mine.was_reset = true;
    mine.octets.clear();
    if (!pipes_[1 - i].closed) side(1 - i).transport_lost();
    if (!pipes_[1 - i].closed) close_finished(1 - i);
  } else {
    mine.fin = true;
  }
}

void SessionPair::run() {
  for (int still = 0; still < 100; ++still) {
    const int i = rng_.one_in(2) ? 0 : 1;
    if (rng_.one_in(2) ? transmit(i) : receive(i)) still = 0;
    close_finished(0);
    close_finished(1);
  }
}

bool SessionPair::wait() {
  Instant next = Instant::never();
  for (int i = 0; i < 2; ++i) {
    if (!pipes_[i].closed) next = std::min(next, side(i).deadline());
  }
  if (next.is_never()) return false;
  client.endpoint.clock = server.endpoint.clock = next;
  for (int i = 0; i < 2; ++i) {
    if (!pipes_[i].closed) side(i).expired(next);
    close_finished(i);
  }
  run();
  return true;
}

void SessionPair::inject(int i, std::span<const std::uint8_t> octets) {
  pipes_[i].octets.insert(pipes_[i].octets.end(), octets.begin(), octets.end());
}

void SessionPair::cut(int i) { pipes_[i].fin = true; }

void SessionPair::reset() {
  for (int i = 0; i < 2; ++i) {
    if (!pipes_[i].closed) side(i).transport_lost();
    close_finished(i);
  }
}

}  // namespace weft::testing
