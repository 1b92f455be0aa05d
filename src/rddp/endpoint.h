// One end of an RDMAP connection without an operating system: MPA start-up, then a Stream, with the
// queues and completions that the verbs layer keeps elsewhere.
//
// A transport (lwIP's raw API, a non-blocking socket) moves the bytes: it hands in what arrived and
// takes what next_piece() offers. Neither side waits for the other.
//
// Threads: one at a time; the owner excludes others. Memory is taken when the endpoint is made and
// when start-up ends, never afterwards. Memory that a request names belongs to the endpoint until
// its completion has been polled.
#pragma once

#include <weft/result.h>
#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/time.h"
#include "proto/stag_table.h"
#include "proto/startup.h"
#include "proto/stream.h"
#include "proto/work.h"

namespace weft::rddp {

// The memory that peers may reach, shared by the endpoints of one device.
class Domain {
 public:
  static constexpr std::uint32_t kPd = 1;

  // `random` gives bits that peers cannot guess.
  Domain(proto::StagTable::RandomFn random, std::uint32_t regions_max);

  // A region of `size` bytes at `addr`; its first byte has the tagged offset `base`. Local reads
  // and writes are always allowed; `remote` says what the peer may do. `stream` 0: any connection.
  //   kInvalidArgument, kLimitExceeded, kNoMemory
  [[nodiscard]] Result<Stag> add(void* addr, std::size_t size, std::uint64_t base, Access remote,
                                 std::uint32_t stream = 0);
  // Final when it returns.
  //   kNotFound
  //   kBusy   octets of it are on their way and not yet acknowledged: try again later
  [[nodiscard]] Status remove(Stag stag);
  // As remove(), but the slot is kept: for Send with Invalidate.
  [[nodiscard]] Status invalidate(Stag stag);

  // Names all memory of this program for local use. No peer can write or read through it.
  [[nodiscard]] Stag local() const noexcept { return local_; }
  [[nodiscard]] proto::StagTable& table() noexcept { return table_; }
  [[nodiscard]] std::uint32_t next_stream() noexcept { return ++streams_; }

 private:
  [[nodiscard]] bool in_flight(Stag stag) const noexcept;

  proto::StagTable table_;
  Stag local_;
  std::uint32_t streams_ = 0;
};

struct EndpointConfig {
  std::uint32_t send_depth = 16;  // requests under way
  std::uint32_t recv_depth = 16;  // receives posted
  std::uint32_t inline_bytes = 64;
  std::uint32_t batches = 2;  // what is built ahead of acknowledgments
  Duration close_timeout{std::chrono::seconds(5)};
  Duration patience{std::chrono::milliseconds(50)};
};

struct EndpointCompletion {
  std::uint64_t wr_id = 0;
  WcStatus status = WcStatus::kSuccess;
  bool receive = false;
  bool immediate = false;
  bool solicited = false;
  SendOp op = SendOp::kSend;  // of a send request
  std::uint32_t byte_len = 0;
  std::uint64_t imm_data = 0;
  Stag invalidated;
};

// What the transport is to send next.
struct TxPiece {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  bool stays = false;      // in place until released(); otherwise to be copied now
  bool ends_fpdu = false;  // a good place for a segment to end
};

class Endpoint final : private proto::StreamHost {
 public:
  enum class Phase : std::uint8_t {
    kIdle,      // no transport yet
    kStarting,  // frames are being exchanged
    kRequest,   // responder: accept() or reject()
    kUp,        // full operation
    kDown,      // was up; all work has completed
    kRefused,   // the peer's application said no, or ours did
    kFailed,    // start-up failed
  };
  using Clock = Instant (*)();

  // Null: no memory.
  [[nodiscard]] static std::unique_ptr<Endpoint> create(const EndpointConfig& config,
                                                        Domain& domain, Clock clock);
  ~Endpoint() override;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // --- start-up ---

  // Begins as the one who connected.   As Startup::initiator()
  [[nodiscard]] Status initiate(const proto::StartupOffer& offer);
  // Begins as the one who was connected to.
  void respond();
  // In kRequest. As Startup::accept() and reject().
  [[nodiscard]] Status accept(const proto::StartupOffer& offer);
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data);
  // The peer's frame, from kRequest (responder) or kUp (initiator) on. Valid while in that phase.
  [[nodiscard]] std::span<const std::uint8_t> private_data() const noexcept;
  [[nodiscard]] const proto::Negotiated& negotiated() const noexcept { return negotiated_; }
  [[nodiscard]] Phase phase() const noexcept { return phase_; }

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
  [[nodiscard]] std::size_t receives_posted() const noexcept { return recv_count_; }

  void close();  // orderly; phase() is kDown when it is done
  void abort();  // at once

  // --- for the transport ---

  // Octets that one segment carries. Before start-up ends.
  void set_segment_size(std::uint32_t emss) noexcept { emss_ = emss; }
  // Octets of the stream, in order. They are parsed, and with markers moved, where they lie.
  void received(std::span<std::uint8_t> bytes);
  // Octets that came before their turn, `distance` behind the next in order: what can be placed of
  // them is. They must come again by received().
  proto::Ahead place_ahead(std::uint32_t distance, std::span<const std::uint8_t> bytes) const;
  void peer_closed();
  void lost(bool timed_out);
  // Something to send may be there.
  [[nodiscard]] bool tx_pending() const noexcept;
  // What to send next, at most `max` octets; size 0: nothing now. Call taken() with as much of it
  // as the transport took (0 too) before anything else.
  [[nodiscard]] TxPiece next_piece(std::size_t max);
  void taken(std::size_t n);
  // The transport no longer reads the oldest `n` of the octets it took (it copied them, or they are
  // acknowledged): requests complete, and their memory may change.
  void released(std::size_t n);
  // The transport is gone and reads no memory any more. Behind lost(), or when it was closed.
  void transport_closed();
  // True once: the transport shuts down its sending side.
  [[nodiscard]] bool take_fin();
  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] bool wants_reset() const noexcept;
  [[nodiscard]] Instant deadline() const noexcept;
  void expired(Instant now);

  [[nodiscard]] const proto::StreamCounters* counters() const noexcept {
    return stream_ ? &stream_->counters() : nullptr;
  }
  [[nodiscard]] proto::Stream* stream() noexcept { return stream_.get(); }
  // Why the connection ended, when a Terminate said so.
  [[nodiscard]] const TerminateCode& terminate_code() const noexcept { return terminate_; }
  [[nodiscard]] bool terminated_by_peer() const noexcept { return terminated_by_peer_; }
  [[nodiscard]] bool terminated() const noexcept { return terminated_; }

 private:
  struct Receive {
    std::uint64_t wr_id = 0;
    Sge sge;
  };

  Endpoint(const EndpointConfig& config, Domain& domain, Clock clock);
  [[nodiscard]] bool allocate();
  std::size_t startup_received(std::span<const std::uint8_t> bytes);
  void follow_startup();
  void begin_stream();
  [[nodiscard]] bool stream_runs() const noexcept { return stream_ != nullptr; }
  void complete(const EndpointCompletion& done);
  void flush_receives();

  // StreamHost
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
  void raise(AsyncEventType) override {}
  void log_violation(proto::Violation, TerminateCode, bool) override {}
  void first_fpdu() override {}
  void stream_down(proto::StreamEnd how, TerminateCode code, bool by_peer) override;
  Instant now() override { return clock_(); }

  const EndpointConfig config_;
  Domain& domain_;
  const Clock clock_;
  const proto::StreamId id_;
  Phase phase_ = Phase::kIdle;
  std::optional<proto::Startup> startup_;
  proto::Negotiated negotiated_;
  std::uint32_t emss_ = 1460;

  proto::SendQueue send_queue_;
  std::vector<Receive> receives_;  // a ring
  std::size_t recv_head_ = 0, recv_count_ = 0;
  std::vector<EndpointCompletion> done_;  // a ring
  std::size_t done_head_ = 0, done_count_ = 0;
  std::uint32_t unpolled_sends_ = 0, unpolled_recvs_ = 0;  // room in done_ is kept for them

  std::vector<std::uint8_t> carry_;
  bool carry_out_ = false;
  std::vector<std::unique_ptr<proto::TxBatch>> spare_;  // those not in use
  std::size_t startup_octets_ = 0;  // of the start-up frame, taken and not yet released
  TerminateCode terminate_;
  bool terminated_ = false;
  bool terminated_by_peer_ = false;
  std::unique_ptr<proto::Stream> stream_;
};

}  // namespace weft::rddp
