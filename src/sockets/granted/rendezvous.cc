#include "sockets/granted/rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/cpu_pause.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted::rendezvous {
namespace {

constexpr std::uint32_t kEntries = 4096;
constexpr std::uint32_t kReach = 16;  // entries that a key may be in
constexpr uid_t kNobody = 65534;      // users that a namespace does not know all look like this one
constexpr int kTries = 1000;

enum Phase : std::uint32_t { kFree = 0, kWaiting = 1, kMade = 2 };

struct Entry {
  std::atomic<std::uint32_t> generation;
  std::atomic<std::uint32_t> phase;
  std::uint32_t end;
  std::int32_t pid;
  std::uint64_t cookie;
  std::int32_t segment;
  Key key;
};

struct Table {
  std::atomic<std::int32_t> holder;  // the process that has the lock, 0: none
  alignas(64) std::array<Entry, kEntries> entries;
};

std::atomic<Table*> g_table{nullptr};
std::atomic<bool> g_refused{false};
std::atomic<uid_t> g_user{0};

// Memory that can't be cut short under us by accident: all of it is there before it is used.
Table* map(int fd) {
  struct stat is {};
  if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode) || is.st_uid != geteuid() || is.st_nlink != 1 ||
      (is.st_mode & 077U) != 0) {
    return nullptr;
  }
  constexpr auto kBytes = static_cast<off_t>(sizeof(Table));
  if (is.st_size < kBytes && posix_fallocate(fd, 0, kBytes) != 0) return nullptr;
  void* at = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Table*>(at);
}

Table* open_table() {
  const uid_t user = geteuid();
  if (Table* table = g_table.load(std::memory_order_acquire); table != nullptr) {
    return user == g_user.load(std::memory_order_relaxed) ? table : nullptr;
  }
  if (g_refused.load(std::memory_order_relaxed)) return nullptr;
  char path[64];
  std::snprintf(path, sizeof path, "/dev/shm/weft-sockets-%u", user);
  const int fd =
      user == kNobody ? -1 : ::open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  Table* table = fd < 0 ? nullptr : map(fd);
  if (fd >= 0) real().close(fd);
  if (table == nullptr) {
    g_refused = true;
    return nullptr;
  }
  g_user = user;
  Table* before = nullptr;
  if (g_table.compare_exchange_strong(before, table)) return table;
  munmap(table, sizeof(Table));
  return before;
}

bool lives(std::int32_t pid) { return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM); }

// For some microseconds at most. The lock of a process that has died is taken over.
bool try_lock(Table& table) {
  const auto me = static_cast<std::int32_t>(getpid());
  for (int i = 0; i < kTries; ++i) {
    std::int32_t holder = 0;
    if (table.holder.compare_exchange_strong(holder, me)) return true;
    cpu_pause();
  }
  std::int32_t holder = table.holder.load();
  return holder != 0 && holder != me && !lives(holder) &&
         table.holder.compare_exchange_strong(holder, me);
}

void unlock(Table& table) { table.holder.store(0); }

std::uint32_t hash_of(const Key& key) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (const std::uint8_t octet : key.octets) h = (h ^ octet) * 0x100000001b3U;
  return static_cast<std::uint32_t>(h >> 32U) ^ static_cast<std::uint32_t>(h);
}

Entry& at(Table& table, std::uint32_t index) { return table.entries[index % kEntries]; }

// With the lock. The entry of the key, or null; `room`: one that may be used for it, or null.
Entry* find(Table& table, const Key& key, Entry*& room) {
  const std::uint32_t first = hash_of(key);
  room = nullptr;
  for (std::uint32_t i = 0; i < kReach; ++i) {
    Entry& entry = at(table, first + i);
    const bool used = entry.phase.load() != kFree;
    if (used && entry.key.octets == key.octets) return &entry;
    if (room == nullptr && !used) room = &entry;
  }
  for (std::uint32_t i = 0; i < kReach && room == nullptr; ++i) {
    Entry& entry = at(table, first + i);
    if (!lives(entry.pid)) room = &entry;
  }
  return nullptr;
}

void fill(Table& table, Entry& entry, const Key& key, unsigned end, std::uint64_t cookie,
          Ticket& ticket) {
  entry.generation.fetch_add(1);
  entry.key = key;
  entry.end = end;
  entry.pid = static_cast<std::int32_t>(getpid());
  entry.cookie = cookie;
  entry.segment = -1;
  entry.phase.store(kWaiting);
  ticket = {static_cast<int>(&entry - table.entries.data()), entry.generation.load()};
}

}  // namespace

Found post(const Key& key, unsigned end, std::uint64_t cookie, Ticket& ticket) {
  Table* table = open_table();
  if (table == nullptr) return Found::kNo;
  if (!try_lock(*table)) return Found::kLater;
  Entry* room = nullptr;
  Entry* entry = find(*table, key, room);
  const bool peers =
      entry != nullptr && entry->end != end && entry->phase.load() == kWaiting && lives(entry->pid);
  if (peers) {
    ticket = {static_cast<int>(entry - table->entries.data()), entry->generation.load()};
    return Found::kPeer;
  }
  // An entry of this key that is no peer's who waits was left by a connection that has ended, or
  // another holder of this socket posted it: then neither gets a lane.
  const bool shared = entry != nullptr && entry->end == end && entry->cookie == cookie &&
                      entry->pid != static_cast<std::int32_t>(getpid()) && lives(entry->pid);
  if (entry == nullptr) entry = room;
  if (entry != nullptr && !shared) fill(*table, *entry, key, end, cookie, ticket);
  unlock(*table);
  return entry == nullptr || shared ? Found::kNo : Found::kPosted;
}

void give(const Ticket& ticket, int segment) {
  Table* table = g_table.load();
  Entry& entry = at(*table, static_cast<std::uint32_t>(ticket.index));
  entry.segment = segment;
  entry.phase.store(segment < 0 ? kFree : kMade);
  unlock(*table);
}

Answer look(const Ticket& ticket, int& segment) {
  Table* table = g_table.load();
  if (table == nullptr || ticket.index < 0) return Answer::kGone;
  Entry& entry = at(*table, static_cast<std::uint32_t>(ticket.index));
  if (entry.phase.load() == kWaiting && entry.generation.load() == ticket.generation) {
    return Answer::kNotYet;
  }
  if (!try_lock(*table)) return Answer::kNotYet;
  const bool mine = entry.generation.load() == ticket.generation && entry.phase.load() == kMade;
  if (mine) {
    segment = entry.segment;
    entry.phase.store(kFree);
  }
  unlock(*table);
  return mine ? Answer::kSegment : Answer::kGone;
}

void withdraw(const Ticket& ticket) {
  Table* table = g_table.load();
  if (table == nullptr || ticket.index < 0 || !try_lock(*table)) return;
  Entry& entry = at(*table, static_cast<std::uint32_t>(ticket.index));
  if (entry.generation.load() == ticket.generation) entry.phase.store(kFree);
  unlock(*table);
}

}  // namespace weft::sockets::granted::rendezvous
