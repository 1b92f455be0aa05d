#include "exs/core/exs_device.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "os/lock.h"

namespace weft::exs {
namespace {

// Weft's device names a sink by its local key, and needs no remote right for it.
constexpr std::uint32_t kWeftVendor = 0x574546;

}  // namespace

CqShard::~CqShard() {
  if (cq != nullptr) ibv_destroy_cq(cq);
}

std::shared_ptr<Device> Device::create(ibv_context* context) {
  std::shared_ptr<Device> out(new Device);
  out->context_ = context;
  out->shards_.reserve(kShardsMax);
  if (const int error = ibv_query_device(context, &out->attributes_); error != 0) {
    errno = error;
    return nullptr;
  }
  out->pd_ = ibv_alloc_pd(context);
  if (out->pd_ == nullptr) return nullptr;
  out->channel_ = ibv_create_comp_channel(context);
  if (out->channel_ == nullptr) return nullptr;
  const int flags = ::fcntl(out->channel_->fd, F_GETFL);
  ::fcntl(out->channel_->fd, F_SETFL, flags | O_NONBLOCK);
  out->read_sink_is_remote_ = context->device->transport_type == IBV_TRANSPORT_IWARP &&
                              out->attributes_.vendor_id != kWeftVendor;
  return out;
}

Device::~Device() {
  shards_.clear();
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
}

CqShard* Device::take_shard(int entries) {
  assert(entries > 0);
  const os::MutexLock lock(mutex_);
  for (const auto& shard : shards_) {
    if (shard->free_entries.load() < entries) continue;
    shard->free_entries.fetch_sub(entries);
    return shard.get();
  }
  if (shards_.size() == kShardsMax) {
    errno = ENOMEM;
    return nullptr;
  }
  auto shard = std::make_unique<CqShard>();
  const int size = std::max(entries, std::min(kShardEntries, attributes_.max_cqe));
  shard->cq = ibv_create_cq(context_, size, shard.get(), channel_, 0);
  if (shard->cq == nullptr) return nullptr;
  shard->free_entries.store(size - entries);
  assert(shards_.size() < shards_.capacity());
  shards_.push_back(std::move(shard));
  shard_count_.store(shards_.size(), std::memory_order_release);
  return shards_.back().get();
}

}  // namespace weft::exs
