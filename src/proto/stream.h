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
//
// It has three parts: StreamRx, StreamTx and StreamShutdown, with what each needs to remember. What
// they share is here: parameters, counters, state, Reads and atomics, Acks, refusals, the path, the
// ending. A part reaches the others through the whole. It is a base rather than a member, so that
// the whole is at a fixed distance: a pointer to it costs 3 % of all instructions of a small
// message.
#pragma once

#include <weft/config.h>
#include <weft/limits.h>
#include <weft/types.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/arena.h"
#include "base/profile.h"
#include "base/result.h"
#include "base/seq.h"
#include "base/slice.h"
#include "base/time.h"
#include "proto/acks.h"
#include "proto/batch.h"
#include "proto/counters.h"
#include "proto/cursor.h"
#include "proto/ending.h"
#include "proto/path_message.h"
#include "proto/path_switch.h"
#include "proto/refusal.h"
#include "proto/small_messages.h"
#include "proto/stag_table.h"
#include "proto/startup.h"
#include "proto/stream_host.h"
#include "proto/stream_machine.h"
#include "proto/stream_params.h"
#include "proto/stream_requests.h"
#include "proto/stream_rx.h"
#include "proto/stream_shutdown.h"
#include "proto/stream_tx.h"
#include "proto/tx_queue.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "wire/ack.h"
#include "wire/ddp.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::proto {

class Stream : private StreamRx, private StreamTx, private StreamShutdown {
 public:
  Stream(const StreamParams& params, StreamHost& host, const StagTable& table, SendQueue& sq);
  ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Once, before anything else: a start-up that failed sends its Terminate; the patience with
  // a silent peer begins.
  void start();
  // Before start(): takes the memory for Reads now, which otherwise comes with the first Read. From
  // then on the stream takes none. False: there is none.
  [[nodiscard]] bool reserve() { return requests_.allocate() && reads_.allocate(); }
  // The same from the caller's memory, of which it takes memory_needed() for these depths or more.
  [[nodiscard]] bool reserve(Arena& memory) {
    return requests_.allocate(memory) && reads_.allocate(memory);
  }
  static constexpr std::size_t memory_needed(std::uint16_t ird, std::uint16_t ord) noexcept {
    return arena_bytes<InboundRequest>(request_list_size(ird)) +
           arena_bytes<Outstanding>(request_list_size(ord));
  }

  // For a transport whose memory the peer shares, beside the functions below: small messages need
  // no batch, and are read where they lie.
  [[nodiscard]] SmallMessages small() noexcept { return SmallMessages(*this); }

  // --- receive ---

  // Fills `plan`. `scratch` (at least kScratchBytesMin; best 256 KiB) belongs to the stream until
  // the matching arrived() returns, which must follow before any other member is called.
  void want(RxPlan& plan, std::span<std::uint8_t> scratch) { StreamRx::want(plan, scratch); }
  // The first `n` bytes of the plan are filled. n = 0 gives the plan back.
  void arrived(std::size_t n) { StreamRx::arrived(n); }
  // Bytes that the transport has in memory of its own, in place of want() and arrived(): small
  // FPDUs are parsed where they lie (and with markers moved together there). Any number.
  void feed(std::span<std::uint8_t> bytes) { StreamRx::feed(bytes); }
  // Places what it can of octets that came before their turn; `offset` is that of their first octet
  // (rx_offset(): the next in order). Whole FPDUs with a good CRC only, found by markers: RDMA
  // Writes, and Read Responses that are awaited. Nothing else changes: the same octets come again
  // in order, are checked and placed again, and only that delivers them or finds a fault.
  Ahead place_ahead(StreamOffset offset, std::span<const std::uint8_t> bytes) const {
    return StreamRx::place_ahead(offset, bytes);
  }
  // Octets of the stream that have arrived in order.
  [[nodiscard]] StreamOffset rx_offset() const noexcept { return counters_.rx_bytes.get(); }
  // A Send has come for which no receive is posted, or a payload that its target does not take just
  // now: nothing is read, want() gives an empty plan.
  [[nodiscard]] bool awaits_receive() const noexcept { return StreamRx::awaits_receive(); }
  // Looks whether there is one now, or asks the target again, and goes on if so. False: still not.
  bool retry_receive() { return StreamRx::retry_receive(); }
  // FIN.
  void peer_closed() { StreamShutdown::peer_closed(); }
  // Reset, error or time-out.
  void transport_lost(bool timed_out) { StreamShutdown::transport_lost(timed_out); }
  // The transport met EFAULT in memory we named.
  void memory_fault() { StreamShutdown::memory_fault(); }

  // --- send ---

  // Anything to transmit now? Cheap.
  [[nodiscard]] bool tx_pending() const noexcept { return StreamTx::tx_pending(); }
  // Octets of ULPDU sent at most; grows once the peer is known. Any thread.
  [[nodiscard]] std::uint32_t max_ulpdu() const noexcept { return StreamTx::max_ulpdu(); }
  // The batch under way, built if there is none; null if there is nothing to send (or no batch to
  // be had). Slices from slice_next on are to be sent, in order. Their memory is checked and pinned
  // now, so that no region of it can be deregistered before the matching sent(), which must follow
  // before any other member is called. The list itself is not read behind sent(), the memory it
  // names until released().
  [[nodiscard]] TxBatch* gather() { return StreamTx::gather(); }
  // The transport took `n` octets of it (0: none now). The stream goes on behind them.
  void sent(std::size_t n) { StreamTx::sent(n); }
  // The transport no longer reads the oldest `n` of the octets that it took: their memory may be
  // deregistered, and work requests are complete whose last octet is among them. A transport that
  // copies calls this right behind sent(). One that reads later calls it then; until that, the
  // memory stays pinned, and revoking it waits. REQUIRES: no more than were taken.
  void released(std::size_t n) { StreamTx::released(n); }
  // Builds the batch behind the one under way, if there is none yet: for a transport that has no
  // room now and nothing better to do. Its memory is checked again when its turn comes.
  void prepare() { StreamTx::prepare(); }
  // The transport is gone, whatever it had taken: it reads no memory any more. For transports that
  // read late, when they were closed or lost; behind transport_lost() and before ~Stream().
  void transport_closed() { released(static_cast<std::size_t>(tx_offset() - released_offset())); }
  // With hold_completions: the peer's TCP has acknowledged this many octets of the stream. Apart
  // from released(), because a transport that copied them holds no memory until then.
  void acked(StreamOffset offset) { StreamTx::acked(offset); }
  [[nodiscard]] StreamOffset tx_offset() const noexcept { return offsets_.sent; }
  [[nodiscard]] StreamOffset released_offset() const noexcept { return offsets_.released; }

  // --- the path under the stream: stream_path.cc ---

  // Sends it in its turn. One that changes the path is the last on the old one: the stream then
  // holds its sending until change_sending().  REQUIRES: as PathSwitch::send().
  void send_path_message(const PathMessage& message) { path_.send(message); }
  // All octets up to such a message have been taken by the transport: the next ones go where it
  // said.
  [[nodiscard]] std::optional<PathWord> sending_may_change() const noexcept {
    return path_.may_change(tx_offset());
  }
  // Inside StreamHost::path_message(): the octets behind this FPDU come from elsewhere. False:
  // there are some behind it already, which is a violation.
  [[nodiscard]] bool change_receiving(bool bare) { return StreamRx::change_receiving(bare); }
  // `bare`: without CRC and markers, which the start-up agreed on for the wire, in large FPDUs.
  // REQUIRES: sending_may_change().
  void change_sending(bool bare) { StreamTx::change_sending(bare); }
  // Messages of the application have begun to flow, in either direction, since this was forgotten.
  [[nodiscard]] bool carries_messages() const noexcept { return path_.carries_messages(); }
  void forget_messages() noexcept { path_.forget_messages(); }

  // --- ending ---

  // Orderly: finishes what is begun, flushes the rest, FIN.
  void close() { StreamShutdown::close(); }
  // Flushes everything at once; nothing more is sent.
  void abort() { StreamShutdown::abort(); }
  // A fault on our own side (CQ overflow): Terminate.
  void fail(Violation violation) { StreamShutdown::fail(violation); }
  // Sets the peer's rights on this stream as a whole, beside the rights of regions. Any thread.
  void allow_remote(Access access) { remote_access_.store(access, std::memory_order_relaxed); }
  // While paused, work requests not yet begun stay in the queue (SQD).
  void pause(bool paused) { StreamTx::pause(paused); }
  // No more Reads and atomics than this are outstanding at once, at least one.
  void limit_outstanding(std::uint16_t most) noexcept;
  // With StreamParams::acks: so often the peer may refuse the same Send before it fails; 7: for
  // ever.
  void allow_refusals(std::uint8_t most) noexcept { refusal_.allow(most); }
  // Work posted after the stream went down: completes it as flushed.
  void flush_posted() { StreamShutdown::flush_posted(); }
  // An Ack is due, and nothing else, for a message that has completed a receive: the program may be
  // about to answer it. The Ack stays due until gather() takes it.
  [[nodiscard]] bool only_ack_due() const noexcept { return StreamTx::only_ack_due(); }
  // True once: all that had to be sent is sent, the transport shuts down its sending side now.
  [[nodiscard]] bool take_fin() { return StreamShutdown::take_fin(); }
  // The transport may be closed: everything is over.
  [[nodiscard]] bool finished() const noexcept { return StreamShutdown::finished(); }
  // On finish: whether to close with a reset.
  [[nodiscard]] bool wants_reset() const noexcept { return ending_.wants_reset(); }

  [[nodiscard]] Instant deadline() const noexcept {
    return std::min(std::min(hold_.retry_at, deadline_), std::min(refusal_.deadline(), fetch_at_));
  }
  void expired(Instant now);

  // --- sight (any thread for counters) ---

  [[nodiscard]] StreamState state() const noexcept { return machine_.state(); }
  // An FPDU of the peer has been accepted.
  [[nodiscard]] bool first_fpdu_seen() const noexcept { return first_fpdu_seen_; }
  // stream_down() has been called, with these.
  [[nodiscard]] bool is_down() const noexcept { return ending_.is_told(); }
  [[nodiscard]] StreamEnd end() const noexcept { return ending_.how(); }
  [[nodiscard]] TerminateCode end_code() const noexcept { return ending_.code(); }
  [[nodiscard]] bool ended_by_peer() const noexcept { return ending_.by_peer(); }
  // In and behind stream_down(), with StreamParams::keeps_work: the peer has gone in the middle of
  // something, so no other stream can go on with what is left in the send queue.
  [[nodiscard]] bool left_in_the_middle() const noexcept { return ending_.in_the_middle(); }
  [[nodiscard]] const StreamCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] std::uint32_t reads_outstanding() const noexcept { return reads_.count(); }
  // Everything begun is completed (SQD).
  [[nodiscard]] bool send_drained() const noexcept { return StreamTx::send_drained(); }

 private:
  friend class SmallMessages;
  friend class StreamLoss;
  friend class StreamRx;
  friend class StreamShutdown;
  friend class StreamTx;

  // As the table resolves it, and what this stream lets its peer do: rights come before bounds.
  [[nodiscard]] MemoryFault resolve_remote(Stag stag, std::uint64_t to, std::uint64_t length,
                                           Access need, Pin& pin, std::uint8_t*& at);
  // Tells the host of a fault, but for boards; returns it.
  MemoryFault tell(MemoryFault fault, Stag stag, std::uint64_t to, std::uint64_t length,
                   Access need, bool to_peer) {
    if constexpr (!profile::kSmall) {
      if (fault != MemoryFault::kNone)
        host_.memory_refused({fault, to_peer, need, stag.value, to, length});
    }
    return fault;
  }
  // Whether the queue pair gives its peer this right at all. Asked between queue pairs connected
  // out of band, whose peers are told so (Violation::kNotServed); else resolve_remote() asks.
  [[nodiscard]] bool serves(Access need) const noexcept {
    return !params_.acks || has(remote_access_.load(std::memory_order_relaxed), need);
  }
  // An empty Write is to ask for an Ack. Behind a refused Send it would be dropped with it.
  [[nodiscard]] bool may_ask() const noexcept {
    return acks_.question_due() && !refusal_.backed_off();
  }
  // Its queue pairs were wired out of band.
  [[nodiscard]] bool is_wired() const noexcept { return params_.acks || params_.unreliable; }

  const StreamParams params_;
  StreamHost& host_;
  const StagTable& table_;
  SendQueue& sq_;
  StreamCounters counters_;
  StreamMachine machine_;
  std::atomic<Access> remote_access_{Access::kRemoteWrite | Access::kRemoteRead |
                                     Access::kRemoteAtomic};
  InboundRequests requests_;  // of the peer
  OutstandingReads reads_;    // ours
  Acks acks_;
  Refusal refusal_;
  PathSwitch path_;
  Ending ending_;
};

inline Stream& StreamRx::stream() noexcept { return static_cast<Stream&>(*this); }
inline const Stream& StreamRx::stream() const noexcept { return static_cast<const Stream&>(*this); }
inline Stream& StreamTx::stream() noexcept { return static_cast<Stream&>(*this); }
inline const Stream& StreamTx::stream() const noexcept { return static_cast<const Stream&>(*this); }
inline Stream& StreamShutdown::stream() noexcept { return static_cast<Stream&>(*this); }
inline const Stream& StreamShutdown::stream() const noexcept {
  return static_cast<const Stream&>(*this);
}

inline Cursor& StreamRx::open_cursor() noexcept {
  return seg_.op == Opcode::kReadResponse ? stream().reads_.oldest().cursor : receive_.cursor;
}

inline StreamId StreamRx::sink_owner() const noexcept {
  const StreamParams& params = stream().params_;
  const bool response = seg_.op == Opcode::kReadResponse || seg_.op == Opcode::kAtomicResponse;
  if (response || params.receive_pd == 0) return params.id;
  return {params.receive_pd, params.id.stream};
}

inline void StreamTx::pause(bool paused) {
  work_.paused = paused;
  // Requests that have been sent complete even if no completion of theirs is wanted.
  if (paused) stream().acks_.ask_for_rest();
}

}  // namespace weft::proto
