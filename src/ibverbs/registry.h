// Which handles are alive. Programs pass stale, foreign and invented pointers; a control call looks
// its handle up here before it touches it. The data path does not: see "graveyard".
//
// Any thread.
#pragma once

#include <functional>
#include <memory>

#include "ibverbs/objects.h"

namespace weft::ibverbs::registry {

// Makes `handle` known. The object is owned by the registry until bury().
void add(const void* handle, Kind kind, std::shared_ptr<void> object);

// The object behind `handle`, or null when it is not alive or of another kind.
[[nodiscard]] std::shared_ptr<void> find(const void* handle, Kind kind);

// Whether `handle` is one of ours and alive, of whatever kind.
[[nodiscard]] bool is_live(const void* handle);

// Takes `handle` out. False when somebody else did: the caller must leave the object alone.
//
// The memory stays readable for a while, with its context pointer led to a context whose operations
// all fail, so that a program that posts to or polls a destroyed object gets an error.
[[nodiscard]] bool bury(const void* handle);

// Whether `handle` was taken out and its memory is still readable.
[[nodiscard]] bool is_buried(const void* handle);

// Live QPs by number, for rdma_connect with a QP that is not on the id. Null when there is none.
[[nodiscard]] Qp* qp_by_number(std::uint32_t number);

// Calls `visit` for each live context. It must not call back into the registry.
void each_context(const std::function<void(Context&)>& visit);

// In a child after fork: forgets everything, without running destructors. The parent's objects are
// not the child's to touch.
void forget_all();

template <class T>
T* find(const void* handle) {
  return static_cast<T*>(find(handle, T::kKind).get());
}

// Registers `object` and gives the handle that programs get.
template <class T>
auto adopt(std::unique_ptr<T> object) {
  auto* handle = handle_of(*object);
  add(handle, T::kKind, std::shared_ptr<T>(std::move(object)));
  return handle;
}

}  // namespace weft::ibverbs::registry
