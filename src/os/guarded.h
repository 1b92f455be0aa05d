// Where exceptions end. Containers, std::function and std::make_shared throw when there is no
// memory, std::thread when there can be no more threads; Weft's interfaces do not. Between the two
// everything is taken back by destructors.
#pragma once

#include <weft/system_error.h>

#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/result.h"

namespace weft::os {

// The Result of `call`.   kNoMemory; what the operating system said
template <class Call>
[[nodiscard]] std::invoke_result_t<Call> guarded(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return fail(Error::kNoMemory);
  } catch (const std::system_error& refused) {
    return fail(system_error(refused.code().value()));
  }
}

}  // namespace weft::os
