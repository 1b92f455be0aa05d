// Carries frames between the hosts of a lab: a switch with a cable to each of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "lab/link.h"
#include "weft/common/net.h"
#include "weft/lab/namespaces.h"

namespace weft::cli {

// The settings for hosts on such a link. Their kernel hands over large frames, but not where a few
// of them would keep a line busy for milliseconds.
[[nodiscard]] HostNetwork network_of(const lab::Link& link);

// Runs on a thread of its own until its owner goes.
class FrameSwitch {
 public:
  // `ports`: the hosts' interfaces, by rank.
  FrameSwitch(const lab::Link& link, std::vector<UniqueFd> ports);
  FrameSwitch(const FrameSwitch&) = delete;
  FrameSwitch& operator=(const FrameSwitch&) = delete;
  ~FrameSwitch();

  // Frames that were lost, since too many waited for a line.
  [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  void carry(const lab::Link& link);

  std::vector<UniqueFd> ports_;
  UniqueFd stop_, stopped_;  // a pipe: its other end is closed to stop the thread
  std::atomic<std::uint64_t> lost_{0};
  std::thread thread_;
};

}  // namespace weft::cli
