// Device memory: a heap of fixed size for buffers that belong to the device rather than to the
// program, as adapters have it on board. It is what stands behind ibv_alloc_dm.
//
// Users get handles, not addresses: octets go in and out by copies and by RDMA through regions
// registered on a part of a segment. Each segment has an owner. No call of one owner reaches a
// segment of another, and an owner that ends gives everything back. Any thread.
#pragma once

#include <weft/memory.h>
#include <weft/result.h>

#include <cstdint>
#include <memory>
#include <span>

#pragma GCC visibility push(default)
namespace weft {

using DeviceMemoryHandle = std::uint64_t;  // never 0

struct DeviceMemoryOptions {
  std::uint64_t bytes = std::uint64_t{64} << 20U;  // at least 512; pages are taken as they are used
  bool huge_pages = true;                          // where the system has any to give
  bool save_memory = false;                        // least waste rather than most speed
};

struct DeviceMemoryStats {
  std::uint64_t bytes = 0;        // of the heap
  std::uint64_t asked_bytes = 0;  // allocated, as asked for
  std::uint64_t held_bytes = 0;   // ... in blocks of 512 octets
  std::uint64_t largest_free_bytes = 0;
  std::size_t segments = 0;
};

class DeviceMemoryOwner {
 public:
  // Deregisters the regions on its segments and frees all of them. A segment whose region has
  // windows bound to it stays taken until the region's last holder lets go.
  virtual ~DeviceMemoryOwner() = default;

  // A segment of `bytes`, aligned to 2^align_log2 (at most 21). Its contents are those of earlier
  // use by this owner, else zeros.
  //   kInvalidArgument   0 bytes or too large an alignment
  //   kLimitExceeded     the owner's limit
  //   kNoMemory          no free run is long enough
  [[nodiscard]] virtual Result<DeviceMemoryHandle> allocate(std::uint64_t bytes,
                                                            unsigned align_log2 = 0) = 0;
  //   kNotFound   not a segment of this owner
  //   kBusy       a region is registered on it; nothing changed
  [[nodiscard]] virtual Status free(DeviceMemoryHandle handle) = 0;

  //   kNotFound          as for free()
  //   kInvalidArgument   beyond the end of the segment; nothing was copied
  [[nodiscard]] virtual Status copy_to(DeviceMemoryHandle handle, std::uint64_t offset,
                                       std::span<const std::uint8_t> bytes) = 0;
  [[nodiscard]] virtual Status copy_from(DeviceMemoryHandle handle, std::uint64_t offset,
                                         std::span<std::uint8_t> bytes) = 0;

  // A region on part of a segment, zero-based: TO 0 is the octet at `offset`. The region's addr()
  // is of no use to programs.
  //   As copy_to, and as ProtectionDomain::register_memory
  [[nodiscard]] virtual Result<std::shared_ptr<MemoryRegion>> register_memory(
      ProtectionDomain& pd, DeviceMemoryHandle handle, std::uint64_t offset, std::size_t length,
      Access access) = 0;
};

class DeviceMemoryHeap {
 public:
  virtual ~DeviceMemoryHeap() = default;
  //   kInvalidArgument   fewer than 512 octets, or more than 1 TiB
  //   kNoMemory          the system has not so much address space
  [[nodiscard]] static Result<std::shared_ptr<DeviceMemoryHeap>> create(
      const DeviceMemoryOptions& options);

  // A new owner, who may hold up to `limit_bytes`. It keeps the heap alive.
  [[nodiscard]] virtual std::shared_ptr<DeviceMemoryOwner> add_owner(
      std::uint64_t limit_bytes = ~std::uint64_t{0}) = 0;
  [[nodiscard]] virtual DeviceMemoryStats stats() const = 0;
};

}  // namespace weft
#pragma GCC visibility pop
