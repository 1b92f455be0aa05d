// The exchange of hellos on one TCP connection, in either role, without a socket or a clock.
// docs/states.md has a picture.
//
// With a Sealer, hellos carry seals and have to be proved. The listener knows that the connector
// has the secret before it is asked anything, and so before a stranger can change anything:
//
//   connector   request, nonce
//   listener    challenge, nonce
//   connector   proof, tag over request and challenge
//   listener    answer, tag over request, challenge and answer
//
// Both nonces are new each time, so nothing that was heard before is a proof again; proof and
// answer begin with their kind, so neither is the other. Where the secrets differ, or
// only one end has one, a listener goes to kSendingAnswer and kDeclined without being asked, and a
// connector ends in kDeclined; verdict() is kOtherSecret.
//
// Not more octets than missing() may be read from the socket: what follows belongs to the stream.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/greeting_states.h"
#include "roce/hello.h"
#include "roce/seal.h"

namespace weft::roce {

class Greeting {
 public:
  // REQUIRES: mine.kind is kRequest; the sealer outlives the greeting. Null: there is no secret.
  [[nodiscard]] static Greeting connector(const Hello& mine, const Sealer* sealer = nullptr);
  [[nodiscard]] static Greeting listener(const Sealer* sealer = nullptr);

  [[nodiscard]] GreetingState state() const noexcept { return state_; }
  [[nodiscard]] std::span<const std::uint8_t> to_send() const noexcept {
    return {out_.data() + sent_, out_size_ - sent_};
  }
  // REQUIRES: n <= to_send().size().
  void sent(std::size_t n) noexcept;
  [[nodiscard]] std::size_t missing() const noexcept;
  // REQUIRES: bytes.size() <= missing().
  void received(std::span<const std::uint8_t> bytes) noexcept;
  void peer_closed() noexcept;

  // Listener in kAsked. kAccept takes `mine` for what this side says of itself; with every other
  // verdict only its ends are told.
  void answer(Verdict verdict, const Hello& mine) noexcept;

  // The peer's hello. REQUIRES: kAsked, kSendingAnswer, kAccepted or kDeclined.
  [[nodiscard]] const Hello& peer() const noexcept { return peer_; }
  [[nodiscard]] Verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] Error error() const noexcept { return error_; }

 private:
  static constexpr std::size_t kMessageMax = Hello::kSize + kSealSize;
  using Message = std::array<std::uint8_t, kMessageMax>;

  void put(const Hello& hello) noexcept;
  void put_sealed(Hello hello, const Seal& seal) noexcept;
  void understand() noexcept;
  void hear_request(const Hello& said) noexcept;
  void hear_proof(const Hello& said) noexcept;
  void hear_challenge(const Hello& said) noexcept;
  void hear_answer(const Hello& said) noexcept;
  void decline_secret() noexcept;
  [[nodiscard]] Seal tag(HelloKind kind, std::span<const std::uint8_t> answer) const noexcept;
  [[nodiscard]] bool proved(HelloKind kind) const noexcept;
  void advance(GreetingEvent event) noexcept { weft::advance(greeting_arrows(), state_, event); }
  void follow_verdict() noexcept;
  void fail_with(Error error) noexcept;

  GreetingState state_ = GreetingState::kAwaitingRequest;
  const Sealer* sealer_ = nullptr;
  Message out_{}, in_{};
  std::size_t out_size_ = 0, sent_ = 0, in_size_ = 0;
  std::size_t in_wanted_ = Hello::kSize;
  Message request_{}, challenge_{};  // with a Sealer, as they were said
  Hello mine_, peer_;
  Verdict verdict_ = Verdict::kAccept;
  Error error_{};
};

}  // namespace weft::roce
