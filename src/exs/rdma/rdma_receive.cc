// The receiving side: completions, counters, and where each message goes.
#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "exs/rdma/rdma_socket.h"

namespace weft::exs {

// The lower half of a wr_id says which of both it is.
static_assert((MessageSlots::kReceiveBit & SendQueue::kSerialBits) == 0);

void RdmaSocket::on_completions(std::span<const ibv_wc> completions) {
  for (const ibv_wc& wc : completions) {
    if (port_.gone()) return;
    const auto low = static_cast<std::uint32_t>(wc.wr_id);
    if (wc.status != IBV_WC_SUCCESS) {
      const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
      // First rdma_cm reports that the connection stands; it reports the end as well.
      if (flushed && s_.state == State::kConnecting) continue;
      // A flush follows from something else, which is told by its own completion or event.
      if (!flushed) log_line(s_, "connection reset", ibv_wc_status_str(wc.status));
      ended();
      continue;
    }
    if ((low & MessageSlots::kReceiveBit) != 0) {
      on_message(low & (MessageSlots::kReceiveBit - 1), wc.byte_len);
    } else {
      port_.retire(low);
    }
  }
  if (port_.gone()) return;
  flow_->posts_done();
  finish_one_sided();
  flush();
  if (!s_.watchers.empty()) s_.changed();  // there may be room to send
}

void RdmaSocket::on_message(std::uint32_t slot, std::uint32_t length) {
  if (!passive_ && !port_.is_up())
    return broke(ECONNRESET, "it speaks before it has been spoken to");
  if (!port_.on_message()) return broke(ECONNRESET, "more messages than slots");
  port_.up(true);  // the first message may come before rdma_cm says so
  ++s_.stats.messages_received;
  Message message;
  const char* why = decode(port_.received(slot, length), message);
  if (why == nullptr) why = take_counters(message.header);
  if (why == nullptr) why = dispatch(message);
  if (why != nullptr) return broke(ECONNRESET, why);
  // The payload has been copied.
  if (!port_.slot_read(slot)) broke(ECONNRESET, "a receive cannot be posted");
}

const char* RdmaSocket::take_counters(const Header& header) {
  assert(port_.theirs().slots != 0);
  if (!port_.on_slots_returned(header.slots_returned)) {
    return "more slots returned than messages sent";
  }
  return flow_->on_counters(header);
}

const char* RdmaSocket::dispatch(const Message& message) {
  const Type type = message.header.type;
  const bool data =
      type == Type::kData || type == Type::kRing || type == Type::kDirect || type == Type::kSource;
  if (data && flow_->finished()) return "data after the end";
  switch (type) {
    case Type::kStart:
    case Type::kCredit: return nullptr;
    case Type::kFinish:
      if (flow_->finished()) return "a second end";
      if (const char* why = flow_->on_finish(); why != nullptr) return why;
      port_.queue_control(Type::kFinished, 0, 0, 0);
      s_.changed();
      return nullptr;
    case Type::kFinished:
      return end_.on(SendingEvent::kFinishedCame) ? nullptr
                                                  : "an answer to an end that was not sent";
    default: return flow_->on_message(message);
  }
}

void RdmaSocket::flush() {
  if (!port_.is_up()) return;
  port_.flush_control(*flow_);
  if (const char* why = flow_->pump(); why != nullptr) return broke(ECONNRESET, why);
  pump_one_sided();
  advance_end();
  port_.flush_control(*flow_);
  port_.flush_credits(*flow_);
}

}  // namespace weft::exs
