// Where exceptions end at the r* calls: containers throw without memory, and new threads where
// there can be no more. What ends a cancelled thread is none of them, and goes on.
#pragma once

#include <cerrno>
#include <exception>
#include <system_error>

#include "ibverbs/errors.h"

namespace weft::rsockets {

// ENOMEM, or what the operating system said.
[[nodiscard]] inline int errno_thrown(const std::exception& thrown) noexcept {
  const auto* const refused = dynamic_cast<const std::system_error*>(&thrown);
  return refused != nullptr ? refused->code().value() : ENOMEM;
}

// -1 with errno, as the calls fail.
inline int fail_thrown(const std::exception& thrown) noexcept {
  return ibverbs::fail_minus(errno_thrown(thrown));
}

}  // namespace weft::rsockets
