// Workloads: STag look-up with all checks, in tables of different sizes; registration.
#include <benchmark/benchmark.h>

#include <vector>

#include "proto/stag_table.h"

namespace weft::bench {
namespace {

std::uint32_t counter_random() {
  static std::uint32_t state = 7;
  state = state * 1664525U + 1013904223U;
  return state >> 8U;
}

std::uint8_t g_memory[4096];

proto::MemorySpec spec() {
  return {g_memory, sizeof g_memory, 0x1000, Access::kLocalWrite | Access::kRemoteWrite, 1, 0};
}

void stag_resolve(benchmark::State& state) {
  proto::StagTable table(0x5678, counter_random, 1U << 20U);
  std::vector<Stag> stags;
  for (std::int64_t i = 0; i < state.range(0); ++i) stags.push_back(*table.add(spec()));
  std::size_t i = 0;
  for (auto _ : state) {
    proto::Pin pin;
    std::uint8_t* at = nullptr;
    const auto fault = table.resolve(stags[i], 0x1100, 64, Access::kRemoteWrite, {1, 1}, pin, at);
    benchmark::DoNotOptimize(at);
    if (fault != proto::MemoryFault::kNone) state.SkipWithError("look-up failed");
    if (++i == stags.size()) i = 0;
  }
}
BENCHMARK(stag_resolve)->ArgName("regions")->Arg(1)->Arg(1000)->Arg(100000);

void stag_register(benchmark::State& state) {
  proto::StagTable table(0x9abc, counter_random, 1U << 20U);
  for (auto _ : state) {
    const Stag stag = *table.add(spec());
    if (!table.remove(stag)) state.SkipWithError("removal failed");
  }
}
BENCHMARK(stag_register);

}  // namespace
}  // namespace weft::bench
