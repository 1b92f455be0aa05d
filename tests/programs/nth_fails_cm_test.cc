// Every allocation and every system call of rdma_cm's calls on connections fails once, at either
// end. The call fails with the right errno; both ends hear what came of it; the next works.
#include "nth_fails_check.h"

namespace weft::abi {
namespace {

// Calls `attempt` with each allocation, and each system call, failing in turn. What it leaves is
// nothing.
template <class Attempt>
void each_way(Attempt attempt) {
  NthFails none(Fails::kAllocation, 0);
  attempt(none);  // what is made once
  for (const Fails kind : kBoth) {
    each_fails(kind, [&](NthFails& fails) {
      const std::size_t before = open_descriptors();
      attempt(fails);
      EXPECT_TRUE(eventually([&] { return open_descriptors() <= before; }))
          << fails.name() << ": " << open_descriptors() << " descriptors, " << before << " before";
      ASSERT_FALSE(::testing::Test::HasFailure()) << fails.name();
    });
  }
}

// The call with this result has done what it should, or says why not.
bool expect_right(const NthFails& fails, int result) {
  if (result == 0) return true;
  EXPECT_EQ(result, -1);
  EXPECT_TRUE(fails.has_failed()) << strerror(errno);
  EXPECT_TRUE(says(errno, fails.error())) << fails.name() << " gives " << strerror(errno);
  return false;
}

int type_of(const rdma_cm_event* event) { return static_cast<int>(event->event); }

// The next event, which is acknowledged, and its id. Null: none comes.
rdma_cm_id* next_of_type(rdma_event_channel* channel, int type) {
  NextEvent event(channel);
  EXPECT_EQ(event.type(), type);
  return event.type() == type ? event.id() : nullptr;
}

// A client that nothing fails for is served.
void expect_served(const Listening& listening) {
  Calling calling(listening.port, kHere);
  calling.connect();
  rdma_cm_id* const id = next_of_type(listening.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_NE(id, nullptr);
  EXPECT_EQ(rdma_reject(id, nullptr, 0), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
}

TEST(NthFailsOfCm, ARequestIsFetchedOrRefused) {
  const Listening listening(1, 0, kHere);  // one that is lost is missed
  each_way([&](NthFails& fails) {
    {
      Calling calling(listening.port, kHere);
      calling.connect();
      ASSERT_TRUE(readable(listening.channel->fd));
      rdma_cm_event* event = nullptr;
      const int got =
          fails.during([&] { return rdma_get_cm_event(listening.channel.get(), &event); });
      if (!expect_right(fails, got)) {
        // The client hears that it is refused, or its request is still there.
        pollfd both[] = {{calling.channel->fd, POLLIN, 0}, {listening.channel->fd, POLLIN, 0}};
        ASSERT_GT(poll(both, 2, kWaitMs), 0) << "nobody hears of it";
        if ((both[1].revents & POLLIN) == 0) return;
        ASSERT_EQ(rdma_get_cm_event(listening.channel.get(), &event), 0);
      }
      ASSERT_EQ(type_of(event), RDMA_CM_EVENT_CONNECT_REQUEST);
      rdma_cm_id* const id = event->id;
      EXPECT_EQ(rdma_ack_cm_event(event), 0);
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
    expect_served(listening);
  });
}

// A synchronous listener with a queue pair for each request.
struct SyncListening {
  rdma_cm_id* id = nullptr;
  std::uint16_t port = 0;
  SyncListening() {
    rdma_addrinfo hints{};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = RAI_PASSIVE;
    rdma_addrinfo* where = nullptr;
    EXPECT_EQ(rdma_getaddrinfo(kHere, nullptr, &hints, &where), 0);
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_ep(&id, where, nullptr, &attr), 0);
    EXPECT_EQ(rdma_listen(id, 1), 0);
    port = ntohs(rdma_get_src_port(id));
    rdma_freeaddrinfo(where);
  }
  ~SyncListening() { rdma_destroy_ep(id); }
  SyncListening(const SyncListening&) = delete;
  SyncListening& operator=(const SyncListening&) = delete;
};

TEST(NthFailsOfCm, ASynchronousRequestIsFetchedWithItsQueuePairOrRefused) {
  const SyncListening listening;
  each_way([&](NthFails& fails) {
    for (NthFails none(Fails::kAllocation, 0); NthFails * now : {&fails, &none}) {
      Calling calling(listening.port, kHere);
      calling.connect();
      rdma_cm_id* id = nullptr;
      const int got = now->during([&] { return rdma_get_request(listening.id, &id); });
      if (expect_right(*now, got)) {
        EXPECT_NE(id->qp, nullptr);
        rdma_destroy_ep(id);
      }
      // Destroyed, or refused.
      EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_REJECTED);
    }
  });
}

// --- to the end of a connection ---

// Two ends; `active` has asked.
struct Ends {
  explicit Ends(const Listening& l) : listening(l), calling(l.port, kHere) {
    calling.connect();
    passive = next_of_type(l.channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
    if (passive == nullptr) return;
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    EXPECT_EQ(rdma_create_qp(passive, nullptr, &attr), 0);
  }
  ~Ends() {
    if (passive == nullptr) return;
    if (passive->qp != nullptr) rdma_destroy_qp(passive);
    EXPECT_EQ(rdma_destroy_id(passive), 0);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  void connect() {
    rdma_conn_param params{};
    EXPECT_EQ(rdma_accept(passive, &params), 0);
    EXPECT_EQ(NextEvent(calling.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(NextEvent(listening.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
  }
  [[nodiscard]] rdma_cm_id* end(bool is_active) const { return is_active ? calling.id : passive; }
  [[nodiscard]] rdma_event_channel* channel(bool is_active) const {
    return (is_active ? calling.channel : listening.channel).get();
  }
  // This end has called rdma_disconnect. The other answers, and both hear.
  void expect_disconnected(bool is_active) const {
    EXPECT_EQ(NextEvent(channel(!is_active)).type(), RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(rdma_disconnect(end(!is_active)), 0);
    EXPECT_EQ(NextEvent(channel(is_active)).type(), RDMA_CM_EVENT_DISCONNECTED);
  }

  const Listening& listening;
  Calling calling;
  rdma_cm_id* passive = nullptr;
};

// On a RoCE-like device the queue pair is made ready when the answer is fetched.
TEST(NthFailsOfCm, TheAnswerIsFetchedAndBothEndsHearTheSame) {
  const Listening listening(16, 0, kHere);
  each_way([&](NthFails& fails) {
    Ends ends(listening);
    rdma_conn_param params{};
    ASSERT_EQ(rdma_accept(ends.passive, &params), 0);
    ASSERT_TRUE(readable(ends.calling.channel->fd));
    rdma_cm_event* event = nullptr;
    if (!expect_right(fails, fails.during([&] {
          return rdma_get_cm_event(ends.calling.channel.get(), &event);
        }))) {
      ASSERT_TRUE(readable(ends.calling.channel->fd)) << "the answer is lost";
      ASSERT_EQ(rdma_get_cm_event(ends.calling.channel.get(), &event), 0);
    }
    const int type = type_of(event);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    if (type == RDMA_CM_EVENT_ESTABLISHED) {
      EXPECT_EQ(NextEvent(listening.channel.get()).type(), RDMA_CM_EVENT_ESTABLISHED);
      return;
    }
    EXPECT_EQ(type, RDMA_CM_EVENT_CONNECT_ERROR);
    EXPECT_TRUE(fails.has_failed());
    rdma_destroy_qp(ends.calling.id);
    EXPECT_EQ(rdma_destroy_id(std::exchange(ends.calling.id, nullptr)), 0);
    EXPECT_NE(NextEvent(listening.channel.get()).type(), -1) << "the passive end hears nothing";
  });
}

TEST(NthFailsOfCm, ARejectionIsHeardOfWhateverFails) {
  const Listening listening(16, 0, kHere);
  each_way([&](NthFails& fails) {
    const Ends ends(listening);
    const char why[] = "no";
    static_cast<void>(
        expect_right(fails, fails.during([&] { return rdma_reject(ends.passive, why, 2); })));
    const NextEvent heard(ends.calling.channel.get());
    EXPECT_NE(heard.type(), -1) << "the active end hears nothing";
    EXPECT_NE(heard.type(), RDMA_CM_EVENT_ESTABLISHED);
  });
}

TEST(NthFailsOfCm, ADisconnectEndsBothWhateverFails) {
  const Listening listening(16, 0, kHere);
  for (const bool active : {true, false}) {
    each_way([&](NthFails& fails) {
      Ends ends(listening);
      ends.connect();
      rdma_cm_id* const id = ends.end(active);
      if (!expect_right(fails, fails.during([&] { return rdma_disconnect(id); }))) {
        EXPECT_EQ(rdma_disconnect(id), 0) << "behind " << fails.name();
      }
      ends.expect_disconnected(active);
    });
  }
}

// --- what destroys ---

TEST(NthFailsOfCm, SharedReceiveQueuesAreMadeOrNot) {
  const Listening listening(16, 0, kHere);
  const ChannelPtr channel = make_channel();
  auto peer = v4(kHere, listening.port);
  const auto resolved = [&] {
    rdma_cm_id* id = make_id(channel.get());
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(peer), 2000), 0);
    EXPECT_EQ(NextEvent(channel.get()).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    return id;
  };
  check_step(
      "create_srq", resolved,
      [](rdma_cm_id* id) {
        ibv_srq_init_attr attr{nullptr, {16, 1, 0}};
        return rdma_create_srq(id, nullptr, &attr);
      },
      [](rdma_cm_id* id) { rdma_destroy_srq(id); });
}

TEST(NthFailsOfCm, WhatDestroysAnEndNeedsNoMemory) {
  const Listening listening(16, 0, kHere);
  for (const bool active : {true, false}) {
    each_way([&](NthFails& fails) {
      Ends ends(listening);
      ends.connect();
      rdma_cm_id*& id = active ? ends.calling.id : ends.passive;
      rdma_event_channel* const other =
          active ? listening.channel.get() : ends.calling.channel.get();
      EXPECT_EQ(fails.during([&] {
        rdma_destroy_qp(id);
        return rdma_destroy_id(std::exchange(id, nullptr));
      }),
                0);
      EXPECT_EQ(NextEvent(other).type(), RDMA_CM_EVENT_DISCONNECTED) << fails.name();
    });
  }
}

TEST(NthFailsOfCm, WhatDestroysARequestNeedsNoMemory) {
  const Listening listening(16, 0, kHere);
  each_way([&](NthFails& fails) {
    Ends ends(listening);
    rdma_destroy_qp(ends.passive);
    EXPECT_EQ(fails.during([&] { return rdma_destroy_id(std::exchange(ends.passive, nullptr)); }),
              0);
    EXPECT_NE(NextEvent(ends.calling.channel.get()).type(), -1)
        << "the active end hears nothing behind " << fails.name();
  });
}

// A request is in the channel, and another may be on its way.
TEST(NthFailsOfCm, WhatDestroysAListenerNeedsNoMemory) {
  each_way([&](NthFails& fails) {
    Listening listening(16, 0, kHere);
    Calling calling(listening.port, kHere);
    calling.connect();
    ASSERT_TRUE(readable(listening.channel->fd));
    EXPECT_EQ(fails.during([&] {
      const int ended = rdma_destroy_id(std::exchange(listening.id, nullptr));
      rdma_destroy_event_channel(listening.channel.release());
      return ended;
    }),
              0);
    EXPECT_NE(NextEvent(calling.channel.get()).type(), -1)
        << "the active end hears nothing behind " << fails.name();
  });
}

TEST(NthFailsOfCm, WhatDestroysAnEndpointNeedsNoMemory) {
  const Listening listening(16, 0, kHere);
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* where = nullptr;
  const std::string port = std::to_string(listening.port);
  ASSERT_EQ(rdma_getaddrinfo(kHere, port.c_str(), &hints, &where), 0);
  each_way([&](NthFails& fails) {
    rdma_cm_id* id = nullptr;
    ibv_qp_init_attr attr = rc_attributes(nullptr);
    ASSERT_EQ(rdma_create_ep(&id, where, nullptr, &attr), 0);
    EXPECT_EQ(fails.during([&] { return rdma_destroy_ep(id), 0; }), 0);
  });
  rdma_freeaddrinfo(where);
}

}  // namespace
}  // namespace weft::abi
