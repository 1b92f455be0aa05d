// One DDP stream (RFC 5041) in MPA framing, for an upper-layer protocol of any kind: tagged
// messages and untagged ones on several queues, each with the control octet of that protocol. No
// RDMAP.
//
//   receive   feed()    -> octets of the TCP stream; segments are checked and placed by the host
//   send      post()    -> a message; gather(), sent() and released() as in Stream
//
// Without headers (`bare`) each FPDU is one message of queue 0: MPA by itself, RFC 4296's `xpt_`.
//
// Threads: one at a time. Memory is taken when it is made, never afterwards. The stream borrows the
// host for its life, and the memory of a message until DdpHost::message_released().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/seq.h"
#include "proto/fpdu_reader.h"
#include "proto/fpdu_writer.h"
#include "proto/stag_table.h"
#include "proto/tx_queue.h"
#include "wire/ddp.h"

namespace weft::proto {

inline constexpr std::uint32_t kDdpQueuesMax = 8;

// Why a DDP stream ended. RFC 5041 section 7 leaves it to the upper layer to tell the peer.
enum class DdpEnd : std::uint8_t {
  kOpen,
  kOrderly,  // FIN on a message border
  kLost,     // reset, time-out, FIN in the middle of a message
  kAborted,  // by abort()
  // The peer broke the protocol:
  kFraming,  // CRC, marker, or a ULPDU without room for its header
  kVersion,
  kInvalidStag,
  kNotOfStream,
  kNoRight,
  kWrap,
  kBounds,
  kNoQueue,  // a queue number that is not in use
  kMsn,
  kNoBuffer,
  kBadOffset,
  kTooLong,
  kRefused,  // the host could not take a message
};
[[nodiscard]] DdpEnd ddp_end(MemoryFault fault) noexcept;

struct DdpParams {
  bool crc = true;
  bool tx_markers = false;
  bool rx_markers = false;
  bool bare = false;
  bool may_send = true;            // false for a responder of MPA, see speak()
  std::uint32_t queues = 1;        // queue numbers below this are in use; at most kDdpQueuesMax
  std::uint32_t send_depth = 16;   // messages posted and not yet released
  std::uint32_t max_ulpdu = 1442;  // octets of ULPDU we send at most
};

struct DdpMessage {
  bool tagged = false;
  std::uint8_t control = 0;    // the upper layer's octet
  Stag stag;                   // tagged
  std::uint64_t to = 0;        // tagged
  std::uint32_t queue = 0;     // untagged
  std::uint32_t rsvd_ulp = 0;  // untagged: four more octets of the upper layer
  const std::uint8_t* data = nullptr;
  std::uint32_t length = 0;
};

// A DDP stream's requests to its owner. Called from inside the stream's members only.
class DdpHost : public CarryPool, public BatchSource {
 public:
  // Places payload of a tagged segment, after all checks of RFC 5041 section 5.2.
  virtual MemoryFault place(Stag stag, std::uint64_t to, MarkedOctets payload) = 0;
  // The last segment of a tagged message has been placed. False: the stream ends as kRefused.
  virtual bool tagged_delivered(const DdpTagged& header) = 0;
  // Memory for the next message of `queue`. False: none; the stream ends as kNoBuffer.
  virtual bool take_buffer(std::uint32_t queue, std::span<std::uint8_t>& buffer) = 0;
  // The buffer taken last for this queue holds a whole message.
  virtual void untagged_delivered(const DdpUntagged& header, std::uint32_t length) = 0;
  // The memory of the oldest posted message is free; `sent`: all of it has gone to the transport.
  virtual void message_released(bool sent) = 0;
  // Once.
  virtual void stream_ended(DdpEnd how) = 0;
};

class DdpStream {
 public:
  DdpStream(const DdpParams& params, DdpHost& host);
  // Null members: no memory. To be asked once, behind the constructor.
  [[nodiscard]] bool good() const noexcept { return messages_ != nullptr; }
  DdpStream(const DdpStream&) = delete;
  DdpStream& operator=(const DdpStream&) = delete;

  //   kBadState         closed or ended
  //   kNoSpace          send_depth messages are under way
  //   kInvalidArgument  a queue that is not in use; bare: tagged, or longer than max_ulpdu
  [[nodiscard]] Status post(const DdpMessage& message);
  // The largest payload that travels in one FPDU.
  [[nodiscard]] std::uint32_t segment_max(bool tagged) const noexcept;

  void feed(std::span<std::uint8_t> bytes);
  void peer_closed();
  void transport_lost();

  [[nodiscard]] bool tx_pending() const noexcept;
  [[nodiscard]] TxBatch* gather();
  void sent(std::size_t n);
  void released(std::size_t n);
  void transport_closed();

  // A responder of MPA holds what it has to send until the peer has sent something. This ends the
  // wait, for peers that only listen.
  void speak() { may_send_ = true; }
  void close();  // sends what is posted, then FIN
  void abort();
  [[nodiscard]] bool take_fin();
  [[nodiscard]] bool finished() const noexcept;
  [[nodiscard]] bool wants_reset() const noexcept { return reset_; }
  [[nodiscard]] DdpEnd end() const noexcept { return end_; }

 private:
  struct Posted {
    DdpMessage message;
    StreamOffset end = 0;  // behind its last octet, once built
  };
  struct Queue {
    Msn next_in, next_out;
    bool open = false;  // `buffer` is being filled
    std::span<std::uint8_t> buffer;
    std::uint32_t filled = 0;
  };

  void drain();
  [[nodiscard]] DdpEnd on_ulpdu(MarkedOctets ulpdu);
  [[nodiscard]] DdpEnd on_bare(MarkedOctets ulpdu);
  [[nodiscard]] DdpEnd on_tagged(const DdpTagged& h, MarkedOctets payload);
  [[nodiscard]] DdpEnd on_untagged(const DdpUntagged& h, MarkedOctets payload);
  void end_with(DdpEnd how);
  [[nodiscard]] bool emit_segment(Posted& posted);
  [[nodiscard]] bool mid_message() const noexcept;
  void retire(StreamOffset released);
  [[nodiscard]] Posted& at(std::uint32_t i) noexcept { return messages_[i % params_.send_depth]; }

  const DdpParams params_;
  DdpHost& host_;
  FpduReader reader_;
  FpduWriter writer_;
  TxQueue tx_;
  Queue queues_[kDdpQueuesMax];
  bool tagged_open_ = false;  // a tagged message has begun and not ended
  std::unique_ptr<Posted[]> messages_;
  std::uint32_t head_ = 0, build_ = 0, tail_ = 0;  // free-running
  std::uint32_t built_ = 0;                        // octets of the message at build_
  StreamOffset taken_ = 0, released_ = 0;
  DdpEnd end_ = DdpEnd::kOpen;
  bool may_send_;
  bool closing_ = false;
  bool fin_taken_ = false;
  bool peer_fin_ = false;
  bool reset_ = false;
};

}  // namespace weft::proto
