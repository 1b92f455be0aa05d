// How a stream ends: its own half of the connection and the peer's, the Terminate that is due, and
// what the host is told of it. stream_shutdown.cc says when.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"
#include "proto/work.h"
#include "wire/terminate.h"

namespace weft::proto {

// How the stream ended, for the connection above it.
enum class StreamEnd : std::uint8_t {
  kOpen,        // has not ended
  kOrderly,     // FIN on a message border with nothing outstanding
  kTerminated,  // by a Terminate, ours or the peer's
  kLost,        // FIN in the middle of something, reset, time-out
};

// Our half of the connection; docs/states.md shows it.
enum class HalfState : std::uint8_t {
  kOpen,
  kFinishing,  // what is begun goes out, then at most a Terminate, then FIN
  kClosed,     // FIN is the transport's business
  kLost,       // nothing more can be sent or received
};
enum class HalfEvent : std::uint8_t { kStopped, kFinTaken, kLost };

using HalfArrow = Arrow<HalfState, HalfEvent>;
[[nodiscard]] std::span<const HalfArrow> half_arrows() noexcept;
[[nodiscard]] std::string_view describe(HalfState s) noexcept;
[[nodiscard]] std::string_view describe(HalfEvent e) noexcept;

// The work request that caused the end of a stream, and its status.
struct Offender {
  const SendWqe* wqe = nullptr;
  WcStatus status = WcStatus::kFlushed;
};

class Ending {
 public:
  // --- the last octets ---

  // Nothing new is sent.
  void stop() noexcept { (void)on(HalfEvent::kStopped); }
  // True once, and only behind stop(). REQUIRES: all that had to be sent is sent.
  [[nodiscard]] bool take_fin() noexcept {
    return half_ == HalfState::kFinishing && on(HalfEvent::kFinTaken);
  }
  void lose() noexcept { (void)on(HalfEvent::kLost); }
  [[nodiscard]] bool is_lost() const noexcept { return half_ == HalfState::kLost; }
  // The peer's FIN. False: it has come before.
  [[nodiscard]] bool peer_closes() noexcept;
  // Both halves are closed, or all is lost.
  [[nodiscard]] bool closed() const noexcept {
    return is_lost() || (is_told_or_due() && peer_fin_ && half_ == HalfState::kClosed);
  }
  void demand_reset() noexcept { wants_reset_ = true; }
  [[nodiscard]] bool wants_reset() const noexcept { return wants_reset_; }

  // The size of the Terminate, which the stream keeps; 0: there is no Terminate to send, or no
  // longer.
  void owe_terminate(std::uint32_t size) noexcept { terminate_size_ = size; }
  [[nodiscard]] std::uint32_t terminate_size() const noexcept { return terminate_size_; }
  [[nodiscard]] bool terminate_due() const noexcept { return terminate_size_ != 0; }
  void no_terminate() noexcept { terminate_size_ = 0; }

  // --- what the host is told ---

  // False: the end has begun before, and stays as it was.
  [[nodiscard]] bool begin(StreamEnd how, TerminateCode code, bool by_peer,
                           Offender offender) noexcept;
  [[nodiscard]] bool is_told_or_due() const noexcept { return end_ != StreamEnd::kOpen; }
  // It has begun, but the transport still reads memory of work requests.
  [[nodiscard]] bool is_due() const noexcept { return due_; }
  [[nodiscard]] bool is_told() const noexcept { return is_told_or_due() && !due_; }
  void tell() noexcept { due_ = false; }

  [[nodiscard]] StreamEnd how() const noexcept { return end_; }
  [[nodiscard]] TerminateCode code() const noexcept { return code_; }
  [[nodiscard]] bool by_peer() const noexcept { return by_peer_; }
  [[nodiscard]] const Offender& offender() const noexcept { return offender_; }

  // Work that is not finished stays where it is (StreamParams::keeps_work); `in_the_middle`: no
  // other stream can go on with it.
  void keep_work(bool in_the_middle) noexcept {
    keeps_work_ = true;
    in_the_middle_ = in_the_middle;
  }
  [[nodiscard]] bool keeps_work() const noexcept { return profile::kWired && keeps_work_; }
  [[nodiscard]] bool in_the_middle() const noexcept { return in_the_middle_; }

 private:
  [[nodiscard]] bool on(HalfEvent event) noexcept;

  HalfState half_ = HalfState::kOpen;
  bool peer_fin_ = false;
  bool wants_reset_ = false;
  std::uint32_t terminate_size_ = 0;
  StreamEnd end_ = StreamEnd::kOpen;
  bool due_ = false;
  bool by_peer_ = false;
  bool keeps_work_ = false;
  bool in_the_middle_ = false;
  TerminateCode code_;
  Offender offender_;
};

}  // namespace weft::proto
