// Which shards there are, on which thread each is at home, and which CQs they feed.
#include <weft/limits.h>

#include <algorithm>
#include <cstdlib>

#include "os/clock.h"
#include "os/descriptor_limit.h"
#include "os/lock.h"
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
  if (wanted == 0) wanted = std::max(1U, machine_.cores / kCoresPerThread);
  for (std::size_t i = 0; i < wanted; ++i) {
    auto engine = io::Engine::create();
    if (!engine) return fail(engine.error());
    engines_.push_back(std::move(*engine));
  }
  return {};
}

Result<std::shared_ptr<Shard>> ShardsOfDevice::create(
    const std::shared_ptr<progress::ProgressHost>& host, Homes homes) {
  std::erase_if(all_, [](const std::weak_ptr<Shard>& s) { return s.expired(); });
  if (!may_have_another()) {
    if (auto shared = least_used()) return shared;
  }
  io::Engine& home = *homes[next_home_++ % homes.size()];
  const auto neighbour = all_.empty() ? nullptr : all_.back().lock();
  auto shard = Shard::create(host, home, neighbour.get());
  if (shard) all_.push_back(*shard);
  return shard;
}

// A program may change the limit at any time: it is asked for when there are more shards than ever,
// and before one is shared. Connections that come and go find it known.
bool ShardsOfDevice::may_have_another() {
  const std::size_t there_are = all_.size();
  if (there_are >= most_ || there_are > there_were_) {
    most_ = os::descriptor_limit() / limits::kShareOfCompletionQueues;
    there_were_ = there_are;
  }
  return there_are == 0 || there_are < most_;
}

// The one that the fewest completion queues and queue pairs hold. Null: that one has just gone.
std::shared_ptr<Shard> ShardsOfDevice::least_used() const {
  const auto uses = [](const std::weak_ptr<Shard>& shard) { return shard.use_count(); };
  return std::ranges::min_element(all_, {}, uses)->lock();
}

std::vector<std::shared_ptr<Shard>> ShardsOfDevice::live() {
  const os::MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Shard>> out;
  for (const auto& weak : all_) {
    if (auto shard = weak.lock()) out.push_back(std::move(shard));
  }
  return out;
}

void ShardsOfDevice::doubt_callers() {
  const os::MutexLock lock(mutex_);
  for (const auto& weak : all_) {
    if (const auto shard = weak.lock()) shard->owner().doubt();
  }
}

Result<std::shared_ptr<Shard>> ShardsOfDevice::take(
    const std::shared_ptr<progress::ProgressHost>& host, Homes homes, CompletionQueueImpl& recv_cq,
    CompletionQueueImpl& send_cq) {
  const os::MutexLock lock(mutex_);
  std::shared_ptr<Shard> shard = recv_cq.shards().first();
  if (shard == nullptr) shard = send_cq.shards().first();
  if (shard == nullptr) {
    auto made = create(host, homes);
    if (!made) return made;
    shard = std::move(*made);
  }
  recv_cq.add_shard(shard);
  send_cq.add_shard(shard);
  return shard;
}

Result<std::shared_ptr<Shard>> DeviceImpl::shard_for(CompletionQueueImpl& recv_cq,
                                                     CompletionQueueImpl& send_cq) {
  return shards_.take(self(), engines_, recv_cq, send_cq);
}

bool BatchShortage::note(Instant now) noexcept {
  std::int64_t last = noted_.load(std::memory_order_relaxed);
  if (now - Instant{last} < kShortagePause) return false;
  return noted_.compare_exchange_strong(last, now.ns, std::memory_order_relaxed);
}

Duration BatchShortage::limit(Instant now) noexcept {
  if (now - relieved_ > kShortageOver) stalled_min_ = kStalledAtFirst;
  relieved_ = now;
  return stalled_min_;
}

void BatchShortage::lower_limit() noexcept {
  stalled_min_ = std::max(stalled_min_ / 2, kStalledMin);
}

// A program may leave with exit() as soon as it has its last message, while the Ack still waits for
// an answer (Lane::leaves_ack()): the peer's request would never complete.
void DeviceImpl::send_when_the_process_exits() {
  static auto& mutex = *new os::Mutex;  // never destroyed: exit() may run in any order
  static auto& devices = *new std::vector<std::weak_ptr<DeviceImpl>>;
  const os::MutexLock lock(mutex);
  std::erase_if(devices, [](const auto& device) { return device.expired(); });
  devices.push_back(self());
  static const int registered = std::atexit([] {
    // Not waited for: in a child of fork() its holder may be no more.
    if (!mutex.try_lock()) return;
    const os::MutexLock held(mutex, std::adopt_lock);
    for (const auto& weak : devices) {
      const auto device = weak.lock();
      if (device == nullptr || !device->usable()) continue;
      for (const auto& shard : device->shards_.live()) shard->send_at_exit();
    }
  });
  static_cast<void>(registered);
}

void DeviceImpl::check_peers(Instant now) {
  for (const auto& shard : shards_.live()) shard->check_peers(now);
}

void DeviceImpl::note_without_batch() {
  if (!shortage_.note(os::now())) return;
  (void)engine().post([weak = weak_from_this()] {
    const auto device = std::static_pointer_cast<DeviceImpl>(weak.lock());
    if (device != nullptr) device->end_stalled_lanes();
  });
}

// Many peers may take nothing, one after another: then each one gets less time than the last.
void DeviceImpl::end_stalled_lanes() {
  const Instant now = os::now();
  const Duration limit = shortage_.limit(now);
  std::vector<Shard::Stalled> stalled;
  for (const auto& shard : shards_.live()) shard->add_stalled(stalled);
  std::erase_if(stalled, [&](const Shard::Stalled& s) { return now - s.since < limit; });
  if (stalled.empty()) return;
  shortage_.lower_limit();
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
