// The STag of an Ack between wired queue pairs tells what it acknowledges (docs/personality.md).
// See is_ack().
#pragma once

#include <cstdint>

namespace weft {

enum class AckKind : std::uint32_t {
  kPlaced = 0,    // TO: how many messages with kAskBit are placed
  kNotReady = 1,  // TO: MSN of a Send without a receive. It, and all behind it but answers and
                  // Acks, is dropped until kResume
  kResume = 2,    // TO: the same MSN. All that was dropped comes again
};

}  // namespace weft
