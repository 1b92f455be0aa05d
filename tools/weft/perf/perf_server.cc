#include "weft/perf/perf_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "weft/common/common.h"
#include "weft/common/parse.h"
#include "weft/endpoint/endpoint.h"
#include "weft/endpoint/rdma_hello.h"
#include "weft/perf/conditions.h"
#include "weft/perf/greeter.h"
#include "weft/perf/perf_client.h"

namespace weft::cli {
namespace {

constexpr int kIdleTimeoutMs = 30'000;  // a client that says nothing for so long has gone
constexpr double kAcceptSeconds = 15;   // for the connections of a test, and more for very many
constexpr double kAcceptSecondsEach = 0.005;

// One client, from its hello to its goodbye.
class ServerSession {
 public:
  ServerSession(Client client, Device& device, const ServerSetup& setup)
      : control_(std::move(client.control)), device_(device), setup_(setup) {}

  // Fails with what the client is told, too.
  [[nodiscard]] Outcome<void> serve();
  [[nodiscard]] std::uint64_t tests() const { return tests_; }

 private:
  [[nodiscard]] Outcome<void> act(const Json& message);
  [[nodiscard]] Outcome<void> prepare(const Json& message);
  [[nodiscard]] Outcome<void> run(const Json& message);
  [[nodiscard]] Outcome<void> accept_links(const TestSpec& spec);
  void finish();

  ControlConnection control_;
  Device& device_;
  const ServerSetup& setup_;
  std::unique_ptr<ServerEndpoint> endpoint_;
  ServerReport report_;
  std::uint64_t tests_ = 0;
  bool over_ = false;
};

Outcome<void> ServerSession::serve() {
  Json welcome = describe_server(setup_.pin);
  welcome["type"] = "welcome";
  welcome["version"] = version();
  if (auto ok = control_.send(welcome); !ok) return ok;
  while (!over_) {
    const auto message = control_.receive(kIdleTimeoutMs);
    const auto ok = message ? act(*message) : tl::unexpected(message.error());
    if (!ok) {
      // Before the connections of the test go: the client, if it is still there, then knows why.
      (void)control_.send({{"type", "failed"}, {"message", ok.error().message}});
      return ok;
    }
  }
  return {};
}

Outcome<void> ServerSession::act(const Json& message) {
  const std::string type = get_text(message, "type");
  if (type == "prepare") return prepare(message);
  if (type == "bye") {
    over_ = true;
    return {};
  }
  if (!endpoint_) return failure(fmt::format("'{}' without a test that was prepared", type));
  if (type == "connected?") return control_.send({{"type", "connected"}});
  if (type == "run") return run(message);
  if (type == "report?") {
    Json report = to_json(report_);
    report["type"] = "report";
    return control_.send(report);
  }
  if (type == "facts?") {
    Json facts = to_json(endpoint_->facts());
    facts["type"] = "facts";
    return control_.send(facts);
  }
  if (type == "finish") {
    finish();
    return control_.send({{"type", "finished"}});
  }
  return failure(fmt::format("unknown request '{}'", type));
}

Outcome<void> ServerSession::prepare(const Json& message) {
  const auto spec_json = message.find("spec");
  const auto offer = message.find("offer");
  if (spec_json == message.end() || !spec_json->is_object() || offer == message.end() ||
      !offer->is_object()) {
    return failure("a 'prepare' without spec and offer");
  }
  const auto spec = spec_from_json(*spec_json);
  if (!spec) return tl::unexpected(spec.error());
  endpoint_.reset();
  const SocketAddress local = local_address_of(control_.fd());
  const SocketAddress peer = peer_address_of(control_.fd());
  auto endpoint = make_server(*spec, device_, tcp_choice(*spec, device_.config(), peer));
  if (!endpoint) return tl::unexpected(endpoint.error());
  endpoint_ = std::move(*endpoint);
  const TestToken token = make_token();
  auto ready = endpoint_->listen(local, *offer, token);
  if (!ready) return tl::unexpected(ready.error());
  (*ready)["type"] = "ready";
  (*ready)["token"] = token;
  ++tests_;
  if (auto ok = control_.send(*ready); !ok) return ok;
  return accept_links(*spec);
}

Outcome<void> ServerSession::accept_links(const TestSpec& spec) {
  // The client asks as soon as its own side is connected.
  const double each = kAcceptSecondsEach * (spec.connections + spec.idle);
  Watch watch(control_, kAcceptSeconds + each, "connected?");
  return endpoint_->accept_all(watch);
}

Outcome<void> ServerSession::run(const Json& message) {
  const auto phase = parse_phase(get_text(message, "phase"));
  if (!phase) return tl::unexpected(phase.error());
  const double limit_s =
      std::clamp(get_number(message, "limit_s"), 1.0, 2 * perf_limits::kPhaseSeconds);
  if (auto ok = control_.send({{"type", "running"}}); !ok) return ok;
  Watch watch(control_, limit_s, "report?");
  auto report = endpoint_->serve(*phase, watch);
  if (!report) return tl::unexpected(report.error());
  report_ = *report;
  return {};
}

void ServerSession::finish() {
  if (endpoint_) endpoint_->close();
  endpoint_.reset();
}

void announce(const ServerSetup& setup, int listener) {
  const SocketAddress where = local_address_of(listener);
  if (!setup.quiet) {
    fmt::print("weft perf: waiting for clients on {}\n", where.text());
    std::fflush(stdout);
  }
  if (setup.announce_fd < 0) return;
  const std::string line = fmt::format("{}\n", where.port());
  // The reader is the process that started this one; if it has ended there is no client.
  (void)!write(setup.announce_fd, line.data(), line.size());
  close(setup.announce_fd);
}

Outcome<void> serve_client(Client client, const ServerSetup& setup, Config config) {
  const std::string who = client.peer.text();
  auto device = open_device(config);
  if (!device) return tl::unexpected(device.error());
  ServerSession session(std::move(client), **device, setup);
  if (!setup.quiet) fmt::print("{}: connected\n", who);
  std::fflush(stdout);
  const auto ok = session.serve();
  if (setup.quiet) return ok;
  if (ok) {
    fmt::print("{}: done, {} tests\n", who, session.tests());
  } else {
    fmt::print("{}: given up after {} tests: {}\n", who, session.tests(), ok.error().message);
  }
  std::fflush(stdout);
  return ok;
}

}  // namespace

Outcome<void> run_server(const ServerSetup& setup, const Config& config) {
  auto listener = tcp_listen(setup.where, 64);
  if (!listener) return tl::unexpected(listener.error());
  announce(setup, listener->get());
  Greeter greeter(std::move(*listener), setup.quiet);
  while (true) {
    const auto served = serve_client(greeter.next(), setup, config);
    // A quiet server was started by its client, which reports what went wrong.
    if (setup.once) return setup.quiet ? Outcome<void>() : served;
  }
}

}  // namespace weft::cli
