#include "weft/perf/perf_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "weft/common/common.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/endpoint.h"
#include "weft/perf/conditions.h"
#include "weft/perf/progress.h"

namespace weft::cli {
namespace {

constexpr int kServerTimeoutMs = 10'000;
constexpr int kWelcomeTimeoutMs = 60'000;  // the server may be busy with another client
constexpr int kAnswerTimeoutMs = 60'000;   // preparing 1000s of connections takes a while
constexpr double kSlackSeconds = 60;

class Session {
 public:
  Session(ControlConnection control, Device& device, const ClientSetup& setup)
      : control_(std::move(control)), device_(device), setup_(setup) {}

  [[nodiscard]] Outcome<Json> greet();
  [[nodiscard]] Outcome<void> run_step(const Step& step, ContenderResult& result);
  void say_goodbye() { (void)control_.send({{"type", "bye"}}); }

 private:
  [[nodiscard]] Outcome<Json> ask(const Json& question, std::string_view answer);
  [[nodiscard]] Outcome<std::unique_ptr<ClientEndpoint>> open_test(const TestSpec& spec);
  [[nodiscard]] Outcome<void> run_phases(ClientEndpoint& endpoint, const TestSpec& spec,
                                         ContenderResult& result);
  [[nodiscard]] Outcome<std::pair<PhaseResult, ServerReport>> run_phase(ClientEndpoint& endpoint,
                                                                        const TestSpec& spec,
                                                                        Phase phase);

  ControlConnection control_;
  Device& device_;
  const ClientSetup& setup_;
};

Outcome<Json> Session::greet() {
  Json hello{{"type", "hello"},
             {"weft_perf", kControlVersion},
             {"version", version()},
             {"sleep", setup_.request.sleep}};
  if (auto ok = control_.send(hello); !ok) return tl::unexpected(ok.error());
  auto welcome = control_.expect("welcome", kWelcomeTimeoutMs);
  if (welcome) return welcome;
  return failure(fmt::format("{} is no `weft perf` server, or is busy with another client: {}",
                             setup_.server.text(), welcome.error().message));
}

Outcome<Json> Session::ask(const Json& question, std::string_view answer) {
  if (auto ok = control_.send(question); !ok) return tl::unexpected(ok.error());
  return control_.expect(answer, kAnswerTimeoutMs);
}

Outcome<std::unique_ptr<ClientEndpoint>> Session::open_test(const TestSpec& spec) {
  auto endpoint = make_client(spec, device_, tcp_choice(spec, device_.config(), setup_.server));
  if (!endpoint) return endpoint;
  const auto ready =
      ask({{"type", "prepare"}, {"spec", to_json(spec)}, {"offer", (*endpoint)->offer()}}, "ready");
  if (!ready) return tl::unexpected(ready.error());
  Watch watch(control_, kSlackSeconds);
  if (auto ok = (*endpoint)->connect(setup_.server, *ready, watch); !ok) {
    return tl::unexpected(ok.error());
  }
  const auto connected = ask({{"type", "connected?"}}, "connected");
  if (!connected) return tl::unexpected(connected.error());
  return endpoint;
}

Outcome<std::pair<PhaseResult, ServerReport>> Session::run_phase(ClientEndpoint& endpoint,
                                                                 const TestSpec& spec,
                                                                 Phase phase) {
  const PhaseLimits limits = limits_of(setup_.request, spec, phase);
  const double limit_s = limits.seconds + limits.warmup_seconds + kSlackSeconds;
  const auto running =
      ask({{"type", "run"}, {"phase", name_of(phase)}, {"limit_s", limit_s}}, "running");
  if (!running) return tl::unexpected(running.error());
  Watch watch(control_, limit_s);
  auto seen = endpoint.run(phase, limits, watch);
  if (!seen) return tl::unexpected(seen.error());
  const auto answer = ask({{"type", "report?"}}, "report");
  if (!answer) return tl::unexpected(answer.error());
  const ServerReport report = report_from_json(*answer);
  // Where the target's program sees each message, what left here must have arrived there.
  const bool counted = spec.transport == Transport::kTcp || takes_receives(spec.op) ||
                       spec.op == Operation::kConnect;
  if (counted && phase == Phase::kBandwidth && report.messages != seen->messages) {
    return failure(
        fmt::format("{} messages were sent but {} arrived", seen->messages, report.messages));
  }
  return std::pair(std::move(*seen), report);
}

Outcome<void> Session::run_phases(ClientEndpoint& endpoint, const TestSpec& spec,
                                  ContenderResult& result) {
  if (spec.verify) {
    const auto done = run_phase(endpoint, spec, Phase::kVerify);
    if (!done) return tl::unexpected(done.error());
    result.verified_messages += done->first.messages;
    // Each byte is checked once, at the end where it arrived.
    result.verified_bytes += done->first.verified_bytes + done->second.verified_bytes;
    const std::uint64_t due = done->first.messages * spec.size;
    if (done->first.verified_bytes + done->second.verified_bytes == due) return {};
    return failure("verification failed: fewer bytes were checked than were sent");
  }
  RoundResult round;
  if (setup_.request.bandwidth) {
    const auto done = run_phase(endpoint, spec, Phase::kBandwidth);
    if (!done) return tl::unexpected(done.error());
    const auto& [seen, report] = *done;
    round.has_bandwidth = true;
    round.messages = seen.messages;
    round.bytes = seen.messages * spec.size;
    round.bytes_per_s = static_cast<double>(round.bytes) / seen.seconds;
    round.messages_per_s = static_cast<double>(seen.messages) / seen.seconds;
    round.client_cpu_s = seen.cpu_s;
    round.server_cpu_s = report.cpu_s;
  }
  if (setup_.request.latency) {
    auto done = run_phase(endpoint, spec, Phase::kLatency);
    if (!done) return tl::unexpected(done.error());
    const bool one_way = latency_kind(spec.op) == "half round trip";
    round.has_latency = true;
    round.latency = summarize(done->first.samples_ns, one_way ? 2 : 1);
  }
  result.rounds.push_back(round);
  return {};
}

Outcome<void> Session::run_step(const Step& step, ContenderResult& result) {
  TestSpec spec = setup_.plan.contenders[step.contender];
  spec.verify = step.verify;
  auto endpoint = open_test(spec);
  if (!endpoint) return tl::unexpected(endpoint.error());
  if (auto ok = run_phases(**endpoint, spec, result); !ok) return ok;
  const double idle_client = result.client.idle_bytes;
  const double idle_server = result.server.idle_bytes;
  result.client = (*endpoint)->facts();
  const auto facts = ask({{"type", "facts?"}}, "facts");
  if (!facts) return tl::unexpected(facts.error());
  result.server = facts_from_json(*facts);
  // Later rounds reuse memory that the first one got from the system.
  result.client.idle_bytes = std::max(result.client.idle_bytes, idle_client);
  result.server.idle_bytes = std::max(result.server.idle_bytes, idle_server);
  if (auto ok = control_.send({{"type", "finish"}}); !ok) return ok;
  (*endpoint)->close();
  const auto finished = control_.expect("finished", kAnswerTimeoutMs);
  return finished ? Outcome<void>() : tl::unexpected(finished.error());
}

// Which contender a failure belongs to.
Failure with_contender(Failure why, const TestSpec& spec, bool verify) {
  why.message = fmt::format("{} {} of {} bytes{}: {}", name_of(spec.transport), name_of(spec.op),
                            spec.size, verify ? ", verified pass" : "", why.message);
  return why;
}

}  // namespace

Outcome<ControlConnection> reach_server(const SocketAddress& server) {
  auto fd = tcp_connect(server, kServerTimeoutMs);
  if (fd) return ControlConnection(std::move(*fd));
  return failure(fmt::format("{}; start `weft perf --listen {}` there first", fd.error().message,
                             server.port()));
}

SocketChoice tcp_choice(const TestSpec& spec, const Config& config, const SocketAddress& peer) {
  SocketChoice choice;
  choice.buffer_bytes = config.socket_buffer_bytes;
  choice.congestion = spec.tcp_congestion;
  if (spec.tcp_congestion == "same") {
    choice.congestion = peer.is_loopback() ? config.loopback_congestion : config.congestion;
  }
  return choice;
}

Outcome<RunResults> run_client(const ClientSetup& setup, Config config) {
  auto control = reach_server(setup.server);
  if (!control) return tl::unexpected(control.error());
  auto device = open_device(config);
  if (!device) return tl::unexpected(device.error());
  Session session(std::move(*control), **device, setup);
  const auto welcome = session.greet();
  if (!welcome) return tl::unexpected(welcome.error());

  RunResults results;
  results.conditions = make_conditions(setup, config, *welcome);
  for (const TestSpec& spec : setup.plan.contenders) {
    results.contenders.emplace_back().spec = spec;
  }
  Progress progress(setup.plan, setup.show_progress);
  std::vector<double> others;
  for (std::size_t i = 0; i < setup.plan.steps.size(); ++i) {
    const Step& step = setup.plan.steps[i];
    progress.show(i);
    others.push_back(static_cast<double>(runnable_others()));
    if (auto ok = session.run_step(step, results.contenders[step.contender]); !ok) {
      return tl::unexpected(
          with_contender(ok.error(), setup.plan.contenders[step.contender], step.verify));
    }
  }
  session.say_goodbye();
  results.conditions.others_running = median(std::move(others));
  return results;
}

}  // namespace weft::cli
