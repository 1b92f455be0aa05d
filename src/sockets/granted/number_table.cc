#include "sockets/granted/number_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

namespace weft::sockets::granted::numbers {
namespace {

constexpr int kChunk = 4096;
constexpr int kChunks = 256;  // a million descriptors
std::array<std::atomic<Number*>, kChunks> g_chunks;
std::atomic<int> g_end{0};

Number* find_or_make(int fd) {
  if (fd < 0 || fd >= kChunk * kChunks) return nullptr;
  std::atomic<Number*>& chunk = g_chunks.at(static_cast<std::size_t>(fd / kChunk));
  Number* at = chunk.load(std::memory_order_acquire);
  if (at == nullptr) {
    constexpr std::size_t kBytes = sizeof(Number) * kChunk;
    void* made = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return nullptr;
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

void note_fresh(int fd) {
  Number* number = find_or_make(fd);
  if (number == nullptr) return;
  int before = g_end.load(std::memory_order_relaxed);
  while (before <= fd && !g_end.compare_exchange_weak(before, fd + 1)) {
  }
  number->calls.store(1, std::memory_order_release);
}

void leave_to_kernel(int fd) {
  Number* number = find(fd);
  if (number == nullptr || number->calls.load(std::memory_order_relaxed) == kKernels) return;
  number->calls.store(kKernels, std::memory_order_release);
}

void leave_range(unsigned first, unsigned last, bool (*which)(int fd)) {
  const auto past = std::min<std::uint64_t>(static_cast<std::uint64_t>(end()), last + 1ULL);
  for (std::uint64_t i = first; i < past; ++i) {
    const auto fd = static_cast<int>(i);
    const Number* number = find(fd);
    if (number == nullptr || number->calls.load(std::memory_order_relaxed) == kKernels) continue;
    if (which(fd)) leave_to_kernel(fd);
  }
}

int end() { return g_end.load(std::memory_order_relaxed); }

}  // namespace weft::sockets::granted::numbers
