// One end of an RDMAP connection without an operating system: a Channel over a Stream, with the
// queues and completions that the verbs layer keeps elsewhere.
//
// Threads: one at a time; the owner excludes others. Memory is taken when the endpoint is made, or
// handed in then; never afterwards. Memory that a request names belongs to the endpoint until its
// completion has been polled.
#pragma once

#include <weft/limits.h>
#include <weft/result.h>
#include <weft/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/arena.h"
#include "base/time.h"
#include "proto/stag_table.h"
#include "proto/stream.h"
#include "proto/work.h"
#include "rddp/buffers.h"
#include "rddp/domain.h"
#include "rddp/fixed_queue.h"
#include "rddp/posted.h"
#include "rddp/rddp_channel.h"

namespace weft::rddp {

struct EndpointConfig {
  std::uint32_t send_depth = 16;                 // requests under way
  std::uint32_t recv_depth = 16;                 // receives posted
  std::uint32_t inline_bytes = 64;               // at most kCopyBelow of the profile
  std::uint16_t sges = limits::kSgesPerRequest;  // of one request, at most
  std::uint16_t batches = 2;                     // what is built ahead of acknowledgments
  std::uint16_t reads = 32;  // Reads and atomics at once, each way, that may be offered
  std::uint16_t private_data_kept = 512;  // of the peer's, octets once the connection is up
  Duration close_timeout{std::chrono::seconds(5)};
  Duration patience{std::chrono::milliseconds(50)};
};

struct EndpointCompletion {
  std::uint64_t wr_id = 0;
  std::uint64_t imm_data = 0;
  std::uint32_t byte_len = 0;
  Stag invalidated;
  WcStatus status = WcStatus::kSuccess;
  bool receive = false;
  bool immediate = false;
  bool solicited = false;
  SendOp op = SendOp::kSend;  // of a send request
};

class Endpoint final : public Channel, private proto::StreamHost {
 public:
  using Clock = Instant (*)();

  // Null: no memory.
  [[nodiscard]] static std::unique_ptr<Endpoint> create(const EndpointConfig& config,
                                                        Domain& domain, Clock clock);
  // The same in memory of the caller's, which outlives the endpoint; good() is false when it is
  // less than memory_needed(), or when the config asks for more inline_bytes or sges than there can
  // be. REQUIRES: memory.data() is a multiple of kArenaAlignment.
  Endpoint(const EndpointConfig& config, Domain& domain, Clock clock, std::span<std::byte> memory);
  static constexpr std::size_t memory_needed(const EndpointConfig& config) noexcept {
    return arena_bytes<std::uint8_t>(config.private_data_kept) +
           arena_bytes<std::uint8_t>(
               proto::SendQueue::memory_needed(config.send_depth, send_tail(config))) +
           PostedBuffers::memory_needed(config.recv_depth) +
           FixedQueue<EndpointCompletion>::memory_needed(std::size_t{config.send_depth} +
                                                         config.recv_depth) +
           StreamBuffers::memory_needed(config.batches) + stream_memory(config);
  }
  // It has all its memory, and may connect.
  [[nodiscard]] bool good() const noexcept { return !stream_memory_.empty(); }
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // --- requests ---

  // SGEs with lkey 0 name memory of this program that is not registered.
  //   kBadState         not up
  //   kNoSpace          send_depth requests are under way
  //   kInvalidArgument  too many SGEs, or more inline bytes than configured
  [[nodiscard]] Status post(const SendWr& wr);
  // One buffer for one message. Possible before the connection is up.
  //   kNoSpace   recv_depth receives are posted
  [[nodiscard]] Status post_recv(std::uint64_t wr_id, void* buffer, std::uint32_t size);
  // The oldest completion, if there is one.
  [[nodiscard]] std::optional<EndpointCompletion> poll();
  [[nodiscard]] std::size_t receives_posted() const noexcept { return posted_.size(); }
  // For an owner that shares buffers among endpoints; see PostedBuffers.
  void on_receive_taken(PostedBuffers::TakenFn fn, void* context) { posted_.on_taken(fn, context); }
  // Takes a receive back that is still posted. False: it is not.
  bool unpost(std::uint64_t wr_id);
  [[nodiscard]] std::uint32_t stream_id() const noexcept { return id_.stream; }

  proto::Ahead place_ahead(std::uint32_t distance,
                           std::span<const std::uint8_t> bytes) const override;
  [[nodiscard]] Instant deadline() const noexcept override;
  void expired(Instant now) override;

  [[nodiscard]] const proto::StreamCounters* counters() const noexcept {
    return stream_ ? &stream_->counters() : nullptr;
  }
  [[nodiscard]] proto::Stream* stream() noexcept { return stream_; }
  // Why the connection ended, when a Terminate said so.
  [[nodiscard]] const TerminateCode& terminate_code() const noexcept { return terminate_; }
  [[nodiscard]] bool terminated_by_peer() const noexcept { return terminated_by_peer_; }
  [[nodiscard]] bool terminated() const noexcept { return terminated_; }

 private:
  // Behind each send request: SGEs, inline payload or what atomics need.
  static constexpr std::size_t send_tail(const EndpointConfig& config) noexcept {
    return std::max<std::size_t>(
        {config.inline_bytes, proto::kSendTailMin, config.sges * sizeof(Sge)});
  }
  // One after the other: the frames of start-up, the stream.
  static constexpr std::size_t stream_memory(const EndpointConfig& config) noexcept {
    return std::max(
        arena_bytes<StartupRoom>(),
        arena_bytes<proto::Stream>() + proto::Stream::memory_needed(config.reads, config.reads));
  }
  [[nodiscard]] bool take(Arena memory);
  void flush_receives();

  // Channel
  bool begin_stream() override;
  void stream_feed(std::span<std::uint8_t> bytes) override { stream_->feed(bytes); }
  void stream_peer_closed() override { stream_->peer_closed(); }
  void stream_lost(bool timed_out) override { stream_->transport_lost(timed_out); }
  [[nodiscard]] bool stream_tx_pending() const noexcept override { return stream_->tx_pending(); }
  proto::TxBatch* stream_gather() override { return stream_->gather(); }
  void stream_sent(std::size_t n) override { stream_->sent(n); }
  void stream_released(std::size_t n) override { stream_->released(n); }
  void stream_transport_closed() override { stream_->transport_closed(); }
  bool stream_take_fin() override { return stream_->take_fin(); }
  [[nodiscard]] bool stream_finished() const noexcept override { return stream_->finished(); }
  [[nodiscard]] bool stream_wants_reset() const noexcept override { return stream_->wants_reset(); }
  void stream_close() override { stream_->close(); }
  void stream_abort() override { stream_->abort(); }

  // StreamHost
  std::uint8_t* acquire_carry(std::size_t size) override { return buffers_.acquire_carry(size); }
  void release_carry(std::uint8_t* /*carry*/, std::size_t /*size*/) override {
    buffers_.release_carry();
  }
  bool take_receive(proto::RecvWqe& out) override;
  void send_done(const proto::SendDone& done) override;
  void recv_done(const proto::RecvDone& done) override;
  WcStatus local_operation(proto::SendWqe& wqe) override;
  proto::Violation remote_invalidate(Stag stag) override;
  std::uint64_t execute_atomic(std::uint8_t* target, const AtomicRequest& request) override;
  proto::TxBatch* acquire_batch() override { return buffers_.acquire_batch(); }
  void release_batch(proto::TxBatch* batch) override { buffers_.release_batch(batch); }
  void raise(AsyncEventType) override {}
  void log_violation(proto::Violation, TerminateCode, bool) override {}
  void first_fpdu() override {}
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  Instant now() override { return clock_(); }

  std::unique_ptr<std::byte[]> own_;  // what create() has handed in
  const EndpointConfig config_;
  Domain& domain_;
  const Clock clock_;
  const proto::StreamId id_;

  proto::SendQueue send_queue_;
  PostedBuffers posted_;
  FixedQueue<EndpointCompletion> done_;
  std::uint32_t unpolled_sends_ = 0, unpolled_recvs_ = 0;  // room in done_ is kept for them

  StreamBuffers buffers_;
  TerminateCode terminate_;
  bool terminated_ = false;
  bool terminated_by_peer_ = false;
  std::span<std::uint8_t> kept_data_;   // room for the peer's private data
  std::span<std::byte> stream_memory_;  // of start-up, then of the stream
  proto::Stream* stream_ = nullptr;
};

}  // namespace weft::rddp
