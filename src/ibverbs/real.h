// The machine's own rdma-core beside Weft: found by absolute path, loaded only when there is a reason
// to, and never required.
//
// Weft's libraries carry the same SONAMEs, so a plain dlopen() would find Weft itself.
#pragma once

#include <atomic>
#include <cerrno>

#include "ibverbs/errors.h"

namespace weft::ibverbs {

// One library of rdma-core: "libibverbs.so.1" or "librdmacm.so.1". Thread-safe.
class RealLibrary {
 public:
  // `built_against`: where to look first, may be empty. `on_load` runs once, after a success. The
  // strings must outlive the object.
  constexpr RealLibrary(const char* soname, const char* built_against, void (*on_load)())
      : soname_(soname), built_against_(built_against), on_load_(on_load) {}

  // Loads it if that was not tried yet. False when there is none.
  bool load();
  // Null when it is not loaded (this does not load it) or has no such symbol.
  [[nodiscard]] void* symbol(const char* name) const;
  // Where it was found, or what was looked for: for messages.
  [[nodiscard]] const char* path() const { return path_; }

 private:
  void* open_first();

  const char* soname_;
  const char* built_against_;
  void (*on_load_)();
  std::atomic<void*> handle_{nullptr};
  std::atomic<bool> tried_{false};
  char path_[512] = "";
};

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
