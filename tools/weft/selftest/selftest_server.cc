#include "weft/selftest/selftest_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <unordered_map>

#include "weft/selftest/selftest_guest.h"

namespace weft::selftest {
namespace {

using cli::failure;

using Type = ConnectionEvent::Type;

class Server {
 public:
  Server(const ServerSetup& setup, Device& device)
      : setup_(setup), device_(device), foreign_(kSmallBytes, kRegionSeed) {}
  [[nodiscard]] cli::Outcome<void> open();
  [[nodiscard]] cli::Outcome<void> serve();

 private:
  [[nodiscard]] cli::Outcome<void> listen();
  void announce() const;
  void on_request(const ConnectionEvent& event);
  void on_end(const ConnectionEvent& event);
  void take_completions();
  void take(Guest& guest, const WorkCompletion& completion);
  [[nodiscard]] std::uint32_t damage() const { return damage_ + (foreign_.untouched() ? 0U : 1U); }
  void say(const std::string& text) const;

  const ServerSetup& setup_;
  Device& device_;
  std::shared_ptr<CompletionChannel> channel_;
  std::shared_ptr<CompletionQueue> cq_;
  std::shared_ptr<EventChannel> events_;
  std::shared_ptr<Listener> listener_;
  std::shared_ptr<ProtectionDomain> foreign_pd_;
  Ground foreign_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Guest>> guests_;  // by queue pair number
  std::uint32_t damage_ = 0;                                          // by those that have gone
};

void Server::say(const std::string& text) const {
  if (setup_.quiet) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

cli::Outcome<void> Server::listen() {
  auto listener = device_.create_listener(events_);
  if (!listener) {
    return failure(fmt::format("cannot create a listener: {}", describe(listener.error())));
  }
  listener_ = *listener;
  Status ok = listener_->bind(setup_.where, true);
  if (ok) ok = listener_->listen(0);
  if (ok) return {};
  return failure(fmt::format("cannot listen on {}: {}; choose another address or port",
                             setup_.where.text(), describe(ok.error())));
}

cli::Outcome<void> Server::open() {
  auto channel = device_.create_channel();
  auto events = EventChannel::create();
  auto pd = device_.create_pd();
  if (!channel || !events || !pd) return failure("cannot create the objects of a server");
  channel_ = *channel;
  events_ = *events;
  foreign_pd_ = *pd;
  CqOptions options;
  options.depth = kMaxConnections * 256;
  options.channel = channel_;
  auto cq = device_.create_cq(options);
  if (!cq)
    return failure(fmt::format("cannot create a completion queue: {}", describe(cq.error())));
  cq_ = *cq;
  constexpr auto kForeignAccess = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead;
  if (auto ok = foreign_.open(*foreign_pd_, kForeignAccess); !ok) return ok;
  if (auto ok = listen(); !ok) return ok;
  announce();
  return {};
}

void Server::announce() const {
  const SocketAddress where = listener_->local_address();
  say(fmt::format("weft selftest: serving on {}", where.text()));
  if (setup_.announce_fd < 0) return;
  const std::string line = fmt::format("{}\n", where.port());
  // The reader is the process that started this one; if it has ended there is no client.
  (void)!write(setup_.announce_fd, line.data(), line.size());
  close(setup_.announce_fd);
}

cli::Outcome<void> Server::serve() {
  constexpr auto kIdleNap = std::chrono::milliseconds(500);
  constexpr auto kBusyNap = std::chrono::milliseconds(5);
  while (true) {
    auto nap = guests_.empty() ? std::chrono::nanoseconds(kIdleNap) : std::chrono::nanoseconds(0);
    while (const auto event = events_->next(nap)) {
      if (event->type == Type::kConnectRequest) {
        on_request(*event);
      } else if (event->type != Type::kEstablished) {
        on_end(*event);
      }
      nap = {};
    }
    // What nobody waits for would fill the queue.
    while (device_.next_async_event(std::chrono::nanoseconds(0))) {
    }
    if (guests_.empty()) continue;
    if (auto ok = cq_->arm(CompletionQueue::Arm::kNext); !ok) {
      return failure(fmt::format("cannot arm the completion queue: {}", describe(ok.error())));
    }
    take_completions();
    if (channel_->wait(kBusyNap)) cq_->ack_events(1);
    take_completions();
  }
}

void Server::on_request(const ConnectionEvent& event) {
  const std::string who = event.connection->peer_address().text();
  const Wish wish = decode_wish(event.private_data).value_or(Wish{});
  // A peer that has gone meanwhile hears neither answer.
  if (wish.kind == WishKind::kReject) {
    (void)event.connection->reject(raw::pattern(wish.size, kSentSeed));
    return;
  }
  if (guests_.size() == kMaxConnections) {
    say(fmt::format("{}: turned away: {} connections are open", who, kMaxConnections));
    (void)event.connection->reject({});
    return;
  }
  auto guest = Guest::create(device_, cq_, wish.kind != WishKind::kNoReceives);
  if (!guest) {
    say(fmt::format("{}: turned away: {}", who, guest.error().message));
    (void)event.connection->reject({});
    return;
  }
  ConnectionParams params;
  params.private_data = encode((*guest)->offer(event.private_data, foreign_));
  if (!event.connection->accept((*guest)->qp(), params)) return;
  (*guest)->connection = event.connection;
  const std::uint32_t number = (*guest)->qp()->number();
  guests_[number] = std::move(*guest);
}

void Server::on_end(const ConnectionEvent& event) {
  for (auto at = guests_.begin(); at != guests_.end(); ++at) {
    if (at->second->connection != event.connection) continue;
    damage_ += at->second->damage();
    guests_.erase(at);
    return;
  }
}

void Server::take_completions() {
  std::array<WorkCompletion, 32> completions;
  for (std::size_t n = cq_->poll(completions); n != 0; n = cq_->poll(completions)) {
    for (const WorkCompletion& completion : std::span(completions).first(n)) {
      const auto at = guests_.find(completion.qp_num);
      // Failed work is not reported: the end of the connection is.
      if (at == guests_.end() || completion.status != WcStatus::kSuccess) continue;
      take(*at->second, completion);
    }
  }
}

void Server::take(Guest& guest, const WorkCompletion& completion) {
  const auto connections = static_cast<std::uint32_t>(guests_.size());
  bool stays = true;
  if (completion.op == WcOp::kRecv || completion.op == WcOp::kRecvWithImm) {
    stays = guest.take(completion, damage(), connections);
  } else if (completion.op == WcOp::kRead) {
    stays = guest.take_read(damage(), connections);
  }
  if (!stays) (void)guest.connection->disconnect();
}

}  // namespace

cli::Outcome<void> serve(const ServerSetup& setup, Device& device) {
  Server server(setup, device);
  if (auto ok = server.open(); !ok) return ok;
  return server.serve();
}

}  // namespace weft::selftest
