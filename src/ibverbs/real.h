// Calls on objects that are not Weft's go to the machine's own libibverbs.
#pragma once

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real_library.h"
#include "ibverbs/registry.h"

namespace weft::ibverbs {

RealLibrary& real_ibverbs();

// Whether the kernel has RDMA devices, so that the real library may have any.
[[nodiscard]] bool machine_has_rdma();

// The real function of the type of `Function`; null while no real library is in use. For objects
// that are not Weft's: they can only come from there.
template <class Function>
Function* real_function(const char* name) {
  return reinterpret_cast<Function*>(real_ibverbs().symbol(name));
}

// `real`, or null when `handle` was ours and is destroyed: the real library would look behind it.
template <class Function>
Function* unless_quarantined(const void* handle, Function* real) {
  observe_not_live(handle);
  return real != nullptr && !registry::is_quarantined(handle) ? real : nullptr;
}

// Calls the real function on a foreign object, its first argument. EINVAL where there is no real
// library, hence no such object, and for what was ours and is destroyed.
template <class Function, class Handle, class... Arguments>
int forward_int(Function* real, Handle* handle, Arguments... arguments) {
  real = unless_quarantined(handle, real);
  return real != nullptr ? real(handle, arguments...) : fail_number(EINVAL);
}
template <class Function, class Handle, class... Arguments>
int forward_minus(Function* real, Handle* handle, Arguments... arguments) {
  real = unless_quarantined(handle, real);
  return real != nullptr ? real(handle, arguments...) : fail_minus(EINVAL);
}
template <class Function, class Handle, class... Arguments>
auto forward_null(Function* real, Handle* handle, Arguments... arguments)
    -> decltype(real(handle, arguments...)) {
  real = unless_quarantined(handle, real);
  if (real != nullptr) return real(handle, arguments...);
  return fail_null(EINVAL);
}

// While one of these exists, this thread sees no Weft devices: the real libraries call back into
// ibv_get_device_list and look behind each device they are given.
class HideWeftDevices {
 public:
  HideWeftDevices() { ++depth(); }
  ~HideWeftDevices() { --depth(); }
  HideWeftDevices(const HideWeftDevices&) = delete;
  HideWeftDevices& operator=(const HideWeftDevices&) = delete;
  [[nodiscard]] static bool active() { return depth() > 0; }
  static void set(bool hide) { depth() += hide ? 1 : -1; }

 private:
  static int& depth();
};

}  // namespace weft::ibverbs

// The real function behind the exported name.
#define WEFT_REAL(name) ::weft::ibverbs::real_function<decltype(::name)>(#name)
