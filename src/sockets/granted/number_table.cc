#include "sockets/granted/number_table.h"

#include <sys/mman.h>

#include <array>
#include <cstdlib>

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

constexpr int kChunk = 4096;
constexpr int kChunks = 256;  // a million descriptors
std::array<std::atomic<Number*>, kChunks> g_chunks;
std::atomic<int> g_end{0};
std::atomic<bool> g_stopped{false};

Number* find_or_make(int fd) {
  if (fd < 0 || fd >= kChunk * kChunks) return nullptr;
  std::atomic<Number*>& chunk = g_chunks.at(static_cast<std::size_t>(fd / kChunk));
  Number* at = chunk.load(std::memory_order_acquire);
  if (at == nullptr) {
    constexpr std::size_t kBytes = sizeof(Number) * kChunk;
    void* made = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return nullptr;
    // All zero is what a Number begins with.
    if (chunk.compare_exchange_strong(at, static_cast<Number*>(made))) {
      at = static_cast<Number*>(made);
    } else {
      munmap(made, kBytes);
    }
  }
  return at + fd % kChunk;
}

}  // namespace

Number* find(int fd) {
  if (fd < 0 || fd >= kChunk * kChunks) return nullptr;
  Number* at = g_chunks[static_cast<std::size_t>(fd / kChunk)].load(std::memory_order_acquire);
  return at == nullptr ? nullptr : at + fd % kChunk;
}

void stop() { g_stopped = true; }

void note_fresh(int fd) {
  if (g_stopped.load(std::memory_order_relaxed)) return;
  Number* number = find_or_make(fd);
  if (number == nullptr) return;
  int before = g_end.load(std::memory_order_relaxed);
  while (before <= fd && !g_end.compare_exchange_weak(before, fd + 1)) {
  }
  {
    const os::SpinGuard guard(number->watch_lock);
    number->watch = {};
    number->asks = false;
  }
  number->calls.store(1, std::memory_order_release);
}

void note_instance(int fd) {
  for (int i = 0; i < end(); ++i) {
    Number* number = find(i);
    if (number == nullptr) continue;
    const os::SpinGuard guard(number->watch_lock);
    if (number->watch.epoll == fd) number->watch = {};
  }
}

int end() { return g_end.load(std::memory_order_relaxed); }

}  // namespace numbers
}  // namespace weft::sockets::granted
