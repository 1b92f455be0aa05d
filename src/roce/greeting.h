// The exchange of hellos on one TCP connection, in either role, without a socket or a clock.
//
//   connector   kSending -> kReceiving -> kAccepted, kDeclined or kFailed
//   listener    kReceiving -> kAsked, then answer() -> kSending -> kAccepted or kDeclined; kFailed
//
// Not more octets than missing() may be read from the socket: what follows belongs to the stream.
// One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/hello.h"

namespace weft::roce {

enum class GreetingState : std::uint8_t {
  kSending,    // to_send() is not empty
  kReceiving,  // missing() octets are awaited
  kAsked,      // listener: the peer's hello is there, answer() is due
  kAccepted,   // over: the next octet belongs to the stream
  kDeclined,   // over: verdict() says why
  kFailed,     // over: error() says why
};

class Greeting {
 public:
  // REQUIRES: mine.kind is kRequest.
  [[nodiscard]] static Greeting connector(const Hello& mine);
  [[nodiscard]] static Greeting listener();

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

  // The peer's hello. REQUIRES: kAsked, kAccepted, kDeclined, or kSending behind answer().
  [[nodiscard]] const Hello& peer() const noexcept { return peer_; }
  [[nodiscard]] Verdict verdict() const noexcept { return verdict_; }
  [[nodiscard]] Error error() const noexcept { return error_; }

 private:
  void put(const Hello& hello) noexcept;
  void understand() noexcept;
  void fail_with(Error error) noexcept;

  GreetingState state_ = GreetingState::kReceiving;
  bool connector_ = false;
  std::array<std::uint8_t, Hello::kSize> out_{};
  std::array<std::uint8_t, Hello::kSize> in_{};
  std::size_t out_size_ = 0, sent_ = 0, in_size_ = 0;
  Hello mine_, peer_;
  Verdict verdict_ = Verdict::kAccept;
  Error error_{};
};

}  // namespace weft::roce
