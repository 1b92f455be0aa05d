// How one connection begins and how it is told that it is over: MPA start-up in either role, its
// time limits, the hand-over to the stream, and what the application is to hear.
//
// Bytes and time in, notices out. No socket, thread or clock; the stream is the owner's, too, since
// it lives where work requests are posted. The owner moves the frames' octets, keeps deadline(),
// and after each call takes notices until there is none:
//
//   responder   begin() -> kRequest -> accept() -> kAgreed -> stream_running() -> kEstablished
//                                   -> reject() (nothing more is told)
//   initiator   request(), begin() -> kAgreed -> stream_running() -> kEstablished
//                                  -> kRejected
//   then        stream_down() -> kEnded
//   (any, before kEstablished) -> kFailed
//
// Threads: one at a time; the owner excludes others. What the stream says may come before
// stream_running() is called: it is told behind it.
#pragma once

#include <weft/config.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/time.h"
#include "proto/session_states.h"
#include "proto/startup.h"
#include "proto/stream.h"

namespace weft::proto {

// Time limits; 0: none. Connecting the transport is not the session's.
struct SessionLimits {
  Duration request_timeout{std::chrono::seconds(5)};  // responder: until the Request is whole; and
                                                      // from its answer until that is sent
  Duration reply_timeout{std::chrono::seconds(30)};   // initiator: from begin() to the Reply
  Duration rtr_timeout{std::chrono::seconds(10)};     // responder, peer-to-peer: to the first FPDU
};

// Why a connection was not established, or is over.
enum class SessionFault : std::uint8_t {
  kNone,            // ended in good order
  kProtocol,        // the peer's frame: see `startup`
  kClosedByPeer,    // FIN before the exchange was complete
  kTransport,       // the transport gave up: see `error`
  kRequestTimeout,  // responder: no whole Request in time
  kSendTimeout,     // responder: the peer did not take the answer in time
  kReplyTimeout,    // initiator: no whole Reply in time
  kRtrTimeout,      // responder: no FPDU in time after the Reply
  kUnusableReply,   // initiator: good MPA, but it cannot be worked with; a Terminate went out
  kEndedUnused,     // it ended, in good order, before its first FPDU
  kStreamLost,      // the stream ended without order
  kTerminated,      // by a Terminate, sent or received
  kAborted,         // by abort()
};
// A phrase for logs. The view is static.
[[nodiscard]] std::string_view describe(SessionFault fault) noexcept;

struct SessionFailure {
  SessionFault fault = SessionFault::kNone;
  StartupFailure startup = StartupFailure::kNone;  // with kProtocol
  Error error{};                                   // with kTransport
  // A phrase for logs. The view is static.
  [[nodiscard]] std::string_view text() const noexcept;
};

enum class SessionNotice : std::uint8_t {
  kNone,
  kRequest,  // responder: the Request is whole, see peer(); accept() or reject() is due, here or
             // later
  kAgreed,   // make the stream from agreed() and call stream_running(), or abort()
  kEstablished,  // full operation. Responder, peer-to-peer: the first FPDU has been accepted
  kAbortStream,  // a time limit or abort(): the stream has to end at once
  kRejected,     // initiator: the peer's application said no, see peer(). Close
  kFailed,       // instead of kEstablished: see failure(). Close
  kEnded,        // after kEstablished, the stream is down: see failure()
};

class Session {
 public:
  explicit Session(const SessionLimits& limits) noexcept : limits_(limits) {}

  // --- begin ---

  // Becomes the initiator and builds the Request. REQUIRES: kNew.
  //   kInvalidArgument, kPrivateDataTooLong   see Startup::initiator(); nothing has changed
  [[nodiscard]] Status request(const StartupOffer& offer);
  // The transport is connected. Without request(): waits for one.
  void begin(Instant now);

  // --- frames ---

  // Octets still to transmit. The view lives until the next call of a non-const member.
  [[nodiscard]] std::span<const std::uint8_t> to_send() const noexcept;
  void sent(std::size_t n);  // so many of them were taken
  // Octets to read at once, at most; 0: none may be read now. An initiator reads not an octet more
  // than a Reply that it can go on with: what follows belongs to the stream. A responder reads all
  // there is, also while the application decides: anything behind the Request is a violation.
  [[nodiscard]] std::size_t wanted() const noexcept;
  void arrived(std::span<const std::uint8_t> octets);
  void peer_closed();  // FIN
  void transport_lost(Error error);

  // --- the responder's answer, after kRequest ---

  //   kBadState   the application has been asked nothing, has answered, or the connection failed
  //   kInvalidArgument, kPrivateDataTooLong   see Startup::accept(); nothing has changed
  [[nodiscard]] Status accept(const StartupOffer& offer, Instant now);
  // Sends the Reply, and is over then.   As accept()
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data, Instant now);

  // --- the stream's life ---

  // It runs, begun with agreed(). REQUIRES: kAgreed was the last notice.
  void stream_running(Instant now);
  // Its first FPDU has been accepted.
  void first_fpdu();
  // It is down, and all its work is completed or flushed.
  void stream_down(StreamEnd how);

  // --- the end ---

  // At once. While the stream runs: kAbortStream, and its end comes by stream_down().
  void abort();
  [[nodiscard]] Instant deadline() const noexcept { return deadline_; }
  void expired(Instant now);

  // --- sight ---

  // The next thing to do or to tell. kNone: nothing.
  [[nodiscard]] SessionNotice take_notice() noexcept;
  [[nodiscard]] SessionState state() const noexcept { return state_; }
  [[nodiscard]] bool is_initiator() const noexcept { return initiator_; }
  [[nodiscard]] bool is_established() const noexcept { return established_; }
  [[nodiscard]] bool is_stream_down() const noexcept { return end_ != StreamEnd::kOpen; }
  [[nodiscard]] const SessionFailure& failure() const noexcept { return failure_; }
  // The content of the peer's frame, as Startup::peer(). REQUIRES: has_frames().
  [[nodiscard]] StartupPeer peer() const noexcept { return startup_->peer(); }
  // REQUIRES: has_frames(), and kAgreed has come.
  [[nodiscard]] const Negotiated& agreed() const noexcept { return startup_->result(); }
  // The frames take a kilobyte; the owner lets go of them when it has told what is in them.
  [[nodiscard]] bool has_frames() const noexcept { return startup_ != nullptr; }
  void drop_frames() noexcept { startup_.reset(); }

 private:
  bool on(SessionEvent event) noexcept;  // false: nothing has changed
  void follow_startup();
  void fail_startup();
  void fail_with(const SessionFailure& failure);
  void establish();
  void tell_end();
  void note(SessionNotice notice) noexcept;
  void arm(Duration limit, Instant now);

  const SessionLimits limits_;
  SessionState state_ = SessionState::kNew;
  bool initiator_ = false;
  bool established_ = false;
  bool first_fpdu_seen_ = false;
  bool abort_wanted_ = false;
  StreamEnd end_ = StreamEnd::kOpen;
  std::uint8_t notices_ = 0;  // a bit each; told in the order of SessionNotice
  SessionFailure failure_;
  Instant deadline_ = Instant::never();
  std::unique_ptr<Startup> startup_;
};

}  // namespace weft::proto
