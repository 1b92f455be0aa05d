// Which shards there are, on which thread each is at home, and which CQs they feed.
#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "os/clock.h"
#include "os/log.h"
#include "progress/lane.h"
#include "verbs/completion_channel.h"
#include "verbs/cq.h"
#include "verbs/device.h"
#include "verbs/peer_watch.h"

namespace weft::verbs {

using progress::Shard;

namespace {
constexpr unsigned kCoresPerThread = 4;
// Where there are no batches left: how often something is done about it, for how long a peer must
// have taken nothing, and when the shortage is over.
constexpr Duration kShortagePause{100'000'000};
constexpr Duration kStalledAtFirst{1'000'000'000};
constexpr Duration kStalledMin{50'000'000};
constexpr Duration kShortageOver{5'000'000'000};
}  // namespace

Status DeviceImpl::create_engines() {
  std::size_t wanted = config_.background_threads;
  if (wanted == 0) wanted = std::max(1U, cores_ / kCoresPerThread);
  for (std::size_t i = 0; i < wanted; ++i) {
    auto engine = io::Engine::create();
    if (!engine) return fail(engine.error());
    engines_.push_back(std::move(*engine));
  }
  return {};
}

Result<std::shared_ptr<Shard>> DeviceImpl::new_shard() {
  io::Engine& home = *engines_[next_home_++ % engines_.size()];
  std::erase_if(shards_, [](const std::weak_ptr<Shard>& s) { return s.expired(); });
  const auto neighbour = shards_.empty() ? nullptr : shards_.back().lock();
  auto shard = Shard::create(self(), home, neighbour.get());
  if (!shard) return shard;
  shards_.push_back(*shard);
  return shard;
}

std::vector<std::shared_ptr<Shard>> DeviceImpl::live_shards() {
  const os::MutexLock lock(shards_mutex_);
  std::vector<std::shared_ptr<Shard>> out;
  for (const auto& weak : shards_) {
    if (auto shard = weak.lock()) out.push_back(std::move(shard));
  }
  return out;
}

Result<std::shared_ptr<Shard>> DeviceImpl::shard_for(CompletionQueueImpl& recv_cq,
                                                     CompletionQueueImpl& send_cq) {
  const os::MutexLock lock(shards_mutex_);
  std::shared_ptr<Shard> shard = recv_cq.shards().first();
  if (shard == nullptr) shard = send_cq.shards().first();
  if (shard == nullptr) {
    auto made = new_shard();
    if (!made) return made;
    shard = std::move(*made);
  }
  recv_cq.add_shard(shard);
  send_cq.add_shard(shard);
  return shard;
}

// A program may leave with exit() as soon as it has its last message, while the Ack still waits for
// an answer (Lane::leaves_ack()): the peer's request would never complete.
void DeviceImpl::send_when_the_process_exits() {
  static auto& mutex = *new std::mutex;  // never destroyed: exit() may run in any order
  static auto& devices = *new std::vector<std::weak_ptr<DeviceImpl>>;
  const std::lock_guard lock(mutex);
  std::erase_if(devices, [](const auto& device) { return device.expired(); });
  devices.push_back(self());
  static const int registered = std::atexit([] {
    // Not waited for: in a child of fork() its holder may be no more.
    const std::unique_lock held(mutex, std::try_to_lock);
    if (!held.owns_lock()) return;
    for (const auto& weak : devices) {
      const auto device = weak.lock();
      if (device == nullptr || !device->usable()) continue;
      for (const auto& shard : device->live_shards()) shard->send_at_exit();
    }
  });
  static_cast<void>(registered);
}

void DeviceImpl::check_peers(Instant now) {
  for (const auto& shard : live_shards()) shard->check_peers(now);
}

void DeviceImpl::note_without_batch() {
  const Instant now = os::now();
  std::int64_t last = last_shortage_.load(std::memory_order_relaxed);
  if (now - Instant{last} < kShortagePause) return;
  if (!last_shortage_.compare_exchange_strong(last, now.ns, std::memory_order_relaxed)) return;
  (void)engine().post([weak = weak_from_this()] {
    const auto device = std::static_pointer_cast<DeviceImpl>(weak.lock());
    if (device != nullptr) device->end_stalled_lanes();
  });
}

// Many peers may take nothing, one after another: then each one gets less time than the last.
void DeviceImpl::end_stalled_lanes() {
  const Instant now = os::now();
  if (now - last_relief_ > kShortageOver) stalled_min_ = kStalledAtFirst;
  last_relief_ = now;
  std::vector<Shard::Stalled> stalled;
  for (const auto& shard : live_shards()) shard->add_stalled(stalled);
  std::erase_if(stalled, [&](const Shard::Stalled& s) { return now - s.since < stalled_min_; });
  if (stalled.empty()) return;
  stalled_min_ = std::max(stalled_min_ / 2, kStalledMin);
  os::log(LogLevel::kWarning,
          "sending needs more memory than send_memory allows: {} connections whose peers take "
          "nothing are ended",
          stalled.size());
  for (const Shard::Stalled& s : stalled) s.lane->end_stalled();
}

void DeviceImpl::note_up(int delta) {
  up_.fetch_add(delta, std::memory_order_relaxed);
  if (delta > 0) peer_watch_->start();
}

}  // namespace weft::verbs
