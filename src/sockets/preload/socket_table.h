// The preload library's entry for each descriptor of this process.
//
// Threads: lookups take no lock. A Conn is never freed, only reused, so that a thread which comes
// too late finds an object of the right type; `users` keeps its channel while a call runs.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdint>

#include "os/lock.h"
#include "sockets/socket_channel.h"

namespace weft::sockets {

enum class Kind : std::uint8_t {
  kUnknown,     // not looked at yet
  kPlain,       // nothing of ours: the kernel's
  kFresh,       // a TCP socket that is not connected
  kListener,    // a TCP socket that listens
  kConnecting,  // a TCP socket whose connection shall go over RDMA once it is there
  kUndecided,   // an accepted TCP socket: its first octets will tell
  kChannel,     // an end of a Channel
  kDirect,      // an rsocket of this program's (preload_direct.h)
  kTurning,     // about to become one: other threads wait until it is
  kInternal,    // a descriptor of Weft's
};

// How a connection of this program shall begin.
enum class Way : std::uint8_t { kTcp, kRing, kRingOnly, kRdma, kRdmaOnly };

struct Watcher {  // an epoll instance that watches a socket which may be replaced
  int epoll;
  epoll_event event;
};

struct Conn {
  static constexpr int kWatchers = 4;

  std::atomic<int> users{0};
  // While it is undecided: threads that sleep until its first octets come, and whether a thread is
  // about to take those away.
  std::atomic<int> awaiting{0};
  std::atomic<bool> deciding{false};
  std::atomic<bool> partly{false};  // what has come may become a question
  bool live = false;                // not in the list of free ones
  int refs = 0;                     // numbers of this process
  Channel* channel = nullptr;
  int tcp = -1;          // of a channel: the TCP socket under it; options and names are its
  int listen_mark = -1;  // of a listener: holds the name that tells of it
  Way way = Way::kTcp;   // of a connecting socket
  bool direct = false;   // of a fresh socket, or a listener: WEFT_MODE is set
  bool connect_reported = false;
  bool mark_read = false;  // of an undecided one: `marked` says whether its client will ask
  bool marked = false;
  int tos_before = -1;
  sockaddr_storage peer{};
  socklen_t peer_length = 0;
  Watcher watchers[kWatchers]{};
  int watcher_count = 0;
  bool watchers_lost = false;  // there were more than fit: the socket stays as it is
  bool asynchronous = false;   // O_ASYNC: a signal for each message
  Conn* next_free = nullptr;
};

// Keeps a Conn in use while a call runs.
class Use {
 public:
  explicit Use(int fd);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] Conn* conn() const { return conn_; }
  [[nodiscard]] Channel* channel() const {
    return kind_ == Kind::kChannel ? conn_->channel : nullptr;
  }

 private:
  Kind kind_ = Kind::kUnknown;
  Conn* conn_ = nullptr;
};

// While it lives, this thread is inside the library that serves sockets of kind kDirect: to its own
// calls they are the kernel's.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  [[nodiscard]] static bool here();
};

namespace table {

// Guards changes. Recursive: helpers call each other.
class WEFT_CAPABILITY("mutex") Mutex {
 public:
  void lock() WEFT_ACQUIRE();
  void unlock() WEFT_RELEASE();

 private:
  os::RecursiveMutex mutex_;
};
[[nodiscard]] Mutex& mutex();

// Holds it for a scope. May be let go and taken again in between.
class WEFT_SCOPED_CAPABILITY Lock {
 public:
  Lock() WEFT_ACQUIRE(mutex()) { mutex().lock(); }
  ~Lock() WEFT_RELEASE() {
    if (held_) mutex().unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  void lock() WEFT_ACQUIRE() {
    mutex().lock();
    held_ = true;
  }
  void unlock() WEFT_RELEASE() {
    held_ = false;
    mutex().unlock();
  }

 private:
  bool held_ = true;
};

// kPlain instead of kDirect to the library that serves such sockets: see Inside. Waits while it is
// kTurning, unless this thread has the mutex.
[[nodiscard]] Kind kind_of(int fd);
// Tells waiting threads that the kind of a descriptor has changed.
void turned();
// With the mutex. `conn` may be null; what was there before loses a reference.
void put(int fd, Kind kind, Conn* conn) WEFT_REQUIRES(mutex());
// With the mutex: the number now means what `from` means.
void copy(int from, int to) WEFT_REQUIRES(mutex());
void forget(int fd);  // takes the mutex
[[nodiscard]] Conn* make_conn();
[[nodiscard]] Conn* conn_of(int fd) WEFT_REQUIRES(mutex());
[[nodiscard]] int highest();  // one above the highest number ever noted
// With the mutex: `fd` and every other number of its connection are the kernel's alone from now on.
void settle_plain(int fd) WEFT_REQUIRES(mutex());
// Another number of the same connection, or -1. With the mutex.
[[nodiscard]] int other_number(const Conn* conn, int fd) WEFT_REQUIRES(mutex());

// Moves a descriptor of Weft's out of the program's way, close-on-exec; the old number is closed.
// -1 with errno: it is closed too.
[[nodiscard]] int move_high(int fd);
void close_internal(int fd);

// The process ends without having closed its sockets.
void at_exit();
// Around fork(): children share the ends of channels.
void before_fork() WEFT_ACQUIRE(mutex());
void after_fork() WEFT_RELEASE(mutex());
void in_child();

}  // namespace table
}  // namespace weft::sockets
