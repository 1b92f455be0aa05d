// Which rdma_cm serves this process: Weft's, or the machine's own.
//
// An rdma_cm channel has one descriptor and programs read the fields of ids, so the two cannot be
// mixed; the choice is made once. WEFT_REAL_CM=off and WEFT_REAL_CM=on force it; else the machine's
// own librdmacm is taken where it works: where the kernel has an RDMA device and
// /dev/infiniband/rdma_cm can be opened.
#pragma once

#include <cerrno>

#include "ibverbs/bridge.h"
#include "ibverbs/real_library.h"

namespace weft::rdmacm {

// Null: Weft serves.
[[nodiscard]] ibverbs::RealLibrary* real_cm();

// Calls the real function, with Weft's devices out of its sight.
template <class Function, class... Arguments>
auto call_real(const char* name, Arguments... arguments) -> decltype(auto) {
  using Result = decltype((*static_cast<Function*>(nullptr))(arguments...));
  auto* function = reinterpret_cast<Function*>(real_cm()->symbol(name));
  if constexpr (std::is_void_v<Result>) {
    if (function == nullptr) return;
    weft_ibv_hide_devices(true);
    function(arguments...);
    weft_ibv_hide_devices(false);
  } else {
    if (function == nullptr) {
      errno = ENOSYS;
      if constexpr (std::is_pointer_v<Result>) {
        return static_cast<Result>(nullptr);
      } else {
        return static_cast<Result>(-1);
      }
    }
    weft_ibv_hide_devices(true);
    const Result result = function(arguments...);
    weft_ibv_hide_devices(false);
    return static_cast<Result>(result);
  }
}

}  // namespace weft::rdmacm

// First line of each exported function: leaves for the real one when that serves.
#define WEFT_CM_FORWARD(name, ...)                                                        \
  if (::weft::rdmacm::real_cm() != nullptr) {                                             \
    return ::weft::rdmacm::call_real<decltype(::name)>(#name __VA_OPT__(, ) __VA_ARGS__); \
  }
