// Memory that the application registered, and what RDMA devices know of it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "exs/core/exs_device.h"
#include "os/lock.h"

namespace weft::exs {

// A registration with one device, gone with its owner. When the destructor has returned, neither
// the device nor a peer reaches the memory any more.
class Mr {
 public:
  Mr() = default;
  // Empty, with errno, when the device refuses.
  static Mr create(std::shared_ptr<Device> device, void* addr, std::size_t length, int access);
  // Registers memory that check_memory() has found usable, without a second check.
  static Mr of_checked(std::shared_ptr<Device> device, void* addr, std::size_t length, int access);
  Mr(Mr&& other) noexcept
      : device_(std::move(other.device_)), mr_(std::exchange(other.mr_, nullptr)) {}
  Mr& operator=(Mr&& other) noexcept;
  Mr(const Mr&) = delete;
  Mr& operator=(const Mr&) = delete;
  ~Mr() { reset(); }

  explicit operator bool() const { return mr_ != nullptr; }
  [[nodiscard]] std::uint32_t lkey() const {
    assert(mr_ != nullptr);
    return mr_->lkey;
  }
  [[nodiscard]] std::uint32_t rkey() const {
    assert(mr_ != nullptr);
    return mr_->rkey;
  }
  void reset();

 private:
  std::shared_ptr<Device> device_;  // outlives its registrations
  ibv_mr* mr_ = nullptr;
};

// Memory that exs_mregister registered. It gives peers no right: those get one-shot registrations
// of the very bytes that an operation names, see RdmaSocket.
class Region {
 public:
  Region(void* addr, std::size_t length)
      : addr_(static_cast<std::uint8_t*>(addr)), length_(length) {
    assert(length != 0);
  }
  ~Region() { assert(!busy()); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  [[nodiscard]] bool covers(const void* addr, std::size_t length) const {
    const auto* at = static_cast<const std::uint8_t*>(addr);
    return at >= addr_ && length <= length_ &&
           static_cast<std::size_t>(at - addr_) <= length_ - length;
  }

  // The local key of this memory with `device`, for an operation that fills it or reads it alone;
  // registered at the first use. False: it has none. Of memory that may not be written everywhere
  // parts may be, and the device may take those by themselves.
  bool lkey(const std::shared_ptr<Device>& device, bool fills, std::uint32_t& out);

  // Operations and exported names that use it. exs_mderegister refuses while there are any.
  void attach() { users_.fetch_add(1, std::memory_order_relaxed); }
  void detach() {
    [[maybe_unused]] const std::size_t before = users_.fetch_sub(1, std::memory_order_release);
    assert(before != 0);
  }
  [[nodiscard]] bool busy() const { return users_.load(std::memory_order_acquire) != 0; }

 private:
  std::uint8_t* addr_;
  std::size_t length_;
  std::atomic<std::size_t> users_{0};
  struct Registered {
    Device* device;
    Mr mr;
    bool writable;
  };

  // The device that is nearly always the only one, read without the lock.
  std::atomic<Device*> first_{nullptr};
  std::uint32_t first_lkey_ = 0;
  bool first_writable_ = false;
  os::Mutex mutex_;
  std::vector<Registered> registered_ WEFT_GUARDED_BY(mutex_);
};

// Anonymous memory, touched only where it is used.
class Pages {
 public:
  Pages() = default;
  explicit Pages(std::size_t length);  // throws std::bad_alloc
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), length_(std::exchange(other.length_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(length_, other.length_);
    return *this;
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  [[nodiscard]] std::uint8_t* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return length_; }

 private:
  std::uint8_t* data_ = nullptr;
  std::size_t length_ = 0;
};

}  // namespace weft::exs
