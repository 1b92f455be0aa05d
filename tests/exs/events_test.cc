// What each event says: its type, the handle and the socket of its operation, the length.
#include <sys/mman.h>

#include "exs_support.h"

namespace weft::exs_test {
namespace {

// The next event, seen by the header's accessors only.
exs_event_t expect_event(exs_qhandle_t q, int type, std::intptr_t handle, int fd) {
  const exs_event_t event = next_event(q);
  EXPECT_EQ(exs_evt_type(&event), type) << exs_strevent(type);
  EXPECT_EQ(exs_evt_error(&event), 0) << std::strerror(exs_evt_error(&event));
  EXPECT_EQ(exs_evt_ahandle(&event), tag(handle));
  EXPECT_EQ(exs_evt_fd(&event), fd);
  return event;
}

class Events : public testing::TestWithParam<Way> {};

TEST_P(Events, ConnectionsTellBothAddresses) {
  const Way way = GetParam();
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const exs_qhandle_t q = exs_qcreate(4);
  const Listener listener(way);
  const int fd = exs_socket(way.domain, way.type, 0);
  ASSERT_EQ(exs_fcntl(fd, EXS_F_SETPROVIDER, way.provider), 0);
  Endpoint peer;
  Endpoint local;
  exs_acceptaddr_t addresses[] = {{peer.get(), sizeof peer.storage},
                                  {local.get(), sizeof local.storage}};
  ASSERT_EQ(exs_accept(listener.fd, addresses, 2, 0, q, tag(11)), 0);
  Endpoint to = loopback(way.domain, listener.port);
  const exs_qhandle_t own = exs_qcreate(4);
  ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, own, tag(12)), 0);
  expect_event(own, EXS_EVT_CONNECT, 12, fd);
  const exs_event_t accepted = expect_event(q, EXS_EVT_ACCEPT, 11, listener.fd);
  const int other = exs_evt_accepted(&accepted);
  ASSERT_GE(other, 0);
  EXPECT_EQ(accepted.u.accept.addrlen[0], to.length);
  EXPECT_EQ(accepted.u.accept.addrlen[1], to.length);
  EXPECT_EQ(peer.storage.ss_family, way.domain);
  Endpoint name;
  name.length = sizeof name.storage;
  ASSERT_EQ(exs_getsockname(fd, name.get(), &name.length), 0);
  EXPECT_EQ(std::memcmp(name.get(), peer.get(), to.length), 0);
  EXPECT_EQ(std::memcmp(to.get(), local.get(), to.length), 0);
  EXPECT_EQ(exs_close(fd, own, tag(13)), 0);
  expect_event(own, EXS_EVT_CLOSE, 13, fd);
  close_now(other);
  EXPECT_EQ(exs_qdelete(q), 0);
  EXPECT_EQ(exs_qdelete(own), 0);
}

TEST_P(Events, TransfersTellTheirLengths) {
  Pair pair(GetParam());
  Buffer out(60, 1);
  Buffer in(60, 2);
  ASSERT_EQ(exs_recv(pair.right, in.data(), 10, MSG_WAITALL, pair.right_q, tag(1), in.mh), 0);
  exs_iovec_t pieces[] = {{in.data() + 10, 10, in.mh}, {in.data() + 20, 10, kPlain}};
  exs_msghdr_t vector{pieces, 2, 0};
  ASSERT_EQ(exs_recvmsg(pair.right, &vector, MSG_WAITALL, pair.right_q, tag(2)), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data() + 30, 30, MSG_WAITALL, pair.right_q, tag(3), in.mh), 0);

  ASSERT_EQ(exs_send(pair.left, out.data(), 10, 0, pair.left_q, tag(4), out.mh), 0);
  exs_iovec_t sent[] = {{out.data() + 10, 15, out.mh}, {out.data() + 25, 5, kPlain}};
  const exs_msghdr_t gathered{sent, 2, 0};
  ASSERT_EQ(exs_sendmsg(pair.left, &gathered, 0, pair.left_q, tag(5)), 0);
  const int file = memfd_create("events", 0);
  ASSERT_EQ(pwrite(file, out.data() + 30, 30, 0), 30);
  exs_xferfile_t parts[1] = {};
  parts[0].tag = EXS_FDVEC;
  parts[0].u.fdvec = {file, 0, 30};
  ASSERT_EQ(exs_sendfile(pair.left, parts, 1, 0, pair.left_q, tag(6)), 0);

  const exs_event_t one = expect_event(pair.right_q, EXS_EVT_RECV, 1, pair.right);
  EXPECT_EQ(one.u.xfer.length, 10U);
  const exs_event_t two = expect_event(pair.right_q, EXS_EVT_RECVMSG, 2, pair.right);
  EXPECT_EQ(two.u.xfermsg.length, 20U);
  EXPECT_EQ(two.u.xfermsg.flags, 0);
  const exs_event_t three = expect_event(pair.right_q, EXS_EVT_RECV, 3, pair.right);
  EXPECT_EQ(three.u.xfer.length, 30U);
  const exs_event_t four = expect_event(pair.left_q, EXS_EVT_SEND, 4, pair.left);
  EXPECT_EQ(four.u.xfer.length, 10U);
  const exs_event_t five = expect_event(pair.left_q, EXS_EVT_SENDMSG, 5, pair.left);
  EXPECT_EQ(five.u.xfermsg.length, 20U);
  const exs_event_t six = expect_event(pair.left_q, EXS_EVT_SENDFILE, 6, pair.left);
  EXPECT_EQ(six.u.xferfile.length, 30U);
  EXPECT_EQ(in.bytes, out.bytes);
  close(file);
}

TEST_P(Events, TheEndHasItsEventAfterTheDataBeforeIt) {
  Pair pair(GetParam());
  Buffer out(100'000, 1);
  Buffer in(100'000, 2);
  ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(1), out.mh), 0);
  ASSERT_EQ(exs_shutdown(pair.left, EXS_SHUT_WR, pair.left_q, tag(2)), 0);
  ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, kBlock, 0, in.mh), 100'000);
  EXPECT_EQ(exs_recv(pair.right, in.data(), in.size(), 0, kBlock, 0, in.mh), 0);
  expect_event(pair.left_q, EXS_EVT_SEND, 1, pair.left);
  expect_event(pair.left_q, EXS_EVT_SHUTDOWN, 2, pair.left);
  EXPECT_ERRNO(exs_send(pair.left, out.data(), 1, 0, kBlock, 0, out.mh), EPIPE);
}

INSTANTIATE_TEST_SUITE_P(Every, Events,
                         testing::Values(kStream, kPacket, kTcp,
                                         Way{SOCK_SEQPACKET, EXS_PROVIDER_TCP, AF_INET},
                                         Way{SOCK_STREAM, EXS_PROVIDER_RDMA, AF_INET6},
                                         Way{SOCK_STREAM, EXS_PROVIDER_TCP, AF_INET6}),
                         [](const auto& one) { return name_of(one.param); });

TEST(EventsRdma, OneSidedWorkHasEventsOfItsOwn) {
  Pair pair(kStream);
  Buffer there(64, 1);
  Buffer here(64, 2);
  exs_mname_t name{};
  ASSERT_EQ(exs_mexport(pair.right, there.mh, there.data(), 64,
                        EXS_MEXPORT_READ | EXS_MEXPORT_WRITE | EXS_MEXPORT_ATOMIC, &name),
            0);
  const exs_rhandle_t remote = exs_mimport(pair.left, &name);
  ASSERT_GE(remote, 0);
  std::uint64_t value = 5;
  std::memcpy(here.data(), &value, sizeof value);
  const exs_qhandle_t q = pair.left_q;
  ASSERT_EQ(exs_write(pair.left, here.data(), 16, remote, 0, q, tag(1), here.mh), 0);
  const exs_event_t written = expect_event(q, EXS_EVT_WRITE, 1, pair.left);
  EXPECT_EQ(exs_evt_length(&written), 16U);
  ASSERT_EQ(exs_read(pair.left, here.data() + 32, 24, remote, 0, q, tag(2), here.mh), 0);
  const exs_event_t read = expect_event(q, EXS_EVT_READ, 2, pair.left);
  EXPECT_EQ(exs_evt_length(&read), 24U);
  EXPECT_EQ(std::memcmp(here.data() + 32, there.data(), 24), 0);
  ASSERT_EQ(exs_fetch_add(pair.left, remote, 0, 3, nullptr, q, tag(3)), 0);
  EXPECT_EQ(expect_event(q, EXS_EVT_FETCHADD, 3, pair.left).u.value, 5U);
  ASSERT_EQ(exs_cmp_swap(pair.left, remote, 0, 8, 9, nullptr, q, tag(4)), 0);
  EXPECT_EQ(expect_event(q, EXS_EVT_CMPSWAP, 4, pair.left).u.value, 8U);
  std::memcpy(&value, there.data(), sizeof value);
  EXPECT_EQ(value, 9U);
  EXPECT_EQ(exs_munexport(pair.right, &name), 0);
}

// A name says how much memory it is for, and may lie. Work for one name never goes to another.
TEST(EventsRdma, WorkFarIntoANameIsWorkForThatName) {
  Pair pair(kStream);
  Buffer there(64, 1);
  const std::vector<std::uint8_t> before = there.bytes;
  exs_mname_t name{};
  ASSERT_EQ(exs_mexport(pair.right, there.mh, there.data(), 64,
                        EXS_MEXPORT_READ | EXS_MEXPORT_WRITE, &name),
            0);
  exs_mname_t large = name;
  std::memset(large.bytes + 8, 0, 8);
  std::memset(large.bytes + 16, 0x7f, 8);
  const exs_rhandle_t first = exs_mimport(pair.left, &large);
  const exs_rhandle_t second = exs_mimport(pair.left, &name);
  ASSERT_EQ(first, 0);
  ASSERT_EQ(second, 1);
  constexpr std::uint64_t kFar = 1ULL << 48U;
  // The peer ends the connection over it.
  static_cast<void>(exs_write(pair.left, "Written!", 8, first, kFar, kBlock, 0, kPlain));
  char text[8];
  EXPECT_EQ(exs_read(pair.left, text, sizeof text, second, 0, kBlock, 0, kPlain), -1);
  EXPECT_EQ(there.bytes, before);
  exs_munexport(pair.right, &name);
}

TEST(EventsRdma, CountersSayWhatWasDirect) {
  Pair pair(kStream);
  Buffer out(1U << 20U, 1);
  Buffer in(1U << 20U, 2);
  ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, pair.right_q, 0, in.mh), 0);
  // The receive is offered before the send begins: a byte the other way tells.
  ASSERT_EQ(exs_send(pair.right, "x", 1, 0, kBlock, 0, kPlain), 1);
  char byte = 0;
  ASSERT_EQ(exs_recv(pair.left, &byte, 1, 0, kBlock, 0, kPlain), 1);
  ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, kBlock, 0, out.mh), 1 << 20);
  expect_event(pair.right_q, EXS_EVT_RECV, 0, pair.right);
  EXPECT_EQ(in.bytes, out.bytes);
  exs_stats_t sender{};
  sender.size = sizeof sender;
  ASSERT_EQ(exs_stats(pair.left, &sender), 0);
  EXPECT_EQ(sender.direct_sent, out.size());
  EXPECT_EQ(sender.indirect_sent, 0U);
  exs_stats_t receiver{};
  receiver.size = sizeof receiver;
  ASSERT_EQ(exs_stats(pair.right, &receiver), 0);
  EXPECT_EQ(receiver.direct_received, in.size());
  // Neither end has copied any of it: the one byte is all.
  EXPECT_LE(sender.copied_bytes, 2U);
  EXPECT_LE(receiver.copied_bytes, 2U);
  // A caller built with an earlier header has a smaller structure.
  exs_stats_t small{};
  small.size = offsetof(exs_stats_t, direct_sent);
  small.direct_sent = 77;
  ASSERT_EQ(exs_stats(pair.left, &small), 0);
  EXPECT_EQ(small.bytes_sent, out.size());
  EXPECT_EQ(small.direct_sent, 77U);
  EXPECT_ERRNO(exs_stats(pair.left, nullptr), EFAULT);
}

}  // namespace
}  // namespace weft::exs_test
