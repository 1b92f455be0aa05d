// Workloads: tagged messages from post to placement through two DDP streams joined by memcpy, as
// stream_bench.cc does it with RDMA Writes: DDP by itself beside RDMAP with its own DDP.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "proto/ddp_stream.h"

namespace weft::bench {
namespace {

constexpr std::uint32_t kPosted = 128;

std::uint32_t counter_random() {
  static std::uint32_t state = 1;
  state = state * 1664525U + 1013904223U;
  return state >> 8U;
}

class DdpMemoryHost final : public proto::DdpHost {
 public:
  DdpMemoryHost(proto::StagTable& table, const proto::DdpParams& params)
      : table_(table), stream_(params, *this) {}

  [[nodiscard]] proto::DdpStream& stream() { return stream_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }

  // Carries everything there is to transmit over to `peer`.
  [[gnu::noinline]] void pump_to(DdpMemoryHost& peer) {
    while (proto::TxBatch* batch = stream_.gather()) {
      std::size_t total = 0;
      std::size_t used = 0;
      for (std::size_t i = batch->slice_next; i < batch->slice_count; ++i) {
        for (std::size_t at = 0; at < batch->slices[i].size;) {
          const std::size_t n = std::min(batch->slices[i].size - at, scratch_.size() - used);
          std::memcpy(scratch_.data() + used, batch->slices[i].data + at, n);
          at += n;
          used += n;
          total += n;
          if (used != scratch_.size()) continue;
          peer.stream_.feed(scratch_);
          used = 0;
        }
      }
      peer.stream_.feed(std::span(scratch_).first(used));
      stream_.sent(total);
      stream_.released(total);
    }
  }

  proto::MemoryFault place(Stag stag, std::uint64_t to, proto::MarkedOctets payload) override {
    std::uint8_t* at = nullptr;
    const proto::MemoryFault fault =
        table_.resolve(stag, to, payload.size(), Access::kRemoteWrite, {1, 0}, pin_, at);
    if (fault == proto::MemoryFault::kNone) payload.move_to(at, payload.size());
    return fault;
  }
  bool tagged_delivered(const DdpTagged&) override { return true; }
  bool take_buffer(std::uint32_t, std::span<std::uint8_t>&) override { return false; }
  void untagged_delivered(const DdpUntagged&, std::uint32_t) override {}
  void message_released(bool) override { ++completed_; }
  void stream_ended(proto::DdpEnd) override {}
  std::uint8_t* acquire_carry(std::size_t size) override { return new std::uint8_t[size]; }
  void release_carry(std::uint8_t* carry, std::size_t) override { delete[] carry; }
  proto::TxBatch* acquire_batch() override { return batch_.get(); }
  void release_batch(proto::TxBatch*) override {}

 private:
  proto::StagTable& table_;
  proto::Pin pin_;
  std::unique_ptr<proto::TxBatch> batch_ = std::make_unique<proto::TxBatch>();
  std::vector<std::uint8_t> scratch_ = std::vector<std::uint8_t>(256U << 10U);
  std::uint64_t completed_ = 0;
  proto::DdpStream stream_;
};

void write_ddp_stream(benchmark::State& state) {
  const auto size = static_cast<std::uint32_t>(state.range(0));
  std::vector<std::uint8_t> source(size, 0x5a);
  std::vector<std::uint8_t> target(size);
  proto::StagTable table(0x1234, counter_random, 1024);
  const Stag stag = *table.add({target.data(), size, 0, Access::kRemoteWrite, 1, 0});
  proto::DdpParams params;
  params.crc = state.range(1) != 0;
  params.send_depth = 2 * kPosted;
  params.max_ulpdu = params.crc ? 16384 : 64768;
  DdpMemoryHost client(table, params), server(table, params);
  proto::DdpMessage message;
  message.tagged = true;
  message.stag = stag;
  message.data = source.data();
  message.length = size;
  std::uint64_t posted = 0;
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < kPosted; ++i, ++posted) {
      if (!client.stream().post(message)) state.SkipWithError("no room");
    }
    client.pump_to(server);
  }
  if (client.completed() != posted || target != source) state.SkipWithError("bytes are missing");
  state.SetItemsProcessed(static_cast<std::int64_t>(posted));
  state.SetBytesProcessed(static_cast<std::int64_t>(posted * size));
}
BENCHMARK(write_ddp_stream)
    ->ArgNames({"bytes", "crc"})
    ->ArgsProduct({{64, 4096, 65536, 1 << 20}, {0, 1}});

}  // namespace
}  // namespace weft::bench
