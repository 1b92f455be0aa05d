// What a peer can take before anybody knows it has a limit of its own: 10,000 of each are opened,
// and an honest client is served beside them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/limits.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

constexpr std::size_t kCrowd = 10000;
// An MPA Request of revision 1, with CRC, without private data.
constexpr std::string_view kRequest("MPA ID Req Frame\x40\x01\x00\x00", 20);

std::size_t open_descriptors() {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Sockets that connect to a port, say something or nothing, and stay.
class Crowd {
 public:
  // False: this process may not open so many descriptors.
  [[nodiscard]] static bool has_room() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t wanted = kCrowd + limits::kHalfOpenConnections + 1000;
    if (limit.rlim_cur < wanted) limit.rlim_cur = std::min(wanted, limit.rlim_max);
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= wanted;
  }

  Crowd(std::uint16_t port, std::string_view says) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (std::size_t i = 0; i < kCrowd; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      if (fd < 0) throw Failure("no socket for the crowd");
      sockets_.push_back(fd);
      // Inside a machine the handshake is over now, unless the kernel's queue is full: then it goes
      // on by itself, and what is said is lost.
      static_cast<void>(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to));
      if (!says.empty()) {
        static_cast<void>(!::send(fd, says.data(), says.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      }
    }
  }
  ~Crowd() {
    for (const int fd : sockets_) ::close(fd);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // The other side has no more descriptors of it than `limit`, and some for other things. (Those of
  // a test before may still be closed.)
  [[nodiscard]] bool takes_at_most(std::size_t limit) const {
    constexpr std::size_t kOthers = 100;
    return eventually([&] { return open_descriptors() <= sockets_.size() + limit + kOthers; });
  }

 private:
  std::vector<int> sockets_;
};

// Connects through `listener`, whose other requests are refused, and sends a message.
void expect_served(Host& host, Endpoint& passive, Listener& listener) {
  Endpoint active(host);
  active.connection = must(host.device->create_connection(active.events), "create");
  ConnectionParams params;
  params.private_data = {'h', 'i'};
  must(active.connection->connect(active.qp, listener.local_address(), params), "connect");
  const bool asked = eventually([&] {
    const auto event = next_event(*passive.events, milliseconds(1));
    if (!event || event->type != Type::kConnectRequest) return false;
    if (event->private_data != params.private_data) {
      static_cast<void>(event->connection->reject({}));
      return false;
    }
    passive.connection = event->connection;
    return true;
  });
  ASSERT_TRUE(asked) << "the honest client waits behind the crowd";
  must(passive.connection->accept(passive.qp, {}), "accept");
  take_event(*active.events, Type::kEstablished);
  post_empty_recvs(*passive.qp, 1, 1);
  post(*active.qp, wr_send(1));
  take_success(*passive.recv_cq, 1);
}

TEST(Crowd, ThatSaysNothingKeepsNobodyOut) {
  if (!Crowd::has_room()) GTEST_SKIP() << "too few descriptors";
  Host host;
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(listener->local_address().port(), "");
  expect_served(host, passive, *listener);
  EXPECT_TRUE(crowd.takes_at_most(limits::kHalfOpenConnections)) << open_descriptors();
}

TEST(Crowd, OfRequestsThatNobodyTakesKeepsNobodyOutOfAnotherListener) {
  if (!Crowd::has_room()) GTEST_SKIP() << "too few descriptors";
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
  EXPECT_TRUE(crowd.takes_at_most(limits::kHalfOpenConnections + kBacklog)) << open_descriptors();
  // Those that have been reported count until they are taken.
  std::size_t reported = 0;
  while (reported < kBacklog && next_event(*unread)) ++reported;
  EXPECT_EQ(reported, static_cast<std::size_t>(kBacklog));
}

TEST(Crowd, OfRequestsIsAnsweredAndTheHonestOneAmongThem) {
  if (!Crowd::has_room()) GTEST_SKIP() << "too few descriptors";
  Host host;
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  const Crowd crowd(listener->local_address().port(), kRequest);
  expect_served(host, passive, *listener);
}

}  // namespace
}  // namespace weft::test
