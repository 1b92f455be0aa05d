// A stream without a transport: the smallest host, for benchmarks of the core alone.
#pragma once

#include <memory>
#include <vector>

#include "proto/stream.h"

namespace weft::bench {

inline constexpr std::uint32_t kQueueDepth = 256;

class MemoryHost final : public proto::StreamHost {
 public:
  explicit MemoryHost(proto::StagTable& table) : table_(table) {}
  void start(const proto::StreamParams& params);

  [[nodiscard]] proto::Stream& stream() { return *stream_; }
  [[nodiscard]] proto::SendQueue& sq() { return sq_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }

  // Carries everything there is to transmit over to `peer`.
  void pump_to(MemoryHost& peer);

  bool take_receive(proto::RecvWqe&) override { return false; }
  void send_done(const proto::SendDone&) override { ++completed_; }
  void recv_done(const proto::RecvDone&) override {}
  WcStatus local_operation(proto::SendWqe&) override { return WcStatus::kSuccess; }
  proto::Violation remote_invalidate(Stag) override { return proto::Violation::kNone; }
  std::uint64_t execute_atomic(std::uint8_t*, const AtomicRequest&) override { return 0; }
  proto::TxBatch* acquire_batch() override { return batch_.get(); }
  void release_batch(proto::TxBatch*) override {}
  std::uint8_t* acquire_carry(std::size_t size) override { return new std::uint8_t[size]; }
  void release_carry(std::uint8_t* carry, std::size_t) override { delete[] carry; }
  void raise(AsyncEventType) override {}
  void log_violation(proto::Violation, TerminateCode, bool) override {}
  void first_fpdu() override {}
  void stream_down(proto::StreamEnd, TerminateCode, bool) override {}
  [[nodiscard]] Instant now() override { return {}; }

 private:
  proto::StagTable& table_;
  proto::SendQueue sq_;
  std::unique_ptr<proto::TxBatch> batch_ = std::make_unique<proto::TxBatch>();
  std::vector<std::uint8_t> scratch_ = std::vector<std::uint8_t>(256U << 10U);
  std::unique_ptr<proto::Stream> stream_;
  std::uint64_t completed_ = 0;
};

}  // namespace weft::bench
