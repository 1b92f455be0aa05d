// Every allocation and every system call of rsockets' calls fails once: the call says so, nothing
// ends the process, and the next works.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/select.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "nth_fails_check.h"

namespace weft::abi {
namespace {

sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// A listener whose connections a thread accepts and closes.
class Served {
 public:
  Served() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(rbind(fd_, generic(address_), sizeof address_), 0);
    EXPECT_EQ(rlisten(fd_, 64), 0) << std::strerror(errno);
    socklen_t length = sizeof address_;
    EXPECT_EQ(rgetsockname(fd_, generic(address_), &length), 0);
    thread_ = std::thread([this] {
      for (;;) {
        const int one = raccept(fd_, nullptr, nullptr);
        if (one >= 0) {
          EXPECT_EQ(rclose(one), 0);
        } else if (errno == EINVAL || errno == EBADF) {
          return;
        }
      }
    });
  }
  ~Served() {
    EXPECT_EQ(rclose(fd_), 0);
    thread_.join();
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  int connect(int fd) { return rconnect(fd, generic(address_), sizeof address_); }
  // One for whom nothing fails.
  void expect_works() {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd), 0) << std::strerror(errno);
    char octet = 0;
    EXPECT_EQ(rrecv(fd, &octet, 1, 0), 0) << std::strerror(errno);
    EXPECT_EQ(rclose(fd), 0);
  }

 private:
  const int fd_ = rsocket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address_{};
  std::thread thread_;
};

void expect_told(const NthFails& fails, int result) {
  if (result >= 0) return;
  const int error = errno;
  EXPECT_TRUE(fails.has_failed()) << std::strerror(error);
  EXPECT_TRUE(says(error, fails.error())) << fails.name() << " gives " << std::strerror(error);
}

// First: the thread that accepts is started once for the process.
TEST(NthFailsOfRsockets, Listening) {
  for (const Fails kind : {Fails::kSystemCall, Fails::kAllocation}) {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    each_fails(kind, [&](NthFails& fails) {
      expect_told(fails, fails.during([&] { return rlisten(fd, 1); }));
    });
    EXPECT_EQ(rclose(fd), 0);
  }
}

TEST(NthFailsOfRsockets, Making) {
  int fd = -1;
  check({"rsocket", [&] { return (fd = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0; },
         [&] { EXPECT_EQ(rclose(fd), 0); }});
}

TEST(NthFailsOfRsockets, Connecting) {
  Served served;
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    expect_told(fails, fails.during([&] { return served.connect(fd); }));
    EXPECT_EQ(rclose(fd), 0);
    served.expect_works();
    ASSERT_FALSE(::testing::Test::HasFailure()) << fails.name();
  });
}

// The peer of a client for whom there is no memory.
TEST(NthFailsOfRsockets, BeingConnectedTo) {
  Served served;
  served.expect_works();  // the device's thread is started once
  for (const Fails kind : {Fails::kAllocationElsewhere, Fails::kSystemCallElsewhere}) {
    each_fails(kind, [&](NthFails& fails) {
      const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
      static_cast<void>(fails.during([&] {
        char octet = 0;
        return served.connect(fd) == 0 ? rrecv(fd, &octet, 1, 0) : 0;
      }));
      EXPECT_EQ(rclose(fd), 0);
      served.expect_works();
      ASSERT_FALSE(::testing::Test::HasFailure()) << fails.name();
    });
  }
}

TEST(NthFailsOfRsockets, Polling) {
  const int fd = rsocket(AF_INET, SOCK_STREAM, 0);
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    pollfd one{fd, POLLOUT, 0};
    expect_told(fails, fails.during([&] { return rpoll(&one, 1, 0); }));
    EXPECT_EQ(rpoll(&one, 1, 0), 1);
  });
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    fd_set out;
    FD_ZERO(&out);
    FD_SET(fd, &out);
    timeval at_once{};
    expect_told(fails,
                fails.during([&] { return rselect(fd + 1, nullptr, &out, nullptr, &at_once); }));
  });
  EXPECT_EQ(rclose(fd), 0);
}

}  // namespace
}  // namespace weft::abi
