#include "exs/rdma/packet_rules.h"

namespace weft::exs {

std::uint64_t PacketSender::send(std::uint64_t ring_bytes) {
  assert(may_send() && ring_bytes <= ring_free());
  ring_sent_ += ring_bytes;
  return seq_++;
}

const char* PacketSender::on_consumed(std::uint32_t messages, std::uint64_t ring_bytes) {
  const auto sent = static_cast<std::uint32_t>(seq_);
  if (messages - consumed_ > sent - consumed_) return "more messages consumed than sent";
  consumed_ = messages;
  if (ring_bytes < ring_consumed_ || ring_bytes > ring_sent_) {
    return "bytes of the ring returned twice";
  }
  ring_consumed_ = ring_bytes;
  assert(ring_free() <= ring_bytes_);
  return nullptr;
}

const char* PacketReceiver::on_message(std::uint64_t seq, std::size_t waiting,
                                       std::uint64_t ring_bytes) {
  assert(ring_used() <= ring_bytes_);
  if (seq != next_ || waiting >= messages_) return "a message out of order";
  if (ring_bytes > ring_bytes_ - ring_used()) return "more bytes than the ring holds";
  ++next_;
  ring_received_ += ring_bytes;
  return nullptr;
}

void PacketReceiver::consumed(std::uint64_t ring_bytes) {
  assert(ring_bytes <= ring_used() && consumed_ != static_cast<std::uint32_t>(next_));
  ring_consumed_ += ring_bytes;
  ++consumed_;
}

}  // namespace weft::exs
