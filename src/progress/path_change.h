// How a connection inside one machine moves from TCP to a ring, and back: what the two ends say to
// each other (proto/path_message.h), in which order.
//
//   initiator                                   responder
//     kName, kProof        ---- TCP --->
//                                                 makes the ring, leaves it at the name
//                          <--- TCP ----          kAnswered
//     takes the ring
//     kByRing              ---- TCP --->
//     sends by the ring                           receives by the ring
//                          <--- TCP ----          kByRing
//     receives by the ring                        sends by the ring
//
// The initiator begins, when the application's messages do. kRefused, from either, leaves the
// stream on TCP for good; nothing else is different then. When nothing has been carried for
// `ring_idle`, the initiator sends kByTcp through the ring, the responder answers with the same,
// and both give the ring up until it is needed again.
//
// When the connection is over, both keep the ring's memory for a moment (progress/rings.h). An
// initiator that has kept some names it by kAgain, before the ticket; the responder uses it again
// if it has kept it, too, or else makes new memory.
//
// Part of a lane: with the lane held.
#pragma once

#include <weft/config.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "base/time.h"
#include "io/path_transport.h"
#include "progress/rings.h"
#include "proto/path_message.h"
#include "proto/stream.h"
#include "shm/ring_handover.h"

namespace weft::progress {

class PathChange {
 public:
  // REQUIRES: params.path.
  PathChange(io::PathTransport& transport, proto::Stream& stream, const proto::StreamParams& params,
             Rings& rings, Duration idle) noexcept
      : transport_(transport),
        stream_(stream),
        rings_(rings),
        mode_(*params.path),
        idle_(idle),
        initiator_(params.initiator),
        markers_(params.tx_markers || params.rx_markers) {}
  ~PathChange() { give_ring(); }
  PathChange(const PathChange&) = delete;
  PathChange& operator=(const PathChange&) = delete;

  // See StreamHost::path_message().
  [[nodiscard]] bool on_message(const proto::PathMessage& message);
  // Behind each turn. True: there may be more to send now.
  [[nodiscard]] bool turn_done();
  // Nothing has come to turn_done() since it said false.
  [[nodiscard]] bool at_rest() const noexcept {
    return !stirred_ && !may_begin() && !stream_.sending_may_change();
  }
  // The connection is over in good order: the ring's memory may serve another.
  void keep_ring();
  // When on_time() has something to do. never() most of the time.
  [[nodiscard]] Instant deadline() const noexcept { return deadline_; }
  void on_time(Instant now);

  [[nodiscard]] const io::PathTransport& transport() const noexcept { return transport_; }
  // A path=ring that has become impossible: the stream has to end.
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // The transport has got a bell, or lost it, since this was asked last.
  [[nodiscard]] bool take_moved() noexcept { return std::exchange(moved_, false); }
  // The bell that it had before, still in epoll.
  [[nodiscard]] os::Fd take_left_bell() noexcept { return transport_.take_left_bell(); }

 private:
  enum class Step : std::uint8_t {
    kTcp,       // no ring, none asked for
    kOffered,   // initiator: the ticket is out
    kAnswered,  // responder: the ring is made
    kRing,      // each direction is on the ring, or about to be
    kLeaving,   // each direction is back on TCP, or about to be
    kRefused,   // TCP for good
  };
  [[nodiscard]] bool may_have_ring();
  void give_ring() noexcept;
  void begin();
  void answer();
  void take_ring();
  void log_refusal(Error error) const;
  void refuse(Error error, bool tell);
  void leave_ring();
  [[nodiscard]] bool may_begin() const noexcept {
    return step_ == Step::kTcp && initiator_ && mode_ != PathMode::kTcp;
  }
  [[nodiscard]] bool must_begin();
  [[nodiscard]] bool receive_by(io::PathTransport::Way way);
  void say(proto::PathWord word, std::uint64_t value);
  void look_at_idleness(Instant now);

  io::PathTransport& transport_;
  proto::Stream& stream_;
  Rings& rings_;
  const PathMode mode_;
  const Duration idle_;
  const bool initiator_;
  const bool markers_;
  Step step_ = Step::kTcp;
  shm::RingTicket ticket_;
  std::optional<shm::RingOffer> offer_;
  SocketAddress peer_;                   // an initiator's
  std::optional<shm::SpareRing> spare_;  // an initiator's: what kAgain has named
  std::uint64_t again_ = 0;              // a responder's: what the peer's kAgain has named
  std::uint64_t moved_octets_ = 0;       // at the last look at idleness
  Instant deadline_ = Instant::never();
  bool counted_ = false;  // one of rings_ is ours
  bool begun_ = false;    // turn_done() has been called
  bool stirred_ = true;   // by a message or by time
  bool failed_ = false;
  bool moved_ = false;
};

}  // namespace weft::progress
