#include <poll.h>

#include "verbs/event_channel.h"
#include "verbs_testing.h"

namespace weft::verbs::test {
namespace {

class EventsTest : public ::testing::Test {
 protected:
  static bool readable(const EventChannel& channel) {
    pollfd p{channel.fd(), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  }
  ConnectionEvent event(EventType type, const std::shared_ptr<Connection>& connection) {
    ConnectionEvent e;
    e.type = type;
    e.connection = connection;
    return e;
  }
  Host host;
  std::shared_ptr<EventChannel> channel = new_channel();
  std::shared_ptr<Connection> a = *host.device->create_connection(channel);
  std::shared_ptr<Connection> b = *host.device->create_connection(channel);
};

TEST_F(EventsTest, ComeInOrderWithWhatTheyCarry) {
  ConnectionEvent e = event(EventType::kRejected, a);
  e.error = Error::kRefused;
  e.private_data = {1, 2, 3};
  channel->post(std::move(e));
  channel->post(event(EventType::kDisconnected, b));
  EXPECT_TRUE(readable(*channel));
  const ConnectionEvent first = next_event(*channel);
  EXPECT_EQ(first.connection, a);
  EXPECT_EQ(first.error, Error::kRefused);
  EXPECT_EQ(first.private_data, (Bytes{1, 2, 3}));
  EXPECT_EQ(next_event(*channel).connection, b);
  EXPECT_FALSE(readable(*channel));
}

TEST_F(EventsTest, EventAboutAConnectionThatIsGoneIsSkipped) {
  channel->post(event(EventType::kDisconnected, a));
  channel->post(event(EventType::kDisconnected, b));
  a.reset();
  EXPECT_EQ(next_event(*channel).connection, b);
  EXPECT_TRUE(no_event(*channel));
}

TEST_F(EventsTest, UndeliveredEventsDoNotKeepAConnectionAlive) {
  channel->post(event(EventType::kEstablished, a));
  const std::weak_ptr<Connection> weak = a;
  a.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(eventually([&] { return host.device->count(ObjectKind::kConnection) == 1; }));
}

TEST_F(EventsTest, MoveToAnotherChannelInOrder) {
  channel->post(event(EventType::kEstablished, a));
  channel->post(event(EventType::kEstablished, b));
  channel->post(event(EventType::kDisconnected, a));
  const auto other = new_channel();
  a->set_channel(other);
  expect_event(*other, EventType::kEstablished);
  expect_event(*other, EventType::kDisconnected);
  EXPECT_TRUE(no_event(*other));
  EXPECT_EQ(next_event(*channel).connection, b);
  EXPECT_TRUE(no_event(*channel));
}

TEST_F(EventsTest, ChannelMayGoBeforeItsConnections) {
  channel.reset();
  a->abort();
  b.reset();
}

}  // namespace
}  // namespace weft::verbs::test
