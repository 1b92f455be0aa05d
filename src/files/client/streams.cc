#include "files/client/streams.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

namespace weft::files {
namespace {

// For less than this another connection costs more than it brings, where the network has no delay:
// 1,000 files of 4 KiB over the loopback address took 1.3 times as much of the client's CPU by 4
// connections as by one.
constexpr std::uint64_t kStreamWeight = std::uint64_t{64} << 20U;

}  // namespace

CopyWatcher Streams::watcher(std::size_t part) {
  {
    const os::MutexLock guard(mutex_);
    if (part >= parts_.size()) parts_.resize(part + 1);
  }
  const auto locked = [this](const auto& tell) {
    return [this, &tell](const auto& what) {
      const os::MutexLock guard(mutex_);
      tell(what);
    };
  };
  CopyWatcher out;
  if (out_.progress) {
    out.progress = [this, part](const CopyTotals& now) {
      const os::MutexLock guard(mutex_);
      parts_[part] = now;
      CopyTotals sum;
      for (const CopyTotals& one : parts_) sum += one;
      out_.progress(sum);
    };
  }
  if (out_.failed) out.failed = locked(out_.failed);
  if (out_.warned) out.warned = locked(out_.warned);
  if (out_.step) out.step = locked(out_.step);
  return out;
}

std::size_t Streams::find_idle(std::size_t count) {
  while (streams_.size() < count) streams_.push_back(std::make_unique<Stream>());
  for (std::size_t i = 0; i < count; ++i) {
    if (!streams_[i]->busy && streams_[i]->result) return i;
  }
  return count;
}

std::size_t Streams::idle(std::size_t count) {
  const os::MutexLock guard(mutex_);
  return find_idle(count);
}

Outcome<std::size_t> Streams::wait_idle(std::size_t count) {
  const os::MutexLock guard(mutex_);
  for (;;) {
    const std::size_t found = find_idle(count);
    if (found != count) return found;
    const auto end = streams_.begin() + static_cast<std::ptrdiff_t>(count);
    if (std::none_of(streams_.begin(), end, [](const auto& one) { return one->busy; })) {
      assert(count != 0);
      return tl::unexpected(streams_.front()->result.error());
    }
    done_.wait(mutex_);
  }
}

void Streams::wait_all() {
  const os::MutexLock guard(mutex_);
  while (std::ranges::any_of(streams_, [](const auto& one) { return one->busy; })) {
    done_.wait(mutex_);
  }
}

void Streams::work(Stream& stream, const Work& work) {
  auto result = work();
  const os::MutexLock guard(mutex_);
  stream.result = std::move(result);
  stream.busy = false;
  done_.notify_all();
}

void Streams::begin(std::size_t stream, Work work) {
  Stream* one = nullptr;
  {
    const os::MutexLock guard(mutex_);
    one = streams_[stream].get();
    one->busy = true;
  }
  if (one->thread.joinable()) one->thread.join();
  try {
    one->thread = std::thread([this, one, work] { this->work(*one, work); });
  } catch (const std::system_error&) {
    this->work(*one, work);  // no more threads: one after the other
  }
}

Outcome<void> Streams::finish() {
  std::vector<std::unique_ptr<Stream>> all;
  {
    const os::MutexLock guard(mutex_);
    all = std::exchange(streams_, {});
  }
  Outcome<void> out;
  for (const auto& one : all) {
    if (one->thread.joinable()) one->thread.join();
    if (out) out = std::move(one->result);
  }
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

std::size_t Streams::useful(const std::vector<std::uint64_t>& weights, std::size_t most) {
  std::uint64_t sum = 0;
  for (const std::uint64_t one : weights) sum += std::min(one, kStreamWeight);
  return std::clamp<std::uint64_t>(sum / kStreamWeight, 1,
                                   std::max<std::uint64_t>(1, std::min(most, weights.size())));
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
