// The sending part of a stream: batches of FPDUs, cut from control messages, responses and work
// requests.
//
// A part of Stream (stream.h), which explains its threads. The other parts read what it knows of
// the message under construction and of the send queue.
#pragma once

#include <weft/config.h>
#include <weft/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/seq.h"
#include "base/time.h"
#include "proto/batch.h"
#include "proto/batch_pace.h"
#include "proto/cursor.h"
#include "proto/fpdu_writer.h"
#include "proto/stag_table.h"
#include "proto/stream_host.h"
#include "proto/stream_params.h"
#include "proto/tx_queue.h"
#include "proto/work.h"
#include "wire/ack.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::proto {

class Stream;

class StreamTx {
 public:
  StreamTx(const StreamParams& params, StreamHost& host, const SendQueue& sq)
      : max_ulpdu_(params.max_ulpdu),
        writer_(params.crc, params.tx_markers),
        queue_(host),
        work_{.next = sq.head()},
        greeting_{.rtr = params.initiator ? params.rtr : RtrKind::kNone,
                  .may_send = params.initiator || params.both_ready} {
    pace_.pause(params.crc);
  }

  // --- for the owner, see Stream: stream_tx_batch.cc ---
  [[nodiscard]] bool tx_pending() const noexcept;
  [[nodiscard]] std::uint32_t max_ulpdu() const noexcept {
    return max_ulpdu_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] TxBatch* gather();
  void sent(std::size_t n);
  void released(std::size_t n);
  void prepare();
  void acked(StreamOffset offset);
  void change_sending(bool bare);
  void pause(bool paused);
  [[nodiscard]] bool only_ack_due() const noexcept;
  [[nodiscard]] bool send_drained() const noexcept;
  void expired(Instant now) noexcept {
    if (now >= fetch_at_) fetch_at_ = Instant::never();
  }

  // --- for the other parts ---
  // Completes what the transport has taken and, with Acks, the peer has placed.
  void retire_work();
  // The next request to start is this one again.
  void rewind(std::uint32_t index, Msn msn);
  void complete_send(SendWqe& wqe, WcStatus status, std::uint32_t vendor);
  // Behind the last request of which something has been built.
  [[nodiscard]] std::uint32_t work_begun_end() const noexcept;
  void stop_sending();
  // Gives up the octets that the transport has not taken: they will not be sent.
  void drop_untaken();

 private:
  friend class SmallMessages;
  friend class StreamRx;
  friend class Stream;
  friend class StreamShutdown;

  // The message being cut into segments.
  struct Outbound {
    enum class From : std::uint8_t { kNobody, kSendQueue, kRequest, kControl };
    From from = From::kNobody;
    Opcode op = Opcode::kSend;
    bool tagged = false;
    bool is_inline = false;
    std::uint8_t bits = 0;  // kAskBit, kImmediateBit
    Stag stag;
    std::uint64_t to = 0;
    std::uint32_t queue = 0;
    Msn msn;
    std::uint32_t mo = 0;
    std::uint32_t remaining = 0;  // payload octets not yet built
    std::uint32_t built = 0;
    Cursor cursor;
    const std::uint8_t* flat = nullptr;  // payload that is not in SGEs (inline, bodies)

    [[nodiscard]] bool in_one_piece(std::uint32_t bytes) const noexcept {
      return flat != nullptr || bytes == 0 || cursor.here() >= bytes;
    }
  };

  // How far the send queue has been worked off.
  struct Work {
    std::uint32_t next = 0;  // WQE to start, or being built; those before it are built
    // The next WQE cannot be carried out. It fails once all before it are acknowledged, so that
    // these end as they deserve. With acks only.
    bool doomed = false;
    bool second_half = false;    // the Immediate of a WriteImm is being built
    bool response_turn = false;  // who goes next when both have work
    bool paused = false;
  };

  // Which end speaks first.
  struct Greeting {
    RtrKind rtr = RtrKind::kNone;  // to send
    bool mark_due = false;         // responder: tell the peer that we are Weft too
    bool may_send = false;

    [[nodiscard]] bool rtr_due() const noexcept { return rtr != RtrKind::kNone; }
  };

  // Positions in the transmit stream.
  struct Offsets {
    StreamOffset sent = 0;
    StreamOffset released = 0;
    StreamOffset completable = 0;
  };

  [[nodiscard]] Stream& stream() noexcept;
  [[nodiscard]] const Stream& stream() const noexcept;

  // --- batches: stream_tx_batch.cc ---
  [[nodiscard]] bool repin(TxBatch& batch);
  [[nodiscard]] bool append_batch();
  [[nodiscard]] bool widen_batch();
  void build_batch();

  // --- messages and segments: stream_tx.cc ---
  [[nodiscard]] bool emit_segment();
  [[nodiscard]] bool emit_small(std::uint32_t header_len, std::uint32_t& payload);
  void store_header(std::uint8_t* at, bool last) const;
  [[nodiscard]] Access source_right() const;
  [[nodiscard]] bool emit_large(std::uint32_t header_len, std::uint32_t& payload);
  [[nodiscard]] bool fetch_payload(std::uint32_t header_len, std::uint32_t& payload);
  // A fault of the octets that are next in `cursor`.
  void tell_of_source(MemoryFault fault, const Cursor& cursor, std::uint32_t size);
  [[nodiscard]] bool pin_sources(std::uint32_t bytes, bool& fetch);
  [[nodiscard]] MemoryFault source(Stag stag, std::uint64_t addr, std::uint32_t size, Access need,
                                   const std::uint8_t*& at);
  void emit_payload(std::uint32_t bytes);
  void message_built();
  [[nodiscard]] bool next_message();
  void start_terminate();
  void start_rtr();
  void start_empty_write(std::uint64_t to);
  void start_read_request(const ReadRequest& request);
  [[nodiscard]] bool start_response();
  Msn take_msn(std::uint32_t queue) noexcept {
    const Msn msn = tx_msn_[queue];
    tx_msn_[queue] = msn.next();
    return msn;
  }

  // --- work requests: stream_tx_work.cc ---
  [[nodiscard]] bool work_stalled(const SendWqe& wqe) const;
  [[nodiscard]] bool waits_for_acks(const SendWqe& wqe) const;
  [[nodiscard]] bool start_work();
  [[nodiscard]] bool run_local(SendWqe& wqe);
  [[nodiscard]] bool has_place_for_response(SendWqe& wqe);
  [[nodiscard]] bool start_wqe(SendWqe& wqe);
  void tell_request(Step::What what);
  void start_send(const SendWqe& wqe);
  [[nodiscard]] bool put_off_failure();
  [[nodiscard]] bool sink_valid(const SendWqe& wqe);
  void start_read(SendWqe& wqe);
  void start_atomic(SendWqe& wqe);
  void start_immediate(const SendWqe& wqe);

  // --- what wired queue pairs tell each other: stream_ack.cc ---
  void start_ack();
  void start_ack_segment(AckKind kind, std::uint32_t value);

  // --- the path: stream_path.cc ---
  void start_path_message();

  // --- what cannot be sent: stream_shutdown.cc ---
  void source_failed();
  void batch_failed();

  std::atomic<std::uint32_t> max_ulpdu_;
  FpduWriter writer_;
  StagHint tx_hint_;
  TxQueue queue_;
  BatchPace pace_;
  Outbound out_;
  Sge response_sge_;  // of the Read Response being built
  Work work_;
  Greeting greeting_;
  Msn tx_msn_[kQueueCount];
  Offsets offsets_;
  std::uint8_t body_[kMaxTerminateSize];       // of the control or fixed-size message being built
  const MemoryEntry* source_entry_ = nullptr;  // that source() found last
  Instant fetch_at_ = Instant::never();  // the open message waits for octets of a method until then
};

}  // namespace weft::proto
