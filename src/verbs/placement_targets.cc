#include <weft/placement.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "verbs/memory.h"

namespace weft {

namespace {

bool fits(std::size_t row_bytes, std::size_t rows, std::uint64_t limit) {
  return row_bytes != 0 && rows != 0 && row_bytes <= limit && rows <= limit / row_bytes;
}

std::int64_t signed_of(std::size_t value, std::size_t most) {
  return static_cast<std::int64_t>(std::min(value, most));
}

}  // namespace

Placed PlacementTarget::fetch(std::uint64_t, std::span<std::uint8_t>) noexcept {
  return Placed::kRefused;
}

Result<std::shared_ptr<MemoryRegion>> register_target(ProtectionDomain& pd,
                                                      std::shared_ptr<PlacementTarget> target,
                                                      std::uint64_t length, std::uint64_t iova,
                                                      Access access) {
  constexpr auto kRights =
      static_cast<std::uint32_t>(Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead);
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (target == nullptr || (length != 0 && length - 1 > kMax - iova)) {
    return fail(Error::kInvalidArgument);
  }
  if ((static_cast<std::uint32_t>(access) & ~kRights) != 0 ||
      (has(access, Access::kRemoteRead) && !target->gives())) {
    return fail(Error::kInvalidArgument);
  }
  auto& impl = static_cast<verbs::ProtectionDomainImpl&>(pd);
  auto region = verbs::MemoryRegionImpl::create_target(impl.shared_from_this(), std::move(target),
                                                       length, iova, access);
  if (!region) return fail(region.error());
  return std::shared_ptr<MemoryRegion>(std::move(*region));
}

Result<std::shared_ptr<WindowTarget>> WindowTarget::create(std::size_t image_row_bytes,
                                                           std::size_t image_rows,
                                                           const Surface& surface) {
  const bool legal = surface.first != nullptr && surface.pitch >= surface.row_bytes &&
                     fits(image_row_bytes, image_rows, kMaxBytes) && surface.row_bytes != 0 &&
                     fits(surface.pitch, surface.rows, kMaxBytes);
  if (!legal) return fail(Error::kInvalidArgument);
  std::shared_ptr<WindowTarget> target(new WindowTarget(image_row_bytes, image_rows, surface));
  if (auto set = target->set_view({}); !set) return fail(set.error());
  return target;
}

Status WindowTarget::set_view(const WindowView& view) {
  constexpr auto kMost = static_cast<std::int64_t>(kMaxBytes);
  const auto far = [](std::int64_t at) { return at > kMost || at < -kMost; };
  if (far(view.x) || far(view.y)) return fail(Error::kInvalidArgument);
  const Surface& s = surface_;
  const std::lock_guard lock(mutex_);
  x_ = view.x;
  y_ = view.y;
  left_ = signed_of(view.clip_x, s.row_bytes);
  top_ = signed_of(view.clip_y, s.rows);
  right_ = left_ + signed_of(view.clip_width, s.row_bytes - static_cast<std::size_t>(left_));
  bottom_ = top_ + signed_of(view.clip_rows, s.rows - static_cast<std::size_t>(top_));
  return {};
}

Placed WindowTarget::place(std::uint64_t offset, std::span<const std::uint8_t> octets) noexcept {
  if (offset > length() || octets.size() > length() - offset) return Placed::kRefused;
  while (!octets.empty()) {
    const std::uint64_t column = offset % row_bytes_;
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(octets.size(), row_bytes_ - column));
    {
      const std::lock_guard lock(mutex_);
      const Run run = visible(offset / row_bytes_, column, count);
      if (run.count != 0) std::memcpy(run.at, octets.data() + run.from, run.count);
    }
    offset += count;
    octets = octets.subspan(count);
  }
  return Placed::kTaken;
}

Placed WindowTarget::fetch(std::uint64_t offset, std::span<std::uint8_t> octets) noexcept {
  if (offset > length() || octets.size() > length() - offset) return Placed::kRefused;
  while (!octets.empty()) {
    const std::uint64_t column = offset % row_bytes_;
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(octets.size(), row_bytes_ - column));
    {
      const std::lock_guard lock(mutex_);
      const Run run = visible(offset / row_bytes_, column, count);
      if (run.count != count) std::memset(octets.data(), 0, count);
      if (run.count != 0) std::memcpy(octets.data() + run.from, run.at, run.count);
    }
    offset += count;
    octets = octets.subspan(count);
  }
  return Placed::kTaken;
}

WindowTarget::Run WindowTarget::visible(std::uint64_t row, std::uint64_t column,
                                        std::size_t count) const noexcept {
  const std::int64_t y = y_ + static_cast<std::int64_t>(row);
  if (y < top_ || y >= bottom_) return {};
  const std::int64_t x = x_ + static_cast<std::int64_t>(column);
  const std::int64_t from = std::max(x, left_);
  const std::int64_t to = std::min(x + static_cast<std::int64_t>(count), right_);
  if (from >= to) return {};
  return {surface_.first + static_cast<std::size_t>(y) * surface_.pitch + from,
          static_cast<std::size_t>(from - x), static_cast<std::size_t>(to - from)};
}

}  // namespace weft
