// The values that a stream is given at its beginning.
#pragma once

#include <weft/config.h>
#include <weft/types.h>

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "proto/path_message.h"
#include "proto/stag_table.h"
#include "proto/startup.h"
#include "proto/violation.h"

namespace weft::proto {

// The wishes of the host about memory that the peer uses.
struct PeerMemoryWishes {
  bool to_hear = false;  // of it
  // For tests: to be asked how much earlier than the others the last octets of a Write are placed.
  // Not for transports that feed().
  bool last_octets_first = false;
};

// The outcome of start-up, plus local policy.
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
  // Endpoints without an operating system do not use these (profile::kWired): the code is left out.
  static constexpr bool acks = false, unreliable = false, keeps_work = false, steps = false;
  static constexpr PeerMemoryWishes peer_memory{};
  static constexpr std::optional<PathMode> path{};
  static constexpr Duration recv_wait{0}, not_ready_pause{0};
  static constexpr std::uint32_t receive_pd = 0;
#else
  std::uint32_t receive_pd = 0;  // whose memory receives name: of a shared queue's domain. 0: id.pd
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
  bool steps = false;  // the host wants to know of the steps of requests and messages
  PeerMemoryWishes peer_memory;
#endif
  RtrKind rtr = RtrKind::kNone;  // initiator, peer-to-peer: RTR to send first
  std::optional<Violation>
      startup_failure;             // initiator: first FPDU is this Terminate (2/0/06 or 07)
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

}  // namespace weft::proto
