#include "check/sources.h"

#include <algorithm>
#include <bit>
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

void Pieces::add(std::span<const Octets> octets) {
  const os::MutexLock lock(mutex_);
  for (const Octets& one : octets) {
    if (one.length == 0) continue;
    ++classes_.at(std::bit_width(one.length) - 1U)[{one.addr, one.length}];
    count_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Pieces::remove(std::span<const Octets> octets) {
  const os::MutexLock lock(mutex_);
  for (const Octets& one : octets) {
    if (one.length == 0) continue;
    Class& of = classes_.at(std::bit_width(one.length) - 1U);
    const auto at = of.find({one.addr, one.length});
    if (at == of.end()) continue;
    if (--at->second == 0) of.erase(at);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
}

bool Pieces::overlap(std::span<const Octets> octets) const {
  const os::MutexLock lock(mutex_);
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    const Class& of = classes_.at(i);
    if (of.empty()) continue;
    const std::uint64_t longest = (std::uint64_t{2} << i) - 1;  // of the last: all ones
    for (const Octets& one : octets) {
      const std::uint64_t from = one.addr - std::min(one.addr, longest);
      for (auto at = of.lower_bound({from, 0});
           at != of.end() && at->first.first < one.addr + one.length; ++at) {
        if (one.addr < at->first.first + at->first.second) return true;
      }
    }
  }
  return false;
}

void Sinks::erase(Queue& queue, Queue::iterator sink) {
  pieces_.remove(sink->octets);
  queue.erase(sink);
}

void Sinks::add(const void* queue, Side side, std::uint64_t wr_id, std::vector<Octets> octets) {
  pieces_.add(octets);
  Queue& sinks = queues_[queue];
  sinks.push_back({side, wr_id, std::move(octets)});
  if (sinks.size() > kMost) erase(sinks, sinks.begin());
}

void Sinks::remove(const void* queue, Side side, std::uint64_t wr_id) {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return;
  const auto sink =
      std::ranges::find_if(at->second, [&](const Sink& one) { return one.is(side, wr_id); });
  if (sink != at->second.end()) erase(at->second, sink);
}

std::span<const Octets> Sinks::of(const void* queue, std::uint64_t wr_id) const {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return {};
  const auto sink = std::ranges::find_if(
      at->second, [&](const Sink& one) { return one.is(Side::kReceive, wr_id); });
  if (sink == at->second.end()) return {};
  return sink->octets;
}

void Sinks::take_back(const void* queue, Side side, std::uint64_t wr_id,
                      std::span<const Octets> octets) {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return;
  for (auto sink = at->second.end(); sink != at->second.begin();) {
    --sink;
    if (sink->is(side, wr_id) && std::ranges::equal(sink->octets, octets))
      return erase(at->second, sink);
  }
}

Sinks::Found Sinks::find(const Octets& memory, const Counts& counts) const {
  if (!has({&memory, 1})) return {};
  for (const auto& [queue, sinks] : queues_) {
    for (const Sink& sink : sinks) {
      for (const Octets& one : sink.octets) {
        if (overlap({&one, 1}, {&memory, 1}) && counts(one)) return {queue, sink.wr_id, one};
      }
    }
  }
  return {};
}

void Sinks::clear(const void* queue) {
  const auto at = queues_.find(queue);
  if (at == queues_.end()) return;
  for (const Sink& sink : at->second) pieces_.remove(sink.octets);
  queues_.erase(at);
}

}  // namespace weft::check
