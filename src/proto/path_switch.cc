#include "proto/path_switch.h"

namespace weft::proto {

void PathSwitch::built(StreamOffset end) noexcept {
  building_ = false;
  if (out_[0].changes_path()) {
    hold_at_ = end;
    hold_word_ = out_[0].word;
  }
  --count_;
  for (std::size_t i = 0; i < count_; ++i) out_[i] = out_[i + 1];
}

}  // namespace weft::proto
