// Calls that are not data: arguments, queues, polling, time limits, settings, the end.
#include <poll.h>
#include <sys/mman.h>

#include <csignal>
#include <thread>

#include "../support/quiet_port.h"
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

TEST(Calls, ASocketThatDoesNotBlockSaysAgain) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    char byte = 0;
    ASSERT_EQ(exs_fcntl(pair.right, F_SETFL, O_NONBLOCK), 0);
    EXPECT_EQ(exs_fcntl(pair.right, F_GETFL, 0), O_RDWR | O_NONBLOCK);
    EXPECT_ERRNO(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), EAGAIN);
    EXPECT_ERRNO(exs_recv(pair.left, &byte, 1, MSG_DONTWAIT, kBlock, 0, kPlain), EAGAIN);
    // Operations with a queue are taken up to a limit, and each of them ends.
    int taken = 0;
    while (exs_recv(pair.right, &byte, 1, 0, pair.right_q, 0, kPlain) == 0) ++taken;
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_GT(taken, 100);
    ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
    for (; taken > 0; --taken) ASSERT_EQ(next_event(pair.right_q).error, ECANCELED);
  }
}

TEST(Calls, ATimeLimitTellsOfAWaitThatIsTooLong) {
  for (const Way& way : {kStream, kPacket, kTcp}) {
    Pair pair(way);
    exs_timeout_t limit{};
    limit.tv.tv_usec = 5000;
    limit.flags = EXS_TIMEOUT_ONCE;
    limit.qhandle = pair.right_q;
    limit.ahandle = tag(11);
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    char byte = 0;
    ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(12), kPlain), 0);
    const exs_event_t late = next_event(pair.right_q);
    EXPECT_EQ(late.type, EXS_EVT_RECVTIMEOUT);
    EXPECT_EQ(late.error, ETIMEDOUT);
    EXPECT_EQ(late.ahandle, tag(11));
    // The operation goes on.
    ASSERT_EQ(exs_send(pair.left, "y", 1, 0, pair.left_q, 0, kPlain), 0);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(got.ahandle, tag(12));
    EXPECT_EQ(got.error, 0);
    EXPECT_EQ(byte, 'y');
    // A call that blocks ends.
    limit.flags = 0;
    limit.qhandle = EXS_QHANDLE_INVALID;
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    EXPECT_ERRNO(exs_recv(pair.right, &byte, 1, 0, kBlock, 0, kPlain), ETIMEDOUT);
  }
}

exs_timeout_t time_limit(long microseconds, exs_qhandle_t q, exs_ahandle_t ah) {
  exs_timeout_t out{};
  out.tv.tv_sec = microseconds / 1'000'000;
  out.tv.tv_usec = microseconds % 1'000'000;
  out.flags = EXS_TIMEOUT_ONCE;
  out.qhandle = q;
  out.ahandle = ah;
  return out;
}

// The progress thread has nothing to do before, so that it sleeps without a time limit of its own.
TEST(Calls, ATimeLimitWakesAProgressThreadThatSleeps) {
  Pair pair(kStream);
  const int fd = exs_qfd(pair.right_q);
  char byte = 0;
  for (int i = 0; i < 20; ++i) {
    const exs_timeout_t limit = time_limit(3000, pair.right_q, tag(11));
    ASSERT_EQ(exs_setsockopt(pair.right, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &limit, sizeof limit),
              0);
    ASSERT_EQ(exs_recv(pair.right, &byte, 1, 0, pair.right_q, tag(12), kPlain), 0);
    pollfd one{fd, POLLIN, 0};
    ASSERT_EQ(poll(&one, 1, kWaitSeconds * 1000), 1) << "round " << i;
    ASSERT_EQ(next_event(pair.right_q).type, EXS_EVT_RECVTIMEOUT);
    ASSERT_EQ(exs_cancel(pair.right, EXS_CAF_FILDES, 0), 0);
    ASSERT_EQ(next_event(pair.right_q).error, ECANCELED);
  }
}

TEST(Calls, AShortTimeLimitDoesNotWaitForALongOne) {
  Buffer out(100'000, 1);
  Pair pair(kPacket);
  char byte = 0;
  const exs_timeout_t longer = time_limit(3'600'000'000, pair.left_q, tag(1));
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &longer, sizeof longer),
            0);
  ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, pair.left_q, tag(2), out.mh), 0);
  const exs_timeout_t shorter = time_limit(3000, pair.left_q, tag(3));
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_RECV_TIMEOUT, &shorter, sizeof shorter),
            0);
  // The look that the option itself asked for is over before the receive is posted.
  const timeval later{0, 20'000};
  exs_event_t none;
  ASSERT_EQ(exs_qdequeue(pair.left_q, &none, 1, &later), 0);
  ASSERT_EQ(exs_recv(pair.left, &byte, 1, 0, pair.left_q, tag(4), kPlain), 0);
  const exs_event_t late = next_event(pair.left_q);
  EXPECT_EQ(late.type, EXS_EVT_RECVTIMEOUT);
  EXPECT_EQ(late.ahandle, tag(3));
}

TEST(Calls, AClosedSocketLetsGoOfTheQueueOfItsTimeLimits) {
  const exs_qhandle_t q = exs_qcreate(4);
  {
    Pair pair(kStream);
    const exs_timeout_t limit = time_limit(3'600'000'000, q, 0);
    ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit),
              0);
    EXPECT_ERRNO(exs_qdelete(q), EBUSY);
  }
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(Calls, SendsThatNobodyReceivesHaveTheirTimeLimit) {
  Pair pair(kPacket);
  Buffer out(100'000, 1);
  exs_timeout_t limit{};
  limit.tv.tv_usec = 5000;
  limit.qhandle = pair.left_q;
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit), 0);
  exs_timeout_t back{};
  socklen_t length = sizeof back;
  ASSERT_EQ(exs_getsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &back, &length), 0);
  EXPECT_EQ(back.tv.tv_usec, 5000);
  ASSERT_EQ(exs_send(pair.left, out.data(), 100'000, 0, pair.left_q, tag(1), out.mh), 0);
  EXPECT_EQ(next_event(pair.left_q).type, EXS_EVT_SENDTIMEOUT);
  EXPECT_EQ(next_event(pair.left_q).type, EXS_EVT_SENDTIMEOUT);
  limit.tv.tv_usec = 0;
  ASSERT_EQ(exs_setsockopt(pair.left, SOL_SOCKET, SO_ASYNC_SEND_TIMEOUT, &limit, sizeof limit), 0);
  ASSERT_EQ(exs_cancel(pair.left, EXS_CAF_FILDES, 0), 0);
  exs_event_t end = next_event(pair.left_q);
  while (end.type == EXS_EVT_SENDTIMEOUT) end = next_event(pair.left_q);
  EXPECT_EQ(end.error, ECANCELED);
}

TEST(Calls, SettingsBelongBeforeTheConnection) {
  const int fd = new_socket(kStream);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETIMMEDIATE, 1000), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETIMMEDIATE, 0), 1000);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETCREDITS, 8), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETCREDITS, 0), 8);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_SETRING, 8192), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETRING, 0), 8192);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETIMMEDIATE, 2049), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETRING, 3999), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETCREDITS, 7), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETPROVIDER, 9), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, 424242, 0), EINVAL);
  int type = 0;
  socklen_t length = sizeof type;
  EXPECT_EQ(exs_getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length), 0);
  EXPECT_EQ(type, SOCK_STREAM);
  int ordered = 0;
  EXPECT_EQ(exs_setsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &ordered, sizeof ordered), 0);
  EXPECT_EQ(exs_getsockopt(fd, SOL_SOCKET, SO_ASYNC_RECV_ORDERED, &ordered, &length), 0);
  EXPECT_EQ(ordered, 1);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  Pair pair(kStream);
  EXPECT_ERRNO(exs_fcntl(pair.left, EXS_F_SETRING, 8192), EISCONN);
  EXPECT_EQ(exs_fcntl(pair.left, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_RDMA);
}

TEST(Calls, TheSmallestSettingsWork) {
  for (const Way& way : {kStream, kPacket}) {
    Pair pair(way, {{EXS_F_SETIMMEDIATE, 0}, {EXS_F_SETRING, 4096}, {EXS_F_SETCREDITS, 8}});
    Buffer out(100'000, 1);
    Buffer in(100'000, 2);
    ASSERT_EQ(exs_recv(pair.right, in.data(), in.size(), MSG_WAITALL, pair.right_q, 0, in.mh), 0);
    ASSERT_EQ(exs_send(pair.left, out.data(), out.size(), 0, kBlock, 0, out.mh), 100'000);
    const exs_event_t got = next_event(pair.right_q);
    EXPECT_EQ(exs_evt_length(&got), 100'000U);
    EXPECT_EQ(in.bytes, out.bytes);
  }
}

TEST(Calls, NamesAreThoseOfTheConnection) {
  for (const Way& way : {kStream, kTcp}) {
    const Listener listener(way);
    const int fd = new_socket(way);
    Endpoint to = loopback(AF_INET, listener.port);
    Endpoint name;
    name.length = sizeof name.storage;
    EXPECT_ERRNO(exs_getpeername(fd, name.get(), &name.length), ENOTCONN);
    ASSERT_EQ(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), 0) << std::strerror(errno);
    Endpoint peer;
    Endpoint local;
    exs_acceptaddr_t addresses[] = {{peer.get(), sizeof peer.storage},
                                    {local.get(), sizeof local.storage}};
    const int accepted = exs_accept(listener.fd, addresses, 2, 0, kBlock, 0);
    ASSERT_GE(accepted, 0);
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&peer.storage)->sin_port), port_of(fd));
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&local.storage)->sin_port), listener.port);
    ASSERT_EQ(exs_getpeername(fd, name.get(), &name.length), 0);
    EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(&name.storage)->sin_port), listener.port);
    close_now(fd);
    close_now(accepted);
  }
}

TEST(Calls, NobodyListens) {
  const weft::test::QuietPort port;
  for (const int provider : {EXS_PROVIDER_RDMA, EXS_PROVIDER_TCP, EXS_PROVIDER_AUTO}) {
    const int fd = new_socket({SOCK_STREAM, provider, AF_INET});
    Endpoint to = loopback(AF_INET, port.number());
    EXPECT_ERRNO(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), ECONNREFUSED);
    EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
  }
}

TEST(Calls, APeerWithAnotherTypeIsRefused) {
  const Listener listener(kStream);
  const int fd = new_socket(kPacket);
  Endpoint to = loopback(AF_INET, listener.port);
  EXPECT_ERRNO(exs_connect(fd, to.get(), to.length, 0, kBlock, 0), EPROTOTYPE);
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
}

TEST(Calls, WithoutEXSAtTheOtherEndThereIsTCP) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(bind(listener, any.get(), any.length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, any.get(), &any.length), 0);
  const exs_qhandle_t q = exs_qcreate(4);
  const int fd = new_socket({SOCK_STREAM, EXS_PROVIDER_AUTO, AF_INET});
  ASSERT_EQ(exs_connect(fd, any.get(), any.length, 0, q, 0), 0);
  // The attempt by RDMA is a connection as well: a server of TCP closes what it cannot understand.
  std::thread server([listener] {
    const int first = accept(listener, nullptr, nullptr);
    close(first);
    const int second = accept(listener, nullptr, nullptr);
    EXPECT_EQ(write(second, "hello", 5), 5);
    close(second);
  });
  EXPECT_EQ(next_event(q).error, 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_TCP);
  char text[5];
  EXPECT_EQ(exs_recv(fd, text, 5, MSG_WAITALL, kBlock, 0, kPlain), 5);
  EXPECT_EQ(std::memcmp(text, "hello", 5), 0);
  server.join();
  close_now(fd);
  close(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

TEST(Calls, APlainSocketStaysPlainTCP) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(bind(listener, any.get(), any.length), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, any.get(), &any.length), 0);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const exs_qhandle_t q = exs_qcreate(4);
  ASSERT_EQ(exs_connect(fd, any.get(), any.length, 0, q, tag(1)), 0) << std::strerror(errno);
  const int other = accept(listener, nullptr, nullptr);
  EXPECT_EQ(next_event(q).type, EXS_EVT_CONNECT);
  ASSERT_EQ(exs_send(fd, "abc", 3, 0, q, tag(2), kPlain), 0);
  char text[8] = {};
  ASSERT_EQ(read(other, text, sizeof text), 3);
  EXPECT_STREQ(text, "abc");
  EXPECT_EQ(next_event(q).ahandle, tag(2));
  ASSERT_EQ(write(other, "xy", 2), 2);
  ASSERT_EQ(exs_recv(fd, text, 2, MSG_WAITALL, kBlock, 0, kPlain), 2);
  // Its owner closes it; the number names another socket, which is a new one to the library.
  close(fd);
  const int again = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_ERRNO(exs_send(again, "abc", 3, 0, kBlock, 0, kPlain), ENOTCONN);
  close(again);
  close(other);
  close(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

// A listener over RDMA takes peers that have only TCP at a second port.
TEST(Calls, AListenerHasAPortForPeersWithOnlyTCP) {
  const Listener listener(kStream, {{EXS_F_SETTCPPORT, EXS_TCPPORT_ANY}});
  const int port = exs_fcntl(listener.fd, EXS_F_GETTCPPORT, 0);
  ASSERT_GT(port, 0);
  EXPECT_NE(port, listener.port);
  const int plain = socket(AF_INET, SOCK_STREAM, 0);
  Endpoint to = loopback(AF_INET, static_cast<std::uint16_t>(port));
  ASSERT_EQ(connect(plain, to.get(), to.length), 0);
  exs_pollfd_t ready{listener.fd, EXS_POLLIN, 0};
  ASSERT_EQ(exs_poll(&ready, 1, 0, kBlock, 0), 1);
  const int accepted = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(accepted, 0);
  EXPECT_EQ(exs_fcntl(accepted, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_TCP);
  char text[3];
  ASSERT_EQ(write(plain, "tcp", 3), 3);
  ASSERT_EQ(exs_recv(accepted, text, 3, MSG_WAITALL, kBlock, 0, kPlain), 3);
  EXPECT_EQ(std::memcmp(text, "tcp", 3), 0);
  // RDMA comes by the other port, before and after.
  const int fd = new_socket(kStream);
  Endpoint rdma = loopback(AF_INET, listener.port);
  ASSERT_EQ(exs_connect(fd, rdma.get(), rdma.length, 0, kBlock, 0), 0);
  const int second = exs_accept(listener.fd, nullptr, 0, 0, kBlock, 0);
  ASSERT_GE(second, 0);
  EXPECT_EQ(exs_fcntl(second, EXS_F_GETPROVIDER, 0), EXS_PROVIDER_RDMA);
  close_now(accepted);
  close_now(second);
  close_now(fd);
  close(plain);
}

TEST(Calls, ThePortForTCPIsChecked) {
  const int fd = new_socket(kTcp);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETTCPPORT, 65536), EINVAL);
  EXPECT_ERRNO(exs_fcntl(fd, EXS_F_SETTCPPORT, -2), EINVAL);
  // Over TCP a listener has one port.
  Endpoint any = loopback(AF_INET);
  ASSERT_EQ(exs_fcntl(fd, EXS_F_SETTCPPORT, 1), 0);
  ASSERT_EQ(exs_bind(fd, any.get(), any.length), 0);
  EXPECT_ERRNO(exs_listen(fd, 1), EOPNOTSUPP);
  ASSERT_EQ(exs_fcntl(fd, EXS_F_SETTCPPORT, EXS_TCPPORT_ANY), 0);
  ASSERT_EQ(exs_listen(fd, 1), 0);
  EXPECT_EQ(exs_fcntl(fd, EXS_F_GETTCPPORT, 0), port_of(fd));
  EXPECT_EQ(exs_close(fd, kBlock, 0), 0);
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

TEST(Calls, AcceptIsPostedOnAPlainListenerThatBlocks) {
  ASSERT_EQ(exs_init(EXS_VERSION), 0);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  Endpoint at = loopback(AF_INET);
  ASSERT_EQ(::bind(listener, at.get(), at.length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, at.get(), &at.length), 0);
  const exs_qhandle_t q = exs_qcreate(4);
  ASSERT_EQ(exs_accept(listener, nullptr, 0, 0, q, tag(1)), 0);  // returns before anybody connects
  const int client = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::connect(client, at.get(), at.length), 0);
  const exs_event_t event = next_event(q);
  ASSERT_EQ(event.type, EXS_EVT_ACCEPT);
  EXPECT_EQ(event.error, 0);
  ASSERT_EQ(::send(client, "x", 1, 0), 1);
  char got = 0;
  EXPECT_EQ(exs_recv(event.u.accept.fd, &got, 1, 0, kBlock, 0, kPlain), 1);
  EXPECT_EQ(got, 'x');
  close_now(event.u.accept.fd);
  ::close(client);
  close_now(listener);
  EXPECT_EQ(exs_qdelete(q), 0);
}

}  // namespace
}  // namespace weft::exs_test
