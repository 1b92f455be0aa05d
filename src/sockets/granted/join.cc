#include "sockets/granted/join.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "os/signals_blocked.h"
#include "sockets/granted/tcp_counts.h"

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

// Options that change what a read gives, or that need the kernel to see each octet.
bool options_allow(int fd) {
  char name[16] = "";
  socklen_t length = sizeof name;
  const bool has_ulp =
      real().getsockopt(fd, IPPROTO_TCP, TCP_ULP, name, &length) == 0 && length > 0;
  int room = 0;
  length = sizeof room;
  return !has_ulp && option_is(fd, SOL_SOCKET, SO_RCVLOWAT, 1) &&
         option_is(fd, SOL_SOCKET, SO_ZEROCOPY, 0) && option_is(fd, SOL_SOCKET, SO_OOBINLINE, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMP, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMPNS, 0) &&
         option_is(fd, SOL_SOCKET, SO_TIMESTAMPING, 0) &&
         option_is(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0) &&
         real().getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, &length) == 0 &&
         // So that a ring taken back never waits for room.
         static_cast<std::uint64_t>(room) >= 4 * kRingBytes;
}

void tell_why(int fd, const char* path, const char* reason) {
  static const bool wanted = [] {
    const char* why = secure_getenv("WEFT_SOCKETS_WHY");
    return why != nullptr && *why != '\0' && *why != '0';
  }();
  if (!wanted) return;
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  char text[INET6_ADDRSTRLEN] = "?";
  unsigned port = 0;
  if (real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
    const bool v4 = peer.ss_family == AF_INET;
    const auto& in4 = reinterpret_cast<const sockaddr_in&>(peer);
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(peer);
    inet_ntop(
        peer.ss_family,
        v4 ? static_cast<const void*>(&in4.sin_addr) : static_cast<const void*>(&in6.sin6_addr),
        text, sizeof text);
    port = ntohs(v4 ? in4.sin_port : in6.sin6_port);
  }
  char line[300];
  const int n = std::snprintf(line, sizeof line, "weft: %s[%d] peer %s port %u: %s: %s\n",
                              program_invocation_short_name, getpid(), text, port, path, reason);
  if (n > 0) static_cast<void>(!real().write(2, line, static_cast<std::size_t>(n)));
}

// Attaches a segment that another process made, if it is one.
Segment* attach(int id) {
  shmid_ds is{};
  if (shmctl(id, IPC_STAT, &is) != 0 || is.shm_segsz < sizeof(Segment) ||
      is.shm_perm.cuid != geteuid() || (is.shm_perm.mode & 077U) != 0) {
    return nullptr;
  }
  void* at = shmat(id, nullptr, 0);
  return at == reinterpret_cast<void*>(-1) ? nullptr : static_cast<Segment*>(at);
}

// Nobody has its id but those who read it in the registry; it goes when both ends have gone.
Segment* make_segment(int& id) {
  id = shmget(IPC_PRIVATE, sizeof(Segment), IPC_CREAT | 0600);
  if (id < 0) return nullptr;
  void* at = shmat(id, nullptr, 0);
  shmctl(id, IPC_RMID, nullptr);
  if (at == reinterpret_cast<void*>(-1)) {
    id = -1;
    return nullptr;
  }
  auto* segment = static_cast<Segment*>(at);
  for (GrantShared& words : segment->words) GrantMemory::reset(words);
  return segment;
}

// It stays TCP.
void refuse(Lane& lane) { lane.settled = true; }

void note_segment(Lane& lane, int fd, Segment* segment) {
  if (segment == nullptr) {
    refuse(lane);
    return;
  }
  lane.segment.store(segment);
  tell_why(fd, "ring", "both ends run under Weft, on this machine");
}

// Whether no call but the caller's own, which has not asked the kernel yet, is under way.
bool nobody_else(const Number& number, const std::atomic<std::uint32_t>& counter, bool counted) {
  return number.running.load() == 0 && counter.load() == (counted ? 1U : 0U);
}

void join_in(Lane& lane, int fd, const Number& number, bool counted) {
  std::uint64_t read = 0;
  std::uint64_t again = 0;
  if (!nobody_else(number, lane.receiving, counted) || !octets_read(fd, read)) return;
  GrantMemory words = lane.memory_in();
  words.store(GrantWord::kTcpRead, read);
  lane.counted_in = true;
  if (nobody_else(number, lane.receiving, counted) && octets_read(fd, again) && again == read) {
    lane.joined_in = true;
    return;
  }
  lane.counted_in = false;
}

void join_out(Lane& lane, int fd, const Number& number, bool counted) {
  std::uint64_t sent = 0;
  std::uint64_t again = 0;
  if (!nobody_else(number, lane.sending, counted) || !octets_taken(fd, sent)) return;
  GrantMemory words = lane.memory_out();
  words.store(GrantWord::kSent, sent);
  words.store(GrantWord::kTcpBegun, sent);
  lane.counted_out = true;
  if (!nobody_else(number, lane.sending, counted) || !octets_taken(fd, again) || again != sent) {
    lane.counted_out = false;
    return;
  }
  int on = 0;
  socklen_t length = sizeof on;
  real().getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &length);
  lane.nodelay = on != 0;
  // Octets of the ring bring no acknowledgment that Nagle's algorithm could wait for.
  on = 1;
  lane.set_nodelay = true;
  real().setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  lane.joined_out = true;
}

}  // namespace

void begin(int fd, Number& number) {
  Key key;
  unsigned end = 0;
  std::uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  if (!key_of(fd, key, end) || !options_allow(fd) ||
      real().getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) != 0) {
    return;
  }
  Lane* lane = lanes::make(fd, number);
  if (lane == nullptr) return;
  const Use use(*lane, &Lane::visiting);
  lane->end = end;
  lane->cookie = cookie;
  lane->key = key;
  lane->nonblocking = (real().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
  lane->settled = false;
}

namespace {

// With `joining`. Posts it, or looks for the peer.
void find_peer(Lane& lane, int fd) {
  const os::SignalsBlocked blocked;
  int id = -1;
  if (lane.ticket.index < 0) {
    switch (rendezvous::post(lane.key, lane.end, lane.cookie, lane.ticket)) {
      case rendezvous::Found::kPosted:
      case rendezvous::Found::kLater: return;
      case rendezvous::Found::kNo: refuse(lane); return;
      case rendezvous::Found::kPeer: break;
    }
    Segment* segment = make_segment(id);
    rendezvous::give(lane.ticket, id);
    note_segment(lane, fd, segment);
    return;
  }
  switch (rendezvous::look(lane.ticket, id)) {
    case rendezvous::Answer::kNotYet: return;
    case rendezvous::Answer::kGone: refuse(lane); return;
    case rendezvous::Answer::kSegment: note_segment(lane, fd, attach(id)); return;
  }
}

}  // namespace

void go_on(Lane& lane, int fd, const Number& number, Use::Counter counter) {
  if (!lane.joining.try_lock()) return;
  if (lane.segment.load() == nullptr && !lane.settled.load()) find_peer(lane, fd);
  if (lane.segment.load() != nullptr && !lane.settled.load()) {
    const bool receives = counter == &Lane::receiving;
    if (!lane.counted_in.load()) join_in(lane, fd, number, receives);
    if (!lane.counted_out.load()) join_out(lane, fd, number, counter == &Lane::sending);
    lane.settled = lane.counted_in.load() && lane.counted_out.load();
  }
  lane.joining.unlock();
}

}  // namespace weft::sockets::granted::join
