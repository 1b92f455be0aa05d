// The context that destroyed objects point to.
#pragma once

#include <infiniband/verbs.h>

namespace weft::ibverbs {

// A context whose operations all fail with EINVAL and change nothing. Lives forever.
[[nodiscard]] ibv_context* dead_context();

}  // namespace weft::ibverbs
