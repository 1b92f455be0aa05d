// IWARP mode (<weft/sockets.h>): sockets that Weft's librdmacm.so.1 serves inside the program, as
// rsockets under their own numbers. The program's calls go to the r* functions, and those call the
// C library through this one.
#include "sockets/preload/preload_direct.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <weft/sockets.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sockets/preload/preload.h"
#include "sockets/preload/preload_epoll.h"
#include "sockets/preload/preload_settings.h"
#include "sockets/preload/preload_setup.h"
#include "sockets/preload/socket_list.h"

namespace weft::sockets::direct {
namespace {

struct Library {
  RealCalls inner;  // the r* functions
  RealCalls calls;  // the same, entered
  int (*adopt)(int);
  int (*alias)(int, int);
  int (*answer)(int);
  int (*close)(int);
  int (*poll)(pollfd*, rsockets::RsSeen*, nfds_t, const timespec*, const sigset_t*);
  int (*fcntl)(int, int, ...);
  bool whole = true;
};

template <class Function>
void find(void* handle, Library& library, Function& out, const char* name) {
  out = handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
  library.whole = library.whole && out != nullptr;
}

const Library& library();

// One of the r* functions, with this thread inside.
template <auto kMember>
struct Enter;
template <class Result, class... Arguments, Result (*RealCalls::*kMember)(Arguments...)>
struct Enter<kMember> {
  static Result call(Arguments... arguments) {
    const Inside inside;
    return (library().inner.*kMember)(arguments...);
  }
};

#define WEFT_ENTER(name)        \
  get(l.inner.name, "r" #name); \
  l.calls.name = &Enter<&RealCalls::name>::call

Library load() {
  Library l;
  l.inner = l.calls = real();
  void* handle = dlopen("librdmacm.so.1", RTLD_NOW);
  const auto get = [&](auto& out, const char* name) { find(handle, l, out, name); };
  get(l.adopt, "weft_rsocket_adopt");
  get(l.alias, "weft_rsocket_alias");
  get(l.answer, "weft_rsocket_answer");
  get(l.close, "rclose");
  get(l.poll, "weft_rsocket_poll");
  get(l.fcntl, "rfcntl");
  WEFT_ENTER(connect);
  WEFT_ENTER(shutdown);
  WEFT_ENTER(getsockname);
  WEFT_ENTER(getpeername);
  WEFT_ENTER(setsockopt);
  WEFT_ENTER(getsockopt);
  WEFT_ENTER(recv);
  WEFT_ENTER(recvfrom);
  WEFT_ENTER(recvmsg);
  WEFT_ENTER(send);
  WEFT_ENTER(sendto);
  WEFT_ENTER(sendmsg);
  WEFT_ENTER(read);
  WEFT_ENTER(readv);
  WEFT_ENTER(write);
  WEFT_ENTER(writev);
  return l;
}
#undef WEFT_ENTER

// Without locks held: the library's own threads come here, too.
const Library& library() {
  static const Library the = load();
  return the;
}

// The mark of a SYN, while it may be sent. A connect that does not wait keeps it.
class TosMark {
 public:
  TosMark(int fd, int family)
      : fd_(fd),
        level_(family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6),
        name_(family == AF_INET ? IP_TOS : IPV6_TCLASS) {
    socklen_t length = sizeof before_;
    set_ = real().getsockopt(fd_, level_, name_, &before_, &length) == 0 &&
           real().setsockopt(fd_, level_, name_, &kSynMark, sizeof kSynMark) == 0;
    waits_ = (real().fcntl(fd_, F_GETFL) & O_NONBLOCK) == 0;
  }
  ~TosMark() {
    const int error = errno;
    if (set_ && waits_) real().setsockopt(fd_, level_, name_, &before_, sizeof before_);
    errno = error;
  }
  TosMark(const TosMark&) = delete;
  TosMark& operator=(const TosMark&) = delete;

 private:
  const int fd_;
  const int level_;
  const int name_;
  int before_ = 0;
  bool set_ = false;
  bool waits_ = false;
};

bool connected_tcp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  return real().getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         protocol == IPPROTO_TCP &&
         real().getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) == 0;
}

// A connection on its way to be the library's. Meanwhile other threads wait that touch one of its
// numbers, and no epoll instance watches it.
class Turn {
 public:
  explicit Turn(int fd) : fd_(fd) {
    const table::Lock lock;
    Conn* conn = table::conn_of(fd);
    if (conn == nullptr) {
      table::put(fd, Kind::kTurning, nullptr);
      return;
    }
    lost_ = conn->watchers_lost;
    watchers_.assign(conn->watchers, conn->watchers + conn->watcher_count);
    for (const Watcher& one : watchers_) {
      real().epoll_ctl(one.epoll, EPOLL_CTL_DEL, fd, nullptr);
    }
    for (int i = 0; conn->refs > 1 && i < table::highest(); ++i) {
      if (i == fd || table::conn_of(i) != conn) continue;
      others_.push_back(i);
      table::put(i, Kind::kTurning, nullptr);
    }
    table::put(fd, Kind::kTurning, nullptr);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // More epoll instances watch it than are known.
  [[nodiscard]] bool lost() const { return lost_; }

  // It is the library's now, or (kPlain) the kernel's.
  void end(Kind kind) {
    if (kind == Kind::kDirect) {
      for (const int other : others_) static_cast<void>(library().alias(fd_, other));
    }
    const table::Lock lock;
    for (const int other : others_) table::put(other, kind, nullptr);
    table::put(fd_, kind, nullptr);
    for (Watcher& one : watchers_) {
      static_cast<void>(kind == Kind::kDirect
                            ? epolls::control(one.epoll, EPOLL_CTL_ADD, fd_, &one.event)
                            : real().epoll_ctl(one.epoll, EPOLL_CTL_ADD, fd_, &one.event));
    }
    table::turned();
  }

 private:
  const int fd_;
  bool lost_ = false;
  std::vector<int> others_;
  std::vector<Watcher> watchers_;
};

void note(int fd, const char* role, const sockaddr* peer, const char* path, const char* reason) {
  const table::Lock lock;
  note_path(fd, role, peer, path, reason);
}

}  // namespace

const RealCalls& calls() { return library().calls; }

int set_mode(int fd, const void* value, socklen_t length) {
  int on = 0;
  if (value == nullptr) return fail_with(EFAULT);
  if (length < sizeof on) return fail_with(EINVAL);
  std::memcpy(&on, value, sizeof on);
  Kind kind = table::kind_of(fd);
  if (kind == Kind::kUnknown) kind = classify(fd);
  if (kind != Kind::kFresh && kind != Kind::kListener) {
    if (kind == Kind::kDirect && on != 0) return 0;
    return fail_with(kind == Kind::kPlain && !connected_tcp(fd) ? ENOPROTOOPT : EISCONN);
  }
  if (!library().whole) return fail_with(EOPNOTSUPP);
  const table::Lock lock;
  Conn* conn = table::conn_of(fd);
  if (conn == nullptr) return fail_with(ENOMEM);
  conn->direct = on != 0;
  return 0;
}

int get_mode(int fd, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return fail_with(EFAULT);
  // An accepted connection is decided now, as if the program were about to speak.
  const Kind kind = table::kind_of(fd) == Kind::kUnknown ? classify(fd) : resolve(fd, true);
  int on = kind == Kind::kDirect ? 1 : 0;
  if (kind == Kind::kFresh || kind == Kind::kListener) {
    const table::Lock lock;
    const Conn* conn = table::conn_of(fd);
    on = conn != nullptr && conn->direct ? 1 : 0;
  }
  *length = std::min<socklen_t>(*length, sizeof on);
  std::memcpy(value, &on, *length);
  return 0;
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  const Inside inside;
  Turn turn(fd);
  if (turn.lost() || library().adopt(fd) != 0) {
    const int error = turn.lost() ? EOPNOTSUPP : errno;
    turn.end(Kind::kPlain);
    return fail_with(error);
  }
  // As for any client that will ask, so that a server which speaks first waits for the question.
  const TosMark mark(fd, address->sa_family);
  note(fd, "connect", address, "rdma", "the program asked for it: WEFT_MODE");
  turn.end(Kind::kDirect);
  return library().calls.connect(fd, address, length);
}

// The analysis does not know locks that are passed on.
void accept(int fd, table::Lock& lock) WEFT_NOT_ANALYZED {
  const Inside inside;
  Turn turn(fd);
  lock.unlock();
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  const auto* peer = reinterpret_cast<const sockaddr*>(&name);
  real().getpeername(fd, reinterpret_cast<sockaddr*>(&name), &length);
  if (!turn.lost() && library().answer(fd) == 0) {
    note(fd, "accept", peer, "rdma", "program and client asked for it: WEFT_MODE");
    turn.end(Kind::kDirect);
    return;
  }
  note(fd, "accept", peer, "closed", "the client asked for RDMA, and its request failed");
  real().shutdown(fd, SHUT_RDWR);
  turn.end(Kind::kPlain);
}

int close(int fd) {
  table::forget(fd);
  if (epolls::any()) epolls::forget(fd);
  const Inside inside;
  return library().close(fd);
}

int poll(pollfd* fds, rsockets::RsSeen* seen, nfds_t count, const timespec* limit,
         const sigset_t* mask) {
  const Inside inside;
  return library().poll(fds, seen, count, limit, mask);
}

bool copy(int from, int to) { return library().alias(from, to) == 0; }

int fcntl(int fd, int command, long value) {
  const Inside inside;
  return library().fcntl(fd, command, value);
}

}  // namespace weft::sockets::direct
