#include "files/server/staging_window.h"

#include <algorithm>
#include <cassert>

namespace weft::files {
namespace {

// At most, whatever the window says.
constexpr std::uint64_t kHeapLimit = std::uint64_t{16} << 20U;
constexpr std::uint64_t kFirstBytes = std::uint64_t{1} << 20U;
// A session may hold what it drains in so much time.
constexpr std::chrono::milliseconds kDrainTime{20};
constexpr std::uint64_t kReservedPart = 8;
constexpr unsigned kPageLog2 = 12;

}  // namespace

StagingWindow::StagingWindow(Port::Area& area, bool& starved)
    : area_(area),
      starved_(starved),
      owner_(area.heap->add_owner(kHeapLimit)),
      bytes_(kFirstBytes) {}

StagingWindow::~StagingWindow() {
  assert(area_.held_bytes >= held_bytes_);
  area_.heap->remove_owner(owner_);
  area_.held_bytes -= held_bytes_;
}

std::optional<readsend::Segment> StagingWindow::take(std::uint32_t bytes) {
  if (!may_take(bytes)) return std::nullopt;
  const auto memory = area_.heap->allocate(owner_, bytes, kPageLog2);
  if (!memory) {
    starved_ = starved_ || held_bytes_ == 0;
    return std::nullopt;
  }
  if (held_bytes_ == 0) {
    starved_ = false;
    from_ = Clock::now();
    drained_bytes_ = 0;
  }
  const auto extent = area_.heap->extent(owner_, *memory);
  assert(extent && extent->bytes >= bytes);
  held_bytes_ += extent->bytes;
  area_.held_bytes += extent->bytes;
  return readsend::Segment{area_.octets.data() + extent->offset, *memory};
}

void StagingWindow::give_back(const readsend::Segment& segment) {
  const auto extent = area_.heap->extent(owner_, segment.handle);
  assert(extent && held_bytes_ >= extent->bytes && area_.held_bytes >= extent->bytes);
  held_bytes_ -= extent->bytes;
  area_.held_bytes -= extent->bytes;
  static_cast<void>(area_.heap->free(owner_, segment.handle));
}

// One segment is everybody's.
bool StagingWindow::may_take(std::uint32_t bytes) const {
  if (held_bytes_ == 0) return true;
  const std::uint64_t size = area_.octets.size();
  const std::uint64_t used = area_.held_bytes + bytes;
  // While half of it is free, nobody is in anybody's way.
  const std::uint64_t window = used <= size / 2 ? kMostBytes : bytes_;
  return held_bytes_ + bytes <= window && used + size / kReservedPart <= size;
}

void StagingWindow::drained(std::uint32_t bytes, Clock::time_point now) {
  drained_bytes_ += bytes;
  const auto span = now - from_;
  if (span < kDrainTime) return;
  const double part =
      std::chrono::duration<double>(kDrainTime) / std::chrono::duration<double>(span);
  bytes_ = std::clamp(static_cast<std::uint64_t>(static_cast<double>(drained_bytes_) * part),
                      kLeastBytes, kMostBytes);
  from_ = now;
  drained_bytes_ = 0;
}

}  // namespace weft::files
