// Connection set-up over RDMA: queue pair, TCP, MPA Request and Reply; then an orderly end.
//
// The client keeps `depth` set-ups under way. What the server should do is said by the number in
// the private data: set-ups that count have kSetUp, and one more with kBegin or kEnd frames the
// phase.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <unordered_map>

#include "weft/common/sysinfo.h"
#include "weft/endpoint/connect.h"

namespace weft::cli {
namespace {

constexpr auto kConnectNap = std::chrono::milliseconds(100);
constexpr auto kRingNap = std::chrono::microseconds(20);
constexpr std::int64_t kRingLimitNs = 5'000'000'000;

// The objects every queue pair of the test shares.
class Shared {
 public:
  [[nodiscard]] Outcome<void> open(Device& device) {
    auto pd = device.create_pd();
    auto cq = device.create_cq({});
    auto channel = EventChannel::create();
    if (!pd || !cq || !channel) return failure("cannot create the objects of the test");
    pd_ = *pd;
    cq_ = *cq;
    events = *channel;
    return {};
  }
  [[nodiscard]] Outcome<std::shared_ptr<QueuePair>> make_qp() {
    QpOptions options;
    options.send_cq = cq_;
    options.recv_cq = cq_;
    options.max_send_wr = 16;
    options.max_recv_wr = 16;
    auto qp = pd_->create_qp(options);
    if (qp) return *qp;
    return failure(fmt::format("cannot create a queue pair: {}", describe(qp.error())));
  }

  std::shared_ptr<EventChannel> events;

 private:
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionQueue> cq_;
};

struct SetUp {
  std::shared_ptr<QueuePair> qp;
  std::shared_ptr<Connection> connection;
  std::int64_t begin_ns = 0;
};
using SetUps = std::unordered_map<const Connection*, SetUp>;

// With path=ring a set-up is over when both directions go by the ring. No event reports that.
// False: the connection has ended instead, or does not come to the ring.
bool await_ring(const SetUp& set_up) {
  const std::int64_t limit_ns = now_ns() + kRingLimitNs;
  while (set_up.connection->info().path != "ring") {
    if (set_up.qp->state() != QpState::kRts || now_ns() > limit_ns) return false;
    // The thread that moves it may share our core.
    std::this_thread::sleep_for(kRingNap);
  }
  return true;
}

class RdmaConnector final : public Connector {
 public:
  RdmaConnector(const TestSpec& spec, Device& device) : Connector(spec), device_(device) {}
  [[nodiscard]] Outcome<void> open() { return shared_.open(device_); }

 private:
  [[nodiscard]] Outcome<void> start(ConnectKind kind) override;
  [[nodiscard]] Outcome<void> wait_some(Watch& watch, PhaseResult& result) override;
  [[nodiscard]] std::size_t under_way() const override { return under_way_.size(); }

  Device& device_;
  Shared shared_;
  SetUps under_way_;
};

Outcome<void> RdmaConnector::start(ConnectKind kind) {
  SetUp set_up;
  set_up.begin_ns = now_ns();
  auto connection = device_.create_connection(shared_.events);
  if (!connection) {
    return failure(fmt::format("cannot create a connection: {}", describe(connection.error())));
  }
  auto qp = shared_.make_qp();
  if (!qp) return tl::unexpected(qp.error());
  set_up.connection = *connection;
  set_up.qp = *qp;
  const Hello hello{token_, static_cast<std::uint32_t>(kind)};
  if (auto ok = (*connection)->connect(*qp, server_, params_of(spec_, hello)); !ok) {
    return failure(fmt::format("cannot connect to {}: {}", server_.text(), describe(ok.error())));
  }
  under_way_.emplace(connection->get(), std::move(set_up));
  return {};
}

Outcome<void> RdmaConnector::wait_some(Watch& watch, PhaseResult& result) {
  const auto event = shared_.events->next(kConnectNap);
  if (!event) return watch.check();
  const auto at = under_way_.find(event->connection.get());
  if (at == under_way_.end()) return {};
  if (event->type == ConnectionEvent::Type::kEstablished) {
    if (spec_.path == PathMode::kRing && !await_ring(at->second)) {
      return tl::unexpected(
          watch.explain({"a connection with path=ring has not moved to a ring; the warning in the"
                         " log of either side says why"}));
    }
    result.samples_ns.push_back(now_ns() - at->second.begin_ns);
    ++result.messages;
    if (facts_.congestion.empty()) facts_ = facts_of(event->connection->info());
    (void)event->connection->disconnect();
    return {};
  }
  const bool over = event->type == ConnectionEvent::Type::kDisconnected;
  under_way_.erase(at);
  return over ? Outcome<void>() : tl::unexpected(watch.explain(describe_event(*event)));
}

class RdmaAcceptor final : public ServerEndpoint {
 public:
  RdmaAcceptor(const TestSpec& spec, Device& device) : spec_(spec), device_(device) {}
  [[nodiscard]] Outcome<void> open() { return shared_.open(device_); }

  [[nodiscard]] Outcome<Json> listen(const SocketAddress& local, const Json&,
                                     TestToken token) override {
    token_ = token;
    auto listener = listen_on_any_port(device_, shared_.events, local);
    if (!listener) return tl::unexpected(listener.error());
    listener_ = *listener;
    return Json{{"port", listener_->local_address().port()}};
  }
  [[nodiscard]] Outcome<void> accept_all(Watch&) override { return {}; }
  [[nodiscard]] Outcome<ServerReport> serve(Phase phase, Watch& watch) override;
  [[nodiscard]] LinkFacts facts() const override { return facts_; }
  void close() override {}

 private:
  [[nodiscard]] Outcome<void> on_event(const ConnectionEvent& event);
  [[nodiscard]] Outcome<void> on_request(const ConnectionEvent& event);

  const TestSpec spec_;
  Device& device_;
  Shared shared_;
  std::shared_ptr<Listener> listener_;
  TestToken token_ = 0;
  SetUps under_way_;
  LinkFacts facts_;
  bool ended_ = false;
  double cpu_begin_s_ = 0;
  ServerReport report_;
};

Outcome<ServerReport> RdmaAcceptor::serve(Phase, Watch& watch) {
  ended_ = false;
  report_ = {};
  cpu_begin_s_ = process_cpu_s();
  while (!ended_ || !under_way_.empty()) {
    const auto event = shared_.events->next(kConnectNap);
    const auto ok = event ? on_event(*event) : watch.check();
    if (!ok) return tl::unexpected(ok.error());
  }
  return report_;
}

Outcome<void> RdmaAcceptor::on_event(const ConnectionEvent& event) {
  switch (event.type) {
    case ConnectionEvent::Type::kConnectRequest: return on_request(event);
    case ConnectionEvent::Type::kEstablished:
      if (facts_.congestion.empty()) facts_ = facts_of(event.connection->info());
      return {};
    default: under_way_.erase(event.connection.get()); return {};
  }
}

Outcome<void> RdmaAcceptor::on_request(const ConnectionEvent& event) {
  const auto hello = decode_hello(event.private_data);
  if (!hello || hello->token != token_) {
    (void)event.connection->reject({});  // a stranger: gone or not, it is none of ours
    return {};
  }
  const auto kind = static_cast<ConnectKind>(hello->index);
  if (kind == ConnectKind::kBegin) {
    report_.messages = 0;
    cpu_begin_s_ = process_cpu_s();
  } else if (kind == ConnectKind::kEnd) {
    report_.cpu_s = process_cpu_s() - cpu_begin_s_;
    ended_ = true;
  } else {
    ++report_.messages;
  }
  auto qp = shared_.make_qp();
  if (!qp) return tl::unexpected(qp.error());
  under_way_[event.connection.get()] = {*qp, event.connection, 0};
  if (auto ok = event.connection->accept(*qp, params_of(spec_, *hello)); !ok) {
    under_way_.erase(event.connection.get());  // the client has gone; it will say so itself
  }
  return {};
}

}  // namespace

Outcome<std::unique_ptr<ClientEndpoint>> make_rdma_connector(const TestSpec& spec, Device& device) {
  auto client = std::make_unique<RdmaConnector>(spec, device);
  if (auto ok = client->open(); !ok) return tl::unexpected(ok.error());
  return client;
}

Outcome<std::unique_ptr<ServerEndpoint>> make_rdma_acceptor(const TestSpec& spec, Device& device) {
  auto server = std::make_unique<RdmaAcceptor>(spec, device);
  if (auto ok = server->open(); !ok) return tl::unexpected(ok.error());
  return server;
}

}  // namespace weft::cli
