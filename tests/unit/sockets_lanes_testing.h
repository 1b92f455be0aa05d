// Both ends of a TCP connection in this process, with lanes.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "os/clock.h"
#include "sockets/granted/granted.h"

namespace weft::sockets::granted {

class Lanes : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("WEFT_SOCKETS_BUSY_CALLS", "1", 1);
    own_memory();
  }

  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length), 0);
    a_ = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(a_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    b_ = accept(listener, nullptr, nullptr);
    ASSERT_GE(b_, 0);
    close(listener);
    ASSERT_EQ(sched_getaffinity(0, sizeof all_cores_, &all_cores_), 0);
    numbers::note_fresh(a_, numbers::forks());
    numbers::note_fresh(b_, numbers::forks());
  }
  void TearDown() override {
    for (const int fd : {a_, b_}) {
      leave_to_close(fd);
      close(fd);
    }
  }

  static ssize_t put(int fd, const std::string& text) {
    const auto plain = [&] { return ::send(fd, text.data(), text.size(), MSG_NOSIGNAL); };
    return serve(fd, Call::kSends, plain, [&](Lane& lane) {
      const iovec part{const_cast<char*>(text.data()), text.size()};
      return transmit(lane, fd, &part, 1, MSG_NOSIGNAL, plain);
    });
  }
  // The kernel's part is `asked`.
  template <class Asked>
  static ssize_t get(int fd, int flags, std::string& text, Asked asked) {
    std::array<char, 64> room{};
    const auto plain = [&] { return asked(room.data(), room.size()); };
    const ssize_t got = serve(fd, Call::kReceives, plain, [&](Lane& lane) {
      const iovec part{room.data(), room.size()};
      return receive(lane, fd, &part, 1, flags, plain);
    });
    text.assign(room.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got;
  }
  static std::string get(int fd) {
    std::string text;
    get(fd, 0, text, [fd](char* to, std::size_t room) { return ::recv(fd, to, room, 0); });
    return text;
  }

  static Lane* lane_of(int fd) { return numbers::find(fd)->lane.load(); }
  // Octets to and fro, until both ends may use the ring.
  void join_both() {
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(put(a_, "ping"), 4);
      ASSERT_EQ(get(b_), "ping");
      ASSERT_EQ(put(b_, "pong"), 4);
      ASSERT_EQ(get(a_), "pong");
    }
    for (const int fd : {a_, b_}) {
      ASSERT_NE(lane_of(fd), nullptr);
      ASSERT_TRUE(lane_of(fd)->in.joined());
      ASSERT_TRUE(lane_of(fd)->out.joined());
    }
  }
  // `text` from a to b, by the ring.
  void put_in_ring(const std::string& text) {
    lane_of(b_)->rings.in().store(GrantWord::kWindow, kWindowOpen);
    ASSERT_EQ(put(a_, text), static_cast<ssize_t>(text.size()));
  }

  // The writer's steps, as far as the mark.
  void begin_to_take_back() {
    GrantMemory m = lane_of(a_)->rings.out();
    const std::uint64_t take = m.load(GrantWord::kTake);
    m.store(GrantWord::kTakenFrom, take >> 1U);
    m.store(GrantWord::kTakenTo, m.load(GrantWord::kPosition));
    m.store(GrantWord::kTakenAt, m.load(GrantWord::kSent));
    ASSERT_TRUE(m.swap(GrantWord::kTake, take, take | kTaken));
  }

  // By a call that is not seen.
  void reset_b() {
    const linger now{1, 0};
    ASSERT_EQ(setsockopt(b_, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    ASSERT_EQ(close(b_), 0);
    forget_closed(b_);
    b_ = -1;
  }

  // This thread runs on the n-th core that the process may use. False: there are not two.
  bool run_on_core(int n) const {
    if (CPU_COUNT(&all_cores_) < 2) return false;
    std::size_t core = 0;
    for (int i = n; i >= 0; i -= CPU_ISSET(core++, &all_cores_) ? 1 : 0) {
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core - 1, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }

  int a_ = -1;
  int b_ = -1;
  cpu_set_t all_cores_{};
};

}  // namespace weft::sockets::granted
