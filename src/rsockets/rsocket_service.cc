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
#include "os/clock.h"
#include "os/descriptor_limit.h"
#include "os/event_fd.h"
#include "os/lock.h"
#include "os/signals_blocked.h"
#include "rsockets/rs_thrown.h"
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
    listeners_[socket->fd] = {socket};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket->fd, &event) == 0) return true;
    listeners_.erase(socket->fd);
    return false;
  }

  // Answers what comes over the socket itself, which the program has accepted. False with errno.
  [[nodiscard]] bool answer(const RsocketPtr& socket) {
    const os::MutexLock lock(mutex_);
    if (!start()) return false;
    // Those whose Requests are there wait for nobody but this side, which may be late.
    if (accepted_ones() >= kPendingMax) advance();
    if (accepted_ones() >= kPendingMax) drop_oldest();
    os::Fd engines(fcntl(socket->fd, F_DUPFD_CLOEXEC, 0));
    while (!engines && out_of_descriptors() && drop_silent({})) {
      engines = os::Fd(fcntl(socket->fd, F_DUPFD_CLOEXEC, 0));
    }
    if (!engines) return false;
    auto begun = begin(std::move(engines), socket->options);
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
    bool watched = true;  // else nobody can be accepted now: the kernel keeps what comes
  };
  struct Pending {
    RsocketPtr owner;  // a listener; or, without `fd`, the accepted socket itself
    os::Fd fd;         // closed in a child of fork(): not the program's number yet
    std::unique_ptr<RsIncoming> incoming;
    Instant since = os::now();
  };
  static constexpr std::size_t kPendingMax = 1024;
  static constexpr std::size_t kPendingMin = 8;
  static constexpr int kAcceptsPerTurn = 64;
  static constexpr int kTickMs = 1000;  // how often overdue Requests are looked for
  // Where there is no room for more, a client has this long for its Request.
  static constexpr Duration kPatience{250'000'000};
  static constexpr int kCrowdedTickMs = 50;

  // A listener's. Each takes two descriptors: the program keeps half of those that it may have.
  static std::size_t pending_max() {
    return std::clamp<std::size_t>(os::descriptor_limit() / 4, kPendingMin, kPendingMax);
  }
  // A listener has so many clients on their way behind their answers, beside those that are ready:
  // one that says no more takes no place of those.
  static constexpr std::size_t kComingMin = 64;
  static bool out_of_descriptors() { return errno == EMFILE || errno == ENFILE; }

  bool start() WEFT_REQUIRES(mutex_) {
    if (started_) return true;
    if (!epoll_) epoll_ = os::Fd::closed_in_child(epoll_create1(EPOLL_CLOEXEC));
    if (!wake_) wake_ = os::Fd::closed_in_child(os::make_event().release());
    if (!epoll_ || !wake_) return false;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = wake_.get();
    const int added = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
    if (added != 0 && errno != EEXIST) return false;  // there since a thread could not be started
    os::start_thread([this] { run(); }).detach();
    started_ = true;
    return true;
  }

  void run() {
    for (;;) {
      epoll_event events[16];
      const int count = epoll_wait(epoll_.get(), events, 16, patience_ms());
      const os::MutexLock lock(mutex_);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.fd == wake_.get()) {
          (void)os::lower_event(wake_.get());
        } else if (const auto at = listeners_.find(events[i].data.fd); at != listeners_.end()) {
          accept_from(at->second);
        }
      }
      crowded_ = false;
      advance();
      for (auto& [fd, one] : listeners_) {
        if (!one.watched && takes_more(*one.socket)) accept_from(one);
      }
    }
  }

  int patience_ms() {
    const os::MutexLock lock(mutex_);
    if (crowded_) return kCrowdedTickMs;
    return pending_.empty() ? -1 : kTickMs;
  }

  // At most kAcceptsPerTurn, so that others get the mutex. Afterwards it is watched, or somebody
  // will say, or time, when to go on.
  void accept_from(Listening& from) WEFT_REQUIRES(mutex_) {
    const RsocketPtr& listener = from.socket;
    if (!takes_more(*listener)) return watch(from, false);
    // Nobody waits any more: without descriptors accept4() would not say so.
    pollfd waits{listener->fd, POLLIN, 0};
    if (!from.watched && poll(&waits, 1, 0) == 0) return watch(from, true);
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      // Its descriptor for the engine before the client: else that would have to be refused.
      os::Fd engines = make_room() ? os::Fd(fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0)) : os::Fd();
      os::Fd fd;
      if (engines) {
        fd = os::Fd::closed_in_child(accept4(listener->fd, nullptr, nullptr, SOCK_CLOEXEC));
      }
      if (!fd && engines && errno == EAGAIN) break;
      if (!fd) {
        if (drop_silent(kPatience)) continue;
        crowded_ = true;
        return watch(from, false);
      }
      dup3(fd.get(), engines.get(), O_CLOEXEC);
      take(listener, std::move(fd), std::move(engines));
    }
    watch(from, true);
  }

  // A client of whom this side cannot take care is refused.
  void take(const RsocketPtr& listener, os::Fd fd, os::Fd engines) WEFT_REQUIRES(mutex_) {
    try {
      auto begun = begin(std::move(engines), listener->options);
      if (begun != nullptr) pending_.push_back({listener, std::move(fd), std::move(begun)});
    } catch (const std::exception&) {
      return;  // no memory
    }
  }

  // For one more. False: all have asked, or may do so yet.
  bool make_room() WEFT_REQUIRES(mutex_) {
    return pending_.size() - accepted_ones() < pending_max() || drop_silent(kPatience);
  }
  // Those that the program has accepted itself.
  std::size_t accepted_ones() WEFT_REQUIRES(mutex_) {
    return static_cast<std::size_t>(
        std::ranges::count_if(pending_, [](const Pending& one) { return !one.fd; }));
  }

  void watch(Listening& one, bool on) {
    if (one.watched == on) return;
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
    if (listener.ready.size() <= listener.backlog &&
        static_cast<std::size_t>(coming) < std::max(listener.backlog, kComingMin)) {
      return true;
    }
    listener.full = true;
    return false;
  }

  // Null with errno.
  std::unique_ptr<RsIncoming> begin(os::Fd fd, const RsOptions& options) {
    auto device = rsocket_device();
    if (device == nullptr) return nullptr;
    auto begun = RsIncoming::start(std::move(device), fd.release(), options,
                                   [wake = wake_.get()] { os::raise_event(wake); });
    if (begun) return std::move(*begun);
    errno = errno_of(begun.error());
    return nullptr;
  }

  // Silent ones must not keep others out. False: none has been silent for so long.
  bool drop_silent(Duration patience) WEFT_REQUIRES(mutex_) {
    const auto oldest =
        std::ranges::find_if(pending_, [](const Pending& one) { return !one.incoming->asked(); });
    if (oldest == pending_.end() || os::now() - oldest->since < patience) return false;
    refuse(*oldest);
    pending_.erase(oldest);
    return true;
  }

  // One that the program has accepted itself; rather one whose peer has no answer yet.
  void drop_oldest() WEFT_REQUIRES(mutex_) {
    auto oldest = first_accepted([](const RsIncoming& one) { return !one.asked(); });
    if (oldest == pending_.end()) {
      oldest = first_accepted([](const RsIncoming& one) { return !one.answered(); });
    }
    if (oldest == pending_.end()) oldest = first_accepted([](const RsIncoming&) { return true; });
    refuse(*oldest);
    pending_.erase(oldest);
  }
  template <class Fits>
  std::list<Pending>::iterator first_accepted(Fits fits) WEFT_REQUIRES(mutex_) {
    return std::ranges::find_if(pending_,
                                [&](const Pending& one) { return !one.fd && fits(*one.incoming); });
  }

  // A lack of memory for one is no other's matter.
  RsIncoming::Step step_of(Pending& one) WEFT_REQUIRES(mutex_) {
    try {
      const RsIncoming::Step step = one.incoming->advance(may_answer(one));
      if (step == RsIncoming::Step::kReady) one.fd ? deliver(one) : complete(one);
      return step;
    } catch (const std::exception&) {
      return RsIncoming::Step::kFailed;  // no memory
    }
  }

  void advance() WEFT_REQUIRES(mutex_) {
    bool lacking = false;
    for (auto at = pending_.begin(); at != pending_.end();) {
      const RsIncoming::Step step = step_of(*at);
      lacking = lacking || step == RsIncoming::Step::kLacking;
      if (step == RsIncoming::Step::kWaiting || step == RsIncoming::Step::kLacking) {
        ++at;
        continue;
      }
      if (step == RsIncoming::Step::kFailed) refuse(*at);
      at = pending_.erase(at);
    }
    if (!lacking) return;
    crowded_ = true;
    static_cast<void>(drop_silent(kPatience));
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
  bool crowded_ WEFT_GUARDED_BY(mutex_) = false;  // somebody waits for descriptors, or a place
};

// Never destroyed: its thread runs to the very end.
Service* g_service = new Service;

// The result of `call`; false with errno where it throws.
template <class Call>
bool or_false(Call call) {
  try {
    return call();
  } catch (const std::exception& thrown) {
    errno = errno_thrown(thrown);
    return false;
  }
}

}  // namespace

bool start_listening(const RsocketPtr& socket) {
  return or_false([&] { return g_service->add(socket); });
}

bool start_answering(const RsocketPtr& socket) {
  {
    const RsLock lock(socket->mutex);
    // Another thread may have closed its number already; the service sees that.
    static_cast<void>(socket->on(RsEvent::kAnswers));
  }
  return or_false([&] { return g_service->answer(socket); });
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
