// The core's name for a run of memory.
#pragma once

#include "base/slice.h"

namespace weft::proto {

using weft::Slice;

}  // namespace weft::proto
