// What an Ack between wired queue pairs says (docs/personality.md): its STag. See is_ack().
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
