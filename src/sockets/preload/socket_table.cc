#include "sockets/preload/socket_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <new>

#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

struct Slot {
  std::atomic<Kind> kind;
  std::atomic<Conn*> conn;
};

thread_local int t_inside = 0;
thread_local int t_locked = 0;
std::atomic<std::uint32_t> g_turned{0};  // a futex: counts

constexpr int kChunk = 4096;
constexpr int kChunks = 256;  // a million descriptors
std::atomic<Slot*> g_chunks[kChunks];
std::atomic<int> g_highest{0};
Conn* g_free = nullptr;

Slot* slot_of(int fd, bool make) {
  if (fd < 0 || fd >= kChunk * kChunks) return nullptr;
  std::atomic<Slot*>& chunk = g_chunks[fd / kChunk];
  Slot* slots = chunk.load(std::memory_order_acquire);
  if (slots == nullptr && make) {
    void* at = mmap(nullptr, sizeof(Slot) * kChunk, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    slots = static_cast<Slot*>(at);
    chunk.store(slots, std::memory_order_release);
  }
  return slots == nullptr ? nullptr : &slots[fd % kChunk];
}

// The last reference is gone, and no call runs.
void clean(Conn* conn) {
  if (conn->channel != nullptr) conn->channel->release();
  const int tcp = conn->tcp;
  const int mark = conn->listen_mark;
  conn->channel = nullptr;
  conn->tcp = conn->listen_mark = -1;
  conn->watcher_count = 0;
  conn->watchers_lost = conn->asynchronous = false;
  conn->connect_reported = conn->direct = conn->mark_read = conn->partly = conn->marked = false;
  conn->deciding = conn->live = false;
  conn->way = Way::kTcp;
  conn->tos_before = -1;
  if (tcp >= 0) table::close_internal(tcp);
  if (mark >= 0) table::close_internal(mark);
  conn->next_free = g_free;
  g_free = conn;
}

// This process lets go of its end.
void leave(Conn* conn) {
  if (conn->channel == nullptr || conn->channel->end().holders.fetch_sub(1) != 1) return;
  linger value{};
  socklen_t length = sizeof value;
  if (conn->tcp >= 0 && real().getsockopt(conn->tcp, SOL_SOCKET, SO_LINGER, &value, &length) == 0 &&
      value.l_onoff != 0 && value.l_linger == 0) {
    conn->channel->reset();
  }
  conn->channel->leave();
}

void drop(Conn* conn) {
  if (conn == nullptr || --conn->refs > 0) return;
  leave(conn);
  // Late users may still raise and lower `users`. The one that brings it to zero cleans up.
  if (conn->users.load() == 0) clean(conn);
}

}  // namespace

Inside::Inside() { ++t_inside; }
Inside::~Inside() { --t_inside; }
bool Inside::here() { return t_inside > 0; }

Use::Use(int fd) {
  Slot* slot = slot_of(fd, false);
  if (slot == nullptr) return;
  kind_ = slot->kind.load(std::memory_order_acquire);
  if (kind_ <= Kind::kPlain || kind_ == Kind::kInternal) return;
  Conn* conn = slot->conn.load(std::memory_order_acquire);
  if (conn == nullptr) return;
  conn->users.fetch_add(1);
  if (slot->conn.load() != conn) {
    conn_ = conn;
    kind_ = Kind::kPlain;
    return;
  }
  conn_ = conn;
  kind_ = slot->kind.load(std::memory_order_acquire);
}

Use::~Use() {
  if (conn_ == nullptr) return;
  if (conn_->users.fetch_sub(1) != 1) return;
  if (conn_->refs > 0 || !conn_->live) return;
  const table::Lock lock;
  if (conn_->refs == 0 && conn_->users.load() == 0 && conn_->live) clean(conn_);
}

namespace table {

void Mutex::lock() {
  mutex_.lock();
  ++t_locked;
}

void Mutex::unlock() {
  --t_locked;
  mutex_.unlock();
}

Mutex& mutex() {
  static Mutex the;
  return the;
}

Kind kind_of(int fd) {
  Slot* slot = slot_of(fd, false);
  if (slot == nullptr) return Kind::kUnknown;
  for (;;) {
    const std::uint32_t count = g_turned.load();
    const Kind kind = slot->kind.load(std::memory_order_acquire);
    if (kind < Kind::kDirect || kind == Kind::kInternal) return kind;
    if (t_inside > 0) return Kind::kPlain;
    if (kind == Kind::kDirect || t_locked > 0) return kind;
    syscall(SYS_futex, &g_turned, FUTEX_WAIT_PRIVATE, count, nullptr, nullptr, 0);
  }
}

void turned() {
  ++g_turned;
  syscall(SYS_futex, &g_turned, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void put(int fd, Kind kind, Conn* conn) {
  Slot* slot = slot_of(fd, true);
  if (slot == nullptr) return;
  if (conn != nullptr && ++conn->refs > 1 && conn->channel != nullptr) {
    conn->channel->watched.epoll = -1;
  }
  Conn* before = slot->conn.exchange(conn);
  slot->kind.store(kind, std::memory_order_release);
  if (g_highest.load() <= fd) g_highest = fd + 1;
  drop(before);
}

void copy(int from, int to) {
  Slot* slot = slot_of(from, false);
  if (slot == nullptr) {
    forget(to);
    return;
  }
  const Kind kind = slot->kind.load();
  // The library's own copies of its sockets are the kernel's.
  const bool served = kind == Kind::kDirect || kind == Kind::kTurning;
  put(to, served && t_inside > 0 ? Kind::kPlain : kind, slot->conn.load());
}

void forget(int fd) {
  Slot* slot = slot_of(fd, false);
  if (slot == nullptr) return;
  const Lock lock;
  slot->kind.store(Kind::kUnknown);
  Conn* before = slot->conn.exchange(nullptr);
  if (before == nullptr) return;
  if (before->channel != nullptr && before->channel->socket() == fd) {
    if (const int other = other_number(before, fd); other >= 0) before->channel->set_socket(other);
  }
  drop(before);
}

Conn* make_conn() {
  const Lock lock;
  if (g_free != nullptr) {
    Conn* out = g_free;
    g_free = out->next_free;
    out->live = true;
    return out;
  }
  Conn* out = new (std::nothrow) Conn();
  if (out != nullptr) out->live = true;
  return out;
}

Conn* conn_of(int fd) {
  Slot* slot = slot_of(fd, false);
  return slot == nullptr ? nullptr : slot->conn.load();
}

int highest() { return g_highest.load(); }

void settle_plain(int fd) {
  const Conn* conn = conn_of(fd);
  for (int i = 0; conn != nullptr && conn->refs > 1 && i < highest(); ++i) {
    if (i != fd && conn_of(i) == conn) put(i, Kind::kPlain, nullptr);
  }
  put(fd, Kind::kPlain, nullptr);
}

int other_number(const Conn* conn, int fd) {
  for (int i = 0; i < highest(); ++i) {
    if (i != fd && conn_of(i) == conn) return i;
  }
  return -1;
}

int move_high(int fd) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kChunk * kChunks));
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

void before_fork() {
  mutex().lock();
  for (int i = 0; i < highest(); ++i) {
    Conn* conn = conn_of(i);
    if (conn == nullptr || conn->channel == nullptr) continue;
    // Once per connection, not per number.
    if (conn->channel->socket() == i) conn->channel->end().holders.fetch_add(1);
  }
}

void at_exit() {
  const Lock lock;
  for (int i = 0; i < highest(); ++i) {
    Conn* conn = conn_of(i);
    // Once per connection, not per number.
    if (conn != nullptr && conn->channel != nullptr && conn->channel->socket() == i) leave(conn);
  }
}

void after_fork() { mutex().unlock(); }

// The lock belongs to a thread of the parent's, which has another number: only a new one can be
// taken here.
void in_child() {
  new (&mutex()) Mutex();
  t_locked = 0;
  // The threads that were at it are the parent's.
  for (int i = 0; i < highest(); ++i) {
    if (Slot* slot = slot_of(i, false); slot != nullptr && slot->kind == Kind::kTurning) {
      slot->kind = Kind::kPlain;
    }
  }
}

}  // namespace table
}  // namespace weft::sockets
