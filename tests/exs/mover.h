// A random transfer between the ends of a Pair, compared byte by byte.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <random>

#include "exs_support.h"

namespace weft::exs_test {

inline std::uint64_t seed() {
  const char* wanted = std::getenv("WEFT_SEED");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
}

// Bytes for each way: EXS_TEST_MEGABYTES makes it a long test.
inline std::uint64_t bytes_to_move(std::uint64_t usual_megabytes) {
  const char* wanted = std::getenv("EXS_TEST_MEGABYTES");
  return (wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual_megabytes) << 20U;
}

// What byte `at` of the whole transfer is.
inline std::uint8_t byte_at(std::uint64_t at) {
  return static_cast<std::uint8_t>((at * 0x9E3779B97F4A7C15ULL) >> 53U);
}

// One direction of random pieces: sends and receives of random sizes outstanding, waiting for all
// or not, registered or not; every byte is compared. Packets over RDMA: some sends are persistent,
// and may be received more than once.
class Mover {
 public:
  Mover(Pair& pair, std::mt19937_64& random, std::uint64_t total)
      : pair_(pair), random_(random), total_(total), out_(kSlots * kMost), in_(kSlots * kMost, 1) {
    EXPECT_EQ(ftruncate(file_, kFiles * kMost), 0);
  }
  ~Mover() { close(file_); }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  void run() {
    while (received_ < total_ && !testing::Test::HasFailure()) {
      while (sending_ < kSlots && posted_ < total_) post_send();
      while (receiving_ < kSlots) post_receive();
      take(pair_.left_q);
      if (!testing::Test::HasFailure()) take(pair_.right_q);
      // The end lets a receive that waits for all of its buffer go.
      if (posted_ == total_ && sending_ == 0 && !shut_) {
        shut_ = true;
        ASSERT_EQ(exs_shutdown(pair_.left, EXS_SHUT_WR, pair_.left_q, 0), 0);
      }
    }
    EXPECT_EQ(exs_cancel(pair_.right, EXS_CAF_FILDES, 0), 0);
    while (receiving_ != 0 && !testing::Test::HasFailure()) finish(next_event(pair_.right_q));
    while (sending_ != 0 && !testing::Test::HasFailure()) finish(next_event(pair_.left_q));
  }

 private:
  static constexpr std::size_t kSlots = 6;
  static constexpr std::size_t kMost = 300'000;
  static constexpr std::size_t kFiles = 128;

  std::size_t random_size() {
    const auto kind = random_() % 4;
    return 1 + random_() % (kind == 0 ? 64 : kind == 1 ? 5000 : kind == 2 ? 40'000 : kMost - 1);
  }

  void post_send() {
    const std::size_t size = std::min<std::uint64_t>(random_size(), total_ - posted_);
    // Packets: a small message is done before a large one that was sent earlier.
    const std::size_t slot = free_sends_.back();
    free_sends_.pop_back();
    std::uint8_t* at = out_.data() + slot * kMost;
    for (std::size_t i = 0; i < size; ++i) at[i] = byte_at(posted_ + i);
    const bool last = posted_ + size == total_;
    const bool persistent = persistent_too_ && !last && random_() % 5 == 0;
    if (packets_) expected_.push_back({posted_, size, persistent});
    posted_ += size;
    ++sending_;
    if (persistent) {
      const exs_ahandle_t ah = tag(static_cast<int>(slot));
      ASSERT_EQ(exs_send(pair_.left, at, size, EXS_PERSISTENT, pair_.left_q, ah, out_.mh), 0);
    } else {
      send_piece(slot, at, size);
    }
  }

  // By one of the three calls, registered or not.
  void send_piece(std::size_t slot, std::uint8_t* at, std::size_t size) {
    const exs_mhandle_t mh = random_() % 2 == 0 ? kPlain : out_.mh;
    const exs_ahandle_t ah = tag(static_cast<int>(slot));
    const std::size_t first = random_() % size;
    exs_iovec_t pieces[] = {{at, first, mh}, {at + first, size - first, out_.mh}};
    const auto kind = random_() % 4;
    if (kind == 0) {
      const exs_msghdr_t message{pieces, 2, 0};
      ASSERT_EQ(exs_sendmsg(pair_.left, &message, 0, pair_.left_q, ah), 0);
    } else if (kind == 1) {
      // The kernel sends the file's pages themselves: no page is changed while it may be under way.
      const auto offset = static_cast<off_t>(next_file_++ % kFiles * kMost);
      ASSERT_EQ(pwrite(file_, at + first, size - first, offset),
                static_cast<ssize_t>(size - first));
      exs_xferfile_t parts[2] = {};
      parts[0].tag = EXS_IOVEC;
      parts[0].u.iovec = pieces[0];
      parts[1].tag = EXS_FDVEC;
      parts[1].u.fdvec = {file_, offset, size - first};
      ASSERT_EQ(exs_sendfile(pair_.left, parts, 2, 0, pair_.left_q, ah), 0);
    } else {
      ASSERT_EQ(exs_send(pair_.left, at, size, 0, pair_.left_q, ah, mh), 0);
    }
  }

  void post_receive() {
    const std::size_t size = packets_ ? kMost : random_size();
    const int flags = random_() % 3 == 0 ? MSG_WAITALL : 0;
    const std::size_t slot = next_receive_++ % kSlots;
    ++receiving_;
    const exs_mhandle_t mh = random_() % 2 == 0 ? kPlain : in_.mh;
    const exs_ahandle_t ah = tag(static_cast<int>(slot));
    std::uint8_t* at = in_.data() + slot * kMost;
    if (random_() % 3 != 0) {
      ASSERT_EQ(exs_recv(pair_.right, at, size, flags, pair_.right_q, ah, mh), 0);
      return;
    }
    const std::size_t first = random_() % size;
    exs_iovec_t pieces[] = {{at, first, mh}, {at + first, size - first, in_.mh}};
    exs_msghdr_t message{pieces, 2, 0};
    ASSERT_EQ(exs_recvmsg(pair_.right, &message, flags, pair_.right_q, ah), 0);
  }

  struct Sent {
    std::uint64_t start = 0;
    std::size_t size = 0;
    bool persistent = false;
  };

  static bool is_packet(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    exs_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length);
    return type == SOCK_SEQPACKET;
  }

  static bool holds(const std::uint8_t* at, std::size_t size, const Sent& sent) {
    if (size != sent.size) return false;
    for (std::size_t i = 0; i < size; ++i) {
      if (at[i] != byte_at(sent.start + i)) return false;
    }
    return true;
  }

  // The next message, or the persistent one before it once more.
  void take_packet(const std::uint8_t* at, std::size_t size) {
    if (!expected_.empty() && holds(at, size, expected_.front())) {
      received_ += size;
      current_ = expected_.front();
      expected_.pop_front();
      return;
    }
    ASSERT_TRUE(current_.persistent) << "not the message from byte " << received_ << " on";
    ASSERT_TRUE(holds(at, size, current_)) << "not the message from byte " << current_.start;
    ++repeated_;
  }

  void take(exs_qhandle_t q) {
    std::array<exs_event_t, 16> events;
    const timeval now{0, 0};
    const int got = exs_qdequeue(q, events.data(), 16, &now);
    ASSERT_GE(got, 0);
    for (int i = 0; i < got; ++i) finish(events[static_cast<std::size_t>(i)]);
  }

  void finish(const exs_event_t& event) {
    if (event.type == EXS_EVT_SEND || event.type == EXS_EVT_SENDMSG ||
        event.type == EXS_EVT_SENDFILE) {
      ASSERT_EQ(event.error, 0) << std::strerror(event.error);
      --sending_;
      free_sends_.push_back(static_cast<std::size_t>(event.ahandle));
      return;
    }
    if (event.type == EXS_EVT_SHUTDOWN) return;
    ASSERT_TRUE(event.type == EXS_EVT_RECV || event.type == EXS_EVT_RECVMSG) << event.type;
    --receiving_;
    if (event.error != ECANCELED) {
      ASSERT_EQ(event.error, 0) << std::strerror(event.error);
    }
    const std::uint8_t* at = in_.data() + static_cast<std::size_t>(event.ahandle) * kMost;
    if (packets_) {
      if (exs_evt_length(&event) != 0) take_packet(at, exs_evt_length(&event));
      return;
    }
    for (std::size_t i = 0; i < exs_evt_length(&event); ++i) {
      ASSERT_EQ(at[i], byte_at(received_ + i)) << "byte " << received_ + i;
    }
    received_ += exs_evt_length(&event);
  }

  Pair& pair_;
  std::mt19937_64& random_;
  std::uint64_t total_;
  std::size_t next_file_ = 0;
  int file_ = memfd_create("pieces", 0);
  Buffer out_;
  Buffer in_;
  const bool packets_ = is_packet(pair_.left);
  const bool persistent_too_ =
      packets_ && exs_fcntl(pair_.left, EXS_F_GETPROVIDER, 0) == EXS_PROVIDER_RDMA;
  std::deque<Sent> expected_;
  Sent current_;
  std::uint64_t repeated_ = 0;
  std::uint64_t posted_ = 0;
  std::uint64_t received_ = 0;
  std::vector<std::size_t> free_sends_{0, 1, 2, 3, 4, 5};
  std::size_t next_receive_ = 0;
  std::size_t sending_ = 0;
  std::size_t receiving_ = 0;
  bool shut_ = false;
};

}  // namespace weft::exs_test
