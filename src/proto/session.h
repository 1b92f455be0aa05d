// The protocol of one connection from its first octet to its last: MPA start-up in either role, its
// time limits, the hand-over to full operation, and the stream.
//
// The same shape as Stream: bytes and time in, actions out. No socket, thread or clock.
//
//   receive   want()    -> where the next bytes belong      arrived() / feed()
//   send      gather()  -> the next bytes to transmit       sent(), released(), prepare()
//   time      deadline()                                    expired()
//   transport                                               peer_closed(), transport_lost()
//
//   responder   await_request() -> request_arrived -> accept() -> established -> ended
//                                                  -> reject()
//   initiator   start()         -> established -> ended
//                               -> rejected
//   (either, before established) -> failed
//
// The session owns the stream, and borrows hosts, table and send queue for its life. The frames of
// start-up lie in memory of the pool and are given back once they are sent and told.
//
// Threads: as with Stream, one at a time; the owner excludes others.
#pragma once

#include <weft/config.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/slice.h"
#include "base/time.h"
#include "proto/startup.h"
#include "proto/stream.h"

namespace weft::proto {

// Time limits; 0: none. Connecting the transport is not the session's.
struct SessionLimits {
  Duration request_timeout{std::chrono::seconds(5)};  // responder: until the Request is whole; and
                                                      // from its answer until that is sent
  Duration reply_timeout{std::chrono::seconds(30)};   // initiator: from start() to the Reply
  Duration rtr_timeout{std::chrono::seconds(10)};     // responder, peer-to-peer: to the first FPDU
  // See StreamParams::patience.
  Duration first_fpdu_wait{std::chrono::milliseconds(50)};  // responder, not peer-to-peer
  Duration nudge_wait{std::chrono::milliseconds(50)};       // initiator
};

// Why a connection was not established.
enum class SessionFault : std::uint8_t {
  kNone,
  kProtocol,        // the peer's frame: see `startup`
  kClosedByPeer,    // FIN before the exchange was complete
  kTransportLost,   // reset
  kTransportTimed,  // the transport gave up waiting for the peer's acknowledgment
  kRequestTimeout,  // responder: no whole Request in time
  kSendTimeout,     // responder: the peer did not take the answer in time
  kReplyTimeout,    // initiator: no whole Reply in time
  kRtrTimeout,      // responder: no FPDU in time after the Reply
  kUnusableReply,   // initiator: good MPA, but it cannot be worked with; `code` went to the peer
  kEnded,           // it ended before its first FPDU; `code` if by a Terminate
  kAborted,         // by abort()
  kNoMemory,
};
// A phrase for logs. The view is static.
[[nodiscard]] std::string_view describe(SessionFault fault) noexcept;

struct SessionFailure {
  SessionFault fault = SessionFault::kNone;
  StartupFailure startup = StartupFailure::kNone;  // with kProtocol
  TerminateCode code{};                            // with kUnusableReply and kEnded
  bool by_peer = false;                            // who sent it
};

// What the session tells its owner, and asks of it. Called only from inside the session's own
// members; the owner may call members from inside, but not destroy the session.
class SessionHost {
 public:
  virtual ~SessionHost() = default;

  // Responder: the Request is whole. accept() or reject() is due, here or later. Views live until
  // then.
  virtual void request_arrived(const StartupPeer& peer) = 0;

  // Start-up is over, the stream is about to be made. `params` holds what was agreed; the owner
  // sets the rest (max_ulpdu, max_ulpdu_known, hold_completions, close_timeout).
  virtual void stream_starting(const Negotiated& agreed, StreamParams& params) = 0;

  // Full operation. Responder, peer-to-peer: only when the first FPDU has been accepted, though
  // the stream runs since stream_starting(). `peer` as the frame said it; views live for this call.
  virtual void established(const Negotiated& agreed, const StartupPeer& peer) = 0;

  // Initiator: the peer's application said no. Close. Views live for this call.
  virtual void rejected(const StartupPeer& peer) = 0;

  // Instead of established(), once. Close when finished(). A stream that was running has told its
  // own host that it is down.
  virtual void failed(const SessionFailure& failure) = 0;

  // After established(), once: the stream is down, all work is completed or flushed.
  virtual void ended(StreamEnd how, TerminateCode code, bool by_peer) = 0;

  [[nodiscard]] virtual Instant now() = 0;
};

// The queue pair that a stream belongs to.
struct StreamOwner {
  StreamHost& host;
  const StagTable& table;
  SendQueue& sq;
  StreamId id;
};

class Session {
 public:
  // `pool` gives memory aligned for any type; at least kStartupBytes are borrowed while start-up
  // lasts.
  static constexpr std::size_t kStartupBytes = sizeof(Startup);
  Session(const SessionLimits& limits, SessionHost& host, CarryPool& pool);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // --- begin: one of them, once, when the transport is connected ---

  // Responder: waits for the Request.   kNoMemory
  [[nodiscard]] Status await_request();
  // Initiator: sends the Request.
  //   kInvalidArgument, kPrivateDataTooLong   see Startup::initiator(); nothing has changed
  //   kNoMemory
  [[nodiscard]] Status start(const StartupOffer& offer, const StreamOwner& owner);

  // --- the responder's answer, after request_arrived ---

  //   kBadState   the application has been asked nothing, has answered, or the connection failed
  //   kInvalidArgument, kPrivateDataTooLong   see Startup::accept(); nothing has changed
  [[nodiscard]] Status accept(const StartupOffer& offer, const StreamOwner& owner);
  // Sends the Reply and ends; neither failed() nor rejected() is called.   As accept()
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data);
  // Largest application data that accept() and reject() take now.
  [[nodiscard]] std::size_t private_data_max() const noexcept;

  // --- receive: as Stream ---

  void want(RxPlan& plan, std::span<std::uint8_t> scratch) {
    if (stream_) return stream_->want(plan, scratch);
    want_frame(plan, scratch);
  }
  void arrived(std::size_t n) {
    if (!stream_) return frame_arrived(n);
    stream_->arrived(n);
    settle();
  }
  void feed(std::span<std::uint8_t> bytes);
  void peer_closed();
  void transport_lost(bool timed_out);
  void memory_fault();

  // --- send: as Stream ---

  [[nodiscard]] bool tx_pending() const noexcept;
  // The next bytes to transmit, in order; empty: none now. The matching sent() must follow before
  // any other member is called. The list is not read behind it, the memory it names until
  // released().
  [[nodiscard]] std::span<const Slice> gather();
  void sent(std::size_t n);
  void released(std::size_t n);
  void prepare() {
    if (stream_) stream_->prepare();
  }
  void acked(StreamOffset offset);  // octets of all of the connection
  void transport_closed();
  // Octets taken by the transport since the session began.
  [[nodiscard]] StreamOffset tx_offset() const noexcept {
    return frames_sent_ + (stream_ ? stream_->tx_offset() : 0);
  }

  // --- ending ---

  // Orderly. Before the stream is there: as abort().
  void close();
  // At once, with a reset. Before established: failed(kAborted).
  void abort();
  [[nodiscard]] bool take_fin() { return stream_ && stream_->take_fin(); }
  // The transport may be closed.
  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] bool wants_reset() const noexcept;

  [[nodiscard]] Instant deadline() const noexcept;
  void expired(Instant now);

  // --- sight ---

  // The stream in full operation; null before that. What is called on it beside this class is
  // followed by settle().
  [[nodiscard]] Stream* stream() noexcept { return stream_ ? &*stream_ : nullptr; }
  // Tells the host what has become of the stream.
  void settle() {
    if (phase_ == Phase::kUp && !stream_->is_down()) return;
    settle_changed();
  }
  [[nodiscard]] bool is_initiator() const noexcept { return initiator_; }
  [[nodiscard]] bool is_established() const noexcept { return established_; }
  // REQUIRES: stream() is not null.
  [[nodiscard]] const Negotiated& agreed() const noexcept { return agreed_; }

 private:
  enum class Phase : std::uint8_t {
    kIdle,
    kFrames,     // Request or Reply under way; responder: nobody has been asked yet
    kRequested,  // responder: the application's turn
    kReplying,   // responder: accepted, the Reply is being sent
    kRefusing,   // responder: the last octets are being sent, then it is over
    kFirstFpdu,  // responder, peer-to-peer: the stream runs, its first FPDU is awaited
    kUnusable,   // initiator: the stream runs for its Terminate alone
    kUp,
    kDown,
  };

  [[nodiscard]] Status make_startup();
  void drop_startup() noexcept;
  void want_frame(RxPlan& plan, std::span<std::uint8_t> scratch);
  void frame_arrived(std::size_t n);
  void step();  // acts on what start-up has come to
  void begin_stream();
  void report_established();
  void fail_with(const SessionFailure& failure, bool reset);
  void fail_startup();
  void finish();
  void settle_changed();
  void own_time_out();
  void arm(Duration limit);

  const SessionLimits limits_;
  SessionHost& host_;
  CarryPool& pool_;
  Phase phase_ = Phase::kIdle;
  bool initiator_ = false;
  bool established_ = false;
  bool reset_ = false;
  SessionFault fault_ = SessionFault::kNone;  // why we aborted a stream that was not established
  Instant deadline_ = Instant::never();       // of the session itself

  Startup* startup_ = nullptr;       // in memory of the pool
  std::uint8_t* scratch_ = nullptr;  // where the frame's octets were wanted; null: in place
  Slice frame_{};
  StreamOffset frames_sent_ = 0;
  StreamOffset frames_released_ = 0;

  std::optional<StreamOwner> owner_;
  Negotiated agreed_;
  std::optional<Stream> stream_;
};

}  // namespace weft::proto
