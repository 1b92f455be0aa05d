#include "session_pair.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::testing {

using namespace std::chrono_literals;

SessionSide::SessionSide(const proto::SessionLimits& limits, std::uint64_t secret)
    : endpoint({.arena_bytes = 64U << 10U, .queue_depth = 16, .secret = secret}),
      session(limits, *this, endpoint) {
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

void SessionSide::request_arrived(const proto::StartupPeer& peer) {
  events.emplace_back("request");
  peer_data = text(peer.private_data);
  if (rejects_at_once) {
    EXPECT_TRUE(session.reject(offer_now().private_data).has_value());
  } else if (accepts_at_once) {
    EXPECT_TRUE(accept().has_value());
  }
}

void SessionSide::stream_starting(const proto::Negotiated&, proto::StreamParams&) {
  events.emplace_back("starting");
}

void SessionSide::established(const proto::Negotiated& agreed, const proto::StartupPeer& peer) {
  events.emplace_back("established");
  peer_data = text(peer.private_data);
  EXPECT_EQ(agreed.initiator, session.is_initiator());
}

void SessionSide::rejected(const proto::StartupPeer& peer) {
  events.emplace_back("rejected");
  peer_data = text(peer.private_data);
}

void SessionSide::failed(const proto::SessionFailure& what) {
  EXPECT_FALSE(failure.has_value()) << "failed() twice";
  events.emplace_back("failed");
  failure = what;
}

void SessionSide::ended(proto::StreamEnd how, TerminateCode, bool) {
  EXPECT_FALSE(end.has_value()) << "ended() twice";
  events.emplace_back("ended");
  end = how;
}

SessionPair::SessionPair(std::uint64_t seed, const proto::SessionLimits& limits)
    : client(limits, 1), server(limits, 2), rng_(seed), scratch_(proto::kScratchBytesMin) {}

bool SessionPair::transmit(int i) {
  Pipe& out = pipes_[i];
  if (out.closed) return false;
  proto::Session& session = side(i).session;
  if (late_release && out.unreleased != 0 && rng_.one_in(2)) {
    const std::size_t n = rng_.size(1, out.unreleased);
    out.unreleased -= n;
    session.released(n);
    return true;
  }
  const std::span<const Slice> slices = session.gather();
  if (slices.empty()) {
    if (!session.take_fin()) return false;
    return out.fin = true;
  }
  const std::size_t most = rng_.size(1, chunk_max);
  std::size_t n = 0;
  for (const Slice& slice : slices) {
    const std::size_t piece = std::min(most - n, slice.size);
    if (!out.fin) out.octets.insert(out.octets.end(), slice.data, slice.data + piece);
    n += piece;
  }
  session.sent(n);
  if (late_release) {
    out.unreleased += n;
  } else {
    session.released(n);
  }
  return true;
}

bool SessionPair::receive(int i) {
  Pipe& in = pipes_[1 - i];
  if (pipes_[i].closed) return false;
  proto::Session& session = side(i).session;
  if (in.octets.empty()) {
    if (!in.fin || in.fin_seen) return false;
    in.fin_seen = true;
    session.peer_closed();
    return true;
  }
  std::size_t n = rng_.size(1, std::min(in.octets.size(), chunk_max));
  if (pushes) {
    std::vector<std::uint8_t> bytes(in.octets.begin(),
                                    in.octets.begin() + static_cast<std::ptrdiff_t>(n));
    in.octets.erase(in.octets.begin(), in.octets.begin() + static_cast<std::ptrdiff_t>(n));
    session.feed(bytes);
    return true;
  }
  proto::RxPlan plan;
  session.want(plan, scratch_);
  n = std::min(n, plan.bytes);
  std::size_t left = n;
  for (std::size_t s = 0; left != 0; ++s) {
    for (std::size_t k = 0; k < plan.slices[s].size && left != 0; ++k, --left) {
      plan.slices[s].data[k] = in.octets.front();
      in.octets.pop_front();
    }
  }
  session.arrived(n);
  return true;
}

void SessionPair::close_finished(int i) {
  Pipe& mine = pipes_[i];
  if (mine.closed || !side(i).session.finished()) return;
  mine.closed = true;
  mine.unreleased = 0;
  side(i).session.transport_closed();
  if (side(i).session.wants_reset()) {
    mine.was_reset = true;
    mine.octets.clear();
    if (!pipes_[1 - i].closed) side(1 - i).session.transport_lost(false);
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
    if (!pipes_[i].closed) next = std::min(next, side(i).session.deadline());
  }
  if (next.is_never()) return false;
  client.endpoint.clock = server.endpoint.clock = next;
  for (int i = 0; i < 2; ++i) {
    if (!pipes_[i].closed) side(i).session.expired(next);
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
    if (!pipes_[i].closed) side(i).session.transport_lost(false);
    close_finished(i);
  }
}

}  // namespace weft::testing
