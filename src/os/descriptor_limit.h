// How many descriptors this process may have open.
#pragma once

#include <sys/resource.h>

namespace weft::os {

// The soft limit, `ulimit -n`: a program may change it at any time. RLIM_INFINITY: none.
[[nodiscard]] inline rlim_t descriptor_limit() noexcept {
  constexpr rlim_t kWhereUnknown = 1024;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kWhereUnknown;
}

}  // namespace weft::os
