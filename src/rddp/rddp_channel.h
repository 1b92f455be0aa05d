// One end of a connection as its transport sees it: MPA start-up, then a stream. What the stream
// carries is the derived class's: RDMAP (Endpoint), or DDP by itself (DdpEndpoint).
//
// A transport (lwIP's raw API, a non-blocking socket) hands in what arrived and takes what
// next_fpdu() offers. Neither side waits for the other.
//
// Threads: one at a time; the owner excludes others.
#pragma once

#include <weft/result.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "proto/batch.h"
#include "proto/startup.h"
#include "proto/stream.h"
#include "rddp/rddp_phase.h"

namespace weft::rddp {

// The octets that the transport is to send next: an FPDU or a frame of start-up, or the rest of
// one.
struct TxFpdu {
  std::span<const Slice> slices;  // where it lies; what follows it may be there too
  std::size_t size = 0;
  bool stays = false;  // in place until released(); otherwise to be copied now
};

class Channel {
 public:
  using Phase = rddp::Phase;

  virtual ~Channel() = default;
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // --- start-up ---

  // Begins as the one who connected.
  //   kLimitExceeded   more Reads at once than there is memory for
  //   otherwise as Startup::initiator()
  [[nodiscard]] Status initiate(const proto::StartupOffer& offer);
  // Begins as the one who was connected to.
  void respond();
  // In kRequest. As initiate(), Startup::accept() and reject().
  [[nodiscard]] Status accept(const proto::StartupOffer& offer);
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data);
  // Private data of the peer's application, from kRequest (responder) or kUp (initiator) on. Valid
  // while in that phase; once up, there is as much of it as the derived class keeps.
  [[nodiscard]] std::span<const std::uint8_t> private_data() const noexcept;
  [[nodiscard]] const proto::Negotiated& negotiated() const noexcept { return negotiated_; }
  [[nodiscard]] Phase phase() const noexcept { return phase_; }

  void close();  // orderly; phase() is kDown when it is done
  void abort();  // at once

  // --- for the transport ---

  // Octets that one segment carries. Before start-up ends.
  void set_segment_size(std::uint32_t emss) noexcept { emss_ = emss; }
  // Octets of the stream, in order. They are parsed, and with markers moved, where they lie.
  void received(std::span<std::uint8_t> bytes);
  // Octets that came before their turn, `distance` behind the next in order: what can be placed of
  // them is. They must come again by received().
  virtual proto::Ahead place_ahead(std::uint32_t distance,
                                   std::span<const std::uint8_t> bytes) const;
  void peer_closed();
  void lost(bool timed_out);
  // Something to send may be there.
  [[nodiscard]] bool tx_pending() const noexcept;
  // Returns the octets to send next; size 0: nothing now. Valid until taken(), which is to be
  // called with as much of it as the transport took (0 too) before anything else.
  [[nodiscard]] TxFpdu next_fpdu();
  // For a transport that takes many FPDUs at once: all that next_fpdu() would give one after the
  // other.
  [[nodiscard]] std::span<const Slice> next_slices();
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
  [[nodiscard]] virtual Instant deadline() const noexcept = 0;
  virtual void expired(Instant now) = 0;

 protected:
  // Where the frames of start-up are put together; before all else. Without: no connection.
  struct alignas(proto::Startup) StartupRoom {
    std::byte octets[sizeof(proto::Startup)];
  };
  void lend(StartupRoom* room) noexcept { startup_room_ = room; }
  // Offers must not ask for more Reads at once, either way.
  void limit_reads(std::uint16_t most) noexcept { reads_max_ = most; }
  // In begin_stream(): what was lent may be used for something else. Keeps of the private data what
  // fits `kept`.
  void end_startup(std::span<std::uint8_t> kept) noexcept;

  // Start-up is over: makes the stream. False: no memory.
  [[nodiscard]] virtual bool begin_stream() = 0;
  // From then on, the stream's members of these names.
  virtual void stream_feed(std::span<std::uint8_t> bytes) = 0;
  virtual void stream_peer_closed() = 0;
  virtual void stream_lost(bool timed_out) = 0;
  [[nodiscard]] virtual bool stream_tx_pending() const noexcept = 0;
  [[nodiscard]] virtual proto::TxBatch* stream_gather() = 0;
  virtual void stream_sent(std::size_t n) = 0;
  virtual void stream_released(std::size_t n) = 0;
  virtual void stream_transport_closed() = 0;
  [[nodiscard]] virtual bool stream_take_fin() = 0;
  [[nodiscard]] virtual bool stream_finished() const noexcept = 0;
  [[nodiscard]] virtual bool stream_wants_reset() const noexcept = 0;
  virtual void stream_close() = 0;
  virtual void stream_abort() = 0;

  [[nodiscard]] bool stream_runs() const noexcept { return stream_runs_; }
  // The stream is over.
  void set_down() noexcept { (void)on(PhaseEvent::kEnded); }
  [[nodiscard]] std::uint32_t segment_size() const noexcept { return emss_; }

 private:
  std::size_t startup_received(std::span<const std::uint8_t> bytes);
  void follow_startup();
  // Writes phase_. False: that is not for this phase, and nothing changes.
  bool on(PhaseEvent event) noexcept;
  [[nodiscard]] Status check(const proto::StartupOffer& offer) const noexcept;

  Phase phase_ = Phase::kIdle;
  bool stream_runs_ = false;
  bool aborted_ = false;  // during start-up
  StartupRoom* startup_room_ = nullptr;
  proto::Startup* startup_ = nullptr;  // there, while it is needed
  std::span<const std::uint8_t> kept_data_;
  std::uint16_t reads_max_ = 0xffff;
  Slice startup_slice_;  // what next_slices() gave
  proto::Negotiated negotiated_;
  std::uint32_t emss_ = 1460;
  std::size_t startup_octets_ = 0;  // of the start-up frame, taken and not yet released
};

}  // namespace weft::rddp
