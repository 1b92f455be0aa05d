// A TCP port of 127.0.0.1 where nobody listens, and nobody else will as long as this lives: a test
// that let go of a port might meet the listener of another one there.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace weft::test {

class QuietPort {
 public:
  QuietPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&any), size), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size), 0);
    number_ = ntohs(any.sin_port);
  }
  ~QuietPort() { close(fd_); }
  QuietPort(const QuietPort&) = delete;
  QuietPort& operator=(const QuietPort&) = delete;

  [[nodiscard]] std::uint16_t number() const { return number_; }

 private:
  int fd_;
  std::uint16_t number_ = 0;
};

}  // namespace weft::test
