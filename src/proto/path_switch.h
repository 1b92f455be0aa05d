// The path under a stream, as its sending side sees it: messages about it that are to be sent, in
// order, and the change from one path to the other (stream_path.cc).
//
// One thread at a time.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/profile.h"
#include "base/seq.h"
#include "proto/path_message.h"

namespace weft::proto {

class PathSwitch {
 public:
  // REQUIRES: no more than kMessages wait.
  void send(const PathMessage& message) noexcept {
    assert(count_ < kMessages);
    if (count_ < kMessages) out_[count_++] = message;
  }
  [[nodiscard]] bool has_messages() const noexcept { return profile::kWired && count_ != 0; }
  // The next one, which is the message under construction until it is built() or given up.
  [[nodiscard]] const PathMessage& begin() noexcept {
    building_ = true;
    return out_[0];
  }
  [[nodiscard]] bool building() const noexcept { return profile::kWired && building_; }
  void give_up() noexcept { building_ = false; }
  // `end`: the transmit offset behind it. Where it changes the path, nothing is built behind it.
  void built(StreamOffset end) noexcept;

  // Nothing is built for now.
  [[nodiscard]] bool holds() const noexcept { return profile::kWired && hold_at_ != 0; }
  // All octets up to a message that changes the path have been taken: what it said.
  [[nodiscard]] std::optional<PathWord> may_change(StreamOffset taken) const noexcept {
    if (hold_at_ == 0 || taken != hold_at_) return {};
    return hold_word_;
  }
  void changed() noexcept { hold_at_ = 0; }
  // Octets built behind `end` have been taken back, and the message that ends this path perhaps
  // with them: then the path stays as it is.
  void settle(StreamOffset end) noexcept {
    if (hold_at_ > end) hold_at_ = 0;
  }

  // Messages of the application have begun to flow, in either direction, since this was forgotten.
  [[nodiscard]] bool carries_messages() const noexcept { return carries_messages_; }
  void note_messages(bool flow) noexcept { carries_messages_ = carries_messages_ || flow; }
  void forget_messages() noexcept { carries_messages_ = false; }

 private:
  static constexpr std::size_t kMessages = profile::kWired ? 4 : 2;

  PathMessage out_[kMessages];
  std::size_t count_ = 0;
  bool building_ = false;  // the message under construction is out_[0]
  bool carries_messages_ = false;
  PathWord hold_word_ = PathWord::kByTcp;  // what to do at hold_at_
  StreamOffset hold_at_ = 0;  // nothing is built behind this offset for now; 0: no such
};

}  // namespace weft::proto
