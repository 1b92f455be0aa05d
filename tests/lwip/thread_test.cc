// RDMAP over lwIP with a thread of its own (NO_SYS 0), as an RTOS has it: lwIP's thread runs the
// callbacks, the program's threads hold LOCK_TCPIP_CORE() when they call Weft. Both ends are in
// this program, over lwIP's loopback interface.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include <lwip/tcpip.h>
#include <lwip_hooks.h>

#include "lwip/lwip_connection.h"
#include "rddp/endpoint.h"

namespace weft::testing {
namespace {

using Phase = rddp::Endpoint::Phase;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMessage = 100'000;
constexpr int kRounds = 5;
// Between two looks of a program's thread, so that lwIP's gets the lock.
constexpr auto kTick = std::chrono::microseconds(200);
constexpr auto kLimit = std::chrono::seconds(60);

std::uint32_t random_bits() { return weft_lwip_random(); }
Instant clock_now() {
  return Instant{
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
          .count()};
}

proto::StartupOffer offer() {
  proto::StartupOffer offer;
  offer.ird = offer.ord = 4;
  return offer;
}

class Lock {
 public:
  Lock() { LOCK_TCPIP_CORE(); }
  ~Lock() { UNLOCK_TCPIP_CORE(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

void start_lwip() {
  static const bool once = [] {
    std::promise<void> ready;
    tcpip_init([](void* p) { static_cast<std::promise<void>*>(p)->set_value(); }, &ready);
    ready.get_future().wait();
    return true;
  }();
  static_cast<void>(once);
}

std::uint8_t octet(int round, std::size_t i) {
  return static_cast<std::uint8_t>((i + static_cast<std::size_t>(round) * 31) * 2654435761U >> 16U);
}

// One end. Everything but octets is touched only under the lock.
struct Side {
  Side() : octets(2 * kMessage), domain(random_bits, 4) {
    rddp::EndpointConfig config;
    endpoint = rddp::Endpoint::create(config, domain, clock_now);
    connection.emplace(*endpoint);
    stag = domain.add(octets.data(), octets.size(), 0, Access::kRemoteRead | Access::kRemoteWrite)
               .value_or(Stag{});
  }
  ~Side() {
    const Lock lock;
    connection.reset();
    endpoint.reset();
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // REQUIRES: the lock is held.
  bool post(SendOp op, Stag remote, std::uint64_t to, std::size_t at, std::uint64_t imm = 0) {
    const Sge sge{reinterpret_cast<std::uintptr_t>(octets.data() + at), kMessage, 0};
    SendWr wr;
    wr.op = op;
    wr.flags = SendFlags::kSignaled;
    wr.sges = {&sge, 1};
    wr.rkey = remote.value;
    wr.remote_addr = to;
    wr.imm_data = imm;
    const bool posted = endpoint->post(wr).has_value();
    connection->progress();
    return posted;
  }
  // The next completion; none within the limit, or of a request that failed: false.
  bool wait(rddp::EndpointCompletion& out) {
    const auto end = Clock::now() + kLimit;
    while (Clock::now() < end) {
      {
        const Lock lock;
        connection->time(clock_now());
        if (const auto done = endpoint->poll()) {
          out = *done;
          return done->status == WcStatus::kSuccess;
        }
      }
      std::this_thread::sleep_for(kTick);
    }
    return false;
  }
  bool wait_up() {
    const auto end = Clock::now() + kLimit;
    while (Clock::now() < end) {
      {
        const Lock lock;
        if (endpoint->phase() == Phase::kUp) return true;
        if (endpoint->phase() == Phase::kRequest) {
          if (!endpoint->accept(offer())) return false;
          connection->progress();
        }
      }
      std::this_thread::sleep_for(kTick);
    }
    return false;
  }

  std::vector<std::uint8_t> octets;
  rddp::Domain domain;
  std::unique_ptr<rddp::Endpoint> endpoint;
  std::optional<lwip::Connection> connection;
  Stag stag;
};

struct Pair {
  Side client, server;
  std::optional<lwip::Listener> listener;

  Pair() {
    const Lock lock;
    ip_addr_t self;
    IP_ADDR4(&self, 127, 0, 0, 1);
    listener.emplace();
    const auto acceptor = [](void* pair) { return &*static_cast<Pair*>(pair)->server.connection; };
    begun = listener->listen(&self, 0, acceptor, this).has_value() &&
            client.connection->connect(nullptr, self, listener->port(), offer()).has_value();
  }
  ~Pair() {
    const Lock lock;
    listener.reset();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  bool begun = false;
};

// Writes a message into the server's memory and rings; waits until it has come back by a Write of
// the server's, and rings.
void run_client(Pair& pair) {
  Side& me = pair.client;
  ASSERT_TRUE(me.wait_up());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kMessage; ++i) me.octets[i] = octet(round, i);
    {
      const Lock lock;
      ASSERT_TRUE(me.endpoint->post_recv(1, me.octets.data(), 0));
      ASSERT_TRUE(me.post(SendOp::kWriteImm, pair.server.stag, 0, 0, 7));
    }
    rddp::EndpointCompletion done;
    ASSERT_TRUE(me.wait(done));
    ASSERT_TRUE(me.wait(done));
    for (std::size_t i = 0; i < kMessage; ++i) {
      ASSERT_EQ(me.octets[kMessage + i], octet(round, i)) << "round " << round << ", octet " << i;
    }
  }
}

// Reads what the client has of it as well, and compares.
void run_server(Pair& pair) {
  Side& me = pair.server;
  {
    const Lock lock;
    ASSERT_TRUE(me.endpoint->post_recv(1, me.octets.data(), 0));
  }
  ASSERT_TRUE(me.wait_up());
  for (int round = 0; round < kRounds; ++round) {
    rddp::EndpointCompletion done;
    ASSERT_TRUE(me.wait(done));
    ASSERT_TRUE(done.receive && done.imm_data == 7);
    {
      const Lock lock;
      ASSERT_TRUE(me.endpoint->post_recv(1, me.octets.data(), 0));
      ASSERT_TRUE(me.post(SendOp::kRead, pair.client.stag, 0, kMessage));
    }
    ASSERT_TRUE(me.wait(done));
    ASSERT_TRUE(
        std::equal(me.octets.begin(), me.octets.begin() + kMessage, me.octets.begin() + kMessage));
    {
      const Lock lock;
      ASSERT_TRUE(me.post(SendOp::kWriteImm, pair.client.stag, kMessage, 0, 8));
    }
    ASSERT_TRUE(me.wait(done));
  }
}

TEST(LwipThread, TwoProgramThreadsExchangeWritesAndReads) {
  start_lwip();
  Pair pair;
  ASSERT_TRUE(pair.begun);
  std::thread server([&] { run_server(pair); });
  run_client(pair);
  server.join();
}

TEST(LwipThread, SeveralConnectionsAtOnce) {
  start_lwip();
  Pair first;
  Pair second;
  ASSERT_TRUE(first.begun && second.begun);
  std::thread threads[] = {
      std::thread([&] { run_server(first); }), std::thread([&] { run_server(second); }),
      std::thread([&] { run_client(first); }), std::thread([&] { run_client(second); })};
  for (std::thread& thread : threads) thread.join();
}

// What lwIP's thread is asked to do holds the lock already.
TEST(LwipThread, RequestsMayBePostedFromItsOwnThread) {
  start_lwip();
  Pair pair;
  ASSERT_TRUE(pair.begun);
  std::thread server([&] {
    const Lock lock;
    (void)pair.server.endpoint->post_recv(1, pair.server.octets.data(), 0);
  });
  server.join();
  std::thread accepting([&] { EXPECT_TRUE(pair.server.wait_up()); });
  EXPECT_TRUE(pair.client.wait_up());
  accepting.join();
  pair.client.octets.assign(2 * kMessage, 0x5a);
  ASSERT_EQ(tcpip_callback(
                [](void* p) {
                  auto& both = *static_cast<Pair*>(p);
                  EXPECT_TRUE(both.client.post(SendOp::kWriteImm, both.server.stag, 0, 0, 9));
                },
                &pair),
            ERR_OK);
  rddp::EndpointCompletion done;
  ASSERT_TRUE(pair.server.wait(done));
  EXPECT_EQ(done.imm_data, 9U);
  EXPECT_TRUE(std::equal(pair.client.octets.begin(), pair.client.octets.begin() + kMessage,
                         pair.server.octets.begin()));
}

}  // namespace
}  // namespace weft::testing

// What lwIP asks of its machine, beside the port's threads.

unsigned weft_lwip_random() {
  static unsigned state = 3;  // REQUIRES: the lock is held, or nothing runs yet
  return state = state * 1664525U + 1013904223U;
}

void weft_lwip_fault(const char* what) {
  std::fprintf(stderr, "lwIP: %s\n", what);
  std::abort();
}
