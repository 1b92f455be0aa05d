#include "sockets/iwarp/iwarp_decide.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "os/clock.h"
#include "sockets/iwarp/direct.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/silent_clients.h"
#include "sockets/iwarp/syn_mark.h"

namespace weft::sockets::iwarp {
namespace {

// An MPA Request (RFC 5044 7.1.1): key, flags, revision, length, private data.
constexpr char kMpaKey[] = "MPA ID Req Frame";
constexpr std::size_t kMpaKeyBytes = 16;
constexpr std::size_t kMpaHeader = 20;
constexpr std::size_t kMpaPrivateMax = 512;

enum class Opening { kOther, kShort, kMpa };

// Classifies the first octets of a connection. kShort: `needed` octets tell more.
Opening read_opening(std::span<const std::uint8_t> in, std::size_t& needed) {
  assert(!in.empty());
  const std::size_t compared = in.size() < kMpaKeyBytes ? in.size() : kMpaKeyBytes;
  if (std::memcmp(in.data(), kMpaKey, compared) != 0) return Opening::kOther;
  needed = kMpaHeader;
  if (in.size() < kMpaHeader) return Opening::kShort;
  const std::size_t length = std::size_t{in[18]} << 8U | in[19];
  if (length > kMpaPrivateMax) return Opening::kOther;
  needed = kMpaHeader + length;
  assert(needed <= kMpaHeader + kMpaPrivateMax);
  return in.size() < needed ? Opening::kShort : Opening::kMpa;
}

// The first octets of an accepted connection.
struct Beginning {
  Opening opening = Opening::kOther;
  bool silent = false;     // nothing has come
  std::size_t needed = 0;  // kShort: octets that tell more
  std::uint8_t octets[kMpaHeader + kMpaPrivateMax];
};

// The client has said that it will ask, and has not yet.
bool is_to_ask(int fd, Conn& conn) {
  std::uint8_t octet = 0;
  if (real().recv(fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) return false;
  if (!conn.mark_read) {
    conn.marked = syn_was_marked(fd);
    conn.mark_read = true;
  }
  return conn.marked;
}

// With the lock of the table.
SilentClients g_silent;

std::int64_t now_ms() { return os::monotonic_ns() / 1'000'000; }

// Milliseconds since the connection was made, if nothing has been sent on it.
std::int64_t age_of(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  return real().getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0
             ? info.tcpi_last_data_sent
             : SilentClients::kWaitMs;
}

// The address of a peer, without its port. Of IPv6 the part that a site has for itself: one machine
// may have any number of addresses there.
class PeerAddress {
 public:
  explicit PeerAddress(int fd) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    if (real().getpeername(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0) return;
    if (at.ss_family == AF_INET) {
      std::memcpy(octets_, &reinterpret_cast<const sockaddr_in&>(at).sin_addr, length_ = 4);
    } else if (at.ss_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(at).sin6_addr;
      std::memcpy(octets_, &v6, length_ = IN6_IS_ADDR_V4MAPPED(&v6) ? sizeof v6 : 8);
    }
  }
  [[nodiscard]] std::string_view octets() const { return {octets_, length_}; }

 private:
  char octets_[sizeof(in6_addr)] = {};
  std::size_t length_ = 0;
};

// Whether it says nothing for so long.
bool is_silent_for(int fd, std::int64_t ms) {
  pollfd one{fd, POLLIN, 0};
  return real().poll(&one, 1, static_cast<int>(ms)) == 0;
}

// It is readable, and a read comes back, when there is so much.
void ask_for_at_least(int fd, std::size_t octets) {
  assert(octets != 0 && octets <= kMpaHeader + kMpaPrivateMax);
  const int low = static_cast<int>(octets);
  real().setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
}

void look_at_beginning(int fd, Beginning& out) {
  const ssize_t n = real().recv(fd, out.octets, sizeof out.octets, MSG_PEEK | MSG_DONTWAIT);
  out.silent = n < 0 && errno == EAGAIN;
  if (n > 0) {
    out.opening = read_opening(std::span(out.octets, static_cast<std::size_t>(n)), out.needed);
  }
  if (out.opening != Opening::kShort) return;
  // A client that has ended in the middle of it asks for nothing.
  pollfd one{fd, POLLRDHUP, 0};
  if (real().poll(&one, 1, 0) <= 0) return;
  out.opening = Opening::kOther;
}

bool has_time_limit(int fd) {
  timeval limit{};
  socklen_t length = sizeof limit;
  return (real().fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 ||
         (real().getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &length) == 0 &&
          (limit.tv_sec != 0 || limit.tv_usec != 0));
}

// Threads that sleep until the first octets come must see them before they are taken away. That
// takes no time; one that is in a signal handler is not waited for.
void await_sleepers(Conn& conn) {
  constexpr int kTurns = 1000;
  conn.deciding = true;
  for (int i = 0; i < kTurns && conn.awaiting.load() > 0; ++i) usleep(100);
}

enum class Verdict { kDecided, kNotYet };

Verdict decide(int fd, bool to_write) {
  const int error = errno;
  table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (table::kind_of(fd) != Kind::kUndecided || conn == nullptr) return Verdict::kDecided;
  if (to_write && is_to_ask(fd, *conn)) {
    const PeerAddress peer(fd);
    const std::int64_t ms = g_silent.wait(peer.octets(), age_of(fd), now_ms());
    lock.unlock();  // other threads have connections of their own
    const bool silent = is_silent_for(fd, ms);
    lock.lock();
    g_silent.note(peer.octets(), silent, now_ms());
    conn = table::conn_of(fd);
    if (table::kind_of(fd) != Kind::kUndecided || conn == nullptr) return Verdict::kDecided;
  }
  Beginning begin;
  look_at_beginning(fd, begin);
  if (!to_write && (begin.silent || begin.opening == Opening::kShort)) {
    if (begin.opening == Opening::kShort) {
      // Not readable before it is whole: a peer that stops in the middle is a silent one.
      ask_for_at_least(fd, begin.needed);
      conn->partly = true;
    }
    errno = error;
    return Verdict::kNotYet;
  }
  if (begin.opening != Opening::kOther) await_sleepers(*conn);
  if (conn->partly) ask_for_at_least(fd, 1);
  if (begin.opening == Opening::kMpa) {
    direct::accept(fd, lock);
  } else {
    table::settle_plain(fd);
  }
  errno = error;
  return Verdict::kDecided;
}

// Until its end, also that of a thread which is cancelled.
class Awaiting {
 public:
  explicit Awaiting(Conn& conn) : conn_(conn) { ++conn_.awaiting; }
  ~Awaiting() {
    [[maybe_unused]] const int before = conn_.awaiting.fetch_sub(1);
    assert(before > 0);
  }
  Awaiting(const Awaiting&) = delete;
  Awaiting& operator=(const Awaiting&) = delete;

 private:
  Conn& conn_;
};

}  // namespace

Kind resolve(int fd, bool to_write) {
  if (table::kind_of(fd) == Kind::kUndecided) static_cast<void>(decide(fd, to_write));
  return table::kind_of(fd);
}

bool await_opening(int fd, bool wait) {
  const Use use(fd);
  if (use.kind() != Kind::kUndecided || use.conn() == nullptr) return true;
  Conn& conn = *use.conn();
  const Awaiting awaiting(conn);
  bool come = true;
  if (!conn.deciding) {
    // The kernel's own waiting: time limits, signals and O_NONBLOCK are as they should be. It waits
    // for as many octets as decide() has set, if they were asked for.
    const bool partly = conn.partly;
    Beginning begin;
    const ssize_t n =
        real().recv(fd, begin.octets, sizeof begin.octets, MSG_PEEK | (wait ? 0 : MSG_DONTWAIT));
    come = n >= 0;
    // The first of them may have come only now: then decide() sets how many it takes.
    if (partly && n > 0) look_at_beginning(fd, begin);
    if (partly && n > 0 && begin.opening == Opening::kShort) {
      // A time limit is over, or a signal came: the kernel tells of what there is instead.
      errno = wait && !has_time_limit(fd) ? EINTR : EAGAIN;
      come = false;
    }
  }
  return come;
}

}  // namespace weft::sockets::iwarp
