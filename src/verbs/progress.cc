#include "verbs/progress.h"

#include "verbs/qp.h"

namespace weft::verbs {

void Progress::watch(std::shared_ptr<QueuePairImpl> qp) {
  {
    const std::lock_guard lock(mutex_);
    watched_.push_back(std::move(qp));
  }
  wake();
}

bool Progress::on_tick(Instant) {
  // Destroyed last of all: the device may go with the last queue pair, and this object with it.
  std::vector<std::shared_ptr<QueuePairImpl>> done;
  {
    const std::lock_guard lock(mutex_);
    round_.swap(watched_);
  }
  bool busy = false;
  bool needed = false;
  std::size_t kept = 0;
  for (auto& qp : round_) {
    const QueuePairImpl::Tick seen = qp->tick();
    if (seen == QueuePairImpl::Tick::kDone) {
      done.push_back(std::move(qp));
      continue;
    }
    busy |= seen == QueuePairImpl::Tick::kBusy;
    needed |= seen != QueuePairImpl::Tick::kAsleep;
    if (&round_[kept] != &qp) round_[kept] = std::move(qp);
    ++kept;
  }
  round_.resize(kept);
  const std::lock_guard lock(mutex_);
  watched_.insert(watched_.end(), std::make_move_iterator(round_.begin()),
                  std::make_move_iterator(round_.end()));
  round_.clear();
  quiet_ = busy ? 0 : quiet_ + 1;
  return needed || (!watched_.empty() && quiet_ < kQuietTicks);
}

}  // namespace weft::verbs
