// The calls that `weft faults sweep` lets fail, each with its error. docs/faults.md has the same
// list.
//
// Calls that end something are left out: adapters refuse them only for what the program did wrong.
// So are those that programs repeat while nothing is there (ibv_poll_cq, ibv_get_async_event):
// their number differs from run to run.
#pragma once

#include <span>
#include <string_view>

namespace weft::faults {

struct FallibleCall {
  std::string_view name;  // of libibverbs or librdmacm
  int error = 0;          // errno
};

[[nodiscard]] std::span<const FallibleCall> fallible_calls();
// 0: it is none of them.
[[nodiscard]] int error_of(std::string_view call);

}  // namespace weft::faults
