// The server's side of an RDMA test: memory to write to and read from, receives kept posted,
// answers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "weft/common/pattern.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma_client.h"

namespace weft::cli {
namespace {

class RdmaServer final : public RdmaTest, public ServerEndpoint {
 public:
  RdmaServer(Device& device, const TestSpec& spec)
      : RdmaTest(device, spec, Role::kServer),
        credit_every_(std::max<std::uint32_t>(layout_.receives / 4, 1)) {}
  using RdmaTest::open;

  [[nodiscard]] Outcome<Json> listen(const SocketAddress& local, const Json& offer,
                                     TestToken token) override {
    take_memory_offer(offer);
    const auto port = listen_for_links(local, token);
    if (!port) return tl::unexpected(port.error());
    Json ready = memory_offer();
    ready["port"] = *port;
    return ready;
  }
  [[nodiscard]] Outcome<void> accept_all(Watch& watch) override { return accept_links(watch); }
  [[nodiscard]] Outcome<ServerReport> serve(Phase phase, Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return link_facts(); }
  void close() override { close_links(); }

 private:
  [[nodiscard]] Outcome<void> on_data(RdmaLink& link, std::uint32_t cell,
                                      const WorkCompletion& completion) override;
  [[nodiscard]] Outcome<void> on_note(RdmaLink& link, const Note& note) override;
  [[nodiscard]] Outcome<void> give_credit(RdmaLink& link);
  [[nodiscard]] Outcome<void> verify_received(RdmaLink& link, std::uint32_t cell,
                                              const WorkCompletion& completion);
  [[nodiscard]] Outcome<void> verify_placed(RdmaLink& link, std::uint64_t count);
  void fill_places(RdmaLink& link, std::uint64_t count);

  const std::uint32_t credit_every_;
  Phase phase_ = Phase::kBandwidth;
  std::size_t ended_ = 0;
  double cpu_begin_s_ = 0;
  ServerReport report_;
};

Outcome<ServerReport> RdmaServer::serve(Phase phase, Watch& watch) {
  phase_ = phase;
  ended_ = 0;
  report_ = {};
  cpu_begin_s_ = process_cpu_s();
  repost_lazily(phase == Phase::kLatency);
  while (ended_ < links_.size()) {
    if (auto ok = pump(true, watch); !ok) return tl::unexpected(ok.error());
  }
  // The last answers must be on their way before this thread turns to something else.
  for (RdmaLink& link : links_) {
    while (!link.window.idle()) {
      if (auto ok = pump(true, watch); !ok) return tl::unexpected(ok.error());
    }
  }
  return report_;
}

Outcome<void> RdmaServer::on_data(RdmaLink& link, std::uint32_t cell,
                                  const WorkCompletion& completion) {
  ++report_.messages;
  if (phase_ == Phase::kLatency) {
    if (takes_receives(spec_.op)) ++link.received;
    // The answer first: the other side is timing it.
    if (!post_ping(link)) return tl::unexpected(why_not_posted());
    return repost(link, cell);
  }
  if (spec_.verify) {
    if (auto ok = verify_received(link, cell, completion); !ok) return ok;
  }
  ++link.received;
  if (auto ok = repost(link, cell); !ok) return ok;
  return link.received - link.credited >= credit_every_ ? give_credit(link) : Outcome<void>();
}

Outcome<void> RdmaServer::give_credit(RdmaLink& link) {
  link.credited = link.received;
  return post_note(link, {NoteKind::kCredit, link.received}, false);
}

Outcome<void> RdmaServer::on_note(RdmaLink& link, const Note& note) {
  switch (note.kind) {
    case NoteKind::kBegin:
      report_.messages = 0;
      cpu_begin_s_ = process_cpu_s();
      break;
    case NoteKind::kEnd:
      report_.cpu_s = process_cpu_s() - cpu_begin_s_;
      ++ended_;
      break;
    case NoteKind::kFill:
      fill_places(link, std::min<std::uint64_t>(note.value, layout_.slots));
      break;
    case NoteKind::kCheck:
      if (auto ok = verify_placed(link, std::min<std::uint64_t>(note.value, layout_.slots)); !ok) {
        return ok;
      }
      break;
    case NoteKind::kReply:
    case NoteKind::kCredit: return failure("the client sent a note that only a server sends");
  }
  // Credits first: the client may go on as soon as it has the reply.
  if (link.received != link.credited) {
    if (auto ok = give_credit(link); !ok) return ok;
  }
  return post_note(link, {NoteKind::kReply, note.value}, false);
}

// A Send, in the place it was received.
Outcome<void> RdmaServer::verify_received(RdmaLink& link, std::uint32_t cell,
                                          const WorkCompletion& completion) {
  const std::uint64_t expected = spec_.size;
  if (completion.byte_len != expected) {
    return failure(
        fmt::format("verification failed: message {} of connection {} has {} bytes "
                    "instead of {}",
                    link.received, link.index, completion.byte_len, expected));
  }
  if (spec_.op != Operation::kSend) return {};
  const std::span<const std::uint8_t> bytes(receive_place(link, cell), spec_.size);
  if (const auto bad = check_pattern(bytes, pattern_seed(link.index, link.received))) {
    return tl::unexpected(describe_mismatch(link.index, link.received, *bad));
  }
  report_.verified_bytes += bytes.size();
  return {};
}

// What Writes, or the atomics' counter, left in memory by the time their note arrived.
Outcome<void> RdmaServer::verify_placed(RdmaLink& link, std::uint64_t count) {
  const std::uint64_t first = link.verified;
  link.verified += count;
  if (is_atomic(spec_.op)) {
    std::uint64_t value = 0;
    std::memcpy(&value, link.places, sizeof(value));
    if (value == link.verified) return {};
    return failure(
        fmt::format("verification failed: the counter of connection {} is {} after {} {}",
                    link.index, value, link.verified, name_of(spec_.op)));
  }
  if (takes_receives(spec_.op) && link.received != link.verified) {
    return failure(
        fmt::format("verification failed: {} messages arrived on connection {} of {} sent",
                    link.received, link.index, link.verified));
  }
  if (spec_.op != Operation::kWrite && spec_.op != Operation::kWriteImm) return {};
  for (std::uint64_t k = 0; k < count; ++k) {
    const std::span<const std::uint8_t> bytes(link.places + layout_.stride * k, spec_.size);
    if (const auto bad = check_pattern(bytes, pattern_seed(link.index, first + k))) {
      return tl::unexpected(describe_mismatch(link.index, first + k, *bad));
    }
    report_.verified_bytes += bytes.size();
  }
  return {};
}

void RdmaServer::fill_places(RdmaLink& link, std::uint64_t count) {
  for (std::uint64_t k = 0; k < count; ++k) {
    fill_pattern({link.places + layout_.stride * k, spec_.size},
                 pattern_seed(link.index, link.verified + k));
  }
}

}  // namespace

Outcome<std::unique_ptr<ServerEndpoint>> make_rdma_server(const TestSpec& spec, Device& device) {
  auto server = std::make_unique<RdmaServer>(device, spec);
  if (auto ok = server->open(); !ok) return tl::unexpected(ok.error());
  return server;
}

}  // namespace weft::cli
