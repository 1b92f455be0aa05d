#include "sockets/granted/lane_calls.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <climits>
#include <ctime>
#include <optional>
#include <utility>

#include "os/clock.h"
#include "os/fork.h"
#include "os/signals_blocked.h"
#include "sockets/grant/grant_writer.h"
#include "sockets/granted/lane_memory.h"
#include "sockets/granted/lane_parts.h"
#include "sockets/granted/spiller.h"
#include "sockets/granted/tcp_counts.h"

namespace weft::sockets::granted {

namespace {

constexpr std::uint64_t kBulk = 16384;
constexpr int kOwedMs = 2000;
constexpr std::int64_t kOwedPauseNs = 1'000'000;

// The number is still that of the lane's socket: nobody closed it by a call that was not seen.
bool same_socket(const Lane& lane, int fd) {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 &&
         cookie == lane.connection.cookie;
}

// Sends positions [from, to) of the ring without waiting. The kernel tells an error of the
// connection once: the program hears of it by its next call.
std::int64_t send_ring(Lane& lane, int fd, std::uint64_t from, std::uint64_t to) {
  if (!same_socket(lane, fd)) return 0;
  std::uint8_t* ring = lane.rings.ring_out();
  const std::uint64_t bytes = to - from;
  if (bytes > kRingBytes) return 0;
  const std::uint64_t at = from & (kRingBytes - 1);
  const std::uint64_t first = std::min(bytes, kRingBytes - at);
  std::array<iovec, 2> parts{{{ring + at, first}, {ring, bytes - first}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  // Not by the C library: a thread that is cancelled must not end here, with the lock.
  const ssize_t sent = real().syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && !passing(errno) && errno != EPIPE) lane.news.keep_error(errno);
  return sent;
}

// Whether a call may begin to use the ring: the reader looks, TCP is empty, and nobody has sent
// anything that was not seen.
bool may_begin(const Lane& lane, int fd, const GrantMemory& m) {
  if (!lane.out.joined()) return false;
  if (m.load(GrantWord::kRing) != 0) return true;
  if (m.load(GrantWord::kWindow) != kWindowOpen || m.load(GrantWord::kAsleep) != 0) return false;
  if (m.load(GrantWord::kTcpRead) != m.load(GrantWord::kSent)) return false;
  if (lane.writing.is_banned(os::monotonic_ns)) return false;
  std::uint64_t taken = 0;
  return octets_taken(fd, taken) && taken == m.load(GrantWord::kSent) && same_socket(lane, fd);
}

bool window_is_open(const GrantMemory& m) {
  return m.load(GrantWord::kWindow) == kWindowOpen && m.load(GrantWord::kAsleep) == 0;
}

// Waits a little for TCP to run empty, since a call can only begin to use the ring then. Small
// sends do so beside a reader that runs, not to delay those that only have to wake it.
void wait_for_drain(Lane& lane, const GrantMemory& m, std::uint64_t bytes) {
  if (!lane.out.joined() || m.load(GrantWord::kRing) != 0) return;
  if (m.load(GrantWord::kWindow) == kWindowNever) return;
  if (bytes < kBulk && m.load(GrantWord::kAsleep) != 0) return;
  lane.writing.look_for_drain(window_is_open(m), [&m] {
    return m.load(GrantWord::kTcpRead) == m.load(GrantWord::kSent) && window_is_open(m);
  });
}

struct Outgoing {
  Lane& lane;
  int fd;
  const iovec* parts;
  std::size_t count;
  int flags;
  const AsAsked* as_asked;  // null: nothing to send but what lies in the ring
  bool waits;               // for room, by looking
  bool unlocks = false;     // before the kernel's call
  int error = 0;
  bool ended = false;  // the connection: what is owed to it will never be sent
};

bool look_for_room(Outgoing& out, const LaneMemory& m) {
  if (!out.waits) return false;
  return out.lane.writing.look_for_room([&m] {
    const std::uint64_t take = m.load(GrantWord::kTake);
    return (take & kTaken) != 0 || !window_is_open(m) ||
           m.load(GrantWord::kPosition) - (take >> 1U) < kRingBytes;
  }) && (m.load(GrantWord::kTake) & kTaken) == 0 &&
         window_is_open(m);
}

ssize_t send_kernel(const Outgoing& out, std::uint64_t done) {
  if (const int late = out.lane.news.take_error(); late != 0) {
    errno = late;
    return -1;
  }
  assert(out.as_asked != nullptr);
  if (done == 0) return (*out.as_asked)();
  const std::uint64_t all = bytes_of(out.parts, out.count);
  std::uint64_t sent = 0;
  for (;;) {
    std::uint64_t asked = 0;
    const ssize_t n =
        with_rest(out.parts, out.count, done + sent, [&out, &asked](const msghdr& message) {
          asked = bytes_of(message.msg_iov, message.msg_iovlen);
          return real().sendmsg(out.fd, &message, out.flags);
        });
    assert(n <= static_cast<ssize_t>(asked));
    if (n < 0) return sent > 0 ? static_cast<ssize_t>(sent) : -1;
    sent += static_cast<std::uint64_t>(n);
    if (static_cast<std::uint64_t>(n) < asked || done + sent == all) {
      return static_cast<ssize_t>(sent);
    }
  }
}

std::int64_t run(Outgoing& out, GrantWriter& call, LaneMemory& m, bool has_lock) {
  std::optional<os::SignalsBlocked> blocked;
  WritersLock& lock = out.lane.rings.lock();
  const std::uint32_t me = this_thread();
  for (;;) {
    std::int64_t answer = 0;
    switch (call.step(m)) {
      case GrantNeed::kStep: continue;
      case GrantNeed::kDone: return call.result();
      case GrantNeed::kLock:
        if (!has_lock) lock.lock(me);
        has_lock = false;
        break;
      case GrantNeed::kUnlock: lock.unlock(me); break;
      case GrantNeed::kBlockSignals: blocked.emplace(); break;
      case GrantNeed::kAllowSignals: blocked.reset(); break;
      case GrantNeed::kRoom: answer = look_for_room(out, m) ? 1 : 0; break;
      case GrantNeed::kSendRing:
        answer = send_ring(out.lane, out.fd, call.from(), call.to());
        out.ended = answer < 0 && !passing(errno);
        break;
      case GrantNeed::kSend:
        // This call is counted as on its way by TCP now: nobody begins to use the ring.
        if (std::exchange(out.unlocks, false)) lock.unlock(me);
        answer = told(send_kernel(out, call.done()), out.error);
        break;
      default: return kGrantError;  // a writer asks for nothing else
    }
    call.answer(answer);
  }
}

constexpr int kRingFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR;

// A call that only TCP can serve: what lies in the ring goes before it. A program that makes such a
// call for each answer, as sendfile(2), is faster without a ring.
std::int64_t transmit_by_tcp(Outgoing& out, std::uint64_t bytes) {
  WritersLock& lock = out.lane.rings.lock();
  const std::uint32_t me = this_thread();
  if (out.lane.rings.out().load(GrantWord::kRing) != 0) {
    out.lane.writing.ban_ring(os::monotonic_ns());
  }
  const bool interrupted = lock.held_by(me);
  if (!interrupted) lock.lock(me);
  out.unlocks = !interrupted;
  LaneMemory m(out.lane.rings.out(), out.parts, out.count);
  GrantWriter call(GrantCall::kSendInSignal, std::max<std::uint64_t>(bytes, 1), false);
  const std::int64_t result = run(out, call, m, false);
  if (out.unlocks) lock.unlock(me);
  return result;
}

// All that lies in the ring goes to TCP, as far as it has room. False: some is owed.
bool take_back_once(Lane& lane, int fd) {
  LaneMemory m(lane.rings.out(), nullptr, 0);
  Outgoing out{lane, fd, nullptr, 0, 0, nullptr, false};
  GrantWriter call(GrantCall::kSpill, 0, false);
  return run(out, call, m, false) != kGrantWouldBlock;
}

std::int64_t transmit_by_ring(Outgoing& out, std::uint64_t bytes) {
  LaneMemory m(out.lane.rings.out(), out.parts, out.count);
  if (out.lane.rings.on_one_core()) out.waits = false;
  if (out.waits) wait_for_drain(out.lane, m, bytes);
  const bool interrupted = out.lane.rings.lock().held_by(this_thread());
  GrantWriter call(interrupted ? GrantCall::kSendInSignal : GrantCall::kSend, bytes,
                   may_begin(out.lane, out.fd, m));
  const std::int64_t result = run(out, call, m, false);
  if (m.load(GrantWord::kRing) == 0) return result;
  // Another thread has left the number to the kernel meanwhile, perhaps before it could see this
  // ring: nobody else would take it back.
  if (!out.lane.out.joined() || !out.lane.live.load()) {
    take_back_once(out.lane, out.fd);
  } else if (!spiller::wake(spill)) {
    out.lane.out.on(JoinEvent::kForbidden);
    take_back_once(out.lane, out.fd);
  }
  return result;
}

// A call waits behind what was taken back from the ring, for room in TCP. False: errno.
bool wait_for_room(int fd) {
  timeval most{};
  socklen_t length = sizeof most;
  real().getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, &length);
  const std::int64_t limit_ms = most.tv_sec * 1000 + most.tv_usec / 1000;
  const bool ever = most.tv_sec == 0 && most.tv_usec == 0;
  pollfd one{fd, POLLOUT, 0};
  const int found =
      real().poll(&one, 1, ever ? -1 : static_cast<int>(std::min<std::int64_t>(limit_ms, INT_MAX)));
  if (found == 0) errno = EAGAIN;
  if (found > 0) os::nap(kOwedPauseNs);  // the system may be short of memory, and say room
  return found > 0;
}

}  // namespace

ssize_t transmit(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                 AsAsked as_asked) {
  const std::uint64_t bytes = bytes_of(parts, count);
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !lane.nonblocking.load();
  Outgoing out{lane, fd, parts, count, flags, &as_asked, waits};
  const bool by_ring = bytes > 0 && (flags & ~kRingFlags) == 0;
  for (;;) {
    const std::int64_t result =
        by_ring ? transmit_by_ring(out, bytes) : transmit_by_tcp(out, bytes);
    if (result >= 0) return result;
    if (out.ended && out.error == 0) return send_kernel(out, 0);  // it says how
    errno = out.error != 0 ? out.error : EAGAIN;
    const bool owes = result == kGrantWouldBlock && out.error == 0;
    if (!owes || !waits || !wait_for_room(fd)) return -1;
  }
}

bool may_send_by_ring(const Lane& lane, int fd) { return may_begin(lane, fd, lane.rings.out()); }

void take_back_all(Lane& lane, int fd) {
  assert(lane.rings.attached());
  lane.out.on(JoinEvent::kForbidden);
  const std::int64_t end = os::monotonic_ns() + std::int64_t{kOwedMs} * 1'000'000;
  WritersLock& lock = lane.rings.lock();
  if (lock.held_by(this_thread())) return;  // a handler of the thread that is at it
  while (!take_back_once(lane, fd) && same_socket(lane, fd) && os::monotonic_ns() < end) {
    pollfd one{fd, POLLOUT, 0};
    const int found = real().poll(&one, 1, kOwedMs);
    if (found < 0 && errno == EINTR) continue;  // a signal: they are owed still
    if (found <= 0 || (one.revents & (POLLERR | POLLHUP)) != 0) break;
  }
  // The spiller sends with the lock, and to this number no more.
  const WritersGuard guard(lock, this_thread());
  lane.fd = -1;
}

void spill(Lane& lane, std::int64_t now) {
  assert(lane.rings.attached());
  WritersLock& lock = lane.rings.lock();
  const std::uint32_t me = this_thread();
  if (!lock.try_lock(me)) return;
  const int fd = lane.fd.load();
  if (fd < 0 || !lane.live.load()) {
    lock.unlock(me);
    return;
  }
  LaneMemory m(lane.rings.out(), nullptr, 0);
  Outgoing out{lane, fd, nullptr, 0, 0, nullptr, false};
  GrantWriter call(GrantCall::kSpill, 0, false);
  // Else only what is owed is sent, which says nothing of the ring.
  const bool useless = m.load(GrantWord::kRing) != 0 && window_is_open(m);
  const bool owes = run(out, call, m, true) == kGrantWouldBlock;
  if (owes && (out.ended || !same_socket(lane, fd))) lane.writing.note_over();
  if (useless) lane.writing.ban_ring(now);
}

}  // namespace weft::sockets::granted
