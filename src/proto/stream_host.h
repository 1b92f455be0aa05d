// A stream's requests to its owner, and its reports.
#pragma once

#include <weft/types.h>

#include <cstdint>

#include "base/time.h"
#include "proto/ending.h"
#include "proto/fpdu_reader.h"
#include "proto/path_message.h"
#include "proto/tx_queue.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "wire/rdmap.h"
#include "wire/terminate.h"

namespace weft::proto {

// Implemented by the owner of a stream. Called only from inside the stream's own members.
class StreamHost : public CarryPool, public BatchSource {
 public:
  // Takes the next posted receive into `out`, which has room for profile::kSgesPerReceive SGEs
  // behind it. False: there is no posted receive.
  virtual bool take_receive(RecvWqe& out) = 0;

  virtual void send_done(const SendDone& done) = 0;
  virtual void recv_done(const RecvDone& done) = 0;

  // With StreamParams::keeps_work: the peer has gone while this receive was open, in the middle of
  // its message or, unreliable, before the first one that fits it. The WQE is the stream's: copy.
  virtual void receive_cut_off(const RecvWqe& /*wqe*/) {}

  // A Send has no receive, or had none and has waited for so long.
  virtual void receive_late(LateReceive /*what*/, Duration /*waited*/) {}

  // A request, of the peer or of this side, may not use this memory.
  virtual void memory_refused(const RefusedMemory& /*what*/) {}

#ifdef WEFT_PROFILE_SMALL
  // Never called: each virtual function takes room in ROM.
  void peer_access(const PeerAccess& /*what*/) {}
  void step(const Step& /*what*/) {}
  [[nodiscard]] Duration last_octets_first() { return Duration{0}; }
#else
  // With PeerMemoryWishes: the peer uses memory of this side.
  virtual void peer_access(const PeerAccess& /*what*/) {}

  // With StreamParams::steps: where a request or a message is on its way.
  virtual void step(const Step& /*what*/) {}

  // With PeerMemoryWishes.
  [[nodiscard]] virtual Duration last_octets_first() { return Duration{0}; }
#endif

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

}  // namespace weft::proto
