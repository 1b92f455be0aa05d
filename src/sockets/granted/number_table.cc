#include "sockets/granted/number_table.h"

#include <cstdlib>
#include <new>

#include "sockets/fd_table.h"

namespace weft::sockets::granted {

std::uint32_t busy_calls() {
  static const std::uint32_t calls = [] {
    const char* text = secure_getenv("WEFT_SOCKETS_BUSY_CALLS");
    const long value = text == nullptr ? 0 : std::strtol(text, nullptr, 10);
    return value >= 1 && value <= 1000 ? static_cast<std::uint32_t>(value) : kBusyCalls;
  }();
  return calls;
}

namespace numbers {
namespace {

constinit FdTable<Number> g_numbers;
std::atomic<bool> g_stopped{false};
std::atomic<std::uint32_t> g_forks{0};

}  // namespace

Number* find(int fd) { return g_numbers.find(fd); }

void stop() { g_stopped = true; }

std::uint32_t forks() { return g_forks.load(); }
void note_fork() { g_forks.fetch_add(1); }

void note_fresh(int fd, std::uint32_t forks) {
  if (g_stopped.load(std::memory_order_relaxed)) return;
  Number* number = g_numbers.make(fd);
  if (number == nullptr) return;
  {
    const os::SpinGuard guard(number->watch_lock);
    number->watch = {};
    number->asks = false;
  }
  number->holders.store(nullptr);
  number->calls.store(1);
  // Before its look at the numbers the thread that forks counts this.
  if (g_forks.load() != forks) number->calls.store(kKernels);
}

void note_instance(int fd) {
  for (int i = 0; i < end(); ++i) {
    Number* number = find(i);
    if (number == nullptr) continue;
    const os::SpinGuard guard(number->watch_lock);
    if (number->watch.epoll == fd) number->watch = {};
  }
}

int end() { return g_numbers.end(); }

bool any_lane() {
  for (int i = 0; i < end(); ++i) {
    if (const Number* number = find(i); number != nullptr && number->lane.load() != nullptr) {
      return true;
    }
  }
  return false;
}

void in_child() {
  for (int i = 0; i < end(); ++i) {
    Number* number = find(i);
    if (number == nullptr) continue;
    if (number->watch_lock.try_lock()) {
      number->watch_lock.unlock();
    } else {
      // A thread of the parent has it, while it writes.
      new (&number->watch_lock) os::SpinLock();
      const os::SpinGuard guard(number->watch_lock);
      number->watch.lost = true;
    }
    number->lane = nullptr;
    // A call under way is another thread's, or one that a signal handler has interrupted: then it
    // goes on here.
    const bool quiet = number->running.load() == 0;
    const bool counted = number->calls.load() != kKernels && number->holders.load() != nullptr;
    number->calls = quiet && counted ? 1 : kKernels;
  }
}

}  // namespace numbers
}  // namespace weft::sockets::granted
