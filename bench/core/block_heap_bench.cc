// Workloads: one free and one allocation of device memory, with many segments alive, beside a buddy
// allocator and glibc's malloc. `random`: sizes spread evenly over the powers of two, 1 octet to 64
// KiB. `server`: what a data server asks for, mostly whole chunks of 256 KiB and the ends of files.
// waste_pct: octets held beyond those asked for, in percent. Less is better, for both figures.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "base/block_heap.h"

namespace weft::bench {
namespace {

constexpr std::uint64_t kArea = std::uint64_t{8} << 30U;  // offsets only: no memory behind it

class Blocks {
 public:
  explicit Blocks(BlockHeap::Policy policy) : heap_(kArea, policy), owner_(heap_.add_owner()) {}
  std::uint64_t allocate(std::uint64_t bytes) { return heap_.allocate(owner_, bytes).value_or(0); }
  void free(std::uint64_t handle) { static_cast<void>(heap_.free(owner_, handle)); }
  [[nodiscard]] double held() const { return static_cast<double>(heap_.stats().held_bytes); }

 private:
  BlockHeap heap_;
  BlockHeap::Owner owner_;
};
struct FastBlocks : Blocks {
  FastBlocks() : Blocks(BlockHeap::Policy::kFast) {}
};
struct TightBlocks : Blocks {
  TightBlocks() : Blocks(BlockHeap::Policy::kTight) {}
};

// A buddy allocator over the same blocks: powers of two, halves merged when both are free.
class Buddy {
 public:
  Buddy() : free_(kOrders), order_of_(kArea / kBlock, 0xff) { free_[kOrders - 1].insert(0); }
  std::uint64_t allocate(std::uint64_t bytes) {
    const unsigned order = order_for(bytes);
    unsigned from = order;
    while (from < kOrders && free_[from].empty()) ++from;
    if (from == kOrders) return 0;
    const std::uint64_t block = *free_[from].begin();
    free_[from].erase(free_[from].begin());
    while (from > order) {
      --from;
      free_[from].insert(block + (std::uint64_t{1} << from));
    }
    order_of_[block] = static_cast<std::uint8_t>(order);
    held_ += kBlock << order;
    return block + 1;
  }
  void free(std::uint64_t handle) {
    std::uint64_t block = handle - 1;
    unsigned order = order_of_[block];
    held_ -= kBlock << order;
    while (order + 1 < kOrders && free_[order].erase(block ^ (std::uint64_t{1} << order)) != 0) {
      block &= ~(std::uint64_t{1} << order++);
    }
    free_[order].insert(block);
  }
  [[nodiscard]] double held() const { return static_cast<double>(held_); }

 private:
  static constexpr std::uint64_t kBlock = BlockHeap::kBlockBytes;
  static constexpr unsigned kOrders = 25;  // 512 octets to 8 GiB
  static unsigned order_for(std::uint64_t bytes) {
    return static_cast<unsigned>(std::bit_width((bytes + kBlock - 1) / kBlock - 1));
  }
  std::vector<std::set<std::uint64_t>> free_;
  std::vector<std::uint8_t> order_of_;
  std::uint64_t held_ = 0;
};

// Memory is reserved and not touched, so that only the allocator's own work is measured.
class Glibc {
 public:
  std::uint64_t allocate(std::uint64_t bytes) {
    void* at = std::malloc(bytes);
    held_ += malloc_usable_size(at) + sizeof(std::size_t);
    return reinterpret_cast<std::uintptr_t>(at);
  }
  void free(std::uint64_t handle) {
    auto* at = reinterpret_cast<void*>(handle);
    held_ -= malloc_usable_size(at) + sizeof(std::size_t);
    std::free(at);
  }
  [[nodiscard]] double held() const { return static_cast<double>(held_); }

 private:
  std::uint64_t held_ = 0;
};

std::uint64_t random_size(std::mt19937_64& rng) {
  const std::uint64_t top = std::uint64_t{1} << (rng() % 17);
  return 1 + rng() % top;
}
std::uint64_t server_size(std::mt19937_64& rng) {
  return rng() % 4 != 0 ? 256U << 10U : 1 + rng() % (256U << 10U);
}

template <class Allocator, std::uint64_t (*kSize)(std::mt19937_64&)>
void allocate_and_free(benchmark::State& state) {
  Allocator allocator;
  std::mt19937_64 rng(1);
  struct Live {
    std::uint64_t handle, bytes;
  };
  std::vector<Live> live(static_cast<std::size_t>(state.range(0)));
  double asked = 0;
  for (Live& l : live) {
    l = {0, kSize(rng)};
    l.handle = allocator.allocate(l.bytes);
    asked += static_cast<double>(l.bytes);
  }
  // The numbers are drawn beforehand: drawing costs as much as allocating.
  struct Step {
    std::size_t which;
    std::uint64_t bytes;
  };
  std::vector<Step> steps(1U << 16U);
  for (Step& s : steps) s = {rng() % live.size(), kSize(rng)};
  std::size_t at = 0;
  for (auto _ : state) {
    const Step& step = steps[at++ % steps.size()];
    Live& l = live[step.which];
    allocator.free(l.handle);
    asked += static_cast<double>(step.bytes) - static_cast<double>(l.bytes);
    l = {allocator.allocate(step.bytes), step.bytes};
    if (l.handle == 0) {
      state.SkipWithError("no room");
      break;
    }
  }
  state.counters["waste_pct"] = 100 * (allocator.held() - asked) / asked;
  for (const Live& l : live) allocator.free(l.handle);
}

#define WEFT_HEAP_BENCH(allocator)                     \
  BENCHMARK(allocate_and_free<allocator, random_size>) \
      ->Name("heap/random/" #allocator)                \
      ->Arg(100)                                       \
      ->Arg(10000);                                    \
  BENCHMARK(allocate_and_free<allocator, server_size>)->Name("heap/server/" #allocator)->Arg(10000)
WEFT_HEAP_BENCH(FastBlocks);
WEFT_HEAP_BENCH(TightBlocks);
WEFT_HEAP_BENCH(Buddy);
WEFT_HEAP_BENCH(Glibc);

}  // namespace
}  // namespace weft::bench
