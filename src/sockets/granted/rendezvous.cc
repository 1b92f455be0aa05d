#include "sockets/granted/rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "os/clock.h"
#include "sockets/granted/rendezvous_table.h"
#include "sockets/real_calls.h"

namespace weft::sockets::granted::rendezvous {
namespace {

constexpr uid_t kNobody = 65534;  // users that a namespace does not know all look like this one

std::atomic<RendezvousTable*> g_table{nullptr};
std::atomic<bool> g_refused{false};
std::atomic<uid_t> g_user{0};

// Memory that can't be cut short under us by accident: all of it is there before it is used.
RendezvousTable* map(int fd) {
  struct stat is {};
  if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode) || is.st_uid != geteuid() || is.st_nlink != 1 ||
      (is.st_mode & 077U) != 0) {
    return nullptr;
  }
  constexpr auto kBytes = static_cast<off_t>(sizeof(RendezvousTable));
  if (is.st_size < kBytes && posix_fallocate(fd, 0, kBytes) != 0) return nullptr;
  void* at = mmap(nullptr, sizeof(RendezvousTable), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<RendezvousTable*>(at);
}

RendezvousTable* open_table() {
  const uid_t user = geteuid();
  if (RendezvousTable* table = g_table.load(std::memory_order_acquire); table != nullptr) {
    return user == g_user.load(std::memory_order_relaxed) ? table : nullptr;
  }
  if (g_refused.load(std::memory_order_relaxed)) return nullptr;
  char path[64];
  std::snprintf(path, sizeof path, "/dev/shm/weft-sockets-%u-3", user);
  const int fd =
      user == kNobody ? -1 : ::open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  RendezvousTable* table = fd < 0 ? nullptr : map(fd);
  if (fd >= 0) real().close(fd);
  if (table == nullptr) {
    g_refused = true;
    return nullptr;
  }
  g_user = user;
  RendezvousTable* before = nullptr;
  if (g_table.compare_exchange_strong(before, table)) return table;
  munmap(table, sizeof(RendezvousTable));
  return before;
}

// The namespace's number, 0 where /proc does not tell it. Programs that change theirs by a call
// that is seen use no rings from then on.
Member this_process() {
  static const std::uint32_t space = [] {
    struct stat is {};
    return stat("/proc/self/ns/pid", &is) == 0 ? static_cast<std::uint32_t>(is.st_ino) : 0U;
  }();
  return {static_cast<std::int32_t>(getpid()), space};
}

}  // namespace

Found post(const Post& post, Ticket& ticket) {
  RendezvousTable* table = open_table();
  if (table == nullptr) return Found::kNo;
  return table->post(this_process(), os::monotonic_ns(), post, ticket);
}

void give(const Ticket& ticket, const Made& made) { g_table.load()->give(ticket, made); }

Answer look(const Ticket& ticket, Made& made) {
  RendezvousTable* table = g_table.load();
  return table == nullptr || ticket.index < 0 ? Answer::kGone : table->look(ticket, made);
}

void withdraw(const Ticket& ticket) {
  RendezvousTable* table = g_table.load();
  if (table != nullptr && ticket.index >= 0) table->withdraw(ticket);
}

}  // namespace weft::sockets::granted::rendezvous
