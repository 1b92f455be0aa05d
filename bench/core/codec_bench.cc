// Workloads: encode and decode of DDP and RDMAP headers; CRC32C by size.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/crc32c.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::bench {
namespace {

void encode_tagged(benchmark::State& state) {
  std::uint8_t out[DdpTagged::kSize];
  DdpTagged h{true, rdmap_control(Opcode::kWrite), Stag{0x01020304}, 0x1000};
  for (auto _ : state) {
    ++h.to;
    store_ddp(h, out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(encode_tagged);

void decode_tagged(benchmark::State& state) {
  std::uint8_t in[DdpTagged::kSize];
  store_ddp(DdpTagged{true, rdmap_control(Opcode::kWrite), Stag{0x01020304}, 0x1000}, in);
  for (auto _ : state) {
    benchmark::DoNotOptimize(in);
    const auto op = check_segment_control(in[0], in[1]);
    const DdpTagged h = load_ddp_tagged(in);
    benchmark::DoNotOptimize(op);
    benchmark::DoNotOptimize(h);
  }
}
BENCHMARK(decode_tagged);

void decode_untagged(benchmark::State& state) {
  std::uint8_t in[DdpUntagged::kSize];
  store_ddp(DdpUntagged{true, rdmap_control(Opcode::kSend), 0, 0, Msn{7}, 0}, in);
  for (auto _ : state) {
    benchmark::DoNotOptimize(in);
    const auto op = check_segment_control(in[0], in[1]);
    const DdpUntagged h = load_ddp_untagged(in);
    benchmark::DoNotOptimize(op);
    benchmark::DoNotOptimize(h);
  }
}
BENCHMARK(decode_untagged);

void crc(benchmark::State& state) {
  const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(state.range(0)), 0xa5);
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(crc)->ArgName("bytes")->Arg(80)->Arg(1460)->Arg(16384)->Arg(1 << 20);

}  // namespace
}  // namespace weft::bench
