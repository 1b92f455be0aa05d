#include "check/sources.h"

#include <algorithm>
#include <utility>

namespace weft::check {

bool overlap(std::span<const Octets> some, std::span<const Octets> others) {
  return std::ranges::any_of(some, [others](const Octets& one) {
    return std::ranges::any_of(others, [&one](const Octets& other) {
      return one.addr < other.addr + other.length && other.addr < one.addr + one.length;
    });
  });
}

std::vector<Octets> samples(std::span<const Octets> octets) {
  constexpr std::uint64_t kAll = 1U << 14U, kPieces = 16, kPiece = kAll / kPieces;
  std::vector<Octets> out;
  for (const Octets& one : octets) {
    if (one.length <= kAll) {
      if (one.length != 0) out.push_back(one);
      continue;
    }
    for (std::uint64_t i = 0; i < kPieces; ++i)
      out.push_back({one.addr + (one.length - kPiece) / (kPieces - 1) * i, kPiece});
    out.back().addr = one.addr + one.length - kPiece;
  }
  return out;
}

void Sinks::add(const void* queue, std::uint64_t wr_id, std::vector<Octets> octets) {
  std::deque<Sink>& sinks = queues_[queue];
  sinks.push_back({wr_id, std::move(octets)});
  if (sinks.size() > kMost) sinks.pop_front();
}

void Sinks::remove(const void* queue, std::uint64_t wr_id) {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return;
  const auto sink = std::ranges::find(at->second, wr_id, &Sink::wr_id);
  if (sink != at->second.end()) at->second.erase(sink);
}

bool Sinks::has(std::span<const Octets> octets) const {
  return std::ranges::any_of(queues_, [octets](const auto& queue) {
    return std::ranges::any_of(queue.second,
                               [octets](const Sink& sink) { return overlap(sink.octets, octets); });
  });
}

}  // namespace weft::check
