#include "exs-perf/uring.h"

#include <liburing.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace exs_perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kEntries = 2048;
constexpr std::size_t kBufferBytes = 65536;
constexpr unsigned kBuffers = 64;  // a power of two
constexpr int kGroup = 1;
constexpr std::uint64_t kReceive = 1ULL << 32U;  // the tag of receives; sends have none
constexpr int kWarmUp = 200;

void check(bool good, const char* what) {
  if (!good) fail_with(std::string(what) + ": " + std::strerror(errno));
}

void check_result(int result, const char* what) {
  if (result < 0) fail_with(std::string(what) + ": " + std::strerror(-result));
}

// One end of a connection.
class End {
 public:
  End(int fd, const Plan& plan)
      : fd_(fd),
        plan_(plan),
        message_(plan.size),
        held_(kBuffers * kBufferBytes),
        table_(static_cast<io_uring_buf_ring*>(
            std::aligned_alloc(4096, kBuffers * sizeof(io_uring_buf)))) {
    const int one = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    check_result(io_uring_queue_init(kEntries, &ring_, 0), "io_uring_queue_init");
    io_uring_buf_reg group{};
    group.ring_addr = reinterpret_cast<std::uintptr_t>(table_.get());
    group.ring_entries = kBuffers;
    group.bgid = kGroup;
    check_result(io_uring_register_buf_ring(&ring_, &group, 0), "io_uring_register_buf_ring");
    io_uring_buf_ring_init(table_.get());
    for (unsigned i = 0; i < kBuffers; ++i) give_back(i);
    receive();
  }
  ~End() {
    io_uring_queue_exit(&ring_);
    close(fd_);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  double latency_us() {
    for (int i = 0; i < kWarmUp; ++i) round();
    const double us = median_us(wanted_seconds(), [this] { round(); }) / 2;
    finish();
    return us;
  }

  void answer() {
    for (std::uint64_t wanted = plan_.size;; wanted += plan_.size) {
      while (received_ < wanted && !ended_) step();
      if (ended_) break;
      send(1);
      while (sending_ != 0) step();
    }
    finish();
  }

  std::uint64_t stream_out(double& seconds) {
    const auto start = Clock::now();
    std::uint64_t messages = 0;
    while (since(start) < wanted_seconds()) {
      send(plan_.depth);
      while (sending_ != 0) step();
      messages += plan_.depth;
    }
    finish();
    seconds = since(start);
    return messages * plan_.size;
  }

  void stream_in() { finish(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  static double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  [[nodiscard]] double wanted_seconds() const { return plan_.milliseconds / 1000.0; }

  void round() {
    const std::uint64_t wanted = received_ + plan_.size;
    send(1);
    while (sending_ != 0 || received_ < wanted) {
      step();
      if (ended_) fail_with("the server has gone");
    }
  }

  // Tells the peer that no more comes, and waits until it has said so too.
  void finish() {
    bool told = false;
    while (!ended_ || !told) {
      // The receiving end of a stream answers the end only.
      if (!told && (ended_ || plan_is_sender_)) {
        told = true;
        check(shutdown(fd_, SHUT_WR) == 0, "shutdown");
      }
      if (!ended_) step();
    }
  }

  // Sends of one connection are only in order as links of one chain.
  void send(std::uint32_t count) {
    plan_is_sender_ = true;
    for (std::uint32_t i = 0; i < count; ++i) {
      io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
      if (sqe == nullptr) fail_with("io_uring: no room for a send");
      io_uring_prep_send(sqe, fd_, message_.data(), message_.size(), MSG_WAITALL | MSG_NOSIGNAL);
      if (i + 1 < count) sqe->flags |= IOSQE_IO_LINK;
      io_uring_sqe_set_data64(sqe, 0);
    }
    sending_ += count;
    check_result(io_uring_submit(&ring_), "io_uring_submit");
  }

  void receive() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) fail_with("io_uring: no room for a receive");
    io_uring_prep_recv_multishot(sqe, fd_, nullptr, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = kGroup;
    io_uring_sqe_set_data64(sqe, kReceive);
    check_result(io_uring_submit(&ring_), "io_uring_submit");
  }

  void give_back(unsigned buffer) {
    io_uring_buf_ring_add(table_.get(), held_.data() + buffer * kBufferBytes, kBufferBytes,
                          static_cast<unsigned short>(buffer), io_uring_buf_ring_mask(kBuffers), 0);
    io_uring_buf_ring_advance(table_.get(), 1);
  }

  // Takes one completion: waits for it, or polls.
  void step() {
    io_uring_cqe* cqe = nullptr;
    if (plan_.wait == EXS_WAIT_BUSY_POLL) {
      while (io_uring_peek_cqe(&ring_, &cqe) != 0) {
      }
    } else {
      const int error = io_uring_wait_cqe(&ring_, &cqe);
      if (error == -EINTR) return;
      check_result(error, "io_uring_wait_cqe");
    }
    const std::uint64_t tag = io_uring_cqe_get_data64(cqe);
    const int result = cqe->res;
    const unsigned flags = cqe->flags;
    io_uring_cqe_seen(&ring_, cqe);
    if (tag == kReceive) return took(result, flags);
    check_result(result, "send");
    if (static_cast<std::size_t>(result) != message_.size()) fail_with("a send was cut short");
    --sending_;
  }

  void took(int result, unsigned flags) {
    if (result != -ENOBUFS) check_result(result, "receive");
    if ((flags & IORING_CQE_F_BUFFER) != 0) give_back(flags >> IORING_CQE_BUFFER_SHIFT);
    if (result > 0) received_ += static_cast<std::uint64_t>(result);
    ended_ = result == 0;
    if (!ended_ && (flags & IORING_CQE_F_MORE) == 0) receive();
  }

  int fd_;
  Plan plan_;
  std::vector<std::uint8_t> message_;
  std::vector<std::uint8_t> held_;
  std::unique_ptr<io_uring_buf_ring, Free> table_;
  io_uring ring_{};
  std::uint32_t sending_ = 0;
  std::uint64_t received_ = 0;
  bool ended_ = false;
  bool plan_is_sender_ = false;
};

}  // namespace

std::string uring_missing() {
  io_uring ring{};
  const int error = io_uring_queue_init(8, &ring, 0);
  if (error != 0) return std::string("io_uring is not to be had: ") + std::strerror(-error);
  io_uring_queue_exit(&ring);
  return {};
}

UringListener uring_listen(int domain) {
  UringListener out;
  out.fd = socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(out.fd >= 0, "socket");
  check(listen(out.fd, 1) == 0, "listen");  // not bound: the kernel chooses a port
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  check(getsockname(out.fd, reinterpret_cast<sockaddr*>(&name), &length) == 0, "getsockname");
  out.port = ntohs(domain == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                      : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  return out;
}

void uring_serve(const UringListener& listener, const Plan& plan) {
  const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
  check(fd >= 0, "accept");
  close(listener.fd);
  End end(fd, plan);
  if (plan.latency != 0) return end.answer();
  end.stream_in();
}

UringOutcome uring_measure(const std::string& host, std::uint32_t port, const Plan& plan) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) fail_with("'" + host + "': " + gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0, "connect");
  freeaddrinfo(found);
  End end(fd, plan);
  UringOutcome out;
  if (plan.latency != 0) {
    out.latency_us = end.latency_us();
  } else {
    out.bytes = end.stream_out(out.seconds);
  }
  return out;
}

}  // namespace exs_perf
