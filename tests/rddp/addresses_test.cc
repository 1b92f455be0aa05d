// Connecting over the kernel's TCP: every address of a name is tried, and what went wrong is told.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/rddp.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace weft::testing {
namespace {

// A TCP socket that listens on 127.0.0.1 and does what MPA would not.
class PlainListener {
 public:
  PlainListener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(fd_, 4), 0);
    socklen_t size = sizeof at;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
  }
  ~PlainListener() { ::close(fd_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] int accept_one() const { return accept(fd_, nullptr, nullptr); }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

class Addresses : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(rddp_open(nullptr, &device_), RDDP_OK);
    ASSERT_EQ(rddp_create(device_, RDDP_RDMA, &socket_), RDDP_OK);
  }
  void TearDown() override {
    rddp_close(socket_);
    rddp_close_device(device_);
  }
  int connect(const char* host, std::uint16_t port) {
    return rddp_connect(socket_, host, port, nullptr, 0);
  }
  rddp_device* device_ = nullptr;
  rddp_socket* socket_ = nullptr;
};

std::uint16_t closed_port() { return PlainListener().port(); }

TEST_F(Addresses, NobodyListensIsRefused) {
  EXPECT_EQ(connect("127.0.0.1", closed_port()), RDDP_REFUSED);
}
TEST_F(Addresses, NoRouteIsUnreachable) {
  EXPECT_EQ(connect("224.0.0.1", 1), RDDP_UNREACHABLE);  // a group: TCP has no way there
}
TEST_F(Addresses, NoSuchNameIsUnreachable) {
  EXPECT_EQ(connect("no-such-name.invalid", 1), RDDP_UNREACHABLE);
}
TEST_F(Addresses, APeerThatSaysNothingTimesOut) {
  const PlainListener silent;
  rddp_set_timeout(socket_, 50);
  EXPECT_EQ(connect("127.0.0.1", silent.port()), RDDP_TIMED_OUT);
}
TEST_F(Addresses, APeerThatEndsTheStartUpIsDownNotRefused) {
  const PlainListener rude;
  std::thread peer([&] { ::close(rude.accept_one()); });
  EXPECT_EQ(connect("127.0.0.1", rude.port()), RDDP_DOWN);
  peer.join();
}
TEST_F(Addresses, APeerThatDoesNotSpeakMpaIsDownNotRefused) {
  const PlainListener other;
  std::thread peer([&] {
    const int fd = other.accept_one();
    const char text[] = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
    EXPECT_EQ(write(fd, text, sizeof text), static_cast<ssize_t>(sizeof text));
    char c = 0;
    while (read(fd, &c, 1) == 1) {
    }
    ::close(fd);
  });
  EXPECT_EQ(connect("127.0.0.1", other.port()), RDDP_DOWN);
  rddp_close(socket_);
  ASSERT_EQ(rddp_create(device_, RDDP_RDMA, &socket_), RDDP_OK);
  peer.join();
}

// A listener without a host takes peers of IPv4 and of IPv6.
TEST_F(Addresses, NoHostMeansEveryAddress) {
  rddp_listener* listener = nullptr;
  ASSERT_EQ(rddp_listen(device_, RDDP_RDMA, nullptr, 0, &listener), RDDP_OK);
  rddp_set_timeout(socket_, 1);
  EXPECT_EQ(connect("127.0.0.1", rddp_port(listener)), RDDP_TIMED_OUT) << "nobody answers";
  rddp_close(socket_);
  ASSERT_EQ(rddp_create(device_, RDDP_RDMA, &socket_), RDDP_OK);
  rddp_set_timeout(socket_, 1);
  const int status = connect("::1", rddp_port(listener));
  EXPECT_TRUE(status == RDDP_TIMED_OUT || status == RDDP_UNREACHABLE) << rddp_describe(status);
  rddp_close_listener(listener);
}

// The name has two addresses (below); somebody listens at the second one only.
TEST_F(Addresses, TheSecondAddressOfANameIsTriedToo) {
  rddp_device* server = nullptr;
  ASSERT_EQ(rddp_open(nullptr, &server), RDDP_OK);
  rddp_listener* listener = nullptr;
  ASSERT_EQ(rddp_listen(server, RDDP_RDMA, "127.0.0.1", 0, &listener), RDDP_OK);
  std::thread accepts([&] {
    rddp_socket* s = nullptr;
    ASSERT_EQ(rddp_accept(listener, 20'000, &s), RDDP_OK);
    EXPECT_EQ(rddp_answer(s, 1, "here", 4), RDDP_OK);
    rddp_close(s);
  });
  EXPECT_EQ(connect("two-addresses.test", rddp_port(listener)), RDDP_OK);
  std::size_t length = 0;
  const void* data = rddp_private_data(socket_, &length);
  EXPECT_EQ(std::string(static_cast<const char*>(data), length), "here");
  rddp_close(socket_);
  accepts.join();
  ASSERT_EQ(rddp_create(device_, RDDP_RDMA, &socket_), RDDP_OK);
  EXPECT_EQ(connect("two-addresses.test", closed_port()), RDDP_REFUSED);
  rddp_close_listener(listener);
  rddp_close_device(server);
}

}  // namespace
}  // namespace weft::testing

// In place of the C library's: one name of ours has two addresses, of which the first one is
// another part of this machine's own network.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (host == nullptr || std::strcmp(host, "two-addresses.test") != 0) {
    return real(host, service, hints, found);
  }
  const int first = real("127.0.0.99", service, hints, found);
  return first != 0 ? first : real("127.0.0.1", service, hints, &(*found)->ai_next);
}
