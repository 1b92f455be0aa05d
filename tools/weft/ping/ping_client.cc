// The client of `weft ping`.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "weft/common/parse.h"
#include "weft/common/pattern.h"
#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma.h"
#include "weft/endpoint/rdma_hello.h"
#include "weft/perf/stats.h"
#include "weft/ping/ping.h"

namespace weft::cli {
namespace {

using std::chrono::milliseconds;
constexpr auto kNap = milliseconds(100);
constexpr std::int64_t kConnectPatienceNs = 30'000'000'000;
constexpr std::int64_t kAnswerPatienceNs = 10'000'000'000;

// Set by SIGINT: the statistics are printed all the same.
volatile sig_atomic_t interrupted = 0;

struct SizeResult {
  std::uint64_t size = 0;
  std::uint64_t rounds = 0;
  std::uint64_t verified_bytes = 0;
  std::string path;                   // that carried the last round
  std::vector<std::int64_t> echo_ns;  // Write and Send until the answer
  std::vector<std::int64_t> read_ns;
};

class PingClient {
 public:
  PingClient(const PingClientSetup& setup, Device& device, std::uint64_t size)
      : setup_(setup), device_(device) {
    result_.size = size;
  }
  [[nodiscard]] Outcome<void> connect();
  [[nodiscard]] Outcome<void> run();
  [[nodiscard]] SizeResult& result() { return result_; }

 private:
  [[nodiscard]] Outcome<void> wait_established();
  [[nodiscard]] Outcome<void> one_round(std::uint64_t round);
  [[nodiscard]] Outcome<void> echo(std::uint64_t round);
  [[nodiscard]] Outcome<void> read_back(std::uint64_t round);
  [[nodiscard]] Outcome<void> wait_for(WcOp wanted);
  [[nodiscard]] Outcome<void> compare(std::span<const std::uint8_t> bytes, PingPart part,
                                      std::uint64_t round, std::string_view what);
  void print_round(std::uint64_t round) const;
  void sleep_until_next() const;

  const PingClientSetup& setup_;
  Device& device_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionChannel> channel_;
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<EventChannel> events_;
  std::unique_ptr<PingEnd> end_;
  std::shared_ptr<Connection> connection_;
  PingOffer peer_;
  SizeResult result_;
};

Outcome<void> PingClient::connect() {
  auto pd = device_.create_pd();
  auto channel = device_.create_channel();
  auto events = EventChannel::create();
  if (!pd || !channel || !events) return failure("cannot create the objects of a client");
  pd_ = *pd;
  channel_ = *channel;
  events_ = *events;
  CqOptions options;
  options.channel = channel_;
  auto cq = device_.create_cq(options);
  if (!cq)
    return failure(fmt::format("cannot create a completion queue: {}", describe(cq.error())));
  cq_ = *cq;
  auto end = PingEnd::create(*pd_, cq_, result_.size);
  if (!end) return tl::unexpected(end.error());
  end_ = std::move(*end);
  auto connection = device_.create_connection(events_);
  if (!connection) {
    return failure(fmt::format("cannot create a connection: {}", describe(connection.error())));
  }
  connection_ = *connection;
  ConnectionParams params;
  params.private_data = encode(PingRequest{result_.size});
  if (auto ok = connection_->connect(end_->qp(), setup_.server, params); !ok) {
    return failure(
        fmt::format("cannot connect to {}: {}", setup_.server.text(), describe(ok.error())));
  }
  return wait_established();
}

Outcome<void> PingClient::wait_established() {
  const std::int64_t deadline = now_ns() + kConnectPatienceNs;
  auto event = events_->next(kNap);
  while (!event && now_ns() < deadline && interrupted == 0) event = events_->next(kNap);
  if (!event) return failure(fmt::format("no answer from {}", setup_.server.text()));
  if (event->type != ConnectionEvent::Type::kEstablished) {
    return failure(fmt::format("cannot reach {}: {}; start `weft ping --listen {}` there first",
                               setup_.server.text(), describe_event(*event).message,
                               setup_.server.port()));
  }
  const auto offer = decode_ping_offer(event->private_data);
  if (!offer) return failure(fmt::format("{} is no `weft ping` server", setup_.server.text()));
  peer_ = *offer;
  return {};
}

Outcome<void> PingClient::run() {
  for (std::uint64_t round = 1; round <= setup_.count && interrupted == 0; ++round) {
    if (round > 1) sleep_until_next();
    if (auto ok = one_round(round); !ok) return ok;
    ++result_.rounds;
    if (!setup_.quiet && !setup_.json) print_round(round);
  }
  result_.path = connection_->info().path;
  (void)connection_->disconnect();
  (void)events_->next(milliseconds(2000));  // its end; the process may leave without it
  return {};
}

void PingClient::sleep_until_next() const {
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(setup_.interval_s * 1e9);
  while (now_ns() < end && interrupted == 0) {
    const auto left = std::chrono::nanoseconds(end - now_ns());
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kNap));
  }
}

Outcome<void> PingClient::one_round(std::uint64_t round) {
  fill_pattern(end_->written(), ping_seed(PingPart::kWrite, round));
  encode(PingHeader{round, 0}, end_->outgoing());
  fill_pattern(end_->body(end_->outgoing()), ping_seed(PingPart::kSend, round));
  const std::int64_t begin = now_ns();
  if (auto ok = echo(round); !ok) return ok;
  result_.echo_ns.push_back(now_ns() - begin);
  if (auto ok = compare(end_->body(end_->incoming()), PingPart::kAnswer, round, "the answer");
      !ok) {
    return ok;
  }
  if (auto ok = end_->post_receive(); !ok) return ok;
  return read_back(round);
}

// One list: the Write, and the Send that tells the server to look at it.
Outcome<void> PingClient::echo(std::uint64_t round) {
  std::array<Sge, 2> sges;
  const std::array<SendWr, 2> wrs = {end_->remote_wr(SendOp::kWrite, sges[0], peer_),
                                     end_->send_wr(sges[1])};
  if (auto ok = end_->post(wrs); !ok) return ok;
  if (auto ok = wait_for(WcOp::kRecv); !ok) return ok;
  const PingHeader header = decode_ping_header(end_->incoming());
  if (header.round != round) {
    return failure(fmt::format("round {}: the answer is to round {}", round, header.round));
  }
  const auto verdict = static_cast<PingVerdict>(header.verdict);
  if (verdict == PingVerdict::kRight) {
    result_.verified_bytes += 2 * end_->size();
    return {};
  }
  return failure(
      fmt::format("verification failed: round {}: the server got other bytes than were "
                  "{}",
                  round, verdict == PingVerdict::kWriteWrong ? "written" : "sent"));
}

Outcome<void> PingClient::read_back(std::uint64_t round) {
  Sge sge;
  const SendWr wr = end_->remote_wr(SendOp::kRead, sge, peer_);
  const std::int64_t begin = now_ns();
  if (auto ok = end_->post(std::span(&wr, 1)); !ok) return ok;
  if (auto ok = wait_for(WcOp::kRead); !ok) return ok;
  result_.read_ns.push_back(now_ns() - begin);
  return compare(end_->readable(), PingPart::kRead, round, "what was read");
}

Outcome<void> PingClient::compare(std::span<const std::uint8_t> bytes, PingPart part,
                                  std::uint64_t round, std::string_view what) {
  const auto bad = check_pattern(bytes, ping_seed(part, round));
  if (!bad) {
    result_.verified_bytes += bytes.size();
    return {};
  }
  return failure(
      fmt::format("verification failed: round {}: byte {} of {} is {:#04x} where {:#04x} "
                  "was due",
                  round, bad->offset, what, bad->found, bad->expected));
}

Outcome<void> PingClient::wait_for(WcOp wanted) {
  const std::int64_t deadline = now_ns() + kAnswerPatienceNs;
  while (now_ns() < deadline) {
    if (auto ok = cq_->arm(CompletionQueue::Arm::kNext); !ok) {
      return failure(fmt::format("cannot arm the completion queue: {}", describe(ok.error())));
    }
    std::array<WorkCompletion, 1> completion;
    while (cq_->poll(completion) != 0) {
      const WorkCompletion& c = completion[0];
      if (c.status == WcStatus::kFlushed) return failure("the connection has ended");
      if (c.status != WcStatus::kSuccess) return tl::unexpected(describe_failure(c));
      if (c.op == wanted) return {};
    }
    if (channel_->wait(kNap)) cq_->ack_events(1);
  }
  return failure(fmt::format("{} has not answered for {} s", setup_.server.text(),
                             kAnswerPatienceNs / 1'000'000'000));
}

void PingClient::print_round(std::uint64_t round) const {
  fmt::print("{}: round {}: write + send {:.1f} us, read {:.1f} us, verified\n",
             format_size(end_->size()), round, static_cast<double>(result_.echo_ns.back()) * 1e-3,
             static_cast<double>(result_.read_ns.back()) * 1e-3);
  std::fflush(stdout);
}

nlohmann::ordered_json size_json(SizeResult& result) {
  const auto times = [](std::vector<std::int64_t>& ns) -> nlohmann::ordered_json {
    const LatencyUs us = summarize(ns, 1);
    return {{"min", percentile(ns, 0) * 1e-3}, {"p50", us.p50}, {"p99", us.p99}, {"max", us.max}};
  };
  return {{"size", result.size},
          {"rounds", result.rounds},
          {"verified_bytes", result.verified_bytes},
          {"path", result.path},
          {"write_send_us", times(result.echo_ns)},
          {"read_us", times(result.read_ns)}};
}

void print_statistics(SizeResult& result) {
  const auto line = [](std::string_view what, std::vector<std::int64_t>& ns) {
    const LatencyUs us = summarize(ns, 1);
    fmt::print("  {:<12}  min {:.1f}  median {:.1f}  p99 {:.1f}  max {:.1f} us\n", what,
               percentile(ns, 0) * 1e-3, us.p50, us.p99, us.max);
  };
  fmt::print("{}: {} rounds, {} bytes verified{}\n", format_size(result.size), result.rounds,
             result.verified_bytes, result.path.empty() ? "" : ", over " + result.path);
  if (result.rounds == 0) return;
  line("write + send", result.echo_ns);
  line("read", result.read_ns);
}

}  // namespace

Outcome<void> run_ping_client(const PingClientSetup& setup, Device& device) {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const std::uint64_t size : setup.sizes) {
    if (interrupted != 0) break;
    PingClient client(setup, device, size);
    if (auto ok = client.connect(); !ok) return ok;
    const auto ok = client.run();
    if (setup.json) {
      results.push_back(size_json(client.result()));
    } else {
      print_statistics(client.result());
    }
    if (!ok) return ok;
  }
  if (setup.json) {
    const nlohmann::ordered_json document{{"weft", version()}, {"results", results}};
    fmt::print("{}\n", document.dump(2));
  }
  return {};
}

}  // namespace weft::cli
