#include "check/ranges.h"

#include <iterator>

namespace weft::check {

void Ranges::add(const Octets& octets, Origin at) {
  remove(octets);
  if (octets.length != 0)
    ranges_.insert_or_assign(octets.addr, Range{octets.addr + octets.length, at});
}

void Ranges::remove(const Octets& octets) {
  const std::uint64_t begin = octets.addr;
  const std::uint64_t end = begin + octets.length;
  auto one = ranges_.lower_bound(begin);
  if (one != ranges_.begin() && std::prev(one)->second.end > begin) --one;
  while (one != ranges_.end() && one->first < end) {
    const std::uint64_t first = one->first;
    const Range range = one->second;
    one = ranges_.erase(one);
    if (first < begin) ranges_.emplace(first, Range{begin, range.at});
    if (range.end > end) one = ranges_.emplace(end, range).first;
  }
}

const Origin* Ranges::find(const Octets& octets) const {
  auto one = ranges_.lower_bound(octets.addr);
  if (one != ranges_.begin() && std::prev(one)->second.end > octets.addr) --one;
  if (one == ranges_.end() || one->first >= octets.addr + octets.length) return nullptr;
  return &one->second.at;
}

}  // namespace weft::check
