// The receiving part of a stream: where octets belong, their checks, placement and delivery.
//
// A part of Stream (stream.h), which explains its threads. The other parts read what it knows of
// the segment, the receive and the Write that are open.
#pragma once

#include <weft/limits.h>
#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/profile.h"
#include "base/seq.h"
#include "base/slice.h"
#include "base/time.h"
#include "proto/cursor.h"
#include "proto/fpdu_reader.h"
#include "proto/stag_table.h"
#include "proto/stream_host.h"
#include "proto/stream_loss.h"
#include "proto/stream_params.h"
#include "proto/stream_requests.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::proto {

class Stream;

inline constexpr std::size_t kRxSlicesMax = limits::kSgesPerRequest + 2;

// The octets that place_ahead() has placed.
struct Ahead {
  std::uint32_t fpdus = 0;
  std::size_t octets = 0;  // of payload
};

// Where the next bytes of the stream belong, in order.
struct RxPlan {
  Slice slices[kRxSlicesMax];
  std::size_t count = 0;
  std::size_t bytes = 0;
  bool placed = false;  // the first slices are where the octets belong; else they are staged
};

class StreamRx {
 public:
  StreamRx(const StreamParams& params, StreamHost& host)
      : reader_(params.crc, params.rx_markers, params.check_markers, host) {}
  ~StreamRx() { pin_.release(); }
  StreamRx(const StreamRx&) = delete;
  StreamRx& operator=(const StreamRx&) = delete;

  // --- for the owner, see Stream: stream_rx_want.cc, stream_ahead.cc ---
  void want(RxPlan& plan, std::span<std::uint8_t> scratch);
  void arrived(std::size_t n);
  void feed(std::span<std::uint8_t> bytes);
  Ahead place_ahead(StreamOffset offset, std::span<const std::uint8_t> bytes) const;
  [[nodiscard]] bool awaits_receive() const noexcept { return hold_.held != nullptr; }
  bool retry_receive();
  [[nodiscard]] bool change_receiving(bool bare);
  void expired(Instant now) {
    if (awaits_receive() && now >= hold_.retry_at) retry_due(now);
  }

  // --- for the end of the stream ---
  // Nothing that arrives from now on counts.
  void discard();
  [[nodiscard]] bool mid_message() const noexcept;
  void complete_receive(WcStatus status, std::uint32_t vendor);

 private:
  friend class SmallMessages;
  friend class StreamLoss;
  friend class StreamShutdown;
  friend class StreamTx;
  friend class Stream;

  // A posted receive taken from the host, with its SGEs.
  struct Receive {
    bool open = false;  // a message is being placed in it
    std::uint32_t bytes = 0;
    Cursor cursor;
    RecvWqe wqe;
    Sge sges[profile::kSgesPerReceive];
  };

  // The header of the inbound segment being handled, for checks and for Terminates.
  struct Segment {
    bool open = false;  // its payload is being placed
    std::uint8_t header[kMaxDdpHeaderSize];
    std::uint32_t header_len = 0;
    std::uint32_t ulpdu_len = 0;
    Opcode op = Opcode::kSend;
    bool last = false;
    bool first = false;     // no FPDU of the peer was accepted before it
    std::uint8_t bits = 0;  // kAskBit, kImmediateBit; 0 on streams of iWARP
    std::uint32_t payload_len = 0;
    std::uint32_t placed = 0;
    Stag stag;  // tagged; untagged: to invalidate
    std::uint64_t to = 0;
    std::uint32_t queue = 0;
    Msn msn;
    std::uint32_t mo = 0;
  };

  // Segments from a Send on for which no receive is posted yet, or a payload that its target has
  // not taken all of.
  struct Held {
    bool for_target = false;
    std::vector<std::uint8_t> ulpdu;  // for a receive it may be empty: the FPDU is in `rest`
    std::vector<std::uint8_t> rest;   // of the read
    Instant since;
    Instant until;  // then it is a violation
  };

  // Why what has been looked at cannot be placed now.
  enum class Waits : std::uint8_t { kForNothing, kForReceive, kForTarget };
  struct Hold {
    Waits why = Waits::kForNothing;  // of the segment just looked at
    bool seen_before = false;        // the next one has been held: it is counted already
    std::unique_ptr<Held> held;
    Instant retry_at = Instant::never();
#ifndef WEFT_PROFILE_SMALL
    // With PeerMemoryWishes: so many have been placed, and the others then.
    std::size_t last_octets = 0;
    Instant others_at;
#endif

    // The octets of a Write, from tagged offset `to` on, which is `at`. kLater: not all, so far.
    [[nodiscard]] Stored place_last_first(StreamHost& host, const MemoryEntry& entry,
                                          std::uint64_t to, std::uint8_t* at,
                                          MarkedOctets& payload);
  };

  // The RDMA Write being placed, and the last one.
  struct OpenWrite {
    bool open = false;
    Stag stag;
    std::uint64_t next_to = 0;
    std::uint32_t bytes = 0;
    std::uint32_t last_bytes = 0;
  };

  [[nodiscard]] Stream& stream() noexcept;
  [[nodiscard]] const Stream& stream() const noexcept;

  // --- any segment: stream_rx.cc. Each bool: false when the stream has been failed ---
  void drain_reader();
  [[nodiscard]] bool on_ulpdu(MarkedOctets ulpdu);
  [[nodiscard]] bool on_direct(MarkedOctets bytes, std::uint32_t ulpdu_len);
  [[nodiscard]] bool open_segment(std::span<const std::uint8_t> bytes, std::uint32_t ulpdu_len);
  [[nodiscard]] bool refuse_while_closing();
  void tell_message(Step::What what);
  void note_first_fpdu();
  [[nodiscard]] bool place(MarkedOctets payload);
  [[nodiscard]] std::size_t target_slices(Slice* out, std::size_t room, std::size_t bytes);
  [[nodiscard]] bool target_refused();
  [[nodiscard]] bool target_failed();
  [[nodiscard]] bool close_segment();
  [[nodiscard]] bool fail_segment(Violation v);
  [[nodiscard]] Stored scatter_to_sges(Cursor& cursor, MarkedOctets& data);
  // Where the rest of the open segment goes that is not a Write.
  [[nodiscard]] Cursor& open_cursor() noexcept;
  // The domain that the memory of open_cursor(), or of an atomic's result, belongs to.
  [[nodiscard]] StreamId sink_owner() const noexcept;
  [[nodiscard]] std::size_t cursor_slices(Cursor cursor, Slice* out, std::size_t room,
                                          std::size_t bytes);
  [[nodiscard]] bool by_method();

  // --- ahead of its turn: stream_ahead.cc ---
  [[nodiscard]] std::uint8_t* target_ahead(const std::uint8_t* header, std::uint32_t payload,
                                           Pin& pin) const;

  // --- tagged: stream_rx_tagged.cc ---
  [[nodiscard]] bool check_write();
  bool fail_write(Violation v);
  [[nodiscard]] bool finish_write();
  [[nodiscard]] bool is_mark() const noexcept;
  void know_peer();
  [[nodiscard]] bool check_read_response();
  [[nodiscard]] bool finish_read_response();
  void answered(Outstanding& o);

  // --- untagged: stream_rx_untagged.cc ---
  [[nodiscard]] bool check_untagged();
  [[nodiscard]] bool check_send();
  [[nodiscard]] bool open_receive();
  void begin_receive();
  [[nodiscard]] bool finish_send();
  [[nodiscard]] bool on_body(MarkedOctets octets);
  [[nodiscard]] bool on_immediate(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_read_request(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_atomic_request(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_atomic_response(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_terminate(std::span<const std::uint8_t> body);

  // --- a Send before its receive, a target that waits: stream_hold.cc ---
  [[nodiscard]] bool retry_target();
  void hold(MarkedOctets ulpdu);
  void retry_due(Instant now);
  void go_on_with(std::unique_ptr<Held> held);

  // --- what wired queue pairs tell each other: stream_ack.cc, stream_not_ready.cc ---
  [[nodiscard]] bool take_ack(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool refuse_ack();
  [[nodiscard]] bool drops(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool take_not_ready(Msn msn);

  // --- the path: stream_path.cc ---
  [[nodiscard]] bool take_path_message(std::span<const std::uint8_t> ulpdu);

  FpduReader reader_;
  bool discarding_ = false;
  bool first_fpdu_seen_ = false;
  bool plan_direct_ = false;
  bool moved_ = false;  // what comes next comes another way
  Segment seg_;
  Pin pin_;  // kept over one arrived() call
  StagHint rx_hint_;
  std::uint8_t* write_at_ = nullptr;
  Msn rx_msn_[kQueueCount];
  Receive receive_;
  OpenWrite write_;
  Hold hold_;
  StreamLoss loss_;
};

}  // namespace weft::proto
