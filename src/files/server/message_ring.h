// The messages of a session: requests come into posted receives, replies leave from slots behind
// them.
//
// A receive is posted again before its request is answered, so a client that keeps to its credits
// always finds one. There are twice as many reply slots as credits: a client for which there is
// none does not take its replies, or does not keep to its credits.
//
// Belongs to a session, as the memory does. One thread, the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "files/protocol/data_protocol.h"
#include "files/protocol/registered.h"

namespace weft::files {

class MessageRing {
 public:
  static constexpr std::size_t kReplySlots = 2 * kCredits;
  static constexpr std::size_t kBytes = (kCredits + kReplySlots) * kMessageBytes;

  // Posts all receives. `memory` has kBytes, and stays until close().   An errno
  [[nodiscard]] int open(ibv_qp* qp, std::uint8_t* memory, std::uint32_t lkey);
  // The queue pair goes: nothing is posted from now on.
  void close() { qp_ = nullptr; }

  // Copies a request that has come to `to`, and posts its receive again.   An errno
  [[nodiscard]] int take(std::size_t slot, std::span<std::uint8_t> to);

  // Room for kMessageBytes of the next reply. Empty: every slot is on its way.
  [[nodiscard]] std::span<std::uint8_t> room() const;
  // Sends the message in room().   An errno
  [[nodiscard]] int send(std::size_t bytes);
  // The network has taken the reply in this slot.
  void sent(std::size_t slot);

 private:
  [[nodiscard]] std::uint8_t* reply_at(std::size_t slot) const {
    return memory_ + (kCredits + slot) * kMessageBytes;
  }

  ibv_qp* qp_ = nullptr;
  std::uint8_t* memory_ = nullptr;  // receives, then replies
  std::uint32_t lkey_ = 0;
  std::vector<std::size_t> free_;  // reply slots; the last is the next
};

}  // namespace weft::files
