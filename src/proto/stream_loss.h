// Messages that are lost between unreliable wired queue pairs: stream_loss.cc says which.
//
// A part of Stream (stream.h), which explains its threads.
#pragma once

#include <cstdint>
#include <span>

#include "wire/ddp.h"
#include "wire/rdmap.h"

namespace weft::proto {

class Stream;

class StreamLoss {
 public:
  // A Send has waited for its receive without success: it is lost, and so are those behind it until
  // there is a receive again.
  void starve() noexcept { starved_ = true; }
  // Whether this ULPDU, a whole one, is part of a message that is lost.
  [[nodiscard]] bool loses(Stream& s, std::span<const std::uint8_t> ulpdu);

 private:
  [[nodiscard]] bool is_lost(Stream& s, std::span<const std::uint8_t> ulpdu);
  [[nodiscard]] bool loses_write(Stream& s, const DdpTagged& h, std::uint32_t payload);
  [[nodiscard]] bool loses_send(Stream& s, Opcode op, const DdpUntagged& h, std::uint32_t payload,
                                bool last);
  [[nodiscard]] bool cannot_take(Stream& s, Opcode op, const DdpUntagged& h, std::uint32_t payload);

  bool starved_ = false;       // the last Send was lost for want of a receive
  bool losing_send_ = false;   // the rest of this one is lost
  bool losing_write_ = false;  // likewise
  bool lost_write_ = false;    // and with the last Write the Immediate behind it
};

}  // namespace weft::proto
