// Two DDP streams over a pipe that cuts, holds back and breaks what passes, by a seed. What arrives
// is what was sent, in order; each message is given back exactly once, and not before the transport
// has read it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include "ddp_side.h"
#include "rng.h"
#include "seeds.h"

namespace weft::testing {
namespace {

using proto::DdpEnd;
using proto::DdpParams;

constexpr std::size_t kMemory = 8192;

// What a tagged message writes at each place, whichever message it is.
std::uint8_t octet_at(std::uint64_t place) { return static_cast<std::uint8_t>(place % 199); }

struct Plan {
  bool tagged = false;
  std::uint32_t queue = 0;
  std::uint64_t place = 0;
  std::uint8_t control = 0;
  Octets octets;
};

enum class Break : std::uint8_t { kNothing, kFlip, kReset, kFin };

class DdpWorld {
 public:
  DdpWorld(std::uint64_t seed, Break what) : rng_(seed), what_(what) {
    late_ = rng_.one_in(2);
    DdpParams params[2];
    choose(params);
    for (std::size_t i = 0; i < 2; ++i) side_[i] = std::make_unique<DdpSide>(params[i], kMemory);
    for (std::size_t i = 0; i < 2; ++i) make_plan(i, params[i]);
    break_from_ = rng_.size(0, 1);
    // Rather early: most runs carry some thousand octets.
    break_at_ = rng_.between(0, rng_.one_in(2) ? 300 : 20'000);
  }

  void run() {
    for (int step = 0; step < 400'000 && !(over(0) && over(1)); ++step) {
      act(rng_.size(0, 1));
      if (::testing::Test::HasFailure()) return;
    }
    ASSERT_TRUE(over(0) && over(1)) << "they do not come to an end";
    for (std::size_t i = 0; i < 2; ++i) check(i);
  }

 private:
  struct Pipe {
    std::deque<std::span<const std::uint8_t>> held;  // taken, not read yet
    std::deque<std::uint8_t> octets;
    std::uint64_t written = 0;
    bool fin_taken = false, fin = false, fin_seen = false;
    bool cut = false;  // nothing behind the break passes
  };

  void choose(DdpParams params[2]) {
    static constexpr std::uint32_t kUlpdus[] = {128, 500, 1442, 9000};
    // Without CRC a bit that flips goes unnoticed.
    const bool crc = what_ == Break::kFlip || rng_.one_in(2);
    const bool bare = rng_.one_in(8);
    for (std::size_t i = 0; i < 2; ++i) {
      DdpParams& p = params[i];
      p.crc = crc;
      p.bare = bare;
      p.tx_markers = rng_.one_in(2);
      p.may_send = i == 0;
      p.queues = bare ? 1 : rng_.u32(1, proto::kDdpQueuesMax);
      p.send_depth = rng_.u32(1, 8);
      p.max_ulpdu = kUlpdus[rng_.size(0, 3)];
    }
    params[0].rx_markers = params[1].tx_markers;
    params[1].rx_markers = params[0].tx_markers;
    params[1].queues = params[0].queues;
  }

  // What side `i` will send, and buffers for it on the other side.
  void make_plan(std::size_t i, const DdpParams& p) {
    // The initiator speaks first, or the responder would wait for ever.
    const std::size_t count = rng_.size(i == 0 ? 1 : 0, 25);
    for (std::size_t n = 0; n < count; ++n) {
      Plan plan;
      plan.tagged = !p.bare && rng_.one_in(2);
      plan.control = rng_.octet();
      const std::uint32_t most = p.bare ? p.max_ulpdu : 3000;
      plan.octets.resize(rng_.size(p.bare ? 1 : 0, most));
      if (plan.tagged) {
        plan.place = rng_.between(0, kMemory - plan.octets.size());
        for (std::size_t o = 0; o < plan.octets.size(); ++o) {
          plan.octets[o] = octet_at(plan.place + o);
        }
      } else {
        plan.queue = rng_.u32(0, p.queues - 1);
        for (std::uint8_t& o : plan.octets) o = rng_.octet();
        side_[1 - i]->post_buffer(static_cast<std::uint32_t>(plan.octets.size()) + rng_.u32(0, 20),
                                  plan.queue);
      }
      plan_[i].push_back(std::move(plan));
    }
  }

  [[nodiscard]] bool over(std::size_t i) { return gone_[i]; }

  void act(std::size_t i) {
    if (gone_[i]) return;
    switch (rng_.size(0, 3)) {
      case 0: return post(i);
      case 1: return transmit(i);
      case 2: return read_held(i);
      default: return deliver(i);
    }
  }

  void post(std::size_t i) {
    if (side_[i]->ended) return;
    if (posted_[i] == plan_[i].size()) {
      // The responder closes only after the initiator has, as programs do that answer.
      if (i == 0 || pipe_[0].fin_seen) side_[i]->stream().close();
      return;
    }
    const Plan& next = plan_[i][posted_[i]];
    const Status done =
        next.tagged ? side_[i]->write(next.octets, DdpSide::kBase + next.place, next.control)
                    : side_[i]->send(next.octets, next.queue, next.control);
    if (done) ++posted_[i];
  }

  void transmit(std::size_t i) {
    Pipe& pipe = pipe_[i];
    const auto piece = side_[i]->offered(rng_.size(1, 2000));
    if (!piece.empty()) {
      pipe.held.push_back(piece);
      side_[i]->stream().sent(piece.size());
      if (!late_) read_held(i);
    } else if (!pipe.fin_taken && side_[i]->stream().take_fin()) {
      pipe.fin_taken = true;
    }
    settle(i);
  }

  // The transport reads memory of the stream now, and says so.
  void read_held(std::size_t i) {
    Pipe& pipe = pipe_[i];
    if (!pipe.held.empty()) {
      const Octets piece(pipe.held.front().begin(), pipe.held.front().end());
      pipe.held.pop_front();
      for (const std::uint8_t octet : piece) write(i, octet);
      if (!gone_[i]) side_[i]->stream().released(piece.size());
    } else if (pipe.fin_taken) {
      pipe.fin = true;
    }
    if (!gone_[i]) settle(i);
  }

  void write(std::size_t i, std::uint8_t octet) {
    Pipe& pipe = pipe_[i];
    if (pipe.cut || gone_[i]) return;
    if (what_ != Break::kNothing && i == break_from_ && pipe.written == break_at_) {
      broke_ = true;
      switch (what_) {
        case Break::kFlip: octet ^= static_cast<std::uint8_t>(1U << rng_.size(0, 7)); break;
        case Break::kReset: return reset();
        default: pipe.cut = pipe.fin = true; return;
      }
    }
    pipe.octets.push_back(octet);
    ++pipe.written;
  }

  void deliver(std::size_t to) {
    Pipe& pipe = pipe_[1 - to];
    if (pipe.octets.empty()) {
      if (pipe.fin && !pipe.fin_seen) {
        pipe.fin_seen = true;
        side_[to]->stream().peer_closed();
      }
      return settle(to);
    }
    const auto n = static_cast<std::ptrdiff_t>(
        rng_.size(1, std::min<std::size_t>(pipe.octets.size(), rng_.one_in(3) ? 7 : 3000)));
    Octets octets(pipe.octets.begin(), pipe.octets.begin() + n);
    pipe.octets.erase(pipe.octets.begin(), pipe.octets.begin() + n);
    side_[to]->stream().feed(octets);
    settle(to);
  }

  // Closes the connection of a stream that has ended, as a transport does.
  void settle(std::size_t i) {
    proto::DdpStream& stream = side_[i]->stream();
    if (gone_[i] || !stream.finished()) return;
    if (stream.wants_reset()) return reset();
    if (pipe_[i].held.empty()) close(i);
  }
  void reset() {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!gone_[i]) side_[i]->stream().transport_lost();
    }
    for (std::size_t i = 0; i < 2; ++i) close(i);
  }
  void close(std::size_t i) {
    if (gone_[i]) return;
    gone_[i] = true;
    pipe_[i].held.clear();
    if (pipe_[i].fin_taken) pipe_[i].fin = true;
    side_[i]->stream().transport_closed();
  }

  void check(std::size_t i) {
    SCOPED_TRACE("side " + std::to_string(i));
    const DdpSide& side = *side_[i];
    EXPECT_TRUE(side.intact());
    ASSERT_TRUE(side.ended);
    EXPECT_EQ(side.released_whole + side.released_unsent, posted_[i]);
    if (!broke_) {
      EXPECT_EQ(*side.ended, DdpEnd::kOrderly);
      EXPECT_EQ(side.released_unsent, 0U);
    }
    check_received(side, plan_[1 - i], posted_[1 - i]);
  }

  // All of it, or its beginning if the connection was broken.
  void check_received(const DdpSide& side, const std::vector<Plan>& plan,
                      std::size_t posted) const {
    std::size_t messages = 0, tagged = 0;
    for (std::size_t n = 0; n < posted; ++n) {
      if (plan[n].tagged) {
        if (tagged == side.notified.size()) break;
        EXPECT_EQ(side.notified[tagged++], plan[n].control);
        continue;
      }
      if (messages == side.got.size()) break;
      const DdpSide::Got& got = side.got[messages++];
      EXPECT_EQ(got.queue, plan[n].queue);
      EXPECT_TRUE(got.octets == plan[n].octets) << "message " << n;
    }
    EXPECT_EQ(messages, side.got.size()) << "more came than was sent";
    EXPECT_EQ(tagged, side.notified.size());
    if (!broke_) {
      EXPECT_EQ(messages + tagged, posted);
    }
    for (std::size_t o = 0; o < kMemory; ++o) {
      const std::uint8_t octet = side.memory()[o];
      ASSERT_TRUE(octet == DdpSide::kFill || octet == octet_at(o)) << "octet " << o;
    }
  }

  Rng rng_;
  const Break what_;
  bool late_ = false;
  std::unique_ptr<DdpSide> side_[2];
  std::vector<Plan> plan_[2];
  std::size_t posted_[2] = {0, 0};
  Pipe pipe_[2];
  bool gone_[2] = {false, false};
  std::size_t break_from_ = 0;
  std::uint64_t break_at_ = 0;
  bool broke_ = false;
};

std::string name_of(const ::testing::TestParamInfo<Break>& info) {
  switch (info.param) {
    case Break::kNothing: return "Whole";
    case Break::kFlip: return "FlipsABit";
    case Break::kReset: return "IsReset";
    case Break::kFin: return "EndsEarly";
  }
  return {};
}

class DdpSim : public ::testing::TestWithParam<Break> {};
INSTANTIATE_TEST_SUITE_P(Pipe, DdpSim,
                         ::testing::Values(Break::kNothing, Break::kFlip, Break::kReset,
                                           Break::kFin),
                         name_of);

TEST_P(DdpSim, WhatArrivesIsWhatWasSentAndEachMessageIsGivenBackOnce) {
  for_each_seed(120, [](std::uint64_t seed) { DdpWorld(seed, GetParam()).run(); });
}

}  // namespace
}  // namespace weft::testing
