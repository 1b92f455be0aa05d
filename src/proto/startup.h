// MPA start-up, RFC 5044 section 7.1 and RFC 6581: the exchange of one Request and one Reply.
//
// A state machine without I/O. The owner writes what to_send() gives, reads missing() octets at a
// time into received(), and watches state(): docs/states.md has a picture. Time limits are the
// owner's: one for each state that waits. Values in, bytes out; one thread at a time; no
// allocation.
//
// After kRejected and kFailed the connection is closed without an FPDU.
#pragma once

#include <weft/config.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "proto/startup_states.h"
#include "proto/violation.h"
#include "wire/limits.h"
#include "wire/mpa_startup.h"

namespace weft::proto {

// This side's wishes for the connection.
struct StartupOffer {
  bool crc = true;            // on as soon as either side wants it
  bool markers = false;       // markers in the stream we receive
  std::uint8_t revision = 2;  // initiator: 1 or 2. A responder answers with the peer's
  bool peer_to_peer = false;  // initiator, revision 2: we send an RTR first
  // Kinds of RTR we can send (initiator, peer-to-peer: at least one) or prefer to get (responder).
  bool rtr_read = true;
  bool rtr_write = true;
  std::uint16_t ird = 0;  // Reads and atomics we serve at once, at most kMaxIrdOrd
  std::uint16_t ord = 0;  // Reads and atomics we want outstanding, at most kMaxIrdOrd
  // The application's, without the enhanced words; copied. At most 512 octets less the 4 enhanced
  // ones where those are sent (to and from an initiator of revision 2: always).
  std::span<const std::uint8_t> private_data;
};

// The content of the peer's frame. Views live as long as the Startup is neither moved nor
// destroyed.
struct StartupPeer {
  std::uint8_t revision = 0;
  bool crc = false;
  bool markers = false;
  bool enhanced = false;  // the peer sent the enhanced words: what follows is meaningful
  bool peer_to_peer = false;
  bool rtr_send = false, rtr_write = false, rtr_read = false;
  std::uint16_t ird = 0, ord = 0;              // raw: kIrdOrdNotNegotiated is possible
  std::span<const std::uint8_t> private_data;  // the application's part
};

// The values that both sides have agreed on: the input of StreamParams.
struct Negotiated {
  bool initiator = false;
  std::uint8_t revision = 2;
  bool crc = true;
  bool tx_markers = false;  // the peer wants markers in what we send
  bool rx_markers = false;
  bool peer_to_peer = false;     // responder: an RTR is due before anything else
  RtrKind rtr = RtrKind::kNone;  // agreed kind; the initiator sends it
  std::uint16_t ird = 0;         // a responder's is at least 1: an unannounced Read RTR may come
  std::uint16_t ord = 0;         // at least 1 if we send a Read RTR
  // Initiator: the Reply is good MPA but cannot be worked with. The stream's first and only FPDU is
  // this Terminate: kInsufficientIrd or kNoMatchingRtr.
  std::optional<Violation> startup_failure;
};

enum class StartupFailure : std::uint8_t {
  kNone,
  kNotMpa,              // neither key
  kTwoInitiators,       // a Request where the Reply was due
  kTwoResponders,       // a Reply where the Request was due
  kPrivateDataTooLong,  // PD_Length above 512
  kRevisionZero,        // Request of the RDMA Consortium's protocol
  kRevisionUnknown,     // Request of a later revision
  kRevisionMismatch,    // Reply of another revision than the Request
  kEnhancedCutShort,    // S = 1 with PD_Length below 4
  kEnhancedMissing,     // the Reply lacks the enhanced words of the Request
  kDataBehindRequest,   // the initiator did not wait for the Reply
  kDataBeforeRequest,   // the responder spoke before our Request was out
  kClosedByPeer,        // FIN before the frame was whole
};
// A phrase for logs: "octets behind the MPA Request". The view is static.
[[nodiscard]] std::string_view describe(StartupFailure failure) noexcept;

class Startup {
 public:
  // Begins in kSendingRequest.
  //   kInvalidArgument      revision not 1 or 2; peer-to-peer in revision 1 or without an RTR kind;
  //                         ird or ord above kMaxIrdOrd
  //   kPrivateDataTooLong   the application's data does not fit the frame
  [[nodiscard]] static Result<Startup> initiator(const StartupOffer& offer);
  // Begins in kAwaitingRequest.
  [[nodiscard]] static Startup responder();
  // Makes an initiator of what responder() gave, in place; then it is in kSendingRequest. REQUIRES:
  // nothing else has been called.   As initiator(); nothing has changed then
  [[nodiscard]] Status request(const StartupOffer& offer);

  [[nodiscard]] StartupState state() const noexcept { return state_; }
  [[nodiscard]] StartupFailure failure() const noexcept { return failure_; }
  [[nodiscard]] bool is_initiator() const noexcept { return is_initiator_; }

  // --- send ---

  // Octets still to transmit: empty unless is_sending(state()). The view lives until the next call
  // of a non-const member.
  [[nodiscard]] std::span<const std::uint8_t> to_send() const noexcept;
  // `n` of them were taken. REQUIRES: n <= to_send().size().
  void sent(std::size_t n) noexcept;

  // --- receive ---

  // Octets to read next. Never beyond the peer's frame, so a caller who reads no more than this
  // leaves FPDUs behind the Reply in the transport. 0: nothing is due. While a responder waits for
  // its application or sends its Reply, any octet that can be read is a violation: pass it to
  // received().
  [[nodiscard]] std::size_t missing() const noexcept;
  // For an initiator: with the enhanced words, which a Reply to enhanced words has if the
  // connection goes on.
  [[nodiscard]] std::size_t missing_with_words() const noexcept;
  // So much is missing of the largest frame. For a responder, to whom the frame is all that may
  // come.
  [[nodiscard]] std::size_t room() const noexcept { return kFrameMax - in_size_; }

  // Where the missing() octets belong, and: `n` of them are there. The same as received() without
  // the copy. REQUIRES: missing() is not 0; n at most that.
  [[nodiscard]] std::span<std::uint8_t> slot() noexcept {
    return {in_.data() + in_size_, missing()};
  }
  void filled(std::size_t n);

  // Takes octets of the stream; returns how many belong to the peer's frame. An initiator keeps the
  // rest for the stream (they are FPDUs behind the Reply); for a responder a rest is an error.
  // After kDone nothing is taken, and it is not an error.
  //   kProtocol   start-up has failed, now or earlier: failure() says why; close, unless state() is
  //               kSendingRevision: then first send that
  [[nodiscard]] Result<std::size_t> received(std::span<const std::uint8_t> bytes);

  // The peer's FIN, or a reset, before kDone.
  void peer_closed() noexcept;

  // --- the responder's decision ---

  // Responder: what the Request says, from kRequestReady on. Initiator: what the Reply says, from
  // kDone or kRejected on. Before that: empty.
  [[nodiscard]] StartupPeer peer() const noexcept;

  // Both build the Reply; nothing changes on error.
  //   kBadState             not in kRequestReady
  //   kInvalidArgument      ird or ord above kMaxIrdOrd
  //   kPrivateDataTooLong   the application's data does not fit the frame
  [[nodiscard]] Status accept(const StartupOffer& offer);
  [[nodiscard]] Status reject(std::span<const std::uint8_t> private_data);

  // Largest application data that accept() and reject() (responder) take now.
  [[nodiscard]] std::size_t private_data_max() const noexcept;

  // --- outcome ---

  // REQUIRES: kDone.
  [[nodiscard]] const Negotiated& result() const noexcept { return result_; }

 private:
  static constexpr std::size_t kFrameMax = kMpaFrameSize + kMaxPrivateData;

  explicit Startup(bool initiator) noexcept : is_initiator_(initiator) {}

  [[nodiscard]] MpaKind expected() const noexcept {
    return is_initiator_ ? MpaKind::kReply : MpaKind::kRequest;
  }
  void build(MpaFrame frame, const EnhancedWords* words, std::span<const std::uint8_t> data);
  void advance(StartupEvent event) noexcept { weft::advance(startup_arrows(), state_, event); }
  void fail_with(StartupFailure failure) noexcept;
  [[nodiscard]] StartupFailure classify(Error error) const noexcept;
  void frame_complete();
  void on_request();
  void on_reply();
  void settle_reply(const EnhancedWords& theirs);
  [[nodiscard]] EnhancedWords answer(const StartupOffer& offer);
  [[nodiscard]] RtrKind choose_rtr(const StartupOffer& offer) const noexcept;

  bool is_initiator_;
  StartupState state_ = StartupState::kAwaitingRequest;
  StartupFailure failure_ = StartupFailure::kNone;

  std::array<std::uint8_t, kFrameMax> out_{};
  std::size_t out_size_ = 0;
  std::size_t out_sent_ = 0;

  std::array<std::uint8_t, kFrameMax> in_{};
  std::size_t in_size_ = 0;
  bool in_whole_ = false;

  // The peer's frame, once whole.
  MpaFrame header_;  // its private_data is not used: the octets are in in_
  std::optional<EnhancedWords> words_;

  // Our own Request.
  StartupOffer own_;  // its private_data is not used
  Negotiated result_;
};

}  // namespace weft::proto
