#include "sockets/preload/preload_decide.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>

#include "sockets/preload/preload.h"
#include "sockets/preload/preload_direct.h"
#include "sockets/preload/preload_relay.h"
#include "sockets/preload/preload_settings.h"
#include "sockets/preload/preload_setup.h"
#include "sockets/preload/preload_ways.h"
#include "sockets/preload/socket_list.h"
#include "sockets/preload/socket_rules.h"
#include "sockets/preload/syn_mark.h"
#include "sockets/relay/relay_protocol.h"

namespace weft::sockets {
namespace {

constexpr int kGreetingWaitMs = 1000;

std::atomic<bool> g_classifying{true};

bool is_tcp(int fd, int& domain) {
  int type = 0;
  int protocol = 0;
  socklen_t length = sizeof type;
  domain = 0;
  return real().getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM &&
         real().getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 &&
         (domain == AF_INET || domain == AF_INET6) &&
         real().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_TCP;
}

bool connected(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof peer;
  return real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
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

void await_question(int fd) {
  pollfd one{fd, POLLIN, 0};
  static_cast<void>(real().poll(&one, 1, kGreetingWaitMs));
}

// It is readable, and a read comes back, when there is so much.
void ask_for_at_least(int fd, std::size_t octets) {
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

using Tell = void (*)(int fd, const char* role, const sockaddr* address, const char* path,
                      const char* reason);

// Does what the client asked for, and tells why. No channel: it did not ask, and the connection
// goes on as TCP; or its request failed, and the connection has been ended.
Opened answer(int fd, const Beginning& begin, Tell tell) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length);
  const auto* address = reinterpret_cast<const sockaddr*>(&peer);
  Opened made;
  const bool ring = begin.opening == Opening::kGreeting;
  if (ring) {
    std::uint8_t taken[kGreetingBytes];
    static_cast<void>(!real().recv(fd, taken, sizeof taken, MSG_DONTWAIT));
    made = join_ring(fd, begin.octets);
  } else if (begin.opening == Opening::kMpa) {
    RelayRequest request;
    request.op = RelayOp::kServe;
    made = channel_by_relay(fd, request, "rdma", nullptr);
  } else {
    tell(fd, "accept", address, "tcp", "the client did not ask for RDMA");
    return made;
  }
  if (made.channel != nullptr) {
    tell(fd, "accept", address, ring ? "ring" : "rdma", "the client asked for it");
  } else {
    tell(fd, "accept", address, "closed",
         ring ? "the client's end has gone" : "no relay, or no descriptors left");
    real().shutdown(fd, SHUT_RDWR);
  }
  return made;
}

// Threads that sleep until the first octets come must see them before they are taken away. That
// takes no time; one that is in a signal handler is not waited for.
void await_sleepers(Conn& conn) {
  constexpr int kTurns = 1000;
  conn.deciding = true;
  for (int i = 0; i < kTurns && conn.awaiting.load() > 0; ++i) usleep(100);
}

}  // namespace

void note_fresh(int fd) {
  const table::Lock lock;
  table::put(fd, Kind::kFresh, table::make_conn());
}

void begin_listening(int fd) {
  int domain = 0;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  const table::Lock lock;
  if (table::kind_of(fd) == Kind::kListener) return;
  if (!preload_active() || !is_tcp(fd, domain) ||
      real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) {
    return;
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&local);
  const Rule* rule = settings().rules.find(Role::kListen, settings().program, address);
  if (rule != nullptr && rule->way == RuleWay::kTcp) {
    note_path(fd, "listen", address, "tcp", "a rule says tcp");
    table::put(fd, Kind::kPlain, nullptr);
    return;
  }
  Conn* conn = table::make_conn();
  if (conn == nullptr) return;
  const int one = 1;
  real().setsockopt(fd, IPPROTO_TCP, TCP_SAVE_SYN, &one, sizeof one);
  const int mark = real().socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (mark >= 0) {
    sockaddr_un name;
    const socklen_t name_length = listen_name(address, is_any(address), name);
    // Taken: another process of the same listener has said it already.
    if (real().bind(mark, reinterpret_cast<const sockaddr*>(&name), name_length) == 0) {
      conn->listen_mark = table::move_high(mark);
    } else {
      real().close(mark);
    }
  }
  conn->way = rule != nullptr && rule->way == RuleWay::kRdma ? Way::kRdmaOnly : Way::kRdma;
  const Conn* before = table::conn_of(fd);
  conn->direct = before != nullptr && before->direct;
  table::put(fd, Kind::kListener, conn);
  list::note(fd, "listen", nullptr, "any", "each client says on its connection what it wants");
}

void stop_classifying() { g_classifying = false; }

Kind classify(int fd) {
  if (!g_classifying.load(std::memory_order_relaxed)) return Kind::kPlain;
  int domain = 0;
  const int error = errno;
  const table::Lock lock;
  if (table::kind_of(fd) != Kind::kUnknown) return table::kind_of(fd);
  Kind kind = Kind::kPlain;
  int listening = 0;
  socklen_t length = sizeof listening;
  std::uint8_t syn[256];
  if (fd >= 0 && is_tcp(fd, domain)) {
    real().getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length);
    length = 0;  // too short: the kernel keeps it, and says so
    const bool saved = real().getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &length) != 0 &&
                       errno == EINVAL && length > 0;
    if (listening != 0) {
      begin_listening(fd);
      kind = table::kind_of(fd);
    } else if (connected(fd)) {
      if (saved) kind = Kind::kUndecided;
    } else {
      kind = Kind::kFresh;
    }
  }
  if (domain == AF_UNIX && fd > 2) begin_relayed(fd);
  if (table::kind_of(fd) == Kind::kUnknown && fd >= 0) {
    const bool ours = kind == Kind::kUndecided || kind == Kind::kFresh;
    table::put(fd, kind, ours ? table::make_conn() : nullptr);
  }
  errno = error;
  return kind;
}

void advance_connecting(int fd) {
  const int error = errno;
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (table::kind_of(fd) == Kind::kConnecting && conn != nullptr && connected(fd)) {
    std::uint8_t octet = 0;
    // A server that has spoken already does not wait for a greeting.
    if (real().recv(fd, &octet, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
      unmark_syn(fd, *conn);
      give_up(fd, *conn, "the server spoke before it could be asked");
    } else {
      upgrade_client(fd, conn);
    }
  }
  errno = error;
}

Verdict decide(int fd, bool to_write) {
  const int error = errno;
  table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (table::kind_of(fd) != Kind::kUndecided || conn == nullptr) return Verdict::kDecided;
  if (to_write && is_to_ask(fd, *conn)) {
    lock.unlock();  // other threads have connections of their own
    await_question(fd);
    lock.lock();
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
  if (begin.opening == Opening::kMpa && conn->direct) {
    direct::accept(fd, lock);
  } else if (!install(fd, conn, answer(fd, begin, note_path))) {
    table::settle_plain(fd);
  }
  errno = error;
  return Verdict::kDecided;
}

Opened open_undecided(int fd) {
  const int error = errno;
  Conn asked;  // the table's is the parent's
  if (is_to_ask(fd, asked)) await_question(fd);
  Beginning begin;
  look_at_beginning(fd, begin);
  ask_for_at_least(fd, 1);  // the process that accepted it may have asked for more
  // The list is the parent's, if this is a child of vfork().
  const Opened made = answer(fd, begin,
                             [](int, const char* role, const sockaddr* address, const char* path,
                                const char* reason) { tell_why(role, address, path, reason); });
  errno = error;
  return made;
}

Kind resolve(int fd, bool to_write) {
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kConnecting) advance_connecting(fd);
  if (kind == Kind::kUndecided) static_cast<void>(decide(fd, to_write));
  return table::kind_of(fd);
}

bool await_opening(int fd, bool wait) {
  const Use use(fd);
  if (use.kind() != Kind::kUndecided || use.conn() == nullptr) return true;
  Conn& conn = *use.conn();
  ++conn.awaiting;
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
  --conn.awaiting;
  return come;
}

}  // namespace weft::sockets
