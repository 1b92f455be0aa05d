#include "files/client/streams.h"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::files {

CopyWatcher Streams::watcher() {
  std::size_t part = 0;
  {
    const os::ScopedLock guard(mutex_);
    part = parts_.size();
    parts_.emplace_back();
  }
  const auto locked = [this](const auto& tell) {
    return [this, &tell](const auto& what) {
      const os::ScopedLock guard(mutex_);
      tell(what);
    };
  };
  CopyWatcher out;
  if (out_.progress) {
    out.progress = [this, part](const CopyTotals& now) {
      const os::ScopedLock guard(mutex_);
      parts_[part] = now;
      CopyTotals sum = before_;
      for (const CopyTotals& one : parts_) sum += one;
      out_.progress(sum);
    };
  }
  if (out_.failed) out.failed = locked(out_.failed);
  if (out_.warned) out.warned = locked(out_.warned);
  if (out_.step) out.step = locked(out_.step);
  return out;
}

Outcome<void> Streams::run(const std::vector<Work>& all) {
  std::vector<Outcome<void>> results(all.size());
  std::vector<std::thread> threads;
  threads.reserve(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto work = [&results, &all, i] { results[i] = all[i](); };
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      work();  // no more threads: one after the other
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (Outcome<void>& one : results) {
    if (!one) return std::move(one);
  }
  return {};
}

std::vector<std::size_t> Streams::share(const std::vector<std::uint64_t>& weights,
                                        std::size_t count) {
  std::vector<std::size_t> out = {0};
  const std::uint64_t all = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    // Its middle says whose it is. A server that claims enormous files gets odd shares.
    const std::uint64_t middle = sum + weights[i] / 2;
    const auto owner = std::min<std::uint64_t>(count - 1, middle / (all / count + 1));
    while (out.size() <= owner) out.push_back(i);
    sum += weights[i];
  }
  while (out.size() <= count) out.push_back(weights.size());
  return out;
}

}  // namespace weft::files
