#include "sockets/granted/holders.h"

#include <sys/mman.h>

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "sockets/own_memory.h"

namespace weft::sockets::granted::holders {
namespace {

constexpr std::size_t kCounts = 4096;
constexpr std::uint32_t kUnknown = 1U << 30U;

// Counts of numbers that this process was the first to share. 0: free.
HolderCount* g_counts = nullptr;

HolderCount* make_count() {
  if (g_counts == nullptr) {
    void* at = mmap(nullptr, kCounts * sizeof(HolderCount), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    g_counts = static_cast<HolderCount*>(at);
  }
  for (std::size_t i = 0; i < kCounts; ++i) {
    std::uint32_t free = 0;
    if (g_counts[i].compare_exchange_strong(free, 1)) return &g_counts[i];
  }
  return nullptr;
}

}  // namespace

bool share(Number& number) {
  HolderCount* count = number.holders.load();
  if (count == nullptr) {
    count = make_count();
    if (count == nullptr) return false;
    number.holders.store(count);
  }
  count->fetch_add(1);
  return true;
}

bool counted(const Number& number) { return number.holders.load() != nullptr; }

bool sole(const Number& number) {
  const HolderCount* count = number.holders.load();
  return count == nullptr || count->load() == 1;
}

namespace {

// One that had a pointer to the count has it no more. The last one frees it.
void subtract(HolderCount& count) {
  const std::uint32_t before = count.fetch_sub(1);
  assert((before & ~kUnknown) != 0);
  if (before == (kUnknown | 1U)) count.store(0);
}

}  // namespace

void drop(Number& number) {
  // A call under way keeps the socket beyond its number. A child of vfork() closes a number of its
  // own, and this is its parent's.
  if (number.running.load() != 0 || borrowing()) return add_unknown(number);
  if (HolderCount* count = number.holders.exchange(nullptr)) subtract(*count);
}

void add_unknown(Number& number) {
  HolderCount* count = number.holders.exchange(nullptr);
  if (count == nullptr) return;
  count->fetch_or(kUnknown);
  subtract(*count);
}

void forget(Number& number) { number.holders.store(nullptr); }

void in_child() {
  g_counts = nullptr;
  for (int fd = 0; fd < numbers::end(); ++fd) {
    Number* number = numbers::find(fd);
    if (number != nullptr && number->calls.load() == kKernels) add_unknown(*number);
  }
}

}  // namespace weft::sockets::granted::holders
