// The thread that accepts for listeners, and answers the Requests of connects.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <thread>
#include <unordered_map>

#include "base/splice_if.h"
#include "ibverbs/errors.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "os/signals_blocked.h"
#include "rsockets/rsocket.h"
#include "rsockets/rsocket_fork.h"

namespace weft::rsockets {
namespace {

using ibverbs::errno_of;

// The service thread: accepts TCP connections and answers their Requests, so that a client is
// connected before raccept() is called. A slow client delays nobody (hazard H10). A child of fork()
// has a Service of its own, without the parent's listeners.
class Service {
 public:
  [[nodiscard]] bool add(const RsocketPtr& socket) {
    const os::MutexLock lock(mutex_);
    if (!start()) return false;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket->fd;
    // A listener must not block the thread; the program's own mode is kept in the Rsocket.
    fcntl(socket->fd, F_SETFL, fcntl(socket->fd, F_GETFL) | O_NONBLOCK);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket->fd, &event) != 0) return false;
    listeners_[socket->fd] = {socket};
    return true;
  }

  // Answers what comes over the socket itself, which the program has accepted. False with errno.
  [[nodiscard]] bool answer(const RsocketPtr& socket) {
    const os::MutexLock lock(mutex_);
    if (!start()) return false;
    // Those whose Requests are there wait for nobody but this side, which may be late.
    if (pending_.size() >= kPendingMax) advance();
    if (pending_.size() >= kPendingMax) drop_oldest();
    auto begun = begin(socket->fd, socket->options);
    if (begun == nullptr) return false;
    pending_.push_back({socket, os::Fd(), std::move(begun)});
    os::raise_event(wake_.get());
    return true;
  }

  // A listener's backlog has room again.
  void go_on() {
    const os::MutexLock lock(mutex_);
    os::raise_event(wake_.get());
  }

  void remove(const RsocketPtr& socket) {
    std::list<Pending> gone;
    const os::MutexLock lock(mutex_);
    const auto found = listeners_.find(socket->fd);
    if (found == listeners_.end() || found->second.socket != socket) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket->fd, nullptr);
    listeners_.erase(found);
    gone = splice_if(pending_, [&](const Pending& one) { return one.owner == socket; });
  }

 private:
  struct Listening {
    RsocketPtr socket;
    bool watched = true;  // else its backlog is full: the kernel keeps what comes
  };
  struct Pending {
    RsocketPtr owner;  // a listener; or, without `fd`, the accepted socket itself
    os::Fd fd;         // closed in a child of fork(): not the program's number yet
    std::unique_ptr<RsIncoming> incoming;
  };
  static constexpr std::size_t kPendingMax = 1024;
  static constexpr int kAcceptsPerTurn = 64;
  static constexpr int kTickMs = 1000;  // how often overdue Requests are looked for

  bool start() WEFT_REQUIRES(mutex_) {
    if (started_) return true;
    if (!epoll_) epoll_ = os::Fd::closed_in_child(epoll_create1(EPOLL_CLOEXEC));
    if (!wake_) wake_ = os::Fd::closed_in_child(os::make_event().release());
    if (!epoll_ || !wake_) return false;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = wake_.get();
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
    started_ = true;
    os::start_thread([this] { run(); }).detach();
    return true;
  }

  void run() {
    for (;;) {
      epoll_event events[16];
      const int count = epoll_wait(epoll_.get(), events, 16, idle() ? -1 : kTickMs);
      const os::MutexLock lock(mutex_);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.fd == wake_.get()) {
          (void)os::lower_event(wake_.get());
        } else if (const auto at = listeners_.find(events[i].data.fd); at != listeners_.end()) {
          accept_from(at->second);
        }
      }
      advance();
      for (auto& [fd, one] : listeners_) {
        if (!one.watched && takes_more(*one.socket)) watch(one, true);
      }
    }
  }

  bool idle() {
    const os::MutexLock lock(mutex_);
    return pending_.empty();
  }

  // At most kAcceptsPerTurn, so that others get the mutex.
  void accept_from(Listening& from) WEFT_REQUIRES(mutex_) {
    const RsocketPtr& listener = from.socket;
    if (!takes_more(*listener)) return watch(from, false);
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      if (pending_.size() >= kPendingMax) drop_oldest();
      auto fd = os::Fd::closed_in_child(accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd) {
        if (errno == EMFILE || errno == ENFILE) usleep(10000);  // else this would spin
        return;
      }
      auto begun = begin(fd.get(), listener->options);
      if (begun == nullptr) continue;
      pending_.push_back({listener, std::move(fd), std::move(begun)});
    }
  }

  void watch(Listening& one, bool on) {
    epoll_event event{};
    event.events = on ? EPOLLIN : 0U;
    event.data.fd = one.socket->fd;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, one.socket->fd, &event);
    one.watched = on;
  }

  // Those that have asked count, whether answered or not. Silent ones must not keep others out.
  bool takes_more(Rsocket& listener) WEFT_REQUIRES(mutex_) {
    return has_room(listener, std::ranges::count_if(pending_, [&](const Pending& one) {
                      return one.owner.get() == &listener && one.incoming->asked();
                    }));
  }
  // One with an answer is connected, and must not be dropped later.
  bool may_answer(const Pending& asking) WEFT_REQUIRES(mutex_) {
    if (!asking.fd) return true;  // accepted already
    if (!asking.incoming->asked() || asking.incoming->answered()) return false;
    return has_room(*asking.owner, std::ranges::count_if(pending_, [&](const Pending& one) {
      return one.owner == asking.owner && one.incoming->answered();
    }));
  }
  // For one more than `coming`. False: raccept() will say when there is.
  static bool has_room(Rsocket& listener, std::ptrdiff_t coming) {
    const RsLock lock(listener.mutex);
    // As the kernel's queue, which takes one more than the program has said.
    if (listener.ready.size() + static_cast<std::size_t>(coming) <= listener.backlog) return true;
    listener.full = true;
    return false;
  }

  // Null with errno.
  std::unique_ptr<RsIncoming> begin(int fd, const RsOptions& options) {
    auto device = rsocket_device();
    if (device == nullptr) return nullptr;
    const int engines = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (engines < 0) return nullptr;
    auto begun = RsIncoming::start(std::move(device), engines, options,
                                   [wake = wake_.get()] { os::raise_event(wake); });
    if (begun) return std::move(*begun);
    errno = errno_of(begun.error());
    return nullptr;
  }

  // Silent ones must not keep others out.
  void drop_oldest() WEFT_REQUIRES(mutex_) {
    auto oldest =
        std::ranges::find_if(pending_, [](const Pending& one) { return !one.incoming->asked(); });
    if (oldest == pending_.end()) oldest = pending_.begin();
    refuse(*oldest);
    pending_.erase(oldest);
  }

  void advance() WEFT_REQUIRES(mutex_) {
    for (auto at = pending_.begin(); at != pending_.end();) {
      const RsIncoming::Step step = at->incoming->advance(may_answer(*at));
      if (step == RsIncoming::Step::kWaiting) {
        ++at;
        continue;
      }
      if (step == RsIncoming::Step::kFailed) {
        refuse(*at);
      } else if (!at->fd) {
        complete(*at);
      } else {
        deliver(*at);
      }
      at = pending_.erase(at);
    }
  }

  void refuse(Pending& one) {
    if (one.fd) return one.fd.reset();
    Rsocket& socket = *one.owner;
    const RsLock lock(socket.mutex);
    if (socket.state != RsState::kConnecting) return;  // closed: the number may be another's
    socket.advance(RsEvent::kFailed);
    socket.so_error = ECONNRESET;
    // Not by shutdown(): under `weft run --sockets` that comes back here, as rshutdown().
    syscall(SYS_shutdown, socket.fd, SHUT_RDWR);
    os::raise_event(socket.wake.get());
  }

  void complete(Pending& one) {
    Rsocket& socket = *one.owner;
    auto link = one.incoming->connection();
    link->on_report({});
    const RsLock lock(socket.mutex);
    if (socket.state != RsState::kConnecting) return;
    link->on_report([wake = socket.wake.get()] { os::raise_event(wake); });
    socket.link = std::move(link);
    socket.advance(RsEvent::kConnected);
    os::raise_event(socket.wake.get());
  }

  void deliver(Pending& one) {
    Rsocket& listener = *one.owner;
    auto link = one.incoming->connection();
    link->on_report({});
    const RsLock lock(listener.mutex);
    if (listener.state != RsState::kListening) return one.fd.reset();  // nobody will accept it
    listener.ready.push_back({std::move(one.fd), std::move(link)});
    os::raise_event(listener.wake.get());
  }

  os::Mutex mutex_;
  bool started_ WEFT_GUARDED_BY(mutex_) = false;
  os::Fd epoll_;
  os::Fd wake_;
  std::unordered_map<int, Listening> listeners_ WEFT_GUARDED_BY(mutex_);
  std::list<Pending> pending_ WEFT_GUARDED_BY(mutex_);
};

// Never destroyed: its thread runs to the very end.
Service* g_service = new Service;

}  // namespace

bool start_listening(const RsocketPtr& socket) { return g_service->add(socket); }

bool start_answering(const RsocketPtr& socket) {
  {
    const RsLock lock(socket->mutex);
    // Another thread may have closed its number already; the service sees that.
    static_cast<void>(socket->on(RsEvent::kAnswers));
  }
  return g_service->answer(socket);
}

void go_on_accepting() { g_service->go_on(); }

void renew_service() { g_service = new Service; }

void stop_listening(const RsocketPtr& socket) {
  {
    const RsLock lock(socket->mutex);
    if (socket->state != RsState::kListening) return;
    socket->advance(RsEvent::kClosed);
  }
  g_service->remove(socket);
  const RsLock lock(socket->mutex);
  os::raise_event(socket->wake.get());  // threads in raccept() learn of it
  socket->ready.clear();
}

}  // namespace weft::rsockets
