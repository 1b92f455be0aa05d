#include "sockets/preload/socket_list.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "sockets/preload/socket_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets {
namespace {

constexpr std::size_t kBytes = sizeof(SocketRecord) * kSocketListMost;

// Guarded by the table's mutex.
struct Mine {
  SocketRecord* records = nullptr;
  int file = -1;
  ino_t inode = 0;         // of the file
  bool inherited = false;  // the records are the parent's
  bool failed = false;
};
Mine g_mine;

ino_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

// Sparse: what is never written takes no memory.
bool make() {
  const int made = memfd_create(kSocketListLabel, MFD_CLOEXEC);
  if (made < 0) return false;
  void* at = ftruncate(made, static_cast<off_t>(kBytes)) != 0
                 ? MAP_FAILED
                 : mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
  if (at == MAP_FAILED) {
    real().close(made);
    return false;
  }
  g_mine.inode = inode_of(made);
  g_mine.file = table::move_high(made);
  if (g_mine.file < 0) {
    munmap(at, kBytes);
    return false;
  }
  g_mine.records = static_cast<SocketRecord*>(at);
  return true;
}

void copy(const SocketRecord& from, SocketRecord& to) {
  std::memcpy(to.role, from.role, sizeof to.role);
  std::memcpy(to.path, from.path, sizeof to.path);
  std::memcpy(to.local, from.local, sizeof to.local);
  std::memcpy(to.peer, from.peer, sizeof to.peer);
  std::memcpy(to.reason, from.reason, sizeof to.reason);
  to.inode.store(from.inode.load(std::memory_order_relaxed), std::memory_order_release);
}

// The parent's goes on without us: the child begins its own with what it has inherited.
bool take_over() {
  const Mine before = g_mine;
  g_mine = {};
  const bool made = make();
  const int most = std::min(table::highest(), kSocketListMost);
  for (int fd = 0; made && fd < most; ++fd) {
    if (before.records[fd].inode.load() != 0) copy(before.records[fd], g_mine.records[fd]);
  }
  munmap(before.records, kBytes);
  // The program may have moved it (vacate() in preload_numbers.cc).
  if (inode_of(before.file) == before.inode) table::close_internal(before.file);
  return made;
}

SocketRecord* record_of(int fd) {
  if (fd < 0 || fd >= kSocketListMost || g_mine.failed) return nullptr;
  if (g_mine.records == nullptr || g_mine.inherited) {
    const bool made = g_mine.records == nullptr ? make() : take_over();
    g_mine.failed = !made;
    if (!made) return nullptr;
  }
  return &g_mine.records[fd];
}

}  // namespace

namespace list {

void note(int fd, const char* role, const sockaddr* peer, const char* path, const char* reason) {
  const int error = errno;
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  if (real().getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) local = {};
  if (SocketRecord* record = record_of(fd); record != nullptr) {
    record->inode.store(0);
    std::snprintf(record->role, sizeof record->role, "%s", role);
    std::snprintf(record->path, sizeof record->path, "%s", path);
    std::snprintf(record->reason, sizeof record->reason, "%s", reason);
    address_text(reinterpret_cast<const sockaddr*>(&local), record->local, sizeof record->local);
    std::snprintf(record->peer, sizeof record->peer, "-");
    if (peer != nullptr) address_text(peer, record->peer, sizeof record->peer);
    record->inode.store(inode_of(fd), std::memory_order_release);
  }
  errno = error;
}

void renumber(int fd) {
  if (g_mine.records == nullptr || g_mine.inherited || fd < 0 || fd >= kSocketListMost) return;
  const int error = errno;
  SocketRecord& record = g_mine.records[fd];
  if (record.inode.load() != 0) record.inode.store(inode_of(fd), std::memory_order_release);
  errno = error;
}

void in_child() { g_mine.inherited = g_mine.records != nullptr; }

}  // namespace list

void address_text(const sockaddr* address, char* out, std::size_t size) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    std::snprintf(out, size, "%s:%u", host, ntohs(v4->sin_port));
  } else if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    std::snprintf(out, size, "[%s]:%u", host, ntohs(v6->sin6_port));
  } else {
    std::snprintf(out, size, "?");
  }
}

}  // namespace weft::sockets
