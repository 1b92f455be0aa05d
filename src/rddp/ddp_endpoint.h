// One end of a connection that carries DDP without RDMAP, or MPA by itself: a Channel over a
// DdpStream, with posted buffers and events.
//
// Threads: as Channel. Memory is taken when the endpoint is made and when start-up ends, never
// afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "proto/ddp_stream.h"
#include "rddp/buffers.h"
#include "rddp/domain.h"
#include "rddp/fixed_queue.h"
#include "rddp/posted.h"
#include "rddp/rddp_channel.h"

namespace weft::rddp {

struct DdpEndpointConfig {
  bool bare = false;                // MPA by itself
  std::uint32_t send_depth = 16;    // messages under way
  std::uint32_t recv_depth = 16;    // buffers posted
  std::uint32_t notify_depth = 64;  // notified tagged messages not yet polled
  std::uint32_t batches = 2;        // what is built ahead of acknowledgments
  Duration close_timeout{std::chrono::seconds(5)};
  Duration patience{std::chrono::milliseconds(50)};  // see DdpStream::speak()
};

struct DdpEvent {
  bool tagged = false;
  std::uint64_t wr_id = 0;   // untagged: of the buffer
  std::uint32_t length = 0;  // untagged
  std::uint8_t control = 0;
};

class DdpEndpoint final : public Channel, private proto::DdpHost {
 public:
  using Clock = Instant (*)();
  // The control octet of a tagged message whose delivery is an event.
  static constexpr std::uint8_t kNotify = 0x80;

  // Null: no memory.
  [[nodiscard]] static std::unique_ptr<DdpEndpoint> create(const DdpEndpointConfig& config,
                                                           Domain& domain, Clock clock);
  ~DdpEndpoint() override;

  // As DdpStream::post(); kBadState before it is up.
  [[nodiscard]] Status post(const proto::DdpMessage& message);
  // Possible before the connection is up.   kNoSpace
  [[nodiscard]] Status post_recv(std::uint64_t wr_id, void* buffer, std::uint32_t size);
  [[nodiscard]] PostedBuffers& posted() noexcept { return posted_; }
  [[nodiscard]] std::optional<DdpEvent> poll();
  // Messages whose memory is in use.
  [[nodiscard]] std::uint32_t pending() const noexcept { return pending_; }
  // The connection ended before all messages were sent.
  [[nodiscard]] bool lost_some() const noexcept { return lost_some_; }
  [[nodiscard]] std::uint32_t segment_max(bool tagged) const noexcept;
  [[nodiscard]] std::uint32_t stream_id() const noexcept { return id_.stream; }
  [[nodiscard]] proto::DdpEnd end() const noexcept { return end_; }

  [[nodiscard]] Instant deadline() const noexcept override;
  void expired(Instant now) override;

 private:
  DdpEndpoint(const DdpEndpointConfig& config, Domain& domain, Clock clock);
  [[nodiscard]] bool allocate();

  // Channel
  bool begin_stream() override;
  void stream_feed(std::span<std::uint8_t> bytes) override { stream_->feed(bytes); }
  void stream_peer_closed() override { stream_->peer_closed(); }
  void stream_lost(bool /*timed_out*/) override { stream_->transport_lost(); }
  [[nodiscard]] bool stream_tx_pending() const noexcept override { return stream_->tx_pending(); }
  proto::TxBatch* stream_gather() override { return stream_->gather(); }
  void stream_sent(std::size_t n) override { stream_->sent(n); }
  void stream_released(std::size_t n) override { stream_->released(n); }
  void stream_transport_closed() override { stream_->transport_closed(); }
  bool stream_take_fin() override { return stream_->take_fin(); }
  [[nodiscard]] bool stream_finished() const noexcept override { return stream_->finished(); }
  [[nodiscard]] bool stream_wants_reset() const noexcept override { return stream_->wants_reset(); }
  void stream_close() override;
  void stream_abort() override { stream_->abort(); }

  // DdpHost
  std::uint8_t* acquire_carry(std::size_t size) override { return buffers_.acquire_carry(size); }
  void release_carry(std::uint8_t* /*carry*/, std::size_t /*size*/) override {
    buffers_.release_carry();
  }
  proto::TxBatch* acquire_batch() override { return buffers_.acquire_batch(); }
  void release_batch(proto::TxBatch* batch) override { buffers_.release_batch(batch); }
  proto::MemoryFault place(Stag stag, std::uint64_t to, proto::MarkedOctets payload) override;
  bool tagged_delivered(const DdpTagged& header) override;
  bool take_buffer(std::uint32_t queue, std::span<std::uint8_t>& buffer) override;
  void untagged_delivered(const DdpUntagged& header, std::uint32_t length) override;
  void message_released(bool sent) override {
    --pending_;
    lost_some_ = lost_some_ || !sent;
  }
  void stream_ended(proto::DdpEnd how) override;

  const DdpEndpointConfig config_;
  StartupRoom startup_room_;
  Domain& domain_;
  const Clock clock_;
  const proto::StreamId id_;
  PostedBuffers posted_;
  std::uint64_t open_buffer_ = 0;  // wr_id of the one being filled
  FixedQueue<DdpEvent> events_;
  std::size_t notifications_ = 0;  // among the events
  std::uint32_t pending_ = 0;
  bool lost_some_ = false;
  StreamBuffers buffers_;
  proto::DdpEnd end_ = proto::DdpEnd::kOpen;
  Instant speak_at_ = Instant::never();
  Instant close_by_ = Instant::never();
  std::unique_ptr<proto::DdpStream> stream_;
};

}  // namespace weft::rddp
