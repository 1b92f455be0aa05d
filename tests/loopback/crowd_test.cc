// What a peer can take before anybody knows it has a limit of its own: 10,000 of each are opened,
// and an honest client is served beside them.
#include <gtest/gtest.h>
#include <weft/limits.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "support/crowd.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

// An MPA Request of revision 1, with CRC, without private data.
constexpr std::string_view kRequest("MPA ID Req Frame\x40\x01\x00\x00", 20);

bool has_room() { return Crowd::has_room(limits::kHalfOpenConnections + 1000); }

bool takes_at_most(const Crowd& crowd, std::size_t limit) {
  return eventually([&] { return crowd.is_alone_but_for(limit); });
}

// Connects through `listener`, whose other requests are refused, and sends a message.
void expect_served(Host& host, Endpoint& passive, Listener& listener) {
  Endpoint active(host);
  active.connection = must(host.device->create_connection(active.events), "create");
  ConnectionParams params;
  params.private_data = {'h', 'i'};
  must(active.connection->connect(active.qp, listener.local_address(), params), "connect");
  // All that have come at each look, since thousands may be in front.
  const auto takes_it = [&] {
    while (const auto event = next_event(*passive.events, milliseconds(1))) {
      if (event->type != Type::kConnectRequest) continue;
      if (event->private_data == params.private_data) {
        passive.connection = event->connection;
        return true;
      }
      static_cast<void>(event->connection->reject({}));
    }
    return false;
  };
  const bool asked = eventually(takes_it, 4 * kPatience);
  ASSERT_TRUE(asked) << "the honest client waits behind the crowd";
  must(passive.connection->accept(passive.qp, {}), "accept");
  take_event(*active.events, Type::kEstablished);
  post_empty_recvs(*passive.qp, 1, 1);
  post(*active.qp, wr_send(1));
  take_success(*passive.recv_cq, 1);
}

TEST(Crowd, ThatSaysNothingKeepsNobodyOut) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  Host host;
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(listener->local_address().port(), "");
  expect_served(host, passive, *listener);
  EXPECT_TRUE(takes_at_most(crowd, limits::kHalfOpenConnections));
}

TEST(Crowd, OfRequestsThatNobodyTakesKeepsNobodyOutOfAnotherListener) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  constexpr int kBacklog = 16;
  Host host;
  const auto unread = must(EventChannel::create(), "a channel");
  const auto crowded = must(host.device->create_listener(unread), "a listener");
  must(crowded->bind(must(SocketAddress::parse("127.0.0.1:0"), "parse"), true, false), "bind");
  must(crowded->listen(kBacklog), "listen");
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(crowded->local_address().port(), kRequest);
  expect_served(host, passive, *listener);
  EXPECT_TRUE(takes_at_most(crowd, limits::kHalfOpenConnections + kBacklog));
  // Those that have been reported count until they are taken.
  std::size_t reported = 0;
  while (reported < kBacklog && next_event(*unread)) ++reported;
  EXPECT_EQ(reported, static_cast<std::size_t>(kBacklog));
}

TEST(Crowd, OfRequestsIsAnsweredAndTheHonestOneAmongThem) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  Host host;
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(listener->local_address().port(), kRequest);
  expect_served(host, passive, *listener);
}

// An FPDU whose CRC is wrong.
std::string violation() {
  constexpr std::size_t kUlpdu = 18;
  return std::string{'\0', static_cast<char>(kUlpdu)} + std::string(kUlpdu + 4, 'x');
}

// The connections end by a Terminate, and their peers never close. Each takes a queue pair until
// the program gives it up, so there are fewer.
TEST(Crowd, OfConnectionsInTerminateKeepsNobodyOutAndIsGivenBack) {
  if (!has_room()) GTEST_SKIP() << "too few descriptors";
  constexpr std::size_t kSize = 1000;
  Host host;
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(listener->local_address().port(), kRequest, kSize);
  std::vector<std::shared_ptr<QueuePair>> qps;
  while (qps.size() < kSize) {
    const auto request = next_event(*passive.events);
    ASSERT_TRUE(request.has_value()) << qps.size();
    if (request->type != Type::kConnectRequest) continue;
    QpOptions options;
    options.send_cq = options.recv_cq = passive.send_cq;
    qps.push_back(must(host.pd->create_qp(options), "create a QP"));
    must(request->connection->accept(qps.back(), {}), "accept");
  }
  crowd.say(violation());
  EXPECT_TRUE(eventually([&] {
    return std::ranges::none_of(qps, [](const auto& qp) { return qp->state() == QpState::kRts; });
  }));
  while (next_event(*passive.events, milliseconds(1))) {
  }
  expect_served(host, passive, *listener);
  qps.clear();
  EXPECT_TRUE(takes_at_most(crowd, 0));
}

}  // namespace
}  // namespace weft::test
