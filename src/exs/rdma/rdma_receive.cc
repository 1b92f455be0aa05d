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

void RdmaSocket::slot_read(std::uint32_t slot) {
  if (slots_.read(slot) && !slots_.post_read(cm_.qp(), cm_.number(), credits_)) {
    broke(ECONNRESET, "a receive cannot be posted");
  }
}

void RdmaSocket::on_completions(std::span<const ibv_wc> completions) {
  for (const ibv_wc& wc : completions) {
    if (gone_) return;
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
      queue_.retire(low, [&](int slot) { slots_.give_back(slot); });
    }
  }
  if (gone_) return;
  if (s_.kind == Kind::kStream) {
    finish_stream_sends();
  } else {
    finish_fetches();
  }
  finish_one_sided();
  flush();
}

void RdmaSocket::on_message(std::uint32_t slot, std::uint32_t length) {
  if (!passive_ && !up_) return broke(ECONNRESET, "it speaks before it has been spoken to");
  heard_ = true;
  up_ = true;  // the first message may come before rdma_cm says so
  ++s_.stats.messages_received;
  Message message;
  const char* why = decode(slots_.received(slot, length), message);
  if (why == nullptr) why = take_counters(message.header);
  if (why == nullptr) why = dispatch(message);
  if (why != nullptr) return broke(ECONNRESET, why);
  if (!gone_) slot_read(slot);  // the payload has been copied
}

const char* RdmaSocket::take_counters(const Header& header) {
  assert(theirs_.slots != 0);
  if (!credits_.on_returned(header.slots_returned)) return "more slots returned than messages sent";
  if (s_.kind == Kind::kStream) {
    if (!out_->on_ring_consumed(header.ring_consumed)) return "bytes of the ring returned twice";
    return nullptr;
  }
  return packets_out_->on_consumed(header.messages_consumed, header.ring_consumed);
}

const char* RdmaSocket::dispatch(const Message& message) {
  const Header& header = message.header;
  const bool stream = s_.kind == Kind::kStream;
  const bool data = header.type == Type::kData || header.type == Type::kRing ||
                    header.type == Type::kDirect || header.type == Type::kSource;
  if (data && peer_finished_) return "data after the end";
  switch (header.type) {
    case Type::kStart:
    case Type::kCredit: return nullptr;
    case Type::kFinish:
      if (peer_finished_) return "a second end";
      // A sender waits for the answer to what it offers: nobody could fetch it any more.
      if (std::ranges::any_of(incoming_, [](const Incoming& one) { return one.source; })) {
        return "the end before all messages are fetched";
      }
      peer_finished_ = true;
      queue_control(Type::kFinished, 0, 0, 0);
      if (stream) {
        void_adverts();
        deliver_ring();
      }
      s_.changed();
      return nullptr;
    case Type::kFinished:
      return end_.on(SendingEvent::kFinishedCame) ? nullptr
                                                  : "an answer to an end that was not sent";
    case Type::kData: return stream ? on_stream_data(message) : on_packet_data(message);
    default: break;
  }
  if (stream) {
    switch (header.type) {
      case Type::kRing: return on_ring(header);
      case Type::kDirect: return on_direct(header, {});
      case Type::kAdvert: return on_advert(message);
      case Type::kCloseChain: return on_close_chain(header);
      case Type::kChainClosed: return on_chain_closed(header);
      default: return "a message for another type of socket";
    }
  }
  switch (header.type) {
    case Type::kSource: return on_source(message);
    case Type::kDone: return on_done(header);
    case Type::kWithdraw: return on_withdraw(header);
    default: return "a message for another type of socket";
  }
}

}  // namespace weft::exs
