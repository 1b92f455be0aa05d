#include "sim_pair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace weft::testing {

using namespace std::chrono_literals;
using proto::Startup;
using proto::StartupState;
using proto::Stream;
using proto::TxBatch;

namespace {

Startup make_initiator(const proto::StartupOffer& offer) {
  auto startup = Startup::initiator(offer);
  EXPECT_TRUE(startup.has_value());
  return startup ? *startup : Startup::responder();
}

}  // namespace

SimConfig busy_config(std::uint64_t seed, std::uint64_t choices) {
  Rng rng(choices);
  SimConfig c;
  c.seed = seed;
  for (auto& offer : c.offer) {
    offer.crc = rng.one_in(2);
    offer.markers = rng.one_in(2);
    offer.ird = offer.ord = 4;
  }
  for (auto& ulpdu : c.max_ulpdu) ulpdu = rng.one_in(2) ? rng.u32(128, 2000) : 16384;
  constexpr std::size_t kChunks[] = {13, 100, 1460, 70000};
  c.chunk_max = kChunks[rng.size(0, 3)];
  c.stalls = rng.one_in(3);
  c.late_receives = rng.one_in(3);
  c.acks = rng.one_in(4);
  c.in_place = rng.one_in(3);
  return c;
}

proto::StreamParams params_of(const proto::Negotiated& n) {
  proto::StreamParams p;
  p.initiator = n.initiator;
  p.crc = n.crc;
  p.tx_markers = n.tx_markers;
  p.rx_markers = n.rx_markers;
  p.rtr = n.initiator ? n.rtr : RtrKind::kNone;
  p.startup_failure = n.startup_failure;
  p.ird = n.ird;
  p.ord = n.ord;
  return p;
}

SimPair::SimPair(const SimConfig& config)
    : config_(config),
      rng_(config.seed),
      client_(config.endpoint),
      server_(
          {config.endpoint.arena_bytes, config.endpoint.queue_depth, config.endpoint.secret + 1}),
      startup_{make_initiator(config.offer[0]), Startup::responder()},
      scratch_(proto::kScratchBytesMin) {}

bool SimPair::establish() {
  for (int idle = 0; idle < 1000; ++idle) {
    if (step_startup(rng_.one_in(2) ? 0 : 1)) idle = 0;
    const auto s0 = startup(0).state();
    const auto s1 = startup(1).state();
    if (s0 == StartupState::kFailed || s1 == StartupState::kFailed) return false;
    if (s0 == StartupState::kDone && s1 == StartupState::kDone) break;
  }
  for (int i = 0; i < 2; ++i) {
    if (startup(i).state() != StartupState::kDone) return false;
    pipes_[static_cast<std::size_t>(i)].startup = pipes_[static_cast<std::size_t>(i)].written;
  }
  for (int i = 0; i < 2; ++i) start_stream(i);
  return true;
}

bool SimPair::step_startup(int i) {
  Startup& s = startup(i);
  if (const auto bytes = s.to_send(); !bytes.empty()) {
    const std::size_t n = rng_.size(1, std::min(bytes.size(), config_.chunk_max));
    for (const std::uint8_t octet : bytes.first(n)) {
      out_of(i).bytes.push_back(octet);
      ++out_of(i).written;
    }
    s.sent(n);
    return true;
  }
  if (s.state() == StartupState::kRequestReady) return s.accept(config_.offer[1]).has_value();
  Pipe& in = into(i);
  const std::size_t n = std::min({in.bytes.size(), s.missing(), config_.chunk_max});
  if (n == 0) return false;
  const std::vector<std::uint8_t> bytes(in.bytes.begin(),
                                        in.bytes.begin() + static_cast<std::ptrdiff_t>(n));
  in.bytes.erase(in.bytes.begin(), in.bytes.begin() + static_cast<std::ptrdiff_t>(n));
  const auto taken = s.received(bytes);
  EXPECT_EQ(taken.value_or(n), n);
  return true;
}

void SimPair::start_stream(int i) {
  proto::StreamParams p = params_of(startup(i).result());
  p.max_ulpdu = config_.max_ulpdu[i];
  p.max_ulpdu_known = config_.max_ulpdu_known[i];
  p.hold_completions = config_.hold_completions;
  p.acks = config_.acks;
  p.unreliable = config_.unreliable;
  p.steps = config_.steps;
  p.both_ready = is_wired();
  p.check_markers = config_.check_markers;
  if (config_.changes_path) p.path = PathMode::kAuto;
  side(i).on_path_message = [this, i](const proto::PathMessage& message) {
    const bool to_ring = message.word == proto::PathWord::kByRing;
    if (!message.changes_path() || to_ring == into(i).reads_ring) return false;
    if (!side(i).stream().change_receiving(to_ring)) return false;
    into(i).reads_ring = to_ring;
    ++into(i).changes;
    return true;
  };
  if (config_.late_receives) p.recv_wait = config_.refuses_sends ? 3us : Duration{1h};
  p.not_ready_pause = 3ms;
  if (p.initiator || !startup(i).result().peer_to_peer) p.patience = config_.patience[i];
  side(i).start(p);
  side(i).stream().start();
}

// --- bytes ---

void SimPair::write(int i, std::uint8_t octet) {
  Pipe& pipe = out_of(i);
  const Fault& fault = config_.fault;
  const bool hit = fault.kind != FaultKind::kNone && !fault_happened_ && fault.writer == i &&
                   pipe.written - pipe.startup == fault.at;
  if (hit) {
    fault_happened_ = true;
    if (fault.kind == FaultKind::kFlip) octet ^= fault.bits;
    if (fault.kind == FaultKind::kFin) pipe.fin = true;
  }
  ++pipe.written;
  if (!pipe.fin) (pipe.writes_ring ? pipe.ring : pipe.bytes).push_back(octet);
}

// Goes over to the other path where that is due; asks for it now and then. A stream with markers
// stays where it is then: they count octets of one path.
void SimPair::change_path(int i) {
  Stream& stream = side(i).stream();
  Pipe& out = out_of(i);
  if (const auto word = stream.sending_may_change()) {
    out.writes_ring = *word == proto::PathWord::kByRing;
    out.asked = false;
    stream.change_sending(out.writes_ring);
  }
  const auto& agreed = startup(i).result();
  const bool markers = agreed.tx_markers || agreed.rx_markers;
  // Not again before the peer has followed: what comes behind would lie on the path that it leaves.
  if (out.asked || out.writes_ring != out.reads_ring || (markers && out.writes_ring)) return;
  if (!stream.tx_pending() || !rng_.one_in(8)) return;  // who is idle stays so
  out.asked = true;
  stream.send_path_message(
      {out.writes_ring ? proto::PathWord::kByTcp : proto::PathWord::kByRing, 4711});
}

bool SimPair::transmit(int i) {
  if (closed_[static_cast<std::size_t>(i)]) return false;
  if (config_.late_reads && rng_.one_in(2)) return read_late(i);
  Endpoint& me = side(i);
  Stream& stream = me.stream();
  if (config_.changes_path) change_path(i);
  if (config_.short_of_batches && rng_.one_in(8)) me.batches_to_refuse = 1;
  if (config_.in_place && !config_.late_reads && lay(i)) return true;
  TxBatch* batch = stream.gather();
  if (batch == nullptr) {
    if (!stream.take_fin()) return false;
    out_of(i).fin_taken = true;
    if (out_of(i).taken.empty()) out_of(i).fin = true;
    return true;
  }
  EXPECT_LT(batch->sent, batch->bytes) << "an empty batch";
  const std::size_t left = batch->bytes - batch->sent;
  const std::size_t n = take(i, *batch);
  stream.sent(n);
  if (!config_.late_reads) stream.released(n);
  if (n < left && config_.prepares) stream.prepare();
  if (lost_by_fault()) return true;
  // Writing to a closed socket is answered with a reset.
  if (n != 0 && closed_[static_cast<std::size_t>(1 - i)]) lose(i, false);
  return n != 0;
}

bool SimPair::lost_by_fault() {
  if (!fault_happened_ ||
      (config_.fault.kind != FaultKind::kReset && config_.fault.kind != FaultKind::kTimeout)) {
    return false;
  }
  const bool timed_out = config_.fault.kind == FaultKind::kTimeout;
  lose(0, timed_out);
  lose(1, timed_out);
  return true;
}

// Whether something was laid. The memory is of just the size that the stream may use.
bool SimPair::lay(int i) {
  Stream& stream = side(i).stream();
  std::vector<std::uint8_t> memory(rng_.size(0, std::min(room(i), config_.chunk_max)));
  const std::size_t n = stream.small().lay(memory);
  if (n == 0) return false;
  EXPECT_LE(n, memory.size());
  for (std::size_t k = 0; k < n; ++k) write(i, memory[k]);
  stream.small().laid(n);
  laid_ += n;
  if (lost_by_fault()) return true;
  if (closed_[static_cast<std::size_t>(1 - i)]) lose(i, false);
  return true;
}

std::size_t SimPair::room(int i) const {
  const Pipe& out = pipes_[static_cast<std::size_t>(i)];
  const std::size_t under_way = (out.writes_ring ? out.ring : out.bytes).size();
  return config_.pipe_max - std::min(config_.pipe_max, under_way);
}

// Takes some octets of the batch: into the pipe, or with late_reads by reference.
std::size_t SimPair::take(int i, const TxBatch& batch) {
  Pipe& out = out_of(i);
  std::size_t n = std::min({batch.bytes - batch.sent, room(i), config_.chunk_max});
  if (n != 0) n = rng_.size(rng_.one_in(16) ? 0 : 1, n);
  std::size_t left = n;
  for (std::size_t s = batch.slice_next; left != 0; ++s) {
    const Slice& slice = batch.slices[s];
    const std::size_t piece = std::min(left, slice.size);
    if (config_.late_reads) {
      out.taken.push_back({slice.data, piece});
    } else {
      for (std::size_t k = 0; k < piece; ++k) write(i, slice.data[k]);
    }
    left -= piece;
  }
  return n;
}

// Reads memory taken before and releases it, not always in the same pieces.
bool SimPair::read_late(int i) {
  Pipe& out = out_of(i);
  std::size_t released = 0;
  for (std::size_t pieces = rng_.size(0, 4); pieces != 0 && !out.taken.empty(); --pieces) {
    Slice& first = out.taken.front();
    const std::size_t n = rng_.size(1, first.size);
    for (std::size_t k = 0; k < n; ++k) write(i, first.data[k]);
    first.data += n;
    first.size -= n;
    if (first.size == 0) out.taken.pop_front();
    released += n;
  }
  side(i).stream().released(released);
  const bool ends = out.taken.empty() && out.fin_taken && !out.fin;
  if (ends) out.fin = true;
  return released != 0 || ends;
}

void SimPair::drop_taken(int i) {
  out_of(i).taken.clear();
  side(i).stream().transport_closed();
}

// Whether something was taken. The octets are gone afterwards, and so is what is behind them.
bool SimPair::take_small(int i) {
  Pipe& in = into(i);
  std::deque<std::uint8_t>& source = in.reads_ring ? in.ring : in.bytes;
  const std::size_t n = rng_.size(1, std::min(source.size(), config_.chunk_max));
  std::vector<std::uint8_t> seen(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(n));
  const std::size_t taken = side(i).stream().small().take(seen);
  EXPECT_LE(taken, n);
  source.erase(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(taken));
  taken_in_place_ += taken;
  return taken != 0;
}

bool SimPair::receive(int i) {
  if (closed_[static_cast<std::size_t>(i)]) return false;
  Pipe& in = into(i);
  Stream& stream = side(i).stream();
  if (side(i).clock < in.stalled_until) return false;
  std::deque<std::uint8_t>& source = in.reads_ring ? in.ring : in.bytes;
  if (source.empty()) {
    // A transport that does not read does not see the end either.
    if (stream.awaits_receive() || !in.fin || in.fin_seen) return false;
    in.fin_seen = true;
    stream.peer_closed();
    return true;
  }
  if (config_.late_receives && side(i).receives_to_refuse == 0 && refusals_left_ != 0 &&
      rng_.one_in(4)) {
    if (config_.refuses_sends) --refusals_left_;
    side(i).receives_to_refuse = config_.refuses_sends ? 2 : 1;  // now and in the end
  }
  if (config_.in_place && take_small(i)) return true;
  proto::RxPlan plan;
  stream.want(plan, scratch_);
  if (stream.awaits_receive()) {
    EXPECT_EQ(plan.bytes, 0U);
    if (!config_.refuses_sends) return stream.retry_receive();
    if (side(i).clock < stream.deadline()) return false;
    stream.expired(side(i).clock);
    return true;
  }
  EXPECT_GT(plan.bytes, 0U);
  EXPECT_LE(plan.count, proto::kRxSlicesMax);
  const std::size_t most = std::min({source.size(), plan.bytes, config_.chunk_max});
  const std::size_t n = rng_.size(rng_.one_in(16) ? 0 : 1, most);
  std::size_t left = n;
  for (std::size_t s = 0; s < plan.count && left != 0; ++s) {
    const std::size_t piece = std::min(left, plan.slices[s].size);
    const auto begin = source.begin();
    std::copy(begin, begin + static_cast<std::ptrdiff_t>(piece), plan.slices[s].data);
    source.erase(begin, begin + static_cast<std::ptrdiff_t>(piece));
    left -= piece;
  }
  stream.arrived(n);
  std::memset(scratch_.data(), 0xdb, std::min<std::size_t>(scratch_.size(), n + 4096));
  if (config_.stalls && rng_.one_in(20)) {
    in.stalled_until = side(i).clock + std::chrono::microseconds(rng_.between(1, 2000));
  }
  return true;
}

void SimPair::lose(int i, bool timed_out) {
  const auto at = static_cast<std::size_t>(i);
  if (closed_[at] || lost_[at]) return;
  lost_[at] = true;
  into(i).bytes.clear();
  side(i).stream().transport_lost(timed_out);
  drop_taken(i);
}

void SimPair::check_finished(int i) {
  const auto at = static_cast<std::size_t>(i);
  if (closed_[at] || !side(i).stream().finished()) return;
  closed_[at] = true;
  drop_taken(i);
  // Like a kernel: closing with unread input, or on request, resets; else a FIN goes out.
  if (side(i).stream().wants_reset() || into(i).under_way() != 0) {
    out_of(i).bytes.clear();
    lose(1 - i, false);
  } else {
    out_of(i).fin = true;
  }
}

// Nothing moves: on to the next moment at which something may.
bool SimPair::wake() {
  Instant next = Instant::never();
  for (int i = 0; i < 2; ++i) {
    if (closed_[static_cast<std::size_t>(i)]) continue;
    next = std::min(next, side(i).stream().deadline());
    // A stall may have ended while nobody looked.
    const Pipe& in = into(i);
    if (!out_of(i).taken.empty()) next = std::min(next, client_.clock);
    if (in.under_way() != 0 || (in.fin && !in.fin_seen)) next = std::min(next, in.stalled_until);
  }
  if (next.is_never()) return false;
  client_.clock = server_.clock = std::max(next, client_.clock + 1us);
  for (int i = 0; i < 2; ++i) {
    if (closed_[static_cast<std::size_t>(i)]) continue;
    side(i).stream().expired(side(i).clock);
    check_finished(i);
  }
  return true;
}

bool SimPair::run_until_idle(const std::function<void()>& before_step, std::uint64_t steps_max) {
  int still = 0;
  for (std::uint64_t step = 0; step < steps_max; ++step) {
    if (before_step) before_step();
    client_.clock = server_.clock = client_.clock + 1us;
    const int i = rng_.one_in(2) ? 0 : 1;
    const bool moved = rng_.one_in(2) ? transmit(i) : receive(i);
    check_finished(0);
    check_finished(1);
    // Holding completions: TCP acknowledges what the peer's socket has.
    if (config_.hold_completions && !closed_[static_cast<std::size_t>(i)] && rng_.one_in(4)) {
      std::uint64_t in_flight = out_of(i).under_way();
      for (const Slice& slice : out_of(i).taken) in_flight += slice.size;
      const std::uint64_t sent = side(i).stream().tx_offset();
      side(i).stream().acked(sent - std::min(sent, in_flight));
    }
    if (moved) {
      still = 0;
    } else if (++still > 200) {
      still = 0;
      if (!wake()) return true;
    }
  }
  return false;
}

}  // namespace weft::testing
