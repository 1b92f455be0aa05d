// The server's side of a plain TCP test: it receives, and answers pings.
#include <fmt/format.h>

#include <cstring>

#include "weft/common/pattern.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/tcp.h"
#include "weft/endpoint/tcp_hello.h"

namespace weft::cli {
namespace {

class TcpServer final : public TcpTest, public ServerEndpoint {
 public:
  TcpServer(const TestSpec& spec, const SocketChoice& choice) : TcpTest(spec, choice, EPOLLIN) {}

  [[nodiscard]] Outcome<Json> listen(const SocketAddress& local, const Json& offer,
                                     TestToken token) override;
  [[nodiscard]] Outcome<void> accept_all(Watch& watch) override;
  [[nodiscard]] Outcome<ServerReport> serve(Phase phase, Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return link_facts(); }
  void close() override {}

 private:
  [[nodiscard]] bool is_new(const Hello& hello) const;
  [[nodiscard]] Outcome<void> on_message(std::uint32_t index, Watch& watch);
  [[nodiscard]] Outcome<void> verify_message(std::uint32_t index);

  UniqueFd listener_;
  TestToken token_ = 0;
  Phase phase_ = Phase::kBandwidth;
  std::size_t ended_ = 0;
  double cpu_begin_s_ = 0;
  ServerReport report_;
};

Outcome<Json> TcpServer::listen(const SocketAddress& local, const Json&, TestToken token) {
  token_ = token;
  return tcp_listen_on_any_port(local, choice_, listener_);
}

bool TcpServer::is_new(const Hello& hello) const {
  if (hello.token != token_ || hello.index >= total_links()) return false;
  return hello.index < links_.size() ? !links_[hello.index].fd
                                     : !idle_[hello.index - links_.size()];
}

Outcome<void> TcpServer::accept_all(Watch& watch) {
  for (std::size_t joined = 0; joined < total_links();) {
    if (auto ok = watch.check(); !ok) return ok;
    UniqueFd fd = tcp_accept(listener_.get(), kTcpIoTimeoutMs);
    if (!fd) continue;
    const auto hello = read_tcp_hello(fd.get());
    if (!hello || !is_new(*hello)) continue;
    adopt(hello->index, std::move(fd));
    ++joined;
  }
  listener_.reset();
  all_connected();
  return {};
}

Outcome<ServerReport> TcpServer::serve(Phase phase, Watch& watch) {
  phase_ = phase;
  ended_ = 0;
  report_ = {};
  cpu_begin_s_ = process_cpu_s();
  unsigned tries = 0;
  while (ended_ < links_.size()) {
    bool any = false;
    for (const std::uint32_t i : ready_links()) {
      const auto done = receive_some(links_[i], buffer_for(i));
      if (!done) return tl::unexpected(watch.explain(done.error()));
      if (!*done) continue;
      any = true;
      if (auto ok = on_message(i, watch); !ok) return tl::unexpected(ok.error());
    }
    if (!any && (spec_.sleep || ++tries % 512 == 0)) {
      if (auto ok = watch.check(); !ok) return tl::unexpected(ok.error());
    }
  }
  return report_;
}

Outcome<void> TcpServer::on_message(std::uint32_t index, Watch& watch) {
  TcpLink& link = links_[index];
  std::uint8_t* message = buffer_for(index);
  const auto tag = static_cast<TcpTag>(message[0]);
  if (tag == TcpTag::kData) {
    ++report_.messages;
    if (spec_.tcp_mode == TcpMode::kCopy) std::memcpy(place_.data(), message, spec_.size);
    if (spec_.verify) return verify_message(index);
    return phase_ == Phase::kLatency ? send_message(link, message, watch) : Outcome<void>();
  }
  if (tag == TcpTag::kBegin) {
    report_.messages = 0;
    cpu_begin_s_ = process_cpu_s();
  } else if (tag == TcpTag::kEnd) {
    report_.cpu_s = process_cpu_s() - cpu_begin_s_;
    ++ended_;
  } else {
    return failure("the client sent a message of an unknown kind");
  }
  const std::array<std::uint8_t, kTcpReplyBytes> reply{};
  if (write_all(link.fd.get(), reply.data(), reply.size(), kTcpIoTimeoutMs * 10)) return {};
  return failure("the TCP connection has ended");
}

Outcome<void> TcpServer::verify_message(std::uint32_t index) {
  TcpLink& link = links_[index];
  const bool copied = spec_.tcp_mode == TcpMode::kCopy;
  const std::span<const std::uint8_t> whole(copied ? place_.data() : buffer_for(index), spec_.size);
  if (const auto bad = check_pattern(whole.subspan(1), pattern_seed(index, link.messages))) {
    return tl::unexpected(
        describe_mismatch(index, link.messages, {bad->offset + 1, bad->expected, bad->found}));
  }
  ++link.messages;
  report_.verified_bytes += spec_.size;
  return {};
}

}  // namespace

std::unique_ptr<ServerEndpoint> make_tcp_server(const TestSpec& spec, const SocketChoice& choice) {
  return std::make_unique<TcpServer>(spec, choice);
}

}  // namespace weft::cli
