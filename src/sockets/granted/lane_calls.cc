#include "sockets/granted/lane_calls.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>
#include <optional>
#include <utility>

#include "os/clock.h"
#include "os/fork.h"
#include "os/signals_blocked.h"
#include "sockets/grant/grant_reader.h"
#include "sockets/grant/grant_writer.h"
#include "sockets/granted/lane_memory.h"
#include "sockets/granted/spiller.h"
#include "sockets/granted/tcp_counts.h"

namespace weft::sockets::granted {

std::uint32_t this_thread() {
  // getpid() would be a system call. The one thread of a child of fork() has another id.
  thread_local std::uint32_t id = 0;
  thread_local std::uint32_t generation = 0;
  if (id == 0 || generation != os::fork_generation()) {
    id = static_cast<std::uint32_t>(syscall(SYS_gettid));
    generation = os::fork_generation();
  }
  return id;
}

namespace {

constexpr std::uint64_t kBulk = 16384;
// Where a blocking reader finds the ring in use and empty, it asks the kernel once in so many times
// before it goes on to sleep, where it asks anyway.
constexpr std::uint32_t kLeaveOut = 64;
// Something that was for nothing so often in a row, as a read that offers the ring, is done once in
// kLeaveOut times: both ends share a core, perhaps.
constexpr std::uint32_t kVain = 32;
constexpr std::int64_t kFirstPenNs = 10'000'000;
constexpr std::int64_t kLongestPenNs = 10'000'000'000;
constexpr std::int64_t kPensToForget = 100;
constexpr int kOwedMs = 2000;
// A writer that does not run for so long in the middle of a take-back leaves its reader with
// EAGAIN.
constexpr int kOnTheirWayMs = 5;

bool dead(std::uint32_t thread) {
  return syscall(SYS_tkill, static_cast<int>(thread), 0) != 0 && errno == ESRCH;
}

// The writers' lock of a lane. The one of a thread that has died with its process is taken over.
bool try_lock(Own& own, std::uint32_t me) {
  std::uint32_t holder = 0;
  return own.writer.compare_exchange_strong(holder, me);
}

void lock(Own& own, std::uint32_t me) {
  for (int i = 0; !try_lock(own, me); ++i) {
    if (i < 100) {
      cpu_pause();
      continue;
    }
    std::uint32_t holder = own.writer.load();
    if (holder != 0 && dead(holder) && own.writer.compare_exchange_strong(holder, me)) return;
    sched_yield();
  }
}

void unlock(Own& own) { own.writer.store(0); }

// The parts of a call behind its first `done` octets. How many parts.
std::size_t rest_of(const iovec* parts, std::size_t count, std::uint64_t done,
                    std::array<iovec, IOV_MAX>& out) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < count && n < out.size(); ++i) {
    if (done >= parts[i].iov_len) {
      done -= parts[i].iov_len;
      continue;
    }
    out.at(n++) = {static_cast<std::uint8_t*>(parts[i].iov_base) + done, parts[i].iov_len - done};
    done = 0;
  }
  return n;
}

// `call` with a message of what is behind the first `done` octets. Not inline: the list is long.
template <class Call>
__attribute__((noinline)) ssize_t with_rest(const iovec* parts, std::size_t count,
                                            std::uint64_t done, Call call) {
  std::array<iovec, IOV_MAX> rest;
  msghdr message{};
  message.msg_iov = rest.data();
  message.msg_iovlen = rest_of(parts, count, done, rest);
  return call(message);
}

// The number is still that of the lane's socket: nobody closed it by a call that was not seen.
bool same_socket(const Lane& lane, int fd) {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 &&
         cookie == lane.cookie;
}

// Whether what the kernel said is no end: a later call may get octets.
bool passing(int error) {
  return error == EAGAIN || error == EINTR || error == EFAULT || error == ENOMEM ||
         error == ENOBUFS || error == EINVAL;
}

// Sends positions [from, to) of the ring without waiting. The kernel tells an error of the
// connection once: the program hears of it by its next call.
std::int64_t send_ring(Lane& lane, int fd, std::uint64_t from, std::uint64_t to) {
  if (!same_socket(lane, fd)) return 0;
  std::uint8_t* ring = lane.segment.load()->rings.at(lane.end).data();
  const std::uint64_t bytes = to - from;
  if (bytes > kRingBytes) return 0;
  const std::uint64_t at = from & (kRingBytes - 1);
  const std::uint64_t first = std::min(bytes, kRingBytes - at);
  std::array<iovec, 2> parts{{{ring + at, first}, {ring, bytes - first}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  // Not by the C library: a thread that is cancelled must not end here, with the lock.
  const ssize_t sent = syscall(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && !passing(errno) && errno != EPIPE) lane.told.late_error = errno;
  return sent;
}

std::int64_t told(ssize_t result, int& error) {
  if (result >= 0) return result;
  error = errno;
  return passing(error) ? kGrantWouldBlock : kGrantError;
}

// Whether a call may begin to use the ring: the reader looks, TCP is empty, and nobody has sent
// anything that was not seen.
bool may_begin(Lane& lane, int fd, const GrantMemory& m) {
  if (!lane.joined_out.load()) return false;
  if (m.load(GrantWord::kRing) != 0) return true;
  if (m.load(GrantWord::kWindow) != kWindowOpen || m.load(GrantWord::kAsleep) != 0) return false;
  if (m.load(GrantWord::kTcpRead) != m.load(GrantWord::kSent)) return false;
  if (lane.ban_until.load() != 0 && os::monotonic_ns() < lane.ban_until.load()) return false;
  std::uint64_t taken = 0;
  return octets_taken(fd, taken) && taken == m.load(GrantWord::kSent) && same_socket(lane, fd);
}

bool window_is_open(const GrantMemory& m) {
  return m.load(GrantWord::kWindow) == kWindowOpen && m.load(GrantWord::kAsleep) == 0;
}

bool worth_it(std::uint32_t vain) { return vain < kVain || vain % kLeaveOut == 0; }

// A large send beside a reader that looks: it waits a little for TCP to run empty.
void wait_for_drain(Lane& lane, const GrantMemory& m) {
  if (!lane.joined_out.load() || m.load(GrantWord::kRing) != 0) return;
  if (m.load(GrantWord::kWindow) == kWindowNever) return;
  const std::uint32_t vain = lane.vain.drains.load(std::memory_order_relaxed);
  const bool drained =
      worth_it(vain) && spin(lane.drain, [&m] {
        return m.load(GrantWord::kTcpRead) == m.load(GrantWord::kSent) && window_is_open(m);
      });
  lane.vain.drains = drained ? 0 : vain + 1;
}

struct Outgoing {
  Lane& lane;
  int fd;
  const iovec* parts;
  std::size_t count;
  int flags;
  const AsAsked* as_asked;  // null: nothing to send but what lies in the ring
  bool waits;
  bool unlocks = false;  // before the kernel's call
  int error = 0;
  bool ended = false;  // the connection: what is owed to it will never be sent
};

bool look_for_room(Outgoing& out, const LaneMemory& m) {
  if (!out.waits) return false;
  return spin(out.lane.room,
              [&m] {
                const std::uint64_t take = m.load(GrantWord::kTake);
                return (take & kTaken) != 0 || !window_is_open(m) ||
                       m.load(GrantWord::kPosition) - (take >> 1U) < kRingBytes;
              }) &&
         (m.load(GrantWord::kTake) & kTaken) == 0 && window_is_open(m);
}

ssize_t send_kernel(const Outgoing& out, std::uint64_t done) {
  if (out.lane.told.late_error.load(std::memory_order_relaxed) != 0) {
    if (const int late = out.lane.told.late_error.exchange(0); late != 0) {
      errno = late;
      return -1;
    }
  }
  if (done == 0) return (*out.as_asked)();
  return with_rest(out.parts, out.count, done, [&out](const msghdr& message) {
    return real().sendmsg(out.fd, &message, out.flags);
  });
}

std::int64_t run(Outgoing& out, GrantWriter& call, LaneMemory& m, bool has_lock) {
  std::optional<os::SignalsBlocked> blocked;
  const std::uint32_t me = this_thread();
  for (;;) {
    std::int64_t answer = 0;
    switch (call.step(m)) {
      case GrantNeed::kStep: continue;
      case GrantNeed::kDone: return call.result();
      case GrantNeed::kLock:
        if (!has_lock) lock(out.lane.own[0], me);
        has_lock = false;
        break;
      case GrantNeed::kUnlock: unlock(out.lane.own[0]); break;
      case GrantNeed::kBlockSignals: blocked.emplace(); break;
      case GrantNeed::kAllowSignals: blocked.reset(); break;
      case GrantNeed::kRoom: answer = look_for_room(out, m) ? 1 : 0; break;
      case GrantNeed::kSendRing:
        answer = send_ring(out.lane, out.fd, call.from(), call.to());
        out.ended = answer < 0 && !passing(errno);
        break;
      case GrantNeed::kSend:
        // This call is counted as on its way by TCP now: nobody begins to use the ring.
        if (std::exchange(out.unlocks, false)) unlock(out.lane.own[0]);
        answer = told(send_kernel(out, call.done()), out.error);
        break;
      default: return kGrantError;  // a writer asks for nothing else
    }
    call.answer(answer);
  }
}

std::uint64_t bytes_of(const iovec* parts, std::size_t count) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

constexpr int kRingFlags = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE | MSG_EOR;

// The ring was of no use: it is left alone for a while, for longer each time. Once in a while is
// forgotten.
void ban_ring(Lane& lane, std::int64_t now) {
  if (now - lane.ban_until.load() > kPensToForget * lane.pen.load()) lane.pen = 0;
  lane.pen = std::clamp(lane.pen.load() * 2, kFirstPenNs, kLongestPenNs);
  lane.ban_until = now + lane.pen.load();
}

// A call that only TCP can serve: what lies in the ring goes before it. A program that makes such a
// call for each answer, as sendfile(2), is faster without a ring.
std::int64_t transmit_by_tcp(Outgoing& out, std::uint64_t bytes) {
  const std::uint32_t me = this_thread();
  if (out.lane.memory_out().load(GrantWord::kRing) != 0) ban_ring(out.lane, os::monotonic_ns());
  const bool interrupted = out.lane.own->writer.load() == me;
  if (!interrupted) lock(out.lane.own[0], me);
  out.unlocks = !interrupted;
  LaneMemory m(out.lane.memory_out(), out.parts, out.count);
  GrantWriter call(GrantCall::kSendInSignal, std::max<std::uint64_t>(bytes, 1), false);
  const std::int64_t result = run(out, call, m, false);
  if (out.unlocks) unlock(out.lane.own[0]);
  return result;
}

std::int64_t transmit_by_ring(Outgoing& out, std::uint64_t bytes) {
  LaneMemory m(out.lane.memory_out(), out.parts, out.count);
  if (bytes >= kBulk && out.waits) wait_for_drain(out.lane, m);
  const bool interrupted = out.lane.own->writer.load() == this_thread();
  GrantWriter call(interrupted ? GrantCall::kSendInSignal : GrantCall::kSend, bytes,
                   may_begin(out.lane, out.fd, m));
  const std::int64_t result = run(out, call, m, false);
  if (m.load(GrantWord::kRing) != 0) spiller::wake(spill);
  return result;
}

}  // namespace

ssize_t transmit(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                 AsAsked as_asked) {
  const std::uint64_t bytes = bytes_of(parts, count);
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !lane.nonblocking.load();
  Outgoing out{lane, fd, parts, count, flags, &as_asked, waits};
  const bool by_ring = bytes > 0 && (flags & ~kRingFlags) == 0;
  const std::int64_t result = by_ring ? transmit_by_ring(out, bytes) : transmit_by_tcp(out, bytes);
  if (result >= 0) return result;
  if (out.ended && out.error == 0) return send_kernel(out, 0);  // it says how
  errno = out.error != 0 ? out.error : EAGAIN;
  return -1;
}

void take_back_all(Lane& lane, int fd) {
  lane.joined_out = false;
  const std::int64_t end = os::monotonic_ns() + std::int64_t{kOwedMs} * 1'000'000;
  if (lane.own->writer.load() == this_thread()) return;  // a handler of the thread that is at it
  for (;;) {
    LaneMemory m(lane.memory_out(), nullptr, 0);
    Outgoing out{lane, fd, nullptr, 0, 0, nullptr, false};
    GrantWriter call(GrantCall::kSpill, 0, false);
    if (run(out, call, m, false) != kGrantWouldBlock || os::monotonic_ns() > end) break;
    pollfd one{fd, POLLOUT, 0};
    if (real().poll(&one, 1, kOwedMs) <= 0 || (one.revents & (POLLERR | POLLHUP)) != 0) break;
  }
  // The spiller sends with the lock, and to this number no more.
  lock(lane.own[0], this_thread());
  lane.fd = -1;
  unlock(lane.own[0]);
}

void spill(Lane& lane, std::int64_t now) {
  if (!try_lock(lane.own[0], this_thread())) return;
  const int fd = lane.fd.load();
  if (fd < 0 || !lane.live.load()) {
    unlock(lane.own[0]);
    return;
  }
  LaneMemory m(lane.memory_out(), nullptr, 0);
  Outgoing out{lane, fd, nullptr, 0, 0, nullptr, false};
  GrantWriter call(GrantCall::kSpill, 0, false);
  const bool open = window_is_open(m);
  static_cast<void>(run(out, call, m, true));
  if (!open) return;
  ban_ring(lane, now);
}

namespace {

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
  const ssize_t got = with_rest(in.parts, in.count, in.done, [&in, flags](msghdr& message) {
    return real().recvmsg(in.fd, &message, flags);
  });
  return told(got, in.error);
}

std::int64_t receive_kernel(Incoming& in, bool now) {
  if (in.lane.told.late_error.load(std::memory_order_relaxed) != 0) {
    if (const int late = in.lane.told.late_error.exchange(0); late != 0) {
      in.error = in.told_error = late;
      return kGrantError;
    }
  }
  // Before the question: an edge that comes behind it counts.
  const bool named = in.lane.told.kernel_named.load() && in.lane.told.kernel_named.exchange(false);
  const std::int64_t got = ask_kernel(in, now);
  if (named && got != kGrantWouldBlock) in.lane.told.kernel_named = true;
  if (got == kGrantError) in.told_error = in.error;
  return got;
}

// A reader that will ask the kernel before it sleeps, or that asks again and again, need not ask
// now.
bool may_leave_out(Incoming& in, const LaneMemory& m) {
  if ((m.load(GrantWord::kTake) & kTaken) != 0) return false;
  // A wait of the kernel's that named the number is believed.
  const bool polls = keeps(in.lane) && in.lane.named_by.load(std::memory_order_relaxed) == 0 &&
                     !in.lane.told.kernel_named.load() && !in.lane.number->asks.load();
  if (!in.waits && !polls) return false;
  return in.lane.vain.left_out.fetch_add(1, std::memory_order_relaxed) % kLeaveOut != 0;
}

// The writer has taken octets back from the ring, and this side has not got all of them from TCP.
bool on_their_way(const LaneMemory& m) {
  if ((m.load(GrantWord::kTake) & kTaken) == 0) return false;
  const std::uint64_t length = m.load(GrantWord::kTakenTo) - m.load(GrantWord::kTakenFrom);
  const std::uint64_t read = m.load(GrantWord::kTcpRead) - m.load(GrantWord::kTakenAt);
  return length <= kRingBytes && read < length;
}

// A read of a program that does not wait, and that has been told of octets in the ring: their
// writer is just sending them by TCP instead. It gets them, not EAGAIN.
std::int64_t receive_told(Incoming& in, const LaneMemory& m) {
  const std::int64_t got = receive_kernel(in, true);
  const bool told = in.lane.named_by.load(std::memory_order_relaxed) == this_thread();
  if (got != kGrantWouldBlock || in.waits || !told || !on_their_way(m)) return got;
  pollfd one{in.fd, POLLIN, 0};
  return real().poll(&one, 1, kOnTheirWayMs) > 0 ? receive_kernel(in, true) : got;
}

// Whether a read that waits is to offer the ring.
bool offers(const Lane& lane) {
  return lane.joined_in.load() && worth_it(lane.vain.reads.load(std::memory_order_relaxed));
}

bool look(Incoming& in, const LaneMemory& m) {
  return spin(in.lane.look, [&] {
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

// Keeps account of what this thread does before it reads. `got`: as the reader's result; `asked`:
// octets that there was room for; `waits`: the call is a wait itself.
void note_read(Lane& lane, std::int64_t got, std::uint64_t asked, bool waits) {
  const bool blocked = got == kGrantWouldBlock;
  const bool blocked_before = lane.told.blocked.exchange(blocked, std::memory_order_relaxed);
  const bool named = lane.named_by.load(std::memory_order_relaxed) == this_thread();
  if (named && (got < 0 || static_cast<std::uint64_t>(got) < asked)) {
    lane.named_by.store(0, std::memory_order_relaxed);
  }
  // One that asks again and again without a wait looks as often as one that waits.
  if (waits || named || (blocked && blocked_before)) {
    if (!keeps(lane)) lane.streak.fetch_add(1, std::memory_order_relaxed);
  } else if (!blocked && !blocked_before) {
    if (keeps(lane)) close_window(lane);
    lane.streak.store(0, std::memory_order_relaxed);
  }
  if (!waits && keeps(lane) && lane.joined_in.load(std::memory_order_relaxed)) {
    if (lane.memory_in().load(GrantWord::kWindow) == kWindowClosed) open_window(lane);
  }
}

constexpr int kKnownFlags = MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC;

}  // namespace

ssize_t receive(Lane& lane, int fd, const iovec* parts, std::size_t count, int flags,
                AsAsked as_asked) {
  const std::uint64_t bytes = bytes_of(parts, count);
  const bool peeks = (flags & MSG_PEEK) != 0;
  if (bytes == 0 || (flags & ~kKnownFlags) != 0 || (peeks && (flags & MSG_WAITALL) != 0)) {
    // Such a call is as good as one that is not seen. The writer takes back what lies in the ring.
    lane.joined_in = false;
    lane.memory_in().store(GrantWord::kWindow, kWindowNever);
    return as_asked();
  }
  const bool waits = (flags & MSG_DONTWAIT) == 0 && !lane.nonblocking.load();
  std::uint64_t done = 0;
  for (;;) {
    LaneMemory m(lane.memory_in(), parts, count, done);
    Incoming in{lane, fd, parts, count, done, flags, &as_asked, waits};
    GrantReader call(bytes - done, {waits, offers(lane), keeps(lane), peeks});
    const std::int64_t got = run(in, call, m);
    note_read(lane, got, bytes - done, waits);
    if (waits)
      lane.vain.reads = call.by_ring() ? 0 : lane.vain.reads.load(std::memory_order_relaxed) + 1;
    if (got > 0) done += static_cast<std::uint64_t>(got);
    if (in.told_error != 0 && done > 0) lane.told.late_error = in.told_error;
    if (got <= 0 || (flags & MSG_WAITALL) == 0 || done == bytes) {
      if (got == 0 || got == kGrantError) lane.joined_out = false;  // it hears of no more room
      if (done > 0 || got == 0) return static_cast<ssize_t>(done);
      errno = in.error;
      return -1;
    }
  }
}

}  // namespace weft::sockets::granted
