// Every allocation of the background thread fails once, and every system call, while it serves
// connections and datagrams. Nobody waits without end, the process lives on, and nothing is left.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft/wiring.h>

#include <optional>
#include <string>
#include <thread>

#include "support/descriptor_limit.h"
#include "support/nth_fails.h"
#include "support/weft_side.h"
#include "wired_end.h"

namespace weft::test {
namespace {

using Type = ConnectionEvent::Type;

// Its text is too long to be kept within a std::string: what makes one takes memory.
constexpr const char* kHere = "127.100.100.100:0";

class NthFailsInTheBackground : public ::testing::TestWithParam<Fails> {};
INSTANTIATE_TEST_SUITE_P(, NthFailsInTheBackground,
                         ::testing::Values(Fails::kAllocationElsewhere,
                                           Fails::kSystemCallElsewhere),
                         [](const auto& of) {
                           return of.param == Fails::kAllocationElsewhere ? "Allocation"
                                                                          : "SystemCall";
                         });

struct Standing {
  std::size_t users = 0;
  std::size_t descriptors = 0;
  bool operator==(const Standing&) const = default;
};
Standing standing(const Host& host) { return {host.device->users(), open_descriptors()}; }

// Calls `attempt` with each allocation, or system call, of the background failing in turn, and once
// more with none.
template <class Attempt>
void background_fails(Fails what, Host& host, Attempt attempt) {
  NthFails none(Fails::kAllocationElsewhere, 0);
  attempt(none);  // what is made once
  Standing before = standing(host);
  EXPECT_TRUE(eventually([&] {
    const Standing now = standing(host);
    return std::exchange(before, now) == now;
  }));
  int n = 0;
  each_fails(what, [&](NthFails& fails) {
    SCOPED_TRACE("call " + std::to_string(++n));
    attempt(fails);
    EXPECT_TRUE(eventually([&] {
      const Standing now = standing(host);
      return now.users <= before.users && now.descriptors <= before.descriptors;
    })) << fails.name()
        << ": " << standing(host).users << " users, " << before.users << " before; "
        << standing(host).descriptors << " descriptors, " << before.descriptors << " before";
    ASSERT_FALSE(::testing::Test::HasFailure()) << fails.name();
  });
}

// Lines of the log need memory, too.
Config chatty(Config config) {
  config.log = LogLevel::kTrace;
  config.log_file = "/dev/null";
  return config;
}

// The program sleeps on its own descriptor, so the background has to tell it.
void expect_told(CompletionChannel& channel, CompletionQueue& cq) {
  pollfd one{channel.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&one, 1, static_cast<int>(kPatience.count())), 1) << "no event";
  const auto told = channel.wait(milliseconds(0));
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(*told, &cq);
  cq.ack_events(1);
}

// --- connections ---

// One connection of two ends, from the listener to the end.
class Story {
 public:
  explicit Story(Host& host) : a_(host, with_channel()), b_(host, with_channel()) {
    listener_ = listen(host, b_.events, kHere);
    a_.connection = must(host.device->create_connection(a_.events), "create a connection");
  }

  // False: it has ended before the ends were connected, and they heard of that.
  [[nodiscard]] bool connect() {
    must(a_.connection->connect(a_.qp, listener_->local_address(), {}), "connect");
    bool first = false;
    bool second = false;
    for (int i = 0; i < 5 && !(first && second); ++i) {
      const std::optional<ConnectionEvent> event = either();
      if (!event || event->type == Type::kConnectError || event->type == Type::kRejected ||
          event->type == Type::kDisconnected) {
        EXPECT_TRUE(event) << "nobody hears anything";
        return false;
      }
      if (event->type == Type::kConnectRequest) {
        b_.connection = event->connection;
        if (!b_.connection->accept(b_.qp, {})) return false;
      } else {
        (event->connection == a_.connection ? first : second) = true;
      }
    }
    EXPECT_TRUE(first && second);
    return first && second;
  }
  // The message, or the end of the connection, is told.
  void send() {
    must(b_.recv_cq->arm(CompletionQueue::Arm::kNext), "arm");
    post_empty_recvs(*b_.qp, 1, 1);
    SendWr wr = wr_send(1);
    if (a_.qp->post_send({&wr, 1}).count == 0) return;
    expect_told(*b_.channel, *b_.recv_cq);
    static_cast<void>(take(*b_.recv_cq));
  }
  void end() {
    static_cast<void>(a_.connection->disconnect());
    for (EventChannel* events : {a_.events.get(), b_.events.get()}) {
      const auto event = next_event(*events);
      ASSERT_TRUE(event.has_value()) << "an end does not hear of the end";
      EXPECT_EQ(event->type, Type::kDisconnected);
    }
  }

 private:
  std::optional<ConnectionEvent> either() {
    std::optional<ConnectionEvent> event;
    static_cast<void>(eventually([&] {
      event = next_event(*a_.events, milliseconds(0));
      if (!event) event = next_event(*b_.events, milliseconds(0));
      return event.has_value();
    }));
    return event;
  }

  Endpoint a_;
  Endpoint b_;
  std::shared_ptr<Listener> listener_;
};

void check_connections(Fails what, const Config& config) {
  Host host(config);
  background_fails(what, host, [&](NthFails& fails) {
    Story story(host);
    fails.during([&] {
      if (story.connect()) {
        story.send();
        story.end();
      }
      return 0;
    });
  });
}

TEST_P(NthFailsInTheBackground, ConnectionsAreMadeAndEndOrFail) {
  check_connections(GetParam(), chatty(plain_config()));
}

TEST_P(NthFailsInTheBackground, TheThreadOfADeviceBegins) {
  each_fails(GetParam(), [&](NthFails& fails) {
    Host host(plain_config());
    const auto events = must(EventChannel::create(), "create an event channel");
    std::shared_ptr<Listener> listener;
    fails.during([&] {
      listener = listen(host, events, kHere);
      std::this_thread::sleep_for(kGlance);
      return 0;
    });
    Endpoint active(host);
    active.connection = must(host.device->create_connection(active.events), "create");
    must(active.connection->connect(active.qp, listener->local_address(), {}), "connect");
    take_event(*events, Type::kConnectRequest);
  });
}

TEST_P(NthFailsInTheBackground, ThoseThatMoveToARingToo) {
  Config config = chatty(plain_config());
  config.path = PathMode::kAuto;
  check_connections(GetParam(), config);
}

// One that only carries the numbers of queue pairs, as rdma_cm of a RoCE-like device has it.
struct Carrying {
  explicit Carrying(Host& host) : a(host), b(host) {
    const auto listener = must(host.device->create_listener(b.events), "create a listener");
    must(listener->bind_service(must(SocketAddress::parse(kHere), "parse"), false), "bind");
    must(listener->listen(0), "listen");
    ConnectionParams params;
    params.by_service = true;
    params.carried = CarriedQp{};
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    must(a.connection->connect(nullptr, listener->local_address(), params), "connect");
    b.connection = take_event(*b.events, Type::kConnectRequest).connection;
    must(b.connection->accept(nullptr, params), "accept");
    take_event(*a.events, Type::kResponse);
    must(a.connection->establish(), "establish");
    take_event(*b.events, Type::kEstablished);
  }
  Endpoint a;
  Endpoint b;
};

TEST_P(NthFailsInTheBackground, TheEndOfOneThatOnlyCarriesIsTold) {
  Host host(roce_config());
  background_fails(GetParam(), host, [&](NthFails& fails) {
    const Carrying ends(host);
    fails.during([&] {
      must(ends.a.connection->disconnect(), "disconnect");
      EXPECT_EQ(take_event(*ends.b.events, Type::kDisconnected).connection, ends.b.connection);
      must(ends.b.connection->disconnect(), "disconnect");
      EXPECT_EQ(take_event(*ends.a.events, Type::kDisconnected).connection, ends.a.connection);
      return 0;
    });
  });
}

// Another peer may have less luck: it is closed, and the listener goes on.
TEST_P(NthFailsInTheBackground, AListenerGoesOn) {
  Host host;
  background_fails(GetParam(), host, [&](NthFails& fails) {
    const auto events = must(EventChannel::create(), "create an event channel");
    const auto listener = listen(host, events, kHere);
    fails.during([&] {
      Endpoint unlucky(host);
      unlucky.connection = must(host.device->create_connection(unlucky.events), "create");
      must(unlucky.connection->connect(unlucky.qp, listener->local_address(), {}), "connect");
      EXPECT_TRUE(eventually([&] {
        if (next_event(*unlucky.events, milliseconds(0))) return true;
        const auto request = next_event(*events, milliseconds(0));
        return request && request->connection->reject({}).has_value();
      }));
      return 0;
    });
    Endpoint a(host);
    a.connection = must(host.device->create_connection(a.events), "create a connection");
    must(a.connection->connect(a.qp, listener->local_address(), {}), "connect");
    bool asked = false;
    EXPECT_TRUE(eventually([&] {
      const auto request = next_event(*events, milliseconds(1));
      if (request) asked = request->connection->reject({}).has_value();
      return asked;
    })) << "the listener is deaf behind "
        << fails.name();
    take_event(*a.events, Type::kRejected);
  });
}

// --- RoCE-like devices ---

TEST_P(NthFailsInTheBackground, DatagramsAreToldOf) {
  Host host(roce_config());
  background_fails(GetParam(), host, [&](NthFails& fails) {
    const DatagramEnd a(host);
    const DatagramEnd b(host);
    Memory into(host, 256);
    DatagramPeer to;
    to.gid = loopback_gid();
    to.number = b.qp->number();
    constexpr std::uint64_t kMessages = 3;
    for (std::uint64_t id = 1; id <= kMessages; ++id) post_recv(*b.qp, id, {into.sge()});
    fails.during([&] {
      for (std::uint64_t id = 1; id <= kMessages; ++id) {
        must(b.cq->arm(CompletionQueue::Arm::kNext), "arm");
        SendWr wr = wr_send(id);
        wr.peer = &to;
        post(*a.qp, wr);
        expect_told(*b.channel, *b.cq);
        take_success(*b.cq, id);
        take_success(*a.sent, id);
      }
      return 0;
    });
  });
}

// The queue pair's work ends well: a peer that has no memory is sought again.
void expect_wired(Host& host, QpType type, NthFails& fails) {
  const WiredEnd a(host, type);
  const WiredEnd b(host, type);
  Memory into(host, 64);
  Memory from(host, 64);
  fails.during([&] {
    wire(a, b);
    post_recv(*b.qp, 1, {into.sge()});
    must(b.cq->arm(CompletionQueue::Arm::kNext), "arm");
    // One that is not reliable may be told that its peer was not found in time.
    for (bool there = false; !there;) {
      post(*a.qp, wr_send(2), {from.sge()});
      take_success(*a.cq, 2);
      pollfd one{b.channel->fd(), POLLIN, 0};
      const milliseconds patience = type == QpType::kUc ? milliseconds(500) : kPatience;
      there = ::poll(&one, 1, static_cast<int>(patience.count())) == 1;
      if (!there && type == QpType::kRc) throw Failure("no message");
    }
    expect_told(*b.channel, *b.cq);
    take_success(*b.cq, 1);
    return 0;
  });
}

TEST_P(NthFailsInTheBackground, ReliableQueuePairsAreWired) {
  Host host(chatty(roce_config()));
  background_fails(GetParam(), host,
                   [&](NthFails& fails) { expect_wired(host, QpType::kRc, fails); });
}

TEST_P(NthFailsInTheBackground, UnreliableOnesToo) {
  Host host(roce_config());
  background_fails(GetParam(), host,
                   [&](NthFails& fails) { expect_wired(host, QpType::kUc, fails); });
}

TEST_P(NthFailsInTheBackground, ThoseThatMoveToARingAreWired) {
  Config config = chatty(roce_config());
  config.path = PathMode::kAuto;
  Host host(config);
  background_fails(GetParam(), host,
                   [&](NthFails& fails) { expect_wired(host, QpType::kRc, fails); });
}

TEST_P(NthFailsInTheBackground, APortThatCouldNotAcceptForAMomentIsNotDeaf) {
  Host host(roce_config());
  const WiredEnd end(host);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port_of(end.qp->number()));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  background_fails(GetParam(), host, [&](NthFails& fails) {
    const int peer = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    {
      const auto none = DescriptorLimit::beyond(0);
      fails.during([&] {
        EXPECT_EQ(::connect(peer, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
        std::this_thread::sleep_for(kGlance);  // the port has tried
        return 0;
      });
    }
    const std::string no_hello(64, 'x');
    EXPECT_EQ(::send(peer, no_hello.data(), no_hello.size(), MSG_NOSIGNAL), 64);
    pollfd ends{peer, POLLIN, 0};
    EXPECT_EQ(::poll(&ends, 1, static_cast<int>(kPatience.count())), 1)
        << "the port is deaf behind " << fails.name();
    ::close(peer);
  });
}

}  // namespace
}  // namespace weft::test
