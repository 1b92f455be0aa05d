// The server of `weft ping`: any number of clients at once, up to kPingClients. Strangers and
// clients that misbehave lose their own connection only.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <unordered_map>

#include "weft/common/pattern.h"
#include "weft/endpoint/rdma.h"
#include "weft/endpoint/rdma_hello.h"
#include "weft/ping/ping.h"

namespace weft::cli {
namespace {

class PingServer {
 public:
  PingServer(const PingServerSetup& setup, Device& device) : setup_(setup), device_(device) {}
  [[nodiscard]] Outcome<void> open();
  [[nodiscard]] Outcome<void> serve();

 private:
  struct Client {
    std::unique_ptr<PingEnd> end;
    std::shared_ptr<Connection> connection;
    std::string who;
    std::uint64_t rounds = 0;
  };

  [[nodiscard]] Outcome<std::shared_ptr<Listener>> listen(SocketAddress where);
  void announce() const;
  void on_event(const ConnectionEvent& event);
  void on_request(const ConnectionEvent& event);
  void on_end(const ConnectionEvent& event);
  void take_completions();
  void on_message(Client& client, const WorkCompletion& completion);
  [[nodiscard]] PingVerdict judge(const Client& client, const PingHeader& header) const;
  void hang_up(Client& client, const std::string& why);
  void say(const std::string& text) const;

  const PingServerSetup& setup_;
  Device& device_;
  std::shared_ptr<ProtectionDomain> pd_;
  std::shared_ptr<CompletionChannel> channel_;
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<EventChannel> events_;
  std::shared_ptr<Listener> listener_;
  std::unordered_map<std::uint32_t, Client> clients_;  // by queue pair number
  bool served_one_ = false;
};

void PingServer::say(const std::string& text) const {
  if (setup_.quiet) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

Outcome<std::shared_ptr<Listener>> PingServer::listen(SocketAddress where) {
  auto listener = device_.create_listener(events_);
  if (!listener) {
    return failure(fmt::format("cannot create a listener: {}", describe(listener.error())));
  }
  Status ok = (*listener)->bind(where, true);
  if (ok) ok = (*listener)->listen(0);
  if (ok) return *listener;
  if (where.is_any() && where.family() == AF_INET6) {  // a machine without IPv6
    return listen(SocketAddress::any(AF_INET, where.port()));
  }
  return failure(fmt::format("cannot listen on {}: {}; choose another address or port",
                             where.text(), describe(ok.error())));
}

Outcome<void> PingServer::open() {
  auto pd = device_.create_pd();
  auto channel = device_.create_channel();
  auto events = EventChannel::create();
  if (!pd || !channel || !events) return failure("cannot create the objects of a server");
  pd_ = *pd;
  channel_ = *channel;
  events_ = *events;
  CqOptions options;
  options.depth = kPingClients * 32;
  options.channel = channel_;
  auto cq = device_.create_cq(options);
  if (!cq)
    return failure(fmt::format("cannot create a completion queue: {}", describe(cq.error())));
  cq_ = *cq;
  auto listener = listen(setup_.where);
  if (!listener) return tl::unexpected(listener.error());
  listener_ = *listener;
  announce();
  return {};
}

void PingServer::announce() const {
  const SocketAddress where = listener_->local_address();
  say(fmt::format("weft ping: waiting for clients on {}", where.text()));
  if (setup_.announce_fd < 0) return;
  const std::string line = fmt::format("{}\n", where.port());
  // The reader is the process that started this one; if it has ended there is no client.
  (void)!write(setup_.announce_fd, line.data(), line.size());
  close(setup_.announce_fd);
}

Outcome<void> PingServer::serve() {
  constexpr auto kIdleNap = std::chrono::milliseconds(500);
  constexpr auto kBusyNap = std::chrono::milliseconds(20);
  while (true) {
    // With clients, their messages come first; without, there is nothing but connections to wait
    // for.
    auto nap = clients_.empty() ? std::chrono::nanoseconds(kIdleNap) : std::chrono::nanoseconds(0);
    bool quiet_time = true;
    while (const auto event = events_->next(nap)) {
      on_event(*event);
      nap = {};
      quiet_time = false;
    }
    // A client comes back for its next size: only a while without any is the end.
    if (setup_.once && served_one_ && clients_.empty() && quiet_time) return {};
    if (clients_.empty()) continue;
    if (auto ok = cq_->arm(CompletionQueue::Arm::kNext); !ok) {
      return failure(fmt::format("cannot arm the completion queue: {}", describe(ok.error())));
    }
    take_completions();
    if (channel_->wait(kBusyNap)) cq_->ack_events(1);
    take_completions();
  }
}

void PingServer::on_event(const ConnectionEvent& event) {
  switch (event.type) {
    case ConnectionEvent::Type::kConnectRequest: return on_request(event);
    case ConnectionEvent::Type::kEstablished: return;
    default: return on_end(event);
  }
}

void PingServer::on_request(const ConnectionEvent& event) {
  const std::string who = event.connection->peer_address().text();
  const auto refuse = [&](std::string_view why) {
    say(fmt::format("{}: turned away: {}", who, why));
    (void)event.connection->reject({});  // gone already: just as well
  };
  const auto request = decode_ping_request(event.private_data);
  if (!request) return refuse("not a client of weft ping");
  if (clients_.size() == kPingClients) return refuse("too many clients at once");
  auto end = PingEnd::create(*pd_, cq_, request->size);
  if (!end) return refuse(end.error().message);
  ConnectionParams params;
  params.private_data = encode((*end)->offer());
  if (auto ok = event.connection->accept((*end)->qp(), params); !ok) {
    return refuse(describe(ok.error()));
  }
  const std::uint32_t number = (*end)->qp()->number();
  clients_[number] = {std::move(*end), event.connection, who, 0};
}

void PingServer::on_end(const ConnectionEvent& event) {
  for (auto at = clients_.begin(); at != clients_.end(); ++at) {
    if (at->second.connection != event.connection) continue;
    say(fmt::format("{}: {} rounds of {} bytes, {}", at->second.who, at->second.rounds,
                    at->second.end->size(), event.error ? describe(*event.error) : "done"));
    clients_.erase(at);
    served_one_ = true;
    return;
  }
}

void PingServer::hang_up(Client& client, const std::string& why) {
  say(fmt::format("{}: {}", client.who, why));
  (void)client.connection->disconnect();  // kDisconnected removes it
}

void PingServer::take_completions() {
  std::array<WorkCompletion, 32> completions;
  for (std::size_t n = cq_->poll(completions); n != 0; n = cq_->poll(completions)) {
    for (const WorkCompletion& completion : std::span(completions).first(n)) {
      const auto at = clients_.find(completion.qp_num);
      // Flushed work is not reported: the end of the connection is.
      if (at == clients_.end() || completion.status == WcStatus::kFlushed) continue;
      if (completion.status != WcStatus::kSuccess) {
        hang_up(at->second, describe_failure(completion).message);
      } else if (completion.op == WcOp::kRecv) {
        on_message(at->second, completion);
      }
    }
  }
}

PingVerdict PingServer::judge(const Client& client, const PingHeader& header) const {
  const PingEnd& end = *client.end;
  if (check_pattern(end.written(), ping_seed(PingPart::kWrite, header.round))) {
    return PingVerdict::kWriteWrong;
  }
  if (check_pattern(end.body(end.incoming()), ping_seed(PingPart::kSend, header.round))) {
    return PingVerdict::kSendWrong;
  }
  return PingVerdict::kRight;
}

void PingServer::on_message(Client& client, const WorkCompletion& completion) {
  PingEnd& end = *client.end;
  if (completion.byte_len != end.message_bytes())
    return hang_up(client, "a message of a wrong size");
  const PingHeader header = decode_ping_header(end.incoming());
  const PingVerdict verdict = judge(client, header);
  fill_pattern(end.readable(), ping_seed(PingPart::kRead, header.round));
  encode(PingHeader{header.round, static_cast<std::uint64_t>(verdict)}, end.outgoing());
  fill_pattern(end.body(end.outgoing()), ping_seed(PingPart::kAnswer, header.round));
  ++client.rounds;
  if (auto ok = end.post_receive(); !ok) return hang_up(client, ok.error().message);
  Sge sge;
  const SendWr answer = end.send_wr(sge);
  if (auto ok = end.post(std::span(&answer, 1)); !ok) hang_up(client, ok.error().message);
}

}  // namespace

Outcome<void> run_ping_server(const PingServerSetup& setup, Device& device) {
  PingServer server(setup, device);
  if (auto ok = server.open(); !ok) return ok;
  return server.serve();
}

}  // namespace weft::cli
