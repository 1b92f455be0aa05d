// The client's side of a plain TCP test: it sends.
#include <algorithm>
#include <limits>

#include "weft/common/pattern.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/latency.h"
#include "weft/endpoint/tcp.h"
#include "weft/endpoint/tcp_hello.h"

namespace weft::cli {
namespace {

class TcpClient final : public TcpTest, public ClientEndpoint {
 public:
  TcpClient(const TestSpec& spec, const SocketChoice& choice) : TcpTest(spec, choice, EPOLLOUT) {}

  [[nodiscard]] Json offer() const override { return Json::object(); }
  [[nodiscard]] Outcome<void> connect(const SocketAddress& server, const Json& ready,
                                      Watch& watch) override;
  [[nodiscard]] Outcome<PhaseResult> run(Phase phase, const PhaseLimits& limits,
                                         Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return link_facts(); }
  void close() override {}

 private:
  [[nodiscard]] Outcome<PhaseResult> run_bandwidth(const PhaseLimits& limits, Watch& watch);
  [[nodiscard]] Outcome<PhaseResult> run_latency(const PhaseLimits& limits, Watch& watch);
  [[nodiscard]] Outcome<PhaseResult> run_verify(const PhaseLimits& limits, Watch& watch);
  [[nodiscard]] Outcome<std::uint64_t> stream(double seconds, std::uint64_t messages, Watch& watch);
  [[nodiscard]] Outcome<void> finish_messages(Watch& watch);
  [[nodiscard]] Outcome<void> exchange(TcpTag tag, Watch& watch);
  [[nodiscard]] Outcome<void> one_round_trip(Watch& watch);
};

Outcome<void> TcpClient::connect(const SocketAddress& server, const Json& ready, Watch& watch) {
  SocketAddress data = server;
  data.set_port(static_cast<std::uint16_t>(get_count(ready, "port")));
  const TestToken token = get_count(ready, "token");
  for (std::uint32_t i = 0; i < total_links(); ++i) {
    auto fd = tcp_join(data, {token, i}, choice_);
    if (!fd) return tl::unexpected(watch.explain(fd.error()));
    adopt(i, std::move(*fd));
    if (auto ok = watch.check(); !ok) return ok;
  }
  all_connected();
  return {};
}

Outcome<PhaseResult> TcpClient::run(Phase phase, const PhaseLimits& limits, Watch& watch) {
  switch (phase) {
    case Phase::kVerify: return run_verify(limits, watch);
    case Phase::kLatency: return run_latency(limits, watch);
    case Phase::kBandwidth: break;
  }
  return run_bandwidth(limits, watch);
}

Outcome<std::uint64_t> TcpClient::stream(double seconds, std::uint64_t messages, Watch& watch) {
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  const std::uint64_t wanted = messages == 0 ? std::numeric_limits<std::uint64_t>::max() : messages;
  const auto tries_per_look =
      static_cast<unsigned>(std::clamp<std::uint64_t>(65536 / spec_.size, 1, 64));
  std::uint64_t sent = 0;
  unsigned until_look = 0;
  while (sent < wanted) {
    if (until_look == 0) {
      if (now_ns() >= end_ns) break;
      if (auto ok = watch.check(); !ok) return tl::unexpected(ok.error());
      until_look = tries_per_look;
    }
    --until_look;
    for (const std::uint32_t i : ready_links()) {
      const auto done = send_some(links_[i], buffer_.data());
      if (!done) return tl::unexpected(watch.explain(done.error()));
      if (*done && ++sent == wanted) break;
    }
  }
  // What has been begun counts too.
  for (const TcpLink& link : links_) sent += link.offset != 0 ? 1 : 0;
  if (auto ok = finish_messages(watch); !ok) return tl::unexpected(ok.error());
  return sent;
}

Outcome<void> TcpClient::finish_messages(Watch& watch) {
  for (TcpLink& link : links_) {
    if (link.offset == 0) continue;
    if (auto ok = send_message(link, buffer_.data(), watch); !ok) return ok;
  }
  return {};
}

// A message with another first byte on every connection; each is answered once it has been read,
// after all before it.
Outcome<void> TcpClient::exchange(TcpTag tag, Watch& watch) {
  buffer_[0] = static_cast<std::uint8_t>(tag);
  for (TcpLink& link : links_) {
    if (auto ok = send_message(link, buffer_.data(), watch); !ok) return ok;
  }
  buffer_[0] = static_cast<std::uint8_t>(TcpTag::kData);
  std::array<std::uint8_t, kTcpReplyBytes> reply{};
  for (TcpLink& link : links_) {
    if (auto ok = receive_bytes(link, reply.data(), reply.size(), watch); !ok) return ok;
  }
  return {};
}

Outcome<PhaseResult> TcpClient::run_bandwidth(const PhaseLimits& limits, Watch& watch) {
  if (limits.warmup_seconds > 0) {
    const auto warm = stream(limits.warmup_seconds, 0, watch);
    if (!warm) return tl::unexpected(warm.error());
  }
  if (auto ok = exchange(TcpTag::kBegin, watch); !ok) return tl::unexpected(ok.error());
  const double cpu = process_cpu_s();
  const std::int64_t begin_ns = now_ns();
  const auto sent = stream(limits.seconds, limits.messages, watch);
  if (!sent) return tl::unexpected(sent.error());
  if (auto ok = exchange(TcpTag::kEnd, watch); !ok) return tl::unexpected(ok.error());
  PhaseResult result;
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  result.cpu_s = process_cpu_s() - cpu;
  result.messages = *sent;
  return result;
}

Outcome<void> TcpClient::one_round_trip(Watch& watch) {
  TcpLink& link = links_.front();
  if (auto ok = send_message(link, buffer_.data(), watch); !ok) return ok;
  return receive_bytes(link, buffer_.data(), spec_.size, watch);
}

Outcome<PhaseResult> TcpClient::run_latency(const PhaseLimits& limits, Watch& watch) {
  return time_ping_pong(limits, {[&] { return one_round_trip(watch); },
                                 [&] { return exchange(TcpTag::kBegin, watch); },
                                 [&](std::uint64_t) { return exchange(TcpTag::kEnd, watch); }});
}

Outcome<PhaseResult> TcpClient::run_verify(const PhaseLimits& limits, Watch& watch) {
  PhaseResult result;
  const std::int64_t begin_ns = now_ns();
  const std::int64_t end_ns = begin_ns + static_cast<std::int64_t>(limits.seconds * 1e9);
  do {
    for (std::uint32_t i = 0; i < links_.size(); ++i) {
      const std::span<std::uint8_t> body = std::span(buffer_).subspan(1);
      fill_pattern(body, pattern_seed(i, links_[i].messages));
      if (auto ok = send_message(links_[i], buffer_.data(), watch); !ok) {
        return tl::unexpected(ok.error());
      }
      ++links_[i].messages;
      ++result.messages;
    }
  } while (now_ns() < end_ns);
  if (auto ok = exchange(TcpTag::kEnd, watch); !ok) return tl::unexpected(ok.error());
  result.seconds = static_cast<double>(now_ns() - begin_ns) * 1e-9;
  return result;
}

}  // namespace

std::unique_ptr<ClientEndpoint> make_tcp_client(const TestSpec& spec, const SocketChoice& choice) {
  return std::make_unique<TcpClient>(spec, choice);
}

}  // namespace weft::cli
