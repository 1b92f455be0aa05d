#include "lab/cable.h"

#include <algorithm>
#include <cassert>

namespace weft::lab {

namespace {

// So long before its turn a frame is taken: whoever takes it may be late.
constexpr Cable::Time kAhead = std::chrono::microseconds(200);
constexpr std::uint64_t kBitsPerByte = 8;
constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

Cable::Time time_of(std::uint64_t bytes, std::uint64_t bits_per_s) {
  if (bits_per_s == 0) return Cable::Time{0};
  const double ns =
      static_cast<double>(bytes) * kBitsPerByte * kNsPerSecond / static_cast<double>(bits_per_s);
  return Cable::Time{static_cast<std::int64_t>(ns)};
}

}  // namespace

Cable::Cable(const Link& link, unsigned hosts)
    : link_(link), queue_(time_of(queue_of(link), link.bits_per_s)), lines_(hosts) {}

Cable::Time Cable::length_of(std::uint64_t bytes) const { return time_of(bytes, link_.bits_per_s); }

Cable::Time Cable::next_from(unsigned host) const {
  assert(host < lines_.size());
  return lines_[host].out_free - kAhead;
}

void Cable::take(unsigned from, std::uint64_t bytes, Time now, bool waited) {
  assert(from < lines_.size());
  Line& line = lines_[from];
  if (link_.bits_per_s == 0) {  // a line that is never busy
    line.begins = now;
    return;
  }
  line.begins = std::max(waited ? now - kMostLate : now, line.out_free);
  line.out_free = line.begins + length_of(bytes);
}

std::optional<Cable::Time> Cable::deliver(unsigned from, unsigned to, std::uint64_t bytes) {
  assert(from < lines_.size() && to < lines_.size() && from != to);
  const Time arrives = lines_[from].begins + link_.delay;
  if (link_.bits_per_s == 0) return arrives;
  Line& line = lines_[to];
  const Time begins = std::max(arrives, line.in_free);
  if (begins - arrives > queue_) return std::nullopt;
  line.in_free = begins + length_of(bytes);
  return line.in_free;
}

}  // namespace weft::lab
