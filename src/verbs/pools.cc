#include "verbs/pools.h"

#include <algorithm>
#include <mutex>
#include <new>

namespace weft::verbs {

BatchPool::BatchPool(std::uint64_t bytes_max)
    : limit_(static_cast<std::size_t>(
          std::max<std::uint64_t>(bytes_max / sizeof(proto::TxBatch), 1))) {
  free_.reserve(std::min(limit_, kBatchesKept));
}

proto::TxBatch* BatchPool::acquire() {
  {
    const os::SpinGuard lock(lock_);
    if (!free_.empty()) {
      proto::TxBatch* batch = free_.back().release();
      free_.pop_back();
      return batch;
    }
    if (count_ == limit_) return nullptr;
    ++count_;
  }
  // Not value-initialized: the arena is large and written before it is read.
  auto* batch = new (std::nothrow) proto::TxBatch;
  if (batch == nullptr) {
    const os::SpinGuard lock(lock_);
    --count_;
  }
  return batch;
}

void BatchPool::release(proto::TxBatch* batch) {
  std::unique_ptr<proto::TxBatch> owned(batch);
  owned->clear();
  const os::SpinGuard lock(lock_);
  if (free_.size() < kBatchesKept) {
    free_.push_back(std::move(owned));
  } else {
    --count_;
  }
}

CarryBuffers::CarryBuffers() {
  classes_[0].bytes = 2U << 10U;
  classes_[1].bytes = 17U << 10U;
  classes_[2].bytes = proto::kCarryBytesMax;
  for (Class& c : classes_) c.free.reserve(kCarriesKept);
}

CarryBuffers::~CarryBuffers() {
  for (const Class& c : classes_) {
    for (std::uint8_t* carry : c.free) delete[] carry;
  }
}

CarryBuffers::Class& CarryBuffers::class_of(std::size_t size) {
  return *std::find_if(classes_.begin(), classes_.end() - 1,
                       [size](const Class& c) { return size <= c.bytes; });
}

std::uint8_t* CarryBuffers::acquire(std::size_t size) {
  Class& c = class_of(size);
  {
    const os::SpinGuard lock(lock_);
    if (!c.free.empty()) {
      std::uint8_t* carry = c.free.back();
      c.free.pop_back();
      return carry;
    }
  }
  return new (std::nothrow) std::uint8_t[c.bytes];
}

void CarryBuffers::release(std::uint8_t* carry, std::size_t size) {
  Class& c = class_of(size);
  {
    const os::SpinGuard lock(lock_);
    if (c.free.size() < kCarriesKept) {
      c.free.push_back(carry);
      return;
    }
  }
  delete[] carry;
}

}  // namespace weft::verbs
