// The staging memory of one session: what it holds of the device's area, and how much it may hold.
//
// Where memory gets short, a session may hold what its client drains in a while, and the last part
// of the memory is for sessions that hold nothing. So a client that takes its data slowly keeps
// none from those who take theirs quickly.
//
// Belongs to a session; the area to the device, which outlives it. One thread, the server's. All
// goes back with the window: REQUIRES that by then neither network nor disk touches it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "files/server/server_device.h"
#include "files/server/server_shared.h"
#include "readsend/pipeline.h"

namespace weft::files {

class StagingWindow {
 public:
  static constexpr std::uint64_t kLeastBytes = std::uint64_t{256} << 10U;
  static constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 20U;

  // `starved`: of the device.
  StagingWindow(Port::Area& area, bool& starved);
  ~StagingWindow();
  StagingWindow(const StagingWindow&) = delete;
  StagingWindow& operator=(const StagingWindow&) = delete;

  // A segment at a border of 4096. None: later. Where the session holds nothing, `starved`
  // tells that the others hold too much.
  [[nodiscard]] std::optional<readsend::Segment> take(std::uint32_t bytes);
  void give_back(const readsend::Segment& segment);
  // The network has taken so many octets of the client's data, or brought them.
  void drained(std::uint32_t bytes, Clock::time_point now);

  [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }
  // How much it may hold while memory is short.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  [[nodiscard]] bool may_take(std::uint32_t bytes) const;

  Port::Area& area_;
  bool& starved_;
  BlockHeap::Owner owner_;  // in the area
  std::uint64_t held_bytes_ = 0;
  std::uint64_t bytes_;
  std::uint64_t drained_bytes_ = 0;  // since from_
  Clock::time_point from_ = Clock::now();
};

}  // namespace weft::files
