// Calls on objects that are not Weft's go to the machine's own libibverbs.
#pragma once

#include <cerrno>

#include "ibverbs/errors.h"
#include "ibverbs/real_library.h"

namespace weft::ibverbs {

RealLibrary& real_ibverbs();

// The real function of the type of `Function`; null while no real library is in use. For objects
// that are not Weft's: they can only come from there.
template <class Function>
Function* real_function(const char* name) {
  return reinterpret_cast<Function*>(real_ibverbs().symbol(name));
}

// Calls the real function on a foreign object. Without one, no such object can exist: `failure`.
template <class Function, class... Arguments>
int forward_int(Function* real, Arguments... arguments) {
  return real != nullptr ? real(arguments...) : EINVAL;
}
template <class Function, class... Arguments>
int forward_minus(Function* real, Arguments... arguments) {
  return real != nullptr ? real(arguments...) : fail_minus(EINVAL);
}
template <class Function, class... Arguments>
auto forward_null(Function* real, Arguments... arguments) -> decltype(real(arguments...)) {
  if (real != nullptr) return real(arguments...);
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
