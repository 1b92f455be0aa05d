// The same messages from one lwIP host to another in the same program: by TCP, whose octets both
// ends copy, or by RDMA Writes that are placed. Runs on a workstation and on a board without an
// operating system; what it costs is counted from outside, in instructions.
//
// The link is a queue in memory. Its clock moves only when no frame is under way, so a run does
// not depend on how fast anything is. One thread; one run after the other.
#pragma once

#include <cstdint>

namespace weft::bench {

enum class Way : std::uint8_t {
  kTcpCopy,      // the sender's octets are copied into segments, the receiver's out of them
  kRdma,         // RDMA Writes with Immediate Data, CRC off
  kRdmaCrc,      // ... CRC on
  kRdmaMarkers,  // ... CRC on and markers: segments ahead of their turn are placed
};
#ifdef WEFT_LWIP_OWN_CHECKSUM
// lwIP as it comes, for comparison.
inline constexpr Way kWays[] = {Way::kTcpCopy};
#else
inline constexpr Way kWays[] = {Way::kTcpCopy, Way::kRdma, Way::kRdmaCrc, Way::kRdmaMarkers};
#endif
const char* name_of(Way way);

struct Job {
  Way way = Way::kTcpCopy;
  std::uint32_t size = 0;   // octets of a message, at most kMessageMax
  std::uint32_t count = 0;  // messages
  unsigned reordered = 0;   // percent of frames that go behind the next one
};
inline constexpr std::uint32_t kMessageMax = 1'400'000;

struct Outcome {
  bool right = false;  // every message arrived, and the last one has every octet right
  std::uint64_t segments_ahead = 0, segments_placed = 0;  // before their turn; placed then
  std::uint64_t begun = 0,
                ended = 0;  // `clock` when the first message was handed over, and the end
};

// Called once, before all else.
void start();
// `clock` may count anything; it is called twice.
Outcome move_messages(const Job& job, std::uint64_t (*clock)());

}  // namespace weft::bench
