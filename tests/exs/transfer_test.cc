// Data, over every provider and type of socket.
#include "exs_support.h"

namespace weft::exs_test {
namespace {

class Transfer : public testing::TestWithParam<Way> {};

TEST_P(Transfer, ASendArrivesInThePostedReceive) {
  Pair pair(GetParam());
  Buffer out(100, 1);
  Buffer in(200, 2);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 200, 0, pair.right_q, tag(7), in.mh), 0);
  ASSERT_EQ(exs_send(pair.left, out.data(), 100, 0, pair.left_q, tag(8), out.mh), 0);
  const exs_event_t sent = next_event(pair.left_q);
  EXPECT_EQ(sent.type, EXS_EVT_SEND);
  EXPECT_EQ(sent.error, 0);
  EXPECT_EQ(sent.ahandle, tag(8));
  EXPECT_EQ(sent.fd, pair.left);
  EXPECT_EQ(exs_evt_length(&sent), 100U);
  const exs_event_t got = next_event(pair.right_q);
  EXPECT_EQ(got.type, EXS_EVT_RECV);
  EXPECT_EQ(got.error, 0);
  EXPECT_EQ(got.ahandle, tag(7));
  EXPECT_EQ(got.fd, pair.right);
  ASSERT_EQ(exs_evt_length(&got), 100U);
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 100), 0);
}

TEST_P(Transfer, AReceiveFindsWhatWasSentBefore) {
  Pair pair(GetParam());
  Buffer out(3000, 1);
  Buffer in(3000, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), 3000, 0, pair.left_q, tag(1), out.mh), 0);
  exs_pollfd_t ready{pair.right, EXS_POLLIN, 0};
  ASSERT_EQ(exs_poll(&ready, 1, 0, EXS_QHANDLE_INVALID, 0), 1);
  EXPECT_EQ(ready.revents, EXS_POLLIN);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 3000, MSG_WAITALL, pair.right_q, tag(2), in.mh), 0);
  const exs_event_t got = next_event(pair.right_q);
  ASSERT_EQ(exs_evt_length(&got), 3000U);
  EXPECT_EQ(in.bytes, out.bytes);
  EXPECT_EQ(next_event(pair.left_q).error, 0);
}

TEST_P(Transfer, OneMebibyteEachWay) {
  constexpr std::size_t kBytes = 1U << 20U;
  Pair pair(GetParam());
  Buffer one(kBytes, 1);
  Buffer two(kBytes, 2);
  Buffer to_left(kBytes, 3);
  Buffer to_right(kBytes, 4);
  ASSERT_EQ(
      exs_recv(pair.right, to_right.data(), kBytes, MSG_WAITALL, pair.right_q, 0, to_right.mh), 0);
  ASSERT_EQ(exs_recv(pair.left, to_left.data(), kBytes, MSG_WAITALL, pair.left_q, 0, to_left.mh),
            0);
  ASSERT_EQ(exs_send(pair.left, one.data(), kBytes, 0, pair.left_q, 0, one.mh), 0);
  ASSERT_EQ(exs_send(pair.right, two.data(), kBytes, 0, pair.right_q, 0, two.mh), 0);
  for (const exs_qhandle_t q : {pair.left_q, pair.right_q}) {
    for (int i = 0; i < 2; ++i) {
      const exs_event_t event = next_event(q);
      EXPECT_EQ(event.error, 0) << std::strerror(event.error);
      EXPECT_EQ(exs_evt_length(&event), kBytes);
    }
  }
  EXPECT_EQ(to_right.bytes, one.bytes);
  EXPECT_EQ(to_left.bytes, two.bytes);
}

TEST_P(Transfer, UnregisteredMemoryWorksToo) {
  constexpr std::size_t kBytes = 300'000;
  Pair pair(GetParam());
  const std::vector<std::uint8_t> out(kBytes, 0x5a);
  std::vector<std::uint8_t> in(kBytes);
  ASSERT_EQ(exs_send(pair.left, out.data(), kBytes, 0, pair.left_q, 0, EXS_MHANDLE_UNREGISTERED),
            0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), kBytes, MSG_WAITALL, pair.right_q, 0,
                     EXS_MHANDLE_UNREGISTERED),
            0);
  const exs_event_t got = next_event(pair.right_q);
  EXPECT_EQ(exs_evt_length(&got), kBytes);
  EXPECT_EQ(next_event(pair.left_q).error, 0);
  EXPECT_EQ(in, out);
}

TEST_P(Transfer, AnOrderlyEndLosesNothing) {
  constexpr std::size_t kBytes = 500'000;
  Pair pair(GetParam());
  Buffer out(kBytes, 1);
  Buffer in(kBytes, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), kBytes, 0, pair.left_q, tag(1), out.mh), 0);
  ASSERT_EQ(exs_close(pair.left, pair.left_q, tag(2)), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), kBytes, MSG_WAITALL, pair.right_q, tag(3), in.mh), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 1, 0, pair.right_q, tag(4), in.mh), 0);
  const exs_event_t got = next_event(pair.right_q);
  EXPECT_EQ(got.ahandle, tag(3));
  EXPECT_EQ(exs_evt_length(&got), kBytes);
  EXPECT_EQ(in.bytes, out.bytes);
  const exs_event_t end = next_event(pair.right_q);
  EXPECT_EQ(end.ahandle, tag(4));
  EXPECT_EQ(end.error, 0);
  EXPECT_EQ(exs_evt_length(&end), 0U);
  const exs_event_t sent = next_event(pair.left_q);
  EXPECT_EQ(sent.ahandle, tag(1));
  EXPECT_EQ(sent.error, 0);
  const exs_event_t closed = next_event(pair.left_q);
  EXPECT_EQ(closed.type, EXS_EVT_CLOSE);
  EXPECT_EQ(closed.error, 0);
  pair.left = -1;
}

TEST_P(Transfer, CallsThatBlockReturnCounts) {
  Pair pair(GetParam());
  char text[] = "synchronous";
  char in[64];
  constexpr auto kNone = EXS_QHANDLE_INVALID;
  ASSERT_EQ(exs_send(pair.left, text, sizeof text, 0, kNone, 0, EXS_MHANDLE_UNREGISTERED),
            static_cast<ssize_t>(sizeof text));
  ASSERT_EQ(exs_recv(pair.right, in, sizeof in, 0, kNone, 0, EXS_MHANDLE_UNREGISTERED),
            static_cast<ssize_t>(sizeof text));
  EXPECT_STREQ(in, text);
}

std::vector<Way> all_ways() {
  std::vector<Way> out;
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    for (const int provider : {EXS_PROVIDER_RDMA, EXS_PROVIDER_TCP}) {
      for (const int domain : {AF_INET, AF_INET6}) out.push_back({type, provider, domain});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Every, Transfer, testing::ValuesIn(all_ways()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace weft::exs_test
