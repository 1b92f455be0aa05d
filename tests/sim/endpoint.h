// One side of a stream for tests: a Stream's host over real memory, without transport.
//
// Everything the host is told is recorded. Memory is one arena with a guard at each end; regions
// are parts of it. One thread.
#pragma once

#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/stag_table.h"
#include "proto/stream.h"
#include "proto/work.h"

namespace weft::testing {

struct EndpointConfig {
  std::size_t arena_bytes = 1U << 20U;
  std::uint32_t queue_depth = 1024;
  std::uint64_t secret = 1;
};

struct Down {
  proto::StreamEnd how = proto::StreamEnd::kOpen;
  TerminateCode code;
  bool by_peer = false;
};

class Endpoint final : public proto::StreamHost {
 public:
  static constexpr std::uint8_t kFill = 0xee;   // of untouched memory
  static constexpr std::uint8_t kGuard = 0xa5;  // around the arena
  static constexpr proto::StreamId kId{7, 3};
  static constexpr Access kAll = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead |
                                 Access::kRemoteAtomic | Access::kBindWindow;

  explicit Endpoint(const EndpointConfig& config);
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void start(const proto::StreamParams& params);
  // For a stream that somebody else makes.
  [[nodiscard]] proto::SendQueue& sq() { return sq_; }
  [[nodiscard]] proto::Stream& stream() { return *stream_; }
  [[nodiscard]] bool started() const { return stream_ != nullptr; }

  // --- memory ---

  // The next `size` octets of the arena, at `align`.
  [[nodiscard]] std::uint8_t* take(std::size_t size, std::size_t align = 1);
  [[nodiscard]] Stag add_region(std::uint8_t* at, std::size_t size, Access access = kAll,
                                std::optional<std::uint64_t> base = std::nullopt,
                                std::uint32_t stream = 0);
  [[nodiscard]] Stag whole() const { return whole_; }  // a region over all of the arena
  [[nodiscard]] proto::StagTable& table() { return table_; }
  [[nodiscard]] std::span<std::uint8_t> arena() { return {arena_, arena_size_}; }
  [[nodiscard]] bool guards_intact() const;

  // --- posting: a send slot to fill; the caller sets what it needs, then commits ---

  [[nodiscard]] proto::SendWqe* new_send(SendOp op, SendFlags flags, std::uint64_t wr_id);
  void add_sge(proto::SendWqe& wqe, Stag stag, const void* at, std::uint32_t size);
  void commit_send() { sq_.commit(); }
  void post_send(SendOp op, SendFlags flags, std::uint64_t wr_id, const void* at,
                 std::uint32_t size, Stag remote = {}, std::uint64_t to = 0);
  void post_recv(std::uint64_t wr_id, std::span<const Sge> sges);
  void post_recv(std::uint64_t wr_id, void* at, std::uint32_t size);
  [[nodiscard]] std::size_t receives_posted() const { return receives_.size(); }

  // Everything still queued completes as flushed, as the verbs layer does it.
  void flush_receives();
  [[nodiscard]] int carries_out() const { return carries_out_; }

  // --- what happened ---

  std::vector<proto::SendDone> sends;
  std::vector<proto::RecvDone> recvs;
  std::vector<AsyncEventType> events;
  std::vector<proto::Violation> violations;
  std::optional<Down> down;
  int first_fpdus = 0;
  std::function<bool(const proto::PathMessage&)> on_path_message;
  std::vector<Stag> invalidated_by_peer;
  std::vector<Step> steps;

  // --- knobs ---

  Instant clock{1};
  int batches_to_refuse = 0;  // acquire_batch() gives null so often
  int carries_to_refuse = 0;
  int receives_to_refuse = 0;  // take_receive() finds none so often
  std::function<void(const proto::RecvDone&)> on_recv;
  std::function<void(const proto::SendDone&)> on_send;
  std::function<WcStatus(proto::SendWqe&)> on_local;
  std::function<proto::Violation(Stag)> on_invalidate;

  // --- StreamHost ---

  std::uint8_t* acquire_carry(std::size_t size) override;
  void release_carry(std::uint8_t* carry, std::size_t size) override;
  bool take_receive(proto::RecvWqe& out) override;
  void send_done(const proto::SendDone& done) override;
  void recv_done(const proto::RecvDone& done) override;
  WcStatus local_operation(proto::SendWqe& wqe) override;
  proto::Violation remote_invalidate(Stag stag) override;
  std::uint64_t execute_atomic(std::uint8_t* target, const AtomicRequest& request) override;
  proto::TxBatch* acquire_batch() override;
  void release_batch(proto::TxBatch* batch) override;
  void step(const Step& what) override { steps.push_back(what); }
  void raise(AsyncEventType event) override { events.push_back(event); }
  void log_violation(proto::Violation violation, TerminateCode code, bool by_peer) override;
  void first_fpdu() override { ++first_fpdus; }
  bool path_message(const proto::PathMessage& message) override {
    return on_path_message && on_path_message(message);
  }
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  Instant now() override { return clock; }

 private:
  static constexpr std::size_t kGuardBytes = 4096;

  struct Posted {
    std::uint64_t wr_id;
    std::vector<Sge> sges;
  };

  std::vector<std::uint8_t> memory_;
  std::uint8_t* arena_;
  std::size_t arena_size_;
  std::size_t arena_used_ = 0;
  proto::StagTable table_;
  Stag whole_;
  proto::SendQueue sq_;
  std::deque<Posted> receives_;
  int batches_out_ = 0;
  int carries_out_ = 0;
  std::unique_ptr<proto::Stream> stream_;
};

}  // namespace weft::testing
