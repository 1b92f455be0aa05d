#include "files/client/local_lease.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "files/protocol/file_attributes.h"

namespace weft::files {
namespace {

constexpr int kFree = -1;
constexpr int kTaken = -2;  // by a lease that is not there yet

struct Slots {
  Slots() {
    for (auto& fd : fds) fd = kFree;
  }
  std::array<std::atomic<int>, LocalLease::kMost> fds;
};
Slots g_slots;
std::once_flag g_handles;
pid_t g_listener = 0;  // the thread that the kernel tells, once g_handles is done with

// The kernel waits for these. A lease that was given back is never held again.
void give_back_broken() {
  for (const auto& slot : g_slots.fds) {
    const int fd = slot;
    if (fd >= 0 && fcntl(fd, F_GETLEASE) != F_RDLCK) fcntl(fd, F_SETLEASE, F_UNLCK);
  }
}

// A thread of its own takes the kernel's signals: elsewhere they would end the process, or where
// they are blocked reach nobody.
void handle_breaks() {
  std::promise<pid_t> number;
  std::future<pid_t> known = number.get_future();
  std::thread([number = std::move(number)]() mutable {
    sigset_t breaks;
    sigemptyset(&breaks);
    sigaddset(&breaks, SIGIO);
    pthread_sigmask(SIG_BLOCK, &breaks, nullptr);
    number.set_value(static_cast<pid_t>(syscall(SYS_gettid)));
    for (int signal = 0; sigwait(&breaks, &signal) == 0;) give_back_broken();
  }).detach();
  g_listener = known.get();
}

}  // namespace

int LocalLease::take(int fd) {
  if (!leases_tell(fd)) return EINVAL;
  std::call_once(g_handles, handle_breaks);
  for (slot_ = 0; slot_ < kMost; ++slot_) {
    int expected = kFree;
    if (g_slots.fds[slot_].compare_exchange_strong(expected, kTaken)) break;
  }
  if (slot_ == kMost) return ENOLCK;
  // In its slot before there is a lease that could be broken.
  g_slots.fds[slot_] = fd;
  const f_owner_ex listener{F_OWNER_TID, g_listener};
  if (fcntl(fd, F_SETOWN_EX, &listener) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    fd_ = fd;
    return 0;
  }
  const int error = errno;
  g_slots.fds[slot_] = kFree;
  return error;
}

bool LocalLease::is_held() const { return fd_ >= 0 && fcntl(fd_, F_GETLEASE) == F_RDLCK; }

void LocalLease::give_back() {
  if (fd_ < 0) return;
  fcntl(fd_, F_SETLEASE, F_UNLCK);
  g_slots.fds[slot_] = kFree;
  fd_ = -1;
}

}  // namespace weft::files
