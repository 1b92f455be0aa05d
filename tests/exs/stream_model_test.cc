// The rules of SOCK_STREAM, explored: every order in which two ends, their messages and their
// applications can act, for small streams. The rules are the library's own classes.
//
// A byte is its number in the stream. The model has the receiver's ring, the memory of its
// receives, and the messages under way in both directions, which stay in order. What is checked in
// each state: bytes are handed over in order, none twice and none left out; nothing is written to
// memory that is not offered; and as long as there is a byte to send and a receive that waits,
// somebody can act.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "exs/rdma/stream_rules.h"

namespace weft::exs {
namespace {

struct Receive {
  std::uint64_t length = 1;
  bool wait_all = false;
};

struct Scenario {
  std::uint64_t bytes = 4;
  std::uint64_t ring = 2;
  std::vector<Receive> receives;
  int cancels = 0;          // times that the application takes a receive back
  std::uint64_t chunk = 0;  // the most bytes of one send; 0: any
};

struct Down {  // to the receiver
  enum class Type : std::uint8_t { kRing, kDirect, kChainClosed } type{};
  std::uint64_t seq = 0;
  std::uint64_t length = 0;
  std::uint64_t advert = 0;
  std::uint64_t at = 0;
  std::uint32_t chain = 0;
};

struct Up {  // to the sender
  enum class Type : std::uint8_t { kAdvert, kConsumed, kCloseChain } type{};
  std::uint32_t chain = 0;
  std::uint64_t seq = 0;
  std::uint64_t length = 0;
  bool wait_all = false;
  std::uint64_t total = 0;
  std::uint64_t advert = 0;  // the sender's number for it, filled in when it is accepted
};

struct Waiting {
  std::size_t index = 0;  // in Scenario::receives
  std::uint64_t done = 0;
  bool offered = false;
  bool cancelled = false;
  std::uint64_t offered_at = 0;  // `done` when it was offered
};

class World {
 public:
  explicit World(const Scenario& scenario)
      : scenario_(&scenario), sender(scenario.ring), receiver(scenario.ring), ring(scenario.ring) {}

  // The worlds that one action leads to. `failure` names what went wrong.
  void successors(std::vector<World>& out, std::string& failure) const;
  [[nodiscard]] std::string key() const;
  [[nodiscard]] bool stuck() const {
    return sent < scenario_->bytes && !waiting.empty() && posted == scenario_->receives.size();
  }

 private:
  bool deliver_down(std::string& failure);
  bool deliver_up(std::string& failure);
  void copy_out(std::string& failure);
  void hand_over(std::uint64_t byte, std::string& failure);
  void finish_first();
  void void_adverts();
  void drop_cancelled();
  void send(std::uint64_t available);

  const Scenario* scenario_;
  StreamSender sender;
  StreamReceiver receiver;
  std::vector<std::uint64_t> ring;
  std::deque<Down> down;
  std::deque<Up> up;
  std::deque<Waiting> waiting;
  std::size_t posted = 0;
  std::uint64_t sent = 0;
  std::uint64_t handed_over = 0;
  std::uint64_t told = 0;
  int cancels = 0;
};

void World::hand_over(std::uint64_t byte, std::string& failure) {
  if (byte != handed_over) failure = "a byte twice, or one left out";
  ++handed_over;
}

void World::finish_first() { waiting.pop_front(); }

void World::void_adverts() {
  for (Waiting& one : waiting) one.offered = false;
}

void World::copy_out(std::string& failure) {
  while (!waiting.empty() && receiver.ring_used() != 0) {
    Waiting& first = waiting.front();
    const Receive& what = scenario_->receives[first.index];
    if (first.offered) {
      failure = "bytes in the ring while memory is offered";
      return;
    }
    while (receiver.ring_used() != 0 && first.done < what.length) {
      hand_over(ring[receiver.ring_head()], failure);
      receiver.consumed(1);
      ++first.done;
    }
    if (first.done == what.length || !what.wait_all) finish_first();
  }
}

void World::drop_cancelled() {
  std::erase_if(waiting, [](const Waiting& one) { return one.cancelled; });
}

bool World::deliver_down(std::string& failure) {
  const Down message = down.front();
  down.pop_front();
  switch (message.type) {
    case Down::Type::kChainClosed:
      if (!receiver.on_chain_closed(message.chain))
        failure = "the answer to a closed chain refused";
      void_adverts();
      drop_cancelled();
      copy_out(failure);
      return true;
    case Down::Type::kRing: {
      const std::uint64_t tail = receiver.ring_tail();
      if (!receiver.on_ring(message.seq, message.length)) {
        failure = "bytes of the ring refused";
        return false;
      }
      void_adverts();
      drop_cancelled();
      for (std::uint64_t i = 0; i < message.length; ++i) ring[tail + i] = message.seq + i;
      copy_out(failure);
      return true;
    }
    case Down::Type::kDirect: break;
  }
  const auto placed = receiver.on_direct(message.seq, message.length);
  if (!placed.ok || waiting.empty() || !waiting.front().offered) {
    failure = "written to memory that is not offered";
    return false;
  }
  Waiting& first = waiting.front();
  if (message.at != first.done - first.offered_at) failure = "written to the wrong place";
  for (std::uint64_t i = 0; i < message.length; ++i) hand_over(message.seq + i, failure);
  first.done += message.length;
  const Receive& what = scenario_->receives[first.index];
  if (first.done > what.length) failure = "written past the end of a receive";
  if (placed.ends != (first.done == what.length || !what.wait_all)) failure = "an odd end";
  if (placed.ends) finish_first();
  return true;
}

bool World::deliver_up(std::string& failure) {
  const Up message = up.front();
  up.pop_front();
  switch (message.type) {
    case Up::Type::kAdvert:
      if (sender.on_advert(message.chain, message.seq, message.length, message.wait_all) ==
          StreamSender::Verdict::kViolation) {
        failure = "an advert refused";
      }
      return true;
    case Up::Type::kConsumed:
      if (!sender.on_ring_consumed(message.total)) failure = "a count refused";
      return true;
    case Up::Type::kCloseChain: {
      if (!sender.on_close_chain(message.chain)) failure = "the end of a chain refused";
      Down answer;
      answer.type = Down::Type::kChainClosed;
      answer.chain = message.chain;
      down.push_back(answer);
      return true;
    }
  }
  return true;
}

void World::send(std::uint64_t available) {
  const auto step = sender.next(available);
  Down message;
  const bool direct = step.way == StreamSender::Way::kDirect;
  message.type = direct ? Down::Type::kDirect : Down::Type::kRing;
  message.seq = sender.seq();
  message.length = step.length;
  message.at = step.at;
  message.advert = step.advert;
  sender.took(step);
  sent += step.length;
  down.push_back(message);
}

void World::successors(std::vector<World>& out, std::string& failure) const {
  if (!down.empty()) {
    out.push_back(*this);
    out.back().deliver_down(failure);
  }
  if (!up.empty()) {
    out.push_back(*this);
    out.back().deliver_up(failure);
  }
  const std::uint64_t left = scenario_->bytes - sent;
  const std::uint64_t most = scenario_->chunk == 0 ? left : std::min(left, scenario_->chunk);
  for (std::uint64_t available = 1; available <= most; ++available) {
    if (sender.next(available).way == StreamSender::Way::kWait) break;
    out.push_back(*this);
    out.back().send(available);
  }
  if (posted < scenario_->receives.size()) {
    out.push_back(*this);
    World& next = out.back();
    next.waiting.push_back({next.posted++, 0, false, false, 0});
    next.copy_out(failure);
  }
  for (std::size_t i = 0; i < waiting.size() && receiver.may_advertise(); ++i) {
    if (waiting[i].offered) continue;
    out.push_back(*this);
    World& next = out.back();
    Waiting& one = next.waiting[i];
    const Receive& what = scenario_->receives[one.index];
    const auto advert = next.receiver.advertise(what.length - one.done, what.wait_all);
    one.offered = true;
    one.offered_at = one.done;
    Up message;
    message.type = Up::Type::kAdvert;
    message.chain = advert.chain;
    message.seq = advert.seq;
    message.length = what.length - one.done;
    message.wait_all = what.wait_all;
    next.up.push_back(message);
    break;  // in order
  }
  if (receiver.may_report_ring() && told != receiver.ring_consumed()) {
    out.push_back(*this);
    World& next = out.back();
    Up message;
    message.type = Up::Type::kConsumed;
    message.total = next.told = receiver.ring_consumed();
    next.up.push_back(message);
  }
  if (cancels < scenario_->cancels && !waiting.empty() && waiting.back().offered &&
      !receiver.closing()) {
    out.push_back(*this);
    World& next = out.back();
    ++next.cancels;
    next.waiting.back().cancelled = true;
    Up message;
    message.type = Up::Type::kCloseChain;
    message.chain = next.receiver.close_chain();
    next.up.push_back(message);
  }
}

std::string World::key() const {
  std::vector<std::uint64_t> all;
  sender.describe(all);
  receiver.describe(all);
  all.insert(all.end(), ring.begin(), ring.end());
  all.push_back(down.size());
  for (const Down& m : down) {
    all.insert(all.end(), {static_cast<std::uint64_t>(m.type), m.seq, m.length, m.at, m.chain});
  }
  all.push_back(up.size());
  for (const Up& m : up) {
    all.insert(all.end(),
               {static_cast<std::uint64_t>(m.type), m.chain, m.seq, m.length, m.total, m.wait_all});
  }
  all.push_back(waiting.size());
  for (const Waiting& one : waiting) {
    all.insert(all.end(), {one.index, one.done, one.offered, one.cancelled, one.offered_at});
  }
  all.insert(all.end(), {posted, sent, handed_over, told, static_cast<std::uint64_t>(cancels)});
  std::string out;
  // Every number of a small case fits into a byte.
  for (const std::uint64_t value : all) out.push_back(static_cast<char>(value));
  return out;
}

struct Explored {
  std::size_t states = 0;
  std::size_t ends = 0;
  std::string failure;
};

Explored explore(const Scenario& scenario) {
  Explored result;
  std::unordered_set<std::string> seen;
  std::vector<World> open{World(scenario)};
  seen.insert(open.back().key());
  while (!open.empty() && result.failure.empty()) {
    const World world = std::move(open.back());
    open.pop_back();
    ++result.states;
    std::vector<World> next;
    world.successors(next, result.failure);
    if (next.empty()) {
      ++result.ends;
      if (world.stuck()) result.failure = "nobody can act, and there are bytes to send";
    }
    for (World& one : next) {
      if (seen.insert(one.key()).second) open.push_back(std::move(one));
    }
  }
  return result;
}

void expect_holds(const Scenario& scenario, std::size_t states_at_least) {
  const Explored result = explore(scenario);
  EXPECT_EQ(result.failure, "");
  EXPECT_GE(result.states, states_at_least) << "the case has become too small to mean anything";
  EXPECT_GE(result.ends, 1U);
}

TEST(StreamModel, OneReceiveAtATime) {
  expect_holds({4, 2, {{4, false}, {4, false}, {4, false}}, 0, 0}, 1000);
}

TEST(StreamModel, ReceivesThatWaitForAll) {
  expect_holds({5, 2, {{2, true}, {2, true}, {1, true}}, 0, 0}, 1000);
}

TEST(StreamModel, MixedReceives) {
  expect_holds({4, 2, {{2, true}, {1, false}, {3, false}, {2, true}}, 0, 0}, 1000);
}

TEST(StreamModel, ARingOfOneByte) {
  expect_holds({4, 1, {{2, true}, {3, false}, {1, false}, {1, false}}, 0, 0}, 1000);
}

TEST(StreamModel, SendsOfOneByte) {
  expect_holds({5, 3, {{3, true}, {2, false}, {2, true}}, 0, 1}, 1000);
}

TEST(StreamModel, ReceivesAreTakenBack) {
  expect_holds({3, 2, {{3, true}, {2, false}, {2, true}}, 2, 0}, 1000);
}

// The model can fail: a sender that uses an advert which is not for its next byte.
TEST(StreamModel, AStaleAdvertIsNotUsed) {
  StreamSender sender(4);
  StreamSender::Step step = sender.next(2);
  ASSERT_EQ(step.way, StreamSender::Way::kRing);
  sender.took(step);
  EXPECT_EQ(sender.on_advert(1, 0, 10, false), StreamSender::Verdict::kStale);
  EXPECT_EQ(sender.next(1).way, StreamSender::Way::kRing);
  // The rest of its chain is as dead; the next chain at the right byte is not.
  EXPECT_EQ(sender.on_advert(1, 0, 10, false), StreamSender::Verdict::kStale);
  EXPECT_EQ(sender.on_advert(2, 2, 10, false), StreamSender::Verdict::kAccepted);
  EXPECT_EQ(sender.next(3).way, StreamSender::Way::kDirect);
}

TEST(StreamModel, WhatCannotBeIsRefused) {
  StreamSender sender(4);
  EXPECT_EQ(sender.on_advert(2, 0, 1, false), StreamSender::Verdict::kViolation);
  EXPECT_EQ(sender.on_advert(1, 0, 0, false), StreamSender::Verdict::kViolation);
  EXPECT_FALSE(sender.on_ring_consumed(1));
  EXPECT_FALSE(sender.on_close_chain(1));
  StreamReceiver receiver(4);
  EXPECT_FALSE(receiver.on_direct(0, 1).ok);
  EXPECT_FALSE(receiver.on_ring(0, 5));
  EXPECT_FALSE(receiver.on_ring(1, 1));
  EXPECT_FALSE(receiver.on_ring(0, 0));
  EXPECT_FALSE(receiver.on_chain_closed(0));
  EXPECT_EQ(receiver.advertise(3, true).chain, 1U);
  EXPECT_FALSE(receiver.on_direct(0, 4).ok);
  EXPECT_TRUE(receiver.on_direct(0, 3).ok);
  EXPECT_TRUE(receiver.on_ring(3, 4));
  EXPECT_FALSE(receiver.on_ring(7, 1));
}

}  // namespace
}  // namespace weft::exs
