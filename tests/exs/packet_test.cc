// SOCK_SEQPACKET: message borders, persistent sends, cancellation; and one-sided work.
#include <sys/mman.h>

#include <array>

#include "exs_support.h"

namespace weft::exs_test {
namespace {

constexpr Way kRdma{SOCK_SEQPACKET, EXS_PROVIDER_RDMA, AF_INET};

class Packet : public testing::TestWithParam<Way> {};

TEST_P(Packet, BordersStay) {
  Pair pair(GetParam());
  Buffer out(100'000, 1);
  Buffer in(100'000, 2);
  const std::array<std::size_t, 7> sizes{1, 0, 4096, 4097, 70'000, 5, 20'000};
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    ASSERT_EQ(exs_send(pair.left, out.data() + at, size, 0, pair.left_q, 0, out.mh), 0);
    at += size;
  }
  at = 0;
  for (const std::size_t size : sizes) {
    ASSERT_EQ(exs_recv(pair.right, in.data() + at, in.size() - at, 0, kBlock, 0, in.mh),
              static_cast<ssize_t>(size));
    at += size;
  }
  EXPECT_EQ(std::memcmp(in.data(), out.data(), at), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_EQ(next_event(pair.left_q).error, 0);
}

TEST_P(Packet, AMessageLongerThanItsReceiveIsCutAndSaysSo) {
  for (const std::size_t size : {100UL, 50'000UL}) {
    Pair pair(GetParam());
    Buffer out(size, 1);
    Buffer in(size, 2);
    ASSERT_EQ(exs_send(pair.left, out.data(), size, 0, pair.left_q, 0, out.mh), 0);
    ASSERT_EQ(exs_send(pair.left, out.data(), 10, 0, pair.left_q, 0, out.mh), 0);
    exs_iovec_t piece{in.data(), 60, in.mh};
    exs_msghdr_t message{&piece, 1, 0};
    ASSERT_EQ(exs_recvmsg(pair.right, &message, 0, pair.right_q, 0), 0);
    const exs_event_t cut = next_event(pair.right_q);
    EXPECT_EQ(cut.type, EXS_EVT_RECVMSG);
    EXPECT_EQ(cut.error, EMSGSIZE);
    EXPECT_EQ(cut.u.xfermsg.length, 60U);
    EXPECT_EQ(cut.u.xfermsg.flags, MSG_TRUNC);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), 60), 0);
    ASSERT_EQ(exs_recv(pair.right, in.data(), 60, 0, kBlock, 0, in.mh), 10);
    EXPECT_EQ(next_event(pair.left_q).error, 0);
    EXPECT_EQ(next_event(pair.left_q).error, 0);
  }
}

TEST_P(Packet, PiecesAreGatheredAndScattered) {
  for (const std::size_t size : {90UL, 120'000UL}) {
    Pair pair(GetParam());
    Buffer out(size, 1);
    Buffer in(size, 2);
    std::vector<exs_iovec_t> from;
    std::vector<exs_iovec_t> to;
    const std::size_t third = size / 3;
    const std::size_t half = size / 2;
    for (std::size_t i = 0; i < 3; ++i) from.push_back({out.data() + i * third, third, out.mh});
    for (std::size_t i = 0; i < 2; ++i) to.push_back({in.data() + i * half, half, in.mh});
    const exs_msghdr_t send{from.data(), 3, 0};
    exs_msghdr_t receive{to.data(), 2, 0};
    ASSERT_EQ(exs_recvmsg(pair.right, &receive, 0, pair.right_q, tag(5)), 0);
    ASSERT_EQ(exs_sendmsg(pair.left, &send, 0, pair.left_q, tag(6)), 0);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(got.type, EXS_EVT_RECVMSG);
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(got.u.xfermsg.length, size);
    const exs_event_t sent = next_event(pair.left_q);
    EXPECT_EQ(sent.type, EXS_EVT_SENDMSG);
    EXPECT_EQ(sent.ahandle, tag(6));
    EXPECT_EQ(in.bytes, out.bytes);
  }
}

TEST_P(Packet, AReceiveIsTakenBack) {
  Pair pair(GetParam());
  Buffer in(64, 1);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 64, 0, pair.right_q, tag(1), in.mh), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 64, 0, pair.right_q, tag(2), in.mh), 0);
  EXPECT_EQ(exs_mderegister(in.mh), -1);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(exs_qdelete(pair.right_q), -1);
  EXPECT_EQ(errno, EBUSY);
  ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_AHANDLE, tag(1)), 0);
  const exs_event_t gone = next_event(pair.right_q);
  EXPECT_EQ(gone.ahandle, tag(1));
  EXPECT_EQ(gone.error, ECANCELED);
  ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
  EXPECT_EQ(next_event(pair.right_q).ahandle, tag(2));
}

INSTANTIATE_TEST_SUITE_P(Every, Packet,
                         testing::Values(kRdma, Way{SOCK_SEQPACKET, EXS_PROVIDER_TCP, AF_INET}),
                         [](const auto& one) { return name_of(one.param); });

TEST(PacketRdma, ALargeMessageIsPlacedWithoutACopy) {
  Pair pair(kRdma);
  Buffer out(1U << 20U, 1);
  Buffer in(1U << 20U, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, 0, out.mh), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), 0, kBlock, 0, in.mh), 1 << 20);
  EXPECT_EQ(next_event(pair.left_q).error, 0);
  EXPECT_EQ(in.bytes, out.bytes);
  EXPECT_EQ(stats_of(pair.left).copies, 0U);
  EXPECT_EQ(stats_of(pair.right).copies, 0U);
  EXPECT_EQ(stats_of(pair.left).direct_sent, 1U << 20U);
  EXPECT_EQ(stats_of(pair.right).direct_received, 1U << 20U);
}

TEST(PacketRdma, APersistentSendIsReadAnewByEachReceive) {
  Pair pair(kRdma);
  Buffer out(64, 1);
  Buffer in(64, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), 64, EXS_PERSISTENT, pair.left_q, tag(9), out.mh), 0);
  for (int i = 0; i < 10; ++i) {
    out.data()[0] = static_cast<std::uint8_t>(i);
    ASSERT_EQ(exs_recv(pair.right, in.data(), 64, 0, kBlock, 0, in.mh), 64);
    EXPECT_EQ(in.data()[0], i);
  }
  EXPECT_EQ(stats_of(pair.right).persistent_read, 10U);
  exs_event_t event{};
  const timeval now{0, 0};
  EXPECT_EQ(exs_qdequeue(pair.left_q, &event, 1, &now), 0);
  ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_AHANDLE, tag(9)), 0);
  const exs_event_t end = next_event(pair.left_q);
  EXPECT_EQ(end.ahandle, tag(9));
  EXPECT_EQ(end.error, ECANCELED);
}

TEST(PacketRdma, ALaterMessageReplacesAPersistentOne) {
  Pair pair(kRdma);
  Buffer out(64, 1);
  Buffer in(64, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), 64, EXS_PERSISTENT, pair.left_q, tag(1), out.mh), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 64, 0, kBlock, 0, in.mh), 64);
  ASSERT_EQ(exs_send(pair.left, out.data(), 10, 0, pair.left_q, tag(2), out.mh), 0);
  EXPECT_EQ(next_event(pair.left_q).ahandle, tag(2));
  // Its receive finds the later message, once that is here.
  ssize_t got = 64;
  while (got == 64) got = exs_recv(pair.right, in.data(), 64, 0, kBlock, 0, in.mh);
  EXPECT_EQ(got, 10);
  const exs_event_t end = next_event(pair.left_q);
  EXPECT_EQ(end.ahandle, tag(1));
  EXPECT_EQ(end.error, 0);
}

TEST(PacketRdma, ASendThatNobodyHasReceivedIsTakenBack) {
  Pair pair(kRdma);
  Buffer out(100'000, 1);
  Buffer in(100'000, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), 100'000, 0, pair.left_q, tag(1), out.mh), 0);
  ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_AHANDLE, tag(1)), 0);
  const exs_event_t end = next_event(pair.left_q);
  EXPECT_EQ(end.error, ECANCELED);
  ASSERT_EQ(exs_send(pair.left, out.data(), 20, 0, kBlock, 0, out.mh), 20);
  EXPECT_EQ(exs_recv(pair.right, in.data(), 100, 0, kBlock, 0, in.mh), 20);
}

// As many buffers to send from as messages may be under way: they come back in time.
TEST(PacketRdma, FewCreditsLastForManyMessages) {
  Pair pair(kRdma, {{EXS_F_SETCREDITS, 8}});
  Buffer out(2000, 1);
  Buffer in(2000, 2);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(exs_send(pair.left, out.data(), 2000, 0, pair.left_q, tag(i), out.mh), 0);
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(exs_recv(pair.right, in.data(), 2000, 0, kBlock, 0, in.mh), 2000);
    ASSERT_EQ(next_event(pair.left_q).ahandle, tag(i));
  }
  EXPECT_GT(stats_of(pair.left).credit_stalls + stats_of(pair.left).ring_stalls, 0U);
}

TEST(PacketRdma, AReceiveOfNothingTakesALargeMessage) {
  Pair pair(kRdma);
  Buffer out(100'000, 1);
  char nothing = 0;
  for (const bool early : {true, false}) {
    if (early) {
      ASSERT_EQ(
          exs_recv(pair.right, &nothing, 0, 0, pair.right_q, tag(1), EXS_MHANDLE_UNREGISTERED), 0);
    }
    ASSERT_EQ(exs_send(pair.left, out.data(), 100'000, 0, pair.left_q, tag(2), out.mh), 0);
    if (!early) {
      exs_pollfd_t ready{pair.right, EXS_POLLIN, 0};
      ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
      ASSERT_EQ(
          exs_recv(pair.right, &nothing, 0, 0, pair.right_q, tag(1), EXS_MHANDLE_UNREGISTERED), 0);
    }
    const exs_event_t cut = next_event(pair.right_q);
    EXPECT_EQ(cut.error, EMSGSIZE);
    EXPECT_EQ(exs_evt_length(&cut), 0U);
    EXPECT_EQ(next_event(pair.left_q).error, 0);
  }
}

TEST(PacketRdma, OneSidedWorkReachesNamedMemory) {
  Pair pair(kRdma);
  Buffer there(4096, 1);
  Buffer here(4096, 2);
  exs_mname_t name{};
  ASSERT_EQ(exs_mexport(pair.right, there.mh, there.data() + 1024, 2048,
                        EXS_MEXPORT_READ | EXS_MEXPORT_WRITE | EXS_MEXPORT_ATOMIC, &name),
            0);
  EXPECT_EQ(exs_mderegister(there.mh), -1);
  EXPECT_EQ(errno, EBUSY);
  const exs_rhandle_t remote = exs_mimport(pair.left, &name);
  ASSERT_GE(remote, 0);
  ASSERT_EQ(exs_write(pair.left, here.data(), 100, remote, 10, kBlock, 0, here.mh), 100);
  ASSERT_EQ(exs_read(pair.left, here.data() + 200, 100, remote, 10, kBlock, 0, here.mh), 100);
  EXPECT_EQ(std::memcmp(here.data() + 200, here.data(), 100), 0);
  EXPECT_EQ(std::memcmp(there.data() + 1034, here.data(), 100), 0);
  std::uint64_t value = 40;
  std::memcpy(there.data() + 1024, &value, sizeof value);
  std::uint64_t before = 0;
  ASSERT_EQ(exs_fetch_add(pair.left, remote, 0, 2, &before, pair.left_q, tag(3)), 0);
  const exs_event_t added = next_event(pair.left_q);
  EXPECT_EQ(added.type, EXS_EVT_FETCHADD);
  EXPECT_EQ(added.u.value, 40U);
  EXPECT_EQ(before, 40U);
  ASSERT_EQ(exs_cmp_swap(pair.left, remote, 0, 42, 7, &before, kBlock, 0), 0);
  EXPECT_EQ(before, 42U);
  std::memcpy(&value, there.data() + 1024, sizeof value);
  EXPECT_EQ(value, 7U);
  EXPECT_EQ(exs_write(pair.left, here.data(), 100, remote, 2000, kBlock, 0, here.mh), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(exs_fetch_add(pair.left, remote, 4, 1, &before, kBlock, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(exs_munimport(pair.left, remote), 0);
  EXPECT_EQ(exs_read(pair.left, here.data(), 8, remote, 0, kBlock, 0, here.mh), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(exs_munexport(pair.right, &name), 0);
}

TEST(PacketRdma, ReadOnlyMemoryMayBeSentAndExportedForReading) {
  Pair pair(kRdma);
  Buffer here(8192, 2);
  constexpr std::size_t kSize = 256U << 10U;
  void* constants = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(constants, MAP_FAILED);
  const exs_mhandle_t mh = exs_mregister(constants, kSize, 0);
  ASSERT_EQ(exs_send(pair.right, constants, 8192, 0, pair.right_q, 0, mh), 0);
  ASSERT_EQ(exs_recv(pair.left, here.data(), 8192, 0, kBlock, 0, here.mh), 8192);
  EXPECT_EQ(next_event(pair.right_q).error, 0);
  exs_mname_t name{};
  EXPECT_EQ(exs_mexport(pair.right, mh, constants, kSize, EXS_MEXPORT_WRITE, &name), -1);
  EXPECT_EQ(errno, EFAULT);
  ASSERT_EQ(exs_mexport(pair.right, mh, constants, kSize, EXS_MEXPORT_READ, &name), 0);
  const exs_rhandle_t remote = exs_mimport(pair.left, &name);
  here.data()[99] = 1;
  ASSERT_EQ(exs_read(pair.left, here.data(), 100, remote, 0, kBlock, 0, here.mh), 100);
  EXPECT_EQ(here.data()[99], 0);
  EXPECT_EQ(exs_munexport(pair.right, &name), 0);
  EXPECT_EQ(exs_mderegister(mh), 0);
  munmap(constants, kSize);
}

// The rest of a registration of which a part may only be read.
TEST(PacketRdma, AMessageIsFetchedBesideMemoryThatMayOnlyBeRead) {
  constexpr std::size_t kPage = 4096;
  Pair pair(kPacket);
  Buffer out(4 * kPage, 1);
  void* const at =
      mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  auto* const memory = static_cast<std::uint8_t*>(at);
  ASSERT_EQ(mprotect(memory, kPage, PROT_READ), 0);
  const exs_mhandle_t mh = exs_mregister(memory, 8 * kPage, 0);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(exs_recv(pair.right, memory + 2 * kPage, out.size(), 0, pair.right_q, tag(i), mh), 0);
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, kBlock, 0, out.mh),
              static_cast<ssize_t>(out.size()));
    EXPECT_EQ(next_event(pair.right_q).error, 0);
    EXPECT_EQ(std::memcmp(memory + 2 * kPage, out.data(), out.size()), 0);
  }
  EXPECT_EQ(exs_mderegister(mh), 0);
  EXPECT_EQ(munmap(at, 8 * kPage), 0);
}

TEST(PacketRdma, NamesThatAreTakenBackAreOfNoUse) {
  Pair pair(kRdma);
  Buffer there(4096, 1);
  Buffer here(4096, 2);
  exs_mname_t name{};
  ASSERT_EQ(exs_mexport(pair.right, there.mh, there.data(), 4096, EXS_MEXPORT_READ, &name), 0);
  const exs_rhandle_t remote = exs_mimport(pair.left, &name);
  ASSERT_EQ(exs_munexport(pair.right, &name), 0);
  EXPECT_EQ(exs_read(pair.left, here.data(), 100, remote, 0, kBlock, 0, here.mh), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace weft::exs_test
