#include "exs/api/exs_api.h"

#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <system_error>
#include <utility>

#include "exs/core/checked_memory.h"
#include "os/cancel.h"
#include "os/lock.h"

namespace weft::exs {
namespace {

bool same_file(const Socket& socket) {
  struct stat now {};
  return ::fstat(socket.fd, &now) == 0 && now.st_ino == socket.inode;
}

// False: there is none, or the application has closed it and the number names something else now.
bool is_current(const std::shared_ptr<Socket>& socket) {
  return socket != nullptr && (!socket->foreign || same_file(*socket));
}

// The application has closed it.
void forget(Socket& socket) {
  const os::MutexLock lock(socket.mutex);
  socket.descriptor_lost = true;
  socket.provider = nullptr;
  socket.end.close();
  socket.failed(EBADF);
  socket.closed(0);
}

int int_option(int fd, int level, int name, int otherwise) {
  int value = otherwise;
  socklen_t length = sizeof value;
  return ::getsockopt(fd, level, name, &value, &length) == 0 ? value : otherwise;
}

// A plain socket becomes one of ours; it stays the application's too.
std::shared_ptr<Socket> take_in(int fd) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return nullptr;
  if (!S_ISSOCK(file.st_mode)) {
    errno = ENOTSOCK;
    return nullptr;
  }
  const int domain = int_option(fd, SOL_SOCKET, SO_DOMAIN, -1);
  if ((domain != AF_INET && domain != AF_INET6) ||
      int_option(fd, SOL_SOCKET, SO_TYPE, -1) != SOCK_STREAM) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto socket = std::make_shared<Socket>(fd, domain, Kind::kStream);
  const os::MutexLock lock(socket->mutex);
  socket->foreign = true;
  socket->inode = file.st_ino;
  socket->nonblocking = (::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
  auto tcp = std::make_unique<TcpSocket>(*socket);
  Address peer;
  if (int_option(fd, SOL_SOCKET, SO_ACCEPTCONN, 0) != 0) {
    socket->advance(StateEvent::kTakenListener);
  } else if (tcp->peer(peer) == 0) {
    socket->advance(StateEvent::kTakenOrAccepted);
  }
  if (socket->state != State::kNew && tcp->adopt() != 0) return nullptr;
  socket->provider = std::move(tcp);
  Engine::instance().add(socket);
  return socket;
}

bool provider_from_environment(int& out) {
  const char* wanted = std::getenv("EXS_PROVIDER");
  if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "auto") == 0) return true;
  if (std::strcmp(wanted, "rdma") == 0) {
    out = EXS_PROVIDER_RDMA;
  } else if (std::strcmp(wanted, "tcp") == 0) {
    out = EXS_PROVIDER_TCP;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int refuse(const std::exception& thrown) {
  const auto* system = dynamic_cast<const std::system_error*>(&thrown);
  return fail(system != nullptr ? system->code().value() : ENOMEM);
}

std::shared_ptr<Socket> socket_of(int fd) {
  if (!initialized()) {
    errno = EINVAL;
    return nullptr;
  }
  Engine& engine = Engine::instance();
  const auto found = engine.find(fd);
  if (is_current(found)) return found;
  // Once more: another thread may just have taken it in.
  const os::MutexLock one_at_a_time(engine.take_in_mutex);
  const auto former = engine.find(fd);
  if (is_current(former)) return former;
  if (former != nullptr) forget(*former);
  return take_in(fd);
}

Outlet::Outlet(exs_qhandle_t q) : blocking(q == EXS_QHANDLE_INVALID) {
  thread_local const auto own = std::make_shared<EventQueue>(16);
  if (blocking) {
    assert(own->waiting() == 0);
    queue = own;
    queue->attach();
  } else {
    queue = Engine::instance().queues.find(q, [](EventQueue& found) { found.attach(); });
  }
  attached_ = queue != nullptr;
}

namespace {

exs_event_t next_event(const Outlet& outlet) {
  exs_event_t event{};
  while (outlet.queue->pop(&event, 1) == 0) {
    // A signal does not end a call whose data is under way.
    Engine::instance().wait(*outlet.queue, 1, Instant::max(), EXS_WAIT_ADAPTIVE);
  }
  return event;
}

// The same as take_back(), with the socket's mutex.
void end_held(Socket& socket, const Outlet& outlet) {
  const auto named = [&](const Operation& op) { return op.queue == outlet.queue; };
  auto& accepts = socket.ops.accepts;
  const auto accept = std::ranges::find_if(accepts, named);
  if (accept != accepts.end()) socket.finish(accepts, accept, ECANCELED, 0);
  for (auto* list : {&socket.ops.sends, &socket.ops.receives}) {
    for (Operation& op : *list) {
      // A call that does not block stays for what it fetches, which is there in a moment.
      if (named(op) && !(op.now && op.fetching)) op.cancellation.want();
    }
  }
  if (socket.provider != nullptr) socket.guarded([&] { socket.provider->cancel(); });
}

// The operation whose event goes to `outlet` ends as soon as it can.
void take_back(Socket& socket, const Outlet& outlet) {
  {
    const os::MutexLock lock(socket.mutex);
    end_held(socket, outlet);
  }
  posted();
}

// For the stack of a thread that is cancelled in its wait: the operation names memory, which is
// nobody's any more once the thread has gone.
class Unwinding {
 public:
  Unwinding(Socket& socket, const Outlet& outlet) : socket_(socket), outlet_(outlet) {}
  ~Unwinding() {
    if (ended_) return;
    take_back(socket_, outlet_);
    const exs_event_t event = next_event(outlet_);
    if (event.type != EXS_EVT_ACCEPT || event.error != 0) return;
    std::deque<Arrival> unwanted(1);
    unwanted.front().socket = Engine::instance().find(event.u.accept.fd);
    if (unwanted.front().socket != nullptr) close_arrivals(std::move(unwanted));
  }
  Unwinding(const Unwinding&) = delete;
  Unwinding& operator=(const Unwinding&) = delete;
  void ended() { ended_ = true; }

 private:
  Socket& socket_;
  const Outlet& outlet_;
  bool ended_ = false;
};

}  // namespace

exs_event_t wait_for_event(const std::shared_ptr<Socket>& socket, const Outlet& outlet,
                           Clock::duration limit) {
  assert(outlet.blocking);
  const bool limited = limit != Clock::duration::zero();
  Unwinding unwinding(*socket, outlet);
  const Instant until = limited ? Clock::now() + limit : Instant::max();
  while (outlet.queue->waiting() == 0 && Clock::now() < until) {
    Engine::instance().wait(*outlet.queue, 1, until, EXS_WAIT_ADAPTIVE);
  }
  const bool late = outlet.queue->waiting() == 0;
  if (late) take_back(*socket, outlet);
  exs_event_t event = next_event(outlet);
  unwinding.ended();
  if (late && event.error == ECANCELED) event.error = ETIMEDOUT;
  return event;
}

void end_now(Socket& socket, const Outlet& outlet) {
  assert(outlet.blocking);
  if (outlet.queue->waiting() == 0) end_held(socket, outlet);
}

exs_event_t wait_for_end(const Outlet& outlet) {
  assert(outlet.blocking);
  const os::NoCancel guard;
  return next_event(outlet);
}

namespace {

// Memory of the operation's own needs no check: an atomic's value.
int check_piece(const Operation& op, const void* base, std::size_t length) {
  if (op.type == EXS_EVT_FETCHADD || op.type == EXS_EVT_CMPSWAP) return 0;
  return check_memory(base, length, fills_memory(op.type));
}

}  // namespace

int add_piece(Operation& op, void* base, std::size_t length, exs_mhandle_t mh) {
  Piece piece;
  piece.base = static_cast<std::uint8_t*>(base);
  piece.length = length;
  if (mh != EXS_MHANDLE_UNREGISTERED) {
    piece.region = Engine::instance().regions.find(mh, [](Region& region) { region.attach(); });
    if (piece.region == nullptr) return EINVAL;
    if (!piece.region->covers(base, length)) {
      piece.region->detach();
      return EFAULT;
    }
  } else if (base == nullptr && length != 0) {
    return EFAULT;
  }
  if (const int error = check_piece(op, base, length); error != 0) {
    if (piece.region != nullptr) piece.region->detach();
    return error;
  }
  assert(op.pieces.size() < kSegmentsMax && op.done == 0);
  op.total += length;
  op.pieces.push_back(std::move(piece));
  return 0;
}

int choose_provider(Socket& socket) {
  if (socket.provider != nullptr) return 0;
  Engine& engine = Engine::instance();
  int wanted = socket.settings.provider;
  if (wanted == EXS_PROVIDER_AUTO && !provider_from_environment(wanted)) return EINVAL;
  socket.settings.provider = wanted;
  if (wanted == EXS_PROVIDER_RDMA && !engine.has_rdma()) return ENODEV;
  if (wanted != EXS_PROVIDER_TCP && engine.has_rdma()) {
    socket.provider = std::make_unique<RdmaSocket>(socket);
  } else {
    socket.provider = std::make_unique<TcpSocket>(socket);
  }
  return 0;
}

RdmaSocket* rdma_of(Socket& socket) {
  if (socket.state != State::kConnected || socket.peer_gone) {
    errno = ENOTCONN;
    return nullptr;
  }
  assert(socket.provider != nullptr);
  if (!socket.provider->is_rdma()) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return static_cast<RdmaSocket*>(socket.provider.get());
}

}  // namespace weft::exs
