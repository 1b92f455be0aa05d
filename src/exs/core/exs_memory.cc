#include "exs/core/exs_memory.h"

#include <sys/mman.h>
#include <weft/types.h>

#include <cassert>
#include <new>

#include "os/lock.h"

namespace weft::exs {

Mr Mr::create(std::shared_ptr<Device> device, void* addr, std::size_t length, int access) {
  Mr out;
  // By the exported name: the macro of the same name picks another entry for access flags that are
  // not constants.
  out.mr_ = (ibv_reg_mr)(device->pd(), addr, length, access);
  if (out.mr_ != nullptr) out.device_ = std::move(device);
  return out;
}

Mr Mr::of_checked(std::shared_ptr<Device> device, void* addr, std::size_t length, int access) {
  assert(device != nullptr && length != 0);
  Mr out;
  // This entry takes the flag away where the kernel does not know it.
  out.mr_ = ibv_reg_mr_iova2(device->pd(), addr, length, reinterpret_cast<std::uintptr_t>(addr),
                             static_cast<unsigned>(access) | kIbvAccessUnchecked);
  if (out.mr_ != nullptr) out.device_ = std::move(device);
  return out;
}

Mr& Mr::operator=(Mr&& other) noexcept {
  if (this != &other) {
    reset();
    device_ = std::move(other.device_);
    mr_ = std::exchange(other.mr_, nullptr);
  }
  return *this;
}

void Mr::reset() {
  if (mr_ != nullptr) ibv_dereg_mr(std::exchange(mr_, nullptr));
  device_.reset();
}

bool Region::lkey(const std::shared_ptr<Device>& device, bool fills, std::uint32_t& out) {
  assert(device != nullptr && busy());
  if (first_.load(std::memory_order_acquire) == device.get()) {
    out = first_lkey_;
    return first_writable_ || !fills;
  }
  const os::MutexLock lock(mutex_);
  for (const Registered& known : registered_) {
    if (known.device != device.get()) continue;
    out = known.mr.lkey();
    return known.writable || !fills;
  }
  Mr mr = Mr::create(device, addr_, length_, IBV_ACCESS_LOCAL_WRITE);
  const bool writable = static_cast<bool>(mr);
  // Memory that may only be read, as constants are, can still be sent.
  if (!mr) mr = Mr::create(device, addr_, length_, 0);
  if (!mr) return false;
  out = mr.lkey();
  registered_.push_back({device.get(), std::move(mr), writable});
  if (registered_.size() == 1) {
    first_lkey_ = out;
    first_writable_ = writable;
    first_.store(device.get(), std::memory_order_release);
  }
  return writable || !fills;
}

Pages::Pages(std::size_t length) : length_(length) {
  if (length == 0) return;
  void* at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::uint8_t*>(at);
}

Pages::~Pages() {
  if (data_ != nullptr) ::munmap(data_, length_);
}

}  // namespace weft::exs
