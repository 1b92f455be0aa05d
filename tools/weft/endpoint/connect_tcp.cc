// Connection set-up over plain TCP: connect, 20 bytes there and 20 back, close. So that it does
// what the RDMA set-up beside it does, the exchange included.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "weft/common/sysinfo.h"
#include "weft/endpoint/connect.h"
#include "weft/endpoint/tcp_hello.h"

namespace weft::cli {
namespace {

constexpr int kTimeoutMs = 5000;
constexpr int kNapMs = 100;

class TcpConnector final : public Connector {
 public:
  TcpConnector(const TestSpec& spec, const SocketChoice& choice)
      : Connector(spec), choice_(choice) {}

 private:
  struct SetUp {
    UniqueFd fd;
    std::int64_t begin_ns;
  };
  [[nodiscard]] Outcome<void> start(ConnectKind kind) override;
  [[nodiscard]] Outcome<void> wait_some(Watch& watch, PhaseResult& result) override;
  [[nodiscard]] std::size_t under_way() const override { return under_way_.size(); }

  const SocketChoice choice_;
  std::vector<SetUp> under_way_;
};

Outcome<void> TcpConnector::start(ConnectKind kind) {
  const std::int64_t begin_ns = now_ns();
  auto fd = tcp_join(server_, {token_, static_cast<std::uint32_t>(kind)}, choice_);
  if (!fd) return tl::unexpected(fd.error());
  if (facts_.congestion.empty()) facts_.congestion = congestion_of(fd->get());
  under_way_.push_back({std::move(*fd), begin_ns});
  return {};
}

// The answers that have come. A set-up is over with its answer.
Outcome<void> TcpConnector::wait_some(Watch& watch, PhaseResult& result) {
  std::vector<pollfd> fds;
  for (const SetUp& set_up : under_way_) fds.push_back({set_up.fd.get(), POLLIN, 0});
  if (poll(fds.data(), fds.size(), kNapMs) <= 0) return watch.check();
  std::vector<SetUp> left;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents == 0) {
      left.push_back(std::move(under_way_[i]));
      continue;
    }
    std::array<std::uint8_t, 20> answer{};
    if (!read_all(fds[i].fd, answer.data(), answer.size(), kTimeoutMs)) {
      return tl::unexpected(watch.explain({"the server has closed a connection half-way"}));
    }
    result.samples_ns.push_back(now_ns() - under_way_[i].begin_ns);
    ++result.messages;
  }
  under_way_ = std::move(left);
  return {};
}

class TcpAcceptor final : public ServerEndpoint {
 public:
  explicit TcpAcceptor(const SocketChoice& choice) : choice_(choice) {}

  [[nodiscard]] Outcome<Json> listen(const SocketAddress& local, const Json&,
                                     TestToken token) override {
    token_ = token;
    return tcp_listen_on_any_port(local, choice_, listener_);
  }
  [[nodiscard]] Outcome<void> accept_all(Watch&) override { return {}; }
  [[nodiscard]] Outcome<ServerReport> serve(Phase phase, Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return facts_; }
  void close() override {}

 private:
  const SocketChoice choice_;
  UniqueFd listener_;
  TestToken token_ = 0;
  LinkFacts facts_;
};

Outcome<ServerReport> TcpAcceptor::serve(Phase, Watch& watch) {
  ServerReport report;
  double cpu_begin_s = process_cpu_s();
  while (true) {
    UniqueFd fd = tcp_accept(listener_.get(), kNapMs);
    if (auto ok = watch.check(); !ok) return tl::unexpected(ok.error());
    if (!fd) continue;
    const auto hello = read_tcp_hello(fd.get());
    if (!hello || hello->token != token_) continue;
    if (facts_.congestion.empty()) facts_.congestion = congestion_of(fd.get());
    const auto kind = static_cast<ConnectKind>(hello->index);
    if (kind == ConnectKind::kBegin) {
      report.messages = 0;
      cpu_begin_s = process_cpu_s();
    } else if (kind == ConnectKind::kSetUp) {
      ++report.messages;
    } else {
      report.cpu_s = process_cpu_s() - cpu_begin_s;
    }
    const auto answer = encode_hello(*hello);
    (void)write_all(fd.get(), answer.data(), answer.size(), kTimeoutMs);  // gone: it will notice
    if (kind == ConnectKind::kEnd) return report;
  }
}

}  // namespace

std::unique_ptr<ClientEndpoint> make_tcp_connector(const TestSpec& spec,
                                                   const SocketChoice& choice) {
  return std::make_unique<TcpConnector>(spec, choice);
}

std::unique_ptr<ServerEndpoint> make_tcp_acceptor(const TestSpec&, const SocketChoice& choice) {
  return std::make_unique<TcpAcceptor>(choice);
}

}  // namespace weft::cli
