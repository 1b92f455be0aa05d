#include "sockets/granted/watched.h"

#include <cassert>
#include <memory>

namespace weft::sockets::granted {

Watched::~Watched() {
  wake();
  close();
  for (std::size_t i = 0; i < count_; ++i) std::destroy_at(&entries_[i].use);
}

void Watched::add(Lane& lane, std::size_t tag, bool edge) {
  assert(!asleep_ && count_ <= kMost);
  // Without a look at `live` behind the count its memory may be gone: another thread has closed its
  // number.
  if (count_ == kMost) {
    const Use use(lane, Call::kVisits);
    if (!lane.live.load()) return;
    // This wait will not look into its ring.
    lane.reading.note_unwatched();
    if (lane.rings.attached()) close_window(lane);
    return;
  }
  Entry& entry = entries_[count_];
  std::construct_at(&entry.use, lane, Call::kVisits);
  if (!lane.live.load()) return std::destroy_at(&entry.use);
  ++count_;
  entry.lane = &lane;
  entry.tag = tag;
  entry.edge = edge;
  entry.counted = false;
}

bool Watched::open() {
  assert(!asleep_);
  bool any = false;
  for (std::size_t i = 0; i < count_; ++i) {
    Lane& one = lane(i);
    if (!one.in.joined()) continue;
    entries_[i].counted = true;
    if (one.rings.on_one_core()) continue;
    open_window(one);
    any = true;
  }
  return any;
}

void Watched::sleep() {
  assert(!asleep_);
  asleep_ = true;
  for (std::size_t i = 0; i < count_; ++i) {
    if (entries_[i].counted) lane(i).rings.in().add(GrantWord::kAsleep, 1);
  }
}

void Watched::wake() {
  if (!asleep_) return;
  asleep_ = false;
  for (std::size_t i = 0; i < count_; ++i) {
    if (entries_[i].counted) lane(i).rings.in().add(GrantWord::kAsleep, ~std::uint64_t{0});
  }
}

void Watched::close() {
  assert(!asleep_);  // a window that closes beside a sleeper is left open for its octets
  for (std::size_t i = 0; i < count_; ++i) {
    if (entries_[i].counted && !lane(i).reading.keeps_window()) close_window(lane(i));
  }
}

}  // namespace weft::sockets::granted
