// A stream between lanes, part of it by ring and part by TCP, and reads that nobody sees.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "sockets/granted/watched.h"
#include "sockets_lanes_testing.h"

namespace weft::sockets::granted {
namespace {

// A stream in both ways and by calls that nobody sees. A gigabyte by WEFT_WINDOWS_MB=1024.
class Stream : public Lanes {
 protected:
  static char octet_at(std::uint64_t at) { return static_cast<char>((at * 2654435761U) >> 13U); }

  void write_all() {
    std::mt19937_64 random(1);
    std::string text;
    for (std::uint64_t at = 0; at < total_;) {
      const std::uint64_t most = random() % 16 == 0 ? 60'000 : 1'000;
      text.resize(std::min(1 + random() % most, total_ - at));
      for (std::size_t i = 0; i < text.size(); ++i) text[i] = octet_at(at + i);
      if (put(a_, text) != static_cast<ssize_t>(text.size())) return;
      at += text.size();
      // A ring is granted only while TCP is empty.
      if (random() % 8 != 0) continue;
      // A ring that was of no use is tried again at once, not after a ban of seconds.
      lane_of(a_)->writing.begin_again();
      while (read_to_ < at && !over_) std::this_thread::yield();
    }
  }

  ssize_t read_some(std::uint64_t most, bool unseen) {
    const auto plain = [&] { return ::recv(b_, room_.data(), most, 0); };
    if (unseen) return plain();
    const GrantMemory m = lane_of(b_)->rings.in();
    const std::uint64_t before = m.load(GrantWord::kTcpRead);
    const ssize_t got = serve(b_, Call::kReceives, plain, [&](Lane& lane) {
      const iovec part{room_.data(), most};
      return receive(lane, b_, &part, 1, 0, plain);
    });
    const bool ring = m.load(GrantWord::kTcpRead) == before;
    windows_ += ring && !by_ring_ ? 1 : 0;
    by_ring_ = ring;
    return got;
  }

  // False: what came is not what was sent.
  bool read_all() {
    std::mt19937_64 random(2);
    while (read_to_ < total_) {
      const bool unseen = random() % 64 == 0;
      unseen_ += unseen ? 1 : 0;
      const ssize_t got = read_some(1 + random() % room_.size(), unseen);
      if (got <= 0) return false;
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(got); ++i) {
        if (room_[i] != octet_at(read_to_ + i)) return false;
      }
      read_to_ += static_cast<std::uint64_t>(got);
    }
    return true;
  }

  std::uint64_t total_ = 8U << 20U;
  std::atomic<std::uint64_t> read_to_{0};
  std::atomic<bool> over_{false};
  std::vector<char> room_ = std::vector<char>(65536);
  std::uint64_t windows_ = 0;
  std::uint64_t unseen_ = 0;
  bool by_ring_ = false;
};

TEST_F(Stream, EachOctetComesOnceThroughManyWindowsAndReadsThatNobodySees) {
  join_both();
  if (const char* mb = std::getenv("WEFT_WINDOWS_MB"); mb != nullptr) {
    total_ = std::strtoull(mb, nullptr, 10) << 20U;
  }
  const bool apart = run_on_core(0);
  std::thread writer([this] {
    run_on_core(1);
    write_all();
  });
  EXPECT_TRUE(read_all()) << "behind octet " << read_to_;
  over_ = true;
  shutdown(b_, SHUT_RDWR);  // so that the writer ends, too, if that was wrong
  writer.join();
  sched_setaffinity(0, sizeof all_cores_, &all_cores_);
  std::printf("%llu windows, %llu reads that nobody saw\n",
              static_cast<unsigned long long>(windows_), static_cast<unsigned long long>(unseen_));
  EXPECT_TRUE(!apart || windows_ >= std::max<std::uint64_t>(total_ >> 21U, 1));
}

// The places of a wait are begun by what is added alone: of what lay there before nothing counts.
TEST_F(Lanes, AWaitThatDidNotOpenTheRingCountsNobodyAsAsleep) {
  join_both();
  alignas(Watched) std::array<std::uint8_t, sizeof(Watched)> place;
  place.fill(0xff);
  auto* watched = new (place.data()) Watched;
  watched->add(*lane_of(b_), 0);
  GrantMemory m = lane_of(b_)->rings.in();
  watched->sleep();
  EXPECT_EQ(m.load(GrantWord::kAsleep), 0U);
  watched->wake();
  static_cast<void>(watched->open());  // false where both ends were on one core
  watched->sleep();
  EXPECT_EQ(m.load(GrantWord::kAsleep), 1U);
  std::destroy_at(watched);
  EXPECT_EQ(m.load(GrantWord::kAsleep), 0U) << "one that ends is awake";
}

}  // namespace
}  // namespace weft::sockets::granted
