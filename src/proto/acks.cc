#include "proto/acks.h"

namespace weft::proto {

bool Acks::placed(std::uint32_t number) noexcept {
  if (number - asks_acked_ > asks_sent_ - asks_acked_) {
    // An old one may come behind the response to a Read, which says more.
    return static_cast<std::int32_t>(number - asks_acked_) <= 0;
  }
  reach(number);
  return true;
}

bool Acks::go_back(std::uint32_t number) noexcept {
  if (static_cast<std::int32_t>(number - asks_acked_) < 0) return false;
  reach(number);
  asks_sent_ = number;
  return true;
}

void Acks::count_unasked(SendQueue& queue, std::uint32_t begin, std::uint32_t end) noexcept {
  unasked_ = 0;
  for (std::uint32_t i = begin; i != end; ++i) unasked_ += queue.at(i).ask == asks_sent_ + 1;
  question_due_ = unasked();
}

void Acks::delivered(std::uint8_t bits, Opcode op) noexcept {
  if ((bits & kAskBit) == 0) return;
  ++asks_received_;
  asked_by_receive_ = weft::info(op).consumes_receive;
  // The response is the answer.
  const bool answers = op == Opcode::kReadRequest || op == Opcode::kAtomicRequest;
  ack_due_ = ack_due_ || !answers;
}

}  // namespace weft::proto
