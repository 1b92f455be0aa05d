// Every allocation and every system call of set-up fails once. The call says so and has changed
// nothing: no object is left, no descriptor, and the same call works straight afterwards.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "os/event_fd.h"
#include "os/job_threads.h"
#include "support/nth_fails.h"
#include "support/weft_side.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

// Its text is too long to be kept within a std::string: what makes one takes memory.
constexpr const char* kHere = "127.100.100.100:0";

constexpr Fails kBoth[] = {Fails::kAllocation, Fails::kSystemCall};

Config roce_config() {
  Config config = plain_config();
  must(config.set("personality", "roce"), "the personality");
  return config;
}

// What the application is told if the call with this errno is the one that fails.
bool says(Error error, int number) {
  if (number == ENOMEM || number == ENOBUFS) {
    return error == Error::kNoMemory || system_errno(error) == number;
  }
  return system_errno(error) == number || (number == ENOSPC && error == Error::kNoSpace);
}

template <class T>
void expect_right(const Result<T>& made, const NthFails& fails) {
  if (made) return;
  EXPECT_TRUE(fails.has_failed()) << describe(made.error());
  EXPECT_TRUE(says(made.error(), fails.error()))
      << fails.name() << " gives: " << describe(made.error());
}

// What must be again as it was.
struct Standing {
  std::size_t users = 0;
  std::size_t descriptors = 0;
  bool operator==(const Standing&) const = default;
};

class Case {
 public:
  explicit Case(Device& device) : device_(device) {}

  // `call` gives a Result. What it makes is given up behind the check.
  template <class Call>
  void check(const char* what, Call call) {
    SCOPED_TRACE(what);
    if (!call()) FAIL() << "does not work at all";  // what is made once for the process is made
    for (const Fails kind : kBoth) {
      each_fails(kind, [&](NthFails& fails) {
        const Standing before = standing();
        {
          const auto made = fails.during(call);
          expect_right(made, fails);
        }
        expect_again(before, fails);
        EXPECT_TRUE(call()) << "behind " << fails.name();
      });
    }
  }

  // Soon: what has been a connection may end in the background.
  void expect_again(const Standing& before, const NthFails& fails) const {
    EXPECT_TRUE(eventually([&] { return standing() == before; }))
        << fails.name() << ": " << standing().users << " users, " << before.users << " before; "
        << standing().descriptors << " descriptors, " << before.descriptors << " before";
  }
  [[nodiscard]] Standing standing() const { return {device_.users(), open_descriptors()}; }

 private:
  Device& device_;
};

void check_device(const Config& config) {
  for (const bool first : {true, false}) {
    SCOPED_TRACE(first ? "the first of the process" : "later ones");
    const std::size_t at_first = open_descriptors();
    for (const Fails kind : kBoth) {
      each_fails(kind, [&](NthFails& fails) {
        const std::size_t before = open_descriptors();
        {
          const auto device = fails.during([&] { return Device::open(config); });
          expect_right(device, fails);
          if (device) {
            EXPECT_EQ((*device)->users(), 0U);
            EXPECT_TRUE((*device)->create_pd()) << "behind " << fails.name();
          }
        }
        if (!first) {
          EXPECT_EQ(open_descriptors(), before) << fails.name();
        }
        EXPECT_TRUE(Device::open(config)) << "behind " << fails.name();
      });
    }
    EXPECT_LE(open_descriptors(), at_first + 2) << "the process keeps what it has made once";
  }
}

// Before the others: this is where the process makes what it keeps.
TEST(NthFails, ADeviceIsOpenedWhollyOrNotAtAll) { check_device(plain_config()); }
TEST(NthFails, ARoceLikeDeviceIsOpenedWhollyOrNotAtAll) { check_device(roce_config()); }

QpOptions qp_options(const std::shared_ptr<CompletionQueue>& cq, QpType type = QpType::kRc) {
  QpOptions options;
  options.type = type;
  options.send_cq = options.recv_cq = cq;
  return options;
}

void check_objects(const Config& config) {
  Host host(config);
  Device& device = *host.device;
  const auto channel = must(device.create_channel(), "create a channel");
  const auto cq = must(device.create_cq({}), "create a CQ");
  const auto srq = must(host.pd->create_srq({}), "create an SRQ");
  std::vector<std::uint8_t> octets(100'000);
  const auto region =
      must(host.pd->register_memory(octets.data(), octets.size(), kAllAccess), "register memory");
  Case on(device);
  on.check("domain", [&] { return device.create_pd(); });
  on.check("channel", [&] { return device.create_channel(); });
  on.check("event channel", [&] { return EventChannel::create(); });
  on.check("CQ", [&] { return device.create_cq({}); });
  CqOptions with_channel;
  with_channel.channel = channel;
  on.check("CQ with a channel", [&] { return device.create_cq(with_channel); });
  on.check("region",
           [&] { return host.pd->register_memory(octets.data(), octets.size(), kAllAccess); });
  on.check("window", [&] { return host.pd->create_window(MemoryWindow::Type::kType2); });
  on.check("SRQ", [&] { return host.pd->create_srq({}); });
  on.check("CQ of another size", [&] { return cq->resize(cq->depth() == 64 ? 128 : 64); });
  on.check("SRQ of another size", [&] { return srq->resize(srq->max_wr() == 64 ? 128 : 64); });
  on.check("region elsewhere",
           [&] { return region->reregister(nullptr, octets.data(), octets.size() / 2, nullptr); });
  on.check("QP", [&] { return host.pd->create_qp(qp_options(cq)); });
  on.check("QP, with all that it needs", [&]() -> Result<std::shared_ptr<QueuePair>> {
    auto own = device.create_cq(with_channel);
    if (!own) return fail(own.error());
    QpOptions options = qp_options(*own);
    options.srq = srq;
    return host.pd->create_qp(options);
  });
  EXPECT_EQ(cq->users(), 0U);
  EXPECT_EQ(srq->users(), 0U);
  EXPECT_EQ(channel->users(), 0U);
}

TEST(NthFails, ObjectsAreMadeWhollyOrNotAtAll) { check_objects(plain_config()); }
TEST(NthFails, ObjectsOfARoceLikeDeviceAreMadeWhollyOrNotAtAll) { check_objects(roce_config()); }

TEST(NthFails, QueuePairsOfDatagramsAreMadeWhollyOrNotAtAll) {
  Host host(roce_config());
  const auto cq = must(host.device->create_cq({}), "create a CQ");
  Case(*host.device).check("UD", [&] { return host.pd->create_qp(qp_options(cq, QpType::kUd)); });
  EXPECT_EQ(cq->users(), 0U);
}

void check_ends(const Config& config) {
  Host host(config);
  Device& device = *host.device;
  const auto events = must(EventChannel::create(), "create an event channel");
  const auto any = must(SocketAddress::parse(kHere), "parse");
  Case on(device);
  on.check("connection", [&] { return device.create_connection(events); });
  on.check("listener", [&] { return device.create_listener(events); });
  on.check("bound connection", [&]() -> Result<std::shared_ptr<Connection>> {
    auto made = device.create_connection(events);
    if (!made) return made;
    if (auto bound = (*made)->bind(any); !bound) return fail(bound.error());
    return made;
  });
  for (const bool service : {false, true}) {
    on.check(service ? "listener of rdma_cm" : "listener",
             [&]() -> Result<std::shared_ptr<Listener>> {
               auto made = device.create_listener(events);
               if (!made) return made;
               auto bound = service ? (*made)->bind_service(any, false) : (*made)->bind(any);
               if (bound) bound = (*made)->listen(4);
               if (!bound) return fail(bound.error());
               return made;
             });
  }
}

TEST(NthFails, ListenersAndConnectionsAreMadeWhollyOrNotAtAll) { check_ends(plain_config()); }
TEST(NthFails, ThoseOfARoceLikeDeviceAreMadeWhollyOrNotAtAll) { check_ends(roce_config()); }

// All at once, so that what a device makes at its first use fails too: its thread, its page.
Status make_all(const Config& config, const SocketAddress& any) {
  const auto device = Device::open(config);
  if (!device) return fail(device.error());
  const auto pd = (*device)->create_pd();
  if (!pd) return fail(pd.error());
  const auto cq = (*device)->create_cq({});
  if (!cq) return fail(cq.error());
  const auto qp = (*pd)->create_qp(qp_options(*cq));
  if (!qp) return fail(qp.error());
  const auto events = EventChannel::create();
  if (!events) return fail(events.error());
  const auto listener = (*device)->create_listener(*events);
  if (!listener) return fail(listener.error());
  if (auto bound = (*listener)->bind(any); !bound) return bound;
  return (*listener)->listen(4);
}

void check_all(const Config& config) {
  const auto any = must(SocketAddress::parse(kHere), "parse");
  must(make_all(config, any), "make all");  // what is made once for the process
  for (const Fails kind : kBoth) {
    each_fails(kind, [&](NthFails& fails) {
      const std::size_t before = open_descriptors();
      expect_right(fails.during([&] { return make_all(config, any); }), fails);
      EXPECT_EQ(open_descriptors(), before) << fails.name();
      EXPECT_TRUE(make_all(config, any)) << "behind " << fails.name();
    });
  }
}

TEST(NthFails, WhatADeviceMakesAtItsFirstUseIsMadeOrNot) { check_all(plain_config()); }
TEST(NthFails, SoDoesARoceLikeDevice) { check_all(roce_config()); }

TEST(NthFails, AnAddressThatCannotBeReadForWantOfMemoryIsNotMissing) {
  // Longer than what a string keeps without memory.
  for (const char* text : {"127.100.100.100:7", "[2001:db8:1111:2222:3333:4444:5555:6666]:7"}) {
    each_fails(Fails::kAllocation, [&](NthFails& fails) {
      const auto parsed = fails.during([&] { return SocketAddress::parse(text); });
      if (!parsed) {
        EXPECT_EQ(parsed.error(), Error::kNoMemory) << text << ", " << fails.name();
      }
      EXPECT_EQ(parsed.has_value(), !fails.has_failed()) << text << ", " << fails.name();
    });
  }
}

// --- connections ---

// The next event of either end.
ConnectionEvent next_of(EventChannel& one, EventChannel& other, bool& is_other) {
  std::optional<ConnectionEvent> event;
  EXPECT_TRUE(eventually([&] {
    is_other = false;
    if (auto here = one.next(milliseconds(0))) event = *here;
    if (event) return true;
    is_other = true;
    if (auto there = other.next(milliseconds(0))) event = *there;
    return event.has_value();
  })) << "nobody hears anything";
  return event.value_or(ConnectionEvent{});
}

enum class Step { kConnect, kAccept };

// Two ends are connected; one step of that fails, and then both hear of it, or they are connected.
void connect_once(Host& host, Step failing, NthFails& fails) {
  Endpoint a(host);
  Endpoint b(host);
  const auto listener = listen(host, b.events, kHere);
  a.connection = must(host.device->create_connection(a.events), "create a connection");
  const auto try_it = [&](Step step, auto call) {
    const Status done = step == failing ? fails.during(call) : call();
    if (!done && done.error() != Error::kConnectionLost) {
      EXPECT_TRUE(says(done.error(), fails.error()))
          << fails.name() << " gives: " << describe(done.error());
    }
    return done.has_value();
  };
  const ConnectionParams params;
  const SocketAddress where = listener->local_address();
  if (!try_it(Step::kConnect, [&] { return a.connection->connect(a.qp, where, params); })) return;
  bool is_request = false;
  const ConnectionEvent first = next_of(*a.events, *b.events, is_request);
  if (!is_request) {
    EXPECT_TRUE(fails.has_failed() && first.error && says(*first.error, fails.error()))
        << fails.name() << ": " << describe(first.type) << " "
        << describe(first.error.value_or(Error::kSystem));
    return;
  }
  b.connection = first.connection;
  if (!try_it(Step::kAccept, [&] { return b.connection->accept(b.qp, params); })) return;
  const auto end = next_event(*a.events);
  ASSERT_TRUE(end.has_value()) << fails.name() << ": the active end hears nothing";
  if (end->type == Type::kEstablished) {
    const auto other = next_event(*b.events);
    ASSERT_TRUE(other.has_value()) << fails.name() << ": the passive end hears nothing";
    if (other->type == Type::kEstablished) return;
  }
  EXPECT_TRUE(fails.has_failed()) << describe(end->type);
}

void check_connections(const Config& config, Step failing) {
  Host host(config);
  {
    // What is made once, for the process and for the device.
    const Endpoint first(host);
    const auto listener = listen(host, first.events, kHere);
  }
  const Case on(*host.device);
  const Standing before = on.standing();
  for (const Fails kind : kBoth) {
    each_fails(kind, [&](NthFails& fails) {
      connect_once(host, failing, fails);
      on.expect_again(before, fails);
      NthFails none(kind, 0);
      connect_once(host, failing, none);
      on.expect_again(before, none);
    });
  }
}

// One end of a TCP connection, that of a peer.
class Peer {
 public:
  // To whoever listens there.
  Peer(const sockaddr* where, socklen_t size)
      : fd_(::socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(::connect(fd_, where, size), 0);
  }
  ~Peer() { ::close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  void say(std::string_view octets) const {
    EXPECT_EQ(::send(fd_, octets.data(), octets.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(octets.size()));
  }
  void ask() const { say({"MPA ID Req Frame\x40\x01\0\0", 20}); }
  // Soon, and nothing comes before it.
  [[nodiscard]] bool ends(milliseconds patience = kPatience) const {
    pollfd p{fd_, POLLIN, 0};
    std::array<char, 1> octet;
    return ::poll(&p, 1, static_cast<int>(patience.count())) == 1 &&
           ::recv(fd_, octet.data(), octet.size(), MSG_DONTWAIT) <= 0;
  }

 private:
  int fd_;
};

// A port of loopback that listens by itself.
class Door {
 public:
  Door() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at_.sin_family = AF_INET;
    at_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at_;
    EXPECT_TRUE(::bind(fd_, where(), size) == 0 && ::listen(fd_, 4) == 0 &&
                ::getsockname(fd_, where(), &size) == 0);
  }
  ~Door() { ::close(fd_); }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  [[nodiscard]] sockaddr* where() { return reinterpret_cast<sockaddr*>(&at_); }
  static constexpr socklen_t kSize = sizeof(sockaddr_in);
  // The other end of the next peer, for whom it is to be handed in to.
  [[nodiscard]] int take() const { return ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); }

 private:
  int fd_;
  sockaddr_in at_{};
};

TEST(NthFails, AListenerThatClosesNeedsNoMemory) {
  Host host(plain_config());
  each_fails(Fails::kAllocation, [&](NthFails& fails) {
    const auto events = must(EventChannel::create(), "create an event channel");
    const auto listener = must(host.device->create_listener(events), "create a listener");
    Door door;
    const Peer silent(door.where(), Door::kSize);
    must(listener->hand_in(door.take()), "hand it in");
    const Peer asks(door.where(), Door::kSize);
    asks.ask();
    must(listener->hand_in(door.take()), "hand it in");
    fails.during([&] { return listener->close(), true; });
    EXPECT_TRUE(silent.ends() && asks.ends()) << fails.name();
  });
}

TEST(NthFails, AConnectThatFailsIsHeardOfAndLeavesNothing) {
  check_connections(plain_config(), Step::kConnect);
}
TEST(NthFails, AnAcceptThatFailsIsHeardOfAndLeavesNothing) {
  check_connections(plain_config(), Step::kAccept);
}

// --- turns ---

// A thread that polls for the first time takes one message. `posts` sends it once the thread looks
// after the connection, so that it is the one that receives.
template <class Posts>
bool take_in_new_thread(CompletionQueue& cq, NthFails& fails, Posts posts) {
  constexpr int kPollsToTakeOver = 100;
  std::atomic<int> polls{0};
  bool taken = false;
  std::thread thread([&] {
    taken = fails.during([&] {
      WorkCompletion wc;
      const auto limit = std::chrono::steady_clock::now() + kPatience;
      while (std::chrono::steady_clock::now() < limit) {
        if (cq.poll({&wc, 1}) == 1) return wc.status == WcStatus::kSuccess;
        polls.fetch_add(1);
      }
      return false;
    });
  });
  EXPECT_TRUE(eventually([&] { return polls.load() > kPollsToTakeOver; }));
  posts();
  thread.join();
  return taken;
}

TEST(NthFails, AThreadsFirstTurnNeedsNoMemory) {
  Pair pair;
  Memory from(pair.host, 64), to(pair.host, 64);
  std::uint64_t id = 0;
  int failed = 0;
  // The background may be quicker, then nothing has failed in the thread.
  for (int attempts = 0; failed < 3 && attempts < 200; ++attempts) {
    NthFails fails(Fails::kSystemCall, 1);  // it maps its buffer
    post_recv(*pair.b.qp, ++id, {to.sge()});
    EXPECT_TRUE(take_in_new_thread(*pair.b.recv_cq, fails, [&] {
      post(*pair.a.qp, wr_send(id), {from.sge()});
      take_success(*pair.a.send_cq, id);
    })) << fails.name();
    if (fails.has_failed()) ++failed;
  }
  EXPECT_EQ(failed, 3) << "no mapping failed in a thread that polls";
}

using Threads = os::JobThreads<int>;

// How many come. At least `least` have to.
std::size_t count_done(Threads& threads, std::size_t least) {
  std::size_t count = 0;
  EXPECT_TRUE(eventually([&] {
    count += threads.take_done_and_lower().size();
    return count >= least;
  }));
  return count;
}

TEST(NthFails, AJobIsRefusedOrDoneOnceWhateverItsThreadLacks) {
  for (const Fails kind : kBoth) {
    each_fails(kind, [](NthFails& fails) {
      const os::Fd event = os::make_event();
      Threads threads(2, [](int&) noexcept {});
      threads.raises(event.get());
      const std::size_t taken = fails.during([&]() -> std::size_t {
        try {
          threads.run(1);
        } catch (const std::bad_alloc&) {
          return 0;
        }
        return 1;
      });
      threads.run(2);
      EXPECT_EQ(count_done(threads, taken + 1), taken + 1) << fails.name();
    });
  }
}

TEST(NthFails, AJobThatIsTakenNeedsNoMemory) {
  const os::Fd event = os::make_event();
  Threads threads(1, [](int&) noexcept {});
  threads.raises(event.get());
  threads.run(0);
  EXPECT_EQ(count_done(threads, 1), 1U);
  each_fails(Fails::kAllocationElsewhere, [&](NthFails& fails) {
    EXPECT_EQ(fails.during([&] {
      threads.run(1);
      return count_done(threads, 1);
    }),
              1U);
  });
}

}  // namespace
}  // namespace weft::test
