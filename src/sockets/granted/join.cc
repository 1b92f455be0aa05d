#include "sockets/granted/join.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>

#include "os/clock.h"
#include "os/signals_blocked.h"
#include "sockets/granted/holders.h"
#include "sockets/granted/lane_end.h"
#include "sockets/granted/number_states.h"
#include "sockets/granted/tcp_counts.h"
#include "sockets/socket_settings.h"

namespace weft::sockets::granted::join {
namespace {

struct End {
  std::array<std::uint8_t, 18> octets{};  // address, IPv4 as IPv6 has it, and port
};

bool end_of(const sockaddr_storage& from, End& out) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    out.octets[10] = out.octets[11] = 0xff;
    std::memcpy(&out.octets[12], &v4.sin_addr, 4);
    std::memcpy(&out.octets[16], &v4.sin_port, 2);
    return true;
  }
  if (from.ss_family != AF_INET6) return false;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  std::memcpy(&out.octets[0], &v6.sin6_addr, 16);
  std::memcpy(&out.octets[16], &v6.sin6_port, 2);
  return true;
}

// The key of a connection, and which of its ends this socket is. False: none that could have one.
bool key_of(int fd, Key& key, unsigned& end) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t local_length = sizeof local;
  socklen_t peer_length = sizeof peer;
  std::uint64_t space = 0;
  socklen_t space_length = sizeof space;
  End ours;
  End theirs;
  if (real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length) != 0 ||
      real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0 ||
      real().getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &space, &space_length) != 0 ||
      !end_of(local, ours) || !end_of(peer, theirs) || ours.octets == theirs.octets) {
    return false;
  }
  end = ours.octets < theirs.octets ? 0 : 1;
  static_assert(36 + sizeof space <= sizeof key.octets);
  const End& first = end == 0 ? ours : theirs;
  const End& second = end == 0 ? theirs : ours;
  std::memcpy(&key.octets[0], first.octets.data(), 18);
  std::memcpy(&key.octets[18], second.octets.data(), 18);
  std::memcpy(&key.octets[36], &space, sizeof space);
  return true;
}

bool option_is(int fd, int level, int name, int wanted) {
  int value = 0;
  socklen_t length = sizeof value;
  return real().getsockopt(fd, level, name, &value, &length) != 0 || value == wanted;
}

bool rule_says_tcp(int fd, const Number& number) {
  const bool accepted = NumberState::of(number.state.load()).accepted;
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  const auto name = accepted ? real().getsockname : real().getpeername;
  return name(fd, at, &length) == 0 && must_be_tcp(accepted ? Role::kListen : Role::kConnect, at);
}

// Options that change what a read gives, or that need the kernel to see each octet.
bool options_allow(int fd) {
  char name[16] = "";
  socklen_t length = sizeof name;
  const bool has_ulp =
      real().getsockopt(fd, IPPROTO_TCP, TCP_ULP, name, &length) == 0 && length > 0;
  return !has_ulp && option_is(fd, SOL_SOCKET, SO_RCVLOWAT, 1) &&
         option_is(fd, SOL_SOCKET, SO_ZEROCOPY, 0) && option_is(fd, SOL_SOCKET, SO_OOBINLINE, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMP, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMPNS, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMPING, 0) &&
         option_is(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0);
}

// So that a ring taken back never waits for room.
bool has_room_for_a_ring(int fd) {
  int room = 0;
  socklen_t length = sizeof room;
  return real().getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &length) == 0 &&
         static_cast<std::uint64_t>(room) >= 4 * kRingBytes;
}

// It stays TCP.
void refuse(Lane& lane, int fd, Why why) {
  lane.meeting.settled = true;
  if (lane.number->calls.load() != kKernels) states::tell(fd, *lane.number, why);
}

void note_segment(Lane& lane, int fd, Segment* segment) {
  if (segment == nullptr) {
    refuse(lane, fd, Why::kNoMemory);
    return;
  }
  lane.rings.attach(*segment, lane.connection.end);
  if (lane.number->calls.load() != kKernels) states::tell(fd, *lane.number, Why::kRing);
}

// Whether no call of this kind but the caller's own, which has not asked the kernel yet, is under
// way. `own`: as the caller's is counted.
bool nobody_else(const Lane& lane, const Number& number, Call call, Call own) {
  return number.running.load() == 0 && lane.calls.count(call) == (own == call ? 1U : 0U);
}

// With the meeting's lock.
void join_in(Lane& lane, int fd, const Number& number, Call own) {
  std::uint64_t read = 0;
  std::uint64_t again = 0;
  if (!nobody_else(lane, number, Call::kReceives, own) || !octets_read(fd, read)) return;
  lane.rings.in().store(GrantWord::kTcpRead, read);
  [[maybe_unused]] bool followed = lane.in.on(JoinEvent::kCounts);
  assert(followed);  // the lock's holder alone counts and agrees
  const bool agreed =
      nobody_else(lane, number, Call::kReceives, own) && octets_read(fd, again) && again == read;
  followed = lane.in.on(agreed ? JoinEvent::kAgreed : JoinEvent::kMiscounted);
  assert(followed);
}

// Unless its end has been heard, or another thread has left the number to the kernel: both say so,
// then forbid it.
void allow_out(Lane& lane) {
  [[maybe_unused]] const bool followed = lane.out.on(JoinEvent::kAgreed);
  assert(followed);
  if (lane.news.ended() || !lane.live.load()) lane.out.on(JoinEvent::kForbidden);
}

// With the meeting's lock.
void join_out(Lane& lane, int fd, const Number& number, Call own) {
  std::uint64_t sent = 0;
  std::uint64_t again = 0;
  if (!nobody_else(lane, number, Call::kSends, own) || !octets_taken(fd, sent)) return;
  GrantMemory words = lane.rings.out();
  words.store(GrantWord::kSent, sent);
  words.store(GrantWord::kTcpBegun, sent);
  [[maybe_unused]] bool followed = lane.out.on(JoinEvent::kCounts);
  assert(followed);
  if (!nobody_else(lane, number, Call::kSends, own) || !octets_taken(fd, again) || again != sent) {
    followed = lane.out.on(JoinEvent::kMiscounted);
    assert(followed);
    return;
  }
  lane.nodelay.turn_on(fd);
  allow_out(lane);
}

}  // namespace

namespace {

// Another process has the socket. It is asked again after as many calls.
void put_off(int fd, Number& number) {
  std::uint32_t calls = busy_calls() + 1;
  number.calls.compare_exchange_strong(calls, 1);
  if (NumberState::of(number.state.load()).why != Why::kShared) {
    states::tell(fd, number, Why::kShared);
  }
}

}  // namespace

void begin(int fd, Number& number) {
  if (!holders::sole(number)) return put_off(fd, number);
  Key key;
  unsigned end = 0;
  std::uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  if (!key_of(fd, key, end) ||
      real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) != 0) {
    return;
  }
  states::share();
  if (rule_says_tcp(fd, number)) return states::tell(fd, number, Why::kRule);
  if (!options_allow(fd)) return states::tell(fd, number, Why::kOption);
  if (!has_room_for_a_ring(fd)) return states::tell(fd, number, Why::kSendBuffer);
  const NewLane made = lanes::make(fd, number);
  Lane* const lane = made.lane;
  if (lane == nullptr) return states::tell(fd, number, Why::kNoMemory);
  const Use use(made);
  states::change(fd, number, Why::kLooking);
  lane->connection = {cookie, end, key};
  // Again, if another thread has changed it meanwhile.
  const auto asked = [fd] { return (real().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; };
  do {
    lane->nonblocking = asked();
  } while (lane->nonblocking.load() != asked());
  // Another thread may have copied, closed or closed and made anew the number meanwhile, or forked.
  // One that comes later finds the lane.
  std::uint64_t now = 0;
  length = sizeof now;
  if (number.calls.load() == kKernels || !holders::sole(number) ||
      real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &now, &length) != 0 || now != cookie) {
    retire_stray(fd, number);
    return;
  }
  lane->meeting.settled = false;
}

namespace {

// A lane looks for its peer in so many calls and for so long, then it stays TCP: most peers that do
// not come by then are on another machine, or not under Weft. One that is kept from the table lets
// some calls pass.
constexpr std::uint32_t kLooks = 65536;
constexpr std::uint32_t kLooksPerClock = 1024;
constexpr std::int64_t kPatienceNs = 2'000'000'000;
constexpr std::uint32_t kLooksPerPost = 64;

bool has_looked_enough(const Ticket& ticket) {
  return ticket.looks >= kLooks && ticket.looks % kLooksPerClock == 0 &&
         os::monotonic_ns() - ticket.since >= kPatienceNs;
}

// With the meeting's lock, no ticket yet: the first end posts, the second makes the segment.
void post(Lane& lane, int fd) {
  const os::SignalsBlocked blocked;
  const Connection& of = lane.connection;
  assert(of.end < 2 && lane.meeting.ticket.index < 0);
  switch (rendezvous::post({of.key, of.end, of.cookie}, lane.meeting.ticket)) {
    case rendezvous::Found::kPosted:
    case rendezvous::Found::kLater: return;
    case rendezvous::Found::kNo: refuse(lane, fd, Why::kNoPeer); return;
    case rendezvous::Found::kPeer: break;
  }
  rendezvous::Made made;
  Segment* segment = segments::make(of.key, made);
  rendezvous::give(lane.meeting.ticket, made);
  note_segment(lane, fd, segment);
}

// With the meeting's lock.
void find_peer(Lane& lane, int fd) {
  const std::uint32_t looks = lane.meeting.ticket.looks++;
  if (lane.meeting.ticket.index < 0) {
    if (looks % kLooksPerPost == 0) post(lane, fd);
    return;
  }
  rendezvous::Made made;
  switch (rendezvous::look(lane.meeting.ticket, made)) {
    case rendezvous::Answer::kNotYet:
      if (!has_looked_enough(lane.meeting.ticket)) return;
      rendezvous::withdraw(lane.meeting.ticket);
      refuse(lane, fd, Why::kNoPeer);
      return;
    case rendezvous::Answer::kGone: refuse(lane, fd, Why::kNoPeer); return;
    case rendezvous::Answer::kSegment:
      note_segment(lane, fd, segments::attach(lane.connection.key, made));
      return;
  }
}

// No call begins to use its ring. Those that send keep to the order of what lies in it.
void leave_alone(Lane& lane) {
  lane.in.on(JoinEvent::kLeftAlone);
  lane.out.on(JoinEvent::kForbidden);
  rendezvous::withdraw(lane.meeting.ticket);
  if (lane.rings.attached()) lane.rings.in().store(GrantWord::kWindow, kWindowNever);
  lane.meeting.settled = true;
}

}  // namespace

void go_on(Lane& lane, int fd, const Number& number, Call call) {
  Meeting& meeting = lane.meeting;
  if (!meeting.lock.try_lock()) return;
  if (!lane.rings.attached() && !meeting.settled.load()) find_peer(lane, fd);
  if (lane.rings.attached() && !meeting.settled.load()) {
    if (!lane.in.counted()) join_in(lane, fd, number, call);
    if (!lane.out.counted()) join_out(lane, fd, number, call);
    meeting.settled = lane.in.counted() && lane.out.counted();
  }
  // Another thread has left the number to the kernel, perhaps before there was a segment to close.
  if (!lane.live.load()) leave_alone(lane);
  meeting.lock.unlock();
  // Or that thread has found the lock taken, behind the look above: then it leaves this to us. Not
  // by a load: it could be done before the unlocking is seen. Of two exchanges one is the later.
  bool lives = true;
  if (!lane.live.compare_exchange_strong(lives, true) && meeting.lock.try_lock()) {
    leave_alone(lane);
    meeting.lock.unlock();
  }
}

}  // namespace weft::sockets::granted::join
