#include "sockets/granted/lane_rings.h"

#include <sched.h>
#include <sys/mman.h>

#include <cassert>
#include <new>

namespace weft::sockets::granted {

bool LaneRings::map_own() {
  assert(own_ == nullptr && segment_.load() == nullptr);
  void* at = mmap(nullptr, sizeof(Own), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  own_ = new (at) Own{};
  return true;
}

void LaneRings::unmap() {
  assert(own_ != nullptr);
  if (Segment* segment = segment_.exchange(nullptr); segment != nullptr) {
    segments::detach(segment);
  }
  munmap(own_, sizeof(Own));
  own_ = nullptr;
}

void LaneRings::attach(Segment& segment, unsigned end) {
  assert(end < 2);
  assert(own_ != nullptr && segment_.load() == nullptr);
  end_ = end;
  segment_.store(&segment);
}

bool LaneRings::on_one_core() const {
  auto& cores = segment().cores;
  const auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
  std::atomic<std::uint32_t>& ours = cores.at(end_);
  if (ours.load(std::memory_order_relaxed) != here) ours.store(here, std::memory_order_relaxed);
  return here != 0 && cores.at(1 - end_).load(std::memory_order_relaxed) == here;
}

}  // namespace weft::sockets::granted
