// Calls on a number with a lane that receive.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cassert>
#include <cerrno>
#include <climits>

#include "os/clock.h"
#include "sockets/grant/grant_reader.h"
#include "sockets/granted/lane_calls.h"
#include "sockets/granted/lane_memory.h"
#include "sockets/granted/lane_parts.h"
#include "sockets/granted/tcp_counts.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted {
namespace {

// A writer that does not run for so long in the middle of a take-back leaves its reader with
// EAGAIN.
constexpr int kOnTheirWayMs = 5;

struct Incoming {
  Lane& lane;
  int fd;
  const iovec* parts;
  std::size_t count;
  std::uint64_t done;  // octets of the call that have come before
  int flags;
  const AsAsked* as_asked;
  bool waits;
  int error = 0;
  int told_error = 0;  // the kernel tells an error once
};

std::int64_t ask_kernel(Incoming& in, bool now) {
  const bool must_not_wait = now && in.waits;
  if (!must_not_wait && in.done == 0) return told((*in.as_asked)(), in.error);
  const int flags = in.flags | (must_not_wait ? MSG_DONTWAIT : 0);
  if (in.done == 0) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(in.parts);
    message.msg_iovlen = in.count;
    return told(real().recvmsg(in.fd, &message, flags), in.error);
  }
  const ssize_t got = with_rest(in.parts, in.count, in.done, [&in, flags](msghdr& message) {
    return real().recvmsg(in.fd, &message, flags);
  });
  return told(got, in.error);
}

std::int64_t receive_kernel(Incoming& in, bool now) {
  if (const int late = in.lane.news.take_error(); late != 0) {
    in.error = in.told_error = late;
    return kGrantError;
  }
  // Before the question: an edge that comes behind it counts.
  const bool named = in.lane.reading.take_kernels_edge();
  const std::int64_t got = ask_kernel(in, now);
  if (named && got != kGrantWouldBlock) in.lane.reading.note_kernels_edge();
  if (got == kGrantError) in.told_error = in.error;
  return got;
}

// A reader that will ask the kernel before it sleeps, or that asks again and again, need not ask
// now.
bool may_leave_out(Incoming& in, const LaneMemory& m) {
  if ((m.load(GrantWord::kTake) & kTaken) != 0) return false;
  // A wait of the kernel's that named the number is believed.
  const bool polls = in.lane.reading.polls() && !in.lane.number->asks.load();
  if (!in.waits && !polls) return false;
  return in.lane.reading.leaves_out();
}

// The writer has taken octets back from the ring, and this side has not got all of them from TCP.
bool on_their_way(const GrantMemory& m) {
  if ((m.load(GrantWord::kTake) & kTaken) == 0) return false;
  const std::uint64_t length = m.load(GrantWord::kTakenTo) - m.load(GrantWord::kTakenFrom);
  const std::uint64_t read = m.load(GrantWord::kTcpRead) - m.load(GrantWord::kTakenAt);
  return length <= kRingBytes && read < length;
}

// ... and TCP has some of them now.
bool await_those_on_their_way(int fd, const GrantMemory& m) {
  if (!on_their_way(m)) return false;
  pollfd one{fd, POLLIN, 0};
  return real().poll(&one, 1, kOnTheirWayMs) > 0;
}

// A read of a program that does not wait, and that has been told of octets in the ring: their
// writer is just sending them by TCP instead. It gets them, not EAGAIN.
std::int64_t receive_told(Incoming& in, const LaneMemory& m) {
  const std::int64_t got = receive_kernel(in, true);
  const bool told = in.lane.reading.is_named();
  if (got != kGrantWouldBlock || in.waits || !told || !await_those_on_their_way(in.fd, m)) {
    return got;
  }
  return receive_kernel(in, true);
}

// Calls that nobody saw may have read: the kernel's count is right. Else the writer waits for ever
// for TCP to run empty. The order of the steps: a reader that has got octets and not counted them
// yet is seen in kInKernel, or its count makes the swap fail.
void count_unseen_reads(int fd, GrantMemory m) {
  const std::uint64_t counted = m.load(GrantWord::kTcpRead);
  std::uint64_t read = 0;
  if (!octets_read(fd, read) || read <= counted) return;
  if (m.load(GrantWord::kInKernel) != 0) return;
  static_cast<void>(m.swap(GrantWord::kTcpRead, counted, read));
}

// Whether a read that waits is to offer the ring.
bool offers(const Lane& lane, int fd) {
  if (!lane.in.joined() || lane.rings.on_one_core()) return false;
  const InVain& waits = lane.reading.waits();
  const bool worth_it = waits.worth_it();
  if (worth_it && waits.often()) count_unseen_reads(fd, lane.rings.in());
  return worth_it;
}

bool look(Incoming& in, const LaneMemory& m) {
  return spin(in.lane.reading.look(), [&] {
    const std::uint64_t take = m.load(GrantWord::kTake);
    return (take & kTaken) == 0 && m.load(GrantWord::kWritten) != take >> 1U;
  });
}

std::int64_t run(Incoming& in, GrantReader& call, LaneMemory& m) {
  int naps = 0;
  for (;;) {
    std::int64_t answer = 0;
    switch (call.step(m)) {
      case GrantNeed::kStep: continue;
      case GrantNeed::kDone: return call.result();
      case GrantNeed::kReceiveNow:
        in.error = EAGAIN;
        answer = may_leave_out(in, m) ? kGrantWouldBlock : receive_told(in, m);
        break;
      case GrantNeed::kReceive: answer = receive_kernel(in, false); break;
      case GrantNeed::kSpin: answer = look(in, m) ? 1 : 0; break;
      case GrantNeed::kCountReceived: {
        std::uint64_t read = 0;
        answer = octets_read(in.fd, read) ? static_cast<std::int64_t>(read) : INT64_MAX;
        break;
      }
      case GrantNeed::kOtherReader:
        os::nap(1'000'000);
        answer = ++naps < 100 ? 1 : 0;
        break;
      default: return kGrantError;  // a reader asks for nothing else
    }
    call.answer(answer);
  }
}

// Notes what this thread did before it read, and opens or closes the window as that says.
void note_read(Lane& lane, std::int64_t got, std::uint64_t asked, bool waits) {
  switch (lane.reading.note_read(this_thread(), got, asked, waits)) {
    case ReadingHabits::Window::kStays: return;
    case ReadingHabits::Window::kCloses: return close_window(lane);
    case ReadingHabits::Window::kOpens:
      if (!lane.in.joined()) return;
      open_window(lane);
  }
}

constexpr int kKnownFlags = MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;

}  // namespace

std::uint64_t await_taken_back(const Lane& lane, int fd) {
  int bytes = 0;
  if (!await_those_on_their_way(fd, lane.rings.in()) || real().ioctl(fd, FIONREAD, &bytes) != 0) {
    return 0;
  }
  return static_cast<std::uint64_t>(bytes);
}

ssize_t receive(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                AsAsked as_asked) {
  const std::uint64_t bytes = bytes_of(parts, count);
  const bool peeks = (flags & MSG_PEEK) != 0;
  if (bytes == 0 || (flags & ~kKnownFlags) != 0 || (peeks && (flags & MSG_WAITALL) != 0)) {
    // Such a call is as good as one that is not seen. The writer takes back what lies in the ring.
    lane.in.on(JoinEvent::kForbidden);
    lane.rings.in().store(GrantWord::kWindow, kWindowNever);
    return as_asked();
  }
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !lane.nonblocking.load();
  std::uint64_t done = 0;
  for (;;) {
    LaneMemory m(lane.rings.in(), parts, count, done);
    const bool offered = waits && offers(lane, fd);
    Incoming in{lane, fd, parts, count, done, flags, &as_asked, waits};
    GrantReader call(bytes - done, {.waits = waits,
                                    .grants = offered,
                                    .keeps = lane.reading.keeps_window(),
                                    .peeks = peeks,
                                    .looks = !waits || offered});
    const std::int64_t got = run(in, call, m);
    note_read(lane, got, bytes - done, waits);
    if (waits) lane.reading.note_wait(offered, call.granted(), call.by_ring());
    if (got > 0) done += static_cast<std::uint64_t>(got);
    assert(done <= bytes);
    if (in.told_error != 0 && done > 0) lane.news.keep_error(in.told_error);
    if (got <= 0 || (flags & MSG_WAITALL) == 0 || done == bytes) {
      if (got == 0 || got == kGrantError) {
        lane.news.note_end();
        lane.out.on(JoinEvent::kForbidden);  // it hears of no more room
      }
      if (done > 0 || got == 0) return static_cast<ssize_t>(done);
      errno = in.error;
      return -1;
    }
  }
}

}  // namespace weft::sockets::granted
