#include "weft/endpoint/rdma_client.h"

#include <algorithm>
#include <limits>

#include "weft/common/sysinfo.h"

namespace weft::cli {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

}  // namespace

RdmaClient::RdmaClient(Device& device, const TestSpec& spec)
    : RdmaTest(device, spec, Role::kClient),
      takes_receives_(takes_receives(spec.op)),
      batch_(std::min(spec.batch, layout_.window)) {
  // With few credits (many connections) a long list could wait for more of them than there are.
  if (takes_receives(spec.op)) batch_ = std::min(batch_, std::max(layout_.credits() / 2, 1U));
}

Outcome<void> RdmaClient::connect(const SocketAddress& server, const Json& ready, Watch& watch) {
  take_memory_offer(ready);
  SocketAddress data = server;
  data.set_port(static_cast<std::uint16_t>(get_count(ready, "port")));
  return connect_links(data, get_count(ready, "token"), watch);
}

Outcome<PhaseResult> RdmaClient::run(Phase phase, const PhaseLimits& limits, Watch& watch) {
  repost_lazily(phase == Phase::kLatency);
  switch (phase) {
    case Phase::kVerify: return run_verify(limits, watch);
    case Phase::kLatency: return run_latency(limits, watch);
    case Phase::kBandwidth: break;
  }
  return run_bandwidth(limits, watch);
}

Outcome<void> RdmaClient::on_data(RdmaLink& link, std::uint32_t cell, const WorkCompletion&) {
  ++pongs_;
  return repost(link, cell);
}

Outcome<void> RdmaClient::on_note(RdmaLink& link, const Note& note) {
  if (note.kind == NoteKind::kReply) {
    ++replies_;
  } else if (note.kind == NoteKind::kCredit) {
    link.allowed = layout_.credits() + note.value;
  }
  return {};
}

Outcome<void> RdmaClient::exchange(NoteKind kind, std::uint64_t value, Watch& watch) {
  replies_ = 0;
  for (RdmaLink& link : links_) {
    if (auto ok = post_note(link, {kind, value}, is_answered(spec_.op)); !ok) return ok;
  }
  while (replies_ < links_.size()) {
    if (auto ok = pump(true, watch); !ok) return ok;
  }
  return {};
}

bool RdmaClient::can_post(const RdmaLink& link, std::uint32_t count) const {
  if (!link.window.room(count)) return false;
  return !takes_receives_ || link.sent + count <= link.allowed;
}

bool RdmaClient::post_messages(RdmaLink& link, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i) {
    prepare_message(link, i, link.next_slot);
    if (++link.next_slot == layout_.slots) link.next_slot = 0;
  }
  link.sent += count;
  return post_prepared(link, count);
}

Outcome<std::uint64_t> RdmaClient::stream(double seconds, std::uint64_t messages, Watch& watch) {
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  // The clock costs as much as posting a small message: look at it every 64 KiB or so.
  const std::uint64_t round_bytes = spec_.size * batch_ * links_.size();
  const auto rounds_per_look =
      static_cast<unsigned>(std::clamp<std::uint64_t>(65536 / round_bytes, 1, 64));
  const std::uint64_t wanted = messages == 0 ? kNoLimit : messages;
  std::uint64_t posted = 0;
  unsigned until_look = 0;
  while (posted < wanted) {
    if (until_look == 0) {
      if (now_ns() >= end_ns) break;
      until_look = rounds_per_look;
    }
    --until_look;
    bool any = false;
    for (RdmaLink& link : links_) {
      const auto count =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(batch_, wanted - posted));
      if (count == 0 || !can_post(link, count)) continue;
      if (!post_messages(link, count)) return tl::unexpected(watch.explain(why_not_posted()));
      posted += count;
      any = true;
    }
    if (any) continue;
    if (auto ok = pump(true, watch); !ok) return tl::unexpected(ok.error());
  }
  return posted;
}

// The clock runs from the moment the server says that it is ready until it says that it has got
// everything, so every byte counted is in its place.
Outcome<PhaseResult> RdmaClient::run_bandwidth(const PhaseLimits& limits, Watch& watch) {
  if (limits.warmup_seconds > 0) {
    const auto warm = stream(limits.warmup_seconds, 0, watch);
    if (!warm) return tl::unexpected(warm.error());
  }
  if (auto ok = exchange(NoteKind::kBegin, 0, watch); !ok) return tl::unexpected(ok.error());
  const double cpu = process_cpu_s();
  const std::int64_t begin_ns = now_ns();
  const auto posted = stream(limits.seconds, limits.messages, watch);
  if (!posted) return tl::unexpected(posted.error());
  if (auto ok = exchange(NoteKind::kEnd, *posted, watch); !ok) return tl::unexpected(ok.error());
  PhaseResult result;
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.cpu_s = process_cpu_s() - cpu;
  result.messages = *posted;
  return result;
}

Outcome<std::unique_ptr<ClientEndpoint>> make_rdma_client(const TestSpec& spec, Device& device) {
  auto client = std::make_unique<RdmaClient>(device, spec);
  if (auto ok = client->open(); !ok) return tl::unexpected(ok.error());
  return client;
}

}  // namespace weft::cli
