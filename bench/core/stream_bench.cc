// Workloads: RDMA Writes from post to placement through two streams joined by memcpy, by size, with
// CRC on and off, 128 posted together. No system call: what the protocol itself costs.
#include <benchmark/benchmark.h>

#include "memory_host.h"

namespace weft::bench {
namespace {

std::uint32_t counter_random() {
  static std::uint32_t state = 1;
  state = state * 1664525U + 1013904223U;
  return state >> 8U;
}

proto::StreamParams params(bool initiator, bool crc, std::uint32_t max_ulpdu) {
  proto::StreamParams p;
  p.id = {1, initiator ? 1U : 2U};
  p.initiator = initiator;
  p.crc = crc;
  p.ird = p.ord = 16;
  p.max_ulpdu = max_ulpdu;
  return p;
}

void write_stream(benchmark::State& state) {
  const auto size = static_cast<std::uint32_t>(state.range(0));
  const bool crc = state.range(1) != 0;
  constexpr std::uint32_t kPosted = 128;
  std::vector<std::uint8_t> source(size, 0x5a);
  std::vector<std::uint8_t> target(size);
  proto::StagTable table(0x1234, counter_random, 1024);
  const Access all = Access::kLocalWrite | Access::kRemoteWrite;
  const auto base = [](const std::vector<std::uint8_t>& v) {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(v.data()));
  };
  const Stag lkey = *table.add({source.data(), size, base(source), all, 1, 0});
  const Stag rkey = *table.add({target.data(), size, base(target), all, 1, 0});
  MemoryHost client(table);
  MemoryHost server(table);
  const std::uint32_t max_ulpdu = crc ? 16384 : 64768;
  client.start(params(true, crc, max_ulpdu));
  server.start(params(false, crc, max_ulpdu));
  std::uint64_t posted = 0;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < kPosted; ++i) {
      proto::SendWqe* wqe = client.sq().reserve();
      wqe->op = SendOp::kWrite;
      wqe->flags = SendFlags::kSignaled;
      wqe->length = size;
      wqe->remote_stag = rkey;
      wqe->remote_to = base(target);
      wqe->sge_count = 1;
      wqe->sges()[0] = {base(source), size, lkey.value};
      client.sq().commit();
      ++posted;
    }
    client.pump_to(server);
  }
  if (client.completed() != posted || target != source) state.SkipWithError("bytes are missing");
  state.SetItemsProcessed(static_cast<std::int64_t>(posted));
  state.SetBytesProcessed(static_cast<std::int64_t>(posted * size));
}
BENCHMARK(write_stream)
    ->ArgNames({"bytes", "crc"})
    ->ArgsProduct({{64, 4096, 65536, 1 << 20}, {0, 1}});

}  // namespace
}  // namespace weft::bench
