#include "sockets/iwarp/direct.h"

#include <sys/socket.h>

#include <cassert>
#include <cerrno>
#include <vector>

#include "sockets/iwarp/direct_library.h"
#include "sockets/iwarp/iwarp.h"
#include "sockets/iwarp/iwarp_members.h"
#include "sockets/iwarp/syn_mark.h"
#include "sockets/socket_settings.h"

namespace weft::sockets::iwarp::direct {
namespace {

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
    assert(conn->watcher_count >= 0 && conn->watcher_count <= Conn::kWatchers);
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

  // It is the library's now, or (kOther) the kernel's.
  void end(Kind kind) {
    assert(kind == Kind::kDirect || kind == Kind::kOther);
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

// The library of the granted way keeps its rings from it, and `weft stat` tells of it.
void note_direct(int fd) {
  static const auto next = reinterpret_cast<void (*)(int)>(real_symbol("weft_sockets_by_rdma"));
  if (next != nullptr) next(fd);
}

}  // namespace

int connect(int fd, const sockaddr* address, socklen_t length) {
  const Inside inside;
  Turn turn(fd);
  if (turn.lost() || library().adopt(fd) != 0) {
    const int error = turn.lost() ? EOPNOTSUPP : errno;
    turn.end(Kind::kOther);
    return fail_with(error);
  }
  // As for any client that will ask, so that a server which speaks first waits for the question.
  const TosMark mark(fd, address->sa_family);
  note_direct(fd);
  turn.end(Kind::kDirect);
  return library().calls.connect(fd, address, length);
}

// The analysis does not know locks that are passed on.
void accept(int fd, table::Lock& lock) WEFT_NOT_ANALYZED {
  const Inside inside;
  Turn turn(fd);
  lock.unlock();
  if (!turn.lost() && library().answer(fd) == 0) {
    note_direct(fd);
    turn.end(Kind::kDirect);
    return;
  }
  tell_why(fd, "accept", "closed", "the client asked for RDMA, and its request failed");
  real().shutdown(fd, SHUT_RDWR);
  turn.end(Kind::kOther);
}

int close(int fd) {
  table::forget(fd);
  if (epolls::any()) epolls::forget(fd);
  const Inside inside;
  return library().close(fd);
}

}  // namespace weft::sockets::iwarp::direct
