// A hostile network: a TCP relay that hands on what it gets in pieces of random size, late now and
// then, and that can cut a connection after so many bytes. A thread of its own.
#pragma once

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <list>
#include <random>
#include <thread>

#include "exs_support.h"

namespace weft::exs_test {

class Relay {
 public:
  // Connections to port() reach `target`. Each is reset after `cut_after` bytes in both directions
  // together; 0: never.
  Relay(std::uint16_t target, std::uint64_t seed, std::uint64_t cut_after = 0)
      : target_(target), cut_after_(cut_after), random_(seed), listener_(open_socket()) {
    Endpoint any = loopback(AF_INET);
    EXPECT_EQ(bind(listener_, any.get(), any.length), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, any.get(), &any.length), 0);
    port_ = ntohs(reinterpret_cast<sockaddr_in*>(&any.storage)->sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stop_.store(true);
    thread_.join();
    for (const Line& line : lines_) {
      close(line.from);
      close(line.to);
    }
    close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  static constexpr std::size_t kHeld = 64UL * 1024UL;
  static constexpr int kTurnMs = 5;

  // One direction of a connection.
  struct Way {
    std::array<char, kHeld> held{};
    std::size_t first = 0;
    std::size_t end = 0;
    bool finished = false;  // the sender has; told when all is handed on
    bool told = false;
  };
  struct Line {
    int from = -1;
    int to = -1;
    std::uint64_t moved = 0;
    std::array<Way, 2> ways;
  };

  static int open_socket() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_GE(fd, 0);
    return fd;
  }

  static void tune(int fd) {
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  }

  // Mostly large, so that time is not all there is to a test; some of a byte.
  std::size_t piece() {
    const auto kind = random_() % 16;
    if (kind == 0) return 1 + random_() % 3;
    if (kind < 4) return 1 + random_() % 100;
    return 1 + random_() % (kind < 10 ? 2000 : kHeld);
  }

  void run() {
    while (!stop_.load()) {
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      for (const Line& line : lines_) add(fds, line);
      poll(fds.data(), fds.size(), kTurnMs);
      if ((fds[0].revents & POLLIN) != 0) take_one();
      for (auto it = lines_.begin(); it != lines_.end();) {
        const bool goes_on = hand_on(*it);
        it = goes_on ? std::next(it) : lines_.erase(it);
      }
    }
  }

  static void add(std::vector<pollfd>& fds, const Line& line) {
    for (int way = 0; way < 2; ++way) {
      const Way& one = line.ways[static_cast<std::size_t>(way)];
      const int in = way == 0 ? line.from : line.to;
      const int out = way == 0 ? line.to : line.from;
      if (!one.finished && one.end < kHeld) fds.push_back({in, POLLIN, 0});
      if (one.first < one.end) fds.push_back({out, POLLOUT, 0});
    }
  }

  void take_one() {
    Line line;
    line.from = accept(listener_, nullptr, nullptr);
    line.to = open_socket();
    Endpoint target = loopback(AF_INET, target_);
    if (line.from < 0 || connect(line.to, target.get(), target.length) != 0) {
      if (line.from >= 0) close(line.from);
      close(line.to);
      return;
    }
    tune(line.from);
    tune(line.to);
    lines_.push_back(line);
  }

  // False: it is over, and closed.
  bool hand_on(Line& line) {
    bool ok = true;
    for (int way = 0; way < 2 && ok; ++way) {
      // Late now and then: the other direction overtakes.
      if (random_() % 8 == 0) continue;
      Way& one = line.ways[static_cast<std::size_t>(way)];
      ok = move(line, one, way == 0 ? line.from : line.to, way == 0 ? line.to : line.from);
    }
    const bool cut = cut_after_ != 0 && line.moved >= cut_after_;
    if (ok && !cut && !(line.ways[0].told && line.ways[1].told)) return true;
    const linger reset{1, 0};
    for (const int fd : {line.from, line.to}) {
      if (cut || !ok) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
      close(fd);
    }
    return false;
  }

  bool move(Line& line, Way& way, int in, int out) {
    if (!way.finished && way.end < kHeld) {
      const std::size_t room = std::min(kHeld - way.end, piece());
      const ssize_t got = recv(in, way.held.data() + way.end, room, MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (got > 0) way.end += static_cast<std::size_t>(got);
      way.finished = got == 0;
    }
    while (way.first < way.end) {
      const std::size_t size = std::min(way.end - way.first, piece());
      const ssize_t sent =
          send(out, way.held.data() + way.first, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (sent <= 0) break;
      way.first += static_cast<std::size_t>(sent);
      line.moved += static_cast<std::uint64_t>(sent);
    }
    if (way.first == way.end) way.first = way.end = 0;
    if (way.finished && way.end == 0 && !way.told) {
      way.told = true;
      shutdown(out, SHUT_WR);
    }
    return true;
  }

  const std::uint16_t target_;
  const std::uint64_t cut_after_;
  std::mt19937_64 random_;
  const int listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::list<Line> lines_;  // the thread's
  std::thread thread_;
};

}  // namespace weft::exs_test
