// Threads that are cancelled in a call: what sleeps ends, everything else comes back first, and the
// other threads go on with the same objects.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/cancelled.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

struct CancelPair : Pair {
  CancelPair() : Pair(plain_config(), with_channel(), with_channel()) {}
};

// One Send from a to b, taken by a thread that sleeps for it.
void expect_message_by_channel(Pair& pair, std::uint64_t id) {
  must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
  post_recv(*pair.b.qp, id);
  post(*pair.a.qp, wr_send(id));
  CompletionQueue* const cq = must(pair.b.channel->wait(kPatience), "wait");
  EXPECT_EQ(cq, pair.b.recv_cq.get());
  cq->ack_events(1);
  take_success(*pair.b.recv_cq, id);
  take_success(*pair.a.send_cq, id);
}

TEST(Cancel, AThreadThatSleepsForCompletionsEndsAndOthersGoOn) {
  CancelPair pair;
  expect_message_by_channel(pair, 1);
  for (std::uint64_t id = 2; id < 6; ++id) {
    must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
    EXPECT_TRUE(ends_in_its_sleep([&] { static_cast<void>(pair.b.channel->wait({})); }));
    expect_message_by_channel(pair, id);
  }
}

// The lanes are not left to a sleeper that is no more.
TEST(Cancel, WhatComesForAThreadThatIsNoMoreIsServedByTheBackground) {
  CancelPair pair;
  Memory from(pair.host, 8);
  Memory into(pair.host, 8);
  EXPECT_TRUE(ends_in_its_sleep([&] { static_cast<void>(pair.b.channel->wait({})); }));
  const auto arrived = [&] { return pair.host.device->counters().rx_fpdus; };
  const std::uint64_t before = arrived();
  post(*pair.a.qp, wr_write(1, into.rkey(), into.to()), {from.sge()});
  EXPECT_TRUE(eventually([&] { return arrived() > before; }));
}

TEST(Cancel, AThreadThatSleepsForConnectionEventsEndsAndNoneIsLost) {
  Host host;
  Endpoint active(host);
  Endpoint passive(host);
  const auto listener = listen(host, passive.events);
  EXPECT_TRUE(ends_in_its_sleep([&] { static_cast<void>(passive.events->next({})); }));
  EXPECT_TRUE(ends_in_its_sleep([&] { static_cast<void>(host.device->next_async_event({})); }));
  connect(host, active, host, passive);
}

TEST(Cancel, CallsThatDoNotSleepComeBackFirst) {
  CancelPair pair;
  Memory from(pair.host, 200000);
  Memory into(pair.host, 200000);
  from.fill_pattern(1);
  for (std::uint64_t id = 1; id <= 50; ++id) {
    SCOPED_TRACE(id);
    EXPECT_TRUE(comes_back([&] { post_recv(*pair.b.qp, id, {into.sge()}); }));
    EXPECT_TRUE(comes_back([&] { post(*pair.a.qp, wr_send(id), {from.sge()}); }));
    WorkCompletion wc;
    const auto poll = [&](CompletionQueue& cq) {
      std::size_t count = 0;
      EXPECT_TRUE(comes_back([&] { count = cq.poll({&wc, 1}); }));
      return count == 1;
    };
    ASSERT_TRUE(eventually([&] {
      WorkCompletion own;
      static_cast<void>(pair.a.send_cq->poll({&own, 0}));
      return poll(*pair.b.recv_cq);
    }));
    EXPECT_EQ(wc.wr_id, id);
    ASSERT_TRUE(eventually([&] { return poll(*pair.a.send_cq); }));
    EXPECT_TRUE(comes_back([&] {
      must(pair.b.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
      must(pair.a.send_cq->resize(static_cast<std::uint32_t>(1000 + id)), "resize");
    }));
  }
  EXPECT_EQ(into.copy(0, into.size()), from.copy(0, from.size()));
}

// From the device to the end of a connection, each step by a thread of its own.
TEST(Cancel, ObjectsAreMadeAndDestroyedByThreadsThatAreCancelled) {
  std::optional<Host> host;
  std::optional<Endpoint> active;
  std::optional<Endpoint> passive;
  std::shared_ptr<Listener> listener;
  std::shared_ptr<Connection> accepted;
  std::optional<Memory> memory;
  const std::vector<std::pair<std::string, std::function<void()>>> steps = {
      {"open", [&] { host.emplace(); }},
      {"an active end", [&] { active.emplace(*host, with_channel()); }},
      {"a passive end", [&] { passive.emplace(*host, with_channel()); }},
      {"memory", [&] { memory.emplace(*host, 4096); }},
      {"listen", [&] { listener = listen(*host, passive->events); }},
      {"connect",
       [&] {
         active->connection = must(host->device->create_connection(active->events), "create");
         must(active->connection->connect(active->qp, listener->local_address(), {}), "connect");
       }},
  };
  for (const auto& [name, step] : steps) EXPECT_TRUE(comes_back(step)) << name;
  accepted = take_event(*passive->events, Type::kConnectRequest).connection;
  EXPECT_TRUE(comes_back([&] { must(accepted->accept(passive->qp, {}), "accept"); }));
  take_event(*active->events, Type::kEstablished);
  take_event(*passive->events, Type::kEstablished);
  EXPECT_TRUE(comes_back([&] { must(active->connection->disconnect(), "disconnect"); }));
  take_event(*passive->events, Type::kDisconnected);
  EXPECT_TRUE(comes_back([&] { accepted->abort(); }));
  EXPECT_TRUE(comes_back([&] { accepted.reset(); }));
  EXPECT_TRUE(comes_back([&] { listener.reset(); }));
  EXPECT_TRUE(comes_back([&] { memory.reset(); }));
  EXPECT_TRUE(comes_back([&] { active.reset(); }));
  EXPECT_TRUE(comes_back([&] { passive.reset(); }));
  EXPECT_TRUE(comes_back([&] { host.reset(); }));
}

}  // namespace
}  // namespace weft::test
