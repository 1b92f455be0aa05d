// Which handles are alive. Programs pass stale, foreign and invented pointers, and destroy a handle
// in one thread while another uses it; so each control call pins its handle here before it touches
// what is behind. The data path does not look anything up: see quarantine().
//
// A pin owns the object and keeps its destroy call from taking it apart: quarantine() waits
// until the caller's own pin is the last. So a pin is held for a moment, never across a wait; a
// call that sleeps copies what it sleeps on and lets the pin go first.
//
// Any thread. The registry's mutex is a leaf: nothing else is locked while it is held.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "ibverbs/dead_context.h"
#include "ibverbs/objects.h"
#include "ibverbs/observed.h"

namespace weft::ibverbs {

// A live object, or nothing. T has members `pins` and kKind.
template <class T>
class Pin {
 public:
  Pin() = default;
  // Takes over one count of `object->pins`.
  explicit Pin(std::shared_ptr<T> object) : object_(std::move(object)) {}
  Pin(Pin&& other) noexcept : object_(std::move(other.object_)) {}
  Pin& operator=(Pin&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = std::move(other.object_);
    }
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  ~Pin() { reset(); }

  void reset() {
    if (object_ == nullptr) return;
    // quarantine() waits for 1, its caller's.
    if (object_->pins.fetch_sub(1, std::memory_order_acq_rel) == 2) object_->pins.notify_all();
    object_.reset();
  }

  explicit operator bool() const { return object_ != nullptr; }
  T* operator->() const { return object_.get(); }
  T& operator*() const { return *object_; }
  // Owns the object's memory, but does not keep its destroy call waiting.
  [[nodiscard]] const std::shared_ptr<T>& object() const { return object_; }

 private:
  std::shared_ptr<T> object_;
};

}  // namespace weft::ibverbs

namespace weft::ibverbs::registry {

// From now on the object refuses what its program does with it: one of disable().
using Disable = void (*)(void* object);

// Makes `handle` known. The registry owns the object until it leaves quarantine. `pins` is part of
// the object.
void add(const void* handle, Kind kind, std::shared_ptr<void> object,
         std::atomic<std::uint32_t>& pins, Disable disable);
template <class T>
void add(const void* handle, std::shared_ptr<T> object) {
  auto& pins = object->pins;
  if (observer != nullptr) observe_made(*object);
  add(handle, T::kKind, std::move(object), pins,
      [](void* one) { ibverbs::disable(*static_cast<T*>(one)); });
}

// The object behind `handle`, its pins one more; null when it is not alive or of another kind.
[[nodiscard]] std::shared_ptr<void> pin(const void* handle, Kind kind);

// As pin(), for a QP by its number: rdma_connect names one that is not on the id.
[[nodiscard]] std::shared_ptr<void> pin_qp_by_number(std::uint32_t number);

// How many objects of this kind there are.
[[nodiscard]] std::size_t count(Kind kind);

// Whether `handle` is one of ours and alive, of whatever kind.
[[nodiscard]] bool is_live(const void* handle);

// Takes `handle` out and waits until the caller's pin is the only one: from then on nobody else is
// in the object, and nobody finds it. False when another thread did so: leave the object alone.
//
// The object is disabled then, and its memory stays readable for a while, until 512 others have
// been destroyed: a program that posts to or polls a destroyed object gets EINVAL.
[[nodiscard]] bool quarantine(const void* handle, const std::atomic<std::uint32_t>& pins);

// Whether `handle` was taken out and its memory is still readable.
[[nodiscard]] bool is_quarantined(const void* handle);

// Calls `visit` for each live context. It must not call back into the registry.
void each_context(const std::function<void(Context&)>& visit);

// In a child after fork: forgets everything, without running destructors. The parent's objects are
// not the child's to touch.
void forget_all();

template <class T>
[[nodiscard]] Pin<T> find(const void* handle) {
  return Pin<T>(std::static_pointer_cast<T>(pin(handle, T::kKind)));
}

template <class T>
[[nodiscard]] bool quarantine(const void* handle, const Pin<T>& mine) {
  return quarantine(handle, mine->pins);
}

// Registers `object` and gives the handle that programs get.
template <class T>
auto adopt(std::unique_ptr<T> object) {
  auto* handle = handle_of(*object);
  add(handle, std::shared_ptr<T>(std::move(object)));
  return handle;
}

}  // namespace weft::ibverbs::registry
