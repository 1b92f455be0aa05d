// One RDMAP stream in full operation: FPDU framing, DDP placement, RDMAP operations.
//
// The core decides where every byte goes; a transport only moves bytes. No socket, thread or clock:
//
//   receive   want()    -> where the next bytes of the stream belong
//             arrived() -> that many bytes of it are filled
//   send      gather()   -> the next bytes to transmit
//             sent()     -> that many were taken: advance
//             released() -> so many of those taken are no longer read: complete work requests
//   time      deadline() / expired()
//
// Threads: all members are called by one thread at a time (the owner excludes others), except where
// a comment says otherwise. The stream borrows host, table and send queue for its life.
#pragma once

#include <weft/config.h>
#include <weft/limits.h>
#include <weft/types.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/result.h"
#include "base/seq.h"
#include "base/time.h"
#include "proto/batch.h"
#include "proto/counters.h"
#include "proto/fpdu_reader.h"
#include "proto/fpdu_writer.h"
#include "proto/path_message.h"
#include "proto/slice.h"
#include "proto/stag_table.h"
#include "proto/startup.h"
#include "proto/stream_machine.h"
#include "proto/tx_queue.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "wire/ack.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::proto {

// What start-up agreed on, plus local policy.
struct StreamParams {
  StreamId id;
  bool initiator = false;
  bool both_ready = false;  // each end knows that the other listens: neither waits to be spoken to
  bool crc = true;
  bool tx_markers = false;
  bool rx_markers = false;
  bool check_markers = true;      // verify FPDUPTR (a mismatch under a good CRC is 2/0/03)
  bool hold_completions = false;  // complete Sends and Writes only when acked() has passed them too
#ifdef WEFT_PROFILE_SMALL
  // What endpoints without an operating system do not use (profile::kWired): its code is left out.
  static constexpr bool acks = false, unreliable = false, keeps_work = false;
  static constexpr std::optional<PathMode> path{};
  static constexpr Duration recv_wait{0}, not_ready_pause{0};
#else
  // Between wired queue pairs: work requests complete when the peer has placed them and says so
  // (stream_ack.cc), and Sends may carry immediate data.
  bool acks = false;
  // Between unreliable ones: no Acks; a message that this end cannot take is lost, and nobody is
  // told (stream_loss.cc). Sends may carry immediate data. Not together with `acks`.
  bool unreliable = false;
  // Both ends are on this machine, and what may carry the stream: messages about the path are
  // passed on to the host. Unset: TCP only.
  std::optional<PathMode> path;
  // How long a Send may wait for a receive to be posted; meanwhile nothing is read, so TCP holds
  // the peer back. 0: such a Send is a violation at once. Not for transports that feed(). With
  // `acks` the Send is refused then, to come again (stream_not_ready.cc); with `unreliable` it is
  // lost.
  Duration recv_wait{0};
  // With `acks`: how long the peer wants to be left alone when it has no receive for a Send.
  Duration not_ready_pause{0};
  // When the peer is gone, requests that are not finished stay in the send queue, and a receive
  // that is being placed goes back to the host. Else both are flushed.
  bool keeps_work = false;
#endif
  RtrKind rtr = RtrKind::kNone;              // initiator, peer-to-peer: RTR to send first
  std::optional<Violation> startup_failure;  // initiator: first FPDU is this Terminate (2/0/05-07)
  std::uint16_t ird = 0;           // requests served at once; at least 1 when a Read RTR may come
  std::uint16_t ord = 0;           // requests outstanding
  std::uint32_t max_ulpdu = 1442;  // octets of ULPDU we send at most
  std::uint32_t max_ulpdu_known = 0;  // ... once the peer is known to be Weft; 0: the same
  Duration close_timeout{std::chrono::seconds(5)};
  // How long the peer may be silent at first. After that, a responder sends what it has, although
  // it has received nothing; an initiator sends an empty RDMA Write, in case the peer has missed
  // what came before. 0: no limit.
  Duration patience{0};
};

// Parameters of the stream behind a start-up that agreed on `agreed`. How long the peer may be
// silent at first: `nudge_wait` as initiator; as responder `first_fpdu_wait`, unless it has
// promised an RTR. The owner sets the rest: id, max_ulpdu and what is local policy.
[[nodiscard]] StreamParams stream_params(const Negotiated& agreed, Duration nudge_wait,
                                         Duration first_fpdu_wait);

// How the stream ended, for the connection above it.
enum class StreamEnd : std::uint8_t {
  kOpen,        // has not ended
  kOrderly,     // FIN on a message border with nothing outstanding
  kTerminated,  // by a Terminate, ours or the peer's
  kLost,        // FIN in the middle of something, reset, time-out
};

// What the stream needs from its owner. Called only from inside the stream's own members.
class StreamHost : public CarryPool, public BatchSource {
 public:
  // Takes the next posted receive into `out`, which has room for profile::kSgesPerReceive SGEs
  // behind it. False: none is posted.
  virtual bool take_receive(RecvWqe& out) = 0;

  virtual void send_done(const SendDone& done) = 0;
  virtual void recv_done(const RecvDone& done) = 0;

  // With StreamParams::keeps_work: the peer has gone while this receive was open, in the middle of
  // its message or, unreliable, before the first one that fits it. The WQE is the stream's: copy.
  virtual void receive_cut_off(const RecvWqe& /*wqe*/) {}

  // BindWindow or LocalInvalidate, in its turn in the send queue.
  virtual WcStatus local_operation(SendWqe& wqe) = 0;
  // Send with Invalidate, before its receive completes. kNone, kInvalidateProtection or
  // kInvalidateOperation.
  virtual Violation remote_invalidate(Stag stag) = 0;
  // Executes an atomic on 8-aligned memory; returns the old value.
  virtual std::uint64_t execute_atomic(std::uint8_t* target, const AtomicRequest& request) = 0;

  // An asynchronous event on this QP, and a line for the log.
  virtual void raise(AsyncEventType event) = 0;
  virtual void log_violation(Violation violation, TerminateCode code, bool by_peer) = 0;
  // First FPDU of the peer has been accepted.
  virtual void first_fpdu() = 0;
  // With StreamParams::path. False: not one for us, so it is what it looks like, a Write
  // of nothing. May call send_path_message() and change_receiving().
  virtual bool path_message(const PathMessage& /*message*/) { return false; }
  // Called once, when the stream has left Rts for good and the transport reads no memory of it any
  // more; all work has been completed, flushed or (StreamParams::keeps_work) left.
  virtual void stream_down(StreamEnd how, TerminateCode code, bool by_peer) = 0;

  [[nodiscard]] virtual Instant now() = 0;
};

inline constexpr std::size_t kRxSlicesMax = limits::kSgesPerRequest + 2;

// What place_ahead() has placed.
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

class Stream {
 public:
  Stream(const StreamParams& params, StreamHost& host, const StagTable& table, SendQueue& sq);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Once, before anything else: a start-up that failed sends its Terminate; the patience with
  // a silent peer begins.
  void start();
  // Before start(): takes the memory for Reads now, which otherwise comes with the first Read. From
  // then on the stream takes none. False: there is none.
  [[nodiscard]] bool reserve() { return has_request_list() && has_outstanding_list(); }
  // The same from the caller's memory, of which it takes memory_needed() for these depths or more.
  [[nodiscard]] bool reserve(Arena& memory);
  static constexpr std::size_t memory_needed(std::uint16_t ird, std::uint16_t ord) noexcept {
    return arena_bytes<InboundRequest>(list_size(ird)) + arena_bytes<Outstanding>(list_size(ord));
  }

  // --- receive ---

  // Fills `plan`. `scratch` (at least kScratchBytesMin; best 256 KiB) belongs to the stream until
  // the matching arrived() returns, which must follow before any other member is called.
  void want(RxPlan& plan, std::span<std::uint8_t> scratch);
  // The first `n` bytes of the plan are filled. n = 0 gives the plan back.
  void arrived(std::size_t n);
  // Bytes that the transport has in memory of its own, in place of want() and arrived(): small
  // FPDUs are parsed where they lie (and with markers moved together there). Any number.
  void feed(std::span<std::uint8_t> bytes);
  // Places what it can of octets that came before their turn; `offset` is that of their first octet
  // (rx_offset(): the next in order). Whole FPDUs with a good CRC only, found by markers: RDMA
  // Writes, and Read Responses that are awaited. Nothing else changes: the same octets come again
  // in order, are checked and placed again, and only that delivers them or finds a fault.
  Ahead place_ahead(StreamOffset offset, std::span<const std::uint8_t> bytes) const;
  // Octets of the stream that have arrived in order.
  [[nodiscard]] StreamOffset rx_offset() const noexcept { return counters_.rx_bytes.get(); }
  // A Send has come for which no receive is posted, or a payload that its target does not take just
  // now: nothing is read, want() gives an empty plan.
  [[nodiscard]] bool awaits_receive() const noexcept { return held_ != nullptr; }
  // Looks whether there is one now, or asks the target again, and goes on if so. False: still not.
  bool retry_receive();
  void peer_closed();                   // FIN
  void transport_lost(bool timed_out);  // reset, error or time-out
  void memory_fault();                  // the transport met EFAULT in memory we named

  // --- send ---

  // Anything to transmit now? Cheap.
  [[nodiscard]] bool tx_pending() const noexcept;
  // Octets of ULPDU sent at most; grows once the peer is known. Any thread.
  [[nodiscard]] std::uint32_t max_ulpdu() const noexcept {
    return max_ulpdu_.load(std::memory_order_relaxed);
  }
  // The batch under way, built if there is none; null if there is nothing to send (or no batch to
  // be had). Slices from slice_next on are to be sent, in order. Their memory is checked and pinned
  // now, so that no region of it can be deregistered before the matching sent(), which must follow
  // before any other member is called. The list itself is not read behind sent(), the memory it
  // names until released().
  [[nodiscard]] TxBatch* gather();
  // The transport took `n` octets of it (0: none now). The stream goes on behind them.
  void sent(std::size_t n);
  // The transport no longer reads the oldest `n` of the octets that it took: their memory may be
  // deregistered, and work requests are complete whose last octet is among them. A transport that
  // copies calls this right behind sent(). One that reads later calls it then; until that, the
  // memory stays pinned, and revoking it waits. REQUIRES: no more than were taken.
  void released(std::size_t n);
  // Builds the batch behind the one under way, if there is none yet: for a transport that has no
  // room now and nothing better to do. Its memory is checked again when its turn comes.
  void prepare();
  // The transport is gone, whatever it had taken: it reads no memory any more. For transports that
  // read late, when they were closed or lost; behind transport_lost() and before ~Stream().
  void transport_closed();
  // With hold_completions: the peer's TCP has acknowledged this many octets of the stream. Apart
  // from released(), because a transport that copied them holds no memory until then.
  void acked(StreamOffset offset);
  [[nodiscard]] StreamOffset tx_offset() const noexcept { return tx_sent_offset_; }
  [[nodiscard]] StreamOffset released_offset() const noexcept { return tx_released_offset_; }

  // --- the path under the stream: stream_path.cc ---

  // Sends it in its turn. One that changes the path is the last on the old one: the stream then
  // holds its sending until change_sending().  REQUIRES: no more than kPathMessages wait.
  void send_path_message(const PathMessage& message);
  // All octets up to such a message have been taken by the transport: the next ones go where it
  // said.
  [[nodiscard]] std::optional<PathWord> sending_may_change() const noexcept {
    if (hold_at_ == 0 || tx_sent_offset_ != hold_at_) return {};
    return hold_word_;
  }
  // Inside StreamHost::path_message(): the octets behind this FPDU come from elsewhere. False:
  // there are some behind it already, which is a violation.
  [[nodiscard]] bool change_receiving(bool bare);
  // `bare`: without CRC and markers, which the start-up agreed on for the wire, in large FPDUs.
  // REQUIRES: sending_may_change().
  void change_sending(bool bare);
  // Messages of the application have begun to flow, in either direction, since this was forgotten.
  [[nodiscard]] bool carries_messages() const noexcept { return carries_messages_; }
  void forget_messages() noexcept { carries_messages_ = false; }

  // --- ending ---

  void close();                    // orderly: finish what is begun, flush the rest, FIN
  void abort();                    // flush everything at once; nothing more is sent
  void fail(Violation violation);  // a fault on our own side (CQ overflow): Terminate
  // What the peer may do on this stream at all, beside the rights of regions. Any thread.
  void allow_remote(Access access) { remote_access_.store(access, std::memory_order_relaxed); }
  // While paused, work requests not yet begun stay in the queue (SQD).
  void pause(bool paused) {
    paused_ = paused;
    // What has been sent is to be complete, though nobody wants to hear of it.
    if (params_.acks && paused && unasked_ != 0) ask_pending_ = true;
  }
  // No more Reads and atomics than this are outstanding at once, at least one.
  void limit_outstanding(std::uint16_t most) noexcept;
  // With StreamParams::acks: so often the peer may refuse the same Send before it fails; 7: for
  // ever.
  void allow_refusals(std::uint8_t most) noexcept { refusals_allowed_ = most; }
  // Work posted after the stream went down: completes it as flushed.
  void flush_posted();
  // An Ack is due, and nothing else, for a message that has completed a receive: the program may be
  // about to answer it. The Ack stays due until gather() takes it.
  [[nodiscard]] bool only_ack_due() const noexcept;
  // True once: all that had to be sent is sent, the transport shuts down its sending side now.
  [[nodiscard]] bool take_fin();
  // The transport may be closed: everything is over.
  [[nodiscard]] bool finished() const noexcept;
  // On finish: whether to close with a reset.
  [[nodiscard]] bool wants_reset() const noexcept { return wants_reset_; }

  [[nodiscard]] Instant deadline() const noexcept {
    return std::min(std::min(retry_at_, deadline_), std::min(resume_at_, fetch_at_));
  }
  void expired(Instant now);

  // --- sight (any thread for counters) ---

  [[nodiscard]] StreamState state() const noexcept { return machine_.state(); }
  // An FPDU of the peer has been accepted.
  [[nodiscard]] bool first_fpdu_seen() const noexcept { return first_fpdu_seen_; }
  // stream_down() has been called, with these.
  [[nodiscard]] bool is_down() const noexcept { return end_ != StreamEnd::kOpen && !ending_.due; }
  [[nodiscard]] StreamEnd end() const noexcept { return end_; }
  [[nodiscard]] TerminateCode end_code() const noexcept { return ending_.code; }
  [[nodiscard]] bool ended_by_peer() const noexcept { return ending_.by_peer; }
  // In and behind stream_down(), with StreamParams::keeps_work: the peer has gone in the middle of
  // something, so no other stream can go on with what is left in the send queue.
  [[nodiscard]] bool left_in_the_middle() const noexcept { return ending_.in_the_middle; }
  [[nodiscard]] const StreamCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::uint32_t reads_outstanding() const noexcept { return orq_count_; }
  // Everything begun is completed (SQD).
  [[nodiscard]] bool send_drained() const noexcept;

 private:
  // Entries of a list for so many Reads and atomics at once.
  static constexpr std::uint32_t list_size(std::uint32_t depth) noexcept {
    return std::bit_ceil(std::max<std::uint32_t>(depth, 1));
  }

  // A posted receive taken from the host, with its SGEs.
  struct Receive {
    RecvWqe wqe;
    Sge sges[profile::kSgesPerReceive];
  };

  // Where the next payload octet of a list of SGEs lies.
  struct Cursor {
    const Sge* sge = nullptr;
    std::uint32_t left = 0;    // SGEs from `sge` on
    std::uint32_t offset = 0;  // in *sge
  };

  // A Read or Atomic Request of the peer, served in order.
  struct InboundRequest {
    ReadRequest read;
    bool is_atomic = false;
    std::uint32_t request_id = 0;
    std::uint32_t sent = 0;        // response octets built so far
    Msn msn;                       // of the request
    std::uint64_t original = 0;    // atomic: the old value
    std::uint64_t end_offset = 0;  // transmit offset behind the response, once built
  };

  // A Read or atomic of ours that waits for its response.
  struct Outstanding {
    std::uint32_t wqe = 0;  // index in the send queue
    bool is_rtr = false;    // a Read RTR: no WQE
    bool is_atomic = false;
    Stag sink_stag;
    std::uint64_t sink_to = 0;
    std::uint32_t length = 0;
    std::uint32_t received = 0;
    std::uint32_t id = 0;  // atomic: request identifier
    Msn msn;
    Cursor cursor;
  };

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
      return flat != nullptr || bytes == 0 || cursor.sge->length - cursor.offset >= bytes;
    }
  };

  // The header of the inbound segment being handled, for checks and for Terminates.
  struct Segment {
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

  // What came with and behind a Send for which no receive is posted yet, or a payload that its
  // target has not taken all of.
  struct Held {
    bool for_target = false;
    std::vector<std::uint8_t> ulpdu;  // for a receive it may be empty: the FPDU is in `rest`
    std::vector<std::uint8_t> rest;   // of the read
    Instant until;                    // then it is a violation
  };

  // The work request that caused the end of the stream, and its status.
  struct Offender {
    const SendWqe* wqe = nullptr;
    WcStatus status = WcStatus::kFlushed;
  };

  // --- receive: stream_rx.cc. Each bool: false when the stream has been failed ---
  void drain_reader();
  [[nodiscard]] bool on_ulpdu(MarkedOctets ulpdu);
  [[nodiscard]] bool on_direct(MarkedOctets bytes, std::uint32_t ulpdu_len);
  [[nodiscard]] bool open_segment(std::span<const std::uint8_t> bytes, std::uint32_t ulpdu_len);
  [[nodiscard]] bool refuse_while_closing();
  void note_first_fpdu();
  [[nodiscard]] MemoryFault resolve_remote(Stag stag, std::uint64_t to, std::uint64_t length,
                                           Access need, Pin& pin, std::uint8_t*& at);
  [[nodiscard]] bool place(MarkedOctets payload);
  [[nodiscard]] std::size_t target_slices(Slice* out, std::size_t room, std::size_t bytes);
  void note_placed(std::uint32_t bytes);
  [[nodiscard]] bool target_refused();
  [[nodiscard]] bool target_failed();
  [[nodiscard]] bool close_segment();
  [[nodiscard]] bool fail_segment(Violation v);
  [[nodiscard]] Stored scatter(Cursor& cursor, MarkedOctets& data);
  // Where the rest of the open segment goes that is not a Write.
  [[nodiscard]] Cursor& open_cursor() noexcept {
    return seg_.op == Opcode::kReadResponse ? oldest_read().cursor : receive_cursor_;
  }
  [[nodiscard]] std::size_t cursor_slices(Cursor cursor, Slice* out, std::size_t room,
                                          std::size_t bytes);
  static void advance(Cursor& cursor, std::size_t n);

  [[nodiscard]] bool by_method();

  // --- receive, ahead of its turn: stream_ahead.cc ---
  [[nodiscard]] std::uint8_t* target_ahead(const std::uint8_t* header, std::uint32_t payload,
                                           Pin& pin) const;
  [[nodiscard]] bool awaits(const DdpTagged& h, std::uint32_t payload) const noexcept;

  // --- receive, tagged: stream_rx_tagged.cc ---
  [[nodiscard]] bool check_write();
  [[nodiscard]] bool finish_write();
  [[nodiscard]] bool is_mark() const noexcept;
  void know_peer();
  [[nodiscard]] bool check_read_response();
  [[nodiscard]] bool finish_read_response();
  void answered(Outstanding& o);
  [[nodiscard]] Outstanding& oldest_read() noexcept { return orq_[orq_head_ & orq_mask_]; }

  // --- receive, untagged: stream_rx_untagged.cc ---
  [[nodiscard]] bool check_untagged();
  [[nodiscard]] bool check_send();
  [[nodiscard]] bool open_receive();
  void begin_receive();
  [[nodiscard]] bool finish_send();
  void complete_receive(WcStatus status, std::uint32_t vendor);
  [[nodiscard]] bool on_body(MarkedOctets octets);
  [[nodiscard]] bool on_immediate(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_read_request(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_atomic_request(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_atomic_response(std::span<const std::uint8_t> body);
  [[nodiscard]] bool on_terminate(std::span<const std::uint8_t> body);

  // --- receive, a Send before its receive, a target that waits: stream_hold.cc ---
  [[nodiscard]] bool retry_target();
  void hold(MarkedOctets ulpdu);
  void retry_due(Instant now);
  void go_on_with(std::unique_ptr<Held> held);

  // --- send: stream.cc, stream_tx.cc ---
  [[nodiscard]] bool repin(TxBatch& batch);
  [[nodiscard]] bool append_batch();
  [[nodiscard]] bool widen_batch();
  void build_batch();
  void drop_untaken();
  void retire_work();
  void retire_requests();
  [[nodiscard]] bool emit_segment();
  [[nodiscard]] bool is_simple(const SendWqe& wqe) const;
  [[nodiscard]] bool emit_simple(SendWqe& wqe);
  [[nodiscard]] bool emit_small(std::uint32_t header_len, std::uint32_t& payload);
  void store_header(std::uint8_t* at, bool last) const;
  [[nodiscard]] Access source_right() const;
  [[nodiscard]] bool emit_large(std::uint32_t header_len, std::uint32_t& payload);
  [[nodiscard]] bool fetch_payload(std::uint32_t header_len, std::uint32_t& payload);
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

  // --- send, work requests: stream_tx_work.cc ---
  [[nodiscard]] bool work_stalled(const SendWqe& wqe) const;
  [[nodiscard]] bool waits_for_acks(const SendWqe& wqe) const;
  [[nodiscard]] bool start_work();
  [[nodiscard]] bool run_local(SendWqe& wqe);
  [[nodiscard]] bool start_wqe(SendWqe& wqe);
  [[nodiscard]] bool sink_valid(const SendWqe& wqe) const;
  [[nodiscard]] bool has_request_list();
  [[nodiscard]] bool has_outstanding_list();
  Outstanding& add_outstanding();
  void start_read(SendWqe& wqe);
  void start_atomic(SendWqe& wqe);
  void start_immediate(const SendWqe& wqe);

  // --- acks: stream_ack.cc ---
  [[nodiscard]] bool take_ack(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool take_placed(std::uint32_t number);
  [[nodiscard]] bool may_ask() const noexcept;
  void start_ack_segment(AckKind kind, std::uint32_t value);
  [[nodiscard]] bool refuse_ack();
  void note_asked() noexcept;
  [[nodiscard]] std::uint8_t ask_bit(const SendWqe& wqe) const noexcept;
  void number_work(SendWqe& wqe, std::uint8_t bits) noexcept;
  void number_local(SendWqe& wqe) noexcept;
  void start_ack();
  void asked_alone() noexcept;
  void acks_reach(std::uint32_t number) noexcept;

  // --- refused Sends: stream_not_ready.cc ---
  void refuse_send();
  [[nodiscard]] bool drops(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool take_resume(Msn msn);
  [[nodiscard]] bool take_not_ready(Msn msn);
  [[nodiscard]] bool count_refusal(std::uint32_t index, Msn msn);
  void rewind(std::uint32_t index, Msn msn);

  // --- lost messages: stream_loss.cc ---
  [[nodiscard]] bool is_wired() const noexcept { return params_.acks || params_.unreliable; }
  void lose_send();
  [[nodiscard]] bool loses(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool is_lost(std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool loses_write(const DdpTagged& h, std::uint32_t payload);
  [[nodiscard]] bool loses_send(Opcode op, const DdpUntagged& h, std::uint32_t payload, bool last);
  [[nodiscard]] bool cannot_take(Opcode op, const DdpUntagged& h, std::uint32_t payload);

  // --- errors and ending: stream_end.cc ---
  void violate(Violation v, const Terminate* prepared = nullptr);
  void fail_work(SendWqe& wqe, WcStatus status, Violation v);
  void end_with_report(Violation v, const Terminate& report, Offender offender);
  [[nodiscard]] Terminate make_report(Violation v) const;
  [[nodiscard]] Terminate report_read(Violation v, const InboundRequest& request) const;
  [[nodiscard]] Offender offending_work(Violation v);
  void source_failed();
  void batch_failed();
  void terminated_by_peer(const Terminate& report);
  [[nodiscard]] Offender blamed_by(const Terminate& report);
  [[nodiscard]] SendWqe* blamed_write(const DdpTagged& h);
  [[nodiscard]] std::optional<std::uint32_t> find_send(Msn msn);
  [[nodiscard]] SendWqe* blamed_send(Msn msn);
  [[nodiscard]] SendWqe* blamed_read(Msn msn);
  [[nodiscard]] std::uint32_t work_begun_end() const noexcept;
  void lose(StreamEnd how, WcStatus oldest);
  void lose(StreamEnd how, Offender offender);
  void leave_work();
  [[nodiscard]] Offender oldest_ends(WcStatus status);
  void discard();
  void stop_sending();
  void go_down(StreamEnd how, TerminateCode code, bool by_peer, Offender offender);
  void settle_down();

  // --- the path: stream_path.cc ---
  [[nodiscard]] bool take_path_message(std::span<const std::uint8_t> ulpdu);
  void start_path_message();
  void path_message_built();
  void settle_hold();
  void flush_work(Offender offender, std::uint32_t vendor);
  void complete_send(SendWqe& wqe, WcStatus status, std::uint32_t vendor);
  void break_silence();
  void arm_deadline();
  [[nodiscard]] bool mid_message() const noexcept;

  const StreamParams params_;
  StreamHost& host_;
  const StagTable& table_;
  SendQueue& sq_;
  StreamCounters counters_;
  StreamMachine machine_;
  std::atomic<Access> remote_access_{Access::kRemoteWrite | Access::kRemoteRead |
                                     Access::kRemoteAtomic};

  // receive
  FpduReader reader_;
  bool discarding_ = false;
  bool first_fpdu_seen_ = false;
  bool plan_direct_ = false;
  Segment seg_;
  bool segment_open_ = false;
  Pin rx_pin_;  // kept over one arrived() call
  StagHint rx_hint_;
  std::uint8_t* write_at_ = nullptr;
  Msn rx_msn_[kQueueCount];
  bool receive_open_ = false;  // receive_ holds a message being placed
  std::uint32_t receive_bytes_ = 0;
  Cursor receive_cursor_;
  Receive receive_;
  std::unique_ptr<Held> held_;
  bool early_send_ = false;    // the segment just looked at is to be held
  bool target_waits_ = false;  // ... as its target has not taken all of it
  bool seen_before_ = false;   // the next one has been held: it is counted already
  bool write_open_ = false;
  Stag write_stag_;
  std::uint64_t write_next_to_ = 0;
  std::uint32_t write_bytes_ = 0;
  std::uint32_t last_write_bytes_ = 0;

  // requests of the peer
  const std::uint32_t irq_mask_;
  LentArray<InboundRequest> irq_;  // null until the first, see has_request_list()
  std::uint32_t irq_head_ = 0, irq_build_ = 0, irq_tail_ = 0;  // free-running

  // our reads and atomics
  std::uint32_t ord_;
  const std::uint32_t orq_mask_;
  LentArray<Outstanding> orq_;  // null until the first, see has_outstanding_list()
  std::uint32_t orq_head_ = 0, orq_count_ = 0;

  // send
  std::atomic<std::uint32_t> max_ulpdu_;
  FpduWriter writer_;
  StagHint tx_hint_;
  TxQueue tx_;
  std::size_t next_batch_bytes_ = kBatchBytes;  // see kBatchBytesFirst
  bool after_pause_ = false;                    // nothing was left to send; with CRCs only
  Instant no_pause_until_{-1};                  // see kBatchPause; before 0: never
  Outbound out_;
  Sge response_sge_;            // of the Read Response being built
  std::uint32_t sq_next_ = 0;   // next WQE to start, or being built; those before it are built
  bool second_half_ = false;    // the Immediate of a WriteImm is being built
  bool response_turn_ = false;  // who goes next when both have work
  bool rtr_pending_ = false;
  RtrKind rtr_ = RtrKind::kNone;  // to send while rtr_pending_
  bool mark_pending_ = false;     // responder: tell the peer that we are Weft too
  bool may_send_ = false;
  bool paused_ = false;
  bool terminate_pending_ = false;
  Msn tx_msn_[kQueueCount];
  static constexpr std::size_t kPathMessages = profile::kWired ? 4 : 2;
  PathMessage path_out_[kPathMessages];  // to be sent, in order
  std::size_t path_count_ = 0;
  bool is_path_message_ = false;  // the message being built is path_out_[0]
  bool carries_messages_ = false;
  PathWord hold_word_ = PathWord::kByTcp;  // what to do at hold_at_
  StreamOffset hold_at_ = 0;  // nothing is built behind this offset for now; 0: no such
  StreamOffset tx_sent_offset_ = 0;
  StreamOffset tx_released_offset_ = 0;
  StreamOffset completable_ = 0;
  std::uint32_t next_request_id_ = 1;

  // acks; numbers wrap
  std::uint32_t asks_sent_ = 0;      // messages built with kAskBit
  std::uint32_t asks_acked_ = 0;     // of these, placed at the peer
  std::uint32_t unasked_ = 0;        // work requests built since the last of them
  bool ask_pending_ = false;         // an empty Write is to ask
  std::uint32_t asks_received_ = 0;  // messages placed here that asked
  bool ack_pending_ = false;
  bool asked_by_receive_ = false;  // the last of them completed a receive
  // refused Sends
  bool refusing_ = false;         // the peer's, until it resumes
  bool refusal_pending_ = false;  // the peer has still to be told
  bool backed_off_ = false;       // ours, until we have resumed
  bool resume_pending_ = false;
  Instant resume_at_ = Instant::never();
  Instant fetch_at_ = Instant::never();  // the open message waits for octets of a method until then
  const MemoryEntry* source_entry_ = nullptr;  // that source() found last
  Msn refused_msn_;                            // of ours, the last one
  std::uint8_t refusals_ = 0;
  std::uint8_t refusals_allowed_ = 7;
  // lost messages
  bool starved_ = false;                  // the last Send was lost for want of a receive
  bool losing_send_ = false;              // the rest of this one is lost
  bool losing_write_ = false;             // likewise
  bool lost_write_ = false;               // and with the last Write the Immediate behind it
  std::uint8_t body_[kMaxTerminateSize];  // of the control or fixed-size message being built
  std::uint32_t terminate_size_ = 0;      // octets of it that are the Terminate to be sent

  // ending
  StreamEnd end_ = StreamEnd::kOpen;
  // What go_down() was told, while the transport still reads memory of work requests.
  struct Ending {
    bool due = false;
    TerminateCode code;
    bool by_peer = false;
    Offender offender;
    bool keeps_work = false;
    bool in_the_middle = false;  // with keeps_work
  };
  Ending ending_;
  bool fin_wanted_ = false;
  bool fin_taken_ = false;
  bool peer_fin_ = false;
  bool lost_ = false;
  bool wants_reset_ = false;
  Instant deadline_ = Instant::never();
  Instant retry_at_ = Instant::never();  // of a Send without a receive
};

}  // namespace weft::proto
