// How a client becomes one: HELLO, then the proof that it has the token, if there is one, both
// within a time. A wrong proof is answered after a second, so that guessing takes long.
//
// Belongs to a session. One thread, the server's.
#pragma once

#include <chrono>
#include <optional>

#include "files/protocol/data_messages.h"
#include "files/server/answers.h"
#include "files/server/server_shared.h"

namespace weft::files {

class Admission {
 public:
  Admission(Shared& shared, Answers& answers, Clock::time_point now);
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Requests that answer by themselves, unless they return an errno.   EUSERS: there are too many
  [[nodiscard]] int greet(const HelloRequest& request, const Asked& asked);
  [[nodiscard]] int prove_client(const ProveRequest& request, const Asked& asked);
  // Answers a wrong proof, and fails a session that takes too long.
  void tick(Clock::time_point now);
  // The session has failed. Others may have its place.
  void close();

  // Has shown all that the server wants to see of a client.
  [[nodiscard]] bool ready() const { return state_ == State::kReady; }
  // Has shown a wrong proof: no more is taken from it.
  [[nodiscard]] bool refuses() const { return refuse_at_.has_value(); }
  [[nodiscard]] Clock::time_point created() const { return created_; }

 private:
  enum class State : std::uint8_t { kNew, kProving, kReady };
  [[nodiscard]] int admit();

  Shared& shared_;
  Answers& answers_;
  State state_ = State::kNew;
  Nonce client_nonce_{}, server_nonce_{};
  const Clock::time_point created_;
  std::optional<Clock::time_point> refuse_at_;
  std::optional<Asked> refusal_;  // the wrong proof, until it is answered
};

}  // namespace weft::files
