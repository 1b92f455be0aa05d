// How a stream ends: violations, Terminates, closing, loss, and the flush of all work. What is
// known of the end is in Ending; here is what leads to it.
//
// A part of Stream (stream.h), which explains its threads.
#pragma once

#include <cstdint>
#include <optional>

#include "base/seq.h"
#include "base/time.h"
#include "proto/ending.h"
#include "proto/stream_requests.h"
#include "proto/violation.h"
#include "proto/work.h"
#include "wire/ddp.h"
#include "wire/terminate.h"

namespace weft::proto {

class Stream;

class StreamShutdown {
 public:
  // --- for the owner, see Stream ---
  void close();
  void abort();
  void fail(Violation violation);
  void peer_closed();
  void transport_lost(bool timed_out);
  void memory_fault();
  [[nodiscard]] bool take_fin();
  [[nodiscard]] bool finished() const noexcept;
  void flush_posted();
  void expired(Instant now);

  // --- when it ends, or the peer's silence is broken ---
  void expire_at(Instant deadline) noexcept { deadline_ = deadline; }
  void do_not_expire() noexcept { deadline_ = Instant::never(); }

  // --- a broken rule, found by another part ---
  void violate(Violation v, const Terminate* prepared = nullptr);
  void fail_work(SendWqe& wqe, WcStatus status, Violation v);
  void end_alone(Violation v, Offender offender);
  [[nodiscard]] Terminate report_read(Violation v, const InboundRequest& request) const;
  void terminated_by_peer(const Terminate& report);
  [[nodiscard]] bool count_refusal(std::uint32_t index, Msn msn);

  // --- work that ends ---
  [[nodiscard]] std::optional<std::uint32_t> find_send(Msn msn);
  [[nodiscard]] Offender oldest_ends(WcStatus status);
  void settle_down();

 private:
  friend class Stream;

  [[nodiscard]] Stream& stream() noexcept;
  [[nodiscard]] const Stream& stream() const noexcept;

  void end_with_report(Violation v, const Terminate& report, Offender offender);
  [[nodiscard]] Terminate make_report(Violation v) const;
  [[nodiscard]] Offender offending_work(Violation v);
  [[nodiscard]] Offender blamed_by(const Terminate& report);
  [[nodiscard]] SendWqe* blamed_write(const DdpTagged& h);
  [[nodiscard]] SendWqe* blamed_send(Msn msn);
  [[nodiscard]] SendWqe* blamed_read(Msn msn);
  void lose(StreamEnd how, WcStatus oldest);
  void lose(StreamEnd how, Offender offender);
  void leave_work();
  void go_down(StreamEnd how, TerminateCode code, bool by_peer, Offender offender);
  void flush_work(Offender offender, std::uint32_t vendor);
  void break_silence();
  void arm_deadline();

  Instant deadline_ = Instant::never();
};

}  // namespace weft::proto
