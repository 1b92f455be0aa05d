// The heap of device memory: base/block_heap.h says where, this file has the octets.

#include <sys/mman.h>
#include <unistd.h>
#include <weft/device_memory.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/block_heap.h"
#include "os/fd.h"
#include "os/lock.h"

namespace weft {
namespace {

constexpr std::uint64_t kHugePage = std::uint64_t{1} << BlockHeap::kMaxAlignLog2;

os::Fd memory_file(std::uint64_t bytes, unsigned flags) {
  os::Fd fd(memfd_create("weft-device-memory", MFD_CLOEXEC | flags));
  if (fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) fd.reset();
  return fd;
}

// The octets. Kept alive by the heap, by its owners and by each region.
class Area {
 public:
  static std::shared_ptr<Area> create(const DeviceMemoryOptions& options) {
    const std::uint64_t bytes = (options.bytes + kHugePage - 1) / kHugePage * kHugePage;
    // Reserved with a huge page more, so that it can begin at the border of one.
    void* reserved = mmap(nullptr, bytes + kHugePage, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return nullptr;
    auto area = std::shared_ptr<Area>(new Area(reserved, bytes));
    return area->fill(options.huge_pages) ? area : nullptr;
  }
  ~Area() { munmap(reserved_, bytes_ + kHugePage); }
  [[nodiscard]] std::uint8_t* at(std::uint64_t offset) const { return start_ + offset; }

 private:
  Area(void* reserved, std::uint64_t bytes) : reserved_(reserved), bytes_(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(reserved);
    start_ = static_cast<std::uint8_t*>(reserved) + ((kHugePage - address % kHugePage) % kHugePage);
  }
  bool fill(bool huge_pages) const {
    // Reserved huge pages fail at the mapping when there are not enough; then ordinary ones do.
    if (huge_pages && map(memory_file(bytes_, MFD_HUGETLB), MAP_POPULATE)) return true;
    if (!map(memory_file(bytes_, 0), 0)) return false;
    if (huge_pages) madvise(start_, bytes_, MADV_HUGEPAGE);
    return true;
  }
  bool map(const os::Fd& fd, int flags) const {
    if (!fd) return false;
    void* at =
        mmap(start_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | flags, fd.get(), 0);
    if (at == MAP_FAILED) return false;
    // The device does not survive fork, and a child must not write into its parent's.
    madvise(start_, bytes_, MADV_DONTFORK);
    return true;
  }

  void* reserved_;
  std::uint64_t bytes_;
  std::uint8_t* start_ = nullptr;
};

struct Shared {
  Shared(std::shared_ptr<Area> memory, const DeviceMemoryOptions& options)
      : area(std::move(memory)),
        heap(options.bytes,
             options.save_memory ? BlockHeap::Policy::kTight : BlockHeap::Policy::kFast) {}
  const std::shared_ptr<Area> area;
  // Copies hold it shared, so that no segment is freed under one.
  mutable os::SharedMutex mutex;
  BlockHeap heap WEFT_GUARDED_BY(mutex);
};

class OwnerImpl final : public DeviceMemoryOwner {
 public:
  OwnerImpl(std::shared_ptr<Shared> shared, std::uint64_t limit_bytes)
      : shared_(std::move(shared)), owner_(shared_->heap.add_owner(limit_bytes)) {}
  ~OwnerImpl() override;

  [[nodiscard]] Result<DeviceMemoryHandle> allocate(std::uint64_t bytes,
                                                    unsigned align_log2) override;
  [[nodiscard]] Status free(DeviceMemoryHandle handle) override;
  [[nodiscard]] Status copy_to(DeviceMemoryHandle handle, std::uint64_t offset,
                               std::span<const std::uint8_t> bytes) override;
  [[nodiscard]] Status copy_from(DeviceMemoryHandle handle, std::uint64_t offset,
                                 std::span<std::uint8_t> bytes) override;
  [[nodiscard]] Result<std::shared_ptr<MemoryRegion>> register_memory(ProtectionDomain& pd,
                                                                      DeviceMemoryHandle handle,
                                                                      std::uint64_t offset,
                                                                      std::size_t length,
                                                                      Access access) override;

 private:
  using Regions = std::vector<std::weak_ptr<MemoryRegion>>;
  [[nodiscard]] Result<std::uint8_t*> find(DeviceMemoryHandle handle, std::uint64_t offset,
                                           std::uint64_t length) const
      WEFT_REQUIRES_SHARED(shared_->mutex);
  [[nodiscard]] static bool in_use(Regions& regions);

  std::shared_ptr<Shared> shared_;
  BlockHeap::Owner owner_;
  std::unordered_map<DeviceMemoryHandle, Regions> regions_;
};

// Forgets those that are gone.
bool OwnerImpl::in_use(Regions& regions) {
  std::erase_if(regions, [](const std::weak_ptr<MemoryRegion>& weak) {
    const auto region = weak.lock();
    return region == nullptr || region->rkey() == 0;
  });
  return !regions.empty();
}

OwnerImpl::~OwnerImpl() {
  const os::WriteLock lock(shared_->mutex);
  bool orphans = false;
  for (auto& [handle, regions] : regions_) {
    for (auto& weak : regions) {
      if (const auto region = weak.lock()) static_cast<void>(region->deregister());
    }
    if (in_use(regions)) {
      orphans = true;
    } else {
      static_cast<void>(shared_->heap.free(owner_, handle));
    }
  }
  // Memory that a peer can still reach is not given to anybody else.
  if (!orphans) shared_->heap.remove_owner(owner_);
}

Result<DeviceMemoryHandle> OwnerImpl::allocate(std::uint64_t bytes, unsigned align_log2) {
  const os::WriteLock lock(shared_->mutex);
  const auto handle = shared_->heap.allocate(owner_, bytes, align_log2);
  if (!handle) return handle;
  const auto extent = shared_->heap.extent(owner_, *handle);
  // The next owner must not read the bytes of the last one.
  std::memset(shared_->area->at(extent->offset), 0, extent->bytes);
  return handle;
}

Status OwnerImpl::free(DeviceMemoryHandle handle) {
  const os::WriteLock lock(shared_->mutex);
  const auto at = regions_.find(handle);
  if (at != regions_.end()) {
    if (in_use(at->second)) return fail(Error::kBusy);
    regions_.erase(at);
  }
  return shared_->heap.free(owner_, handle);
}

Result<std::uint8_t*> OwnerImpl::find(DeviceMemoryHandle handle, std::uint64_t offset,
                                      std::uint64_t length) const {
  const auto extent = shared_->heap.extent(owner_, handle);
  if (!extent) return fail(extent.error());
  if (offset > extent->bytes || length > extent->bytes - offset) {
    return fail(Error::kInvalidArgument);
  }
  return shared_->area->at(extent->offset + offset);
}

Status OwnerImpl::copy_to(DeviceMemoryHandle handle, std::uint64_t offset,
                          std::span<const std::uint8_t> bytes) {
  const os::ReadLock lock(shared_->mutex);
  const auto at = find(handle, offset, bytes.size());
  if (!at) return fail(at.error());
  if (!bytes.empty()) std::memcpy(*at, bytes.data(), bytes.size());
  return {};
}

Status OwnerImpl::copy_from(DeviceMemoryHandle handle, std::uint64_t offset,
                            std::span<std::uint8_t> bytes) {
  const os::ReadLock lock(shared_->mutex);
  const auto at = find(handle, offset, bytes.size());
  if (!at) return fail(at.error());
  if (!bytes.empty()) std::memcpy(bytes.data(), *at, bytes.size());
  return {};
}

Result<std::shared_ptr<MemoryRegion>> OwnerImpl::register_memory(ProtectionDomain& pd,
                                                                 DeviceMemoryHandle handle,
                                                                 std::uint64_t offset,
                                                                 std::size_t length,
                                                                 Access access) {
  const os::WriteLock lock(shared_->mutex);
  const auto at = find(handle, offset, length);
  if (!at) return fail(at.error());
  auto region = pd.register_memory_iova(*at, length, 0, access);
  if (!region) return region;
  // One more owner count around the engine's: the area outlives every region on it.
  auto kept = std::make_shared<std::pair<std::shared_ptr<Area>, std::shared_ptr<MemoryRegion>>>(
      shared_->area, std::move(*region));
  std::shared_ptr<MemoryRegion> out(kept, kept->second.get());
  regions_[handle].push_back(out);
  return out;
}

class HeapImpl final : public DeviceMemoryHeap {
 public:
  explicit HeapImpl(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  [[nodiscard]] std::shared_ptr<DeviceMemoryOwner> add_owner(std::uint64_t limit_bytes) override {
    const os::WriteLock lock(shared_->mutex);
    return std::make_shared<OwnerImpl>(shared_, std::min(limit_bytes, BlockHeap::kMaxBytes));
  }
  [[nodiscard]] DeviceMemoryStats stats() const override {
    const os::ReadLock lock(shared_->mutex);
    const BlockHeap::Stats from = shared_->heap.stats();
    return {from.area_bytes, from.asked_bytes, from.held_bytes, from.largest_gap_bytes,
            from.segments};
  }

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace

Result<std::shared_ptr<DeviceMemoryHeap>> DeviceMemoryHeap::create(
    const DeviceMemoryOptions& options) {
  if (options.bytes < BlockHeap::kBlockBytes || options.bytes > BlockHeap::kMaxBytes) {
    return fail(Error::kInvalidArgument);
  }
  auto area = Area::create(options);
  if (area == nullptr) return fail(Error::kNoMemory);
  return std::make_shared<HeapImpl>(std::make_shared<Shared>(std::move(area), options));
}

}  // namespace weft
