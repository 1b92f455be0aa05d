// For tests of libexs: ordinary programs against <sys/exs.h>, run under `weft run`. A connected
// pair of sockets in this process, and events with a time limit.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/exs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

namespace weft::exs_test {

inline constexpr int kWaitSeconds = 30;
// No queue: the call blocks. No handle: memory that is not registered.
inline constexpr exs_qhandle_t kBlock = EXS_QHANDLE_INVALID;
inline constexpr exs_mhandle_t kPlain = EXS_MHANDLE_UNREGISTERED;

#define EXPECT_ERRNO(call, number)     \
  do {                                 \
    errno = 0;                         \
    EXPECT_EQ(call, -1);               \
    EXPECT_EQ(errno, number) << #call; \
  } while (false)

inline exs_ahandle_t tag(std::intptr_t n) { return static_cast<exs_ahandle_t>(n); }

// The next event of `q`; type 0 after kWaitSeconds.
inline exs_event_t next_event(exs_qhandle_t q) {
  exs_event_t event{};
  const timeval limit{kWaitSeconds, 0};
  const int got = exs_qdequeue(q, &event, 1, &limit);
  EXPECT_EQ(got, 1) << "no event: " << std::strerror(errno);
  return event;
}

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

inline Endpoint loopback(int domain, std::uint16_t port = 0) {
  Endpoint out;
  if (domain == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = in6addr_loopback;
    v6->sin6_port = htons(port);
    out.length = sizeof *v6;
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4->sin_port = htons(port);
    out.length = sizeof *v4;
  }
  return out;
}

// A client that is nothing but a TCP socket, connected to this port of 127.0.0.1. -1, with errno:
// it is not.
inline int plain_client(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint to = loopback(AF_INET, static_cast<std::uint16_t>(port));
  return connect(fd, to.get(), to.length) == 0 ? fd : -1;
}

inline std::uint16_t port_of(int fd) {
  Endpoint name;
  name.length = sizeof name.storage;
  EXPECT_EQ(exs_getsockname(fd, name.get(), &name.length), 0) << std::strerror(errno);
  return name.storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<sockaddr_in6*>(&name.storage)->sin6_port)
             : ntohs(reinterpret_cast<sockaddr_in*>(&name.storage)->sin_port);
}

// How a pair of sockets is made.
struct Way {
  int type = SOCK_STREAM;
  int provider = EXS_PROVIDER_RDMA;
  int domain = AF_INET;
};

inline constexpr Way kStream{SOCK_STREAM, EXS_PROVIDER_RDMA, AF_INET};
inline constexpr Way kPacket{SOCK_SEQPACKET, EXS_PROVIDER_RDMA, AF_INET};
inline constexpr Way kTcp{SOCK_STREAM, EXS_PROVIDER_TCP, AF_INET};
inline constexpr Way kTcpPacket{SOCK_SEQPACKET, EXS_PROVIDER_TCP, AF_INET};
inline constexpr Way kWays[] = {kStream, kPacket, kTcp, kTcpPacket};

inline std::string name_of(const Way& way) {
  return std::string(way.type == SOCK_STREAM ? "Stream" : "Packet") +
         (way.provider == EXS_PROVIDER_RDMA ? "Rdma" : "Tcp") +
         (way.domain == AF_INET6 ? "V6" : "V4");
}
inline std::ostream& operator<<(std::ostream& out, const Way& way) { return out << name_of(way); }

inline int new_socket(const Way& way) {
  EXPECT_EQ(exs_init(EXS_VERSION), 0);
  const int fd = exs_socket(way.domain, way.type, 0);
  EXPECT_GE(fd, 0) << std::strerror(errno);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETPROVIDER, way.provider), 0);
  return fd;
}

inline void close_now(int fd) {
  const linger at_once{1, 0};
  exs_setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  EXPECT_EQ(exs_close(fd, EXS_QHANDLE_INVALID, 0), 0) << std::strerror(errno);
}

struct Setting {
  int command;
  long value;
};

class Listener {
 public:
  explicit Listener(const Way& way, const std::vector<Setting>& settings = {})
      : fd(new_socket(way)) {
    for (const Setting& one : settings) EXPECT_EQ(exs_fcntl(fd, one.command, one.value), 0);
    Endpoint any = loopback(way.domain);
    EXPECT_EQ(exs_bind(fd, any.get(), any.length), 0) << std::strerror(errno);
    EXPECT_EQ(exs_listen(fd, 4096), 0) << std::strerror(errno);
    port = port_of(fd);
  }
  ~Listener() { EXPECT_EQ(exs_close(fd, EXS_QHANDLE_INVALID, 0), 0); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd;
  std::uint16_t port = 0;
};

// Two connected sockets and a queue for each.
class Pair {
 public:
  explicit Pair(const Way& way, const std::vector<Setting>& settings = {})
      : Pair(way, Listener(way, settings), 0, settings) {}
  // By `port`, which leads to the listener; 0: its own.
  Pair(const Way& way, const Listener& listener, std::uint16_t port,
       const std::vector<Setting>& settings = {})
      : left_q(exs_qcreate_checked()), right_q(exs_qcreate(64)) {
    left = new_socket(way);
    for (const Setting& one : settings) EXPECT_EQ(exs_fcntl(left, one.command, one.value), 0);
    Endpoint to = loopback(way.domain, port != 0 ? port : listener.port);
    EXPECT_EQ(exs_connect(left, to.get(), to.length, 0, left_q, tag(1)), 0) << std::strerror(errno);
    EXPECT_EQ(exs_accept(listener.fd, nullptr, 0, 0, right_q, tag(2)), 0);
    const exs_event_t connected = next_event(left_q);
    EXPECT_EQ(connected.type, EXS_EVT_CONNECT);
    EXPECT_EQ(connected.error, 0) << std::strerror(connected.error);
    const exs_event_t accepted = next_event(right_q);
    EXPECT_EQ(accepted.type, EXS_EVT_ACCEPT);
    EXPECT_EQ(accepted.error, 0) << std::strerror(accepted.error);
    right = exs_evt_accepted(&accepted);
  }
  ~Pair() {
    if (left >= 0) close_now(left);
    if (right >= 0) close_now(right);
    exs_qdelete(left_q);
    exs_qdelete(right_q);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  exs_qhandle_t left_q;
  exs_qhandle_t right_q;
  int left = -1;
  int right = -1;

 private:
  static exs_qhandle_t exs_qcreate_checked() {
    EXPECT_EQ(exs_init(EXS_VERSION), 0);
    return exs_qcreate(64);
  }
};

// Registered memory with a pattern.
class Buffer {
 public:
  explicit Buffer(std::size_t size, unsigned seed = 0) : bytes(size) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::uint8_t>((i * 2654435761U + seed * 97U) >> 11U);
    }
    mh = exs_mregister(bytes.data(), bytes.size(), 0);
    EXPECT_GE(mh, 0) << std::strerror(errno);
  }
  ~Buffer() { EXPECT_EQ(exs_mderegister(mh), 0) << std::strerror(errno); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::uint8_t* data() { return bytes.data(); }
  [[nodiscard]] std::size_t size() const { return bytes.size(); }

  std::vector<std::uint8_t> bytes;
  exs_mhandle_t mh = EXS_MHANDLE_INVALID;
};

inline exs_stats_t stats_of(int fd) {
  exs_stats_t out{};
  out.size = sizeof out;
  EXPECT_EQ(exs_stats(fd, &out), 0) << std::strerror(errno);
  return out;
}

}  // namespace weft::exs_test
