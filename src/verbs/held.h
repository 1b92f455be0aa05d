// The share that an object has of its device for as long as it lives. An object gets these before
// anything else of it is made, so the device has them back whatever fails behind that.
#pragma once

#include <cstdint>
#include <utility>

#include "verbs/device.h"

namespace weft::verbs {

// One object of a kind, as the device counts them.
class ObjectCount {
 public:
  //   as DeviceImpl::acquire()
  [[nodiscard]] static Result<ObjectCount> take(DeviceImpl& device, ObjectKind kind) {
    if (auto taken = device.acquire(kind); !taken) return fail(taken.error());
    return ObjectCount(device, kind);
  }
  ObjectCount(ObjectCount&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), kind_(other.kind_) {}
  ObjectCount& operator=(ObjectCount&&) = delete;
  ~ObjectCount() {
    if (device_ != nullptr) device_->release(kind_);
  }

 private:
  ObjectCount(DeviceImpl& device, ObjectKind kind) noexcept : device_(&device), kind_(kind) {}

  DeviceImpl* device_;
  ObjectKind kind_;
};

// A number, see DeviceImpl::take_number() and take_qp_number().
class Number {
 public:
  [[nodiscard]] static Number take(DeviceImpl& device) {
    return Number(device, device.take_number(), &DeviceImpl::free_number);
  }
  [[nodiscard]] static Result<Number> take_for_qp(DeviceImpl& device) {
    auto value = device.take_qp_number();
    if (!value) return fail(value.error());
    return of_qp(device, *value);
  }
  // One that is taken already.
  [[nodiscard]] static Number of_qp(DeviceImpl& device, std::uint32_t value) {
    return Number(device, value, &DeviceImpl::free_qp_number);
  }
  Number(Number&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), value_(other.value_), free_(other.free_) {}
  Number& operator=(Number&&) = delete;
  ~Number() {
    if (device_ != nullptr) (device_->*free_)(value_);
  }

  [[nodiscard]] std::uint32_t value() const noexcept { return value_; }

 private:
  using Free = void (DeviceImpl::*)(std::uint32_t);
  Number(DeviceImpl& device, std::uint32_t value, Free free) noexcept
      : device_(&device), value_(value), free_(free) {}

  DeviceImpl* device_;
  std::uint32_t value_;
  Free free_;
};

}  // namespace weft::verbs
