// The descriptors of this process that have to do with IWARP mode.
//
// Threads: lookups take no lock. A Conn is never freed, only reused, so that a thread which comes
// too late finds an object of the right type; `users` keeps it in its place while a call runs.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "os/lock.h"

namespace weft::sockets::iwarp {

enum class Kind : std::uint8_t {
  kOther,      // nothing of ours
  kAsked,      // a TCP socket with WEFT_MODE set, which is not connected, or listens
  kUndecided,  // accepted from such a listener: its first octets will tell
  kDirect,     // an rsocket of this program's (direct.h)
  kTurning,    // about to become one: other threads wait until it is
  kInternal,   // a descriptor of Weft's
};

struct Watcher {  // an epoll instance that watches a socket which may become an rsocket
  int epoll;
  epoll_event event;
};

// A socket that is kAsked or kUndecided.
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
  bool mark_read = false;           // `marked` says whether its client will ask
  bool marked = false;
  Watcher watchers[kWatchers]{};
  int watcher_count = 0;
  bool watchers_lost = false;  // there were more than fit: the socket stays as it is
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

 private:
  Kind kind_ = Kind::kOther;
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
// Whether this thread has it: what annotations say, for what the analysis can't follow.
[[nodiscard]] bool locked_here();

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

// kOther instead of kDirect to the library that serves such sockets: see Inside. Waits while it is
// kTurning, unless this thread has the mutex.
[[nodiscard]] Kind kind_of(int fd);
// Tells waiting threads that the kind of a descriptor has changed.
void turned();
// With the mutex. `conn` may be null; what was there before loses a reference.
void put(int fd, Kind kind, Conn* conn) WEFT_REQUIRES(mutex());
// With the mutex: the number now means what `from` means.
void copy(int from, int to) WEFT_REQUIRES(mutex());
void forget(int fd);  // takes the mutex where there is something to forget
// Null: no memory.
[[nodiscard]] Conn* make_conn() WEFT_REQUIRES(mutex());
[[nodiscard]] Conn* conn_of(int fd) WEFT_REQUIRES(mutex());
[[nodiscard]] int highest();  // one above the highest number ever noted
// Whether there is anything in it: most programs never ask for IWARP mode.
[[nodiscard]] inline bool in_use() { return highest() != 0; }
// With the mutex: `fd` and every other number of its connection are ordinary ones from now on.
void settle_plain(int fd) WEFT_REQUIRES(mutex());

// Moves a descriptor of Weft's out of the program's way, close-on-exec; the old number is closed.
// -1 with errno: it is closed too.
[[nodiscard]] int move_high(int fd);
void close_internal(int fd);

// Around fork().
void before_fork() WEFT_ACQUIRE(mutex());
void after_fork() WEFT_RELEASE(mutex());
void in_child();

}  // namespace table
}  // namespace weft::sockets::iwarp
