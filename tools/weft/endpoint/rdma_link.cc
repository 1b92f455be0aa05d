// How the connections of an RDMA test come and go.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cstring>

#include "weft/common/sysinfo.h"
#include "weft/endpoint/rdma.h"
#include "weft/endpoint/rdma_hello.h"

namespace weft::cli {
namespace {

constexpr auto kLinkNap = std::chrono::milliseconds(100);
constexpr std::size_t kConnectingAtOnce = 64;

}  // namespace

Outcome<std::shared_ptr<QueuePair>> RdmaTest::make_qp(bool idle) {
  QpOptions options;
  options.send_cq = cq_;
  options.recv_cq = cq_;
  options.max_send_sge = 1;
  options.max_recv_sge = 1;
  // An idle connection gets small queues: its cost is the engine's, not that of queues nobody uses.
  options.max_send_wr = idle ? 16 : spec_.depth + kNoteSlots;
  options.max_recv_wr = idle ? 16 : receive_count();
  options.max_inline_bytes = idle ? 0 : std::max<std::uint32_t>(spec_.inline_bytes, 16);
  auto qp = pd_->create_qp(options);
  if (qp) return *qp;
  return failure(fmt::format("cannot create a queue pair: {}", describe(qp.error())));
}

Outcome<void> RdmaTest::post_first_receives(RdmaLink& link) {
  for (std::uint32_t cell = 0; cell < receive_count(); ++cell) {
    if (auto ok = repost(link, cell); !ok) return ok;
  }
  return flush_receives();
}

ConnectionParams RdmaTest::params(TestToken token, std::uint32_t index) const {
  return params_of(spec_, {token, index});
}

// Connections are numbered: first those of the test, then the idle ones.
Outcome<std::shared_ptr<QueuePair>> RdmaTest::adopt(std::uint32_t index,
                                                    std::shared_ptr<Connection> connection) {
  const bool idle = index >= spec_.connections;
  auto qp = make_qp(idle);
  if (!qp) return qp;
  if (idle) {
    idle_[index - spec_.connections] = {*qp, std::move(connection)};
    return qp;
  }
  RdmaLink& link = links_[index];
  link.qp = *qp;
  link.connection = std::move(connection);
  if (auto ok = post_first_receives(link); !ok) return tl::unexpected(ok.error());
  return qp;
}

Outcome<void> RdmaTest::start_connecting(std::uint32_t index, const SocketAddress& server,
                                         TestToken token) {
  auto connection = device_.create_connection(events_);
  if (!connection) {
    return failure(fmt::format("cannot create a connection: {}", describe(connection.error())));
  }
  auto qp = adopt(index, *connection);
  if (!qp) return tl::unexpected(qp.error());
  if (auto ok = (*connection)->connect(*qp, server, params(token, index)); !ok) {
    return failure(fmt::format("cannot connect to {}: {}", server.text(), describe(ok.error())));
  }
  return {};
}

// Takes events until `wanted` connections are established. On the server's side it also answers
// the requests.
Outcome<void> RdmaTest::wait_established(std::size_t wanted, Watch& watch) {
  while (established_ < wanted) {
    const auto event = events_->next(kLinkNap);
    if (!event) {
      if (auto ok = watch.check(); !ok) return ok;
      continue;
    }
    switch (event->type) {
      case ConnectionEvent::Type::kEstablished:
        ++established_;
        if (role_ == Role::kServer && established_ == spec_.connections) measure_idle_memory();
        break;
      case ConnectionEvent::Type::kConnectRequest:
        if (auto ok = answer_request(*event); !ok) return ok;
        break;
      default: return tl::unexpected(watch.explain(describe_event(*event)));
    }
  }
  return {};
}

void RdmaTest::measure_idle_memory() {
  if (spec_.idle == 0) return;
  malloc_trim(0);  // what earlier tests freed must not hide what these connections take
  memory_before_idle_ = static_cast<double>(private_memory_bytes());
}

Outcome<void> RdmaTest::connect_links(const SocketAddress& server, TestToken token, Watch& watch) {
  for (std::uint32_t i = 0; i < total_links(); ++i) {
    if (i == spec_.connections) measure_idle_memory();
    if (auto ok = start_connecting(i, server, token); !ok) return ok;
    // The idle ones come after all others, so that their memory can be told apart.
    const bool last_of_kind = i + 1 == spec_.connections || i + 1 == total_links();
    const std::size_t slack = last_of_kind ? 0 : kConnectingAtOnce - 1;
    const std::size_t wanted = i + 1 > slack ? i + 1 - slack : 0;
    if (auto ok = wait_established(wanted, watch); !ok) return ok;
  }
  if (spec_.idle != 0) {
    idle_bytes_ = (static_cast<double>(private_memory_bytes()) - memory_before_idle_) / spec_.idle;
  }
  return {};
}

Outcome<std::uint16_t> RdmaTest::listen_for_links(const SocketAddress& local, TestToken token) {
  token_ = token;
  auto listener = listen_on_any_port(device_, events_, local);
  if (!listener) return tl::unexpected(listener.error());
  listener_ = *listener;
  return listener_->local_address().port();
}

Outcome<void> RdmaTest::answer_request(const ConnectionEvent& event) {
  const auto hello = decode_hello(event.private_data);
  const bool known = hello && hello->token == token_ && hello->index < total_links();
  const bool taken = known && (hello->index < spec_.connections
                                   ? links_[hello->index].qp != nullptr
                                   : idle_[hello->index - spec_.connections].qp != nullptr);
  if (!known || taken) {
    (void)event.connection->reject({});  // a stranger: gone or not, it is none of ours
    return {};
  }
  auto qp = adopt(hello->index, event.connection);
  if (!qp) return tl::unexpected(qp.error());
  if (auto ok = event.connection->accept(*qp, params(token_, hello->index)); !ok) {
    return failure(fmt::format("cannot accept a connection: {}", describe(ok.error())));
  }
  return {};
}

Outcome<void> RdmaTest::accept_links(Watch& watch) {
  auto ok = wait_established(total_links(), watch);
  if (ok && spec_.idle != 0) {
    idle_bytes_ = (static_cast<double>(private_memory_bytes()) - memory_before_idle_) / spec_.idle;
  }
  listener_.reset();
  return ok;
}

void RdmaTest::close_links() {
  constexpr std::int64_t kPatienceNs = 3'000'000'000;
  const auto hang_up = [](const std::shared_ptr<Connection>& connection) {
    if (connection) (void)connection->disconnect();
  };
  for (RdmaLink& link : links_) hang_up(link.connection);
  for (IdleLink& link : idle_) hang_up(link.connection);
  const std::int64_t deadline = now_ns() + kPatienceNs;
  while (disconnected_ < established_ && now_ns() < deadline) {
    const auto event = events_->next(kLinkNap);
    if (event && event->type == ConnectionEvent::Type::kDisconnected) ++disconnected_;
  }
}

}  // namespace weft::cli
