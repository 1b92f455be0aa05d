// Calls that are not data: arguments, queues, polling, files, the end.
#include <poll.h>
#include <sys/mman.h>

#include <csignal>
#include <thread>

#include "exs_support.h"

namespace weft::exs_test {
namespace {

TEST(Calls, InitTakesTheVersionsThatThereAre) {
  EXPECT_ERRNO(exs_init(0), EINVAL);
  EXPECT_ERRNO(exs_init(2), EINVAL);
  EXPECT_EQ(exs_init(EXS_VERSION), 0);
  EXPECT_EQ(exs_init(EXS_VERSION1), 0);
}

TEST(Calls, SocketsOfOtherKindsAreRefused) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  EXPECT_ERRNO(exs_socket(AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
  EXPECT_ERRNO(exs_socket(AF_INET, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
  EXPECT_ERRNO(exs_socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
  EXPECT_ERRNO(exs_send(-1, "x", 1, 0, kBlock, 0, kPlain), EBADF);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_ERRNO(exs_recv(ends[0], ends, 1, 0, kBlock, 0, kPlain), ENOTSOCK);
  close(ends[0]);
  close(ends[1]);
}

TEST(Calls, OrderOfCallsMatters) {
  const int fd = new_socket(kStream);
  char byte = 0;
  Endpoint six = loopback(AF_INET6);
  EXPECT_ERRNO(exs_send(fd, &byte, 1, 0, kBlock, 0, kPlain), ENOTCONN);
  EXPECT_ERRNO(exs_recv(fd, &byte, 1, 0, kBlock, 0, kPlain), ENOTCONN);
  EXPECT_ERRNO(exs_accept(fd, nullptr, 0, 0, kBlock, 0), EINVAL);
  EXPECT_ERRNO(exs_shutdown(fd, EXS_SHUT_WR, kBlock, 0), ENOTCONN);
  EXPECT_ERRNO(exs_bind(fd, six.get(), six.length), EAFNOSUPPORT);
  EXPECT_ERRNO(exs_bind(fd, nullptr, 16), EFAULT);
  Endpoint four = loopback(AF_INET);
  EXPECT_ERRNO(exs_bind(fd, four.get(), 3), EINVAL);
  EXPECT_ERRNO(exs_connect(fd, four.get(), four.length, 0, 12345, 0), EINVAL);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  EXPECT_ERRNO(exs_close(fd, kBlock, 0), EBADF);
}

TEST(Calls, TransfersCheckTheirArguments) {
  Pair pair(kStream);
  Buffer buffer(100);
  const exs_mhandle_t mh = buffer.mh;
  EXPECT_ERRNO(exs_send(pair.left, buffer.data() + 50, 51, 0, kBlock, 0, mh), EFAULT);
  EXPECT_ERRNO(exs_send(pair.left, buffer.data() - 1, 10, 0, kBlock, 0, mh), EFAULT);
  EXPECT_ERRNO(exs_send(pair.left, buffer.data(), 10, 0, kBlock, 0, mh + 1), EINVAL);
  EXPECT_ERRNO(exs_send(pair.left, nullptr, 10, 0, kBlock, 0, kPlain), EFAULT);
  EXPECT_ERRNO(exs_send(pair.left, buffer.data(), 10, MSG_OOB, kBlock, 0, mh), EOPNOTSUPP);
  EXPECT_ERRNO(exs_recv(pair.left, buffer.data(), 10, MSG_PEEK, kBlock, 0, mh), EOPNOTSUPP);
  EXPECT_ERRNO(exs_send(pair.left, buffer.data(), 10, EXS_PERSISTENT, kBlock, 0, mh), EINVAL);
  EXPECT_ERRNO(exs_send(pair.left, buffer.data(), 10, 0, 999, 0, mh), EINVAL);
  EXPECT_ERRNO(exs_cancel(pair.left, 0, 0), EINVAL);
  std::vector<exs_iovec_t> many(EXS_IOV_MAX + 1, {buffer.data(), 1, mh});
  const exs_msghdr_t message{many.data(), EXS_IOV_MAX + 1, 0};
  EXPECT_ERRNO(exs_sendmsg(pair.left, &message, 0, kBlock, 0), EMSGSIZE);
  EXPECT_ERRNO(exs_sendmsg(pair.left, nullptr, 0, kBlock, 0), EFAULT);
  // Nothing has happened: the memory is free, and the connection works.
  EXPECT_EQ(exs_send(pair.left, buffer.data(), 100, 0, kBlock, 0, mh), 100);
  EXPECT_EQ(exs_recv(pair.right, buffer.data(), 100, MSG_WAITALL, kBlock, 0, mh), 100);
}

class Mapping {
 public:
  explicit Mapping(int rights)
      : at_(mmap(nullptr, kBytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() { munmap(at_, kBytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] void* at() const { return at_; }
  void allow(int rights) const { EXPECT_EQ(mprotect(at_, kBytes, rights), 0); }

  static constexpr std::size_t kBytes = std::size_t{1} << 16U;

 private:
  void* at_;
};

// Where a copy, or the peer's Write, would end the process.
TEST(Calls, MemoryThatCannotBeUsedIsEfault) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(name_of(way));
    Pair pair(way);
    const Mapping closed(PROT_NONE);
    const Mapping constant(PROT_READ);
    constexpr std::size_t kBytes = Mapping::kBytes;
    EXPECT_ERRNO(exs_send(pair.left, closed.at(), kBytes, 0, kBlock, 0, kPlain), EFAULT);
    EXPECT_ERRNO(exs_recv(pair.right, closed.at(), kBytes, 0, kBlock, 0, kPlain), EFAULT);
    EXPECT_ERRNO(exs_recv(pair.right, constant.at(), kBytes, 0, pair.right_q, 0, kPlain), EFAULT);
    exs_iovec_t pieces[] = {{constant.at(), 10, kPlain}, {closed.at(), 10, kPlain}};
    const exs_msghdr_t message{pieces, 2, 0};
    EXPECT_ERRNO(exs_sendmsg(pair.left, &message, 0, kBlock, 0), EFAULT);
    const exs_mhandle_t mh = exs_mregister(constant.at(), kBytes, 0);
    ASSERT_GE(mh, 0);
    EXPECT_ERRNO(exs_recv(pair.right, constant.at(), kBytes, 0, kBlock, 0, mh), EFAULT);
    EXPECT_EQ(exs_mderegister(mh), 0);
    // Nothing has happened: the connection works, and constants can be sent.
    std::vector<std::uint8_t> into(100);
    EXPECT_EQ(exs_send(pair.left, constant.at(), 100, 0, kBlock, 0, kPlain), 100);
    EXPECT_EQ(exs_recv(pair.right, into.data(), 100, MSG_WAITALL, kBlock, 0, kPlain), 100);
  }
}

// A check is remembered for ten milliseconds, not for ever.
TEST(Calls, MemoryThatCannotBeUsedAnyMoreIsEfault) {
  Pair pair(kStream);
  const Mapping memory(PROT_READ | PROT_WRITE);
  EXPECT_EQ(exs_send(pair.left, memory.at(), 100, 0, kBlock, 0, kPlain), 100);
  EXPECT_EQ(exs_recv(pair.right, memory.at(), 100, MSG_WAITALL, kBlock, 0, kPlain), 100);
  memory.allow(PROT_READ);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_ERRNO(exs_recv(pair.right, memory.at(), 100, 0, kBlock, 0, kPlain), EFAULT);
  memory.allow(PROT_NONE);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_ERRNO(exs_send(pair.left, memory.at(), 100, 0, kBlock, 0, kPlain), EFAULT);
}

TEST(Calls, MemoryHandlesAreChecked) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  char bytes[16];
  EXPECT_ERRNO(exs_mregister(bytes, 0, 0), EINVAL);
  EXPECT_ERRNO(exs_mregister(nullptr, 10, 0), EFAULT);
  EXPECT_ERRNO(exs_mregister(bytes, 16, 0x80), EINVAL);
  EXPECT_ERRNO(exs_mregister(bytes, SIZE_MAX, 0), EFAULT);
  EXPECT_ERRNO(exs_mderegister(EXS_MHANDLE_INVALID), EINVAL);
  const exs_mhandle_t mh = exs_mregister(bytes, 16, EXS_MRF_SHARED);
  ASSERT_GE(mh, 0);
  EXPECT_EQ(exs_mderegister(mh), 0);
  EXPECT_ERRNO(exs_mderegister(mh), EINVAL);
}

TEST(Calls, QueuesHaveAttributes) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  EXPECT_ERRNO(exs_qcreate(0), EINVAL);
  const exs_qhandle_t q = exs_qcreate(10);
  int value = 0;
  EXPECT_EQ(exs_qstatus(q, EXS_QATTR_DEPTH, &value), 0);
  EXPECT_EQ(value, 10);
  value = 500;
  EXPECT_EQ(exs_qmodify(q, EXS_QATTR_DEPTH, &value), 0);
  value = 77;
  EXPECT_ERRNO(exs_qmodify(q, EXS_QATTR_WAIT, &value), EINVAL);
  value = EXS_WAIT_NOTIFY;
  EXPECT_EQ(exs_qmodify(q, EXS_QATTR_WAIT, &value), 0);
  EXPECT_EQ(exs_qstatus(q, EXS_QATTR_EVENTS, &value), 0);
  EXPECT_EQ(value, 0);
  EXPECT_ERRNO(exs_qmodify(q, EXS_QATTR_EVENTS, &value), EINVAL);
  exs_event_t event;
  const timeval now{0, 0};
  EXPECT_EQ(exs_qdequeue(q, &event, 1, &now), 0);
  EXPECT_ERRNO(exs_qdequeue(q, &event, 0, &now), EINVAL);
  EXPECT_ERRNO(exs_qdequeue(q, &event, EXS_EVTVEC_MAX + 1, &now), EINVAL);
  EXPECT_ERRNO(exs_qdequeue(q, nullptr, 1, &now), EFAULT);
  const timeval bad{0, 1000000};
  EXPECT_ERRNO(exs_qdequeue(q, &event, 1, &bad), EINVAL);
  const timeval soon{0, 2000};
  EXPECT_EQ(exs_qdequeue(q, &event, 1, &soon), 0);
  EXPECT_EQ(exs_qdelete(q), 0);
  EXPECT_ERRNO(exs_qdelete(q), EINVAL);
  EXPECT_STREQ(exs_strevent(EXS_EVT_SENDFILE), "EXS_EVT_SENDFILE");
}

TEST(Calls, ANegativeCountWaitsForThatMany) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    Buffer out(64, 1);
    Buffer in(64 * 8, 2);
    for (std::size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(exs_recv(pair.right, in.data() + i * 64, 64, MSG_WAITALL, pair.right_q,
                         tag(static_cast<std::intptr_t>(i)), in.mh),
                0);
    }
    std::thread sender([&] {
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(exs_send(pair.left, out.data(), 64, 0, kBlock, 0, out.mh), 64);
      }
    });
    std::vector<exs_event_t> events(16);
    const timeval limit{kWaitSeconds, 0};
    EXPECT_EQ(exs_qdequeue(pair.right_q, events.data(), -8, &limit), 8);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(events[static_cast<std::size_t>(i)].ahandle, tag(i));
    sender.join();
    // A time limit returns what there is.
    const timeval soon{0, 1000};
    EXPECT_EQ(exs_qdequeue(pair.right_q, events.data(), -2, &soon), 0);
  }
}

TEST(Calls, AQueueHasADescriptorToPoll) {
  for (const Way& way : {kStream, kTcp}) {
    Pair pair(way);
    const int fd = exs_qfd(pair.right_q);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(exs_qfd(pair.right_q), fd);
    pollfd one{fd, POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 0);
    Buffer in(10, 1);
    ASSERT_EQ(exs_recv(pair.right, in.data(), 10, 0, pair.right_q, 0, in.mh), 0);
    ASSERT_EQ(exs_send(pair.left, "0123456789", 10, 0, pair.left_q, 0, kPlain), 0);
    // Nobody calls the library meanwhile.
    EXPECT_EQ(poll(&one, 1, kWaitSeconds * 1000), 1);
    exs_event_t event;
    EXPECT_EQ(exs_qdequeue(pair.right_q, &event, 1, nullptr), 1);
    EXPECT_EQ(poll(&one, 1, 0), 0);
  }
}

volatile std::sig_atomic_t signals_seen = 0;
volatile std::sig_atomic_t signal_value = 0;

TEST(Calls, AQueueRaisesASignal) {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    signal_value = info->si_value.sival_int;
    signals_seen = signals_seen + 1;
  };
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  Pair pair(kStream);
  exs_signal_t wanted{};
  wanted.signo = SIGUSR1;
  wanted.enable = EXS_SIG_ENABLE;
  wanted.value.sival_int = 42;
  ASSERT_EQ(exs_qmodify(pair.left_q, EXS_QATTR_SIGNAL, &wanted), 0);
  ASSERT_EQ(exs_send(pair.left, "x", 1, 0, pair.left_q, 0, kPlain), 0);
  next_event(pair.left_q);
  // The signal follows the event; who takes the event at once may be quicker.
  for (int i = 0; i < kWaitSeconds * 1000 && signals_seen == 0; ++i) poll(nullptr, 0, 1);
  EXPECT_EQ(signals_seen, 1);
  EXPECT_EQ(signal_value, 42);
  wanted.enable = EXS_SIG_DISABLE;
  ASSERT_EQ(exs_qmodify(pair.left_q, EXS_QATTR_SIGNAL, &wanted), 0);
  wanted.enable = 9;
  EXPECT_ERRNO(exs_qmodify(pair.left_q, EXS_QATTR_SIGNAL, &wanted), EINVAL);
}

TEST(Calls, PollTellsOfAnyOfManySockets) {
  Pair one(kStream);
  Pair two(kTcp);
  exs_pollfd_t both[] = {{one.right, EXS_POLLIN, 0}, {two.right, EXS_POLLIN | EXS_POLLOUT, 0}};
  ASSERT_EQ(exs_poll(both, 2, 0, kBlock, 0), 1);
  EXPECT_EQ(both[0].revents, 0);
  EXPECT_EQ(both[1].revents, EXS_POLLOUT);
  both[1].events = EXS_POLLIN;
  ASSERT_EQ(exs_poll(both, 2, 0, one.right_q, tag(4)), 0);
  ASSERT_EQ(exs_send(one.left, "x", 1, 0, one.left_q, 0, kPlain), 0);
  const exs_event_t ready = next_event(one.right_q);
  EXPECT_EQ(ready.type, EXS_EVT_POLL);
  EXPECT_EQ(ready.ahandle, tag(4));
  EXPECT_EQ(ready.u.poll.ready, 1);
  EXPECT_EQ(both[0].revents, EXS_POLLIN);
  EXPECT_ERRNO(exs_poll(both, 0, 0, kBlock, 0), EINVAL);
  EXPECT_ERRNO(exs_poll(nullptr, 1, 0, kBlock, 0), EFAULT);
}

TEST(Calls, FilesAreSentBetweenHeaderAndTrailer) {
  const int file = memfd_create("file", 0);
  ASSERT_GE(file, 0);
  std::vector<std::uint8_t> content(700'000);
  for (std::size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<std::uint8_t>(i * 7 / 3);
  ASSERT_EQ(write(file, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  for (const Way& way : {kStream, kPacket, kTcp, Way{SOCK_SEQPACKET, EXS_PROVIDER_TCP, AF_INET}}) {
    Pair pair(way);
    std::string header = "header";
    std::string trailer = "trailer";
    exs_xferfile_t vec[3] = {};
    vec[0].tag = EXS_IOVEC;
    vec[0].u.iovec = {header.data(), header.size(), kPlain};
    vec[1].tag = EXS_FDVEC;
    vec[1].u.fdvec = {file, 1000, 600'000};
    vec[2].tag = EXS_IOVEC;
    vec[2].u.iovec = {trailer.data(), trailer.size(), kPlain};
    Buffer in(600'013, 1);
    ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, pair.right_q, 0, in.mh), 0);
    ASSERT_EQ(exs_sendfile(pair.left, vec, 3, 0, pair.left_q, tag(3)), 0);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(exs_evt_length(&got), in.size());
    const exs_event_t sent = next_event(pair.left_q);
    EXPECT_EQ(sent.type, EXS_EVT_SENDFILE);
    EXPECT_EQ(sent.error, 0);
    EXPECT_EQ(sent.u.xferfile.length, in.size());
    EXPECT_EQ(std::memcmp(in.data(), "header", 6), 0);
    EXPECT_EQ(std::memcmp(in.data() + 6, content.data() + 1000, 600'000), 0);
    EXPECT_EQ(std::memcmp(in.data() + 600'006, "trailer", 7), 0);
    vec[1].u.fdvec.length = 1'000'000;
    EXPECT_ERRNO(exs_sendfile(pair.left, vec, 3, 0, kBlock, 0), EINVAL);
    vec[1].u.fdvec.fd = -1;
    EXPECT_ERRNO(exs_sendfile(pair.left, vec, 3, 0, kBlock, 0), EBADF);
    vec[1].tag = 17;
    EXPECT_ERRNO(exs_sendfile(pair.left, vec, 3, 0, kBlock, 0), EINVAL);
  }
  close(file);
}

TEST(Calls, AfterShutdownTheOtherDirectionGoesOn) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    char byte = 0;
    ASSERT_EQ(exs_shutdown(pair.left, EXS_SHUT_WR, kBlock, 0), 0);
    EXPECT_ERRNO(exs_send(pair.left, "x", 1, 0, kBlock, 0, kPlain), EPIPE);
    EXPECT_ERRNO(exs_shutdown(pair.left, SHUT_RD, kBlock, 0), EOPNOTSUPP);
    EXPECT_EQ(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), 0);
    EXPECT_EQ(exs_send(pair.right, "z", 1, 0, kBlock, 0, kPlain), 1);
    EXPECT_EQ(exs_recv(pair.left, &byte, 1, 0, kBlock, 0, kPlain), 1);
    EXPECT_EQ(byte, 'z');
    // The peer closes; this end hears that nobody is left to send to.
    ASSERT_EQ(exs_close(pair.right, kBlock, 0), 0);
    pair.right = -1;
    EXPECT_EQ(exs_recv(pair.left, &byte, 1, 0, kBlock, 0, kPlain), 0);
    EXPECT_EQ(exs_close(pair.left, kBlock, 0), 0);
    pair.left = -1;
  }
}

TEST(Calls, ClosingTakesBackWhatWaits) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    Buffer in(100'000, 1);
    ASSERT_EQ(exs_recv(pair.left, in.data(), in.size(), 0, pair.left_q, tag(1), in.mh), 0);
    ASSERT_EQ(exs_close(pair.left, pair.left_q, tag(2)), 0);
    const exs_event_t first = next_event(pair.left_q);
    EXPECT_EQ(first.ahandle, tag(1));
    EXPECT_EQ(first.error, ECANCELED);
    const exs_event_t second = next_event(pair.left_q);
    EXPECT_EQ(second.type, EXS_EVT_CLOSE);
    EXPECT_EQ(second.error, 0);
    pair.left = -1;
  }
}

}  // namespace
}  // namespace weft::exs_test
