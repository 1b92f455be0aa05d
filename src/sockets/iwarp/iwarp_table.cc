#include "sockets/iwarp/iwarp_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <climits>
#include <new>

#include "sockets/fd_table.h"
#include "sockets/own_memory.h"
#include "sockets/real_calls.h"

namespace weft::sockets::iwarp {
namespace {

struct Slot {
  std::atomic<Kind> kind;
  std::atomic<Conn*> conn;
};

thread_local int t_inside = 0;
thread_local int t_locked = 0;
std::atomic<std::uint32_t> g_turned{0};  // a futex: counts

constinit FdTable<Slot> g_slots;
Conn* g_free = nullptr;

// The last reference is gone, and no call runs.
void clean(Conn* conn) {
  assert(conn->live && conn->refs == 0);
  conn->watcher_count = 0;
  conn->watchers_lost = conn->mark_read = conn->marked = false;
  conn->partly = conn->deciding = conn->live = false;
  conn->next_free = g_free;
  g_free = conn;
}

void drop(Conn* conn) {
  if (conn == nullptr) return;
  assert(conn->refs > 0);
  if (--conn->refs > 0) return;
  // Late users may still raise and lower `users`. The one that brings it to zero cleans up.
  if (conn->users.load() == 0) clean(conn);
}

}  // namespace

Inside::Inside() { ++t_inside; }
Inside::~Inside() {
  assert(t_inside > 0);
  --t_inside;
}
bool Inside::here() { return t_inside > 0; }

Use::Use(int fd) {
  Slot* slot = g_slots.find(fd);
  if (slot == nullptr) return;
  kind_ = slot->kind.load(std::memory_order_acquire);
  if (kind_ == Kind::kOther || kind_ == Kind::kInternal) return;
  Conn* conn = slot->conn.load(std::memory_order_acquire);
  if (conn == nullptr) return;
  conn->users.fetch_add(1);
  conn_ = conn;
  kind_ = slot->conn.load() == conn ? slot->kind.load(std::memory_order_acquire) : Kind::kOther;
}

Use::~Use() {
  if (conn_ == nullptr) return;
  const int before = conn_->users.fetch_sub(1);
  assert(before > 0);
  if (before != 1) return;
  const table::Lock lock;
  if (conn_->refs == 0 && conn_->users.load() == 0 && conn_->live) clean(conn_);
}

namespace table {

void Mutex::lock() {
  mutex_.lock();
  ++t_locked;
}

void Mutex::unlock() {
  if (t_locked > 0) --t_locked;  // in a child that a signal handler has made meanwhile it is 0
  mutex_.unlock();
}

Mutex& mutex() {
  static Mutex the;
  return the;
}

bool locked_here() { return t_locked > 0; }

Kind kind_of(int fd) {
  Slot* slot = g_slots.find(fd);
  if (slot == nullptr) return Kind::kOther;
  for (;;) {
    const std::uint32_t count = g_turned.load();
    const Kind kind = slot->kind.load(std::memory_order_acquire);
    if (kind < Kind::kDirect || kind == Kind::kInternal) return kind;
    if (t_inside > 0) return Kind::kOther;
    if (kind == Kind::kDirect || t_locked > 0) return kind;
    syscall(SYS_futex, &g_turned, FUTEX_WAIT_PRIVATE, count, nullptr, nullptr, 0);
  }
}

void turned() {
  ++g_turned;
  syscall(SYS_futex, &g_turned, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void put(int fd, Kind kind, Conn* conn) {
  Slot* slot = g_slots.make(fd);
  if (slot == nullptr) return;
  assert(locked_here() && (conn == nullptr || conn->live));
  if (conn != nullptr) ++conn->refs;
  Conn* before = slot->conn.exchange(conn);
  slot->kind.store(kind, std::memory_order_release);
  drop(before);
}

void copy(int from, int to) {
  Slot* slot = g_slots.find(from);
  const Kind kind = slot == nullptr ? Kind::kOther : slot->kind.load();
  if (kind == Kind::kOther) {
    forget(to);
    return;
  }
  // The library's own copies of its sockets are the kernel's.
  const bool served = kind == Kind::kDirect || kind == Kind::kTurning;
  put(to, served && t_inside > 0 ? Kind::kOther : kind, slot->conn.load());
}

void forget(int fd) {
  Slot* slot = g_slots.find(fd);
  if (slot == nullptr || slot->kind.load() == Kind::kOther) return;
  const Lock lock;
  slot->kind.store(Kind::kOther);
  drop(slot->conn.exchange(nullptr));
}

Conn* make_conn() {
  assert(locked_here());
  Conn* out = g_free;
  if (out != nullptr) {
    g_free = out->next_free;
  } else {
    out = new (std::nothrow) Conn();
  }
  if (out == nullptr) return nullptr;
  assert(!out->live && out->refs == 0 && out->watcher_count == 0);
  out->live = true;
  return out;
}

Conn* conn_of(int fd) {
  Slot* slot = g_slots.find(fd);
  return slot == nullptr ? nullptr : slot->conn.load();
}

int highest() { return g_slots.end(); }

void settle_plain(int fd) {
  assert(locked_here());
  const Conn* conn = conn_of(fd);
  for (int i = 0; conn != nullptr && conn->refs > 1 && i < highest(); ++i) {
    if (i != fd && conn_of(i) == conn) put(i, Kind::kOther, nullptr);
  }
  put(fd, Kind::kOther, nullptr);
}

int move_high(int fd) {
  assert(fd >= 0);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, FdTable<Slot>::kNumbers));
  int moved = real().fcntl(fd, F_DUPFD_CLOEXEC, most - most / 4);
  // The upper quarter is full, or the limit is very low: anywhere but among the first.
  if (moved < 0) moved = real().fcntl(fd, F_DUPFD_CLOEXEC, std::min(64, most / 2));
  const int error = errno;
  real().close(fd);
  if (moved < 0) {
    errno = error;
    return -1;
  }
  const Lock lock;
  put(moved, Kind::kInternal, nullptr);
  return moved;
}

void close_internal(int fd) {
  forget(fd);
  real().close(fd);
}

void before_fork() { mutex().lock(); }
void after_fork() { mutex().unlock(); }

// The lock belongs to a thread of the parent's, which has another number: only a new one can be
// taken here.
void in_child() {
  new (&mutex()) Mutex();
  t_locked = 0;
  own_memory();
  // The threads that were at it are the parent's.
  for (int i = 0; i < highest(); ++i) {
    if (Slot* slot = g_slots.find(i); slot != nullptr && slot->kind == Kind::kTurning) {
      slot->kind = Kind::kOther;
    }
  }
}

}  // namespace table
}  // namespace weft::sockets::iwarp
