// A thread is cancelled (pthread_cancel) before each of its system calls in a call of libibverbs or
// librdmacm, one after another. A call that does not sleep comes back first. One that sleeps ends
// there or comes back, and what it waited for is still there. In both cases another thread then
// goes on with the same objects, all of them can be destroyed, and no descriptor is left.
#pragma once

#include <functional>

#include "abi_support.h"
#include "support/cancelled.h"
#include "support/nth_fails.h"

namespace weft::abi {

using test::Cancellable;
using test::each_fails;
using test::Fails;
using test::NthFails;
using test::open_descriptors;

// What a call is for, and what is done around it.
struct Around {
  std::function<void()> before = [] {};
  // The thread sleeps, or has ended: gives it what it waits for.
  std::function<void()> meanwhile;
  bool always_sleeps = true;
  // Whether the call has come back.
  std::function<void(bool)> behind = [](bool) {};
};

// Cancels a thread in `call` before each of its system calls. Without `meanwhile` it is one that
// does not sleep.
inline void cancelled_at_each_step(const char* name, const std::function<void()>& call,
                                   const Around& around) {
  SCOPED_TRACE(name);
  int ended = 0;
  const auto attempt = [&](NthFails& cancels) {
    bool back = false;
    around.before();
    {
      Cancellable thread([&] {
        cancels.during([&] { return call(), 0; });
        back = true;
      });
      if (around.meanwhile) {
        thread.wait_until_asleep();
        around.meanwhile();
      }
      static_cast<void>(thread.was_cancelled());
    }
    ended += back ? 0 : 1;
    EXPECT_TRUE(back || around.meanwhile) << "ends at " << cancels.name();
    around.behind(back);
  };
  NthFails nobody(Fails::kNothingButCancelled, 0);
  attempt(nobody);  // what is made once for the process
  const std::size_t before = open_descriptors();
  each_fails(Fails::kNothingButCancelled, [&](NthFails& cancels) {
    attempt(cancels);
    // Soon: what has been a connection may end in the background.
    EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }))
        << cancels.name() << ": " << open_descriptors() << " descriptors, " << before << " before";
  });
  if (around.meanwhile && around.always_sleeps) {
    EXPECT_GT(ended, 0) << "nobody is cancelled in its sleep";
  }
}
inline void cancelled_at_each_step(const char* name, const std::function<void()>& call) {
  cancelled_at_each_step(name, call, Around());
}

// One Send from the active side to the passive one, which sleeps for it.
inline void expect_round_trip(const Connected& pair) {
  ibv_cq* const cq = pair.passive.id->recv_cq;
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  pair.passive.post_recv(1, 0, 64);
  send_some(pair.active, 64);
  ASSERT_TRUE(readable(cq->channel->fd));
  ibv_cq* told = nullptr;
  void* context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(cq->channel, &told, &context), 0);
  EXPECT_EQ(told, cq);
  ibv_ack_cq_events(cq, 1);
  ibv_wc wc{};
  ASSERT_TRUE(next_completion(cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  ASSERT_TRUE(next_completion(pair.active.id->send_cq, wc));
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace weft::abi
