// Peers that break the protocol. The socket has to end the connection with ECONNRESET, each
// operation once, and nothing else may happen.
#include <array>
#include <chrono>
#include <functional>
#include <random>
#include <span>
#include <thread>

#include "liar.h"

namespace weft::exs_test {
namespace {

// A socket that a liar has connected to, with a receive and a send of its own under way.
class Victim {
 public:
  explicit Victim(const Way& way)
      : way_(way), listener_(way), liar(listener_.port, bytes_of(hello_of(way))) {
    EXPECT_TRUE(liar.connected());
    EXPECT_TRUE(liar.say(header_of(Type::kStart)));
    fd = exs_accept(listener_.fd, nullptr, 0, 0, kBlock, 0);
    EXPECT_GE(fd, 0);
    EXPECT_EQ(exs_recv(fd, in_.data(), in_.size(), MSG_WAITALL, q_, tag(1), in_.mh), 0);
    EXPECT_EQ(exs_recv(fd, in_.data(), 100, 0, q_, tag(2), in_.mh), 0);
    EXPECT_EQ(exs_send(fd, out_.data(), out_.size(), 0, q_, tag(3), out_.mh), 0);
  }
  ~Victim() {
    if (fd >= 0) close_now(fd);
    EXPECT_EQ(exs_qdelete(q_), 0);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Each operation ends, once. Those that were not complete before say ECONNRESET.
  void expect_reset(int at_least = 2) {
    std::array<int, 4> ends{};
    int resets = 0;
    for (int i = 0; i < 3; ++i) {
      const exs_event_t event = next_event(q_);
      ASSERT_NE(event.type, 0);
      ++ends.at(static_cast<std::size_t>(event.ahandle));
      if (event.error == ECONNRESET) ++resets;
    }
    EXPECT_EQ(ends, (std::array<int, 4>{0, 1, 1, 1}));
    EXPECT_GE(resets, at_least);
    // If no message was a lie, the connection ends when the peer has hung up, a moment later.
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    char byte = 0;
    ssize_t sent = 0;
    do {
      sent = exs_send(fd, &byte, 1, 0, kBlock, 0, EXS_MHANDLE_UNREGISTERED);
    } while ((sent == 1 || errno == EAGAIN) && std::chrono::steady_clock::now() < patience);
    EXPECT_EQ(sent, -1);
    // A peer that has ended its stream in good order before it hung up leaves nobody to send to.
    const bool in_good_order = at_least == 0 && errno == EPIPE;
    EXPECT_TRUE(errno == ECONNRESET || in_good_order) << errno;
    // The library is well: the listener takes the next one, which behaves.
    const int next = new_socket(way_);
    Endpoint to = loopback(AF_INET, listener_.port);
    ASSERT_EQ(exs_connect(next, to.get(), to.length, 0, kBlock, 0), 0);
    const int accepted = exs_accept(listener_.fd, nullptr, 0, 0, kBlock, 0);
    ASSERT_EQ(exs_send(next, "x", 1, 0, kBlock, 0, EXS_MHANDLE_UNREGISTERED), 1);
    ASSERT_EQ(exs_recv(accepted, &byte, 1, 0, kBlock, 0, EXS_MHANDLE_UNREGISTERED), 1);
    close_now(next);
    close_now(accepted);
  }

 private:
  Way way_;
  Listener listener_;
  exs_qhandle_t q_ = exs_qcreate(16);
  Buffer out_{100'000, 1};
  Buffer in_{100'000, 2};

 public:
  Liar liar;
  int fd = -1;
};

struct Lie {
  const char* name;
  Way way;
  std::function<void(Liar&)> tell;
};

constexpr Segment kNowhere{0x1000, 0xdead, 5000};

void add_lies_of_both(std::vector<Lie>& out) {
  const std::vector<std::uint8_t> payload(100, 7);
  const auto both = [&out](const char* name, const std::function<void(Liar&)>& tell) {
    out.push_back({name, kStream, tell});
    out.push_back({name, kPacket, tell});
  };
  both("CutHeader", [](Liar& l) { l.say(std::vector<std::uint8_t>(Header::kSize - 1, 1)); });
  both("NoBytes", [](Liar& l) { l.say(std::span<const std::uint8_t>{}); });
  both("UnknownType", [](Liar& l) { l.say(header_of(static_cast<Type>(99))); });
  both("BytesBehind", [=](Liar& l) { l.say(header_of(Type::kCredit), {}, payload); });
  both("SegmentsWhereNoneBelong", [](Liar& l) {
    Header h = header_of(Type::kCredit);
    h.segments = 1;
    l.say(h, std::span(&kNowhere, 1));
  });
  both("LengthOfPayload", [=](Liar& l) { l.say(header_of(Type::kData, 99, 0), {}, payload); });
  both("SlotsReturned", [](Liar& l) {
    Header h = header_of(Type::kCredit);
    h.slots_returned = 5000;
    l.say(h);
  });
  both("RingConsumed", [](Liar& l) {
    Header h = header_of(Type::kCredit);
    h.ring_consumed = 1;
    h.ring_consumed <<= 40U;
    l.say(h);
  });
  both("OutOfOrder", [=](Liar& l) { l.say(header_of(Type::kData, 100, 7), {}, payload); });
  both("SecondEnd", [](Liar& l) {
    l.say(header_of(Type::kFinish));
    l.say(header_of(Type::kFinish));
  });
  both("FinishedUnasked", [](Liar& l) { l.say(header_of(Type::kFinished)); });
  // They are read and posted again, but the socket's own messages say of how many.
  both("MoreMessagesThanSlots", [](Liar& l) {
    for (int i = 0; i < 20'000 && l.say(header_of(Type::kCredit)); ++i) {
    }
  });
  both("HangsUp", [](Liar&) {});
}

void add_lies_of_streams(std::vector<Lie>& out) {
  const auto stream = [&out](const char* name, const std::function<void(Liar&)>& tell) {
    out.push_back({name, kStream, tell});
  };
  stream("RingTooSmall", [](Liar& l) { l.say(header_of(Type::kRing, (1U << 20U) + 1, 0)); });
  stream("RingOfNothing", [](Liar& l) { l.say(header_of(Type::kRing, 0, 0)); });
  stream("DirectBeyondTheAdvert", [](Liar& l) { l.say(header_of(Type::kDirect, 100'001, 0)); });
  stream("DirectOfNothing", [](Liar& l) { l.say(header_of(Type::kDirect, 0, 0)); });
  stream("ClosesAChainThatIsNot", [](Liar& l) {
    Header h = header_of(Type::kCloseChain);
    h.aux = 9;
    l.say(h);
  });
  stream("ChainClosedUnasked", [](Liar& l) {
    Header h = header_of(Type::kChainClosed);
    h.aux = 1;
    l.say(h);
  });
  stream("AdvertOfAnotherChain", [](Liar& l) {
    Header h = header_of(Type::kAdvert, 5000);
    h.segments = 1;
    h.aux = 7;
    l.say(h, std::span(&kNowhere, 1));
  });
  stream("AdvertOfNothing", [](Liar& l) {
    Header h = header_of(Type::kAdvert, 0);
    h.aux = 1;
    l.say(h);
  });
  stream("PacketMessage", [](Liar& l) { l.say(header_of(Type::kDone)); });
}

void add_lies_of_packets(std::vector<Lie>& out) {
  const auto packet = [&out](const char* name, const std::function<void(Liar&)>& tell) {
    out.push_back({name, kPacket, tell});
  };
  packet("MessagesConsumed", [](Liar& l) {
    Header h = header_of(Type::kCredit);
    h.messages_consumed = 1000;
    l.say(h);
  });
  packet("SourceThatCannotBeRead", [](Liar& l) {
    Header h = header_of(Type::kSource, 5000, 0);
    h.segments = 1;
    l.say(h, std::span(&kNowhere, 1));
  });
  packet("EndBeforeItsSourceIsFetched", [](Liar& l) {
    for (std::uint64_t i = 0; i < 3; ++i) {
      Header h = header_of(Type::kSource, 0, i);
      h.flags = exs::kPersistent;
      l.say(h);
    }
    l.say(header_of(Type::kFinish));
  });
  packet("DoneForNothing", [](Liar& l) { l.say(header_of(Type::kDone, 0, 77)); });
  packet("DroppedUnasked", [](Liar& l) {
    l.hear();  // the source of message 0
    Header h = header_of(Type::kDone, 0, 0);
    h.flags = exs::kDropped;
    l.say(h);
  });
  packet("WithdrawsWhatWasNotSent", [](Liar& l) { l.say(header_of(Type::kWithdraw, 0, 5)); });
  packet("WithdrawsMoreThanIsAnswered", [](Liar& l) {
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      if (!l.say(header_of(Type::kSource, 0, i)) || !l.say(header_of(Type::kWithdraw, 0, i)))
        return;
    }
  });
  packet("StreamMessage", [](Liar& l) { l.say(header_of(Type::kRing, 5, 0)); });
}

std::vector<Lie> lies() {
  std::vector<Lie> out;
  add_lies_of_both(out);
  add_lies_of_streams(out);
  add_lies_of_packets(out);
  return out;
}

class Hostile : public testing::TestWithParam<Lie> {};

TEST_P(Hostile, LosesItsConnectionAndNothingElseHappens) {
  Victim victim(GetParam().way);
  GetParam().tell(victim.liar);
  if (std::string(GetParam().name) == "HangsUp") {
    Victim other(GetParam().way);  // meanwhile another one stands
    victim.liar.say(header_of(static_cast<Type>(77)));
    other.liar.say(header_of(static_cast<Type>(77)));
    other.expect_reset();
  }
  // An end that is in order has ended the receives before.
  const std::string name = GetParam().name;
  // The first end may complete everything; sources of nothing end the receives, and no more.
  const bool sources =
      name == "EndBeforeItsSourceIsFetched" || name == "WithdrawsMoreThanIsAnswered";
  victim.expect_reset(name == "SecondEnd" ? 0 : sources ? 1 : 2);
}

INSTANTIATE_TEST_SUITE_P(Lies, Hostile, testing::ValuesIn(lies()), [](const auto& one) {
  return std::string(one.param.name) + (one.param.way.type == SOCK_STREAM ? "Stream" : "Packet");
});

// Its message can't be fetched then. No receive may end as if it had been.
TEST(HostilePacket, APeerThatTakesNoReadsLosesItsConnection) {
  const Listener listener(kPacket);
  Liar liar(listener.port, bytes_of(hello_of(kPacket)), 0);
  ASSERT_TRUE(liar.connected());
  ASSERT_TRUE(liar.say(header_of(Type::kStart)));
  const int fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(fd, 0);
  Buffer in(5000, 1);
  const exs_qhandle_t q = exs_qcreate(4);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(exs_recv(fd, in.data(), in.size(), 0, q, tag(i), in.mh), 0);
  }
  Header source = header_of(Type::kSource, kNowhere.length, 0);
  source.segments = 1;
  liar.say(source, std::span(&kNowhere, 1));
  for (int i = 1; i <= 2; ++i) {
    const exs_event_t event = next_event(q);
    EXPECT_EQ(event.ahandle, tag(i));
    EXPECT_EQ(event.error, ECONNRESET);
  }
  close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// Each asks for an answer, and the peer gives no slot back to take it.
TEST(HostileStream, AnswersThatAPeerDoesNotTakeDoNotPileUp) {
  const Listener listener(kStream);
  Liar liar(listener.port, bytes_of(hello_of(kStream)));
  ASSERT_TRUE(liar.connected());
  ASSERT_TRUE(liar.say(header_of(Type::kStart)));
  const int fd = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(fd, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  char byte = 0;
  ASSERT_EQ(exs_recv(fd, &byte, 1, 0, q, tag(1), kPlain), 0);
  for (int i = 0; i < 20'000 && liar.say(header_of(Type::kCloseChain)); ++i) {
  }
  EXPECT_EQ(next_event(q).error, ECONNRESET);
  close_now(fd);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// Its end may be seen in the completion queue before rdma_cm has told of its beginning.
TEST(HostileStream, APeerThatLeavesAtOnceIsAccepted) {
  const Listener listener(kStream);
  const exs_qhandle_t q = exs_qcreate(4);
  const int wait = EXS_WAIT_BUSY_POLL;
  ASSERT_EQ(exs_qmodify(q, EXS_QATTR_WAIT, &wait), 0);
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(exs_accept(listener.fd, nullptr, 0, 0, q, tag(i)), 0);
    std::thread peer([&] {
      Liar liar(listener.port, bytes_of(hello_of(kStream)));
      EXPECT_TRUE(liar.connected());
      liar.say(header_of(Type::kStart));
      liar.say(header_of(Type::kFinish));
    });
    const exs_event_t event = next_event(q);
    peer.join();
    ASSERT_EQ(event.type, EXS_EVT_ACCEPT) << "round " << i;
    ASSERT_EQ(event.error, 0) << "round " << i;
    close_now(event.u.accept.fd);
  }
  EXPECT_EQ(exs_qdelete(q), 0);
}

exs::Reject answer_to(const Way& way, const std::vector<std::uint8_t>& private_data) {
  const Listener listener(way);
  const Liar liar(listener.port, private_data);
  EXPECT_FALSE(liar.connected());
  const auto reject = exs::decode_reject(liar.answer());
  EXPECT_TRUE(reject.has_value());
  return reject.value_or(exs::Reject{});
}

TEST(HostileHello, AnotherVersionIsRefusedInTheReply) {
  Hello hello = hello_of(kStream);
  hello.version = 2;
  const exs::Reject reject = answer_to(kStream, bytes_of(hello));
  EXPECT_EQ(reject.reason, exs::Refusal::kVersion);
  EXPECT_EQ(reject.version, exs::kProtocolVersion);
}

TEST(HostileHello, WhatIsNoHelloIsRefusedInTheReply) {
  const std::vector<std::uint8_t> good = bytes_of(hello_of(kStream));
  EXPECT_EQ(answer_to(kStream, {good.begin(), good.begin() + 20}).reason, exs::Refusal::kMalformed);
  EXPECT_EQ(answer_to(kPacket, good).reason, exs::Refusal::kKind);
  const std::vector<std::function<void(Hello&)>> wrong{
      [](Hello& h) { h.slots = 0; },
      [](Hello& h) { h.slots = 60'000; },
      [](Hello& h) { h.immediate_bytes = 1U << 30U; },
      [](Hello& h) { h.ring_bytes = 16; },
      [](Hello& h) { h.ring_bytes = ~0U; },
      [](Hello& h) { h.messages = 0; }};
  for (const auto& spoil : wrong) {
    Hello hello = hello_of(kStream);
    spoil(hello);
    EXPECT_EQ(answer_to(kStream, bytes_of(hello)).reason, exs::Refusal::kMalformed);
  }
}

// Random messages, most of them nearly right: whatever happens, each operation ends once.
TEST(HostileRandom, EndsEveryOperationOnce) {
  const char* wanted = std::getenv("WEFT_SEED");
  const std::uint64_t seed =
      wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE("WEFT_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 40; ++round) {
    Victim victim(round % 2 == 0 ? kStream : kPacket);
    std::uint64_t bytes = 0;
    std::uint64_t messages = 0;
    for (int i = 0; i < 30; ++i) {
      Header h = header_of(static_cast<Type>(1 + random() % 13));
      const std::vector<std::uint8_t> payload(h.type == Type::kData ? random() % 200 : 0, 1);
      h.flags = static_cast<std::uint8_t>(random() % 16);
      h.length = payload.empty() ? static_cast<std::uint32_t>(random() % 3000)
                                 : static_cast<std::uint32_t>(payload.size());
      h.seq = random() % 8 == 0 ? random() % 50 : round % 2 == 0 ? bytes : messages;
      h.aux = static_cast<std::uint32_t>(random() % 3);
      std::vector<Segment> segments;
      if (h.type == Type::kAdvert || h.type == Type::kSource) {
        segments.push_back({0x1000, static_cast<std::uint32_t>(random()), h.length});
        h.segments = 1;
      }
      if (!victim.liar.say(h, segments, payload)) break;
      if (h.type == Type::kData || h.type == Type::kRing || h.type == Type::kDirect) {
        bytes += h.length;
      }
      if (h.type == Type::kData || h.type == Type::kSource) ++messages;
    }
    victim.liar.say(header_of(static_cast<Type>(99)));
    victim.expect_reset(0);
  }
}

}  // namespace
}  // namespace weft::exs_test
