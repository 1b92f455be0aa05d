// Buffers that connections borrow while bytes are under way, so that idle ones hold none.
//
// Bounded free lists; last in, first out, so that buffers stay in the cache. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "os/lock.h"
#include "proto/batch.h"
#include "proto/fpdu_reader.h"

namespace weft::verbs {

inline constexpr std::size_t kBatchesKept = 64;  // about 22 MiB at most
inline constexpr std::size_t kCarriesKept = 64;  // per size class

class BatchPool {
 public:
  // At most so many octets in batches, and at least one batch.
  explicit BatchPool(std::uint64_t bytes_max);
  // A cleared batch; null: no memory, or all that there may be are in use.
  [[nodiscard]] proto::TxBatch* acquire();
  void release(proto::TxBatch* batch);  // REQUIRES: from acquire()
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }

 private:
  const std::size_t limit_;
  os::SpinLock lock_;
  std::size_t count_ WEFT_GUARDED_BY(lock_) = 0;  // in use or free
  std::vector<std::unique_ptr<proto::TxBatch>> free_ WEFT_GUARDED_BY(lock_);
};

class CarryBuffers {
 public:
  CarryBuffers();
  ~CarryBuffers();
  CarryBuffers(const CarryBuffers&) = delete;
  CarryBuffers& operator=(const CarryBuffers&) = delete;
  // At least `size` octets, at most proto::kCarryBytesMax; null: no memory.
  [[nodiscard]] std::uint8_t* acquire(std::size_t size);
  void release(std::uint8_t* carry, std::size_t size);  // with the size it was acquired with

 private:
  struct Class {
    std::size_t bytes = 0;
    std::vector<std::uint8_t*> free;
  };
  [[nodiscard]] Class& class_of(std::size_t size);

  os::SpinLock lock_;
  std::array<Class, 3> classes_;
};

}  // namespace weft::verbs
