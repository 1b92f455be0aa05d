// Sends that are refused for want of a receive, between wired queue pairs (stream_not_ready.cc):
// what either end remembers of it. Each end is a small state machine; docs/states.md shows both.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/machine.h"
#include "base/profile.h"
#include "base/seq.h"
#include "base/time.h"

namespace weft::proto {

// The end that has no receive.
enum class RefusingState : std::uint8_t {
  kTaking,
  kTelling,   // it drops requests, and the peer has still to be told
  kDropping,  // until the peer resumes
};
enum class RefusingEvent : std::uint8_t { kNoReceive, kTold, kResumed };

// The end whose Send is refused.
enum class RefusedState : std::uint8_t {
  kSending,
  kBackedOff,  // for as long as the peer has asked
  kResuming,   // the peer has still to be told
};
enum class RefusedEvent : std::uint8_t { kRefused, kPauseOver, kTold };

using RefusingArrow = Arrow<RefusingState, RefusingEvent>;
using RefusedArrow = Arrow<RefusedState, RefusedEvent>;
[[nodiscard]] std::span<const RefusingArrow> refusing_arrows() noexcept;
[[nodiscard]] std::span<const RefusedArrow> refused_arrows() noexcept;
[[nodiscard]] std::string_view describe(RefusingState s) noexcept;
[[nodiscard]] std::string_view describe(RefusingEvent e) noexcept;
[[nodiscard]] std::string_view describe(RefusedState s) noexcept;
[[nodiscard]] std::string_view describe(RefusedEvent e) noexcept;

class Refusal {
 public:
  // --- the end that has no receive ---

  void refuse() noexcept { on(RefusingEvent::kNoReceive); }
  // Requests are dropped.
  [[nodiscard]] bool drops() const noexcept {
    return profile::kWired && refusing_ != RefusingState::kTaking;
  }
  // False: it has not been told yet that it is to.
  [[nodiscard]] bool peer_resumes() noexcept;

  // --- the end whose Send is refused ---

  // How often the peer may refuse the same Send before it fails; 7: for ever.
  void allow(std::uint8_t most) noexcept { most_ = most; }
  // Once more. False: that was once too often.
  [[nodiscard]] bool count(Msn msn) noexcept;
  void back_off(Instant until) noexcept {
    on(RefusedEvent::kRefused);
    resume_at_ = until;
  }
  // Nothing new is sent but answers and Acks.
  [[nodiscard]] bool backed_off() const noexcept {
    return profile::kWired && refused_ != RefusedState::kSending;
  }
  // Names the Send that the peer refused last.
  [[nodiscard]] Msn msn() const noexcept { return msn_; }

  // When to call expired().
  [[nodiscard]] Instant deadline() const noexcept {
    return profile::kWired ? resume_at_ : Instant::never();
  }
  void expired(Instant now) noexcept {
    if (now < deadline()) return;
    resume_at_ = Instant::never();
    on(RefusedEvent::kPauseOver);
  }
  // The stream is over.
  void forget() noexcept { resume_at_ = Instant::never(); }

  // --- either: what the peer has still to be told. True once ---

  [[nodiscard]] bool has_news() const noexcept {
    return profile::kWired &&
           (refusing_ == RefusingState::kTelling || refused_ == RefusedState::kResuming);
  }
  [[nodiscard]] bool tell_refusal() noexcept {
    return refusing_ == RefusingState::kTelling && try_on(RefusingEvent::kTold);
  }
  [[nodiscard]] bool tell_resume() noexcept {
    return refused_ == RefusedState::kResuming && try_on(RefusedEvent::kTold);
  }

 private:
  [[nodiscard]] bool try_on(RefusingEvent event) noexcept;
  [[nodiscard]] bool try_on(RefusedEvent event) noexcept;
  void on(RefusingEvent event) noexcept { (void)try_on(event); }
  void on(RefusedEvent event) noexcept { (void)try_on(event); }

  RefusingState refusing_ = RefusingState::kTaking;
  RefusedState refused_ = RefusedState::kSending;
  std::uint8_t count_ = 0;
  std::uint8_t most_ = 7;
  Msn msn_;
  Instant resume_at_ = Instant::never();
};

}  // namespace weft::proto
