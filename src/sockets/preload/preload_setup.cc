// How a TCP socket becomes the end of a channel.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "sockets/preload/preload.h"
#include "sockets/preload/preload_direct.h"
#include "sockets/preload/preload_hot.h"
#include "sockets/preload/preload_relay.h"
#include "sockets/preload/preload_settings.h"
#include "sockets/preload/preload_setup.h"
#include "sockets/preload/preload_ways.h"
#include "sockets/preload/socket_list.h"
#include "sockets/preload/socket_rules.h"
#include "sockets/relay/relay_client.h"

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

void mark_syn(int fd, Conn& conn, int family) {
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  const int name = family == AF_INET ? IP_TOS : IPV6_TCLASS;
  int before = 0;
  socklen_t length = sizeof before;
  if (real().getsockopt(fd, level, name, &before, &length) != 0) return;
  conn.tos_before = before;
  real().setsockopt(fd, level, name, &kSynMark, sizeof kSynMark);
}

void unmark(int fd, Conn& conn) {
  if (conn.tos_before < 0) return;
  const bool v4 = conn.peer.ss_family == AF_INET;
  real().setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS, &conn.tos_before,
                    sizeof conn.tos_before);
  conn.tos_before = -1;
}

// The SYN of an accepted connection was marked. The kernel gives it out once.
bool was_marked(int fd) {
  std::uint8_t syn[256];
  socklen_t length = sizeof syn;
  if (real().getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &length) != 0 || length < 2) {
    return false;
  }
  const unsigned tos = syn[0] >> 4U == 4 ? syn[1] : ((syn[0] & 0xfU) << 4U | syn[1] >> 4U);
  return (tos & 0xfcU) == (kSynMark & 0xfcU);
}

bool connected(int fd) {
  sockaddr_storage peer;
  socklen_t length = sizeof peer;
  return real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

void name_channel(int fd, Channel& channel) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t local_length = sizeof local;
  socklen_t peer_length = sizeof peer;
  real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_length);
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length);
  channel.set_names(reinterpret_cast<sockaddr*>(&local), local_length,
                    reinterpret_cast<sockaddr*>(&peer), peer_length);
}

// "weft-socket,PATH,LOCAL,PEER": names the rings in /proc/PID/maps.
void make_label(char* out, size_t size, const char* path, int fd) {
  sockaddr_storage local{};
  sockaddr_storage peer{};
  socklen_t length = sizeof local;
  real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length);
  length = sizeof peer;
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length);
  char a[80];
  char b[80];
  address_text(reinterpret_cast<sockaddr*>(&local), a, sizeof a);
  address_text(reinterpret_cast<sockaddr*>(&peer), b, sizeof b);
  std::snprintf(out, size, "%s,%s,%s,%s", kChannelLabel, path, a, b);
}

// Makes a channel whose other end goes to the relay, with the TCP socket.
Opened channel_by_relay(int fd, RelayRequest request, const char* path, const Greeting* greeting) {
  char label[240];
  make_label(label, sizeof label, path, fd);
  Channel::Parts parts;
  Opened made;
  if (!Channel::create(label, parts)) {
    made.error = errno;
    return made;
  }
  made.flags = real().fcntl(fd, F_GETFL);
  made.channel = Channel::attach(parts.memory, 0, parts.pair[0]);
  bool done = made.channel != nullptr;
  if (done) {
    name_channel(fd, *made.channel);
    const int fds[3] = {fd, parts.memory, parts.pair[1]};
    done = ask_relay(request, fds, 3);
  }
  // The greeting fits: nothing else has been sent on this connection.
  if (done && greeting != nullptr) {
    done = real().send(fd, greeting->data(), greeting->size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(greeting->size());
  }
  if (done) {
    made.socket = std::exchange(parts.pair[0], -1);
  } else {
    made.error = errno;
    if (made.channel != nullptr) made.channel->release();
    made.channel = nullptr;
    real().fcntl(fd, F_SETFL, made.flags);
  }
  Channel::discard(parts);
  return made;
}

// Puts it in the place of `fd`, or lets go of it.
bool install(int fd, Conn* conn, Opened opened) WEFT_REQUIRES(table::mutex()) {
  if (opened.channel == nullptr) return false;
  if (replace_by_channel(fd, opened, conn)) return true;
  opened.channel->release();
  real().close(opened.socket);
  return false;
}

// The connection of a client can't go where it shall.
void give_up(int fd, const Conn& conn, const char* reason) WEFT_REQUIRES(table::mutex()) {
  const auto* peer = reinterpret_cast<const sockaddr*>(&conn.peer);
  note_path(fd, "connect", peer, must(conn.way) ? "closed" : "tcp", reason);
  if (must(conn.way)) real().shutdown(fd, SHUT_RDWR);
  table::settle_plain(fd);
}

// The connection of a client is there: now it goes where it shall.
void upgrade_client(int fd, Conn* conn) WEFT_REQUIRES(table::mutex()) {
  unmark(fd, *conn);
  RelayRequest request;
  const bool ring = by_ring(conn->way);
  request.op = ring ? RelayOp::kDeposit : RelayOp::kConnect;
  request.fall_back = must(conn->way) ? 0 : 1;
  request.peer = conn->peer;
  request.peer_length = conn->peer_length;
  if (getrandom(request.token.data(), request.token.size(), 0) !=
      static_cast<ssize_t>(request.token.size())) {
    give_up(fd, *conn, "no random numbers");
    return;
  }
  const char* reason = "no relay, or no descriptors left";
  Secret relay{};
  if (!conn->watchers_lost && relay_name(relay)) {
    const Greeting greeting = make_greeting(relay, request.token);
    const Opened opened =
        channel_by_relay(fd, request, ring ? "ring" : "rdma", ring ? &greeting : nullptr);
    if (install(fd, conn, opened)) return;
    if (opened.error == kDeclinedLately) reason = "the server declined RDMA a moment ago";
  }
  give_up(fd, *conn, reason);
}

// An accepted connection began with a greeting: its other end waits at the client's relay.
Opened join_ring(int fd, const std::uint8_t* greeting) {
  Secret relay;
  RelayRequest request;
  request.op = RelayOp::kClaim;
  std::memcpy(relay.data(), greeting + kMpaHeader + 12, relay.size());
  std::memcpy(request.token.data(), greeting + kMpaHeader + 12 + relay.size(), relay.size());
  int fds[2] = {-1, -1};
  Opened made;
  if (!claim_from(relay, request, fds)) return made;
  made.channel = Channel::attach(fds[0], 1, fds[1]);
  real().close(fds[0]);
  if (made.channel == nullptr) {
    real().close(fds[1]);
    return made;
  }
  made.socket = fds[1];
  made.flags = real().fcntl(fd, F_GETFL);
  name_channel(fd, *made.channel);
  return made;
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
    conn.marked = was_marked(fd);
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
      unmark(fd, *conn);
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

bool replace_by_channel(int fd, const Opened& opened, Conn* conn) {
  if (conn->watchers_lost) return false;
  Channel* channel = opened.channel;
  const int socket = opened.socket;
  const int flags = opened.flags;
  const int descriptor_flags = real().fcntl(fd, F_GETFD);
  const int spare = real().fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const int tcp = spare < 0 ? -1 : table::move_high(spare);
  if (tcp < 0) return false;
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    timeval limit{};
    socklen_t length = sizeof limit;
    if (real().getsockopt(fd, SOL_SOCKET, name, &limit, &length) == 0) {
      real().setsockopt(socket, SOL_SOCKET, name, &limit, length);
    }
  }
  real().fcntl(socket, F_SETFL, O_RDWR | (flags & (O_NONBLOCK | O_ASYNC)));
  for (int i = 0; i < conn->watcher_count; ++i) {
    real().epoll_ctl(conn->watchers[i].epoll, EPOLL_CTL_DEL, fd, nullptr);
  }
  channel->end().nonblocking = (flags & O_NONBLOCK) != 0 ? 1 : 0;
  channel->set_socket(fd);
  conn->channel = channel;
  conn->asynchronous = (flags & O_ASYNC) != 0;
  conn->tcp = tcp;
  // Other numbers of the same socket, made by dup().
  for (int i = 0; conn->refs > 1 && i < table::highest(); ++i) {
    if (i == fd || table::conn_of(i) != conn) continue;
    const int flags_there = real().fcntl(i, F_GETFD);
    real().dup3(socket, i, flags_there & FD_CLOEXEC ? O_CLOEXEC : 0);
    table::put(i, Kind::kChannel, conn);
  }
  real().dup3(socket, fd, descriptor_flags & FD_CLOEXEC ? O_CLOEXEC : 0);
  real().close(socket);
  table::put(fd, Kind::kChannel, conn);
  list::renumber(fd);
  if ((flags & (O_NONBLOCK | O_ASYNC)) != 0 || conn->watcher_count > 0) channel->mirror();
  for (int i = 0; i < conn->watcher_count; ++i) {
    real().epoll_ctl(conn->watchers[i].epoll, EPOLL_CTL_ADD, fd, &conn->watchers[i].event);
  }
  hot::note_watchers(*conn);
  return true;
}

namespace {

// IWARP mode is set, and no rule says tcp.
bool wants_direct(int fd, const sockaddr* address) {
  const table::Lock lock;
  const Conn* conn = table::conn_of(fd);
  if (conn == nullptr || !conn->direct) return false;
  const Rule* rule = settings().rules.find(Role::kConnect, settings().program, address);
  return rule == nullptr || rule->way != RuleWay::kTcp;
}

// The kernel has taken a connect(), `in_progress` or done at once, of a socket that may get a
// channel.
void note_begun(int fd, const sockaddr* address, const Conn* conn, Way way, const char* reason,
                bool in_progress) {
  const table::Lock lock;
  Conn* const now = table::conn_of(fd);
  if (way == Way::kTcp || conn == nullptr || now != conn) {
    table::put(fd, Kind::kPlain, nullptr);
    list::note(fd, "connect", address, "tcp", reason);
    return;
  }
  now->connect_reported = !in_progress;
  table::put(fd, Kind::kConnecting, now);
  list::note(fd, "connect", address, name_of(way), reason);
  advance_connecting(fd);  // on one machine it is there at once
}

int connect_fresh(int fd, const sockaddr* address, socklen_t length) {
  const char* reason = "";
  const Way way = choose_way(address, length, reason);
  tell_why("connect", address, name_of(way), reason);
  Conn* conn = nullptr;
  {
    const table::Lock lock;
    conn = table::conn_of(fd);
    if (way != Way::kTcp && conn != nullptr) {
      conn->way = way;
      std::memcpy(&conn->peer, address, std::min<size_t>(length, sizeof conn->peer));
      conn->peer_length = length;
      mark_syn(fd, *conn, address->sa_family);
    }
  }
  const int result = real().connect(fd, address, length);
  const int error = errno;
  if (result == 0 || error == EINPROGRESS || error == EINTR) {
    note_begun(fd, address, conn, way, reason, result != 0);
  } else if (conn != nullptr) {
    const table::Lock lock;
    if (table::conn_of(fd) == conn) unmark(fd, *conn);
  }
  errno = error;
  return result;
}

int do_connect(int fd, const sockaddr* address, socklen_t length) {
  if (table::kind_of(fd) == Kind::kUnknown) classify(fd);
  const Kind kind = table::kind_of(fd);
  if (kind == Kind::kDirect) return direct::calls().connect(fd, address, length);
  if (kind == Kind::kChannel) {
    const Use use(fd);
    if (use.conn() != nullptr && !std::exchange(use.conn()->connect_reported, true)) return 0;
    return fail_with(EISCONN);
  }
  const bool inet = address != nullptr && length >= sizeof(sockaddr_in) &&
                    (address->sa_family == AF_INET ||
                     (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)));
  if (kind == Kind::kConnecting) {
    const int result = real().connect(fd, address, length);
    const int error = errno;
    advance_connecting(fd);
    errno = error;
    return result;
  }
  if (kind != Kind::kFresh || !inet) return real().connect(fd, address, length);
  if (wants_direct(fd, address)) return direct::connect(fd, address, length);
  return connect_fresh(fd, address, length);
}

int do_accept(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (table::kind_of(fd) == Kind::kUnknown) classify(fd);
  const int accepted = real().accept4(fd, address, length, flags);
  if (accepted < 0) return accepted;
  if (table::kind_of(fd) != Kind::kListener) {
    table::forget(accepted);
    return accepted;
  }
  {
    const table::Lock lock;
    Conn* conn = table::make_conn();
    if (conn != nullptr) conn->connect_reported = true;  // there is nothing to connect
    const Conn* listener = table::conn_of(fd);
    if (conn != nullptr) conn->direct = listener != nullptr && listener->direct;
    table::put(accepted, conn != nullptr ? Kind::kUndecided : Kind::kPlain, conn);
  }
  // Most clients of this machine have greeted by now.
  static_cast<void>(decide(accepted, false));
  return accepted;
}

}  // namespace
}  // namespace weft::sockets

using namespace weft::sockets;

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

// For `weft run --rules`: 0, or what is wrong with the file in `why`.
WEFT_EXPORT int weft_sockets_check_rules(const char* path, char* why, size_t size) {
  static Rules rules;
  return rules.load(path, why, size) ? 0 : -1;
}

WEFT_EXPORT int socket(int domain, int type, int protocol) {
  const int fd = real().socket(domain, type, protocol);
  if (fd < 0) return fd;
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xf) == SOCK_STREAM &&
                   (protocol == 0 || protocol == IPPROTO_TCP);
  if (tcp && preload_active()) {
    note_fresh(fd);
  } else {
    const table::Lock lock;
    table::put(fd, Kind::kPlain, nullptr);
  }
  return fd;
}

WEFT_EXPORT int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
  return do_connect(fd, address, length);
}

WEFT_EXPORT int listen(int fd, int backlog) {
  const int result = real().listen(fd, backlog);
  if (result == 0) begin_listening(fd);
  return result;
}

WEFT_EXPORT int accept4(int fd, __SOCKADDR_ARG address, socklen_t* length, int flags) {
  return do_accept(fd, address, length, flags);
}

WEFT_EXPORT int accept(int fd, __SOCKADDR_ARG address, socklen_t* __restrict length) {
  return do_accept(fd, address, length, 0);
}
