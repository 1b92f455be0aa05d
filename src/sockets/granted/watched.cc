#include "sockets/granted/watched.h"

namespace weft::sockets::granted {

void Watched::open() {
  for (std::size_t i = 0; i < count_; ++i) {
    Lane& one = lane(i);
    if (!one.joined_in.load()) continue;
    GrantMemory m = one.memory_in();
    if (m.load(GrantWord::kWindow) == kWindowClosed) m.store(GrantWord::kWindow, kWindowOpen);
    entries_[i].opened = true;
  }
}

void Watched::sleep() {
  asleep_ = true;
  for (std::size_t i = 0; i < count_; ++i) {
    if (entries_[i].opened) lane(i).memory_in().add(GrantWord::kAsleep, 1);
  }
}

void Watched::wake() {
  if (!asleep_) return;
  asleep_ = false;
  for (std::size_t i = 0; i < count_; ++i) {
    if (entries_[i].opened) lane(i).memory_in().add(GrantWord::kAsleep, ~std::uint64_t{0});
  }
}

void Watched::close() {
  for (std::size_t i = 0; i < count_; ++i) {
    if (!entries_[i].opened || keeps(lane(i))) continue;
    lane(i).memory_in().store(GrantWord::kWindow,
                              lane(i).joined_in.load() ? kWindowClosed : kWindowNever);
  }
}

}  // namespace weft::sockets::granted
