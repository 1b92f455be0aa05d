// The end of a connection of an rsocket. A credit of the peer's that meets our FIN is answered with
// a reset, which takes from the peer what has not left yet. So the FIN waits until the peer's TCP
// has all but the goodbye.
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <list>
#include <new>
#include <thread>
#include <utility>

#include "base/splice_if.h"
#include "os/cancel.h"
#include "os/fd.h"
#include "os/lock.h"
#include "os/signals_blocked.h"
#include "rsockets/rsocket.h"
#include "rsockets/rsocket_fork.h"

namespace weft::rsockets {
namespace {

constexpr auto kCloseLimit = std::chrono::seconds(5);   // without progress
constexpr auto kDrainLimit = std::chrono::seconds(60);  // in all
constexpr std::uint32_t kGoodbyeBytes = 128;            // more than the FPDU of a goodbye
// rclose() itself waits for so long: nearly every peer has taken all by then.
constexpr auto kAtOnce = std::chrono::milliseconds(20);
constexpr auto kLookAgain = std::chrono::milliseconds(5);
// Out of the way of programs that use select().
constexpr int kHighNumber = 1024;

// Octets that the peer's TCP has not acknowledged. The engine has the same for itself; it is below
// the API that this library may use.
std::uint32_t unacknowledged(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::uint32_t>(bytes) : 0;
}

// One connection that ends. Its owner serializes the calls.
class Closing {
 public:
  // `fd`: its socket, the caller's.
  Closing(std::shared_ptr<RsConnection> link, int fd) : link_(std::move(link)), fd_(fd) {}
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

  // Does what can be done now. True: it is over.
  [[nodiscard]] bool step() {
    const auto now = Clock::now();
    if (!leaving_) {
      if (!drained(now)) return false;
      if (!link_->disconnect()) return true;  // a child of fork(): the connection is the parent's
      leaving_ = true;
    }
    return link_->phase() != RsPhase::kUp || now >= end_;
  }
  // Until something may have changed, or for `most`.
  void wait(std::chrono::milliseconds most) {
    if (leaving_) {
      static_cast<void>(link_->wait_while(RsPhase::kUp, Clock::now() + most));
    } else if (auto event = link_->stream().channel().wait(most); event) {
      (*event)->ack_events(1);
    }
  }
  // From now on the socket is this object's.   False: there is no descriptor
  [[nodiscard]] bool keep_socket() {
    if (own_) return true;
    int own = fcntl(fd_, F_DUPFD_CLOEXEC, kHighNumber);
    if (own < 0) own = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return false;
    own_ = os::Fd::closed_in_child(own);
    fd_ = own;
    return true;
  }

 private:
  // The peer's TCP has all, or will not have it.
  bool drained(Clock::time_point now) {
    RsStream& stream = link_->stream();
    stream.arm();
    stream.process();
    said_ = said_ || stream.say_disconnect();
    if (stream.down() || link_->phase() != RsPhase::kUp) return true;
    const std::uint32_t left = unacknowledged(fd_);
    if (said_ && stream.flushed() && left <= kGoodbyeBytes) return true;
    if (left != std::exchange(left_, left)) end_ = now + kCloseLimit;
    return now >= end_ || now >= last_;
  }

  std::shared_ptr<RsConnection> link_;
  int fd_;
  os::Fd own_;  // none: `fd_` is the caller's
  bool said_ = false;
  bool leaving_ = false;  // the goodbye is out, and so is the FIN
  std::uint32_t left_ = UINT32_MAX;
  Clock::time_point end_ = Clock::now() + kCloseLimit;
  const Clock::time_point last_ = Clock::now() + kDrainLimit;
};

// Those that go on behind rclose(), on a thread that lives while there are some.
class Closings {
 public:
  // False: there is no thread or memory for it.
  [[nodiscard]] bool take(std::unique_ptr<Closing>& one) {
    const os::MutexLock lock(mutex_);
    try {
      std::list<std::unique_ptr<Closing>> entry(1);
      if (!running_) os::start_thread([this] { run(); }).detach();
      running_ = true;
      entry.front() = std::move(one);
      all_.splice(all_.end(), entry);
    } catch (const std::exception&) {  // no memory, or no thread
      return false;
    }
    return true;
  }
  void wait_for_all() {
    const os::MutexLock lock(mutex_);
    while (running_) over_.wait(mutex_);
  }

 private:
  void run() {
    for (;;) {
      std::list<std::unique_ptr<Closing>> gone;
      {
        const os::MutexLock lock(mutex_);
        gone = splice_if(all_, [](const auto& one) { return one->step(); });
      }
      gone.clear();
      {
        const os::MutexLock lock(mutex_);
        if (all_.empty()) {
          running_ = false;
          return over_.notify_all();
        }
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }

  os::Mutex mutex_;
  os::Condition over_;
  bool running_ WEFT_GUARDED_BY(mutex_) = false;
  std::list<std::unique_ptr<Closing>> all_ WEFT_GUARDED_BY(mutex_);
};

// Never destroyed: its thread may run to the very end.
Closings* g_closings = new Closings;

// Not before the first is handed over, so that it runs before what the library has at exit.
[[nodiscard]] bool waits_at_exit() {
  static const bool registered = std::atexit([] { g_closings->wait_for_all(); }) == 0;
  return registered;
}

}  // namespace

void renew_closing() { g_closings = new Closings; }

void wait_for_closings() { g_closings->wait_for_all(); }

void close_connection(std::shared_ptr<RsConnection> link, int fd, Goodbye how) {
  const os::NoCancel guard;
  link->on_report({});  // the descriptor that it signals goes with the rsocket
  if (how == Goodbye::kReset || link->phase() != RsPhase::kUp || !link->begin()) {
    link->abort();
    return;
  }
  std::unique_ptr<Closing> closing;
  try {
    closing = std::make_unique<Closing>(link, fd);
  } catch (const std::bad_alloc&) {
    return link->abort();
  }
  const bool at_exit = how == Goodbye::kAtExit;
  const auto at_once = Clock::now() + (at_exit ? Clock::duration::zero() : kAtOnce);
  while (!closing->step()) {
    if (Clock::now() >= at_once && (at_exit || (waits_at_exit() && closing->keep_socket())) &&
        g_closings->take(closing)) {
      return;
    }
    closing->wait(std::chrono::milliseconds(1));
  }
}

}  // namespace weft::rsockets
